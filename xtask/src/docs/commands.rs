//! Checks the commands in the book. Commands of `mco` and `cargo xtask` are parsed by their own definitions, others of cargo are compared
//! with the repository (see `cargo`). Those of kubectl are compared with its verbs and the known kinds, and what its patches set with the kind's schema; all others with a list of
//! programs; the programs that this computer has parse their own (see `installed`). Where kubectl and helm are installed, they do so too (see `programs`). The shell parses all lines (`bash -n`).
//!
//! What it is not: a shell. No command is run.

use super::{cargo, installed, manifests};
use anyhow::{Context, bail};
use clap::CommandFactory;
use std::process::Command;

/// Verbs of kubectl that the book uses, and whether a kind must follow.
const VERBS: &[(&str, bool)] = &[
    ("annotate", true),
    ("apply", false),
    ("certificate", false),
    ("config", false),
    ("create", false),
    ("cordon", false),
    ("delete", true),
    ("describe", true),
    ("edit", true),
    ("get", true),
    ("label", true),
    ("logs", false),
    ("patch", true),
    ("top", false),
    ("uncordon", false),
    ("wait", false),
];
/// Kinds of Kubernetes itself that the book mentions.
const KINDS: &[&str] = &[
    "configmap",
    "configmaps",
    "clusterrole",
    "clusterroles",
    "clusterrolebinding",
    "crd",
    "csr",
    "daemonset",
    "daemonsets",
    "deployment",
    "deployments",
    "events",
    "lease",
    "leases",
    "namespace",
    "namespaces",
    "ns",
    "node",
    "nodes",
    "pdb",
    "pod",
    "pods",
    "secret",
    "secrets",
    "services",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
];

/// Checks the commands of a block with prompts (`$ `, or `# ` for root). Its other lines are output.
pub(super) fn console(text: &str) -> anyhow::Result<usize> {
    let commands = lines(text)?;
    commands.iter().try_for_each(|c| line_is_true(c))?;
    shell_parses(&commands.join("\n"))?;
    Ok(commands.len())
}

