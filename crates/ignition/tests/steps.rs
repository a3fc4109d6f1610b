//! Each step from one version of the specification to the next, field by field: how a config of an older version than
//! the field is read, and what becomes of the field when the config is written in that version. The facts are those of
//! the specification's migration notes.
//!
//! Not here: how versions are recognised, and how a whole config of spec 2 is read (see `versions`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "helpers of tests")]

use ignition::{Version, parse_value, translate, validate_as};
use serde_json::{Value, json};

/// A field, or a value of a field, and the version that introduced it.
struct Step {
    since: Version,
    path: &'static str,
    config: Value,
    /// How an older version's config that contains it is read.
    up: Up,
    /// What happens to it when the config is written in an older version.
    down: Down,
}

#[derive(Debug, PartialEq)]
enum Up {
    /// The field is unknown: a warning, and the field is ignored.
    Ignored,
    /// The field is known, but this value is not: the config is invalid.
    Invalid,
    /// It has no effect in that version: a warning.
    Warned,
}

#[derive(Debug, PartialEq)]
enum Down {
    Refused,
    /// It only sets a default, so it is left out.
    LeftOut,
}

fn step(since: Version, path: &'static str, config: Value, up: Up, down: Down) -> Step {
    Step { since, path, config, up, down }
}

fn file(rest: Value) -> Value {
    let mut file = json!({"path": "/a", "mode": 420});
    file.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    json!({"storage": {"files": [file]}})
}

fn luks(rest: Value) -> Value {
    let mut luks = json!({"name": "l", "device": "/dev/a"});
    luks.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    json!({"storage": {"luks": [luks]}})
}

fn merge(rest: Value) -> Value {
    let mut source = json!({"source": "https://h/x"});
    source.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    json!({"ignition": {"config": {"merge": [source]}}})
}

fn steps() -> Vec<Step> {
    use Down::{LeftOut, Refused};
    use Up::{Ignored, Invalid, Warned};
    use Version as V;
    let sha256 = format!("sha256-{}", "0".repeat(64));
    let header = json!([{"name": "A", "value": "b"}]);
    let tang = |adv: &str| {
        luks(json!({"clevis": {"tang": [{"url": "http://t", "thumbprint": "x", "advertisement": adv}]}}))
    };
    let disk = |resize: bool| json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "resize": resize}]}]}});
    let filesystem = |rest: Value| {
        let mut f = json!({"device": "/dev/a", "format": "xfs"});
        f.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        json!({"storage": {"filesystems": [f]}})
    };
    let authority =
        |rest: Value| json!({"ignition": {"security": {"tls": {"certificateAuthorities": [rest]}}}});
    let replace = |rest: Value| json!({"ignition": {"config": {"replace": rest}}});
    vec![
        // 3.5 → 3.6
        step(
            V::V3_6,
            "storage.directories[0].mode",
            json!({"storage": {"directories": [{"path": "/d", "mode": 0o1777}]}}),
            Warned,
            Refused,
        ),
        step(
            V::V3_6,
            "storage.files[0].mode",
            file(json!({"mode": 0o4755, "contents": {"source": "data:,x"}})),
            Warned,
            Refused,
        ),
        step(
            V::V3_6,
            "storage.luks[0].clevis.custom.pin",
            luks(json!({"clevis": {"custom": {"pin": "mine", "config": "{}"}}})),
            Invalid,
            Refused,
        ),
        // 3.4 → 3.5
        step(V::V3_5, "storage.luks[0].cex", luks(json!({"cex": {"enabled": true}})), Ignored, Refused),
        step(V::V3_5, "storage.luks[0].cex", luks(json!({"cex": {"enabled": false}})), Ignored, LeftOut),
        // 3.3 → 3.4
        step(V::V3_4, "storage.luks[0].clevis.tang[0].advertisement", tang("{}"), Ignored, Refused),
        step(V::V3_4, "storage.luks[0].clevis.tang[0].advertisement", tang(""), Ignored, LeftOut),
        step(V::V3_4, "storage.luks[0].discard", luks(json!({"discard": true})), Ignored, Refused),
        step(V::V3_4, "storage.luks[0].discard", luks(json!({"discard": false})), Ignored, LeftOut),
        step(V::V3_4, "storage.luks[0].openOptions", luks(json!({"openOptions": ["--x"]})), Ignored, Refused),
        step(
            V::V3_4,
            "storage.files[0].contents.source",
            file(json!({"contents": {"source": "arn:aws:s3:::b/k"}})),
            Invalid,
            Refused,
        ),
        // 3.2 → 3.3
        step(
            V::V3_3,
            "kernelArguments.shouldExist",
            json!({"kernelArguments": {"shouldExist": ["a"]}}),
            Ignored,
            Refused,
        ),
        step(
            V::V3_3,
            "kernelArguments.shouldNotExist",
            json!({"kernelArguments": {"shouldNotExist": ["a"]}}),
            Ignored,
            Refused,
        ),
        step(
            V::V3_3,
            "storage.filesystems[0].format",
            filesystem(json!({"format": "none"})),
            Invalid,
            Refused,
        ),
        // 3.1 → 3.2
        step(V::V3_2, "storage.disks[0].partitions[0].resize", disk(true), Ignored, Refused),
        step(V::V3_2, "storage.disks[0].partitions[0].resize", disk(false), Ignored, LeftOut),
        step(V::V3_2, "storage.luks[0]", luks(json!({})), Ignored, Refused),
        step(
            V::V3_2,
            "passwd.users[0].shouldExist",
            json!({"passwd": {"users": [{"name": "core", "shouldExist": false}]}}),
            Ignored,
            Refused,
        ),
        step(
            V::V3_2,
            "passwd.users[0].shouldExist",
            json!({"passwd": {"users": [{"name": "core", "shouldExist": true}]}}),
            Ignored,
            LeftOut,
        ),
        step(
            V::V3_2,
            "passwd.groups[0].shouldExist",
            json!({"passwd": {"groups": [{"name": "g", "shouldExist": false}]}}),
            Ignored,
            Refused,
        ),
        step(
            V::V3_2,
            "storage.files[0].contents.source",
            file(json!({"contents": {"source": "gs://b/o"}})),
            Invalid,
            Refused,
        ),
        step(
            V::V3_2,
            "ignition.config.merge[0].source",
            merge(json!({"source": "gs://b/o"})),
            Invalid,
            Refused,
        ),
        // 3.0 → 3.1
        step(
            V::V3_1,
            "storage.files[0].contents.verification.hash",
            file(json!({"contents": {"source": "https://h/x", "verification": {"hash": sha256}}})),
            Invalid,
            Refused,
        ),
        step(
            V::V3_1,
            "storage.files[0].append[0].verification.hash",
            file(json!({"append": [{"source": "https://h/x", "verification": {"hash": sha256}}]})),
            Invalid,
            Refused,
        ),
        step(
            V::V3_1,
            "ignition.config.merge[0].verification.hash",
            merge(json!({"verification": {"hash": sha256}})),
            Invalid,
            Refused,
        ),
        step(
            V::V3_1,
            "ignition.config.merge[0].compression",
            merge(json!({"compression": "gzip"})),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "ignition.config.replace.compression",
            replace(json!({"source": "https://h/x", "compression": "gzip"})),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "ignition.security.tls.certificateAuthorities[0].compression",
            authority(json!({"source": "https://h/x", "compression": "gzip"})),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "storage.filesystems[0].mountOptions",
            filesystem(json!({"mountOptions": ["noatime"]})),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "ignition.config.merge[0].httpHeaders",
            merge(json!({"httpHeaders": header})),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "ignition.config.replace.httpHeaders",
            replace(json!({"source": "https://h/x", "httpHeaders": header})),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "ignition.security.tls.certificateAuthorities[0].httpHeaders",
            authority(json!({"source": "https://h/x", "httpHeaders": header})),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "storage.files[0].contents.httpHeaders",
            file(json!({"contents": {"source": "https://h/x", "httpHeaders": header}})),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "storage.files[0].append[0].httpHeaders",
            file(json!({"append": [{"source": "https://h/x", "httpHeaders": header}]})),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "ignition.proxy",
            json!({"ignition": {"proxy": {"httpProxy": "http://p"}}}),
            Ignored,
            Refused,
        ),
        step(
            V::V3_1,
            "ignition.proxy",
            json!({"ignition": {"proxy": {"httpsProxy": "http://p"}}}),
            Ignored,
            Refused,
        ),
        step(V::V3_1, "ignition.proxy", json!({"ignition": {"proxy": {"noProxy": ["h"]}}}), Ignored, Refused),
    ]
}

