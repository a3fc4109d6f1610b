//! Spec 2: how it is read into the model of spec 3, what is refused, and how it is written.
//!
//! Not here: the steps between versions of spec 3 (see `steps`), and how a version is recognised (see `versions`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "helpers of tests")]

use ignition::{Version, parse_value, translate, validate_as};
use serde_json::{Value, json};

#[test]
fn spec_2_reads_into_the_model() {
    let v2 = json!({"ignition": {"version": "2.2.0"}, "storage": {
        "files": [
            {"filesystem": "root", "path": "/etc/a", "mode": 420, "contents": {"source": "data:,a"}},
            {"filesystem": "root", "path": "/etc/b", "mode": 384, "contents": {"source": "data:,b", "compression": "gzip"},
             "user": {"name": "root"}, "group": {"id": 0}},
            {"filesystem": "root", "path": "/etc/app", "mode": 420, "append": true, "contents": {"source": "data:,x"}},
            {"filesystem": "root", "path": "/etc/a", "mode": 384, "contents": {"source": ""}}],
        "directories": [{"filesystem": "root", "path": "/d", "mode": 493}],
        "links": [{"filesystem": "root", "path": "/l", "target": "/etc/a"}]},
        "systemd": {"units": [
            {"name": "a.service", "enabled": true, "contents": "[Unit]\nDescription=a\n",
             "dropins": [{"name": "x.conf", "contents": "[Service]\nNice=1\n"}]},
            {"name": "b.service", "enable": true},
            {"name": "c.service", "mask": true},
            {"name": "d.service", "enabled": false}]},
        "passwd": {"users": [{"name": "core", "passwordHash": "", "sshAuthorizedKeys": ["k1", "k2"]}]}});
    let parsed = parse_value(&v2).unwrap();
    let want: Value = serde_json::from_str(
        r#"{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"core","passwordHash":"","sshAuthorizedKeys":["k1","k2"]}]},"storage":{"directories":[{"path":"/d","mode":493}],"files":[{"overwrite":true,"path":"/etc/a","contents":{"source":""},"mode":384},{"overwrite":false,"path":"/etc/app","append":[{"source":"data:,x"}],"mode":420},{"group":{"id":0},"overwrite":true,"path":"/etc/b","user":{"name":"root"},"contents":{"compression":"gzip","source":"data:,b"},"mode":384}],"links":[{"path":"/l","target":"/etc/a"}]},"systemd":{"units":[{"enabled":false,"name":"d.service"},{"mask":true,"name":"c.service"},{"enabled":true,"name":"b.service"},{"contents":"[Unit]\nDescription=a\n","dropins":[{"contents":"[Service]\nNice=1\n","name":"x.conf"}],"enabled":true,"name":"a.service"}]}}"#,
    )
    .unwrap();
    assert_eq!(parsed.config.to_value().unwrap(), want);
    assert_eq!((parsed.version, parsed.warnings.len()), (Version::V2_2, 0));
}

