//! Compares a value with the schema of its kind, as a CustomResourceDefinition has it: fields that the schema does not know, wrong types,
//! values that it does not list, sizes out of bounds, entries that are there twice, and what is missing.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.
//! What it is not: the API server's whole verdict. Patterns and CEL rules are not evaluated.

use super::finding::{Lint, Severity};
use crate::error::Rule;
use crate::similar_names::nearest;
use serde_json::{Map, Value, json};

/// How much of an object a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it: what the schema requires has to be there.
    Whole,
    /// The body of a merge patch: nothing is required but in lists, which it replaces as a whole.
    Patch,
    /// Some of its fields: nothing is required.
    Part,
}

/// What in a value does not fit a schema. Findings are of the object with this name.
pub fn lint_by_schema(object: &str, schema: &Value, value: &Value, extent: Extent) -> Vec<Lint> {
    let mut walk = Walk { object, all: vec![] };
    walk.value(schema, value, "", extent);
    walk.all
}

/// Fields that every embedded object has besides those of its schema.
const OF_ANY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The fields of `metadata`, which the schema of a kind leaves out. Those that only the API server writes have no type here.
///
/// Source: <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#metadata>.
fn metadata() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let list = |items: &Value| json!({"type": "array", "items": items});
    let owner = json!({
        "type": "object",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": text, "kind": text, "name": text, "uid": text,
            "blockOwnerDeletion": {"type": "boolean"}, "controller": {"type": "boolean"},
        },
    });
    json!({"type": "object", "properties": {
        "name": text, "generateName": text, "namespace": text, "labels": texts, "annotations": texts,
        "finalizers": list(&text), "ownerReferences": list(&owner),
        "creationTimestamp": {}, "deletionGracePeriodSeconds": {}, "deletionTimestamp": {}, "generation": {},
        "managedFields": {}, "resourceVersion": {}, "selfLink": {}, "uid": {},
    }})
}

struct Walk<'a> {
    object: &'a str,
    all: Vec<Lint>,
}

