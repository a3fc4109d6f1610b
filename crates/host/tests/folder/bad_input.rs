//! Whatever is wrong with the host or the config, the host must end in its old state, and the error must name the path
//! and the remedy.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::{is_root, mk_host_tree, tree};
use crate::planning::{SKIP, file, files, interrupted, mk, planned};
use api::v1::MachineConfigSpec;
use host::{DisruptionPolicy, Error, FakeSystemd, FilePolicy, Irreconcilable, PolicyAction, Recovery, Scope};
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
