//! Moves the agent from its pod to the host: it copies its own program into the host's root folder, makes that folder
//! its root, and executes itself again there. From then on it works exactly as it does as a service of the host: it
//! finds the host's programs, sockets and files at their own paths.
//!
//! No namespace is changed. The pod's manifest makes it share the host's process and network namespaces. Mounts that
//! the host makes later are visible because the folder is mounted with `HostToContainer` propagation.

use crate::error::DaemonError;
use host::{Attributes, PathState, Root};
use rustix::fs::{Mode, OFlags};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program's path on the host. The units that run before the kubelet (first boot, recovery) start it there.
const PROGRAM: &str = "/usr/local/bin/mco";
/// Its path on a host with a read-only `/usr`. This copy is gone after a reboot.
const VOLATILE: &str = "/run/bin/mco";
/// Where the program that is executed finds the pod's folder: it is its standard input. Any other descriptor that outlives
/// the execution would be inherited by every program that the agent starts; each of these gets a standard input of its own.
const INHERITED: &str = "/proc/self/fd/0";
/// The mode of the files that older agents copied to the host.
const COPIED: u32 = 0o600;
/// The longest certificate that is looked into, in bytes.
const MAX_CERTIFICATE: u64 = 64 * 1024;
/// The size of the read buffer.
const BUFFER: usize = 64 * 1024;
/// The program's mode and owner.
const MODE: Attributes = Attributes { mode: 0o755, uid: 0, gid: 0 };

/// Changes the root to the host's root folder, which is mounted at `root_mount`, and executes the program there with
/// these arguments (the first one is the name that it was called by) and `--root-mount=/`. Returns `Ok` only if there
/// is nothing to enter. Call it before any thread is started.
///
/// `files`: a certificate of the pod and its key, as the arguments name them; none, or both in one folder. It is kept open, and
/// the arguments name the files by the open folder (`/proc/self/fd/0/FILE`): a Secret that the kubelet replaces is seen, and no
/// key is written to the host. Copies that an older agent left there are removed.
///
/// # Errors
/// The program cannot be copied, the folder cannot be entered, or the program does not start there.
pub fn chroot_into_host(
    root_mount: &Path,
    args: impl IntoIterator<Item = OsString>,
    files: &[&Path],
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
        .map_err(|e| fail("open it", format!("{e}. {}", crate::entry::open_host::root_remedy(root_mount))))?;
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
    let kept = KeptFolder::of(files).unwrap_or_else(|error| {
        tracing::warn!("the certificate of the pod cannot be used on the host: {error}");
        None
    });
    if let Err(error) = remove_copies(&root, files) {
        tracing::warn!("an old copy of the pod's certificate and key is still on the host: {error}");
    }
    drop(root);
    rustix::process::chroot(root_mount).map_err(|e| fail("make it the root folder", e.to_string()))?;
    rustix::process::chdir("/").map_err(|e| fail("change to it", e.to_string()))?;
    let mut args = args.into_iter().map(|arg| match &kept {
        Some(kept) => kept.renamed(arg),
        None => arg,
    });
    let mut command = Command::new(program);
    // The program chooses its role by the name that it was called by, so keep the name.
    command.arg0(args.next().unwrap_or_else(|| program.into())).args(args).arg("--root-mount=/");
    if let Some(kept) = kept {
        command.stdin(Stdio::from(kept.open));
    }
    let why = command.exec();
    let hint = if why.kind() == std::io::ErrorKind::NotFound {
        "; a program that is not linked statically needs the host's C library to be as new as its own"
    } else {
        ""
    };
    Err(fail(&format!("start {program} there"), format!("{why}{hint}")))
}

/// A folder of the pod that stays open across the change of the root and the execution.
#[derive(Debug)]
struct KeptFolder {
    /// Its path in the pod.
    path: PathBuf,
    /// Closed on execution; the program that is executed has it as its standard input.
    open: OwnedFd,
}

