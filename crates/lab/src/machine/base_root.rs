//! The root file system that all real nodes of a lab share, read-only: built once by mmdebstrap into the cache, one for
//! each distribution that is asked for.
//!
//! Guarantees: the folder in the cache is whole (built beside, then renamed) and belongs to this list of packages
//! and settings (its name is a hash of them); two runs never build at the same time.
//!
//! Not here: what makes one node different from another (`real_node`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::control_plane::programs::lock_file;
use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::paths::Environment;
use crate::system::process::run;

/// What the nodes run.
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

    /// Words that its systemd needs on a computer with the old control groups.
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

/// systemd and what a kubelet with containerd needs; nothing that a node does not use.
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
/// 20 s with a near mirror; a slow one gets its time.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// What is changed in the fresh root; `$1` is the root.
const CUSTOMIZE: &str = r#"set -eu
chroot "$1" useradd --uid 1000 --user-group --create-home --shell /bin/bash core
mkdir -p "$1/etc/systemd/system.conf.d" "$1/var/log/journal" "$1/etc/kubernetes"
printf '[Manager]\nDefaultTimeoutStopSec=10s\n' > "$1/etc/systemd/system.conf.d/10-lab.conf"
: > "$1/etc/machine-id"
: > "$1/etc/fstab"
rm -f "$1/etc/resolv.conf" "$1/etc/hostname"
cd "$1/etc/systemd/system"
rm -f multi-user.target.wants/containerd.service multi-user.target.wants/e2scrub_reap.service
rm -rf timers.target.wants getty.target.wants
for unit in console-getty.service getty@.service systemd-resolved.service systemd-networkd.service \
    systemd-networkd.socket systemd-networkd-wait-online.service apt-daily.service apt-daily-upgrade.service \
    systemd-udevd.service systemd-udev-trigger.service; do ln -sf /dev/null "$unit"; done
"#;

/// The root file system of a distribution, to look at and to put an overlay on; nobody writes into it.
///
/// # Errors
/// Not root, or it cannot be built.
pub async fn base_root(distribution: Distribution, progress: &Reporter) -> Result<PathBuf> {
    crate::system::packages::ensure_packages(progress).await?;
    ensure(distribution, &Environment::read(), progress).await
}

/// The base root's path; builds it when it is not there.
///
/// # Errors
/// mmdebstrap fails or the cache cannot be written.
pub(crate) async fn ensure(
    distribution: Distribution,
    environment: &Environment,
    progress: &Reporter,
) -> Result<PathBuf> {
    let suite = distribution.suite();
    let folder = environment.cache.join("base");
    let root = folder.join(key(suite));
    if root.is_dir() {
        return Ok(root);
    }
    fs::create_dir_all(&folder).map_err(Error::io("create the cache folder", &folder))?;
    let _lock = lock_file(&folder.join("lock"), "build of the nodes' base root", progress).await?;
    if root.is_dir() {
        return Ok(root);
    }
    let part = folder.join(format!("{}.part", key(suite)));
    remove(&part)?;
    let step = progress.begin(format!("building the nodes' base root (Debian {suite}, mmdebstrap)"));
    let built = run(
        "mmdebstrap",
        [
            "--quiet",
            "--mode=root",
            "--variant=minbase",
            "--format=directory",
            &format!("--include={}", PACKAGES.join(",")),
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
            &format!("--customize-hook={CUSTOMIZE}"),
            suite,
            &part.to_string_lossy(),
        ],
        BUILD_LIMIT,
    )
    .await;
    if let Err(error) = built {
        remove(&part)?;
        return Err(error);
    }
    fs::rename(&part, &root).map_err(Error::io("move into the cache", &root))?;
    step.done();
    Ok(root)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path)(error)),
        _ => Ok(()),
    }
}

fn key(suite: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(PACKAGES.join(","));
    hash.update(CUSTOMIZE);
    let hex: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("{suite}-{hex}")
}
