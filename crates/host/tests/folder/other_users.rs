//! What users of the host can do to paths that they own, before or during a change: nobody can redirect root's writes,
//! and the users' own files stay.

use std::fs;
use std::os::unix::fs::symlink;

use crate::common::BySpec as _;
use crate::common::{is_root, mk_host, mk_host_tree, tree};
use crate::planning::{SKIP, core, file, files, meanwhile, mk, planned};
use api::v1::MachineConfigSpec;
use host::{DisruptionPolicy, Error, FakeOs, FakeSystemd, PolicyAction};
use serde_json::json;

#[test]
fn a_user_who_replaces_a_folder_by_a_link_cannot_redirect_a_write() {
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
fn only_links_of_root_are_followed() {
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
fn an_undo_removes_links_of_its_own_units_only() {
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
    // What a person does while the services are restarted.
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

#[test]
fn an_undo_completes_although_a_folder_of_the_change_is_a_mount_point() {
    if !is_root() {
        return;
    }
    struct Unmount(std::path::PathBuf);
    impl Drop for Unmount {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount")
                .arg(&self.0)
                .stderr(std::process::Stdio::null())
                .status();
        }
    }
    let policy = DisruptionPolicy {
        files: vec![host::FilePolicy {
            path: "/srv".to_owned(),
            actions: vec![PolicyAction::restart("chronyd.service")],
        }],
        ..DisruptionPolicy::empty()
    };
    for (about, path, waits) in
        [("a new folder", "srv/new", false), ("one in place of a file", "srv/was-a-file", true)]
    {
        let dir = mk_host_tree();
        fs::write(dir.path().join("srv/was-a-file"), "the host's").unwrap();
        fs::write(dir.path().join("srv/other"), "the host's").unwrap();
        let before = tree(dir.path(), &["/"], &SKIP);
        let at = dir.path().join(path);
        let _unmount = Unmount(at.clone());
        let mount = {
            let at = at.clone();
            move || {
                let done = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(at).status();
                assert!(done.unwrap().success());
            }
        };
        let mut host =
            mk_host(dir.path(), &FakeOs::default(), meanwhile("restart", "chronyd.service", mount));
        FakeSystemd::new(host.root()).set_failing("chronyd.service", true).unwrap();
        let new = MachineConfigSpec {
            config: Some(json!({"ignition": {"version": "3.5.0"}, "storage": {
                "directories": [{"path": format!("/{path}"), "overwrite": true}],
                "files": [file("/srv/other")],
            }})),
            ..MachineConfigSpec::default()
        };
        let plan = planned(&mut host, &new, &policy).unwrap();
        let error = host.apply(&plan).unwrap_err();
        let other = fs::read_to_string(dir.path().join("srv/other")).unwrap();
        assert_eq!(other, "the host's", "{about}: everything else is restored");
        if !waits {
            assert!(matches!(error, Error::Undone { .. }), "{about}: {error}");
            assert!(at.is_dir() && !host.has_unfinished_change().unwrap(), "{about}");
            drop(_unmount);
            fs::remove_dir(&at).unwrap();
        } else {
            let Error::UndoIncomplete { source, .. } = &error else { panic!("{about}: {error}") };
            let text = source.to_string();
            assert!(text.contains("/srv/was-a-file") && text.contains("unmount it"), "{about}: {text}");
            drop(_unmount);
            assert!(matches!(host.recover().unwrap(), host::Recovery::Undone { .. }), "{about}");
        }
        assert_eq!(tree(dir.path(), &["/"], &SKIP), before, "{about}");
    }
}
