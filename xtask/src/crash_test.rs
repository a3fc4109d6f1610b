//! `cargo xtask crash-test`: ends changes of a host at any instruction: at all of them, or at a sample that moves.
//!
//! Not here: the tests. Those are in `crates/host/tests/crash/`: `points.rs` (every fault point) and `real.rs` (SIGKILL at random
//! instants; file systems that fill up, become read-only, fail, or lose what was not synced). Every `cargo
//! test` runs them on small samples. This command runs the rest.

use anyhow::{Context, bail};
use clap::Args;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// `cargo xtask crash-test`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cargo xtask crash-test                            every point\n  cargo xtask crash-test --points 300               others each time\n  cargo xtask crash-test --points 300 --from 12345  those of an earlier run again"
)]
pub(crate) struct CrashTest {
    /// About so many kills instead of all, at other points each time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    points: Option<u32>,
    /// Where the sample begins, as an earlier run printed it
    #[arg(long, value_name = "NUMBER", requires = "points")]
    from: Option<u32>,
}

/// Runs it.
pub(crate) fn run(root: &Path, a: &CrashTest) -> anyhow::Result<()> {
    if !lab::is_root() {
        bail!("the crash test sets owners of files: run it as root");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "-p", "host", "--test", "crash", "--", "--ignored", "--nocapture"]).current_dir(root);
    if let Some(points) = a.points {
        // Any number will do that is another one at the next run.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?;
        let from = a.from.unwrap_or(now.subsec_micros());
        println!(
            "== about {points} kills; again with: cargo xtask crash-test --points {points} --from {from}"
        );
        cargo.env("MCO_CRASH_POINTS", points.to_string()).env("MCO_CRASH_FROM", from.to_string());
    } else {
        println!("== a kill at every point, and a second one at every fifth of each recovery: some minutes");
        println!("== then processes that are really killed, and disks that really fail: a minute or two");
        cargo.env_remove("MCO_CRASH_POINTS").env_remove("MCO_CRASH_FROM");
    }
    let status = cargo.status().context("cannot run cargo test")?;
    if !status.success() {
        bail!("the crash test ended with {status}");
    }
    Ok(())
}
