//! Decodes a typed object from an untyped one. Watches of our own kinds receive objects undecoded, so that a malformed
//! one can be named and skipped.

use kube::core::DynamicObject;
use serde::de::DeserializeOwned;

/// The typed object, or why it cannot be decoded.
///
/// # Errors
/// The field and what is wrong with it, in one line.
pub fn decode<K: DeserializeOwned>(object: DynamicObject) -> Result<K, String> {
    let metadata = serde_json::to_value(&object.metadata).map_err(|e| e.to_string())?;
    let mut data = object.data;
    let Some(fields) = data.as_object_mut() else { return Err("not a JSON object".to_owned()) };
    fields.insert("metadata".to_owned(), metadata);
    api::formats::shape::read(&data).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1::MachineConfigPool;
    use serde_json::json;

    #[test]
    fn the_error_of_a_malformed_object_names_the_field() {
        let object = |spec: serde_json::Value| -> DynamicObject {
            let name = json!({"name": "worker"});
            serde_json::from_value(json!({"apiVersion": "g/v1", "kind": "K", "metadata": name, "spec": spec}))
                .unwrap()
        };
        let pool: MachineConfigPool = decode(object(json!({"paused": true}))).unwrap();
        assert_eq!((pool.metadata.name.as_deref(), pool.spec.paused), (Some("worker"), true));
        let why = decode::<MachineConfigPool>(object(json!({"paused": "yes"}))).unwrap_err();
        assert!(why.contains("paused"), "{why}");
        let nothing = DynamicObject { data: json!(null), ..object(json!({})) };
        assert_eq!(decode::<MachineConfigPool>(nothing).unwrap_err(), "not a JSON object");
    }
}
