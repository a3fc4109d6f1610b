//! A config with every field, bent by the fuzzer's bytes: what a version can say reads back to the same; what it
//! cannot say is refused, never left out.
#![no_main]

use ignition::{Config, Version};
use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::sync::LazyLock;

/// Every field of the spec at least once.
const FULL: &str = include_str!("../full.json");

static PARSED: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(FULL).expect("a constant"));

/// Values that mean something somewhere.
const STRINGS: [&str; 16] = [
    "",
    "/",
    "/a",
    "/a/b",
    "a.service",
    "x.conf",
    "data:,",
    "data:,x",
    "gzip",
    "arn:aws:s3:::b/k",
    "https://h/p",
    "core",
    "ext4",
    "3.0.0",
    "none",
    "é",
];
const NUMBERS: [i64; 8] = [-1, 0, 1, 420, 493, 0o1755, 0o7777, i64::MAX];

/// Drops, doubles and changes parts, as the bytes say. Out of bytes, everything stays.
fn bend(value: &mut Value, u: &mut Unstructured<'_>) {
    let dice = if u.is_empty() { 0 } else { u.arbitrary::<u8>().unwrap_or(0) };
    match value {
        Value::Object(map) => {
            if dice >= 64 {
                map.retain(|key, _| {
                    key == "ignition"
                        || key == "version"
                        || u.is_empty()
                        || u.arbitrary::<u8>().unwrap_or(0) >= 96
                });
            }
            for (key, inner) in map.iter_mut() {
                if key != "version" {
                    bend(inner, u);
                }
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|i| bend(i, u));
            match dice {
                192.. => items.extend(items.first().cloned()),
                128..192 => items.clear(),
                _ => {}
            }
            if dice % 4 == 3
                && let Some(first) = items.first().cloned()
            {
                items.push(first);
                items.iter_mut().for_each(|i| bend(i, u));
            }
        }
        Value::String(text) if dice >= 128 => {
            let i = usize::from(dice) % STRINGS.len();
            STRINGS[i].clone_into(text);
        }
        Value::Number(n) if dice >= 128 => *n = NUMBERS[usize::from(dice) % NUMBERS.len()].into(),
        Value::Bool(b) if dice >= 128 => *b = !*b,
        _ => {}
    }
}

/// The same config, with what says nothing left out.
fn normal(mut config: Config) -> Config {
    let quiet = |b: &mut Option<bool>, default: bool| *b = b.filter(|b| *b != default);
    for u in &mut config.passwd.users {
        quiet(&mut u.should_exist, true);
    }
    for g in &mut config.passwd.groups {
        quiet(&mut g.should_exist, true);
    }
    for d in &mut config.storage.disks {
        d.partitions.iter_mut().for_each(|p| quiet(&mut p.resize, false));
    }
    for l in &mut config.storage.luks {
        quiet(&mut l.discard, false);
        quiet(&mut l.cex.enabled, false);
        for t in &mut l.clevis.tang {
            t.advertisement = t.advertisement.take().filter(|a| !a.is_empty());
        }
    }
    let i = &mut config.ignition;
    let fetched = i
        .config
        .merge
        .iter_mut()
        .chain([&mut i.config.replace])
        .chain(&mut i.security.tls.certificate_authorities);
    fetched.for_each(|r| r.compression = r.compression.take().filter(|c| !c.is_empty()));
    config
}

fuzz_target!(|bytes: &[u8]| {
    let mut value = PARSED.clone();
    bend(&mut value, &mut Unstructured::new(bytes));
    let Ok(parsed) = ignition::parse_value(&value) else { return };
    let valid = ignition::validate(&parsed.config).is_ok();
    for version in Version::ALL {
        let Ok(written) = ignition::translate(&parsed.config, version) else { continue };
        if version == Version::V2_2 {
            spec_2(&parsed.config, &written, valid);
            continue;
        }
        let back = ignition::parse_value(&written).expect("what was written can be read");
        assert_eq!(back.version, version);
        assert!(back.warnings.is_empty(), "{version}: {:?}", back.warnings);
        assert_eq!(normal(back.config.clone()), normal(parsed.config.clone()), "{version}");
        assert_eq!(ignition::translate(&back.config, version).as_ref(), Ok(&written), "{version}: again");
    }
});

/// Spec 2 folds and orders otherwise, and says some things that we do not read: what reads back has all paths and units.
fn spec_2(config: &Config, written: &Value, valid: bool) {
    let (true, Ok(back)) = (valid, ignition::parse_value(written)) else { return };
    assert!(back.warnings.is_empty(), "{:?}", back.warnings);
    let names = |c: &Config| {
        let units = c.systemd.units.iter().map(|u| u.name.clone());
        let links = c.storage.links.iter().map(|l| l.path.clone());
        let directories = c.storage.directories.iter().map(|d| d.path.clone());
        // A file without contents cannot be said in spec 2.
        let files = c
            .storage
            .files
            .iter()
            .filter(|f| f.contents.source.is_some() || !f.append.is_empty())
            .map(|f| f.path.clone());
        let mut all: Vec<String> = units.chain(links).chain(directories).chain(files).collect();
        all.sort();
        all
    };
    assert_eq!(names(&back.config), names(config));
}
