//! Debian packages that real nodes need on this machine: found, installed if running as root, otherwise named.
//!
//! Not here: the packages inside a node (`base_root`).

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::process::{find_on_path, run};

/// A program and the Debian package that has it.
const NEEDED: [(&str, &str); 6] = [
    ("mmdebstrap", "mmdebstrap"),
    ("systemd-nspawn", "systemd-container"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
];
/// The same for tests that break disks, shift clocks, and make images and packages.
const FOR_TESTS: [(&str, &str); 6] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("chattr", "e2fsprogs"),
    ("xfs_io", "xfsprogs"),
    ("faketime", "faketime"),
    ("buildah", "buildah"),
    ("rpmbuild", "rpm"),
];
/// apt waits for other apt runs and slow mirrors.
const APT_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Whether this process may make real nodes.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The packages that are missing on this machine.
#[must_use]
pub fn missing_packages() -> Vec<String> {
    missing(&NEEDED, on_path)
}

fn on_path(program: &str) -> bool {
    find_on_path(program).is_some()
}

fn missing(needed: &[(&str, &str)], has: impl Fn(&str) -> bool) -> Vec<String> {
    let mut packages: Vec<String> = needed
        .iter()
        .filter(|(program, _)| !has(program))
        .map(|(_, package)| (*package).to_owned())
        .collect();
    packages.dedup();
    packages
}

/// Installs what is missing.
///
/// # Errors
/// Not root, no apt, or apt fails.
pub async fn ensure_packages(progress: &Reporter) -> Result<()> {
    ensure(&NEEDED, progress).await
}

/// Installs what the project's own tests need on this machine beside that.
///
/// # Errors
/// As [`ensure_packages`].
pub async fn ensure_test_packages(progress: &Reporter) -> Result<()> {
    ensure(&FOR_TESTS, progress).await
}

async fn ensure(needed: &[(&str, &str)], progress: &Reporter) -> Result<()> {
    let packages = missing(needed, on_path);
    if packages.is_empty() {
        return Ok(());
    }
    install_packages(&packages, progress).await?;
    match missing(needed, on_path) {
        still if still.is_empty() => Ok(()),
        still => Err(Error::MissingPackages { packages: still }),
    }
}

/// Installs Debian packages on this machine.
///
/// # Errors
/// Not root, no apt, or apt fails.
pub async fn install_packages(packages: &[String], progress: &Reporter) -> Result<()> {
    if !is_root() || find_on_path("apt-get").is_none() {
        return Err(Error::MissingPackages { packages: packages.to_vec() });
    }
    let step = progress.begin(format!("installing Debian packages: {}", packages.join(" ")));
    run("apt-get", ["update", "-q"], APT_LIMIT).await?;
    let fixed = ["-o", "DPkg::Lock::Timeout=300", "install", "-q", "-y", "--no-install-recommends"];
    let args: Vec<&str> = fixed.into_iter().chain(packages.iter().map(String::as_str)).collect();
    run("env", ["DEBIAN_FRONTEND=noninteractive", "apt-get"].into_iter().chain(args), APT_LIMIT).await?;
    step.done();
    Ok(())
}

/// Unpacks a Debian package into a folder without installing it: nothing of it is started or set up on this machine. Where
/// there are no package lists yet, own ones are fetched; that needs no root.
///
/// # Errors
/// No apt, or the package cannot be fetched.
pub async fn unpack_package(package: &str, folder: &Path) -> Result<()> {
    let script = "cd \"$2\" && { apt-get download -q \"$1\" || { mkdir -p lists/partial cache/archives/partial && \
        own=\"-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD/cache -o APT::Sandbox::User=\" && \
        apt-get -qq $own update && apt-get -q $own download \"$1\"; }; } && dpkg-deb -x \"$1\"_*.deb .";
    let folder = folder.display().to_string();
    run("sh", ["-c", script, "sh", package, &folder], APT_LIMIT).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_has_several_missing_programs_is_named_once() {
        assert_eq!(
            missing(&NEEDED, |program| matches!(program, "mmdebstrap" | "ip" | "systemd-nspawn")),
            ["util-linux"]
        );
        assert!(missing(&NEEDED, |_| true).is_empty());
    }
}
