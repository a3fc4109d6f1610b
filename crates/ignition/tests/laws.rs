//! Laws that hold for every config: merging, round trips, and agreement with other implementations. Proptest generates
//! the configs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "helpers of tests")]

use ignition::{Config, Version, data_url as ours, empty, merge, parse, parse_value, translate};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Drops nulls, which mean the same as an absent field.
fn prune(v: Value) -> Value {
    match v {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, prune(v)));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        Value::Array(all) => Value::Array(all.into_iter().map(prune).collect()),
        other => other,
    }
}

fn optional(name: &'static str, values: Vec<Value>) -> impl Strategy<Value = Option<(String, Value)>> {
    proptest::option::of(proptest::sample::select(values)).prop_map(move |v| v.map(|v| (name.to_owned(), v)))
}

fn object(fields: Vec<Option<(String, Value)>>) -> Value {
    Value::Object(fields.into_iter().flatten().collect())
}

/// A list of objects with distinct keys from a small set, so that merged lists overlap.
fn list(key: &'static str, keys: Vec<&'static str>, rest: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let picked = proptest::sample::subsequence(keys.clone(), 0..=keys.len());
    (picked, proptest::collection::vec(rest, keys.len()))
        .prop_map(move |(keys, rest)| {
            let objects = keys.into_iter().zip(rest).map(|(k, mut v)| {
                v[key] = json!(k);
                v
            });
            Value::Array(objects.collect())
        })
        .boxed()
}

fn file() -> BoxedStrategy<Value> {
    (
        optional("mode", vec![json!(420), json!(384)]),
        optional("overwrite", vec![json!(true), json!(false)]),
        optional(
            "contents",
            vec![json!({"source": "data:,a"}), json!({"source": "data:,b", "compression": "gzip"})],
        ),
        optional("user", vec![json!({"name": "root"}), json!({"id": 7})]),
    )
        .prop_map(|(a, b, c, d)| object(vec![a, b, c, d]))
        .boxed()
}

fn unit() -> BoxedStrategy<Value> {
    let dropin =
        optional("contents", vec![json!("[Service]\nA=1\n"), json!("")]).prop_map(|c| object(vec![c]));
    (
        optional("enabled", vec![json!(true), json!(false)]),
        optional("contents", vec![json!("[Unit]\n"), json!("[Unit]\nDescription=x\n")]),
        list("name", vec!["10.conf", "20.conf"], dropin.boxed()),
    )
        .prop_map(|(a, b, dropins)| {
            let mut v = object(vec![a, b]);
            v["dropins"] = dropins;
            v
        })
        .boxed()
}

fn user() -> BoxedStrategy<Value> {
    let keys = proptest::sample::subsequence(vec!["k1", "k2", "k3"], 0..=3);
    (optional("passwordHash", vec![json!("x"), json!("")]), keys)
        .prop_map(|(hash, keys)| {
            let mut v = object(vec![hash]);
            v["sshAuthorizedKeys"] = json!(keys);
            v
        })
        .boxed()
}

fn config_json() -> BoxedStrategy<Value> {
    let target = Just(json!({"target": "/t"})).boxed();
    (
        list("path", vec!["/a", "/b", "/c", "/d"], file()),
        list("path", vec!["/l", "/m"], target),
        list("name", vec!["a.service", "b.service", "c.timer"], unit()),
        list("name", vec!["core", "bob"], user()),
    )
        .prop_map(|(files, links, units, users)| {
            json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files, "links": links},
                "systemd": {"units": units}, "passwd": {"users": users}})
        })
        .boxed()
}

