//! Tests of `rules`.

use super::*;
use serde_json::{Value, json};

fn config(sections: &Value) -> Config {
    let mut value = sections.clone();
    value["ignition"] = json!({"version": "3.5.0"});
    ignition::parse_value(&value).unwrap().config
}

fn told(old: Option<&Value>, new: &Value) -> Vec<String> {
    let (old, new) = (old.map(config), config(new));
    let new = ComparedConfig { config: &new, fips: false };
    let old = old.as_ref().map(|config| ComparedConfig { config, fips: false });
    broken(old, new, Overrides::default()).iter().map(|b| b.path(new)).collect()
}

/// What no running machine can do is reported with and without a previous config.
#[test]
fn what_no_machine_can_apply_is_reported_whatever_the_old_config_was() {
    let file =
        |path: &str| json!({"storage": {"files": [{"path": path, "contents": {"source": "data:,x"}}]}});
    let unit = |unit: Value| json!({"systemd": {"units": [unit]}});
    let user = |user: Value| json!({"passwd": {"users": [user]}});
    let rows = [
        (file("/etc/motd"), None),
        (file("/run/machine-config-daemon-force"), Some("storage.files[0].path")),
        (file("/run/machine-config-daemon-staged"), Some("storage.files[0].path")),
        (file("/run/machine-config-daemon-boot"), Some("storage.files[0].path")),
        (file("/var/run/machine-config-daemon-soft-reboot"), Some("storage.files[0].path")),
        (file("/var/run/machine-config-daemon-force"), Some("storage.files[0].path")),
        (file("/run/machine-config-daemon"), None),
        (file("/run/somebody/machine-config-daemon-boot"), None),
        (file("/etc/machine-config-daemon/currentconfig"), Some("storage.files[0].path")),
        (file("/etc/machine-config-daemon/orig/etc/x.mcdorig"), Some("storage.files[0].path")),
        (file("/etc/machine-config-daemon/node-annotations.json"), None),
        (file("/etc/machine-config-daemon/originals"), None),
        (file("/var/lib/machine-config-daemon"), Some("storage.files[0].path")),
        (file("/var/lib/machine-config-daemon/journal/begin.json"), Some("storage.files[0].path")),
        (
            json!({"storage": {"files": [{"path": "/f", "append": [{"source": "data:,x"}]}]}}),
            Some("storage.files[0].append"),
        ),
        (json!({"storage": {"directories": [{"path": "/d"}]}}), None),
        (json!({"storage": {"links": [{"path": "/l", "target": "/t"}]}}), None),
        (
            json!({"storage": {"directories": [{"path": "/var/lib/machine-config-daemon/x"}]}}),
            Some("storage.directories[0].path"),
        ),
        (
            json!({"storage": {"links": [{"path": "/run/machine-config-daemon-force", "target": "/t"}]}}),
            Some("storage.links[0].path"),
        ),
        (
            json!({"storage": {"links": [{"path": "/run/machine-config-daemon-packages.json", "target": "/t"}]}}),
            Some("storage.links[0].path"),
        ),
        (
            json!({"storage": {"links": [{"path": "/l", "hard": true, "target": "/run/machine-config-daemon-origin"}]}}),
            Some("storage.links[0].target"),
        ),
        (
            json!({"storage": {"links": [{"path": "/l", "hard": true, "target": "/var/lib/machine-config-daemon/x"}]}}),
            Some("storage.links[0].target"),
        ),
        (json!({"storage": {"directories": [{"path": "/etc/a"}], "files": [{"path": "/etc/a/b"}]}}), None),
        (unit(json!({"name": "a.service", "mask": true})), None),
        (unit(json!({"name": "a.service", "mask": true, "enabled": false})), None),
        (unit(json!({"name": "a.service", "mask": true, "enabled": true})), Some("systemd.units[0]")),
        (user(json!({"name": "core", "sshAuthorizedKeys": ["k"]})), None),
        (user(json!({"name": "core", "passwordHash": "$6$a$b"})), None),
        (user(json!({"name": "core", "passwordHash": "a:b"})), Some("passwd.users[0]")),
        (user(json!({"name": "core"})), Some("passwd.users[0]")),
        (user(json!({"name": "core", "uid": 1, "sshAuthorizedKeys": ["k"]})), Some("passwd.users[0]")),
        (user(json!({"name": "bob", "sshAuthorizedKeys": ["k"]})), Some("passwd.users[0]")),
        (
            json!({"storage": {"files": [{"path": "/etc/a/b"}, {"path": "/etc/a"}]}}),
            Some("storage.files[0].path"),
        ),
        (
            json!({"storage": {"files": [{"path": "/etc/systemd/system/a.service.d"}]},
                "systemd": {"units": [{"name": "a.service", "dropins": [{"name": "x.conf", "contents": "[Unit]\n"}]}]}}),
            Some("storage.files[0].path"),
        ),
    ];
    for (new, want) in rows {
        let want: Vec<String> = want.into_iter().map(|p| format!("spec.config.{p}")).collect();
        assert_eq!(told(None, &new), want, "{new}");
        assert_eq!(told(Some(&json!({})), &new), want, "{new}");
    }
}

