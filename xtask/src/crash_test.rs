//! `cargo xtask crash-test`: kills a change of a host at any instruction: at every one, or at a sample that differs from
//! run to run.
//!
//! Not here: the tests. Those are in `crates/host/tests/crash/`: `fault_points.rs` and `boot_fault_points.rs` (every fault point),
//! `kills.rs` (SIGKILL at random instants) and `broken_disks.rs` (file systems that fill up, become read-only, fail, or lose what
//! was not synced). Every `cargo test` runs them on small samples. This command runs the rest.

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
    /// Kill at about this many points instead of all; each run chooses other points
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    points: Option<u32>,
    /// Repeat an earlier run: the number that it printed
    #[arg(long, value_name = "NUMBER", requires = "points")]
    from: Option<u32>,
}

pub(crate) fn run(root: &Path, a: &CrashTest) -> anyhow::Result<()> {
    if !lab::is_root() {
        bail!("the crash test sets owners of files: run it as root");
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "-p", "host", "--test", "crash", "--", "--ignored", "--nocapture"]).current_dir(root);
    if let Some(points) = a.points {
        // The start of the sample may be any number, as long as the next run has another one.
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
