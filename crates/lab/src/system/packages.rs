//! Debian packages that real nodes need on this computer: they are found, or installed if running as root, or else
//! named.
//!
//! Not here: the packages inside a node (`base_root`).

use std::path::Path;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::command::{find_on_path, run};
use crate::system::file_lock::lock_file;

/// A program, and the Debian package that contains it.
const NEEDED: [(&str, &str); 6] = [
    ("mmdebstrap", "mmdebstrap"),
    ("systemd-nspawn", "systemd-container"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
];
/// The same for tests that break disks, change clocks, and build images and packages.
const FOR_TESTS: [(&str, &str); 8] = [
    ("mkfs.ext4", "e2fsprogs"),
    ("chattr", "e2fsprogs"),
    ("xfs_io", "xfsprogs"),
    ("faketime", "faketime"),
    ("buildah", "buildah"),
    ("rpmbuild", "rpm"),
    ("docker-registry", "docker-registry"),
    ("ignition-validate", "ignition"),
];
/// The same for tests of the dashboard.
const FOR_BROWSERS: [(&str, &str); 1] = [("chromium", "chromium")];
/// The program that downloads a package from the npm registry, when it is not cached yet.
const FOR_NPM: [(&str, &str); 1] = [("npm", "npm")];
/// Also run by the test of the crate `ignition` that compares with Debian's `ignition-validate`.
const UNPACK: &str = include_str!("unpack-package.sh");
/// The same for virtual machines; their other programs are in a root of their own.
const FOR_VMS: [(&str, &str); 4] = [
    ("mmdebstrap", "mmdebstrap"),
    ("unshare", "util-linux"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
];
/// The time limit for apt, which may wait for other runs of apt and for slow mirrors.
const APT_LIMIT: Duration = Duration::from_secs(15 * 60);
/// The lock of a lab's run that installs packages. It is beside apt's own locks, because it is for the whole computer and not
/// for one user's cache.
const APT_ALONE: &str = "/run/lock/mco-lab-apt";
/// How long to wait for another program's lock on apt's lists, and the pause between attempts. `DPkg::Lock::Timeout` covers
/// `install` only.
const LISTS_LIMIT: Duration = Duration::from_secs(300);
const LISTS_AGAIN: Duration = Duration::from_secs(2);

/// Whether this process may create real nodes.
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

/// Also installs what the project's own tests need on this computer.
///
/// # Errors
/// As [`ensure_packages`].
pub async fn ensure_test_packages(progress: &Reporter) -> Result<()> {
    ensure(&FOR_TESTS, progress).await
}

/// Installs the browser that the dashboard's tests drive.
///
/// # Errors
/// As [`ensure_packages`].
pub async fn ensure_browser(progress: &Reporter) -> Result<()> {
    ensure(&FOR_BROWSERS, progress).await
}

/// The version of axe-core, which finds accessibility problems of a page: <https://github.com/dequelabs/axe-core>.
const AXE: &str = "4.14.1";
/// The digest of its script, so that no other code runs in the browser.
const AXE_SHA256: &str = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c";

/// The script of axe-core. The first time it is downloaded from the npm registry; Debian's npm is installed for that if it is
/// missing.
///
/// # Errors
/// As [`ensure_packages`], or the registry cannot be reached, or its script has another digest.
pub async fn axe(cache: &Path, progress: &Reporter) -> Result<String> {
    let file = cache.join(format!("axe-core-{AXE}.js"));
    let known = |text: &str| hex(&Sha256::digest(text.as_bytes())) == AXE_SHA256;
    if let Ok(text) = std::fs::read_to_string(&file)
        && known(&text)
    {
        return Ok(text);
    }
    ensure(&FOR_NPM, progress).await?;
    let step = progress.begin(format!("getting axe-core {AXE} from the npm registry"));
    let failed = |step: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { step, path, source }
    };
    // Each run has a folder of its own: two runs may download at the same time.
    let folder = cache.join(format!("axe-core-{AXE}.{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
    let got = async {
        let place = folder.display().to_string();
        let package = format!("axe-core@{AXE}");
        run("npm", ["pack", "--silent", "--pack-destination", &place, &package], APT_LIMIT).await?;
        let archive = folder.join(format!("axe-core-{AXE}.tgz")).display().to_string();
        run("tar", ["-xzf", &archive, "-C", &place, "package/axe.min.js"], APT_LIMIT).await?;
        let script = folder.join("package/axe.min.js");
        let text = std::fs::read_to_string(&script).map_err(failed("read", &script))?;
        if !known(&text) {
            let source = std::io::Error::other("its digest is not that of the known version");
            return Err(failed("use", &script)(source));
        }
        std::fs::rename(&script, &file).map_err(failed("rename", &script))?;
        Ok(text)
    };
    let got = got.await;
    let _ = std::fs::remove_dir_all(&folder);
    step.done();
    got
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut all, b| {
        let _ = write!(all, "{b:02x}");
        all
    })
}

/// Installs what virtual machines need on this machine.
///
/// # Errors
/// As [`ensure_packages`].
pub(crate) async fn ensure_vm_packages(progress: &Reporter) -> Result<()> {
    ensure(&FOR_VMS, progress).await
}

async fn ensure(needed: &[(&str, &str)], progress: &Reporter) -> Result<()> {
    if missing(needed, on_path).is_empty() {
        return Ok(());
    }
    let alone = alone(progress).await?;
    // Another run may have installed them meanwhile.
    let packages = missing(needed, on_path);
    if packages.is_empty() {
        return Ok(());
    }
    install(&packages, progress).await?;
    drop(alone);
    match missing(needed, on_path) {
        still if still.is_empty() => Ok(()),
        still => Err(Error::MissingPackages { packages: still }),
    }
}

/// Installs Debian packages on this machine. Runs of the lab that do so at the same time wait for each other.
///
/// # Errors
/// Not root, no apt, or apt fails.
pub async fn install_packages(packages: &[String], progress: &Reporter) -> Result<()> {
    let _alone = alone(progress).await?;
    install(packages, progress).await
}

/// Waits until no other run of the lab installs packages, and locks them out until the file is dropped. `None`: this user may
/// not install any.
async fn alone(progress: &Reporter) -> Result<Option<std::fs::File>> {
    if !is_root() {
        return Ok(None);
    }
    let path = Path::new(APT_ALONE);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    }
    lock_file(path, "it installs Debian packages", progress).await.map(Some)
}

/// Installs the packages; the caller holds the lock of [`alone`].
async fn install(packages: &[String], progress: &Reporter) -> Result<()> {
    if !is_root() || find_on_path("apt-get").is_none() {
        return Err(Error::MissingPackages { packages: packages.to_vec() });
    }
    let step = progress.begin(format!("installing Debian packages: {}", packages.join(" ")));
    let start = Instant::now();
    while let Err(error) = run("apt-get", ["update", "-q"], APT_LIMIT).await {
        if !is_locked(&error) || start.elapsed() > LISTS_LIMIT {
            return Err(error);
        }
        tokio::time::sleep(LISTS_AGAIN).await;
    }
    let fixed = ["-o", "DPkg::Lock::Timeout=300", "install", "-q", "-y", "--no-install-recommends"];
    let args: Vec<&str> = fixed.into_iter().chain(packages.iter().map(String::as_str)).collect();
    run("env", ["DEBIAN_FRONTEND=noninteractive", "apt-get"].into_iter().chain(args), APT_LIMIT).await?;
    step.done();
    Ok(())
}

/// Whether another program holds apt's lists: apt names the process in what it prints.
fn is_locked(error: &Error) -> bool {
    matches!(error, Error::Command { tail, .. } if tail.contains("Could not get lock"))
}

/// Unpacks a Debian package into a folder without installing it: nothing is started or configured on this computer. If there
/// are no package lists yet, it downloads its own, which needs no root.
///
/// # Errors
/// There is no apt, or the package cannot be downloaded.
pub async fn unpack_package(package: &str, folder: &Path) -> Result<()> {
    let folder = folder.display().to_string();
    run("sh", ["-c", UNPACK, "sh", package, &folder], APT_LIMIT).await?;
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

    #[test]
    fn only_a_lock_is_waited_for() {
        let failed = |tail: &str| Error::Command {
            command: "apt-get update -q".to_owned(),
            status: "exit status 100".to_owned(),
            tail: tail.to_owned(),
            whole: Default::default(),
        };
        let locked = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 77 (apt-get)";
        assert!(is_locked(&failed(locked)));
        assert!(!is_locked(&failed("E: Unable to locate package chromium")));
    }
}
