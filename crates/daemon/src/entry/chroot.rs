//! Moves the agent from its pod to the host: it copies its own program into the host's root folder, makes that folder
//! its root, and executes itself again there. From then on it works exactly as it does as a service of the host: it
//! finds the host's programs, sockets and files at their own paths.
//!
//! No namespace is changed. The pod's manifest makes it share the host's process and network namespaces. Mounts that
//! the host makes later are visible because the folder is mounted with `HostToContainer` propagation.

use crate::error::DaemonError;
use host::{Attributes, Found, Root};
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The program's path on the host. The units that run before the kubelet (first boot, recovery) start it there.
const PROGRAM: &str = "/usr/local/bin/mco";
/// Its path on a host with a read-only `/usr`. This copy is gone after a reboot.
const VOLATILE: &str = "/run/bin/mco";
/// The size of the read buffer.
const BUFFER: usize = 64 * 1024;
/// The program's mode and owner.
const MODE: Attributes = Attributes { mode: 0o755, uid: 0, gid: 0 };

/// Changes the root to the host's root folder, which is mounted at `root_mount`, and executes the program there with
/// these arguments (the first one is the name that it was called by) and `--root-mount=/`. Returns `Ok` only if there
/// is nothing to enter. Call it before any thread is started.
///
/// # Errors
/// The program cannot be copied, the folder cannot be entered, or the program does not start there.
pub fn chroot_into_host(
    root_mount: &Path,
    args: impl IntoIterator<Item = OsString>,
) -> Result<Option<Infallible>, DaemonError> {
    if root_mount == Path::new("/") {
        return Ok(None);
    }
    let fail = |what: &str, why: String| DaemonError::Enter {
        path: root_mount.display().to_string(),
        what: what.to_owned(),
        why,
    };
    let root = Root::open(root_mount)
        .map_err(|e| fail("open it", format!("{e}. {}", crate::entry::start::root_remedy(root_mount))))?;
    let program = match install(&root, PROGRAM) {
        Ok(()) => PROGRAM,
        Err(error) => {
            tracing::warn!(
                %error,
                "the program cannot be installed on the host: after a power cut an interrupted update is \
                 recovered only when this pod runs again, not before the kubelet starts"
            );
            install(&root, VOLATILE).map_err(|why| fail(&format!("write {VOLATILE} there"), why))?;
            VOLATILE
        }
    };
    drop(root);
    rustix::process::chroot(root_mount).map_err(|e| fail("make it the root folder", e.to_string()))?;
    rustix::process::chdir("/").map_err(|e| fail("change to it", e.to_string()))?;
    let mut args = args.into_iter();
    let mut command = Command::new(program);
    // The program chooses its role by the name that it was called by, so keep the name.
    command.arg0(args.next().unwrap_or_else(|| program.into())).args(args).arg("--root-mount=/");
    let why = command.exec();
    let hint = if why.kind() == std::io::ErrorKind::NotFound {
        "; a program that is not linked statically needs the host's C library to be as new as its own"
    } else {
        ""
    };
    Err(fail(&format!("start {program} there"), format!("{why}{hint}")))
}

/// Copies this program to a path of the host, unless it is there already.
fn install(root: &Root, path: &str) -> Result<(), String> {
    const SELF: &str = "/proc/self/exe";
    let text = |e: host::FsError| e.to_string();
    let open = || std::fs::File::open(SELF).map_err(|e| format!("{SELF}: {e}"));
    if let Found::File { len, mode, sha256, .. } = root.found(path).map_err(text)?
        && mode == MODE.mode
        && open()?.metadata().map_err(|e| format!("{SELF}: {e}"))?.len() == len
        && same(&mut open()?, &sha256)?
    {
        return Ok(());
    }
    root.make_parents(path).map_err(text)?;
    root.write(path, &mut open()?, MODE).map_err(text)
}

/// Whether the contents have this SHA-256 (hex).
fn same(reader: &mut impl std::io::Read, sha256: &str) -> Result<bool, String> {
    use sha2::Digest;
    let mut hash = sha2::Sha256::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match reader.read(&mut buffer).map_err(|e| e.to_string())? {
            0 => break,
            n => hash.update(buffer.get(..n).unwrap_or_default()),
        }
    }
    let hex: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    Ok(hex == sha256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn the_hosts_own_root_is_not_entered() {
        assert!(chroot_into_host(Path::new("/"), []).unwrap().is_none());
        let error = chroot_into_host(Path::new("/nowhere"), []).unwrap_err().to_string();
        assert!(error.contains("/nowhere") && error.contains("--root-mount=/"), "{error}");
        assert!(
            crate::entry::start::recover(Path::new("/nowhere"))
                .unwrap_err()
                .to_string()
                .contains("--root-mount=/")
        );
    }

    #[test]
    fn the_program_is_written_once_and_again_when_it_differs() {
        let dir = tempfile::tempdir().unwrap();
        let options = host::Options { sync: false, owners: false };
        let root = Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
        let path = dir.path().join("usr/local/bin/mco");
        install(&root, PROGRAM).unwrap();
        let first = std::fs::metadata(&path).unwrap();
        assert_eq!(first.permissions().mode() & 0o7777, 0o755);
        assert_eq!(first.len(), std::fs::metadata("/proc/self/exe").unwrap().len());
        install(&root, PROGRAM).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), first.ino());
        std::fs::write(&path, "an older one").unwrap();
        install(&root, PROGRAM).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), first.len());
    }
}
