//! Objects from a cluster ([`lists`]) or from files ([`dump`]), as the input of a plan, and with a change applied to them.

pub(crate) mod config_image;
pub(crate) mod cost_key;
pub(crate) mod dump;
pub(crate) mod lists;
pub(crate) mod settings_kinds;

use crate::objects::settings_kinds::FEATURE_GATE;
use api::formats::shape::ShapeError;
use api::names::{CLUSTER, GROUP, annotation};
use api::rendered::RenderedName;
use api::v1::MachineConfig;
use rollout::{Situation, SituationError};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Objects, each with where it comes from: a path, or `the cluster`.
pub type Objects = Vec<(String, Value)>;

/// A MachineConfig that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: MachineConfig {name:?}")]
pub struct UnreadableConfig {
    /// Where it comes from.
    pub origin: String,
    /// Its name.
    pub name: String,
    /// Its first invalid field.
    pub source: ShapeError,
}

/// The cluster that these objects are, as the controller sees it: if the cluster's FeatureGate switches OSImageStreams off, they are
/// ignored. Without what changes cost.
///
/// # Errors
/// An object of a kind that matters and that cannot be read.
pub(crate) fn situation_without_costs(objects: &[(String, Value)]) -> Result<Situation, SituationError> {
    let off = has_no_streams(objects);
    let counts = |value: &Value| !(off && value["kind"] == "OSImageStream");
    let all = objects.iter().filter(|(_, value)| counts(value));
    Situation::from_objects(all.map(|(origin, value)| (origin.as_str(), value)))
}

/// Whether the FeatureGate among the objects switches OSImageStreams off.
pub(crate) fn has_no_streams(objects: &[(String, Value)]) -> bool {
    // Only this one counts, as for the controller.
    let is_gate = |v: &&Value| is(v, FEATURE_GATE.0, FEATURE_GATE.1) && v["metadata"]["name"] == CLUSTER;
    render::streams::switched_off(objects.iter().map(|(_, v)| v).find(is_gate))
}

/// The objects without the FeatureGate, and without OSImageStreams if it switches them off.
pub(crate) fn without_feature_gate(mut objects: Objects) -> Objects {
    let off = has_no_streams(&objects);
    let is_gate = |v: &Value| is(v, FEATURE_GATE.0, FEATURE_GATE.1);
    objects.retain(|(_, v)| !(is_gate(v) || off && is(v, GROUP, "OSImageStream")));
    objects
}

/// MachineConfigs by name, as far as their contents are among the objects.
///
/// # Errors
/// One that cannot be read.
pub fn configs(objects: &[(String, Value)]) -> Result<BTreeMap<String, MachineConfig>, UnreadableConfig> {
    let is_config = |v: &Value| v["kind"] == "MachineConfig" && v["spec"].is_object();
    let all = objects.iter().filter(|(_, v)| is_config(v)).map(|(origin, v)| {
        let name = v["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match api::formats::shape::read(v) {
            Ok(config) => Ok((name, config)),
            Err(source) => Err(UnreadableConfig { origin: origin.clone(), name, source }),
        }
    });
    all.collect()
}

/// What identifies an object: kind, namespace, name.
pub(crate) fn key(value: &Value) -> (String, String, String) {
    let text = |p: &str| value.pointer(p).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// Whether an object is of this API group and kind.
pub(crate) fn is(value: &Value, group: &str, kind: &str) -> bool {
    let version = value["apiVersion"].as_str().and_then(|v| v.split_once('/'));
    value["kind"] == kind && version.map_or("", |(group, _)| group) == group
}

/// The pool whose rendered config this object is; `None` for anything else.
pub fn pool_of(value: &Value) -> Option<String> {
    let is_config = value.get("kind").and_then(Value::as_str) == Some("MachineConfig");
    let name = value.pointer("/metadata/name").and_then(Value::as_str).filter(|_| is_config)?;
    RenderedName::parse(name).filter(RenderedName::is_generated).map(|name| name.pool.to_owned())
}

/// An object of ours as it is in a manifest.
pub fn object<T: serde::Serialize>(of: &T, kind: &str) -> Value {
    let mut value = json!(of);
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".to_owned(), json!(format!("{GROUP}/v1")));
        map.insert("kind".to_owned(), json!(kind));
    }
    value
}

/// The objects with others applied over them, as by `kubectl apply`: objects of the same kind and name are replaced.
pub fn merged_over(mut objects: Objects, given: Objects) -> Objects {
    objects.retain(|(_, v)| !given.iter().any(|(_, g)| key(g) == key(v)));
    objects.extend(given);
    objects
}

/// The objects without the given ones, as after `kubectl delete -f`.
pub(crate) fn without(objects: &Objects, given: &Objects, notes: &mut Vec<String>) -> Objects {
    let mut left = objects.clone();
    for (origin, value) in given {
        let count = left.len();
        left.retain(|(_, v)| key(v) != key(value));
        let name = || format!("{} {}", key(value).0, key(value).2);
        if left.len() == count {
            notes.push(format!("{origin}: {} does not exist; deleting it changes nothing", name()));
        }
        let ours = objects.iter().find(|(_, v)| key(v) == key(value)).is_some_and(|(_, v)| is_made(v));
        if ours {
            notes.push(format!(
                "{}: the controller generates it, and generates it again when it is deleted",
                name()
            ));
        }
    }
    left
}

fn is_made(value: &Value) -> bool {
    is(value, GROUP, "MachineConfig")
        && value["metadata"]["annotations"][annotation::GENERATED_BY_CONTROLLER].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(objects: Vec<Value>) -> Objects {
        objects.into_iter().map(|v| ("a.yaml".to_owned(), v)).collect()
    }

    #[test]
    fn a_config_that_cannot_be_read_is_named_with_its_file_and_field_and_without_its_value() {
        let config =
            |spec: Value| json!({"kind": "MachineConfig", "metadata": {"name": "50-a"}, "spec": spec});
        let error = configs(&from(vec![config(json!({"fips": "hunter2"}))])).unwrap_err();
        let text = api::formats::text::chain(&error);
        assert_eq!(text, "a.yaml: MachineConfig \"50-a\": spec.fips: expected a boolean, found a string");
        // A list of metadata only has no contents.
        let mut bare = config(json!(null));
        bare["spec"].take();
        assert!(configs(&from(vec![bare])).unwrap().is_empty());
        assert!(configs(&from(vec![config(json!({}))])).unwrap().contains_key("50-a"));
    }
}
