//! Compares our verdict with that of Debian's `ignition-validate`: we accept and refuse the same configs. Debian has
//! version 2.14, so this covers specs up to 3.3.
//!
//! The program is taken from the PATH, or else unpacked from Debian's package into a temporary folder (nothing is
//! installed, and root is not needed). If that is impossible the test prints `skipped: why`; with `CI=true` it fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "helpers of tests")]

use ignition::{Version, parse_value, translate, validate};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program, and the temporary folder in which it may be: kept as long as the test runs.
struct Oracle {
    program: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Oracle {
    fn find() -> Option<Self> {
        let on_path = Command::new("sh").args(["-c", "command -v ignition-validate"]).output().ok();
        let found = on_path
            .filter(|o| o.status.success())
            .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
        if let Some(path) = found {
            return Some(Self { program: path.into(), _folder: None });
        }
        match Self::unpack() {
            Ok(oracle) => Some(oracle),
            Err(why) => {
                assert!(std::env::var("CI").as_deref() != Ok("true"), "no ignition-validate: {why}");
                println!("skipped: no ignition-validate: {why}");
                None
            }
        }
    }

    fn unpack() -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let script = include_str!("../../lab/src/system/unpack-package.sh");
        let out = Command::new("sh")
            .args(["-c", script, "sh", "ignition"])
            .arg(dir.path())
            .output()
            .map_err(|e| e.to_string())?;
        let program = ["usr/bin", "usr/libexec"].iter().map(|p| dir.path().join(p).join("ignition-validate"));
        match program.into_iter().find(|p| p.exists()) {
            Some(program) => Ok(Self { program, _folder: Some(dir) }),
            None => Err(format!(
                "cannot unpack Debian's package ignition: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            )),
        }
    }

    /// The program's verdict on a config; `Ok` if it accepts it.
    fn judge(&self, config: &Value) -> Result<(), String> {
        let mut child = Command::new(&self.program)
            .arg("-")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
        if out.status.success() { Ok(()) } else { Err(said) }
    }
}

fn ours(config: &Value) -> Result<(), String> {
    let parsed = parse_value(config).map_err(|e| e.to_string())?;
    validate(&parsed.config).map_err(|e| e.to_string())
}

/// A config with every field that 3.3 has.
fn base() -> Value {
    let mut v: Value = serde_json::from_str(include_str!("../../../fuzz/full.json")).unwrap();
    v["ignition"]["version"] = json!("3.3.0");
    v["storage"]["luks"].as_array_mut().unwrap().truncate(2);
    for field in ["discard", "openOptions"] {
        v["storage"]["luks"][0].as_object_mut().unwrap().remove(field);
    }
    v["storage"]["luks"][0]["clevis"]["tang"][0].as_object_mut().unwrap().remove("advertisement");
    v["storage"]["files"][1]["append"].as_array_mut().unwrap().remove(1);
    v["storage"]["files"][1]["mode"] = json!(420);
    v
}

/// The path of every value.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| places(v, &format!("{at}/{k}"), out)),
        Value::Array(all) => all.iter().enumerate().for_each(|(i, v)| places(v, &format!("{at}/{i}"), out)),
        _ => {}
    }
    if !at.is_empty() && at != "/ignition" && at != "/ignition/version" {
        out.push(at.to_owned());
    }
}

/// The base config with one value changed, for every path.
fn variants() -> Vec<(String, Value)> {
    let base = base();
    let (mut all, mut paths) = (Vec::new(), Vec::new());
    places(&base, "", &mut paths);
    for path in paths {
        let (parent, key) = path.rsplit_once('/').unwrap();
        let mut without = base.clone();
        match without.pointer_mut(parent) {
            Some(Value::Object(map)) => drop(map.remove(key)),
            Some(Value::Array(list)) => drop(list.remove(key.parse().unwrap())),
            _ => unreachable!("a parent holds its child"),
        }
        all.push((format!("without {path}"), without));
        let others = match base.pointer(&path).unwrap() {
            Value::String(_) => vec![json!(""), json!("x"), json!("/a"), json!("https://h/x"), json!(7)],
            Value::Number(_) => vec![json!(-1), json!(0), json!(4096), json!("7")],
            Value::Bool(b) => vec![json!(!b), json!("true")],
            Value::Array(list) => vec![json!([]), json!([list[0], list[0]]), json!({})],
            _ => vec![json!([])],
        };
        for other in others {
            let mut v = base.clone();
            *v.pointer_mut(&path).unwrap() = other.clone();
            all.push((format!("{path} = {other}"), v));
        }
    }
    all
}

