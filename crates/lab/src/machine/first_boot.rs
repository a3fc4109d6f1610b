//! A machine before its first boot: the shared base root, our program and units in it as an image would have them. The
//! real Ignition then fetches the machine's config from the address in its pointer config and writes it into the
//! machine's root.
//!
//! Ignition does not run in an initramfs here. It runs on this computer, on the root that the machine boots from
//! afterwards. It makes no disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::machine::node_file::NodeFile;
use crate::progress::Reporter;
use crate::system::packages::install_packages;
use crate::system::process::{find_on_path, run};

/// Ignition's path in Debian's package, which is made for an initramfs.
const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
/// Fetching, writing, and the tries until a server answers.
const IGNITION_LIMIT: Duration = Duration::from_secs(180);

/// Mounts the machine's root, and runs Ignition's stages on it. Arguments: lower, upper, work, program, a folder for its
/// own files. The mount is in a namespace of its own; it stands where any user may go, as Ignition writes users' keys as
/// these users. Debian has no SELinux policy: the program that labels files has nothing to do.
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

/// A machine that was never booted.
#[derive(Debug, Clone)]
pub struct BareMachine {
    /// Its host name, and so its Node's.
    pub name: String,
    /// Its Ignition config: most often a pointer.
    pub config: String,
    /// What its image has beyond the base.
    pub files: Vec<NodeFile>,
    /// Units that its image enables.
    pub enable: Vec<String>,
}

/// Ignition's output while it set up a machine.
#[derive(Debug, Clone)]
pub struct IgnitionLog(pub String);

/// What a machine's root needs so that Ignition and the first boot find it untouched.
pub(crate) fn files() -> Vec<NodeFile> {
    vec![
        // systemd takes it for a first boot and follows the presets that Ignition wrote.
        NodeFile::new("etc/machine-id", 0o444, "uninitialized\n"),
        // Ignition asks which policy's labels to use.
        NodeFile::new("etc/selinux/config", 0o644, "SELINUX=disabled\nSELINUXTYPE=targeted\n"),
        // Only what a preset names is enabled, as on systems that are made for Ignition.
        NodeFile::new("etc/systemd/system-preset/99-lab.preset", 0o644, "disable *\n"),
    ]
}

/// Ignition's program; installs its package.
///
/// # Errors
/// Not root, or the package cannot be had.
pub(crate) async fn program(progress: &Reporter) -> Result<PathBuf> {
    let path = PathBuf::from(IGNITION);
    if !path.exists() {
        install_packages(&["ignition".to_owned()], progress).await?;
    }
    Ok(path)
}

/// Lets Ignition set the machine up whose folder this is.
///
/// # Errors
/// Ignition fails; the error holds the end of what it said.
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
