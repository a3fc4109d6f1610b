//! Root file systems of Debian, made by mmdebstrap.
//!
//! Not here: which packages they have and what is changed in them (`machine::base_root`, `vm`).

use std::path::Path;
use std::time::Duration;

use crate::error::Result;
use crate::system::process::run;

/// 20 s to two minutes with a near mirror; a slow one gets its time.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Makes the folder `to` with these packages of a suite and what they need, without documentation and translations. At the
/// end `customize` runs in a shell of this computer, with the root as `$1`.
///
/// # Errors
/// mmdebstrap fails: no root, no mirror, no such package.
pub(crate) async fn bootstrap(suite: &str, packages: &[&str], customize: &str, to: &Path) -> Result<()> {
    bootstrap_as_of(None, suite, packages, customize, to).await
}

/// As [`bootstrap`], with the same bytes each time from the same packages: what says when it was made says `epoch`, in seconds since
/// 1970.
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
    // It mounts /proc and /sys into the root. In a namespace of its own they end with it: else a run that is killed leaves
    // them, and who removes the folder then removes what is mounted there.
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
            // A mirror that was frozen has lists that are past their date. Their signatures are checked all the same.
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
