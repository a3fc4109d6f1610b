//! Tests of the comparison with a schema.

use super::*;

fn faults(schema: &Value, value: &Value, extent: Extent) -> Vec<String> {
    let found = lint_by_schema("Thing a", schema, value, extent);
    found.iter().map(|l| format!("{} {}: {}; {}", l.rule, l.path, l.message, l.remedy)).collect()
}

fn thing() -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "status": {"type": "object", "required": ["phase"], "properties": {
                "phase": {"type": "string"}, "seen": {"type": "array", "items": {"type": "object", "required": ["by"]}},
            }},
            "spec": {
                "type": "object",
                "required": ["waves", "mode"],
                "properties": {
                    "mode": {"type": "string", "default": "Slow"},
                    "speed": {"type": "string", "enum": ["Slow", "Fast"]},
                    "count": {"type": "integer", "minimum": 1, "maximum": 9},
                    "share": {"x-kubernetes-int-or-string": true},
                    "text": {"type": "string", "minLength": 2, "maxLength": 3},
                    "maybe": {"type": "string", "nullable": true},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                             "properties": {"known": {"type": "boolean"}}},
                    "chosen": {"type": "object"},
                    "inner": {"type": "object", "x-kubernetes-embedded-resource": true,
                              "properties": {"spec": {"type": "object"}}},
                    "words": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "waves": {
                        "type": "array", "minItems": 1, "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "soak": {"type": "string"},
                        }},
                    },
                },
            },
        },
    })
}

#[test]
fn what_fits_is_not_told() {
    let value = json!({
        "apiVersion": "a/v1", "kind": "Thing",
        "metadata": {"name": "a", "labels": {"example.com/a": "b"}, "creationTimestamp": null, "uid": "u", "generation": 3},
        "spec": {
            "speed": "Fast", "count": 9, "share": "10%", "text": "äöü", "maybe": null, "labels": {"a/b": "c"},
            "free": {"known": true, "more": [1]}, "chosen": {"anything": 1}, "words": ["a", "b"],
            "inner": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": {}},
            "waves": [{"name": "a", "soak": null}, {"name": "b", "soak": "1h"}],
        },
        // Programs write it, and other versions of them write less.
        "status": {"seen": [{}]},
    });
    assert_eq!(faults(&thing(), &value, Extent::Whole), Vec::<String>::new());
}

#[test]
fn what_does_not_fit_is_told_with_its_path() {
    let types = "; correct the field; the CRD has the types";
    let rows = [
        (json!({"waevs": []}), vec![
            "unknown-field spec.waevs: waevs is not a field of spec and has no effect; write waves, or remove it".to_owned(),
            "manifest spec.waves: is required; write it".to_owned(),
        ]),
        (json!({"waves": null}), vec!["manifest spec.waves: is required; write it".to_owned()]),
        (json!({"waves": []}), vec![format!("manifest spec.waves: expected at least 1 entries{types}")]),
        (json!({"waves": {}}), vec![format!("manifest spec.waves: expected a list, found an object{types}")]),
        (json!({"waves": [{"soak": "1h", "zzz": 1}]}), vec![
            "unknown-field spec.waves[0].zzz: zzz is not a field of spec.waves[0] and has no effect; remove it".to_owned(),
            "manifest spec.waves[0].name: is required; write it".to_owned(),
        ]),
        (json!({"waves": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}), vec![
            "duplicate spec.waves[2]: another entry of the list has the same name; remove one of them".to_owned(),
        ]),
    ];
    for (spec, want) in rows {
        assert_eq!(faults(&thing(), &json!({ "spec": spec }), Extent::Whole), want);
    }
    let fields = [
        (json!({"speed": "hunter2"}), "spec.speed: expected one of Slow, Fast, found another value"),
        (json!({"count": 0}), "spec.count: expected at least 1"),
        (json!({"count": 10}), "spec.count: expected at most 9"),
        (json!({"count": 1.5}), "spec.count: expected a whole number, found a number"),
        (json!({"count": "1"}), "spec.count: expected a whole number, found a string"),
        (json!({"share": true}), "spec.share: expected a whole number or a string, found a boolean"),
        (json!({"text": "a"}), "spec.text: expected at least 2 characters"),
        (json!({"text": "äöüß"}), "spec.text: expected at most 3 characters"),
        (json!({"labels": {"a/b": true}}), "spec.labels[a/b]: expected a string, found a boolean"),
        (json!({"free": {"known": "yes"}}), "spec.free.known: expected a boolean, found a string"),
        (json!({"words": ["a", "a"]}), "spec.words[1]: is in the list twice"),
        (json!({"words": [null]}), "spec.words[0]: expected a string, found null"),
        (
            json!({"inner": {"sepc": {}}}),
            "spec.inner.sepc: sepc is not a field of spec.inner and has no effect",
        ),
    ];
    for (spec, want) in fields {
        let found = faults(&thing(), &json!({ "spec": spec }), Extent::Part);
        assert!(found.len() == 1 && found[0].contains(want), "{want}: {found:?}");
        assert!(!found[0].contains("hunter2"), "{found:?}");
    }
}

