//! Reading every version of spec 3, writing older ones, and the rules of the spec, as tables.
//!
//! Not here: spec 2 (see `spec_2`).
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "helpers of tests")]

use ignition::{Version, parse, parse_value, translate, validate};
use serde_json::{Value, json};

#[test]
fn versions_are_detected() {
    for (version, want) in [
        ("2.0.0", Some(Version::V2_2)),
        ("2.2.0", Some(Version::V2_2)),
        ("3.0.0", Some(Version::V3_0)),
        ("3.6.0", Some(Version::V3_6)),
        ("3.5.2", None),
        ("3.6.0-experimental", None),
        ("3.7.0", None),
        ("2.3.0", None),
        ("1.0.0", None),
        ("21.0.0", None),
        ("3", None),
        ("bogus", None),
        ("", None),
    ] {
        let got = parse_value(&json!({"ignition": {"version": version}})).ok().map(|p| p.version);
        assert_eq!(got, want, "{version}");
    }
    for bad in ["", "  \n", "{", "[]", "{}", r#"{"ignition": {"version": 3}}"#, "null"] {
        assert!(parse(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn fields_of_later_versions_are_unknown_to_earlier_ones() {
    let of = |version: &str| {
        json!({"ignition": {"version": version, "proxy": {"httpProxy": "http://p"}},
            "kernelArguments": {"shouldExist": ["a"]},
            "storage": {"luks": [{"name": "l", "device": "/dev/a", "discard": true, "cex": {"enabled": true}}]}})
    };
    let paths = |version: &str| -> Vec<String> {
        let mut all: Vec<String> =
            parse_value(&of(version)).unwrap().warnings.into_iter().map(|w| w.path).collect();
        all.sort();
        all
    };
    assert_eq!(paths("3.5.0"), Vec::<String>::new());
    assert_eq!(paths("3.4.0"), ["storage.luks[0].cex"]);
    assert_eq!(paths("3.2.0"), ["kernelArguments", "storage.luks[0].cex", "storage.luks[0].discard"]);
    assert_eq!(paths("3.0.0"), ["ignition.proxy", "kernelArguments", "storage.luks"]);
    assert!(parse_value(&of("3.2.0")).unwrap().config.kernel_arguments.should_exist.is_empty());
}

#[test]
fn fields_that_an_older_version_lacks_are_named() {
    let rows: [(Value, Version, Option<&str>); 13] = [
        (
            json!({"storage": {"luks": [{"name": "l", "device": "/dev/a", "cex": {"enabled": true}}]}}),
            Version::V3_4,
            Some("storage.luks[0].cex"),
        ),
        (
            json!({"storage": {"luks": [{"name": "l", "device": "/dev/a", "discard": true}]}}),
            Version::V3_3,
            Some("storage.luks[0].discard"),
        ),
        (json!({"storage": {"luks": [{"name": "l", "device": "/dev/a"}]}}), Version::V3_2, None),
        (
            json!({"storage": {"luks": [{"name": "l", "device": "/dev/a"}]}}),
            Version::V3_1,
            Some("storage.luks[0]"),
        ),
        (json!({"storage": {"files": [{"path": "/a", "mode": 0o1777}]}}), Version::V3_6, None),
        (
            json!({"storage": {"files": [{"path": "/a", "mode": 0o1777}]}}),
            Version::V3_5,
            Some("storage.files[0].mode"),
        ),
        (
            json!({"storage": {"files": [{"path": "/a", "contents": {"source": "arn:aws:s3:::b/k"}}]}}),
            Version::V3_3,
            Some("storage.files[0].contents.source"),
        ),
        (json!({"kernelArguments": {"shouldExist": ["a"]}}), Version::V3_3, None),
        (
            json!({"kernelArguments": {"shouldExist": ["a"]}}),
            Version::V3_2,
            Some("kernelArguments.shouldExist"),
        ),
        (
            json!({"passwd": {"users": [{"name": "core", "shouldExist": false}]}}),
            Version::V3_1,
            Some("passwd.users[0].shouldExist"),
        ),
        (
            json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "resize": true}]}]}}),
            Version::V3_1,
            Some("storage.disks[0].partitions[0].resize"),
        ),
        (json!({"ignition": {"proxy": {"httpProxy": "http://p"}}}), Version::V2_2, Some("ignition.proxy")),
        (
            json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "sizeMiB": 5}]}]}}),
            Version::V2_2,
            Some("storage.disks[0].partitions[0].sizeMiB"),
        ),
    ];
    for (mut v, version, want) in rows {
        v["ignition"]["version"] = json!("3.5.0");
        let config = parse_value(&v).unwrap().config;
        match (translate(&config, version), want) {
            (Ok(written), None) => assert_eq!(written["ignition"]["version"], version.as_str()),
            (Err(e), Some(path)) => {
                assert_eq!(e.places[0].path, path);
                assert!(e.to_string().contains(version.as_str()), "{e}");
            }
            (got, want) => panic!("{v} to {version}: want {want:?}, got {got:?}"),
        }
    }
}