impl Walk<'_> {
    fn say(&mut self, severity: Severity, rule: Rule, path: &str, message: String, remedy: String) {
        let (object, path) = (self.object.to_owned(), path.to_owned());
        self.all.push(Lint { severity, object, path, rule, message, remedy });
    }

    fn wrong(&mut self, path: &str, message: String) {
        let remedy = "correct the field; the CRD has the types".to_owned();
        self.say(Severity::Error, Rule::Manifest, path, message, remedy);
    }

    fn value(&mut self, schema: &Value, value: &Value, path: &str, extent: Extent) {
        let is = |key: &str| schema[key] == true;
        let kind = schema["type"].as_str().unwrap_or_default();
        let fits = match (value, kind) {
            _ if is("x-kubernetes-int-or-string") => value.is_string() || is_whole(value),
            (Value::Null, _) => is("nullable") || kind.is_empty(),
            (Value::String(_), "string")
            | (Value::Bool(_), "boolean")
            | (Value::Number(_), "number")
            | (Value::Array(_), "array")
            | (Value::Object(_), "object")
            | (_, "") => true,
            (Value::Number(_), "integer") => is_whole(value),
            _ => false,
        };
        if !fits {
            let expected = match kind {
                "" => "a whole number or a string",
                "integer" => "a whole number",
                "number" => "a number",
                "boolean" => "a boolean",
                "array" => "a list",
                "object" => "an object",
                _ => "a string",
            };
            return self.wrong(path, format!("expected {expected}, found {}", kind_of(value)));
        }
        if let Some(words) = schema["enum"].as_array()
            && !value.is_null()
            && !words.contains(value)
        {
            let words: Vec<String> =
                words.iter().map(|w| w.as_str().map_or_else(|| w.to_string(), str::to_owned)).collect();
            return self.wrong(path, format!("expected one of {}, found another value", words.join(", ")));
        }
        self.size(schema, value, path);
        match value {
            Value::Object(fields) => self.fields(schema, fields, path, extent),
            Value::Array(items) => self.list(schema, items, path, extent),
            _ => {}
        }
    }

    /// Numbers that are too small or large, and texts, lists and maps that are too short or long.
    fn size(&mut self, schema: &Value, value: &Value, path: &str) {
        let (measure, least, most, unit) = match value {
            Value::Number(n) => (n.as_f64(), "minimum", "maximum", ""),
            // As the API server counts: characters, not bytes.
            Value::String(text) => (size(text.chars().count()), "minLength", "maxLength", " characters"),
            Value::Array(list) => (size(list.len()), "minItems", "maxItems", " entries"),
            Value::Object(fields) => (size(fields.len()), "minProperties", "maxProperties", " fields"),
            Value::Null | Value::Bool(_) => return,
        };
        let Some(measure) = measure else { return };
        for (key, words, is_out) in [
            (least, "at least", schema[least].as_f64().is_some_and(|bound| measure < bound)),
            (most, "at most", schema[most].as_f64().is_some_and(|bound| measure > bound)),
        ] {
            if is_out {
                self.wrong(path, format!("expected {words} {}{unit}", schema[key]));
            }
        }
    }

    fn fields(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str, extent: Extent) {
        let none = Map::new();
        let known = schema["properties"].as_object().unwrap_or(&none);
        // An object without described fields, such as an empty one that stands for a choice, is taken as it is.
        let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true || known.is_empty();
        let is_embedded = schema["x-kubernetes-embedded-resource"] == true;
        // The API server takes a null as if the field were absent, where the schema does not allow null.
        let is_absent = |name: &str| {
            let may_be_null = known.get(name).is_some_and(|schema| schema["nullable"] == true);
            fields.get(name).is_none_or(|value| value.is_null() && !may_be_null)
        };
        for (name, value) in fields {
            let below = step(path, name);
            if let Some(schema) = known.get(name) {
                let is_metadata = path.is_empty() && name == "metadata" && schema.get("properties").is_none();
                let metadata = is_metadata.then(metadata);
                // Only programs write a status. The API server drops the status of an object that somebody creates.
                let is_status = path.is_empty() && name == "status";
                let extent = if is_status { Extent::Part } else { extent };
                if !is_absent(name) {
                    self.value(metadata.as_ref().unwrap_or(schema), value, &below, extent);
                }
            } else if let Some(schema) = schema.get("additionalProperties").filter(|s| s.is_object()) {
                if !value.is_null() {
                    self.value(schema, value, &below, extent);
                }
            } else if !(is_open || is_embedded && OF_ANY_OBJECT.contains(&name.as_str())) {
                let near = nearest(name, known.keys().map(String::as_str), 1, 0.6);
                let remedy = near
                    .first()
                    .map_or_else(|| "remove it".to_owned(), |near| format!("write {near}, or remove it"));
                let whole = self.object.split(' ').next().unwrap_or_default();
                let owner = if path.is_empty() { whole } else { path };
                let message = format!("{name} is not a field of {owner} and has no effect");
                self.say(Severity::Warning, Rule::UnknownField, &below, message, remedy);
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let has_default = known.get(name).is_some_and(|schema| schema.get("default").is_some());
            if extent == Extent::Whole && is_absent(name) && !has_default {
                let message = "is required".to_owned();
                self.say(Severity::Error, Rule::Manifest, &step(path, name), message, "write it".to_owned());
            }
        }
    }

    fn list(&mut self, schema: &Value, items: &[Value], path: &str, extent: Extent) {
        let of_items = if extent == Extent::Patch { Extent::Whole } else { extent };
        for (i, item) in items.iter().enumerate() {
            self.value(&schema["items"], item, &format!("{path}[{i}]"), of_items);
        }
        let keys: Vec<&str> = match schema["x-kubernetes-list-type"].as_str() {
            Some("map") => schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect(),
            Some("set") => vec![],
            _ => return,
        };
        let key = |item: &Value| match keys.as_slice() {
            [] => vec![item.clone()],
            keys => keys
                .iter()
                .map(|key| {
                    let default = &schema["items"]["properties"][*key]["default"];
                    item.get(*key).unwrap_or(default).clone()
                })
                .collect(),
        };
        for (i, item) in items.iter().enumerate() {
            if items[..i].iter().any(|before| key(before) == key(item)) {
                let message = match keys.as_slice() {
                    [] => "is in the list twice".to_owned(),
                    keys => format!("another entry of the list has the same {}", keys.join(", ")),
                };
                let remedy = "remove one of them".to_owned();
                self.say(Severity::Error, Rule::Duplicate, &format!("{path}[{i}]"), message, remedy);
            }
        }
    }
}

fn size(count: usize) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}

fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
}

/// The path of a field. Names that are no identifiers, such as labels, are in brackets.
fn step(path: &str, name: &str) -> String {
    match (path, name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')) {
        ("", true) => name.to_owned(),
        (_, true) => format!("{path}.{name}"),
        (_, false) => format!("{path}[{name}]"),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) if is_whole(value) => "a whole number",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