#[test]
fn duplicates_of_spec_2_fold_into_the_last() {
    let drop = |name: &str, text: &str| json!({"name": name, "contents": text});
    let v2 = json!({"ignition": {"version": "2.2.0"}, "systemd": {"units": [
        {"name": "u.service", "dropins": [drop("one.conf", "old")]},
        {"name": "u.service", "dropins": [drop("one.conf", "new")]},
        {"name": "u.service", "dropins": [drop("two.conf", "new")]}]},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a", "b"]}, {"name": "core", "sshAuthorizedKeys": ["b", "c"]}]}});
    let config = parse_value(&v2).unwrap().config;
    let dropins: Vec<_> =
        config.systemd.units[0].dropins.iter().map(|d| (d.name.as_str(), d.contents.as_deref())).collect();
    assert_eq!(dropins, [("two.conf", Some("new")), ("one.conf", Some("new"))]);
    assert_eq!(config.passwd.users[0].ssh_authorized_keys, ["b", "c", "a"]);
    assert_eq!(config.passwd.users.len(), 1);
}

#[test]
fn what_spec_3_cannot_express_of_spec_2_is_refused_with_its_path() {
    let rows = [
        (json!({"storage": {"files": [{"path": "/a"}]}}), "storage.files[0].filesystem"),
        (json!({"networkd": {"units": [{"name": "a.network"}]}}), "networkd.units"),
        (
            json!({"storage": {"files": [{"filesystem": "data", "path": "/a"}]}}),
            "storage.files[0].filesystem",
        ),
        (
            json!({"storage": {"filesystems": [{"name": "x", "mount": {"device": "/dev/a"}}]}}),
            "storage.filesystems[0]",
        ),
        (json!({"passwd": {"users": [{"name": "core"}, {"name": "bob"}]}}), "passwd.users[1].name"),
        (json!({"passwd": {"users": [{"name": "core", "create": {"uid": 1}}]}}), "passwd.users[0].create"),
        (
            json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "size": 100}]}]}}),
            "storage.disks[0].partitions[0].size",
        ),
    ];
    for (mut v2, path) in rows {
        v2["ignition"]["version"] = json!("2.2.0");
        let e = parse_value(&v2).unwrap_err().to_string();
        assert!(e.starts_with(&format!("{path}: ")), "{e}");
    }
}

#[test]
fn spec_2_is_written_with_its_own_defaults() {
    let v3 = json!({"ignition": {"version": "3.5.0"}, "storage": {
        "filesystems": [{"device": "/dev/a", "format": "xfs", "path": "/var"}, {"device": "/dev/b", "format": "swap"}],
        "files": [{"path": "/var/lib/x", "contents": {"source": "data:,x"}, "append": [{"source": "data:,y"}]},
                  {"path": "/various", "overwrite": true, "contents": {"source": "data:,v"}},
                  {"path": "/etc/only", "append": [{"source": "data:,z"}]}],
        "directories": [{"path": "/d"}, {"path": "/e", "overwrite": true}],
        "links": [{"path": "/l", "target": "/d"}, {"path": "/m", "target": "/d", "overwrite": false}]},
        "systemd": {"units": [{"name": "a.service", "enabled": true, "mask": false}]}});
    let v2 = translate(&parse_value(&v3).unwrap().config, Version::V2_2).unwrap();
    assert_eq!(
        v2,
        json!({"ignition": {"version": "2.2.0"}, "storage": {
            "filesystems": [{"name": "/var", "mount": {"device": "/dev/a", "format": "xfs"}},
                            {"name": "1", "mount": {"device": "/dev/b", "format": "swap"}}],
            "files": [
                {"filesystem": "/var", "path": "/lib/x", "mode": 420, "overwrite": false, "contents": {"source": "data:,x"}},
                {"filesystem": "/var", "path": "/lib/x", "append": true, "contents": {"source": "data:,y"}},
                {"filesystem": "root", "path": "/various", "mode": 420, "overwrite": true, "contents": {"source": "data:,v"}},
                {"filesystem": "root", "path": "/etc/only", "append": true, "contents": {"source": "data:,z"}}],
            "directories": [{"filesystem": "root", "path": "/d", "mode": 493},
                            {"filesystem": "root", "path": "/e", "mode": 493, "overwrite": true}],
            "links": [{"filesystem": "root", "path": "/l", "target": "/d"},
                      {"filesystem": "root", "path": "/m", "target": "/d", "overwrite": false}]},
            "systemd": {"units": [{"name": "a.service", "enabled": true}]}})
    );
}

#[test]
fn what_spec_2_would_lose_is_refused_with_its_path() {
    let rows = [
        (json!({"storage": {"files": [{"path": "/a", "mode": 420}]}}), "storage.files[0].contents"),
        (
            json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "shouldExist": false}]}]}}),
            "storage.disks[0].partitions[0].shouldExist",
        ),
    ];
    for (mut v, path) in rows {
        v["ignition"]["version"] = json!("3.5.0");
        let e = translate(&parse_value(&v).unwrap().config, Version::V2_2).unwrap_err();
        assert_eq!(e.places.iter().map(|p| p.path.as_str()).collect::<Vec<_>>(), [path]);
    }
}
/// A list of the storage section, one entry of it, and what spec 2 must contain: a field with its value, or the path
/// that is refused.
type Written = (&'static str, Value, Result<(&'static str, Value), &'static str>);

