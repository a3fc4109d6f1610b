//! Checks that need no build: messages of commits, formatting, generated files, licences and sources of dependencies.
//!
//! Not here: the rules on dependencies that need no extra tool (`xtask/tests/dependencies.rs`).

use anyhow::bail;
use std::path::Path;
use std::process::Command;

/// Commits after this one need a body that says why. Earlier ones stay as they are.
const SINCE: &str = "e083a06ecb4e";
/// How `git log` prints a commit: its name and summary in a line, its body, and a mark.
const LOG: &str = "--format=%h %s%n%b%x00";

/// Tools that may be missing on a computer: the cargo subcommand and its arguments. The advisory database is left out,
/// because it needs the network.
const TOOLS: [(&str, &[&str]); 2] =
    [("deny", &["deny", "check", "bans", "licenses", "sources"]), ("machete", &["machete"])];

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    println!("== messages of commits");
    if let Some(why) = commits(root)? {
        println!("left out: {why}");
    }
    super::step(root, "formatting", &["fmt", "--all", "--check"])?;
    println!("== generated files");
    crate::generate::run(root, true)?;
    for (tool, args) in TOOLS {
        if installed(root, tool) {
            super::step(root, tool, args)?;
        } else {
            println!("== {tool}: left out, cargo-{tool} is not installed (`cargo install cargo-{tool}`)");
        }
    }
    Ok(())
}

/// Checks that commits say why. Returns why that was left out, if it was: these are not files of a checkout of git with its history.
fn commits(root: &Path) -> anyhow::Result<Option<String>> {
    let git = |args: &[&str]| Command::new("git").args(args).current_dir(root).output();
    // Above a copy without git there may be another checkout.
    if !root.join(".git").exists() {
        return Ok(Some("this is not a checkout of git".to_owned()));
    }
    match git(&["merge-base", "--is-ancestor", SINCE, "HEAD"]) {
        Err(error) => return Ok(Some(format!("git cannot be run: {error}"))),
        Ok(output) if !output.status.success() => {
            return Ok(Some(format!("the history here does not go back to {SINCE}")));
        }
        Ok(_) => {}
    }
    let output = git(&["log", "--no-merges", LOG, &format!("{SINCE}..HEAD")])?;
    if !output.status.success() {
        bail!("git log: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    match &without_body(&String::from_utf8_lossy(&output.stdout))[..] {
        [] => Ok(None),
        all => bail!(
            "these commits do not say why; give each a body that begins with the reason:\n{}",
            all.join("\n")
        ),
    }
}

/// The commits of a log in the form of [`LOG`] that have a summary only.
fn without_body(log: &str) -> Vec<&str> {
    let commits = log.split('\0').map(str::trim).filter(|commit| !commit.is_empty());
    commits.filter(|commit| !commit.contains('\n')).collect()
}

fn installed(root: &Path, subcommand: &str) -> bool {
    let output = Command::new(env!("CARGO")).args([subcommand, "--version"]).current_dir(root).output();
    output.is_ok_and(|o| o.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_without_a_body_is_named() {
        let log = "a1 host: one\nBecause.\n\0\nb2 docs: two\n\0\nc3 api: three\nOf this\nand that.\n\0\nd4 lab: four\n\n\0\n";
        assert_eq!(without_body(log), ["b2 docs: two", "d4 lab: four"]);
        assert_eq!(without_body(""), [""; 0]);
    }

    #[test]
    fn nothing_is_checked_outside_of_a_checkout() {
        assert_eq!(commits(Path::new("/")).unwrap().as_deref(), Some("this is not a checkout of git"));
    }
}
