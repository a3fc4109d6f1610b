//! `cargo xtask conformance`: compares what was recorded of the reference implementation with the program built from
//! this tree.
//!
//! The comparison itself is done by the programs `tests/conformance/check_*.py`, which work for any implementation. The
//! code here provides what each of them needs: a command, a cluster with our controller, or machines that boot (`host`).

mod host;

use crate::demo::{build_mco, runtime};
use crate::kept_lab::interrupt;
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use lab::{Lab, LabBuilder, Reporter};
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};

/// `cargo xtask conformance`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cargo xtask conformance render serve       need no cluster\n  cargo xtask conformance rollout            with a control plane and our controller\n  cargo xtask conformance host --only t-users  on a machine that boots (needs root)\n  cargo xtask conformance host --random 7  three machines through chains that nobody recorded\n  cargo xtask conformance all"
)]
pub(crate) struct Conformance {
    /// What to compare
    #[arg(value_enum, required = true)]
    what: Vec<What>,
    /// host: only this chain, by the name of its file; repeat it for several
    #[arg(long, value_name = "CHAIN")]
    only: Vec<String>,
    /// host: run random chains instead, one for each machine, numbered from this seed; the same chain on a folder with a
    /// fake systemd says what is expected
    #[arg(long, value_name = "SEED", conflicts_with = "only")]
    random: Option<u32>,
    /// host: the number of steps of a random chain
    #[arg(long, default_value_t = 15, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    steps: u8,
    /// host: how many machines run at the same time
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    jobs: u8,
    /// host: print every step
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Rendered configs, byte for byte
    Render,
    /// The config server's answers
    Serve,
    /// What the controller decides about nodes
    Rollout,
    /// What the agent does to a machine
    Host,
    /// All of them
    All,
}

pub(crate) fn run(root: &Path, a: &Conformance) -> anyhow::Result<()> {
    let wanted = |what| a.what.contains(&What::All) || a.what.contains(&what);
    if wanted(What::Host) && !lab::is_root() {
        bail!("`host` boots machines, which needs root; the others do not");
    }
    yaml_for_python()?;
    let place = Place { cases: root.join("tests/conformance"), root, mco: build_mco(root)? };
    let mut failed = vec![];
    let mut note = |name: &str, outcome: anyhow::Result<bool>| {
        match outcome {
            Ok(true) => return,
            Ok(false) => {}
            Err(e) => eprintln!("{name}: {e:#}"),
        }
        failed.push(name.to_owned());
    };
    if wanted(What::Render) {
        note("render", place.command("render", &["controller", "bootstrap"]));
    }
    if wanted(What::Serve) {
        note("serve", place.command("serve", &["server", "bootstrap"]));
    }
    if wanted(What::Rollout) {
        note("rollout", runtime()?.block_on(place.rollout()));
    }
    if wanted(What::Host) {
        note("host", runtime()?.block_on(place.host(a)));
    }
    if failed.is_empty() { Ok(()) } else { bail!("{} differ from what was recorded", failed.join(", ")) }
}

/// Checks that Python can read YAML, which the comparing programs need.
fn yaml_for_python() -> anyhow::Result<()> {
    let there = || {
        let python = Program::new("python3").args(["-c", "import yaml"]).stderr(Stdio::null()).status();
        python.is_ok_and(|s| s.success())
    };
    if there() {
        return Ok(());
    }
    let packages = ["python3-yaml".to_owned()];
    runtime()?
        .block_on(lab::install_packages(&packages, &Reporter::stderr()))
        .context("the comparing programs need Python 3 with PyYAML: apt-get install python3-yaml")?;
    if there() {
        Ok(())
    } else {
        bail!("python3 is not one that Debian's python3-yaml is for: install PyYAML for it")
    }
}

struct Place<'a> {
    root: &'a Path,
    cases: PathBuf,
    mco: PathBuf,
}

impl Place<'_> {
    fn check(&self, name: &str) -> Program {
        let mut program = Program::new("python3");
        program.arg(self.cases.join(format!("check_{name}.py")));
        program
    }

    /// Compares cases that need only a command.
    fn command(&self, name: &str, command: &[&str]) -> anyhow::Result<bool> {
        println!("{name}:");
        let mut check = self.check(name);
        check.arg(self.cases.join(name)).arg("--").arg(&self.mco).args(command);
        Ok(check.status().context("cannot run python3")?.success())
    }

    async fn rollout(&self) -> anyhow::Result<bool> {
        println!("rollout:");
        let builder = Lab::builder()
            .mco_binary(&self.mco)
            .templates(self.root.join("templates"))
            .controller(true)
            // Its node lifecycle controller would change the recorded nodes.
            .controller_manager(false)
            .scheduler(false)
            .progress(Reporter::stderr());
        with_lab(builder, async |lab| {
            let mut check = self.check("rollout");
            check.arg(self.cases.join("rollout")).arg("--kubeconfig").arg(lab.kubeconfig());
            check.arg("--accept").arg(self.cases.join("accept-rollout.txt"));
            let (ok, text) = status(check).await?;
            print!("{text}");
            Ok(ok)
        })
        .await
    }
}

/// Starts a lab, runs something with it, and stops it.
async fn with_lab(
    builder: LabBuilder,
    work: impl AsyncFnOnce(&Lab) -> anyhow::Result<bool>,
) -> anyhow::Result<bool> {
    let mut interrupted = std::pin::pin!(interrupt()?);
    let lab = tokio::select! {
        lab = builder.start() => lab?,
        () = &mut interrupted => bail!("interrupted; everything is taken down"),
    };
    let outcome = tokio::select! {
        outcome = work(&lab) => outcome,
        () = &mut interrupted => Err(anyhow::anyhow!("interrupted")),
    };
    lab.stop().await;
    outcome
}

/// Runs a program to its end. Returns whether it succeeded, and its output.
async fn status(mut program: Program) -> anyhow::Result<(bool, String)> {
    program.stdin(Stdio::null());
    let mut program = tokio::process::Command::from(program);
    let output = program.kill_on_drop(true).output().await.context("cannot run python3")?;
    let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    Ok((output.status.success(), text))
}
