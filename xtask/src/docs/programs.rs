//! Lets kubectl and helm parse the book's commands: with `--help` appended, they parse a command with all its flags and do not
//! run it. Unknown flags and commands are errors all the same.
//!
//! What it is not: proof that a command does what the text says.

use super::Checked;
use anyhow::{Context, bail};
use lab::{Environment, Program, Programs, Reporter};
use std::path::PathBuf;
use std::process::Command;

/// The programs that can do this.
pub(super) const PARSE: &[&str] = &["helm", "kubectl"];

/// Checks all of their commands. Builds the programs if they are missing.
///
/// # Errors
/// The commands that their program refuses, each with its message.
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

/// The program's objection to this command; `None` if it accepts it.
fn refused(program: &PathBuf, words: &[String]) -> anyhow::Result<Option<String>> {
    // Arguments after `--` belong to another program.
    let own = words.iter().skip(1).take_while(|word| *word != "--");
    let output = Command::new(program)
        .args(own)
        .arg("--help")
        .env("KUBECONFIG", "/dev/null")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    // Help of a command group in place of the command's own: the group does not know the next word.
    let help = String::from_utf8_lossy(&output.stdout);
    if help.lines().any(|line| line.trim_end().ends_with("[command]") || line.contains(" SUBCOMMAND")) {
        return Ok(Some("the group has no such command".to_owned()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Ok((!output.status.success())
        .then(|| said.lines().next().unwrap_or("it failed and said nothing").to_owned()))
}