/// The translation from 3.0 to 2.x.
#[test]
fn spec_2_output_has_the_effect_of_the_spec_3_input() {
    let data = || json!({"source": "data:,x"});
    let var = json!([{"device": "/dev/a", "format": "xfs", "path": "/var"}]);
    let rows: [Written; 21] = [
        // Without a mode, spec 3 means 0644 and 0755; spec 2 would use 0000.
        ("files", json!({"path": "/a", "contents": data()}), Ok(("mode", json!(0o644)))),
        ("files", json!({"path": "/a", "mode": 0, "contents": data()}), Ok(("mode", json!(0)))),
        ("directories", json!({"path": "/d"}), Ok(("mode", json!(0o755)))),
        // A file that is appended to keeps its mode, and need not exist beforehand.
        ("files", json!({"path": "/a", "append": [data()]}), Ok(("mode", Value::Null))),
        ("files", json!({"path": "/a", "append": [data()]}), Ok(("overwrite", Value::Null))),
        ("files", json!({"path": "/a", "append": [data()]}), Ok(("append", json!(true)))),
        // In spec 2, files overwrite by default.
        ("files", json!({"path": "/a", "contents": data()}), Ok(("overwrite", json!(false)))),
        ("files", json!({"path": "/a"}), Err("storage.files[0].contents")),
        // A file below the mount point of a file system: spec 2 names the file system, and the path within it.
        ("files", json!({"path": "/var/a", "contents": data()}), Ok(("filesystem", json!("/var")))),
        ("files", json!({"path": "/var/a", "contents": data()}), Ok(("path", json!("/a")))),
        ("directories", json!({"path": "/var/d"}), Ok(("filesystem", json!("/var")))),
        ("links", json!({"path": "/var/l", "target": "/var/t"}), Ok(("target", json!("/var/t")))),
        ("links", json!({"path": "/var/l", "target": "/var/t", "hard": true}), Ok(("target", json!("/t")))),
        ("links", json!({"path": "/var/l", "target": "/t", "hard": true}), Err("storage.links[0].target")),
        ("links", json!({"path": "/l", "target": "t", "hard": true}), Err("storage.links[0].target")),
        ("links", json!({"path": "/l", "target": "t"}), Ok(("target", json!("t")))),
        // Spec 2 would give missing parents the directory's own mode and owner.
        ("directories", json!({"path": "/opt/a/b", "mode": 0o700}), Err("storage.directories[0]")),
        ("directories", json!({"path": "/opt/a/b", "user": {"id": 7}}), Err("storage.directories[0]")),
        (
            "directories",
            json!({"path": "/opt/a/b", "user": {"name": "root"}}),
            Ok(("path", json!("/opt/a/b"))),
        ),
        ("directories", json!({"path": "/etc/b", "mode": 0o700}), Ok(("mode", json!(0o700)))),
        ("filesystems", json!({"device": "/dev/b"}), Err("storage.filesystems[0].format")),
    ];
    for (list, entry, want) in rows {
        let mut config = json!({"ignition": {"version": "3.5.0"}, "storage": {list: [entry]}});
        if entry.to_string().contains("/var") {
            config["storage"]["filesystems"] = var.clone();
        }
        let written = translate(&parse_value(&config).unwrap().config, Version::V2_2);
        match (written, want) {
            (Ok(value), Ok((field, want))) => {
                assert_eq!(value["storage"][list][0][field], want, "{entry}: {value}");
            }
            (Err(e), Err(path)) => assert_eq!(e.places[0].path, path, "{entry}: {e}"),
            (got, want) => panic!("{entry}: want {want:?}, got {got:?}"),
        }
    }
    let twice = json!({"ignition": {"version": "3.5.0"}, "storage": {"filesystems": [
        {"device": "/dev/a", "format": "xfs", "path": "/var"}, {"device": "/dev/b", "format": "xfs", "path": "/var"}]}});
    let refused = translate(&parse_value(&twice).unwrap().config, Version::V2_2).unwrap_err();
    assert_eq!(refused.places[0].path, "storage.filesystems[1].path");
}

