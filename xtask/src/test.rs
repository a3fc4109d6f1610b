//! `cargo xtask test`: every test there is; `--unit`: those that need no cluster.
//!
//! The tests themselves are plain `cargo test`; what stands here is the order (cheap checks first), the build of the
//! `mco` program that cluster tests start, and the choice of nextest where it is installed.

use anyhow::{Context, bail};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Crates with tests that need a control plane, in `tests/`; their unit tests need none.
const CLUSTER_TESTS: [&str; 4] = ["lab", "controller", "daemon", "server"];
/// Tests in those folders that need none either: package and name.
const NO_CLUSTER: [(&str, &str); 3] = [("server", "recorded"), ("server", "requests"), ("server", "wire")];

/// Runs them.
pub(crate) fn run(root: &Path, unit: bool, rest: &[String]) -> anyhow::Result<()> {
    let start = Instant::now();
    step(root, "formatting", &["fmt", "--all", "--check"])?;
    println!("== generated files");
    crate::generate::run(root, true)?;
    let next = installed(root, "nextest");
    let run: &[&str] = if next { &["nextest", "run"] } else { &["test"] };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    if unit {
        let but: Vec<&str> = CLUSTER_TESTS.iter().flat_map(|c| ["--exclude", c]).collect();
        step(root, "unit and conformance tests", &[run, &["--workspace"], &but, &rest].concat())?;
        let only: Vec<&str> = CLUSTER_TESTS.iter().flat_map(|c| ["-p", c]).collect();
        step(root, "unit tests beside cluster tests", &[run, &only, &["--lib"], &rest].concat())?;
        for (package, test) in NO_CLUSTER {
            step(root, "conformance tests", &[run, &["-p", package, "--test", test], &rest].concat())?;
        }
    } else {
        println!("== the control plane's programs");
        prepare_lab()?;
        step(root, "the mco program", &["build", "-p", "cli"])?;
        // One failure does not hide the others: a run takes long.
        step(root, "all tests", &[run, &["--workspace", "--no-fail-fast"], &rest].concat())?;
        if next {
            step(root, "examples in the documentation", &["test", "--workspace", "--doc"])?;
        }
    }
    println!("== all passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Builds or finds them once, with progress, so that the first cluster test does not look as if it hung.
fn prepare_lab() -> anyhow::Result<()> {
    crate::demo::prepare()
}

fn step(root: &Path, what: &str, args: &[&str]) -> anyhow::Result<()> {
    println!("== {what}: cargo {}", args.join(" "));
    let status = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot run cargo {}", args.join(" ")))?;
    if !status.success() {
        bail!("{what}: cargo {} ended with {status}", args.join(" "));
    }
    Ok(())
}

fn installed(root: &Path, subcommand: &str) -> bool {
    let output = Command::new(env!("CARGO")).args([subcommand, "--version"]).current_dir(root).output();
    output.is_ok_and(|o| o.status.success())
}
