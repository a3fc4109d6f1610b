//! The tools of developers: `demo`, `test`, `conformance`, `crash-test`, `bench`, `order`, `image`, `package`, `gen`,
//! `docs`, `screenshots`, `lab`.
//!
//! What it is not: part of the product. Users get `mco`, which calls nothing in here.

mod bench;
mod charts;
mod conformance;
mod controller_rules;
mod crash_test;
mod demo;
mod docs;
mod generate;
mod image;
mod kept_lab;
mod lab_command;
mod order;
mod package;
mod recorded_day;
mod reference;
mod screenshots;
mod test;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

// Benchmarks run thousands of simulated nodes in this process. With the C library's malloc they spent a fifth of their
// time in it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Tasks of this repository
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Xtask {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a real cluster, roll a MachineConfig through it, and show the result on the nodes
    Demo(demo::Demo),
    /// Run every test, or a part of them: --unit in 2 minutes, --quick in 10, all in 30 (two cores, warm)
    Test(test::Test),
    /// Check the book (links, commands, manifests) and build it into target/book
    Docs(docs::Docs),
    /// Make the generated files: the controller's rights, CRDs, man pages, completions, reference pages, Helm chart, kustomize base
    Gen {
        /// Change nothing; fail when a file is not as it would be made
        #[arg(long)]
        check: bool,
    },
    /// Compare this build with what was recorded of the reference implementation
    Conformance(conformance::Conformance),
    /// Kill changes of a host at every point, and check that recovery leaves the old state or the new (needs root)
    CrashTest(crash_test::CrashTest),
    /// Start, list and stop clusters to experiment with
    #[command(subcommand)]
    Lab(lab_command::LabCommand),
    /// Take the pictures of the dashboard that README and book show (needs root)
    Screenshots,
    /// Record which functions of `mco` run in practice: the linker places them side by side, which saves memory
    Order(order::Order),
    /// Make the container image, with its bill of materials
    Image(image::Image),
    /// Make the packages of hosts (deb, rpm) and the kubectl plugin
    Package(package::Package),
    /// Run a benchmark (release build): a table, and JSON under target/bench/
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    match run(Xtask::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    let root = root();
    match command {
        Command::Demo(a) => demo::run(&root, &a),
        Command::Test(a) => test::run(&root, &a),
        Command::Docs(a) => docs::run(&root, &a),
        Command::Gen { check } => generate::run(&root, check),
        Command::Conformance(a) => conformance::run(&root, &a),
        Command::CrashTest(a) => crash_test::run(&root, &a),
        Command::Lab(a) => lab_command::run(&root, &a),
        Command::Screenshots => screenshots::run(&root),
        Command::Order(a) => order::run(&root, &a),
        Command::Image(a) => image::run(&root, &a),
        Command::Package(a) => package::run(&root, &a),
        Command::Bench(a) => bench::run(&root, &a),
    }
}

/// The repository's folder.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
