//! `cargo xtask bench NAME`: the entry point of every benchmark.
//!
//! A benchmark returns samples. The code here builds in release mode, prints a table of medians with the machine's
//! cores and the versions compared, and writes the same as JSON to `target/bench/NAME.json`. A figure holds for this
//! machine only: no test depends on one.

mod dashboard;
mod host;
mod images;
pub(crate) mod node_state;
mod one_node;
mod os;
mod os_config;
mod pause;
mod policy;
mod prefetch;
mod render;
mod render_cluster;
mod requests;
mod rollout;
pub(crate) mod server;
mod slots;

pub(crate) use host::idle::many_files;
pub(crate) use render::{base_manifests, bootstrap};
pub(crate) use server::tls;

use anyhow::{Context, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `cargo xtask bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The benchmark
    #[arg(value_parser = ["dashboard", "host", "images", "os", "render", "rollout", "server"])]
    pub(crate) name: String,
    /// How often each figure is measured
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) runs: u32,
    /// rollout: the number of nodes
    #[arg(long, default_value_t = 1000)]
    pub(crate) nodes: usize,
    /// rollout: the pool's maxUnavailable, a number or a percentage
    #[arg(long, default_value = "100%")]
    pub(crate) max_unavailable: String,
    /// rollout: first measure the idle controller for this many seconds; host: the idle agent [default there: 60]
    #[arg(long)]
    pub(crate) idle: Option<u64>,
    /// rollout: count requests by sender, from the API server's audit log, which slows the API server down
    #[arg(long)]
    pub(crate) audit: bool,
    /// rollout: pause a last change when a third of the nodes are on their way, and measure how soon that stops the rest
    #[arg(long)]
    pub(crate) pause: bool,
    /// rollout: repeat each run under a RolloutPolicy with five waves and gates, and compare the two; at the end a gate fails:
    /// measure how soon that stops the rest, and how soon all nodes are back
    #[arg(long)]
    pub(crate) policy: bool,
    /// os: measure instead how long a node waits for a 500 MB image, drained and before, with the image prefetched and without
    #[arg(long)]
    pub(crate) prefetch: bool,
    /// rollout: profile the API server for this many seconds from the start of each run
    #[arg(long)]
    pub(crate) profile: Option<u64>,
    /// dashboard, images, os, rollout: measure this program, without a release build
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// This process is the release build already
    #[arg(long, hide = true)]
    inner: bool,
}

/// Figures by what they measure, in the order in which they first appeared.
#[derive(Default)]
struct Samples(Vec<Figure>);

impl Samples {
    fn put(&mut self, what: impl Into<String>, unit: &'static str, value: f64) {
        let what = what.into();
        match self.0.iter_mut().find(|f| f.what == what) {
            Some(figure) => figure.samples.push(value),
            None => self.0.push(Figure::new(what, unit, vec![value])),
        }
    }

    /// The median of a figure; not a number if nothing was measured.
    fn median(&self, what: &str) -> f64 {
        self.0.iter().find(|f| f.what == what).map_or(f64::NAN, Figure::median)
    }
}

/// All samples of one figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) what: String,
    /// The samples' unit.
    pub(crate) unit: &'static str,
    /// The samples, in the order in which they were taken.
    pub(crate) samples: Vec<f64>,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, samples: Vec<f64>) -> Self {
        Self { what: what.into(), unit, samples }
    }

    fn sorted(&self) -> Vec<f64> {
        let mut all = self.samples.clone();
        all.sort_by(f64::total_cmp);
        all
    }

    fn median(&self) -> f64 {
        let all = self.sorted();
        match all.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => all[n / 2],
            n => f64::midpoint(all[n / 2 - 1], all[n / 2]),
        }
    }
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    name: &'a str,
    cores: usize,
    versions: &'a [(String, String)],
    figures: &'a [Figure],
}

/// What a benchmark returns.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What was compared, by name and version.
    pub(crate) versions: Vec<(String, String)>,
    /// The figures.
    pub(crate) figures: Vec<Figure>,
}

/// Builds in release mode, measures, prints the table and writes the JSON.
pub(crate) fn run(root: &Path, a: &Bench) -> anyhow::Result<()> {
    if !a.inner && a.program.is_none() {
        return again_in_release(root, a);
    }
    let mut outcome = match a.name.as_str() {
        "dashboard" => dashboard::run(root, a)?,
        "host" => host::run(root, a)?,
        "images" => images::run(root, a)?,
        "os" => os::run(root, a)?,
        "render" => render::run(root, a)?,
        "rollout" => rollout::run(root, a)?,
        "server" => server::run(root, a)?,
        other => bail!("no benchmark {other:?}"),
    };
    outcome.versions.insert(0, ("mco".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let report = Report { name: &a.name, cores, versions: &outcome.versions, figures: &outcome.figures };
    print(&report);
    let folder = root.join("target/bench");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{}.json", a.name));
    std::fs::write(&file, serde_json::to_string_pretty(&report)? + "\n")
        .with_context(|| format!("cannot write {}", file.display()))?;
    println!("written: target/bench/{}.json", a.name);
    Ok(())
}

/// Builds these packages one after the other, each with its own features.
pub(crate) fn build_in_release(root: &Path, what: &[&[&str]]) -> anyhow::Result<()> {
    println!("building in release (some minutes when nothing is cached) …");
    for args in what {
        let args = [&["build", "--release"], *args].concat();
        let status = Command::new(env!("CARGO")).args(&args).current_dir(root).status()?;
        if !status.success() {
            bail!("cargo {} ended with {status}", args.join(" "));
        }
    }
    Ok(())
}

fn again_in_release(root: &Path, a: &Bench) -> anyhow::Result<()> {
    let mut what: Vec<&[&str]> = vec![&["-p", "xtask"]];
    if a.name == "host" {
        what.push(&["-p", "host", "--example", "apply_folder"]);
    }
    build_in_release(root, &what)?;
    // The program is measured as it is delivered.
    crate::image::program::release(root, None)?;
    let Bench {
        name,
        runs,
        nodes,
        max_unavailable,
        idle,
        audit,
        pause,
        policy,
        prefetch,
        profile,
        program: _,
        inner: _,
    } = a;
    let mut command = Command::new(root.join("target/release/xtask"));
    command.args(["bench", name, "--inner", "--runs", &runs.to_string(), "--nodes", &nodes.to_string()]);
    command.args(["--max-unavailable", max_unavailable]);
    if let Some(seconds) = idle {
        command.args(["--idle", &seconds.to_string()]);
    }
    command.args(audit.then_some("--audit"));
    command.args(pause.then_some("--pause"));
    command.args(policy.then_some("--policy"));
    command.args(prefetch.then_some("--prefetch"));
    if let Some(seconds) = profile {
        command.args(["--profile", &seconds.to_string()]);
    }
    let status = command.current_dir(root).status()?;
    if !status.success() {
        bail!("the benchmark ended with {status}");
    }
    Ok(())
}

fn print(report: &Report<'_>) {
    let versions: Vec<String> = report.versions.iter().map(|(n, v)| format!("{n} {v}")).collect();
    println!("{}: {} cores; {}", report.name, report.cores, versions.join(", "));
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["", "median", "min", "max", "unit", "runs"]);
    for f in report.figures {
        let all = f.sorted();
        let show = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"));
        table.add_row([
            f.what.clone(),
            show(Some(f.median())),
            show(all.first().copied()),
            show(all.last().copied()),
            f.unit.to_owned(),
            f.samples.len().to_string(),
        ]);
    }
    for i in 1..4 {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}

/// Runs a command to its end and gives its wall time in milliseconds.
pub(crate) fn wall(command: &mut Command) -> anyhow::Result<f64> {
    let start = std::time::Instant::now();
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    let wall = start.elapsed().as_secs_f64() * 1000.0;
    ended(command, status)?;
    Ok(wall)
}

/// Runs a command to its end and returns its peak memory in MiB. The polling slows the command down: to measure time,
/// use [`wall`].
pub(crate) fn peak(command: &mut Command) -> anyhow::Result<f64> {
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    // The peak must be read while the process lives: a zombie shows no memory, and the counter for children
    // (getrusage(2)) includes the memory of the process that they were forked from. So it is polled, with a fraction of
    // a millisecond in between.
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = 0.0_f64;
    let status = loop {
        if let Ok(text) = std::fs::read_to_string(&status_file) {
            peak = peak.max(high_water_mark(&text));
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
    };
    ended(command, status)?;
    Ok(peak)
}

fn ended(command: &Command, status: std::process::ExitStatus) -> anyhow::Result<()> {
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// `VmHWM` of a `/proc/PID/status`, in MiB.
pub(crate) fn high_water_mark(status: &str) -> f64 {
    mebibytes(status, "VmHWM:")
}

/// A line of `/proc/PID/status` that is given in KiB, converted to MiB.
pub(crate) fn mebibytes(status: &str, line: &str) -> f64 {
    let line = status.lines().find_map(|l| l.strip_prefix(line));
    let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