#[test]
fn metadata_and_the_root_are_looked_at() {
    let spec = json!({"waves": [{"name": "a"}]});
    for (value, want) in [
        (
            json!({"sepc": spec, "spec": spec}),
            "sepc: sepc is not a field of Thing and has no effect; write spec",
        ),
        (
            json!({"spec": spec, "metadata": {"lables": {}}}),
            "metadata.lables: lables is not a field of metadata",
        ),
        (json!({"spec": spec, "metadata": {"labels": {"a": true}}}), "metadata.labels.a: expected a string"),
        (
            json!({"spec": spec, "metadata": {"ownerReferences": [{"name": "a", "kind": "b", "uid": "c"}]}}),
            "metadata.ownerReferences[0].apiVersion: is required",
        ),
        (json!({"metadata": {"name": "a"}}), "spec: is required"),
        (json!("hunter2"), ": expected an object, found a string"),
    ] {
        let found = faults(&thing(), &value, Extent::Whole);
        assert!(found.len() == 1 && found[0].contains(want), "{want}: {found:?}");
    }
}

/// The list is written by hand, so that the program does not have to hold the whole schema with its descriptions.
#[test]
fn the_fields_of_metadata_are_those_of_kubernetes() {
    use api::k8s::{ObjectMeta, OwnerReference, Time};
    use std::collections::BTreeSet;
    let (text, time) =
        (|| Some("a".to_owned()), || serde_json::from_value::<Time>(json!("2026-01-01T00:00:00Z")).ok());
    let owner =
        OwnerReference { block_owner_deletion: Some(true), controller: Some(true), ..Default::default() };
    let full = ObjectMeta {
        annotations: Some([("a".to_owned(), "b".to_owned())].into()),
        creation_timestamp: time(),
        deletion_grace_period_seconds: Some(1),
        deletion_timestamp: time(),
        finalizers: Some(vec!["a".to_owned()]),
        generate_name: text(),
        generation: Some(1),
        labels: Some([("a".to_owned(), "b".to_owned())].into()),
        managed_fields: Some(vec![Default::default()]),
        name: text(),
        namespace: text(),
        owner_references: Some(vec![owner]),
        resource_version: text(),
        self_link: text(),
        uid: text(),
    };
    let full = json!({ "metadata": full });
    assert_eq!(faults(&thing(), &full, Extent::Part), Vec::<String>::new());
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&full["metadata"]), names(&metadata()["properties"]));
    let owner = &metadata()["properties"]["ownerReferences"]["items"]["properties"];
    assert_eq!(names(&full["metadata"]["ownerReferences"][0]), names(owner));
}

#[test]
fn a_patch_requires_nothing_but_in_lists_and_removes_with_null() {
    for value in [json!({"spec": {"count": null}}), json!({"spec": {"labels": {"a": null}}}), json!({})] {
        assert_eq!(faults(&thing(), &value, Extent::Patch), Vec::<String>::new());
    }
    let list = json!({"spec": {"waves": [{}]}});
    assert_eq!(faults(&thing(), &list, Extent::Part), Vec::<String>::new());
    let found = faults(&thing(), &list, Extent::Patch);
    assert!(found.len() == 1 && found[0].contains("spec.waves[0].name: is required"), "{found:?}");
}
