//! Has kubectl and helm parse the book's commands for them: with `--help` at its end a command is parsed, flags and all, and not
//! run. An unknown flag or command is an error all the same.
//!
//! What it is not: proof that a command does what the text says.

use super::Checked;
use anyhow::{Context, bail};
use lab::{Environment, Program, Programs, Reporter};
use std::path::PathBuf;
use std::process::Command;

/// The programs that do this.
pub(super) const PARSE: &[&str] = &["helm", "kubectl"];

/// Checks all of them. The programs are built if they are not there.
///
/// # Errors
/// The commands that their program does not accept, each with what it says.
pub(super) fn check(checked: &Checked) -> anyhow::Result<()> {
    let programs = Programs::new(&Environment::read())?;
    let runtime = crate::demo::runtime()?;
    let get = |program| runtime.block_on(programs.get(program, &Reporter::stderr()));
    let (helm, kubectl) = (get(Program::Helm)?, get(Program::Kubectl)?);
    let mut wrong = vec![];
    for words in &checked.others {
        let program = if words.first().is_some_and(|w| w == "helm") { &helm } else { &kubectl };
        if let Some(why) = refused(program, words)? {
            wrong.push(format!("{}: {why}", words.join(" ")));
        }
    }
    if !wrong.is_empty() {
        bail!("commands in the book that their programs refuse:\n{}", wrong.join("\n"));
    }
    Ok(())
}

/// What the program says against this command; `None`: it accepts it.
fn refused(program: &PathBuf, words: &[String]) -> anyhow::Result<Option<String>> {
    // What follows `--` is another program's.
    let own = words.iter().skip(1).take_while(|word| *word != "--");
    let output = Command::new(program)
        .args(own)
        .arg("--help")
        .env("KUBECONFIG", "/dev/null")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    // A group of commands that does not know the next word prints its own help.
    let help = String::from_utf8_lossy(&output.stdout);
    if help.lines().any(|line| line.trim_end().ends_with("[command]") || line.contains(" SUBCOMMAND")) {
        return Ok(Some("it names no command of its group".to_owned()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Ok((!output.status.success())
        .then(|| said.lines().next().unwrap_or("it failed and said nothing").to_owned()))
}
