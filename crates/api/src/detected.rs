//! Values that were detected or guessed and then written into an object, beside values that people wrote there: an
//! annotation records each such value under its field's name.
//!
//! A field whose value is still the recorded one is ours to keep up to date. A field with another value is the
//! administrator's, and stays.
//!
//! What it is not: the detection (see `rollout::topology` and `mco install`).

use crate::k8s::ObjectMeta;
use crate::names::annotation::FOUND_OUT;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// `spec.infra.status.controlPlaneTopology` of the ControllerConfig.
pub const CONTROL_PLANE_TOPOLOGY: &str = "controlPlaneTopology";
/// `spec.infra.status.infrastructureTopology` of the ControllerConfig.
pub const INFRASTRUCTURE_TOPOLOGY: &str = "infrastructureTopology";
/// `spec.infra.status.apiServerInternalURI` and `.apiServerURL` of the ControllerConfig.
pub const API_SERVER_URL: &str = "apiServerInternalURI";
/// `spec.clusterDNSIP` of the ControllerConfig.
pub const CLUSTER_DNS_IP: &str = "clusterDNSIP";
/// `spec.ipFamilies` of the ControllerConfig.
pub const IP_FAMILIES: &str = "ipFamilies";
/// `spec.kubeAPIServerServingCAData` and `.rootCAData` of the ControllerConfig; recorded by their SHA-256.
pub const API_SERVER_CA: &str = "kubeAPIServerServingCAData";
/// `spec.replicas` of the controller's Deployment.
pub const REPLICAS: &str = "replicas";

/// The record of a value that is too long to be recorded itself: its SHA-256, in hex.
pub fn digest(value: &[u8]) -> String {
    crate::formats::text::hex(&Sha256::digest(value))
}

/// The record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detected(BTreeMap<String, String>);

impl Detected {
    /// The record in an object's annotation. If it cannot be read it counts as empty, so that every value is the
    /// administrator's.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let text = metadata.annotations.as_ref().and_then(|a| a.get(FOUND_OUT));
        Self(text.and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default())
    }

    /// The recorded value of a field.
    pub fn get(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    /// Whether this value of a field is the recorded one.
    pub fn is_ours(&self, field: &str, value: &str) -> bool {
        self.get(field) == Some(value)
    }

    /// Records a value.
    pub fn set(&mut self, field: &str, value: impl Into<String>) {
        self.0.insert(field.to_owned(), value.into());
    }

    /// Removes a field from the record: its value is then the administrator's.
    pub fn forget(&mut self, field: &str) {
        self.0.remove(field);
    }

    /// The annotation's value; `None` if nothing is recorded.
    pub fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| serde_json::json!(self.0).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_round_trips_and_a_damaged_one_counts_as_empty() {
        let mut found = Detected::default();
        assert_eq!(found.text(), None);
        found.set(CLUSTER_DNS_IP, "10.96.0.10");
        found.set(REPLICAS, "2");
        found.forget(REPLICAS);
        let metadata = |text: String| ObjectMeta {
            annotations: Some([(FOUND_OUT.to_owned(), text)].into()),
            ..ObjectMeta::default()
        };
        assert_eq!(Detected::of(&metadata(found.text().unwrap())), found);
        assert!(found.is_ours(CLUSTER_DNS_IP, "10.96.0.10") && !found.is_ours(CLUSTER_DNS_IP, "10.43.0.10"));
        for broken in ["", "{", "[]", "{\"replicas\": 2}"] {
            assert_eq!(Detected::of(&metadata(broken.to_owned())), Detected::default(), "{broken}");
        }
    }
}
