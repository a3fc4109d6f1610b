//! What users of the host can do to paths that are theirs, meanwhile or before: nobody leads root's writes elsewhere, and
//! what is theirs stays.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
#[path = "common/planning.rs"]
mod planning;

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use api::v1::MachineConfigSpec;
use common::{is_root, mk_host, mk_host_tree, tree};
use host::{DisruptionPolicy, Error, FakeOs, FakeSystemd, Found, PolicyAction, Root};
use planning::{SKIP, file, files, mk, planned};
use serde_json::json;

#[test]
fn a_keys_folder_that_is_not_cores_own_is_replaced_and_comes_back_when_undone() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let ssh = dir.path().join("home/core/.ssh");
    fs::create_dir(&ssh).unwrap();
    fs::write(ssh.join("config"), "root's").unwrap();
    let before = tree(dir.path(), &["/"], &SKIP);
    let new = MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA x"]}]}})),
        ..MachineConfigSpec::default()
    };
    let policy = DisruptionPolicy {
        sshkey: host::KeyPolicy { actions: vec![PolicyAction::restart("chronyd.service")] },
        ..DisruptionPolicy::default()
    };
    let mut host = mk(dir.path());
    FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
    let plan = planned(&mut host, &new, &policy).unwrap();
    assert!(host.apply(&plan).is_err());
    assert_eq!(tree(dir.path(), &["/"], &SKIP), before);
    FakeSystemd::new(host.root()).set_failing("chronyd.service", false).unwrap();
    host.apply(&plan).unwrap();
    let root: &Root = host.root();
    assert!(matches!(root.found("/home/core/.ssh/config").unwrap(), Found::Absent));
    assert!(matches!(
        root.found("/home/core/.ssh").unwrap(),
        Found::Dir { mode: 0o700, uid: 1000, gid: 1000 }
    ));
    let names = root.list("/home/core").unwrap();
    assert_eq!(names, [".ssh"], "something is left beside it");
}

fn core(keys: &[&str], hash: Option<&str>) -> MachineConfigSpec {
    let mut user = json!({"name": "core", "sshAuthorizedKeys": keys});
    if let Some(hash) = hash {
        user["passwordHash"] = json!(hash);
    }
    MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "passwd": {"users": [user]}})),
        ..MachineConfigSpec::default()
    }
}

/// Does something at the first call of a kind on a path.
struct Meanwhile<F> {
    call: &'static str,
    on: &'static str,
    then: std::sync::Mutex<Option<F>>,
}

impl<F> std::fmt::Debug for Meanwhile<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.on)
    }
}

impl<F: FnOnce() + Send> host::fault::Faults for Meanwhile<F> {
    fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
        if p.before
            && p.call == self.call
            && p.on == self.on
            && let Some(then) = self.then.lock().unwrap().take()
        {
            then();
        }
        Ok(())
    }
}

fn meanwhile<F: FnOnce() + Send + 'static>(
    call: &'static str,
    on: &'static str,
    then: F,
) -> Arc<dyn host::fault::Faults> {
    Arc::new(Meanwhile { call, on, then: std::sync::Mutex::new(Some(then)) })
}

#[test]
fn a_user_who_swaps_a_folder_for_a_link_leads_nobody_out_of_it() {
    if !is_root() {
        return;
    }
    let keys = "/home/core/.ssh/authorized_keys.d";
    for (call, on) in [
        ("set mode and owner of the folder", "/home/core/.ssh/authorized_keys.d"),
        ("rename", "/var/lib/machine-config-daemon/journal/begin.json"),
        ("create a temporary file for", "/var/lib/machine-config-daemon/journal/begin.json"),
    ] {
        let dir = mk_host_tree();
        let at = dir.path().to_owned();
        fs::create_dir(at.join("etc/target")).unwrap();
        let swap = move || {
            let folder = at.join(keys.trim_start_matches('/'));
            let _ = fs::remove_dir_all(&folder);
            if folder.parent().unwrap().exists() {
                symlink("/etc/target", &folder).unwrap();
                std::os::unix::fs::lchown(&folder, Some(1000), Some(1000)).unwrap();
            }
        };
        let mut host = mk_host(dir.path(), &FakeOs::default(), meanwhile(call, on, swap));
        let plan = planned(&mut host, &core(&["ssh-ed25519 AAAA x"], None), &DisruptionPolicy::default());
        let done = host.apply(&plan.unwrap());
        assert_eq!(fs::read_dir(dir.path().join("etc/target")).unwrap().count(), 0, "{call}: {done:?}");
    }
}