/// Whether the shell understands the quotes, pipes, loops and redirections.
fn shell_parses(script: &str) -> anyhow::Result<()> {
    let output = Command::new("bash").args(["-n", "-c", script]).output().context("cannot run bash")?;
    if !output.status.success() {
        bail!("the shell cannot parse it: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The commands of such a block that start one of these programs, split into words.
pub(super) fn of_programs(text: &str, programs: &[&str]) -> Vec<Vec<String>> {
    let all = lines(text).unwrap_or_default();
    let words = all.iter().flat_map(|line| simple_commands(line));
    words.filter(|words| words.first().is_some_and(|w| programs.contains(&w.as_str()))).collect()
}

/// The lines that begin with a prompt, each joined with its continuation lines.
fn lines(text: &str) -> anyhow::Result<Vec<String>> {
    let mut commands = vec![];
    let mut open: Option<String> = None;
    for line in text.lines() {
        let begun = open.take();
        let line = match (begun, line.strip_prefix("$ ").or_else(|| line.strip_prefix("# "))) {
            (Some(begun), _) => begun + "\n" + line,
            (None, Some(line)) => line.to_owned(),
            (None, None) => continue,
        };
        if line.ends_with('\\') || line.matches('\'').count() % 2 == 1 {
            open = Some(line);
        } else {
            commands.push(line);
        }
    }
    if let Some(open) = open {
        bail!("a command that does not end: {open}");
    }
    if commands.is_empty() {
        bail!("no line begins with a prompt ($ or #)");
    }
    Ok(commands)
}

/// Turns a block in which every line is a command into one with prompts.
pub(super) fn with_prompts(text: &str) -> String {
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.trim_start().starts_with('#'));
    let prompts: Vec<String> = lines.map(|l| format!("$ {l}")).collect();
    prompts.join("\n").replace("\\\n$ ", "\\\n")
}

fn line_is_true(line: &str) -> anyhow::Result<()> {
    for words in simple_commands(line) {
        let words: Vec<&str> = words.iter().map(String::as_str).skip_while(|w| is_assignment(w)).collect();
        command_is_true(&words).with_context(|| line.to_owned())?;
    }
    Ok(())
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
}

fn command_is_true(words: &[&str]) -> anyhow::Result<()> {
    match words {
        [] => Ok(()),
        ["sudo", rest @ ..] => command_is_true(rest),
        ["xargs", rest @ ..] => {
            let rest: Vec<&str> = rest.iter().copied().skip_while(|w| w.starts_with('-')).collect();
            // xargs adds arguments at run time; `x` stands for them.
            command_is_true(&[&rest[..], &["x"]].concat())
        }
        // The default is right in a pod. On a host, the agent would wait for a folder that does not exist there.
        ["mco", "daemon", "start", rest @ ..] if !rest.contains(&"--root-mount") => {
            bail!("on a host this needs --root-mount /")
        }
        ["mco", ..] => parsed(cli::args::Mco::command(), words),
        ["cargo", "xtask", rest @ ..] => parsed(crate::Xtask::command(), &[&["xtask"][..], rest].concat()),
        ["cargo", rest @ ..] => cargo::check(&crate::root(), rest),
        ["kubectl", rest @ ..] => kubectl(rest),
        [program, ..] if installed::is_known(program) => installed::check(words),
        [program, ..] => {
            bail!("{program} is not a program that the book's checks know (xtask/src/docs/installed.rs)")
        }
    }
}

/// Whether the program takes these arguments.
fn parsed(command: clap::Command, words: &[&str]) -> anyhow::Result<()> {
    match command.try_get_matches_from(words) {
        // clap reports help and version as errors too, but on stdout.
        Err(e) if e.use_stderr() => bail!("{}", e.to_string().lines().next().unwrap_or_default()),
        _ => Ok(()),
    }
}

fn kubectl(words: &[&str]) -> anyhow::Result<()> {
    let mut plain = words.iter().copied().filter(|w| !w.starts_with('-'));
    let verb = plain.next().unwrap_or_default();
    let Some((_, names_kind)) = VERBS.iter().find(|(v, _)| *v == verb) else {
        bail!("kubectl {verb} is not a verb that the book's checks know (xtask/src/docs/commands.rs)")
    };
    let from_file = words.iter().any(|w| ["-f", "-R", "--filename"].contains(w));
    if !names_kind || from_file {
        return Ok(());
    }
    // The next word must be the kind: the book writes an option with a value only after it.
    let crds = api::crds::all()?;
    let Some(kind) = plain.next() else { bail!("kubectl {verb}: of what?") };
    for kind in kind.split(',') {
        let name = kind.split('/').next().unwrap_or_default();
        if !KINDS.contains(&name) && !crds.iter().any(|crd| crd.is_called(name)) {
            bail!("kubectl {verb}: no kind is called {name:?}");
        }
        if verb == "patch" {
            manifests::check_patch(&crds, name, words)?;
        }
    }
    Ok(())
}

/// Ends a word and adds it to the command's words, unless it is the file of a redirection.
fn end_word(word: &mut String, any: &mut bool, skip: &mut bool, words: &mut Vec<String>) {
    let text = std::mem::take(word);
    if (*any || !text.is_empty()) && !std::mem::take(skip) {
        words.push(text);
    }
    *any = false;
}

/// Splits a line of shell into its simple commands, including those in `$(…)`: words without quotes or redirections.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut done = vec![];
    let mut words: Vec<String> = vec![];
    let (mut word, mut any, mut skip) = (String::new(), false, false);
    let mut quote: Option<char> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('$', None | Some('"')) if chars.peek() == Some(&'(') => {
                let (mut inner, mut depth) = (String::new(), 0);
                for c in chars.by_ref() {
                    depth += i32::from(c == '(') - i32::from(c == ')');
                    inner.push(c);
                    if depth == 0 {
                        break;
                    }
                }
                done.extend(simple_commands(inner.trim_start_matches('(').trim_end_matches(')')));
                // A variable or substitution becomes a value that any argument accepts.
                word.push_str("0123456789ab.x");
            }
            (c, Some(_)) => word.push(c),
            ('"' | '\'', None) => (quote, any) = (Some(c), true),
            ('\\', None) => drop(chars.next_if_eq(&'\n')),
            // The start of a comment, or the prompt of root.
            ('#', None) if word.is_empty() && !any => break,
            ('>' | '<', None) => {
                end_word(&mut word, &mut any, &mut skip, &mut words);
                // A redirection: the next word is a file.
                skip = true;
            }
            ('|' | ';' | '&', None) => {
                end_word(&mut word, &mut any, &mut skip, &mut words);
                done.push(std::mem::take(&mut words));
            }
            (c, None) if c.is_whitespace() => {
                if any || !word.is_empty() {
                    end_word(&mut word, &mut any, &mut skip, &mut words);
                }
            }
            (c, None) => word.push(c),
        }
    }
    end_word(&mut word, &mut any, &mut skip, &mut words);
    done.push(words);
    done.retain(|w| !w.is_empty());
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_shell_is_cut_into_its_commands() {
        let line = "kubectl get x -o yaml | mco daemon plan -f - > out # why";
        assert_eq!(
            simple_commands(line),
            [vec!["kubectl", "get", "x", "-o", "yaml"], vec!["mco", "daemon", "plan", "-f", "-"]]
        );
        let nested = simple_commands("mco pointer worker --token \"$(mco token create worker)\"");
        assert_eq!(nested[0], ["mco", "token", "create", "worker"]);
        assert_eq!(nested[1][4], "0123456789ab.x");
    }

    #[test]
    fn a_command_may_go_on_in_the_next_line() {
        assert_eq!(console("$ kubectl annotate mcp worker \\\n    a=b\nout\n").unwrap(), 1);
        assert_eq!(console("$ kubectl annotate mcp worker a='\nb\nc'\n").unwrap(), 1);
        console("no prompt\n").unwrap_err();
    }
}
