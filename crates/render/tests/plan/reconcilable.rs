//! Which changes the pool's running machines can follow.

use super::*;

#[test]
fn what_running_machines_cannot_follow_is_refused_and_blamed() {
    let base = mk_file("00-base", json!({"path": "/etc/a", "mode": 420, "contents": {"source": "data:,a"}}));
    let rows: [(Value, Option<&str>); 14] = [
        (json!({"storage": {"disks": [{"device": "/dev/sdb", "wipeTable": true}]}}), Some("storage.disks")),
        (
            json!({"storage": {"filesystems": [{"device": "/dev/sdb", "format": "xfs"}]}}),
            Some("storage.filesystems"),
        ),
        (
            json!({"storage": {"raid": [{"name": "r", "level": "raid0", "devices": ["/dev/a"]}]}}),
            Some("storage.raid"),
        ),
        (json!({"storage": {"directories": [{"path": "/d"}]}}), None),
        (json!({"storage": {"links": [{"path": "/l", "target": "/t"}]}}), None),
        (json!({"storage": {"luks": [{"name": "l", "device": "/dev/sdb"}]}}), Some("storage.luks")),
        (
            json!({"storage": {"files": [{"path": "/f", "append": [{"source": "data:,x"}], "overwrite": false}]}}),
            Some("storage.files"),
        ),
        (
            json!({"storage": {"files": [{"path": "/run/machine-config-daemon-force", "contents": {"source": "data:,"}}]}}),
            Some("storage.files"),
        ),
        (json!({"passwd": {"groups": [{"name": "g"}]}}), Some("passwd.groups")),
        (json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]}}), None),
        (json!({"passwd": {"users": [{"name": "bob", "sshAuthorizedKeys": ["k"]}]}}), Some("passwd.users")),
        (
            json!({"passwd": {"users": [{"name": "core", "homeDir": "/h", "sshAuthorizedKeys": ["k"]}]}}),
            Some("passwd.users"),
        ),
        (json!({"passwd": {"users": [{"name": "core"}]}}), Some("passwd.users")),
        (json!({"systemd": {"units": [{"name": "a.service", "mask": true}]}}), None),
    ];
    let current = plan(std::slice::from_ref(&base)).unwrap().rendered;
    for (sections, want) in rows {
        let all = [base.clone(), mk_config("50-new", sections.clone())];
        match (plan_in(Mode::Cluster, &all, Some(&current)), want) {
            (Ok(_), None) => {}
            (Err(e), Some(path)) => {
                let text = e.to_string();
                assert_eq!(e.reason, Reason::Irreconcilable, "{text}");
                assert!(text.contains(&format!("MachineConfig 50-new: spec.config.{path}")), "{text}");
            }
            (got, want) => panic!("{sections}: want {want:?}, got {got:?}"),
        }
    }
    let kargs =
        json!({"config": {"ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": ["a"]}}});
    let e = plan_in(Mode::Cluster, &[base.clone(), mk("50-new", kargs)], Some(&current)).unwrap_err();
    assert!(e.to_string().contains("spec.config.kernelArguments"), "{e}");
    let e = plan_in(Mode::Cluster, &[base, mk("50-new", json!({"fips": true}))], Some(&current)).unwrap_err();
    assert!(e.to_string().contains("MachineConfig 50-new: spec.fips"), "{e}");
}

#[test]
fn what_no_machine_can_apply_is_refused_also_in_a_pools_first_config() {
    let file = |path: &str| json!({"storage": {"files": [{"path": path, "mode": 420, "contents": {"source": "data:,x"}}]}});
    let unit = |unit: Value| json!({"systemd": {"units": [unit]}});
    let masked = json!({"name": "a.service", "mask": true});
    let rows = [
        (
            unit(json!({"name": "a.service", "mask": true, "enabled": true})),
            "systemd.units[0]: a.service is masked",
        ),
        (file("/var/lib/machine-config-daemon/journal/x"), "storage.files[0].path: /var/lib"),
        (file("/etc/machine-config-daemon/currentconfig"), "storage.files[0].path: /etc"),
        (file("/run/machine-config-daemon-force"), "storage.files[0].path: /run"),
        (
            json!({"passwd": {"users": [{"name": "bob", "sshAuthorizedKeys": ["k"]}]}}),
            "passwd.users[0]: user \"bob\"",
        ),
        (json!({"passwd": {"users": [{"name": "core"}]}}), "passwd.users[0]: core has neither"),
        (
            json!({"storage": {"files": [{"path": "/a", "contents": {"source": "data:,two words"}}]}}),
            "storage.files[0].contents.source: /a: the data URL",
        ),
        (
            json!({"storage": {"files": [{"path": "/a", "contents": {"source": "data:,"}}, {"path": "/a/b", "contents": {"source": "data:,"}}]}}),
            "storage.files[1].path: /a/b: the config also wants a file at /a",
        ),
    ];
    // Another MachineConfig precedes it, so indices in the merged config differ from those in this one.
    let base = mk_config("00-base", {
        let mut all = file("/etc/a");
        all["systemd"] = unit(json!({"name": "z.service", "enabled": true}))["systemd"].clone();
        all
    });
    for (sections, want) in rows {
        let all = [base.clone(), mk_config("50-new", sections.clone())];
        let e = plan_in(Mode::Cluster, &all, None).unwrap_err();
        assert_eq!(e.reason, Reason::Refused, "{e}");
        assert!(e.to_string().contains(&format!("MachineConfig 50-new: spec.config.{want}")), "{want}: {e}");
        let before = plan_in(Mode::Bootstrap, &all, None).unwrap();
        assert!(
            before.warnings.iter().any(|w| w.to_string().contains(want)),
            "{want}: {:?}",
            before.warnings
        );
    }
    // One masks, another enables: both are named. If a later one removes the mask, the result is valid.
    let on = mk_config("60-on", unit(json!({"name": "a.service", "enabled": true})));
    let off = mk_config("50-off", unit(masked));
    let e = plan_in(Mode::Cluster, &[off.clone(), on.clone()], None).unwrap_err().to_string();
    assert!(
        e.contains("MachineConfigs 50-off, 60-on: spec.config.systemd.units[0]: a.service is masked"),
        "{e}"
    );
    // Both configure core; only one of them asks for something impossible.
    let core = |name: &str, user: Value| {
        let mut user = user;
        user["name"] = json!("core");
        mk_config(name, json!({"passwd": {"users": [user]}}))
    };
    let (key, home) = (
        core("50-key", json!({"sshAuthorizedKeys": ["k"]})),
        core("60-home", json!({"homeDir": "/h", "sshAuthorizedKeys": ["k"]})),
    );
    let e = plan_in(Mode::Cluster, &[key, home], None).unwrap_err().to_string();
    assert!(e.contains("MachineConfig 60-home: spec.config.passwd.users[0]: of core only"), "{e}");
    let again = mk_config("70-again", unit(json!({"name": "a.service", "mask": false})));
    plan_in(Mode::Cluster, &[off, on, again], None).unwrap();
}