fn in_version(config: &Value, version: Version) -> Value {
    let mut config = config.clone();
    config["ignition"]["version"] = json!(version.as_str());
    config
}

/// Whether both paths are the same, or one contains the other.
fn within(path: &str, around: &str) -> bool {
    path.starts_with(around) || around.starts_with(path)
}

#[test]
fn a_field_of_an_older_version_keeps_that_versions_meaning() {
    for s in steps() {
        for version in Version::ALL.into_iter().filter(|v| *v > Version::V2_2) {
            let at = format!("{} as {version}: {}", s.path, s.config);
            let parsed = parse_value(&in_version(&s.config, version)).unwrap();
            let told = parsed.warnings.iter().any(|w| within(&w.path, s.path));
            let broken: Vec<String> = validate_as(&parsed.config, version)
                .map_or_else(|e| e.0.into_iter().map(|e| e.path).collect(), |()| vec![]);
            let (known, valid) = (version >= s.since, broken.is_empty());
            match &s.up {
                _ if known => assert!(!told && valid, "{at}: {:?} {broken:?}", parsed.warnings),
                Up::Invalid => assert!(broken.iter().any(|p| p == s.path) || told, "{at}: {broken:?}"),
                Up::Warned => assert!(told && valid, "{at}: {:?} {broken:?}", parsed.warnings),
                Up::Ignored => {
                    assert!(told && valid, "{at}: {:?} {broken:?}", parsed.warnings);
                    let pointer = format!("/{}", s.path.replace(['.', '['], "/").replace(']', ""));
                    let read = parsed.config.to_value().unwrap();
                    assert_eq!(read.pointer(&pointer), None, "{at}");
                }
            }
        }
    }
}

#[test]
fn writing_an_older_version_refuses_what_it_cannot_express() {
    for s in steps() {
        // The newest version knows everything.
        let read = parse_value(&in_version(&s.config, Version::V3_6)).unwrap();
        for version in Version::ALL {
            let at = format!("{} in {version}: {}", s.path, s.config);
            let written = translate(&read.config, version);
            if version >= s.since {
                let back = parse_value(&written.unwrap()).unwrap();
                assert_eq!(back.config, read.config, "{at}");
                continue;
            }
            let around = version < Version::V3_2 && s.path.starts_with("storage.luks");
            match (written, &s.down) {
                (Err(e), Down::Refused) => {
                    assert!(e.places.iter().any(|p| p.path == s.path), "{at}: {e}");
                    assert!(!e.to_string().contains("sha256-0"), "{at}: {e}");
                }
                (Err(_), Down::LeftOut) if around => {}
                (Ok(value), Down::LeftOut) => {
                    assert_eq!(parse_value(&value).unwrap().warnings, [], "{at}: {value}");
                }
                (got, want) => panic!("{at}: want {want:?}, got {got:?}"),
            }
        }
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
