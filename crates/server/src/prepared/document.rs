//! A MachineConfig as JSON text with the reference's order of fields and its escapes, so that the files on the machine
//! are the same byte for byte. Pure.
//!
//! What it is not: a general JSON writer. It only knows the order of MachineConfig and its metadata.
//!
//! Source: <https://pkg.go.dev/encoding/json#Marshal>.

use api::v1::MachineConfig;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};

/// The order of a MachineConfig's fields.
const OBJECT: [&str; 4] = ["kind", "apiVersion", "metadata", "spec"];
/// The order of the metadata's fields.
const METADATA: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];
/// The order of an owner reference's fields.
const OWNER: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
/// The order of the spec's fields.
const SPEC: [&str; 7] = [
    "osImageURL",
    "baseOSExtensionsContainerImage",
    "config",
    "kernelArguments",
    "extensions",
    "fips",
    "kernelType",
];

/// The object on one line.
///
/// # Errors
/// None that is known; the types allow it.
pub fn line(config: &MachineConfig) -> Result<String, serde_json::Error> {
    let value = value(config)?;
    Ok(escape(&serde_json::to_string(&Ordered { value: &value, order: &OBJECT })?))
}

/// The object over many lines, indented by four spaces.
///
/// # Errors
/// None that is known; the types allow it.
pub fn indented(config: &MachineConfig) -> Result<String, serde_json::Error> {
    let value = value(config)?;
    let mut out = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    Ordered { value: &value, order: &OBJECT }
        .serialize(&mut serde_json::Serializer::with_formatter(&mut out, format))?;
    Ok(escape(&String::from_utf8_lossy(&out)))
}

/// The object with all the fields that the reference writes. Managed fields are left out; machines do not need them.
fn value(config: &MachineConfig) -> Result<Value, serde_json::Error> {
    let mut metadata = config.metadata.clone();
    metadata.managed_fields = None;
    let mut spec: Map<String, Value> = match serde_json::to_value(&config.spec)? {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    for list in ["kernelArguments", "extensions"] {
        spec.entry(list).or_insert(Value::Null);
    }
    Ok(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": metadata,
        "spec": spec,
    }))
}

/// Go escapes `<`, `>`, `&` and two line separators, which only occur in strings. The rest is plain JSON.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    out
}

/// An object with its fields in the given order, followed by all others by name.
struct Ordered<'a> {
    value: &'a Value,
    order: &'a [&'a str],
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let fields = match self.value {
            Value::Object(fields) => fields,
            Value::Array(items) => {
                return s.collect_seq(items.iter().map(|value| Ordered { value, order: self.order }));
            }
            other => return other.serialize(s),
        };
        let placed = self.order.iter().filter_map(|name| fields.get_key_value(*name));
        let rest = fields.iter().filter(|(name, _)| !self.order.contains(&name.as_str()));
        let mut map = s.serialize_map(Some(fields.len()))?;
        for (name, value) in placed.chain(rest) {
            match within(self.order, name) {
                Some(order) => map.serialize_entry(name, &Ordered { value, order })?,
                None => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

/// The order within a field, if it has one.
fn within(order: &[&str], field: &str) -> Option<&'static [&'static str]> {
    match (order.first().copied(), field) {
        (Some("kind"), "metadata") => Some(&METADATA),
        (Some("kind"), "spec") => Some(&SPEC),
        (Some("name"), "ownerReferences") => Some(&OWNER),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk() -> MachineConfig {
        serde_json::from_value(json!({
            "metadata": {
                "annotations": {"b": "<&>", "a": "1"},
                "name": "rendered-x",
                "managedFields": [{"manager": "m"}],
                "ownerReferences": [{
                    "name": "x", "uid": "", "kind": "MachineConfigPool", "apiVersion": "v1",
                    "blockOwnerDeletion": true, "controller": true,
                }],
            },
            "spec": {"config": {"storage": {}, "ignition": {"version": "3.5.0"}}, "extensions": ["z", "a"]},
        }))
        .unwrap()
    }

    #[test]
    fn fields_stand_in_the_reference_order_with_its_escapes() {
        let want = concat!(
            r#"{"kind":"MachineConfig","apiVersion":"machineconfiguration.openshift.io/v1","metadata":{"#,
            r#""name":"rendered-x","annotations":{"a":"1","b":"\u003c\u0026\u003e"},"ownerReferences":[{"#,
            r#""apiVersion":"v1","kind":"MachineConfigPool","name":"x","uid":"","controller":true,"#,
            r#""blockOwnerDeletion":true}]},"spec":{"osImageURL":"","baseOSExtensionsContainerImage":"","#,
            r#""config":{"ignition":{"version":"3.5.0"},"storage":{}},"kernelArguments":null,"#,
            r#""extensions":["z","a"],"fips":false,"kernelType":""}}"#,
        );
        assert_eq!(line(&mk()).unwrap(), want);
    }

    #[test]
    fn both_forms_say_the_same() {
        let (one, many) = (line(&mk()).unwrap(), indented(&mk()).unwrap());
        assert!(many.starts_with("{\n    \"kind\": \"MachineConfig\",\n    \"apiVersion\""), "{many}");
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(read(&one), read(&many));
    }
}
