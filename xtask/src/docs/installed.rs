//! Lets programs that this computer has parse the book's commands, without effect: GNU's and systemd's programs and curl read
//! all options before they follow a `--help` at the end, jq compiles a filter over empty input, ssh prints the settings that its
//! options amount to.
//!
//! What it is not: a run of a command, or proof that it does what the text says. The commands of a program that is not installed, and
//! those of [`BY_NAME`], are known by the program's name only.

use anyhow::{Context, bail};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// How a program can be asked what it thinks of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// With `--help` at the end.
    Help,
    /// So, and the first word has to be in its list of verbs.
    HelpAndVerb,
    /// With nothing to read.
    Empty,
    /// With `-G` at the front.
    Settings,
}

/// Programs that can be asked.
const PROGRAMS: [(&str, Asked); 21] = [
    ("base64", Asked::Help),
    ("cat", Asked::Help),
    ("chmod", Asked::Help),
    ("cp", Asked::Help),
    ("curl", Asked::Help),
    ("diff", Asked::Help),
    ("grep", Asked::Help),
    ("head", Asked::Help),
    ("install", Asked::Help),
    ("journalctl", Asked::Help),
    ("jq", Asked::Empty),
    ("ln", Asked::Help),
    ("ls", Asked::Help),
    ("mkdir", Asked::Help),
    ("rm", Asked::Help),
    ("sort", Asked::Help),
    ("ssh", Asked::Settings),
    ("systemctl", Asked::HelpAndVerb),
    ("systemd-cgtop", Asked::Help),
    ("systemd-inhibit", Asked::Help),
    ("touch", Asked::Help),
];

/// Programs whose commands are known by name only. `cd` and `echo` are the shell's own and read no `--help`; git shows a manual for it
/// before it reads the options; no package that the tests need has the others. helm's commands are parsed by helm where it is there
/// (see `programs`).
const BY_NAME: [&str; 7] = ["auditctl", "cd", "cosign", "echo", "git", "helm", "oc"];

/// Whether the book may use this program.
pub(super) fn is_known(program: &str) -> bool {
    BY_NAME.contains(&program) || PROGRAMS.iter().any(|(name, _)| *name == program)
}

/// Checks one command, without the variables that are set before it.
///
/// # Errors
/// Its program refuses it.
pub(super) fn check(words: &[&str]) -> anyhow::Result<()> {
    let Some((program, args)) = words.split_first() else { return Ok(()) };
    let Some((_, asked)) = PROGRAMS.iter().find(|(name, _)| name == program) else { return Ok(()) };
    // After it, `--help` would be one more operand.
    if args.contains(&"--") {
        bail!("{program} cannot be asked about a command with --: leave it out");
    }
    let all = match asked {
        Asked::Help | Asked::HelpAndVerb => [args, &["--help"]].concat(),
        Asked::Empty => args.to_vec(),
        Asked::Settings => [&["-F", "/dev/null", "-G"], args].concat(),
    };
    let Some(output) = ask(program, &all)? else { return Ok(()) };
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{program} refuses this: {}", said.lines().next().unwrap_or("it says nothing"));
    }
    let verb = args.iter().find(|word| !word.starts_with('-'));
    if let (Asked::HelpAndVerb, Some(verb)) = (asked, verb) {
        let help = String::from_utf8_lossy(&output.stdout);
        let lines = help.lines().filter_map(|line| line.strip_prefix("  "));
        if !lines.filter_map(|line| line.split(' ').next()).any(|known| known == *verb) {
            bail!("{program} knows no {verb}");
        }
    }
    Ok(())
}

/// The programs of the list that this computer does not have.
pub(super) fn missing() -> Vec<&'static str> {
    let is_missing = |name: &&str| ask(name, &["--version"]).is_ok_and(|output| output.is_none());
    PROGRAMS.iter().map(|(name, _)| *name).filter(is_missing).collect()
}

/// Runs a program with nothing to read, where no file that a command names can be. `None`: it is not installed.
fn ask(program: &str, args: &[&str]) -> anyhow::Result<Option<Output>> {
    let output = Command::new(program)
        .args(args)
        .current_dir(Path::new("/"))
        .stdin(Stdio::null())
        // With it, `--help` after an argument would be the name of a file.
        .env_remove("POSIXLY_CORRECT")
        .output();
    match output {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot run {program}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_refuses_what_it_does_not_know() {
        for (line, why) in [
            ("journalctl -u kubelet --since -30m", None),
            ("journalctl -u kubelet --sinc3 -30m", Some("sinc3")),
            ("journalctl -u kubelet --since -30moons", Some("-30moons")),
            ("systemctl enable --now kubelet.service", None),
            ("systemctl enabel --now kubelet.service", Some("enabel")),
            ("systemctl enable --nwo kubelet.service", Some("nwo")),
            ("systemd-cgtop --order=memory", None),
            ("systemd-cgtop --order=size", Some("size")),
            ("curl -s http://127.0.0.1:1/metrics", None),
            ("curl --slient http://127.0.0.1:1/metrics", Some("slient")),
            ("install -m 0755 a b", None),
            ("install --mod 0755 --owning a b", Some("owning")),
            ("touch /nowhere/at/all", None),
            ("jq .findings[].message", None),
            ("jq .findings[", Some("jq")),
            ("ssh -L 8796:127.0.0.1:8796 host mco dashboard", None),
            ("ssh -L 8796:127.0.0.1:here host", Some("8796")),
            ("cosign --whatever", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            if missing().contains(&words[0]) {
                continue;
            }
            let refused = check(&words).err().map(|error| format!("{error:#}"));
            assert_eq!(refused.is_some(), why.is_some(), "{line}: {refused:?}");
            assert!(why.is_none_or(|why| refused.unwrap_or_default().contains(why)), "{line}");
        }
    }
}