#[test]
fn every_config_is_validated_as_by_the_reference_validator() {
    let Some(oracle) = Oracle::find() else { return };
    assert_eq!((ours(&base()), oracle.judge(&base())), (Ok(()), Ok(())));
    let (mut differ, mut count) = (Vec::new(), 0);
    for (what, config) in variants() {
        count += 1;
        let (we, they) = (ours(&config), oracle.judge(&config));
        if we.is_ok() != they.is_ok() && !on_purpose(&what, &we) {
            differ.push(format!("{what}: we {we:?}, they {they:?}"));
        }
    }
    println!("{count} configs");
    assert!(differ.is_empty(), "{} of {count}:\n{}", differ.len(), differ.join("\n"));
}

/// Paths at which we refuse what the validator accepts, because it could not be applied. The opposite case does not
/// exist.
const ON_PURPOSE: [(&str, &str); 6] = [
    ("/name = \"\"", "users, groups, arrays and volumes are found by their names"),
    ("/name", "the same when it is absent"),
    ("number = -1", "there is no such partition"),
    ("sizeMiB = -1", "there is no such size"),
    ("startMiB = -1", "there is no such place"),
    ("hard = true", "later versions refuse an owner on a hard link, which has that of its target"),
];

/// Whether we are stricter at this path, and did refuse.
fn on_purpose(what: &str, we: &Result<(), String>) -> bool {
    we.is_err() && ON_PURPOSE.iter().any(|(end, _)| what.ends_with(end))
}

#[test]
fn every_example_is_valid_for_the_reference_validator() {
    let Some(oracle) = Oracle::find() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten().filter(|e| e.path().is_file()) {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        let object: Value = serde_saphyr::from_str_with_options(&text, options).unwrap();
        let Some(raw) = object.pointer("/spec/config") else { continue };
        let config = parse_value(raw).unwrap().config;
        for version in [Version::V3_0, Version::V3_1, Version::V3_2, Version::V3_3] {
            let written = translate(&config, version).unwrap();
            assert_eq!(oracle.judge(&written), Ok(()), "{} as {version}", entry.path().display());
            count += 1;
        }
    }
    assert!(count >= 4 * 8, "{count}");
}

/// Values that a later version introduced, and how old versions treat mode bits, in every version that the validator
/// knows.
#[test]
fn values_of_later_versions_are_validated_as_by_the_reference_validator() {
    let Some(oracle) = Oracle::find() else { return };
    let hash = format!("sha256-{}", "0".repeat(64));
    let rows = [
        json!({"storage": {"files": [{"path": "/a", "contents": {"source": "https://h/x", "verification": {"hash": hash}}}]}}),
        json!({"ignition": {"config": {"merge": [{"source": "https://h/x", "verification": {"hash": hash}}]}}}),
        json!({"storage": {"files": [{"path": "/a", "contents": {"source": "gs://b/o"}}]}}),
        json!({"storage": {"files": [{"path": "/a", "append": [{"source": "gs://b/o"}]}]}}),
        json!({"storage": {"filesystems": [{"device": "/dev/a", "format": "none"}]}}),
        json!({"storage": {"filesystems": [{"device": "/dev/a", "wipeFilesystem": true}]}}),
        json!({"storage": {"files": [{"path": "/a", "contents": {"source": "arn:aws:s3:::b/k"}}]}}),
        json!({"storage": {"directories": [{"path": "/d", "mode": 0o1777}]}}),
        json!({"storage": {"files": [{"path": "/a", "mode": 0o4755}]}}),
        json!({"ignition": {"config": {"merge": [{"source": "https://h/x", "compression": "gzip"}]}}}),
        json!({"ignition": {"config": {"merge": [{"source": "https://h/x", "compression": "xz"}]}}}),
    ];
    let mut differ = Vec::new();
    for mut config in rows {
        for version in [Version::V3_0, Version::V3_1, Version::V3_2, Version::V3_3] {
            config["ignition"]["version"] = json!(version.as_str());
            let parsed = parse_value(&config).unwrap();
            let we = ignition::validate_as(&parsed.config, version).map_err(|e| e.to_string());
            let they = oracle.judge(&config);
            if we.is_ok() != they.is_ok() {
                differ.push(format!("{config}: we {we:?}, they {they:?}"));
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
