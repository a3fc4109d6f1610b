//! PinnedImageSet: images that the nodes of pools pull before they are needed, and keep. A set is for the pools whose
//! `machineConfigSelector` fits its labels.
//!
//! What it is not: how far a node is with it, which its MachineConfigNode says.
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types_pinnedimageset.go>.

use super::NoStatus;
use crate::k8s::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

crate::definition::resource::resource!(
    /// Images that nodes pull beforehand and keep.
    PinnedImageSet, PinnedImageSetSpec, NoStatus,
    "machineconfiguration.openshift.io", "v1", "pinnedimagesets"
);

/// The images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedImageSetSpec {
    /// The images, each once.
    #[serde(default)]
    pub pinned_images: Vec<PinnedImage>,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PinnedImage {
    /// Registry, repository and digest: `registry.example.com/team/app@sha256:…`.
    #[serde(default)]
    pub name: String,
}

impl PinnedImageSet {
    /// The set's generation as a MachineConfigNode reports it; 1 if the API server gave none.
    pub fn generation(&self) -> i32 {
        Self::generation_in(&self.metadata)
    }

    /// The same, of a set of which nothing but the metadata was read.
    pub fn generation_in(metadata: &ObjectMeta) -> i32 {
        metadata.generation.and_then(|g| i32::try_from(g).ok()).unwrap_or(1).max(1)
    }
}

/// How far a node is with one set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PinnedImageSetState {
    /// The set.
    #[serde(default)]
    pub name: String,
    /// The generation that the node should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_generation: Option<i32>,
    /// The generation that the node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_generation: Option<i32>,
    /// The last generation that failed on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failed_generation: Option<i32>,
    /// Why that generation failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failed_generation_error: Option<String>,
}

/// Why an image cannot be pinned by this name; `None` if it can. What the API server refuses by the rule of the CRD.
pub fn not_pinnable(image: &str) -> Option<&'static str> {
    let (name, digest) = match image.split_once('@') {
        Some(both) => both,
        None => return Some("has no digest; a tag may be another image tomorrow"),
    };
    if !crate::formats::image_name::is_digest(digest) {
        return Some("has a digest that is not sha256: and 64 lower-case hexadecimal digits");
    }
    let Some((host, path)) = name.split_once('/') else { return Some("names no registry") };
    let (host, port) = host.split_once(':').unwrap_or((host, "443"));
    let labels: Vec<&str> = host.split('.').collect();
    let word = |text: &str, more: &[u8]| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || more.contains(&b))
    };
    if labels.len() < 2 || !labels.iter().all(|l| word(l, b"")) {
        return Some("names no registry by its domain");
    }
    if !(2..=5).contains(&port.len()) || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Some("has a port that is not two to five digits");
    }
    (!path.split('/').all(|part| word(part, b"_.")))
        .then_some("has a repository with characters other than a-z, 0-9, -, _ and .")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_pinned_by_registry_and_digest() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for name in ["registry.example.com/app", "10.0.0.1:5000/a/b/c_d.e", "registry.ns.svc:5000/ns/app"] {
            assert_eq!(not_pinnable(&format!("{name}@{digest}")), None, "{name}");
        }
        for (image, word) in [
            ("registry.example.com/app:1".to_owned(), "no digest"),
            ("registry.example.com/app@sha256:12".to_owned(), "64"),
            (format!("registry.example.com/app@{}", digest.to_uppercase()), "64"),
            (format!("app@{digest}"), "no registry"),
            (format!("localhost:5000/app@{digest}"), "domain"),
            (format!("registry.example.com:5/app@{digest}"), "port"),
            (format!("registry.example.com/app:1@{digest}"), "characters"),
            (format!("registry.example.com//app@{digest}"), "characters"),
        ] {
            assert!(not_pinnable(&image).is_some_and(|why| why.contains(word)), "{image}");
        }
    }
}
