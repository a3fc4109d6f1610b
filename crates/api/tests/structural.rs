//! Checks every CustomResourceDefinition against the API server's own rules, as far as that is possible without a
//! server: structural schemas, names, columns, and the limits without which the cost of CEL rules has no bound.
//!
//! The rules: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.
//! What it is not: the API server's verdict on CEL rules (whether they compile, and what they cost), which a cluster
//! test checks.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests")]

use api::crds::{Crd, all};
use serde_json::{Value, json};

/// Formats that the API server knows; it warns of others.
const FORMATS: [&str; 8] = ["date-time", "date", "byte", "int32", "int64", "uuid", "ipv4", "ipv6"];
/// Keywords that are not allowed inside anyOf, oneOf and allOf.
const OUTSIDE_ONLY: [&str; 6] =
    ["type", "description", "default", "additionalProperties", "nullable", "x-kubernetes-int-or-string"];
const NEVER: [&str; 6] = ["$ref", "definitions", "$defs", "uniqueItems", "dependencies", "patternProperties"];

/// Everything that is wrong with a schema; `strict`: one of our own kinds.
fn schema(at: &str, s: &Value, strict: bool, bad: &mut Vec<String>) {
    let mut say = |what: String| bad.push(format!("{at}: {what}"));
    let free = s["x-kubernetes-preserve-unknown-fields"] == true;
    let either = s["x-kubernetes-int-or-string"] == true;
    for key in NEVER.iter().filter(|k| s.get(**k).is_some_and(|v| *v != json!(false))) {
        say(format!("{key} may not be used"));
    }
    match s["type"].as_str() {
        Some(_) if either => say("has a type beside int-or-string".to_owned()),
        Some("object" | "array" | "string" | "integer" | "number" | "boolean") => {}
        None if free || either => {}
        other => say(format!("type {other:?}")),
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        for part in s[key].as_array().into_iter().flatten() {
            // The only accepted form: the two types of an int-or-string.
            let types_only = part.as_object().unwrap().keys().all(|k| k == "type");
            let found = OUTSIDE_ONLY.iter().filter(|k| part.get(**k).is_some());
            found.filter(|_| !(either && types_only)).for_each(|inner| say(format!("{key} holds {inner}")));
        }
    }
    if let Some(more) = s.get("additionalProperties") {
        if s.get("properties").is_some() {
            say("properties and additionalProperties exclude each other".to_owned());
        }
        if !more.is_object() {
            say("additionalProperties is not a schema".to_owned());
        }
    }
    if s["type"] == "array" && !s["items"].is_object() {
        say("a list without items".to_owned());
    }
    if s["x-kubernetes-list-type"] == "map" {
        let items = &s["items"];
        let keys = s["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
        if keys.is_empty() {
            say("a list of type map without keys".to_owned());
        }
        for key in keys {
            let field = &items["properties"][key.as_str().unwrap()];
            let required = items["required"].as_array().is_some_and(|r| r.contains(&key));
            if !field.is_object() || !(required || field.get("default").is_some()) {
                say(format!("key {key} is neither required nor has a default"));
            }
        }
    }
    for required in s["required"].as_array().into_iter().flatten() {
        if s["properties"].get(required.as_str().unwrap()).is_none() && !free {
            say(format!("requires {required}, which is no property"));
        }
    }
    for word in s["enum"].as_array().into_iter().flatten() {
        if word.is_null() || s["type"] == "string" && !word.is_string() {
            say(format!("enum holds {word}"));
        }
    }
    for rule in s["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let text = |key: &str| rule[key].as_str().unwrap_or_default();
        if text("rule").trim().is_empty() || text("message").contains('\n') {
            say(format!("rule {rule}"));
        }
        if text("message").is_empty() && text("messageExpression").is_empty() {
            say(format!("a rule without a message: {rule}"));
        }
    }
    if strict {
        limits(s, &mut say);
    }
    for (key, inner) in s["properties"].as_object().into_iter().flatten() {
        // The API server checks these two itself.
        let strict = strict && !(key == "kind" || key == "apiVersion");
        schema(&format!("{at}.{key}"), inner, strict, bad);
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if s[key].is_object() {
            schema(&format!("{at}{mark}"), &s[key], strict, bad);
        }
    }
}

/// Further requirements for our own kinds: limits everywhere, known formats, defaults that fit.
fn limits(s: &Value, say: &mut impl FnMut(String)) {
    let has = |key: &str| s.get(key).is_some();
    let bounded = match s["type"].as_str() {
        Some("string") => has("maxLength") || has("enum") || has("format"),
        Some("array") => has("maxItems"),
        Some("object") => !has("additionalProperties") || has("maxProperties"),
        _ => true,
    };
    if !bounded {
        say("without a limit".to_owned());
    }
    if s["format"].as_str().is_some_and(|format| !FORMATS.contains(&format)) {
        say(format!("format {}", s["format"]));
    }
    let Some(default) = s.get("default") else { return };
    let words = s["enum"].as_array();
    let fits = match s["type"].as_str() {
        Some("string") => default.is_string() && words.is_none_or(|words| words.contains(default)),
        Some("array") => default.is_array(),
        Some("boolean") => default.is_boolean(),
        Some("integer") => default.is_i64(),
        _ => default.is_object(),
    };
    if !fits {
        say(format!("default {default}"));
    }
}

/// Whether a column's path, such as `.status.list[?(@.type=="Ready")].status`, leads to a field.
fn leads_somewhere(path: &str, root: &Value) -> bool {
    let mut at = root.clone();
    let mut rest = path;
    while let Some(step) = rest.strip_prefix('.') {
        let end = step.find(['.', '[']).unwrap_or(step.len());
        // A part that the schema leaves open, such as an object's metadata, may have any field.
        let open = at["type"] == "object" && at.get("properties").is_none()
            || at["x-kubernetes-preserve-unknown-fields"] == true;
        if open {
            return true;
        }
        at = at["properties"][&step[..end]].clone();
        rest = &step[end..];
        if rest.starts_with('[') {
            at = at["items"].clone();
            rest = &rest[rest.find(']').unwrap() + 1..];
        }
    }
    rest.is_empty() && at.is_object()
}

fn definition(crd: &Crd, strict: bool) -> Vec<String> {
    let (mut bad, spec) = (vec![], &crd.object["spec"]);
    let names = &spec["names"];
    let mut say = |what: String| bad.push(format!("{}: {what}", crd.name()));
    let plural = names["plural"].as_str().unwrap();
    if crd.object["metadata"]["name"] != format!("{plural}.{}", spec["group"].as_str().unwrap()) {
        say("its name is not PLURAL.GROUP".to_owned());
    }
    let dns = |t: &str| {
        (1..64).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let short = names["shortNames"].as_array().cloned().unwrap_or_default();
    for name in [&names["plural"], &names["singular"]].into_iter().chain(&short) {
        if !name.as_str().is_some_and(dns) {
            say(format!("name {name}"));
        }
    }
    if names["listKind"] == names["kind"] || !matches!(spec["scope"].as_str(), Some("Cluster" | "Namespaced"))
    {
        say("listKind or scope".to_owned());
    }
    let versions = spec["versions"].as_array().unwrap();
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        say("not one version is stored".to_owned());
    }
    for version in versions {
        let root = &version["schema"]["openAPIV3Schema"];
        let mut headings = vec![];
        for column in version["additionalPrinterColumns"].as_array().into_iter().flatten() {
            let (name, path) = (column["name"].as_str().unwrap(), column["jsonPath"].as_str().unwrap());
            let known = ["string", "integer", "number", "boolean", "date"];
            let sound = known.contains(&column["type"].as_str().unwrap()) && leads_somewhere(path, root);
            if !sound || headings.contains(&name) {
                bad.push(format!("{}: column {name}: {path}", crd.name()));
            }
            headings.push(name);
        }
        schema(&crd.name(), root, strict, &mut bad);
    }
    bad
}

/// The definitions of our own kinds.
fn own() -> Vec<Crd> {
    all().unwrap().into_iter().filter(|crd| crd.group == "machineconfig.dev").collect()
}

#[test]
fn every_definition_keeps_the_rules_of_structural_schemas() {
    let (published, own) = (all().unwrap(), own());
    assert!(published.len() > 20 && !own.is_empty());
    let bad: Vec<String> = published.iter().flat_map(|crd| definition(crd, false)).collect();
    assert_eq!(bad, Vec::<String>::new());
    let bad: Vec<String> = own.iter().flat_map(|crd| definition(crd, true)).collect();
    assert_eq!(bad, Vec::<String>::new());
}

#[test]
fn a_definition_that_breaks_a_rule_is_found() {
    let own = own();
    let good = own.iter().find(|crd| crd.plural == "rolloutpolicies").unwrap();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let (waves, deadline) = (format!("{spec}/properties/waves"), format!("{spec}/properties/nodeDeadline"));
    let failure = format!("{spec}/properties/onFailure");
    let column = json!([{"name": "A", "type": "string", "jsonPath": ".spec.nothing"}]);
    let rows = [
        ("/metadata", "name", json!("x"), "PLURAL.GROUP"),
        ("/spec/names", "shortNames", json!(["Big"]), "name \"Big\""),
        (spec, "type", json!("objects"), "type Some(\"objects\")"),
        (spec, "$ref", json!("#/x"), "$ref may not"),
        (spec, "additionalProperties", json!({"type": "string", "maxLength": 1}), "exclude each other"),
        (spec, "anyOf", json!([{"type": "object"}]), "anyOf holds type"),
        (spec, "required", json!(["nothing"]), "which is no property"),
        (&waves, "items", json!(false), "without items"),
        (&waves, "maxItems", Value::Null, "without a limit"),
        (&waves, "x-kubernetes-list-map-keys", json!(["size"]), "neither required"),
        (&failure, "default", json!("Panic"), "default"),
        (&deadline, "maxLength", Value::Null, "without a limit"),
        (&deadline, "x-kubernetes-validations", json!([{"rule": "true"}]), "without a message"),
        ("/spec/versions/0", "additionalPrinterColumns", column, "column A"),
        ("/spec/versions/0", "storage", json!(false), "not one version"),
    ];
    for (at, key, value, want) in rows {
        let mut crd = good.clone();
        let place = crd.object.pointer_mut(at).unwrap().as_object_mut().unwrap();
        match value {
            Value::Null => drop(place.remove(key)),
            _ => drop(place.insert(key.to_owned(), value.clone())),
        }
        let bad = definition(&crd, true);
        assert!(bad.iter().any(|b| b.contains(want)), "{at} {key} {value}: {bad:?}");
    }
}

/// Fields without a description that ends as a sentence. `kubectl explain` and the reference pages show descriptions.
fn undescribed(at: &str, s: &Value, out: &mut Vec<String>) {
    for (key, inner) in s["properties"].as_object().into_iter().flatten() {
        let (at, text) = (format!("{at}.{key}"), inner["description"].as_str().unwrap_or_default());
        if !text.ends_with('.') {
            out.push(format!("{at}: {text:?}"));
        }
        undescribed(&at, inner, out);
    }
    if s["items"].is_object() {
        undescribed(&format!("{at}[]"), &s["items"], out);
    }
}

#[test]
fn every_field_of_our_own_kinds_is_described() {
    for crd in own() {
        let root = &crd.object["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert!(root["description"].as_str().is_some_and(|d| d.len() > 40));
        let mut out = vec![];
        for part in ["spec", "status"] {
            undescribed(part, &root["properties"][part], &mut out);
        }
        assert_eq!(out, Vec::<String>::new(), "{}", crd.name());
    }
}
