//! JSON merge patches (RFC 7396): the difference between two values of one object, bound to the version of the first.
//!
//! What it is not: the choice of what to write, or the request.
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc7396>.

use serde_json::{Map, Value, json};

/// The merge patch (RFC 7396) that turns `old` into `new`; `None` if they are equal. Fields that neither has stay as
/// they are.
pub fn difference(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut patch = Map::new();
            for key in old.keys().filter(|k| !new.contains_key(*k)) {
                patch.insert(key.clone(), Value::Null);
            }
            for (key, value) in new {
                let changed = match old.get(key) {
                    Some(before) => difference(before, value),
                    None => Some(value.clone()),
                };
                patch.extend(changed.map(|c| (key.clone(), c)));
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ => (old != new).then(|| new.clone()),
    }
}

/// A patch of one part of an object (`spec`, `status`), refused by the API server when the object has changed since
/// `version`.
pub fn bound_to_version(part: &str, patch: &Value, version: Option<&str>) -> Value {
    json!({ "metadata": { "resourceVersion": version }, part: patch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_holds_only_what_differs_and_removes_what_is_gone() {
        let rows = [
            (
                json!({"a": 1, "b": {"c": 2, "d": 3}}),
                json!({"a": 1, "b": {"c": 2, "d": 4}}),
                json!({"b": {"d": 4}}),
            ),
            (json!({"a": 1}), json!({}), json!({"a": null})),
            (json!({"l": [1, 2]}), json!({"l": [2]}), json!({"l": [2]})),
            (json!({}), json!({"n": {"x": 1}}), json!({"n": {"x": 1}})),
        ];
        for (old, new, want) in rows {
            let patch = difference(&old, &new).unwrap();
            assert_eq!(patch, want);
            let mut patched = old;
            json_patch::merge(&mut patched, &patch);
            assert_eq!(patched, new);
        }
        assert_eq!(difference(&json!({"a": [1]}), &json!({"a": [1]})), None);
    }
}