#[test]
fn links_of_other_users_are_not_followed_and_roots_own_are() {
    if !is_root() {
        return;
    }
    let dir = mk_host_tree();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir(at("srv/real")).unwrap();
    symlink("real/../real", at("srv/relative")).unwrap();
    symlink("/srv/relative", at("srv/absolute")).unwrap();
    symlink("loop", at("srv/loop")).unwrap();
    let mut host = mk(dir.path());
    let plan = planned(&mut host, &files(&[file("/srv/absolute/x")]), &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    assert_eq!(fs::read(at("srv/real/x")).unwrap(), b"secret");
    std::os::unix::fs::lchown(at("srv/relative"), Some(1000), Some(1000)).unwrap();
    let new = files(&[file("/srv/absolute/y")]);
    let error = mk(dir.path()).probe(&MachineConfigSpec::default(), &new).unwrap_err();
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(
        text.contains("/srv/absolute/y") && text.contains("relative is a link that belongs to user 1000"),
        "{text}"
    );
    assert!(text.contains("chown -h"), "{text}");
    let error =
        mk(dir.path()).probe(&MachineConfigSpec::default(), &files(&[file("/srv/loop/y")])).unwrap_err();
    assert!(error.to_string().contains("remove the looping link"), "{error}");
}

#[test]
fn a_password_is_taken_back_alone_and_somebody_elses_is_left() {
    if !is_root() {
        return;
    }
    let policy = DisruptionPolicy {
        sshkey: host::KeyPolicy { actions: vec![PolicyAction::restart("chronyd.service")] },
        ..DisruptionPolicy::default()
    };
    let other = "bob:$6$bob:20001:0:99999:7:::\n";
    for (about, meanwhile_core) in [("another user is added", None), ("core's is changed", Some("$6$new"))] {
        let dir = mk_host_tree();
        let shadow = dir.path().join("etc/shadow");
        let before = fs::read_to_string(&shadow).unwrap();
        let at = shadow.clone();
        let change = move || {
            let mut text = fs::read_to_string(&at).unwrap() + other;
            if let Some(hash) = meanwhile_core {
                text = text.replace("$6$ours", hash);
            }
            fs::write(&at, text).unwrap();
        };
        let faults = meanwhile("restart", "chronyd.service", change);
        let mut host = mk_host(dir.path(), &FakeOs::default(), faults);
        FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
        let plan = planned(&mut host, &core(&["k"], Some("$6$ours")), &policy).unwrap();
        assert!(matches!(host.apply(&plan).unwrap_err(), Error::Undone { .. }), "{about}");
        let now = fs::read_to_string(&shadow).unwrap();
        assert!(now.ends_with(other), "{about}: {now}");
        match meanwhile_core {
            None => assert_eq!(now, before.clone() + other),
            Some(hash) => assert!(now.contains(&format!("core:{hash}:")), "{now}"),
        }
    }
}

#[test]
fn an_undo_takes_back_links_of_its_own_units_and_leaves_those_of_others() {
    let unit = |also: &str| {
        format!(
            "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\nAlias=ours-too.service\n{also}"
        )
    };
    let new = MachineConfigSpec {
        config: Some(json!({"ignition": {"version": "3.5.0"}, "systemd": {"units": [
            {"name": "ours.service", "enabled": true, "contents": unit("Also=helper.service\n")},
            {"name": "getty@.service", "enabled": false},
            {"name": "vendor.service", "enabled": true},
        ]}})),
        ..MachineConfigSpec::default()
    };
    let policy = DisruptionPolicy {
        units: ["ours.service", "getty@.service", "vendor.service"]
            .map(|name| host::UnitPolicy {
                name: name.to_owned(),
                actions: vec![PolicyAction::restart("chronyd.service")],
            })
            .to_vec(),
        ..DisruptionPolicy::empty()
    };
    let dir = mk_host_tree();
    let etc = dir.path().join("etc/systemd/system");
    fs::write(dir.path().join("usr/lib/systemd/system/helper.service"), unit("")).unwrap();
    symlink("/usr/lib/systemd/system/graphical.target", etc.join("default.target")).unwrap();
    let before = tree(dir.path(), &["/"], &SKIP);
    let wants = etc.join("multi-user.target.wants");
    let at = etc;
    // What a person does while the services are told.
    let person = move || {
        assert!(
            at.join("ours-too.service").is_symlink()
                && at.join("multi-user.target.wants/helper.service").is_symlink()
        );
        assert!(!at.join("getty.target.wants/getty@tty1.service").is_symlink());
        symlink("/etc/systemd/system/theirs.service", at.join("multi-user.target.wants/theirs.service"))
            .unwrap();
        fs::create_dir(at.join("sockets.target.wants")).unwrap();
        symlink("/lib/systemd/system/theirs.socket", at.join("sockets.target.wants/theirs.socket")).unwrap();
        fs::remove_file(at.join("multi-user.target.wants/kubelet.service")).unwrap();
        symlink("/dev/null", at.join("masked.service")).unwrap();
        fs::remove_file(at.join("default.target")).unwrap();
        symlink("/usr/lib/systemd/system/multi-user.target", at.join("default.target")).unwrap();
    };
    let mut host = mk_host(dir.path(), &FakeOs::default(), meanwhile("restart", "chronyd.service", person));
    FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
    let plan = planned(&mut host, &new, &policy).unwrap();
    assert!(matches!(host.apply(&plan).unwrap_err(), Error::Undone { .. }));
    let mut want = before;
    want.remove("/etc/systemd/system/multi-user.target.wants/kubelet.service").unwrap();
    let links = [
        ("multi-user.target.wants/theirs.service", "/etc/systemd/system/theirs.service"),
        ("sockets.target.wants/theirs.socket", "/lib/systemd/system/theirs.socket"),
        ("masked.service", "/dev/null"),
        ("default.target", "/usr/lib/systemd/system/multi-user.target"),
    ];
    for (path, target) in links {
        want.insert(format!("/etc/systemd/system/{path}"), format!("link {target}"));
    }
    let mut now = tree(dir.path(), &["/"], &SKIP);
    assert!(now.remove("/etc/systemd/system/sockets.target.wants").is_some());
    assert_eq!(now, want);
    assert!(!wants.join("ours.service").is_symlink() && !wants.join("vendor.service").is_symlink());
}
