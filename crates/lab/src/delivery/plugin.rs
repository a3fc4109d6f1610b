//! The kubectl plugin: an archive with `kubectl-mco`, and the manifest from which krew installs it.
//!
//! Not here: the build of the program, and an index that lists the plugin.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::packages::PackageRecipe;
use crate::error::{Error, Result};
use crate::system::command::run;

/// The name by which kubectl finds the plugin for `kubectl mco`.
const PLUGIN: &str = "kubectl-mco";
/// The time limit for compression on a slow machine.
const LIMIT: Duration = Duration::from_secs(600);

/// The archive of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginArchive {
    /// Its path.
    pub path: PathBuf,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
}

impl PackageRecipe {
    /// Makes the plugin's archive in `work` from this program: the recipe's own, or the same one stripped of debug information.
    ///
    /// # Errors
    /// tar or gzip fails, or a file cannot be read.
    pub async fn plugin(&self, program: &Path, work: &Path) -> Result<PluginArchive> {
        let stage = work.join("plugin");
        fs::create_dir_all(&stage).map_err(Error::io("make", &stage))?;
        for (from, name) in [(program, PLUGIN), (&self.repository.join("LICENSE"), "LICENSE")] {
            fs::copy(from, stage.join(name)).map_err(Error::io("copy", from))?;
        }
        let path = work.join(format!("{PLUGIN}_{}_linux_{}.tar.gz", self.version, self.architecture));
        let (to, from) = (path.to_string_lossy(), stage.to_string_lossy());
        let time = format!("--mtime=@{}", self.epoch);
        let fixed = [
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--format=ustar",
            "--mode=u=rwX,go=rX",
        ];
        // `gzip -n` leaves out the time of packing, so that the archive is reproducible.
        let packed =
            ["--use-compress-program", "gzip -n -9", &time, "-C", &from, "-cf", &to, "LICENSE", PLUGIN];
        run("tar", fixed.into_iter().chain(packed), LIMIT).await?;
        let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(PluginArchive { path, sha256 })
    }

    /// The manifest for krew, of apiVersion `krew.googlecontainertools.github.com/v1alpha2`. `uri`: where krew finds the archive.
    #[must_use]
    pub fn krew_manifest(&self, uri: &str, archive: &PluginArchive) -> Value {
        json!({
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": "mco"},
            "spec": {
                "version": format!("v{}", self.version),
                "shortDescription": "Machine configs of nodes: status, plans, rollouts",
                "description": "Shows what each pool and node is doing and why, what a MachineConfig would change and cost, \
                                and installs the Machine Config Operator.",
                "platforms": [{
                    "selector": {"matchLabels": {"os": "linux", "arch": self.architecture}},
                    "uri": uri,
                    "sha256": archive.sha256,
                    "bin": PLUGIN,
                    "files": [{"from": PLUGIN, "to": "."}, {"from": "LICENSE", "to": "."}],
                }],
            },
        })
    }
}
