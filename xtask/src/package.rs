//! `cargo xtask package`: makes packages for hosts and the kubectl plugin, all with the program as it is delivered.
//!
//! Flow: release build (as for the image) → `lab::PackageRecipe` makes `.deb` and `.rpm` (as for the tests) → an
//! archive with `kubectl-mco`, and the manifest from which krew installs it.
//!
//! What it is not: a release. It signs and uploads nothing.

use crate::image::{committed, program, shown};
use anyhow::{Context, bail};
use clap::Args;
use lab::{PackageRecipe, Reporter};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of all output.
const FOLDER: &str = "target/package";
/// The name by which kubectl finds the plugin for `kubectl mco`.
const PLUGIN: &str = "kubectl-mco";

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
    let (archive, digest) = plugin(&folder, &recipe)?;
    let manifest = folder.join("mco.yaml");
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let text = api::yaml::to_string(&krew(&recipe, &format!("{}/{name}", a.url), &digest))?;
    std::fs::write(&manifest, text).with_context(|| format!("cannot write {}", manifest.display()))?;
    for path in [&deb, &rpm, &archive, &manifest] {
        println!("{}", shown(root, path));
    }
    Ok(())
}

/// The archive with the plugin, and its SHA-256. The program is taken from the `.deb`.
fn plugin(folder: &Path, recipe: &PackageRecipe) -> anyhow::Result<(PathBuf, String)> {
    let stage = folder.join("plugin");
    std::fs::create_dir_all(&stage)?;
    std::fs::copy(folder.join("deb/usr/bin/mco"), stage.join(PLUGIN)).context("cannot copy the program")?;
    std::fs::copy(recipe.repository.join("LICENSE"), stage.join("LICENSE")).context("cannot copy LICENSE")?;
    let archive = folder.join(format!("{PLUGIN}_{}_linux_{}.tar.gz", recipe.version, recipe.architecture));
    let output = Command::new("tar")
        .args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--format=ustar",
            "--mode=u=rwX,go=rX",
        ])
        .arg(format!("--mtime=@{}", recipe.epoch))
        // `gzip -n` leaves out the time of packing, so that the archive is reproducible.
        .args(["--use-compress-program", "gzip -n -9", "-C"])
        .arg(&stage)
        .arg("-cf")
        .args([&archive, Path::new("LICENSE"), Path::new(PLUGIN)])
        .output()
        .context("cannot run tar")?;
    if !output.status.success() {
        bail!("tar failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let bytes = std::fs::read(&archive).with_context(|| format!("cannot read {}", archive.display()))?;
    Ok((archive, api::text::hex(&Sha256::digest(bytes))))
}

/// The manifest for krew, of apiVersion `krew.googlecontainertools.github.com/v1alpha2`.
fn krew(recipe: &PackageRecipe, uri: &str, sha256: &str) -> Value {
    json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "mco"},
        "spec": {
            "version": format!("v{}", recipe.version),
            "shortDescription": "Machine configs of nodes: status, plans, rollouts",
            "description": "Shows what each pool and node is doing and why, what a MachineConfig would change and cost, \
                            and installs the Machine Config Operator.",
            "platforms": [{
                "selector": {"matchLabels": {"os": "linux", "arch": recipe.architecture}},
                "uri": uri,
                "sha256": sha256,
                "bin": PLUGIN,
                "files": [{"from": PLUGIN, "to": "."}, {"from": "LICENSE", "to": "."}],
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_finds_the_plugin_that_krew_installs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let work = std::env::temp_dir().join(format!("mco-xtask-plugin-{}", std::process::id()));
        let recipe = PackageRecipe {
            repository: root.to_owned(),
            program: PathBuf::from("/bin/true"),
            version: "1.2.3".to_owned(),
            epoch: 0,
            architecture: "amd64".to_owned(),
        };
        std::fs::create_dir_all(work.join("deb/usr/bin")).unwrap();
        // A stand-in for the program that prints its own name and arguments.
        std::fs::write(work.join("deb/usr/bin/mco"), "#!/bin/sh\necho \"${0##*/} $*\"\n").unwrap();
        let (archive, digest) = plugin(&work, &recipe).unwrap();
        assert_eq!(
            (&archive, &digest),
            (&plugin(&work, &recipe).unwrap().0, &plugin(&work, &recipe).unwrap().1)
        );
        let manifest = krew(&recipe, "https://x/y.tar.gz", &digest);
        let platform = &manifest["spec"]["platforms"][0];
        assert_eq!(
            (platform["sha256"].as_str(), platform["bin"].as_str()),
            (Some(digest.as_str()), Some(PLUGIN))
        );
        let listed = Command::new("tar").arg("-tf").arg(&archive).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        for file in platform["files"].as_array().unwrap() {
            assert!(listed.lines().any(|line| Some(line) == file["from"].as_str()), "{file}: {listed}");
        }
        std::fs::remove_dir_all(&work).unwrap();
    }
}
