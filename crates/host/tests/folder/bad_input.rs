//! Whatever is wrong with the host or the config, the host must end in its old state, and the error must name the path
//! and the remedy.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::copy::copy_tree;
use crate::common::{BySpec as _, plan};
use crate::common::{is_root, mk_host_tree, tree};
use crate::planning::{SKIP, file, files, interrupted, mk, planned};
use api::v1::MachineConfigSpec;
use host::{
    DisruptionPolicy, Error, FakeSystemd, FilePolicy, Irreconcilable, Names, PolicyAction, Recovery, Scope,
};
use serde_json::{Value, json};

/// The one reason why a config is refused, after which nothing has changed.
fn refused(at: &Path, new: &MachineConfigSpec) -> Irreconcilable {
    let before = tree(at, &["/"], &SKIP);
    let bad = planned(&mut mk(at), new, &DisruptionPolicy::default()).unwrap_err();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!(tree(at, &["/"], &SKIP), before);
    let text = bad[0].to_string();
    assert!(!bad[0].remedy.is_empty() && !text.contains("secret"), "{text}");
    bad.into_iter().next().unwrap()
}

#[test]
fn a_link_that_points_outside_the_root_is_not_followed_outside() {
    let dir = mk_host_tree();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("etc/out")).unwrap();
    symlink("../../../../../../../../../../tmp", dir.path().join("etc/up")).unwrap();
    // The link's target does not exist inside the root, and a folder cannot be made through a dangling link.
    let bad = refused(dir.path(), &files(&[file("/etc/out/x")]));
    assert_eq!((bad.path.as_str(), bad.scope), ("/etc/out/x", Scope::Machine));
    assert!(bad.why.contains("/etc/out"), "{bad}");
    // If the target exists, the link leads to it, as on the host itself.
    fs::create_dir(dir.path().join("tmp")).unwrap();
    let mut host = mk(dir.path());
    let plan =
        planned(&mut host, &files(&[file("/etc/up/mcd-test-x")]), &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(fs::read(dir.path().join("tmp/mcd-test-x")).unwrap(), b"secret");
    assert!(!Path::new("/tmp/mcd-test-x").exists());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn an_obstacle_is_named_with_its_path() {
    let dir = mk_host_tree();
    Command::new("mkfifo").arg(dir.path().join("etc/pipe")).status().unwrap();
    for (path, why) in [
        ("/etc/apt", "there is a folder at this path"),
        ("/etc/pipe", "there is a device, socket or pipe at this path"),
        ("/etc/host.conf/inner", "/etc/host.conf is not a folder"),
        ("/etc/host.conf/deeper/inner", "/etc/host.conf is not a folder"),
    ] {
        let bad = refused(dir.path(), &files(&[file(path)]));
        assert_eq!((bad.path.as_str(), bad.why.as_str()), (path, why));
    }
    let both = files(&[file("/etc/new"), file("/etc/new/below")]);
    assert!(refused(dir.path(), &both).why.contains("also wants a file at /etc/new"));
    let nobody = files(&[json!({"path": "/etc/x", "user": {"name": "nobody-here"}})]);
    assert!(refused(dir.path(), &nobody).why.contains("\"nobody-here\" does not exist"));
}

#[test]
fn an_immutable_file_is_refused_before_anything_changes() {
    // Memory file systems have no such attribute.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir_all(dir.path().join("etc")).unwrap();
    let path = dir.path().join("etc/fixed");
    fs::write(&path, "host's").unwrap();
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&path).status().is_ok_and(|s| s.success());
    if !chattr("+i") {
        eprintln!("skipped: immutable files cannot be made here");
        return;
    }
    let bad = planned(&mut mk(dir.path()), &files(&[file("/etc/fixed")]), &DisruptionPolicy::default());
    chattr("-i");
    let bad = bad.unwrap_err();
    assert!(bad[0].why.contains("immutable") && bad[0].remedy.contains("chattr"), "{}", bad[0]);
}

/// A mount that is removed when it is dropped. Needs root.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(args: &[&str], at: &Path) -> Self {
        let done = Command::new("mount").args(args).arg(at).status().unwrap();
        assert!(done.success(), "mount {args:?} {}", at.display());
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).status();
        if !done.is_ok_and(|s| s.success()) {
            eprintln!("{} is left mounted", self.0.display());
        }
    }
}

