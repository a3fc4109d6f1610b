//! `cargo xtask package`: makes packages for hosts and the kubectl plugin, all with the program as it is delivered.
//!
//! Flow: release build (as for the image) → `lab::PackageRecipe` makes `.deb` and `.rpm` (as for the tests) → an
//! archive with `kubectl-mco`, and the manifest from which krew installs it.
//!
//! What it is not: a release. It signs and uploads nothing.

use crate::image::{committed, program, shown};
use anyhow::Context;
use clap::Args;
use lab::{PackageRecipe, Reporter};
use std::path::{Path, PathBuf};

/// The folder of all output.
const FOLDER: &str = "target/package";

/// `cargo xtask package`.
#[derive(Debug, Args)]
#[command(after_help = "Needs dpkg-deb and rpmbuild (Debian: dpkg, rpm). Writes into target/package/.")]
pub(crate) struct Package {
    /// The URL of the folder from which krew downloads the plugin's archive; its manifest names URL/ARCHIVE
    #[arg(long, value_name = "URL", default_value = "https://releases.example.com/mco")]
    url: String,
    /// The target as Rust names it, for example aarch64-unknown-linux-gnu [default: this computer's]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// The modification time of every file, in seconds since 1970 [default: that of the last commit]
    #[arg(long, env = "SOURCE_DATE_EPOCH", value_name = "SECONDS")]
    epoch: Option<u64>,
    /// Package this program instead of building one
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    program: Option<PathBuf>,
}

pub(crate) fn run(root: &Path, a: &Package) -> anyhow::Result<()> {
    let progress = Reporter::stderr();
    let architecture = match &a.target {
        Some(target) => target.split('-').next().unwrap_or_default(),
        None => std::env::consts::ARCH,
    };
    let program = match &a.program {
        Some(program) => program.clone(),
        None => {
            let step = progress.begin("building mco in release (some minutes when nothing is cached)");
            let built = program::release(root, a.target.as_deref())?;
            step.done();
            built
        }
    };
    let recipe = PackageRecipe {
        repository: root.to_owned(),
        program,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: a.epoch.or_else(|| committed(root)).unwrap_or_default(),
        architecture: lab::architecture(architecture).to_owned(),
    };
    let folder = root.join(FOLDER);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let step = progress.begin("making the packages");
    let runtime = crate::demo::runtime()?;
    let deb = runtime.block_on(recipe.deb(&folder))?;
    let rpm = runtime.block_on(recipe.rpm(&folder))?;
    step.done();
    // The program without what debuggers need is in the `.deb`.
    let archive = runtime.block_on(recipe.plugin(&folder.join("deb/usr/bin/mco"), &folder))?;
    let manifest = folder.join("mco.yaml");
    let name = archive.path.file_name().unwrap_or_default().to_string_lossy();
    let text = api::formats::yaml::to_string(&recipe.krew_manifest(&format!("{}/{name}", a.url), &archive))?;
    std::fs::write(&manifest, text).with_context(|| format!("cannot write {}", manifest.display()))?;
    for path in [&deb, &rpm, &archive.path, &manifest] {
        println!("{}", shown(root, path));
    }
    Ok(())
}