impl KeptFolder {
    /// Opens the folder of these files; `None` if there are none. The files need not be there yet: a Secret may be optional.
    fn of(files: &[&Path]) -> Result<Option<Self>, String> {
        let Some(file) = files.first() else { return Ok(None) };
        let folder = |file: &Path| match file.parent() {
            Some(folder) if file.is_absolute() => Ok(folder.to_owned()),
            _ => Err(format!("{}: it has no absolute path", file.display())),
        };
        let path = folder(file)?;
        if let Some(other) = files.iter().find(|other| other.parent() != Some(&path)) {
            let (one, other) = (file.display(), other.display());
            return Err(format!("{one} and {other} are in different folders; mount them into one"));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open =
            rustix::fs::open(&path, flags, Mode::empty()).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Some(Self { path, open }))
    }

    /// The argument, which may be a file of this folder, or an option with one.
    fn renamed(&self, arg: OsString) -> OsString {
        let value = match arg.as_bytes().iter().position(|b| *b == b'=') {
            Some(at) if arg.as_bytes().starts_with(b"--") => at + 1,
            _ => 0,
        };
        let (option, path) = arg.as_bytes().split_at(value);
        let path = Path::new(OsStr::from_bytes(path));
        match path.file_name() {
            Some(name) if path.parent() == Some(&self.path) => {
                let mut renamed = OsStr::from_bytes(option).to_owned();
                renamed.push(Path::new(INHERITED).join(name));
                renamed
            }
            _ => arg,
        }
    }
}

/// Removes the copies of these files from the host: older agents wrote the certificate of their metrics and its key to
/// the same paths there, for root only, and a key that was rotated since would stay. Files of somebody else stay: the
/// certificate must be for our own service.
fn remove_copies(root: &Root, files: &[&Path]) -> Result<(), String> {
    let text = |e: host::FsError| e.to_string();
    let mut copies = vec![];
    for file in files {
        let path = file.to_str().ok_or("a path is not UTF-8")?;
        match root.found(path).map_err(text)? {
            PathState::File { mode: COPIED, len, .. } if len <= MAX_CERTIFICATE => copies.push(path),
            _ => {}
        }
    }
    let mut is_ours = false;
    for path in &copies {
        is_ours |= is_for_our_service(&root.read(path).map_err(text)?);
    }
    // The key first: if this is interrupted, the next start still knows by the certificate whose key it is.
    copies.reverse();
    for path in copies.into_iter().filter(|_| is_ours) {
        root.remove(path).map_err(text)?;
        tracing::info!(path, "a copy that an older agent wrote is removed");
    }
    Ok(())
}

/// Whether this is a PEM certificate for a service of our namespace, as the operator makes them for metrics.
fn is_for_our_service(pem: &[u8]) -> bool {
    use x509_parser::prelude::*;
    let domain = format!(".{}.svc", api::names::NAMESPACE);
    let Ok((_, pem)) = parse_x509_pem(pem) else { return false };
    let Ok(certificate) = pem.parse_x509() else { return false };
    let names = certificate.subject_alternative_name().ok().flatten();
    names.is_some_and(|names| {
        names.value.general_names.iter().any(|n| matches!(n, GeneralName::DNSName(n) if n.ends_with(&domain)))
    })
}

