//! systemd-nspawn: the command that becomes it, the machine's PID 1 below it, and commands in the machine's namespaces.
//!
//! Not here: when a machine boots (see `machine`).

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::machine::{Inner, MachineSpec};
use crate::system::command::{Output, find_on_path, output};
use crate::system::folder::ProcessKey;
use crate::system::process::{DeathSignal, Spec};

/// Enters the control groups, mounts the overlay, and becomes nspawn. Arguments: root, lower, upper, work, number of
/// control group files, these files, then the command. The kernel refuses to mount an upper folder that is still in
/// use, and the mount of the previous boot may take a moment to disappear.
const LAUNCH: &str = r#"set -eu
root=$1 lower=$2 upper=$3 work=$4 groups=$5
shift 5
while [ "$groups" -gt 0 ]; do
    echo $$ > "$1" || echo "cannot enter $1" >&2
    shift
    groups=$((groups - 1))
done
tries=0
until mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper,workdir=$work" "$root"; do
    tries=$((tries + 1))
    [ "$tries" -lt 50 ] || exit 1
    sleep 0.1
done
exec "$@"
"#;

impl Inner {
    pub(super) fn command(&self) -> Result<Spec> {
        let MachineSpec { hostname, machine, bridge, base, dir, binds, own_folders, boot_args } = &self.spec;
        let nspawn = find_on_path("systemd-nspawn")
            .ok_or_else(|| Error::MissingPackages { packages: vec!["systemd-container".to_owned()] })?;
        let unshare = find_on_path("unshare")
            .ok_or_else(|| Error::MissingPackages { packages: vec!["util-linux".to_owned()] })?;
        let entries: Vec<PathBuf> = self.group.entries().collect();
        let root = dir.join("root");
        let mut spec = Spec::new(hostname, unshare, self.console())
            .death_signal(DeathSignal::Term)
            .env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "1")
            .args(["--mount", "--propagation", "private", "--", "/bin/sh", "-c", LAUNCH, "sh"])
            .arg(&root)
            .arg(base)
            .arg(dir.join("upper"))
            .arg(dir.join("work"))
            .arg(entries.len().to_string())
            .args(&entries)
            .arg(nspawn)
            .arg(format!("--directory={}", root.display()))
            .args([
                "--boot",
                "--quiet",
                "--register=no",
                "--keep-unit",
                "--capability=all",
                "--console=passive",
            ])
            .args(["--bind=/dev/kmsg", "--resolv-conf=off", "--timezone=off", "--link-journal=no"])
            .arg(format!("--machine={machine}"))
            .arg(format!("--hostname={hostname}"))
            .arg(format!("--network-bridge={bridge}"));
        for (here, there) in binds {
            spec = spec.arg(format!("--bind-ro={}:{}", here.display(), there.display()));
        }
        for inside in own_folders {
            spec = spec.arg(format!("--bind={}:{inside}", self.spec.own_folder(inside).display()));
        }
        Ok(spec.args(boot_args))
    }
}

/// Fails if the folder is on an overlay, as in a container: the upper folder of another overlay cannot be there.
pub(crate) fn check_overlay(folder: &Path) -> Result<()> {
    /// The magic number of overlayfs in statfs(2).
    const OVERLAYFS: u64 = 0x794c_7630;
    let info = rustix::fs::statfs(folder).map_err(|error| Error::io("look at", folder)(error.into()))?;
    if u64::try_from(info.f_type).is_ok_and(|kind| kind == OVERLAYFS) {
        return Err(Error::Options(format!(
            "{} lies on an overlay, where no real node can run: set MCO_LAB_DATA to a folder on a disk or tmpfs",
            folder.display()
        )));
    }
    Ok(())
}

/// The child of nspawn that is PID 1 in its own PID namespace.
pub(super) fn leader_of(nspawn: i32) -> Option<ProcessKey> {
    let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children")).ok()?;
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find_map(|pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let inner: Vec<&str> = inner.split_whitespace().collect();
        let is_first = inner.len() > 1 && inner.last() == Some(&"1");
        let runs_init = status.lines().next().is_some_and(|name| name.ends_with("systemd"));
        if is_first && runs_init { ProcessKey::of(pid) } else { None }
    })
}

/// Runs a command in the machine's namespaces, with a clean environment.
pub(crate) async fn enter<I: AsRef<OsStr>>(
    leader: ProcessKey,
    command: impl IntoIterator<Item = I>,
    limit: Duration,
) -> Result<Output> {
    if !leader.alive() {
        return Err(Error::Options("the node went down".to_owned()));
    }
    let mut args: Vec<std::ffi::OsString> =
        ["-t", &leader.pid.to_string(), "-m", "-u", "-i", "-n", "-p", "-C", "--"]
            .iter()
            .map(Into::into)
            .collect();
    args.extend(
        [
            "env",
            "-i",
            "-C",
            "/",
            "HOME=/root",
            "LANG=C.UTF-8",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ]
        .iter()
        .map(Into::into),
    );
    args.extend(command.into_iter().map(|arg| arg.as_ref().to_owned()));
    output("nsenter", args, limit).await
}
