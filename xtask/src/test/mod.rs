//! `cargo xtask test`: every test there is. `--quick` leaves out what boots machines or waits for minutes, `--unit` all
//! that needs a cluster; both list by name what they leave out.
//!
//! Flow: cheap checks ([`checks`]) → the test programs are built ([`programs`]) → they are cut into jobs ([`jobs`], pure)
//! → the jobs run side by side, and a failure is printed when it happens ([`lanes`]) → examples in the documentation.
//!
//! What it is not: a test framework. Each job is one run of a program that plain `cargo test` runs, too.

mod checks;
mod jobs;
mod lanes;
mod programs;

use anyhow::{Context, bail};
use clap::Args;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// `cargo xtask test`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cargo xtask test                          everything, as CI does\n  cargo xtask test --quick                  without machines that boot and tests that wait for minutes\n  cargo xtask test --unit                   without clusters\n  cargo xtask test --only faults            one theme: programs or tests with this in their name\n  cargo xtask test -- a_blocked_drain       one plain `cargo test`"
)]
pub(crate) struct Test {
    /// Only what needs no cluster
    #[arg(long)]
    unit: bool,
    /// Without machines that boot and without tests that wait for minutes
    #[arg(long, conflicts_with = "unit")]
    quick: bool,
    /// Only programs and tests that have this word in their name, without the checks of the whole
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Passed on to one plain `cargo test`, which then runs instead
    #[arg(last = true, conflicts_with_all = ["unit", "quick", "only"])]
    rest: Vec<String>,
}

/// How much of it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Unit,
    Quick,
    All,
}

/// Runs them.
pub(crate) fn run(root: &Path, a: &Test) -> anyhow::Result<()> {
    let start = Instant::now();
    let scope = match (a.unit, a.quick) {
        (true, _) => Scope::Unit,
        (_, true) => Scope::Quick,
        _ => Scope::All,
    };
    if a.only.is_empty() {
        checks::run(root)?;
    }
    if scope != Scope::Unit {
        println!("== the control plane's programs");
        prepare_lab()?;
    }
    if scope == Scope::All && lab::is_root() {
        // For images and packages. Before all others, which use the same file in target/debug.
        println!("== the mco program, linked as it is delivered");
        crate::image::program::for_tests(root)?;
    }
    if !a.rest.is_empty() || !a.only.is_empty() {
        // Tests of clusters start the program that stands beside them. Whole runs build it with the tests of its crate.
        step(root, "the mco program", &["build", "-p", "cli"])?;
    }
    if !a.rest.is_empty() {
        let rest = a.rest.iter().map(String::as_str);
        return step(
            root,
            "tests",
            &["test", "--workspace", "--no-fail-fast", "--"].into_iter().chain(rest).collect::<Vec<_>>(),
        );
    }
    let mut all = programs::targets(root)?;
    if !a.only.is_empty() {
        all.retain(|target| jobs::names(target, &a.only));
        if all.is_empty() {
            bail!("no program and no test has {} in its name", a.only.join(" or "));
        }
    }
    let (chosen, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|t| jobs::runs(t, scope));
    println!("== building {} test programs", chosen.len());
    let built = Instant::now();
    let programs = programs::build(root, &chosen, a.only.is_empty() && left.is_empty())?;
    println!("built in {:.0} s", built.elapsed().as_secs_f64());
    let plan = jobs::plan(&programs, &left, scope, &a.only, &lanes::last_times(root))?;
    let done = lanes::run(root, plan.jobs, plan.beside)?;
    // Last: they are few, and rustdoc needs everything built.
    let examples = if a.only.is_empty() {
        step(root, "examples in the documentation", &["test", "--quiet", "--workspace", "--doc"])
    } else {
        Ok(())
    };

    let image = if scope == Scope::All && a.only.is_empty() && lab::is_root() {
        println!("== the image, from the release build");
        crate::image::check(root)
    } else {
        Ok(())
    };

    done.print_slowest();
    if !plan.left_out.is_empty() {
        println!("== left out, {} tests:", plan.left_out.len());
        for name in &plan.left_out {
            println!("    {name}");
        }
    }
    if !done.skipped.is_empty() {
        println!("== skipped here:");
        for line in &done.skipped {
            println!("    {line}");
        }
    }
    if !done.failed.is_empty() {
        bail!(
            "{} failed after {:.0} s:\n    {}",
            done.failed.len(),
            start.elapsed().as_secs_f64(),
            done.failed.join("\n    ")
        );
    }
    examples?;
    image.context("the image")?;
    let skipped = match done.skipped.len() {
        0 => String::new(),
        some => format!(", {some} could not run here"),
    };
    println!("== {} tests passed{skipped} in {:.0} s", done.passed, start.elapsed().as_secs_f64());
    Ok(())
}

/// Builds or finds them once, with progress, so that the first cluster test does not look as if it hung.
fn prepare_lab() -> anyhow::Result<()> {
    // Without root, the tests that need these packages say that they are skipped.
    if lab::is_root() {
        crate::demo::runtime()?.block_on(lab::ensure_test_packages(&lab::Reporter::stderr()))?;
    }
    crate::demo::prepare()
}

/// Runs cargo, with its output on this terminal.
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
