//! Checks before anything is built: formatting, generated files, licences and sources of dependencies.
//!
//! Not here: the rules on dependencies that need no tool (`xtask/tests/dependencies.rs`).

use std::path::Path;
use std::process::Command;

/// Tools that not every computer has: subcommand of cargo and its arguments. The advisory database is left out: it needs
/// the network.
const TOOLS: [(&str, &[&str]); 2] =
    [("deny", &["deny", "check", "bans", "licenses", "sources"]), ("machete", &["machete"])];

/// Runs them.
pub(super) fn run(root: &Path) -> anyhow::Result<()> {
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

fn installed(root: &Path, subcommand: &str) -> bool {
    let output = Command::new(env!("CARGO")).args([subcommand, "--version"]).current_dir(root).output();
    output.is_ok_and(|o| o.status.success())
}
