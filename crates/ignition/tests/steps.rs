//! Each step from one version of the specification to the next, field by field: how a config of an older version than
//! the field is read, and what becomes of the field when the config is written in that version. The facts are those of
//! the specification's migration notes.
//!
//! Not here: how versions are recognised (see `versions`), and how configs of spec 2 are read (see `spec_2`).
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
