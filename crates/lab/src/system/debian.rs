//! Debian root file systems, made by mmdebstrap.
//!
//! Not here: which packages they have and what is changed in them (`machine::base_root`, `vm`).

use std::path::Path;
use std::time::Duration;

use crate::error::Result;
use crate::system::command::run;

/// It takes 20 s to two minutes with a near mirror; a slow one may take ten times as long.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Makes the folder `to` with these packages of a suite and their dependencies, without documentation and translations. At the
/// end, `customize` runs in a shell of this computer, with the root file system as `$1`.
///
/// # Errors
/// mmdebstrap fails: it needs root, a mirror, and packages that exist.
pub(crate) async fn bootstrap(suite: &str, packages: &[&str], customize: &str, to: &Path) -> Result<()> {
    bootstrap_as_of(None, suite, packages, customize, to).await
}

/// As [`bootstrap`], but reproducible: the same packages give the same bytes. Every file that records a time gets `epoch`, in
/// seconds since 1970.
///
/// # Errors
/// As [`bootstrap`].
pub(crate) async fn bootstrap_as_of(
    epoch: Option<u64>,
    suite: &str,
    packages: &[&str],
    customize: &str,
    to: &Path,
) -> Result<()> {
    let epoch = epoch.map_or_else(|| "MCO_LAB=1".to_owned(), |epoch| format!("SOURCE_DATE_EPOCH={epoch}"));
    // mmdebstrap mounts /proc and /sys into the root. In a mount namespace of its own these mounts end with it. Otherwise a
    // killed run would leave them, and whoever removes the folder would delete the files below the mounts.
    run(
        "unshare",
        [
            "--mount",
            "env",
            &epoch,
            "mmdebstrap",
            "--quiet",
            "--mode=root",
            "--variant=minbase",
            "--format=directory",
            &format!("--include={}", packages.join(",")),
            // The lists of a frozen mirror are expired. Their signatures are checked all the same.
            "--aptopt=Acquire::Check-Valid-Until \"false\"",
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            "--dpkgopt=path-exclude=/usr/share/locale/*",
            &format!("--customize-hook={customize}"),
            suite,
            &to.to_string_lossy(),
        ],
        BUILD_LIMIT,
    )
    .await?;
    Ok(())
}
