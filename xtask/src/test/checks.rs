//! Checks that need no build: formatting, generated files, licences and sources of dependencies.
//!
//! Not here: the rules on dependencies that need no extra tool (`xtask/tests/dependencies.rs`).

use std::path::Path;
use std::process::Command;

/// Tools that may be missing on a computer: the cargo subcommand and its arguments. The advisory database is left out,
/// because it needs the network.
const TOOLS: [(&str, &[&str]); 2] =
    [("deny", &["deny", "check", "bans", "licenses", "sources"]), ("machete", &["machete"])];

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
