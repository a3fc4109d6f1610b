//! What a change replaces is kept as an original, for the way back: with its attributes, private where it was private, and never in the
//! place of a file of somebody else.
//!
//! Not here: what refuses a change (see `bad_input`), and damaged journals (see `bad_journal`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::copy::copy_tree;
use crate::common::{BySpec as _, plan};
use crate::common::{is_root, mk_host_tree, tree};
use crate::planning::{SKIP, file, files, interrupted, mk, planned};
use api::v1::MachineConfigSpec;
use host::{DisruptionPolicy, Error, Names, Recovery};
use serde_json::json;

#[test]
fn a_backup_that_cannot_be_removed_does_not_block_later_changes() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    copy_tree(mk_host_tree().path(), dir.path());
    let ssh = dir.path().join("home/core/.ssh");
    fs::create_dir(&ssh).unwrap();
    fs::write(ssh.join("fixed"), "root's").unwrap();
    let chattr = |flag: &str, at: &Path| {
        Command::new("chattr").args(["-R", flag]).arg(at).status().is_ok_and(|s| s.success())
    };
    if !chattr("+i", &ssh.join("fixed")) {
        eprintln!("skipped: immutable files cannot be made here");
        return;
    }
    let new = MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA x"]}]}})),
        ..MachineConfigSpec::default()
    };
    let mut host = mk(dir.path());
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    let (applied, recovered) = (host.apply(&plan), host.recover());
    chattr("-i", &dir.path().join("home/core"));
    applied.unwrap();
    assert_eq!(recovered.unwrap(), Recovery::Nothing);
    assert!(dir.path().join("home/core/.ssh/authorized_keys.d/ignition").exists());
}

#[test]
fn the_kept_original_of_a_file_in_a_private_folder_is_private() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let closed = dir.path().join("etc/closed");
    fs::create_dir(&closed).unwrap();
    let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set(&closed, 0o700);
    fs::write(closed.join("x"), "host's own").unwrap();
    set(&closed.join("x"), 0o644);
    let mut host = mk(dir.path());
    let plan = planned(&mut host, &files(&[file("/etc/closed/x")]), &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    let originals = dir.path().join("etc/machine-config-daemon/orig");
    let mode = || fs::metadata(&originals).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o700);
    // A folder that an older version made.
    set(&originals, 0o755);
    host.recover().unwrap();
    assert_eq!(mode(), 0o700);
}

#[test]
fn a_foreign_file_at_the_path_of_a_backup_is_not_taken_for_the_backup() {
    let dir = mk_host_tree();
    let home = dir.path().join("home/core");
    fs::write(home.join(".ssh"), "a file of core's").unwrap();
    let keys = MachineConfigSpec {
        config: Some(json!({
            "ignition": {"version": "3.5.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA core"]}]},
        })),
        ..MachineConfigSpec::default()
    };
    let plan = planned(&mut mk(dir.path()), &keys, &DisruptionPolicy::default()).unwrap();
    let aside = plan.steps.iter().find_map(|s| match s {
        host::Step::MoveAside { to, .. } => Some(to.clone()),
        _ => None,
    });
    let aside = aside.unwrap();
    fs::create_dir(dir.path().join(aside.trim_start_matches('/'))).unwrap();
    let before = tree(dir.path(), &["/"], &SKIP);
    let error = mk(dir.path()).apply(&plan).unwrap_err().to_string();
    assert!(error.contains(&aside) && error.contains("move it away"), "{error}");
    assert_eq!(tree(dir.path(), &["/"], &SKIP), before);
    assert_eq!(mk(dir.path()).recover().unwrap(), Recovery::Nothing);
}

#[test]
fn a_restored_original_keeps_its_extended_attributes() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let dir = mk_host_tree();
    let path = dir.path().join("etc/issue.net");
    let (own, label) = ("user.of-the-host", "security.selinux");
    if setxattr(&path, own, b"kept", XattrFlags::empty()).is_err() {
        eprintln!("skipped: this file system has no extended attributes");
        return;
    }
    let labels = setxattr(&path, label, b"special_t", XattrFlags::empty()).is_ok();
    let read = |name: &str| {
        let mut value = [0; 64];
        getxattr(&path, name, &mut value).ok().map(|n| value[..n].to_vec())
    };
    let managed = files(&[file("/etc/issue.net")]);
    // Undone by the journal.
    interrupted(dir.path());
    assert_eq!(read(own), None);
    mk(dir.path()).recover().unwrap();
    assert_eq!(read(own).as_deref(), Some(&b"kept"[..]));
    // No longer wanted by a later config.
    let mut host = mk(dir.path());
    let there = planned(&mut host, &managed, &DisruptionPolicy::default()).unwrap();
    host.apply(&there).unwrap();
    assert_eq!(read(own), None, "it is another file now");
    assert!(!labels || read(label).as_deref() == Some(&b"special_t"[..]), "{:?}", read(label));
    let none = MachineConfigSpec::default();
    let facts = host.probe(&managed, &none).unwrap();
    let back = plan(&managed, &none, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
    host.apply(&back).unwrap();
    assert_eq!(read(own).as_deref(), Some(&b"kept"[..]));
    assert!(!labels || read(label).as_deref() == Some(&b"special_t"[..]));
}