#[test]
fn broken_rules_are_named_with_their_paths() {
    let rows: [(Value, &[&str]); 32] = [
        (json!({"ignition": {"config": {"merge": [{}]}}}), &["ignition.config.merge[0].source"]),
        (json!({"ignition": {"proxy": {"httpsProxy": "socks://p"}}}), &["ignition.proxy.httpsProxy"]),
        (
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": [{"source": "x:y"}]}}}}),
            &["ignition.security.tls.certificateAuthorities[0].source"],
        ),
        (
            json!({"kernelArguments": {"shouldExist": ["a"], "shouldNotExist": ["a"]}}),
            &["kernelArguments[1]"],
        ),
        (json!({"passwd": {"users": [{"name": "a"}, {"name": "a"}]}}), &["passwd.users[1]"]),
        (
            json!({"passwd": {"users": [{"name": "a", "sshAuthorizedKeys": ["k", "k"]}]}}),
            &["passwd.users[0].sshAuthorizedKeys[1]"],
        ),
        (json!({"passwd": {"groups": [{"name": ""}]}}), &["passwd.groups[0].name"]),
        (
            json!({"storage": {"files": [{"path": "/a/b"}], "links": [{"path": "/a", "target": "/c"}]}}),
            &["storage.files[0].path"],
        ),
        (
            json!({"storage": {"files": [{"path": "/a"}], "directories": [{"path": "/a"}]}}),
            &["storage.directories[0].path"],
        ),
        (json!({"storage": {"files": [{"path": "/a", "mode": 5000}]}}), &["storage.files[0].mode"]),
        (
            json!({"storage": {"files": [{"path": "/a", "user": {"id": 1, "name": "x"}}]}}),
            &["storage.files[0].user"],
        ),
        (
            json!({"storage": {"files": [{"path": "/a", "overwrite": true}]}}),
            &["storage.files[0].contents.source"],
        ),
        (
            json!({"storage": {"files": [{"path": "/a", "contents": {"verification": {"hash": "sha512-00"}}}]}}),
            &["storage.files[0].contents.verification.hash", "storage.files[0].contents.verification"],
        ),
        (
            json!({"storage": {"files": [{"path": "/a", "contents": {"source": "data:,x", "httpHeaders": [{"name": "A", "value": "b"}]}}]}}),
            &["storage.files[0].contents.httpHeaders"],
        ),
        (json!({"storage": {"links": [{"path": "/a"}]}}), &["storage.links[0].target"]),
        (
            json!({"storage": {"links": [{"path": "/a", "target": "/d", "hard": true}], "directories": [{"path": "/d"}]}}),
            &["storage.links[0].target"],
        ),
        (
            json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "shouldExist": false}, {"label": "z"}]}]}}),
            &["storage.disks[0].partitions[1].number"],
        ),
        (
            json!({"storage": {"files": [{"path": "/etc/systemd/system/a.service"}], "links": [{"path": "/etc/systemd/system/a.service.d/x.conf", "target": "/b"}]},
                "systemd": {"units": [{"name": "a.service", "contents": "[Unit]\n", "dropins": [{"name": "x.conf", "contents": "[Unit]\n"}]}]}}),
            &["storage.files[0].path", "storage.links[0].path"],
        ),
        (
            json!({"storage": {"luks": [{"name": "a", "device": "/dev/a", "clevis": {"tang": [{"url": "http://t", "thumbprint": "x", "advertisement": "{{"}]}}]}}),
            &["storage.luks[0].clevis.tang[0].advertisement"],
        ),
        (json!({"storage": {"disks": [{"device": "sdb"}]}}), &["storage.disks[0].device"]),
        (
            json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "startMiB": 1, "sizeMiB": 10}, {"number": 2, "startMiB": 5, "sizeMiB": 10}]}]}}),
            &["storage.disks[0].partitions[1]"],
        ),
        (
            json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "typeGuid": "x"}]}]}}),
            &["storage.disks[0].partitions[0].typeGuid"],
        ),
        (
            json!({"storage": {"disks": [{"device": "/dev/a", "partitions": [{}]}]}}),
            &["storage.disks[0].partitions[0]"],
        ),
        (
            json!({"storage": {"raid": [{"name": "r", "level": "raid7", "devices": ["/dev/a"]}]}}),
            &["storage.raid[0].level"],
        ),
        (
            json!({"storage": {"raid": [{"name": "r", "level": "raid0", "devices": ["/dev/a"], "spares": 1}]}}),
            &["storage.raid[0].spares"],
        ),
        (
            json!({"storage": {"luks": [{"name": "a/b"}]}}),
            &["storage.luks[0].name", "storage.luks[0].device"],
        ),
        (
            json!({"storage": {"luks": [{"name": "a", "device": "/dev/a", "clevis": {"tang": [{"url": "x"}]}}]}}),
            &["storage.luks[0].clevis.tang[0].url", "storage.luks[0].clevis.tang[0].thumbprint"],
        ),
        (
            json!({"storage": {"filesystems": [{"device": "/dev/a", "path": "/x"}]}}),
            &["storage.filesystems[0].format"],
        ),
        (
            json!({"storage": {"filesystems": [{"device": "/dev/a", "format": "zfs"}]}}),
            &["storage.filesystems[0].format"],
        ),
        (
            json!({"storage": {"filesystems": [{"device": "/dev/a", "format": "xfs", "label": "thirteenbytes"}]}}),
            &["storage.filesystems[0].label"],
        ),
        (
            json!({"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "x"}]}]}}),
            &["systemd.units[0].dropins[0].name"],
        ),
        (
            json!({"systemd": {"units": [{"name": "a.service", "dropins": [{"name": "x.conf"}, {"name": "x.conf"}]}]}}),
            &["systemd.units[0].dropins[1]"],
        ),
    ];
    for (mut v, want) in rows {
        v["ignition"]["version"] = json!("3.5.0");
        let e = validate(&parse_value(&v).unwrap().config).unwrap_err();
        let paths: Vec<&str> = e.0.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths, want, "{v}");
    }
}