/// The translation from 2.x to 3.0.
#[test]
fn spec_2_with_another_meaning_in_spec_3_is_warned_of_or_refused() {
    let file = |rest: Value| {
        let mut f = json!({"filesystem": "root", "path": "/a", "contents": {"source": "data:,x"}});
        f.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        f
    };
    let told = |storage: Value| {
        let parsed = parse_value(&json!({"ignition": {"version": "2.2.0"}, "storage": storage})).unwrap();
        let paths: Vec<String> = parsed.warnings.into_iter().map(|w| w.path).collect();
        (parsed.config, paths)
    };
    let (config, paths) =
        told(json!({"files": [file(json!({})), file(json!({"path": "/b", "append": true}))]}));
    assert_eq!((config.storage.files[1].mode, paths), (None, vec!["storage.files[0].mode".to_owned()]));
    let (_, paths) = told(json!({"directories": [{"filesystem": "root", "path": "/d"}]}));
    assert_eq!(paths, ["storage.directories[0].mode"]);
    let (config, paths) =
        told(json!({"directories": [{"filesystem": "root", "path": "/d", "mode": 0o1777}]}));
    assert_eq!((config.storage.directories[0].mode, paths.len()), (Some(0o1777), 1));

    // Several entries for one path: the last one that is not appended counts, and everything appended after it.
    let data = |text: &str| json!({"source": format!("data:,{text}")});
    let (config, _) = told(json!({"files": [
        file(json!({"mode": 384, "contents": data("old")})),
        file(json!({"append": true, "contents": data("lost")})),
        file(json!({"mode": 420, "contents": data("base")})),
        file(json!({"append": true, "contents": data("one")})),
        file(json!({"append": true, "mode": 420, "contents": data("two")})),
    ]}));
    let [one] = config.storage.files.as_slice() else { panic!("{:?}", config.storage.files) };
    assert_eq!((one.mode, one.contents.source.as_deref()), (Some(420), Some("data:,base")));
    let appended: Vec<_> = one.append.iter().map(|a| a.source.as_deref().unwrap()).collect();
    assert_eq!(appended, ["data:,one", "data:,two"]);

    let refused = |storage: Value| {
        parse_value(&json!({"ignition": {"version": "2.2.0"}, "storage": storage})).unwrap_err().to_string()
    };
    let two_modes =
        json!({"files": [file(json!({"mode": 420})), file(json!({"append": true, "mode": 384}))]});
    assert!(refused(two_modes).starts_with("storage.files[1]: "));
    for (list, entry) in [
        ("files", json!({"path": "/a", "filesystem": "data"})),
        ("directories", json!({"path": "/a", "filesystem": "data"})),
        ("links", json!({"path": "/a", "target": "/b", "filesystem": "data"})),
    ] {
        let why = refused(json!({list: [entry]}));
        assert!(why.starts_with(&format!("storage.{list}[0].filesystem: ")), "{why}");
    }

    // `enabled` wins over the older `enable`.
    let unit = json!({"ignition": {"version": "2.2.0"},
        "systemd": {"units": [{"name": "a.service", "enable": true, "enabled": false}]}});
    assert_eq!(parse_value(&unit).unwrap().config.systemd.units[0].enabled, Some(false));
    let hash = format!("sha256-{}", "0".repeat(64));
    let newer = told(json!({"files": [file(json!({"mode": 420, "contents": {"source": "data:,x", "verification": {"hash": hash}}}))]})).0;
    let e = validate_as(&newer, Version::V2_2).unwrap_err();
    assert_eq!(e.0[0].path, "storage.files[0].contents.verification.hash");
}
