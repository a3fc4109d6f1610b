//! `bench host`: what a change of one host costs, and what the agent costs while nothing happens.
//!
//! Changes: the `host` crate on a folder of a real disk, with syncs, and with a fake systemd that costs nothing
//! (`crates/host/examples/apply_folder.rs`). Idle: `mco daemon start` on a machine that boots, in a cluster of its own
//! (see [`idle`]).

pub(crate) mod idle;

use super::{Bench, Outcome, Samples};
use anyhow::{Context, bail};
use serde::Deserialize;
use std::path::Path;
use std::process::Command;

/// The size of the measured change: the number of files, and the bytes of each.
const FILES: usize = 1000;
const BYTES: usize = 4096;

/// A result line of the example.
#[derive(Deserialize)]
struct Change {
    what: String,
    ms: f64,
    own_ms: f64,
    planned_ms: f64,
    waits: f64,
}

pub(super) fn run(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let mut samples = Samples::default();
    changes(root, a, &mut samples)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(idle::run(root, a, &mut samples))?;
    let versions = vec![("Kubernetes".to_owned(), lab::KUBERNETES_VERSION.to_owned())];
    Ok(Outcome { versions, figures: samples.0 })
}

fn changes(root: &Path, a: &Bench, samples: &mut Samples) -> anyhow::Result<()> {
    let folder = root.join("target/bench/host");
    let program = root.join("target/release/examples/apply_folder");
    // Remove what an earlier run left, so that every run starts the same.
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)?;
    let output = Command::new(&program)
        .arg(&folder)
        .args([FILES.to_string(), BYTES.to_string(), a.runs.to_string()])
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !output.status.success() {
        bail!("{} failed: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    for line in String::from_utf8(output.stdout)?.lines() {
        let change: Change = serde_json::from_str(line).with_context(|| format!("not a change: {line}"))?;
        let what = match change.what.as_str() {
            "first" => "1,000 new files of 4 KiB",
            "all" => "1,000 files of 4 KiB, each changed",
            "all, and back" => "1,000 files of 4 KiB, each changed, and all taken back",
            "one" => "1 file of 1,000 changed",
            "to one file" => "999 of 1,000 files removed",
            "one of one" => "1 file of 1 changed",
            other => other,
        };
        samples.put(format!("{what}: plan and apply, with fsync"), "ms", change.ms);
        samples.put(format!("{what}: of which planning"), "ms", change.planned_ms);
        samples.put(format!("{what}: our own time (CPU)"), "ms", change.own_ms);
        samples.put(format!("{what}: waits for the disk"), "", change.waits);
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