#[test]
fn obstacles_to_writing_are_found_before_anything_changes() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let inside = |path: &str| dir.path().join(path);
    fs::create_dir_all(inside("usr/share")).unwrap();
    fs::write(inside("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    fs::write(inside("etc/hosts.of-the-runtime"), "127.0.0.1 localhost\n").unwrap();
    let _usr = Mounted::new(&["-t", "tmpfs", "-o", "ro", "none"], &inside("usr"));
    let runtime = inside("etc/hosts.of-the-runtime");
    let _hosts = Mounted::new(&["--bind", &runtime.display().to_string()], &inside("etc/hosts"));
    for (path, why, remedy) in [
        ("/usr/share/doc/x", "the file system that holds /usr is read-only", "remount that one writable"),
        ("/etc/hosts", "another file is mounted on it", "unmount it"),
    ] {
        let bad = refused(dir.path(), &files(&[file(path)]));
        assert_eq!((bad.path.as_str(), bad.scope), (path, Scope::Machine));
        assert!(bad.why.contains(why) && bad.remedy.contains(remedy), "{bad}");
    }
    // A folder that is a mount point of its own gets its mode.
    fs::create_dir_all(inside("var/data")).unwrap();
    let _data = Mounted::new(&["-t", "tmpfs", "-o", "mode=0755", "none"], &inside("var/data"));
    let dirs = MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"},
            "storage": {"directories": [{"path": "/var/data", "mode": 0o700}]}})),
        ..MachineConfigSpec::default()
    };
    let mut host = mk(dir.path());
    let plan = planned(&mut host, &dirs, &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(fs::metadata(inside("var/data")).unwrap().permissions().mode() & 0o7777, 0o700);
    // A path that is already as the config wants it needs no write.
    let same = json!({"path": "/etc/hosts", "mode": 0o644,
        "contents": {"source": "data:,127.0.0.1%20localhost%0A"}});
    let plan =
        planned(&mut mk(dir.path()), &files(std::slice::from_ref(&same)), &DisruptionPolicy::default())
            .unwrap();
    let touched: Vec<_> = plan.steps.iter().flat_map(|s| s.paths()).filter(|p| *p == "/etc/hosts").collect();
    assert!(touched.is_empty(), "{plan}");
}

#[test]
fn an_immutable_folder_is_refused_before_anything_changes() {
    // Memory file systems have no such attribute.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("etc/fixed");
    fs::create_dir_all(&path).unwrap();
    let chattr = |flag: &str| Command::new("chattr").arg(flag).arg(&path).status().is_ok_and(|s| s.success());
    if !chattr("+i") {
        eprintln!("skipped: immutable folders cannot be made here");
        return;
    }
    let bad = planned(&mut mk(dir.path()), &files(&[file("/etc/fixed/x")]), &DisruptionPolicy::default());
    chattr("-i");
    let bad = bad.unwrap_err();
    assert!(bad[0].why.contains("/etc/fixed is immutable"), "{}", bad[0]);
    assert!(bad[0].remedy.contains("chattr -i -a /etc/fixed"), "{}", bad[0]);
}

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
fn damaged_journals_are_kept_three_at_a_time() {
    let dir = mk_host_tree();
    let journal = dir.path().join("var/lib/machine-config-daemon/journal");
    fs::create_dir_all(&journal).unwrap();
    for second in 1..=5 {
        for kind in ["json", "data"] {
            fs::write(journal.join(format!("damaged-{second}.{kind}")), "x").unwrap();
        }
    }
    interrupted(dir.path());
    // One that cannot be removed must not block anything, least of all the undo of an interrupted change.
    let blocked = journal.join("damaged-0.json");
    fs::create_dir(&blocked).unwrap();
    fs::write(blocked.join("x"), "x").unwrap();
    assert!(matches!(mk(dir.path()).recover().unwrap(), Recovery::Undone { .. }));
    fs::remove_dir_all(&blocked).unwrap();
    mk(dir.path()).recover().unwrap();
    let mut left: Vec<_> =
        fs::read_dir(&journal).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    let want: Vec<_> = (3..=5).flat_map(|s| ["data", "json"].map(|k| format!("damaged-{s}.{k}"))).collect();
    assert_eq!(left, want);
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
fn changes_that_no_running_machine_can_follow_are_refused_with_their_path() {
    let dir = mk_host_tree();
    let config = |section: Value| {
        let mut config = json!({"ignition": {"version": "3.5.0"}});
        config.as_object_mut().unwrap().extend(section.as_object().unwrap().clone());
        MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() }
    };
    let user = |user: Value| config(json!({"passwd": {"users": [user]}}));
    let unit = |unit: Value| config(json!({"systemd": {"units": [unit]}}));
    for (path, new) in [
        ("spec.config", config(json!({"ignition": {"version": "4.0.0"}}))),
        ("spec.config.passwd.groups", config(json!({"passwd": {"groups": [{"name": "g"}]}}))),
        ("spec.config.kernelArguments", config(json!({"kernelArguments": {"shouldExist": ["quiet"]}}))),
        (
            "spec.config.storage.luks",
            config(json!({"storage": {"luks": [{"name": "l", "device": "/dev/sdb"}]}})),
        ),
        (
            "spec.config.storage.directories[0].path",
            config(json!({"storage": {"directories": [{"path": "/var/lib/machine-config-daemon"}]}})),
        ),
        (
            "spec.config.storage.links[0].path",
            config(json!({"storage": {"links": [{"path": host::paths::CURRENT_CONFIG, "target": "/t"}]}})),
        ),
        ("spec.fips", MachineConfigSpec { fips: true, ..MachineConfigSpec::default() }),
        ("spec.config.storage.files[0].mode", files(&[json!({"path": "/etc/x", "mode": 2541})])),
        (
            "spec.config.storage.files[0].contents",
            files(&[json!({"path": "/etc/x", "contents": {"source": "https://example.com/x"}})]),
        ),
        (
            "spec.config.storage.files[0].append",
            files(&[json!({"path": "/etc/x", "append": [{"source": "data:,x"}]})]),
        ),
        ("spec.config.storage.files[0].path", files(&[file(host::paths::FORCE_FILE)])),
        ("spec.config.storage.files[0].path", files(&[file(host::paths::CURRENT_CONFIG)])),
        ("spec.config.storage.files[0].path", files(&[file(host::paths::REBOOT_PENDING)])),
        (
            "spec.config.storage.files[0].path",
            files(&[file("/var/lib/machine-config-daemon/journal/undo.data")]),
        ),
        ("spec.config.storage.files[0].path", files(&[file(&host::paths::original("/etc/issue.net"))])),
        ("spec.config.passwd.users[0]", user(json!({"name": "bob", "sshAuthorizedKeys": ["k"]}))),
        (
            "spec.config.passwd.users[0]",
            user(json!({"name": "core", "homeDir": "/x", "sshAuthorizedKeys": ["k"]})),
        ),
        ("spec.config.passwd.users[0]", user(json!({"name": "core"}))),
        (
            "spec.config.systemd.units[0]",
            unit(json!({"name": "crio.service", "mask": true, "enabled": true})),
        ),
        (
            "spec.config.systemd.units[0]",
            unit(json!({"name": "w@.service", "enabled": true,
                "contents": "[Service]\nExecStart=/x\n[Install]\nWantedBy=a.target\n"})),
        ),
    ] {
        assert_eq!(refused(dir.path(), &new).path, path, "{:?}", new.config);
    }
}

