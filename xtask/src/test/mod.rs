//! `cargo xtask test`: runs every test. `--quick` leaves out virtual machines, clusters made by kubeadm, and browsers, `--unit` all
//! tests that need a cluster; both list by name what they leave out.
//!
//! Flow: is there room on the disks ([`disk_space`])? → checks that need no build ([`checks`]) → the test programs are built
//! ([`programs`]) → they are divided into jobs ([`jobs`], pure) → the jobs run side by side, and a failure is printed when it
//! happens ([`lanes`]); beside them the examples in the documentation, the book's commands, and the release build → outdated
//! output is deleted from `target` ([`prune`]) → the time is printed beside its limit ([`limits`]).
//!
//! What it is not: a test framework. Each job is one run of a program that plain `cargo test` would run too.

mod checks;
mod child;
mod disk_space;
mod jobs;
mod lanes;
mod limits;
mod processor_time;
mod programs;
mod prune;
mod terminated;

use anyhow::{Context, bail};
use clap::Args;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// `cargo xtask test`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cargo xtask test                          everything, as CI does (30 minutes warm)\n  cargo xtask test --quick                  before you commit\n  cargo xtask test --unit                   while you work\n  cargo xtask test --only faults            one theme: programs, modules or tests with this in their name\n  cargo xtask test -- drains_wait           one plain `cargo test`"
)]
pub(crate) struct Test {
    /// Only tests that need neither a cluster nor a machine (2 minutes warm on two cores)
    #[arg(long)]
    unit: bool,
    /// Without virtual machines, clusters made by kubeadm, and browsers (10 minutes warm on two cores)
    #[arg(long, conflicts_with = "unit")]
    quick: bool,
    /// Only programs with this word in their name, and modules and tests of test programs; repeat it for several. Formatting,
    /// generated files and the documentation's examples are not checked
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Run one plain `cargo test --workspace` with these arguments instead
    #[arg(last = true, conflicts_with_all = ["unit", "quick", "only"])]
    rest: Vec<String>,
}

/// Which tests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Unit,
    Quick,
    All,
}

pub(crate) fn run(root: &Path, a: &Test) -> anyhow::Result<()> {
    let start = Instant::now();
    let scope = match (a.unit, a.quick) {
        (true, _) => Scope::Unit,
        (_, true) => Scope::Quick,
        _ => Scope::All,
    };
    if a.only.is_empty() {
        disk_space::check(root, scope)?;
        checks::run(root)?;
    }
    prepare(root, scope)?;
    if !a.rest.is_empty() || !a.only.is_empty() {
        // Cluster tests start the `mco` in target/debug. A whole run builds it together with its tests.
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
            bail!(
                "no program has {} in its name, and no module or test of a test program; tests beside the code run with the program \
                 of their crate",
                a.only.join(" or ")
            );
        }
    }
    let (chosen, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|t| jobs::runs(t, scope));
    println!("== building {} test programs", chosen.len());
    let built = Instant::now();
    let everything = a.only.is_empty() && left.is_empty();
    let programs::Built { programs, files } = build(root, scope, &chosen, everything)?;
    let (built, all) = (built.elapsed().as_secs_f64(), start.elapsed().as_secs_f64());
    println!("built in {built:.0} s, {all:.0} s after the start");
    let plan = jobs::plan(&programs, &left, scope, &a.only, &lanes::last_times(root))?;
    if plan.jobs.is_empty() && plan.beside.is_empty() {
        bail!(
            "no test that runs has {} in its name or in that of its module; --unit and --quick leave tests out",
            a.only.join(" or ")
        );
    }
    terminated::watch(start)?;
    let with_image = scope == Scope::All && a.only.is_empty() && lab::is_root();
    let before = processor_time::Ticks::now();
    let (done, release, documentation) = std::thread::scope(|threads| {
        // Everything is built, and rustdoc has one processor's work for half a minute.
        let examples = a.only.is_empty().then(|| threads.spawn(|| examples(root)));
        // Each command is a program of its own that starts and ends.
        let commands = (a.only.is_empty() && scope != Scope::Unit).then(|| threads.spawn(|| commands(root)));
        // It takes minutes, at the end on one processor: its share of them is in `release_in_background`.
        let release = with_image.then(|| {
            threads.spawn(|| {
                let ends_with_us = terminated::EndsWithUs::group;
                let built = crate::image::program::release_in_background(root, ends_with_us);
                built.inspect_err(|error| println!("FAILED  the release build: {error:#}"))
            })
        });
        let done = lanes::run(root, plan.jobs, plan.beside);
        let [release, examples, commands] =
            [release, examples, commands].map(|thread| thread.map(std::thread::ScopedJoinHandle::join));
        let examples = joined(examples, "the examples");
        let commands = joined(commands, "the book's commands");
        (done, joined(release, "the release build"), [examples, commands])
    });
    let done = done?;
    if let Some((now, before)) = processor_time::Ticks::now().zip(before) {
        println!("== the processors were busy for {} % of the time", now.busy_since(before));
    }

    // Not before the tests: without the registry of crates, mdBook cannot be installed, and their results count all the same.
    let book = match scope == Scope::All && a.only.is_empty() {
        true => {
            println!("== the book");
            let built = crate::docs::build(root).map(|at| println!("{}", at.display()));
            built.inspect_err(|error| println!("FAILED  the book: {error:#}"))
        }
        false => Ok(()),
    };
    let image = match release {
        Some(Ok(())) => {
            println!("== the image, from the release build");
            crate::image::check(root).inspect_err(|error| println!("FAILED  the image: {error:#}"))
        }
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };

    // The next run needs what this one left out, so only a run of everything knows which files are unused.
    let size = prune::run(root, if everything { &files } else { &[] });
    summary(&done, &plan.left_out);
    match size {
        Ok(size) => println!("== {}", size.text()),
        Err(error) => println!("== target/ is not pruned: {error:#}"),
    }
    if !done.failed.is_empty() {
        bail!(
            "{} failed after {:.0} s:\n    {}",
            done.failed.len(),
            start.elapsed().as_secs_f64(),
            done.failed.iter().map(|failure| failure.line.as_str()).collect::<Vec<_>>().join("\n    ")
        );
    }
    documentation.into_iter().flatten().collect::<anyhow::Result<()>>()?;
    book.context("the book")?;
    image.context("the image")?;
    let skipped = match done.skipped.len() {
        0 => String::new(),
        some => format!(", {some} could not run here"),
    };
    let took = start.elapsed();
    let within = if a.only.is_empty() { limits::beside(scope) } else { String::new() };
    println!("== {} tests passed{skipped} in {:.0} s{within}", done.passed, took.as_secs_f64());
    if let Some(warning) = limits::warning(scope, took).filter(|_| a.only.is_empty()) {
        println!("== WARNING: {warning}");
    }
    Ok(())
}

