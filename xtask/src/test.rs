//! `cargo xtask test`: every test there is; `--unit`: those that need no cluster.
//!
//! The tests themselves are plain `cargo test`; what stands here is the order (cheap checks first), the build of the
//! `mco` program that cluster tests start, the choice of nextest where it is installed, and which tests run beside the
//! others because they wait for a clock most of their time.

use anyhow::{Context, bail};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Crates with tests that need a control plane, in `tests/`; their unit tests need none.
const CLUSTER_TESTS: [&str; 4] = ["lab", "controller", "daemon", "server"];
/// Tests in those folders that need none either: package and name.
const NO_CLUSTER: [(&str, &str); 3] = [("server", "recorded"), ("server", "requests"), ("server", "wire")];

/// Cluster tests that wait for minutes: for an API server that is away, for a lease that runs out. The others run meanwhile.
const WAITING: [&str; 7] = [
    "an_api_server_that_is_away_for_two_minutes",
    "a_rollout_goes_from_leader_to_leader",
    "what_a_dead_leader_has_sent_comes_too_late",
    "clocks_are_a_minute_wrong",
    "a_change_that_cuts_its_own_node_off_is_rebooted_into_all_the_same",
    "a_rollout_survives_the_loss_of_the_api_server_of_the_controller_and_of_a_node",
    "a_controller_whose_network_swallows_everything_goes_on_when_it_is_back",
];

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
        if next || !rest.is_empty() {
            // One failure does not hide the others: a run takes long.
            step(root, "all tests", &[run, &["--workspace", "--no-fail-fast"], &rest].concat())?;
        } else {
            all(root)?;
        }
        if next {
            step(root, "examples in the documentation", &["test", "--workspace", "--doc"])?;
        }
    }
    println!("== all passed in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// All tests, those that wait beside the others.
fn all(root: &Path) -> anyhow::Result<()> {
    step(root, "building all tests", &["test", "--workspace", "--no-run"])?;
    let waiting = Waiting::begin(root)?;
    let mut args = vec!["test", "--workspace", "--no-fail-fast", "--"];
    args.extend(WAITING.iter().flat_map(|name| ["--skip", name]));
    let others = step(root, "all tests but those that wait", &args);
    waiting.end()?;
    others
}

/// The tests that wait, while they run. What they print is shown at their end.
struct Waiting {
    child: Child,
    log: std::path::PathBuf,
}

impl Waiting {
    fn begin(root: &Path) -> anyhow::Result<Self> {
        let log = root.join("target/tests-that-wait.log");
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut args = vec!["test", "--workspace", "--tests", "--no-fail-fast", "--"];
        args.extend(WAITING);
        println!("== tests that wait, beside the others: cargo {} > {}", args.join(" "), log.display());
        let child = Command::new(env!("CARGO"))
            .args(&args)
            .current_dir(root)
            .stdin(Stdio::null())
            .stderr(out.try_clone()?)
            .stdout(out)
            .spawn()
            .with_context(|| format!("cannot run cargo {}", args.join(" ")))?;
        Ok(Self { child, log })
    }

    fn end(mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        let text = std::fs::read_to_string(&self.log)
            .with_context(|| format!("cannot read {}", self.log.display()))?;
        println!("== tests that wait");
        // All programs were asked for them; most have none.
        let passed = WAITING.iter().filter(|name| text.contains(&format!("{name} ... ok"))).count();
        if !status.success() {
            println!("{text}");
            bail!("tests that wait: cargo test ended with {status}");
        }
        if passed != WAITING.len() {
            println!("{text}");
            bail!("{passed} of {} tests that wait have passed: was one renamed?", WAITING.len());
        }
        println!("{passed} passed");
        Ok(())
    }
}

/// Builds or finds them once, with progress, so that the first cluster test does not look as if it hung.
fn prepare_lab() -> anyhow::Result<()> {
    // Without root, the tests that need these packages say that they are skipped.
    if lab::is_root() {
        crate::demo::runtime()?.block_on(lab::ensure_test_packages(&lab::Reporter::stderr()))?;
    }
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
