//! The root file system that all real nodes of a lab share read-only. mmdebstrap builds it once into the cache, one for
//! each distribution.
//!
//! Guarantees: the folder in the cache is complete (built under another name, then renamed) and made from this list of
//! packages and settings (its name is a hash of them); two runs never build at the same time.
//!
//! Not here: the differences between nodes (`real_node`).

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::debian::bootstrap;
use crate::system::file_lock::lock_file;
use crate::system::paths::Environment;

/// The distribution of real nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Distribution {
    /// Debian 12, with systemd 252.
    #[default]
    Bookworm,
    /// Debian 13, with systemd 257.
    Trixie,
}

impl Distribution {
    fn suite(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    /// Arguments that its systemd needs on a computer with control groups of version 1.
    pub(crate) fn boot_args(self) -> Vec<String> {
        match self {
            Self::Bookworm => vec![],
            Self::Trixie => {
                vec![
                    "systemd.unified_cgroup_hierarchy=0".to_owned(),
                    "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1".to_owned(),
                ]
            }
        }
    }
}

/// systemd, and what a kubelet with containerd needs; nothing that a node does not use.
const PACKAGES: [&str; 13] = [
    "systemd",
    "systemd-sysv",
    "dbus",
    "iproute2",
    "ca-certificates",
    "procps",
    "kmod",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "conntrack",
    "ethtool",
];

/// The script that changes the fresh root file system; `$1` is its folder. Of systemd's generators only the one of fstab runs: the
/// others look for partitions, encrypted disks, consoles and scripts of System V, which no node of a lab has, at each daemon-reload.
/// To mask one: systemd.generator(7).
const CUSTOMIZE: &str = r#"set -eu
chroot "$1" useradd --uid 1000 --user-group --create-home --shell /bin/bash core
mkdir -p "$1/etc/systemd/system.conf.d" "$1/var/log/journal" "$1/etc/kubernetes"
printf '[Manager]\nDefaultTimeoutStopSec=10s\n' > "$1/etc/systemd/system.conf.d/10-lab.conf"
: > "$1/etc/machine-id"
: > "$1/etc/fstab"
rm -f "$1/etc/resolv.conf" "$1/etc/hostname"
cd "$1/etc/systemd/system"
mkdir -p ../system-generators
for generator in "$1"/usr/lib/systemd/system-generators/*; do
    name="${generator##*/}"
    if [ "$name" != systemd-fstab-generator ]; then ln -sf /dev/null "../system-generators/$name"; fi
done
rm -f multi-user.target.wants/containerd.service multi-user.target.wants/e2scrub_reap.service
rm -rf timers.target.wants getty.target.wants
for unit in console-getty.service getty@.service systemd-resolved.service systemd-networkd.service \
    systemd-networkd.socket systemd-networkd-wait-online.service apt-daily.service apt-daily-upgrade.service \
    systemd-udevd.service systemd-udev-trigger.service; do ln -sf /dev/null "$unit"; done
"#;

/// The root file system of a distribution: read-only, and the lower layer of overlays.
///
/// # Errors
/// Not root, or it cannot be built.
pub async fn base_root(distribution: Distribution, progress: &Reporter) -> Result<PathBuf> {
    crate::system::packages::ensure_packages(progress).await?;
    ensure(distribution, &Environment::read(), progress).await
}

/// The smallest root file system of a distribution with these packages, for purposes that need no whole node. It has no kernel,
/// and is read-only.
///
/// # Errors
/// Not root, or it cannot be built.
pub async fn package_root(
    distribution: Distribution,
    packages: &[&str],
    progress: &Reporter,
) -> Result<PathBuf> {
    crate::system::packages::ensure_packages(progress).await?;
    let recipe = Recipe { distribution, packages, customize: "true" };
    recipe.ensure(&Environment::read(), progress).await
}

/// The path of the base root file system; builds it if it does not exist.
///
/// # Errors
/// mmdebstrap fails or the cache cannot be written.
pub(crate) async fn ensure(
    distribution: Distribution,
    environment: &Environment,
    progress: &Reporter,
) -> Result<PathBuf> {
    Recipe { distribution, packages: &PACKAGES, customize: CUSTOMIZE }.ensure(environment, progress).await
}

/// What a root file system is made of.
struct Recipe<'r> {
    distribution: Distribution,
    packages: &'r [&'r str],
    /// A shell command; `$1` is the root.
    customize: &'r str,
}

impl Recipe<'_> {
    async fn ensure(&self, environment: &Environment, progress: &Reporter) -> Result<PathBuf> {
        let suite = self.distribution.suite();
        let folder = environment.cache.join("base");
        let root = folder.join(self.key());
        if root.is_dir() {
            return Ok(root);
        }
        fs::create_dir_all(&folder).map_err(Error::io("create the cache folder", &folder))?;
        let _lock = lock_file(&folder.join("lock"), "build of a root file system", progress).await?;
        if root.is_dir() {
            return Ok(root);
        }
        let part = folder.join(format!("{}.part", self.key()));
        remove(&part)?;
        let step = progress.begin(format!("building a root file system (Debian {suite}, mmdebstrap)"));
        let built = bootstrap(suite, self.packages, self.customize, &part).await;
        if let Err(error) = built {
            remove(&part)?;
            return Err(error);
        }
        fs::rename(&part, &root).map_err(Error::io("move into the cache", &root))?;
        step.done();
        Ok(root)
    }

    fn key(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.packages.join(","));
        hash.update(self.customize);
        let hex: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{hex}", self.distribution.suite())
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}