/// Copies this program to a path of the host, unless it is there already.
fn install(root: &Root, path: &str) -> Result<(), String> {
    const SELF: &str = "/proc/self/exe";
    let text = |e: host::FsError| e.to_string();
    let open = || std::fs::File::open(SELF).map_err(|e| format!("{SELF}: {e}"));
    if let PathState::File { len, mode, sha256, .. } = root.found(path).map_err(text)?
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
    Ok(api::formats::text::hex(&hash.finalize()) == sha256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn an_agent_that_runs_on_the_host_does_not_chroot() {
        assert!(chroot_into_host(Path::new("/"), [], &[]).unwrap().is_none());
        let error = chroot_into_host(Path::new("/nowhere"), [], &[]).unwrap_err().to_string();
        assert!(error.contains("/nowhere") && error.contains("--root-mount=/"), "{error}");
        assert!(
            crate::entry::start::recover(Path::new("/nowhere"))
                .unwrap_err()
                .to_string()
                .contains("--root-mount=/")
        );
    }

    #[test]
    fn a_file_of_the_pod_is_read_from_any_root_as_the_kubelet_has_replaced_it() {
        let pod = tempfile::tempdir().unwrap();
        let (cert, key) = (pod.path().join("tls.crt"), pod.path().join("tls.key"));
        // An optional Secret may not be there yet.
        let kept = KeptFolder::of(&[&cert, &key]).unwrap().unwrap();
        std::fs::write(&key, "1").unwrap();
        let new = pod.path().join("new");
        std::fs::write(&new, "2").unwrap();
        std::fs::rename(&new, &key).unwrap();
        // The arguments name it so.
        let path = key.display();
        for (arg, want) in [
            (format!("--metrics-key={path}"), "--metrics-key=/proc/self/fd/0/tls.key".to_owned()),
            (format!("{path}"), "/proc/self/fd/0/tls.key".to_owned()),
            (format!("--metrics-key={path}/old"), format!("--metrics-key={path}/old")),
            (format!("--name=x{path}"), format!("--name=x{path}")),
            ("start".to_owned(), "start".to_owned()),
            ("--metrics-key".to_owned(), "--metrics-key".to_owned()),
        ] {
            assert_eq!(kept.renamed(arg.clone().into()), OsString::from(want), "{arg}");
        }
        let read = Command::new("cat").arg(kept.renamed(key.into())).stdin(Stdio::from(kept.open)).output();
        assert_eq!(read.unwrap().stdout, b"2");
        assert!(KeptFolder::of(&[]).unwrap().is_none());
        for (files, why) in [
            (["/nonexistent/folder/a", "/nonexistent/folder/b"], "/nonexistent/folder: "),
            (["/a/tls.crt", "/b/tls.key"], "different folders"),
            (["tls.crt", "tls.key"], "no absolute path"),
        ] {
            let error = KeptFolder::of(&files.map(Path::new)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    /// It runs twice: as a test, and in a process whose standard input is the pod's folder, as the agent's is.
    #[test]
    fn a_program_that_the_agent_starts_has_no_descriptor_of_the_pods_folder() {
        use host::{HostPrograms, Programs};
        const NAME: &str =
            "entry::chroot::tests::a_program_that_the_agent_starts_has_no_descriptor_of_the_pods_folder";
        if !Path::new(INHERITED).is_dir() {
            let pod = tempfile::tempdir().unwrap();
            let kept = KeptFolder::of(&[&pod.path().join("tls.key")]).unwrap().unwrap();
            let mut agent = Command::new(std::env::current_exe().unwrap());
            let said = agent.args(["--exact", NAME, "--nocapture"]).stdin(Stdio::from(kept.open)).output();
            let said = said.unwrap();
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            assert!(said.status.success() && text.contains("1 passed"), "{text}\n{said:?}");
            assert!(text.contains(&format!("{INHERITED} is {}", pod.path().display())), "{text}");
            return;
        }
        let folder = std::fs::read_link(INHERITED).unwrap();
        println!("{INHERITED} is {}", folder.display());
        let listed = HostPrograms.run("ls", &["-l", "/proc/self/fd"], std::time::Duration::from_secs(10));
        let listed = listed.unwrap().text;
        assert!(listed.contains("0 -> /dev/null"), "{listed}");
        assert!(!listed.contains(&*folder.to_string_lossy()), "{listed}");
    }

    #[test]
    fn a_copy_of_an_older_agent_is_removed_and_a_file_of_somebody_else_stays() {
        let pair = |name: &str| {
            let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let ours = pair("machine-config-daemon.openshift-machine-config-operator.svc");
        let theirs = pair("metrics.example.com");
        let files = ["/etc/ssl/metrics/tls.crt", "/etc/ssl/metrics/tls.key"].map(Path::new);
        for (about, (cert, key), mode, stays) in [
            ("our copy", &ours, 0o600, false),
            ("theirs", &theirs, 0o600, true),
            ("ours, which somebody put there", &ours, 0o644, true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let options = host::Options { sync: false, owners: false };
            let root =
                Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
            remove_copies(&root, &files).unwrap();
            let there = files.map(|f| dir.path().join(f.strip_prefix("/").unwrap()));
            std::fs::create_dir_all(there[0].parent().unwrap()).unwrap();
            for (path, text) in there.iter().zip([cert, key]) {
                std::fs::write(path, text).unwrap();
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
            remove_copies(&root, &files).unwrap();
            assert_eq!(there.map(|path| path.exists()), [stays; 2], "{about}");
        }
    }

    #[test]
    fn the_program_is_copied_again_only_when_it_differs() {
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