#[test]
fn what_only_an_installer_sets_may_stand_in_a_first_config_with_a_warning() {
    let disks = mk_config("50-new", json!({"storage": {"disks": [{"device": "/dev/sdb"}]}}));
    let p = plan(std::slice::from_ref(&disks)).unwrap();
    assert_eq!(p.warnings.len(), 1, "{:?}", p.warnings);
    assert!(
        p.warnings[0]
            .to_string()
            .starts_with("MachineConfig 50-new: spec.config.storage.disks: it takes effect only")
    );
    let current = p.rendered;
    assert!(plan_in(Mode::Cluster, &[disks], Some(&current)).unwrap().warnings.is_empty());
}

#[test]
fn the_removal_of_the_last_key_of_core_is_warned_of() {
    let with = |name: &str, core: Value| {
        let mut core = core;
        core["name"] = json!("core");
        mk_config(name, json!({"passwd": {"users": [core]}}))
    };
    let key = with("50-a", json!({"sshAuthorizedKeys": ["ssh-ed25519 A"]}));
    let password = with("50-b", json!({"passwordHash": "$6$a$b"}));
    let (locked, other) = (with("50-c", json!({"passwordHash": "!"})), mk("60-d", json!({"fips": false})));
    let before = |all: &[&MachineConfig]| {
        plan(&all.iter().map(|mc| (*mc).clone()).collect::<Vec<_>>()).unwrap().rendered
    };
    let rows: [(MachineConfig, &[&MachineConfig], bool); 5] = [
        (before(&[&key, &other]), &[&other], true),
        (before(&[&key, &password, &other]), &[&locked, &other], true),
        (before(&[&key, &password]), &[&key], false),
        (before(&[&key]), &[&password], false),
        (before(&[&other]), &[&locked], false),
    ];
    for (current, all, told) in rows {
        let owned: Vec<MachineConfig> = all.iter().map(|mc| (*mc).clone()).collect();
        let plan = plan_in(Mode::Cluster, &owned, Some(&current)).unwrap();
        let warned = plan.warnings.iter().find(|w| w.message.contains("can log in"));
        assert_eq!(warned.is_some(), told, "{:?}", plan.warnings);
        assert!(warned.is_none_or(|w| w.object == "MachineConfigPool worker"), "{warned:?}");
    }
}

/// A pool that already has such a config from an earlier version keeps working: it gets a warning.
#[test]
fn a_config_that_is_in_force_already_is_warned_of() {
    let unit = json!({"systemd": {"units": [{"name": "a.service", "mask": true, "enabled": true}]}});
    let all = [mk_config("50-new", unit)];
    let current = plan_in(Mode::Bootstrap, &all, None).unwrap().rendered;
    assert!(plan_in(Mode::Cluster, &all, None).is_err());
    assert_eq!(plan_in(Mode::Cluster, &all, Some(&current)).unwrap().warnings.len(), 1);
}

#[test]
fn an_override_lets_a_change_of_disks_pass() {
    let base = mk("00-base", json!({}));
    let current = plan(std::slice::from_ref(&base)).unwrap().rendered;
    let new = mk_config("50-new", json!({"storage": {"disks": [{"device": "/dev/sdb"}]}}));
    let (pool, cc, versions, configs) = (pool(), controller_config(), Versions::unknown(), [&base, &new]);
    let mut inputs = Inputs::new(&pool, &configs, &cc, &versions);
    inputs.current = Some(&current);
    assert!(render::plan(&inputs).is_err());
    inputs.overrides.disks = true;
    assert!(render::plan(&inputs).is_ok());
}