#[test]
fn an_unsupported_user_of_the_old_config_is_accepted() {
    let bob = json!({"passwd": {"users": [{"name": "bob"}]}});
    assert_eq!(told(Some(&bob), &bob), [] as [String; 0]);
}

/// What only an installer can set: it cannot change, but a first config may have it, with a warning.
#[test]
fn a_change_of_what_only_an_installer_sets_is_refused() {
    let rows = [
        ("passwd.groups", json!({"passwd": {"groups": [{"name": "g"}]}}), false),
        ("kernelArguments", json!({"kernelArguments": {"shouldExist": ["a"]}}), false),
        ("storage.disks", json!({"storage": {"disks": [{"device": "/dev/a"}]}}), false),
        ("storage.filesystems", json!({"storage": {"filesystems": [{"device": "/dev/a"}]}}), false),
        (
            "storage.raid",
            json!({"storage": {"raid": [{"name": "r", "level": "raid0", "devices": ["/dev/a"]}]}}),
            false,
        ),
        ("storage.luks", json!({"storage": {"luks": [{"name": "l", "device": "/dev/a"}]}}), true),
    ];
    assert_eq!(rows.len(), FIXED.len());
    for (path, set, may_go) in rows {
        let (place, empty) = (vec![format!("spec.config.{path}")], json!({}));
        assert_eq!(told(Some(&empty), &set), place);
        assert_eq!(told(Some(&set), &set), [] as [String; 0], "{path}");
        assert_eq!(told(None, &set), [] as [String; 0], "{path}");
        assert_eq!(told(Some(&set), &empty), if may_go { vec![] } else { place.clone() });
        let set = config(&set);
        let set = ComparedConfig { config: &set, fips: false };
        assert_eq!(at_install(set).iter().map(|b| b.path(set)).collect::<Vec<_>>(), place);
    }
}

#[test]
fn a_file_has_only_permission_bits_and_its_mode_is_told_in_octal() {
    for (mode, told) in [
        (None, None),
        (Some(0), None),
        (Some(0o777), None),
        (Some(0o1204), Some("mode 1204 of /f has bits above 0777")),
        (Some(0o4000), Some("mode 4000 of /f has bits above 0777")),
        (Some(-1), Some("mode -1 of /f has bits above 0777")),
    ] {
        let file = File { path: "/f".to_owned(), mode, ..File::default() };
        let got = special_mode_bits(&file).map(|broken| (broken.field, broken.why));
        assert_eq!(got, told.map(|why| (".mode", why.to_owned())), "{mode:?}");
    }
}

#[test]
fn data_urls_with_unescaped_characters_are_reported() {
    for (source, good) in [
        ("data:,hello%20world", true),
        ("data:text/plain;charset=utf-8;base64,aGVsbG8=", true),
        ("data:,hello world", false),
        ("data:,a#b", false),
        ("data:,\u{e9}", false),
    ] {
        let file = File {
            contents: ignition::Resource { source: Some(source.to_owned()), ..Default::default() },
            ..File::default()
        };
        assert_eq!(unescaped(&file).is_none(), good, "{source}");
    }
}