#[test]
fn odd_file_names_and_a_large_original_are_handled() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for d in ["etc/systemd/system/multi-user.target.wants", "etc/odd", "run", "var/lib"] {
        fs::create_dir_all(dir.path().join(d)).unwrap();
    }
    let names: [&[u8]; 5] = [b"new\nline", b"\xff\xfe", b"back\\slash", b" ", b"-rf"];
    for folder in ["etc/odd", "etc/systemd/system", "etc/systemd/system/multi-user.target.wants"] {
        for name in names {
            fs::write(dir.path().join(folder).join(std::ffi::OsStr::from_bytes(name)), "theirs").unwrap();
        }
    }
    // 100 MiB, most of it a hole, which takes us as long as data would.
    let large = fs::File::create(dir.path().join("etc/odd/large")).unwrap();
    large.set_len(100 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&large, b"end", (100 << 20) - 3).unwrap();
    let mut host = mk(dir.path());
    let new = files(&[file("/etc/odd/large"), file("/etc/odd/new\nline"), file("/etc/odd/other")]);
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(fs::read(dir.path().join("etc/odd/new\nline")).unwrap(), b"secret");
    let old = MachineConfigSpec::default();
    let facts = host.probe(&new, &old).unwrap();
    let back =
        crate::common::plan(&new, &old, &Names::default(), &DisruptionPolicy::default(), &facts).unwrap();
    host.apply(&back).unwrap();
    let large = fs::metadata(dir.path().join("etc/odd/large")).unwrap();
    assert_eq!(large.len(), 100 << 20);
    assert_eq!(fs::read(dir.path().join("etc/odd/new\nline")).unwrap(), b"theirs");
    for folder in ["etc/odd", "etc/systemd/system", "etc/systemd/system/multi-user.target.wants"] {
        for name in names {
            let at = dir.path().join(folder).join(std::ffi::OsStr::from_bytes(name));
            assert_eq!(fs::read(&at).unwrap(), b"theirs", "{at:?}");
        }
    }
}

#[test]
fn the_space_for_originals_is_counted() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "none"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|s| s.success()) {
        eprintln!("skipped: a small file system cannot be mounted here");
        return;
    }
    fs::create_dir(dir.path().join("etc")).unwrap();
    fs::create_dir_all(dir.path().join("var/lib")).unwrap();
    // It would fit twice, for the journal, but not three times, with the original that is kept.
    fs::write(dir.path().join("etc/x"), "x".repeat(800 * 1024)).unwrap();
    let before = tree(dir.path(), &["/"], &SKIP);
    let mut host = mk(dir.path());
    let plan = planned(&mut host, &files(&[file("/etc/x")]), &DisruptionPolicy::default()).unwrap();
    let error = host.apply(&plan).unwrap_err();
    let after = tree(dir.path(), &["/"], &SKIP);
    drop(host);
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
    assert!(matches!(&error, Error::NoSpace { .. }), "{error}");
    assert_eq!(after, before);
}

#[test]
fn a_private_file_shows_neither_contents_nor_hash() {
    let dir = mk_host_tree();
    let new = files(&[
        json!({"path": "/etc/private", "mode": 0o600, "contents": {"source": "data:,hunter2"}}),
        json!({"path": "/etc/public", "mode": 0o644, "contents": {"source": "data:,hello"}}),
    ]);
    let plan = planned(&mut mk(dir.path()), &new, &DisruptionPolicy::default()).unwrap();
    let shown = format!("{plan}\n{plan:?}\n{}", serde_json::to_string(&plan).unwrap());
    // SHA-256 of "hunter2" and of "hello".
    assert!(!shown.contains("hunter2") && !shown.contains("f52fbd32b2b3"), "{shown}");
    assert!(
        plan.to_string().contains("/etc/public <5 bytes> mode 0644 owner 0:0 sha256 2cf24dba5fb0"),
        "{plan}"
    );
}
