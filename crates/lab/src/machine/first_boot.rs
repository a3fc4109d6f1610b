//! A machine before its first boot: the shared base root file system, with our program and units in it as in a machine
//! image. The real Ignition then fetches the machine's config from the address in its pointer config and writes it into
//! the machine's root file system.
//!
//! Ignition does not run in an initramfs here. It runs on this computer, on the root file system from which the machine
//! boots afterwards. It creates no disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::machine::node_file::NodeFile;
use crate::progress::Reporter;
use crate::system::command::{find_on_path, run};
use crate::system::packages::install_packages;

/// Ignition's path in Debian's package, where it is meant for an initramfs.
const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
/// The time limit for fetching (with retries until a server answers) and for writing.
const IGNITION_LIMIT: Duration = Duration::from_secs(180);

/// Mounts the machine's root file system and runs Ignition's stages on it. Arguments: lower, upper, work, program, a
/// folder for Ignition's own files. The mount is in its own mount namespace. Its path must be accessible to every user,
/// because Ignition writes users' SSH keys with these users' ids. Debian has no SELinux policy, so the program that
/// sets labels is replaced by `true`.
const STAGES: &str = r#"set -eu
root=/mnt lower=$1 upper=$2 work=$3 program=$4 own=$5
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper,workdir=$work" "$root"
mkdir -p "$own/bin"
ln -sf /bin/true "$own/bin/setfiles"
cd "$own"
for stage in fetch kargs disks mount files umount; do
    PATH="$own/bin:$PATH" "$program" --platform=file --stage=$stage --root="$root" --config-cache="$own/cache.json" \
        --neednet="$own/neednet" --state-file="$own/state" --log-to-stdout 2>&1
done
"#;

/// A machine that has never booted.
#[derive(Debug, Clone)]
pub struct BareMachine {
    /// Its host name, and so the name of its Node.
    pub name: String,
    /// Its Ignition config, usually a pointer config.
    pub config: String,
    /// Files that its image has in addition to the base.
    pub files: Vec<NodeFile>,
    /// Units that its image enables.
    pub enable: Vec<String>,
}

/// Ignition's output while it set up a machine.
#[derive(Debug, Clone)]
pub struct IgnitionLog(pub String);

/// The files that make Ignition and systemd treat the machine's first boot as one.
pub(crate) fn files() -> Vec<NodeFile> {
    vec![
        // By this systemd recognises a first boot, and then follows the presets that Ignition has written.
        NodeFile::new("etc/machine-id", 0o444, "uninitialized\n"),
        // Ignition reads which SELinux policy to use for labels.
        NodeFile::new("etc/selinux/config", 0o644, "SELINUX=disabled\nSELINUXTYPE=targeted\n"),
        // Only units that a preset names are enabled, as on systems made for Ignition.
        NodeFile::new("etc/systemd/system-preset/99-lab.preset", 0o644, "disable *\n"),
    ]
}

/// The path of Ignition; installs its package.
///
/// # Errors
/// Not root, or the package is not available.
pub(crate) async fn program(progress: &Reporter) -> Result<PathBuf> {
    let path = PathBuf::from(IGNITION);
    if !path.exists() {
        install_packages(&["ignition".to_owned()], progress).await?;
    }
    Ok(path)
}

/// Runs Ignition on the machine with this folder.
///
/// # Errors
/// Ignition fails; the error contains the end of its output.
pub(crate) async fn provision(program: &Path, config: &str, base: &Path, dir: &Path) -> Result<IgnitionLog> {
    let own = dir.join("ignition");
    fs::create_dir_all(&own).map_err(Error::io("create", &own))?;
    for part in ["upper", "work"] {
        let path = dir.join(part);
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
    }
    let file = own.join("config.ign");
    fs::write(&file, config).map_err(Error::io("write", &file))?;
    let unshare = find_on_path("unshare")
        .ok_or_else(|| Error::MissingPackages { packages: vec!["util-linux".to_owned()] })?;
    let [upper, work] = &["upper", "work"].map(|part| dir.join(part));
    let mut args: Vec<&std::ffi::OsStr> =
        ["--mount", "--propagation", "private", "--", "/bin/sh", "-c", STAGES, "sh"]
            .map(AsRef::as_ref)
            .to_vec();
    args.extend([base, upper, work, program, &own].map(|path: &Path| path.as_os_str()));
    run(&unshare.to_string_lossy(), args, IGNITION_LIMIT).await.map(IgnitionLog)
}