fn config() -> impl Strategy<Value = Config> {
    config_json().prop_map(|v| parse_value(&v).unwrap().config)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merging_with_nothing_changes_nothing(a in config()) {
        prop_assert_eq!(&merge(a.clone(), empty()), &a);
        prop_assert_eq!(&merge(empty(), a.clone()), &a);
    }

    #[test]
    fn merging_a_config_with_itself_changes_nothing(a in config()) {
        prop_assert_eq!(merge(a.clone(), a.clone()), a);
    }

    #[test]
    fn merging_is_associative(a in config(), b in config(), c in config()) {
        let left = merge(merge(a.clone(), b.clone()), c.clone());
        let right = merge(a, merge(b, c));
        prop_assert_eq!(left, right);
    }

    #[test]
    fn the_child_wins(a in config(), b in config()) {
        let merged = merge(a, b.clone());
        prop_assert_eq!(merge(merged.clone(), b), merged);
    }

    #[test]
    fn a_config_that_needs_no_cleaning_is_read_the_same_as_a_cleaned_one(v in config_json()) {
        let mut odd = v.clone();
        odd["nobody-knows-this"] = json!(1);
        odd["passwd"]["groups"] = json!(null);
        let (fits, cleaned) = (parse_value(&v).unwrap(), parse_value(&odd).unwrap());
        prop_assert_eq!((fits.warnings.len(), cleaned.warnings.len()), (0, 1));
        prop_assert_eq!(fits.config, cleaned.config);
    }

    #[test]
    fn writing_and_reading_gives_the_same(a in config()) {
        let bytes = serde_json::to_vec(&a).unwrap();
        let back = parse(&bytes).unwrap();
        prop_assert_eq!(&back.config, &a);
        prop_assert!(back.warnings.is_empty());
        prop_assert_eq!(serde_json::to_vec(&back.config).unwrap(), bytes);
    }

    #[test]
    fn older_versions_read_back_to_the_same(a in config()) {
        for version in Version::ALL.into_iter().filter(|v| *v != Version::V2_2) {
            let written = translate(&a, version).unwrap();
            let back = parse_value(&written).unwrap();
            prop_assert_eq!(back.version, version);
            prop_assert_eq!(&back.config, &a);
        }
    }

    #[test]
    fn another_implementation_reads_what_is_written(a in config()) {
        let bytes = serde_json::to_vec(&a).unwrap();
        let (theirs, warnings) = ignition_config::Config::parse_slice(&bytes).unwrap();
        prop_assert!(warnings.is_empty(), "{:?}", warnings);
        let back = prune(serde_json::to_value(&theirs).unwrap());
        prop_assert_eq!(parse_value(&back).unwrap().config, a);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn data_urls_round_trip(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(ours::decode(&ours::encode(&bytes)).unwrap(), &bytes[..]);
        prop_assert_eq!(ours::decode(&ours::encode_base64("text/plain", &bytes)).unwrap(), bytes);
    }

    #[test]
    fn data_urls_decode_as_another_implementation_decodes_them(url in "data:(text/plain)?(;charset=utf-8)?(;base64)?,[a-zA-Z0-9%+/=._-]{0,40}") {
        if let Ok(bytes) = ours::decode(&url) {
            let theirs = ::data_url::DataUrl::process(&url).unwrap().decode_to_vec().unwrap().0;
            prop_assert_eq!(theirs, bytes);
        }
    }

    #[test]
    fn unit_texts_never_make_the_check_panic(text in "\\PC{0,80}") {
        let _ = ignition::unit::check_contents(&text);
        let _ = ignition::unit::check_name(&text);
    }
}

/// For each version, we accept and refuse the same configs as the reference implementation's types.
#[test]
fn versions_and_types_are_read_as_another_implementation_reads_them() {
    let rows = [
        (json!({}), true),
        (json!({"storage": {"files": [{"path": "/a", "mode": 420}]}}), true),
        (json!({"storage": {"files": [{"path": "/a", "mode": "420"}]}}), false),
        (json!({"storage": {"files": {}}}), false),
        (json!({"systemd": {"units": [{"name": "a.service", "enabled": 1}]}}), false),
        (json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a"]}]}}), true),
        (json!({"unknown": {"x": 1}}), true),
    ];
    for version in ["3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0"] {
        for (sections, want) in &rows {
            let mut v = sections.clone();
            v["ignition"]["version"] = json!(version);
            let bytes = serde_json::to_vec(&v).unwrap();
            let ours = parse(&bytes);
            let theirs = ignition_config::Config::parse_slice(&bytes);
            assert_eq!((ours.is_ok(), theirs.is_ok()), (*want, *want), "{v}");
            if let (Ok(ours), Ok((_, theirs))) = (ours, theirs) {
                assert_eq!(ours.warnings.len(), theirs.len(), "{v}: {:?} {theirs:?}", ours.warnings);
            }
        }
    }
}