#[test]
fn a_file_in_the_place_of_a_unit_is_refused_from_3_4_on_as_ignition_does() {
    let config = json!({"ignition": {"version": "3.3.0"}, "storage": {"files": [{"path": "/etc/systemd/system/a.service"}]},
        "systemd": {"units": [{"name": "a.service", "contents": "[Unit]\n"}]}});
    let parsed = parse_value(&config).unwrap();
    assert!(ignition::validate_as(&parsed.config, parsed.version).is_ok());
    assert!(ignition::validate_as(&parsed.config, ignition::Version::V3_4).is_err());
}

#[test]
fn an_owner_of_a_hard_link_is_a_warning() {
    let link = json!({"path": "/a", "target": "/b", "hard": true, "user": {"id": 1}});
    let config = json!({"ignition": {"version": "3.3.0"}, "storage": {"links": [link]}});
    let config = parse_value(&config).unwrap().config;
    assert!(validate(&config).is_ok());
    assert_eq!(ignition::lint(&config)[0].path, "storage.links[0]");
}

#[test]
fn a_value_of_the_wrong_type_is_named_by_its_path_and_not_quoted() {
    let rows = [
        (
            json!({"passwd": {"users": [{"name": "core", "passwordHash": ["$6$secret"]}]}}),
            "passwd.users[0].passwordHash: expected a string, found a list",
        ),
        (json!({"storage": {"files": {}}}), "storage.files: expected a list, found an object"),
        (
            json!({"storage": {"files": [{"path": "/a", "mode": 420.5}]}}),
            "storage.files[0].mode: expected a whole number, found a fraction",
        ),
        (
            json!({"systemd": {"units": [{"name": "a.service", "enabled": "yes"}]}}),
            "systemd.units[0].enabled: expected true or false, found a string",
        ),
    ];
    for (mut v, want) in rows {
        v["ignition"]["version"] = json!("3.5.0");
        assert_eq!(parse_value(&v).unwrap_err().to_string(), want);
    }
}

#[test]
fn null_is_the_same_as_absent() {
    let v = json!({"ignition": {"version": "3.2.0", "proxy": null}, "storage": {"files": [{"path": "/a", "mode": null, "contents": {"source": null}}]}});
    let written = parse_value(&v).unwrap().config.to_value().unwrap();
    assert_eq!(written, json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/a"}]}}));
}

#[test]
fn field_names_are_read_in_any_case_with_a_warning() {
    let v = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "/a", "Mode": 420}]}});
    let parsed = parse_value(&v).unwrap();
    assert_eq!(parsed.config.storage.files[0].mode, Some(420));
    assert_eq!(parsed.warnings[0].to_string(), "storage.files[0].Mode: is read as mode; write it that way");
}

/// The fuzz targets mutate this config: a field that is missing here is never tried.
#[test]
fn the_config_that_is_fuzzed_is_valid_and_has_every_section() {
    let full: Value = serde_json::from_str(include_str!("../../../fuzz/full.json")).unwrap();
    let parsed = parse_value(&full).unwrap();
    assert_eq!(parsed.warnings, []);
    assert_eq!(validate(&parsed.config), Ok(()));
    let s = &parsed.config.storage;
    assert!(
        [s.disks.len(), s.raid.len(), s.luks.len(), s.filesystems.len(), s.files.len()]
            .iter()
            .all(|n| *n > 0)
    );
}

#[test]
fn an_older_version_is_written_without_fields_that_it_would_ignore() {
    let v = json!({"ignition": {"version": "3.5.0", "config": {"merge": [{"source": "https://h/x", "compression": ""}]}},
        "passwd": {"groups": [{"name": "g", "shouldExist": true}]},
        "storage": {"disks": [{"device": "/dev/a", "partitions": [{"number": 1, "resize": false}]}]}});
    let config = parse_value(&v).unwrap().config;
    for version in [Version::V2_2, Version::V3_0, Version::V3_1] {
        let written = translate(&config, version).unwrap();
        assert_eq!(parse_value(&written).unwrap().warnings, [], "{written}");
    }
}
