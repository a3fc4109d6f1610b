//! Objects, from a cluster or from files, as what a plan is made over. Pure.
//!
//! What it is not: the reading of files and lists.

use api::shape::ShapeError;
use api::v1::MachineConfig;
use rollout::{Situation, SituationError};
use serde_json::Value;
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
    /// Its first field that is not as its kind has it.
    pub source: ShapeError,
}

/// The cluster that these objects are, as the controller sees it: where the cluster's FeatureGate switches OSImageStreams
/// off, these do not count.
///
/// # Errors
/// An object of a kind that matters and that cannot be read.
pub fn situation(objects: &[(String, Value)]) -> Result<Situation, SituationError> {
    let is_gate = |v: &&Value| v["kind"] == "FeatureGate" && v["metadata"]["name"] == api::names::CLUSTER;
    let off = render::streams::switched_off(objects.iter().map(|(_, v)| v).find(is_gate));
    let counts = |value: &Value| !(off && value["kind"] == "OSImageStream");
    let all = objects.iter().filter(|(_, value)| counts(value));
    Situation::from_objects(all.map(|(origin, value)| (origin.as_str(), value)))
}

/// MachineConfigs by name, of those whose contents are there.
///
/// # Errors
/// One that cannot be read.
pub fn configs(objects: &[(String, Value)]) -> Result<BTreeMap<String, MachineConfig>, UnreadableConfig> {
    let is_config = |v: &Value| v["kind"] == "MachineConfig" && v["spec"].is_object();
    let all = objects.iter().filter(|(_, v)| is_config(v)).map(|(origin, v)| {
        let name = v["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match api::shape::read(v) {
            Ok(config) => Ok((name, config)),
            Err(source) => Err(UnreadableConfig { origin: origin.clone(), name, source }),
        }
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn from(objects: Vec<Value>) -> Objects {
        objects.into_iter().map(|v| ("a.yaml".to_owned(), v)).collect()
    }

    #[test]
    fn a_config_that_cannot_be_read_is_named_with_its_file_and_field_and_without_its_value() {
        let config =
            |spec: Value| json!({"kind": "MachineConfig", "metadata": {"name": "50-a"}, "spec": spec});
        let error = configs(&from(vec![config(json!({"fips": "hunter2"}))])).unwrap_err();
        let text = api::text::chain(&error);
        assert_eq!(text, "a.yaml: MachineConfig \"50-a\": spec.fips: expected a boolean, found a string");
        // A list of metadata only has no contents.
        let mut bare = config(json!(null));
        bare["spec"].take();
        assert!(configs(&from(vec![bare])).unwrap().is_empty());
        assert!(configs(&from(vec![config(json!({}))])).unwrap().contains_key("50-a"));
    }
}