fn restart_policy(service: &str) -> DisruptionPolicy {
    DisruptionPolicy::default().merge(&DisruptionPolicy {
        files: vec![FilePolicy { path: "/etc/x".to_owned(), actions: vec![PolicyAction::restart(service)] }],
        ..DisruptionPolicy::empty()
    })
}

#[test]
fn a_service_that_fails_to_restart_undoes_the_whole_change() {
    let dir = mk_host_tree();
    let before = tree(dir.path(), &["/"], &SKIP);
    let mut host = mk(dir.path());
    FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
    let plan = planned(&mut host, &files(&[file("/etc/x")]), &restart_policy("chronyd.service")).unwrap();
    let error = host.apply(&plan).unwrap_err();
    assert!(matches!(&error, Error::Undone { step, .. } if step == "restart chronyd.service"), "{error}");
    assert!(error.disturbed_services());
    assert_eq!(tree(dir.path(), &["/"], &SKIP), before);
    assert_eq!(host.recover().unwrap(), Recovery::Nothing);
    // Once the cause is gone, the same plan succeeds.
    FakeSystemd::new(host.root()).set_failing("chronyd.service", false).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(host.current_config().unwrap().unwrap().name, "new");
}

#[test]
fn a_missing_service_is_an_error_unless_a_default_policy_names_it() {
    let dir = mk_host_tree();
    let bad = planned(&mut mk(dir.path()), &files(&[file("/etc/x")]), &restart_policy("nowhere.service"));
    let bad = bad.unwrap_err();
    assert_eq!(bad[0].path, "nowhere.service");
    assert!(bad[0].why.contains("/etc/x"), "{}", bad[0]);

    fs::remove_file(dir.path().join("etc/systemd/system/crio.service")).unwrap();
    let policy_json = files(&[file("/etc/containers/policy.json")]);
    let plan = planned(&mut mk(dir.path()), &policy_json, &DisruptionPolicy::default()).unwrap();
    assert!(plan.disruption.is_none(), "{}", plan.disruption);
    assert!(plan.notes.iter().any(|n| n.contains("crio.service is not on this host")), "{:?}", plan.notes);
}

#[test]
fn a_change_that_needs_more_space_than_is_free_is_refused_before_it_begins() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "none"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|s| s.success()) {
        eprintln!("skipped: a small file system cannot be mounted here");
        return;
    }
    fs::create_dir(dir.path().join("etc")).unwrap();
    // Where the lock is, on every host.
    fs::create_dir_all(dir.path().join("var/lib")).unwrap();
    let text = "x".repeat(400 * 1024);
    let new = files(&[json!({"path": "/etc/x", "contents": {"source": format!("data:,{text}")}})]);
    let mut host = mk(dir.path());
    let plan = planned(&mut host, &new, &DisruptionPolicy::default()).unwrap();
    let foreseen = host.check_room(&plan).unwrap_err();
    let error = host.apply(&plan).unwrap_err();
    assert_eq!(foreseen.to_string(), error.to_string());
    let left = tree(dir.path(), &["/"], &SKIP);
    drop(host);
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
    assert!(matches!(&error, Error::NoSpace { need, free, .. } if need > free), "{error}");
    assert!(error.to_string().starts_with("/etc/"), "the path is not named: {error}");
    assert_eq!(left.keys().collect::<Vec<_>>(), ["/etc", "/var", "/var/lib"], "{left:?}");
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