/// What tests of this scope need before they are built.
fn prepare(root: &Path, scope: Scope) -> anyhow::Result<()> {
    if scope != Scope::Unit {
        println!("== the control plane's programs");
        prepare_lab()?;
    }
    if scope != Scope::Unit && lab::is_root() {
        // Tests of images and packages need it. It comes first, because all other builds write to the same file in
        // target/debug.
        println!("== the mco program, linked as it is delivered");
        crate::image::program::for_tests(root)?;
    }
    Ok(())
}

/// Builds the test programs, and beside that the virtual machines, if this run needs them: one takes all processors, the other
/// waits a lot.
fn build(
    root: &Path,
    scope: Scope,
    chosen: &[programs::Target],
    everything: bool,
) -> anyhow::Result<programs::Built> {
    let machines = everything && scope == Scope::All && lab::is_root();
    let (built, machines) = std::thread::scope(|threads| {
        // No test should seem to hang because it makes them.
        let machines = machines.then(|| threads.spawn(virtual_machines));
        (programs::build(root, chosen, everything), machines.map(std::thread::ScopedJoinHandle::join))
    });
    let built = built?;
    joined(machines, "the virtual machines").transpose()?;
    Ok(built)
}

/// Makes the virtual machines' disks and images, or finds them in the cache.
fn virtual_machines() -> anyhow::Result<()> {
    println!("== virtual machines");
    crate::demo::runtime()?.block_on(lab::prepare_virtual_machines(&lab::Reporter::stderr()))?;
    Ok(())
}

/// The slowest tests, those that were left out, and those that could not run here.
fn summary(done: &lanes::Done, left_out: &[String]) {
    done.print_slowest();
    if !left_out.is_empty() {
        println!("== left out, {} tests:", left_out.len());
        for name in left_out {
            println!("    {name}");
        }
    }
    if !done.unsteady.is_empty() {
        println!(
            "== failed beside other jobs, and passed alone; check each for a race or a timeout that is too short:"
        );
        for line in &done.unsteady {
            println!("    {line}");
        }
    }
    if !done.skipped.is_empty() {
        println!("== skipped here:");
        for line in &done.skipped {
            println!("    {line}");
        }
    }
}

/// Builds or finds the control plane's programs once, with progress, so that the first cluster test does not seem to
/// hang.
fn prepare_lab() -> anyhow::Result<()> {
    // Without root, the tests that need these packages are skipped and say so.
    if lab::is_root() {
        crate::demo::runtime()?.block_on(lab::ensure_test_packages(&lab::Reporter::stderr()))?;
    }
    crate::demo::prepare()
}

/// What a thread returned. `None`: there was none.
fn joined(thread: Option<std::thread::Result<anyhow::Result<()>>>, what: &str) -> Option<anyhow::Result<()>> {
    thread.map(|ended| ended.unwrap_or_else(|_| Err(anyhow::anyhow!("the thread of {what} panicked"))))
}

/// Has kubectl and helm parse the book's commands. A failure is printed when it happens.
fn commands(root: &Path) -> anyhow::Result<()> {
    let start = Instant::now();
    match crate::docs::check_with_programs(root) {
        Ok(number) => {
            println!("ok     {:6.1} s  the book's commands: {number}", start.elapsed().as_secs_f64());
            Ok(())
        }
        Err(error) => {
            println!("FAILED  the book's commands: {error:#}");
            Err(error.context("the book's commands"))
        }
    }
}

/// Runs the examples in the documentation, with their output in a file. A failure is printed when it happens.
fn examples(root: &Path) -> anyhow::Result<()> {
    // All crates, also those without examples: with some of them only, cargo chooses other features of their dependencies, and builds
    // a second variant of most of the workspace.
    let args = ["test", "--quiet", "--doc", "--workspace"];
    let log = root.join(lanes::OUTPUT).join("examples.log");
    let start = Instant::now();
    let output = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot run cargo {}", args.join(" ")))?;
    let text = [output.stdout, output.stderr].concat();
    std::fs::write(&log, &text).with_context(|| format!("cannot write {}", log.display()))?;
    if !output.status.success() {
        println!("FAILED  examples in the documentation\n{}", String::from_utf8_lossy(&text));
        bail!(
            "examples in the documentation: cargo {} ended with {}; {}",
            args.join(" "),
            output.status,
            log.display()
        );
    }
    let passed = lanes::passed(&String::from_utf8_lossy(&text));
    if passed == 0 {
        println!("FAILED  examples in the documentation: no example ran");
        bail!("no crate has an example in its documentation; {}", log.display());
    }
    println!("ok     {:6.1} s  examples in the documentation: {passed}", start.elapsed().as_secs_f64());
    Ok(())
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
