//! The documents of an image: its index, its manifest, its config (OCI image specification; Docker's are read too). Pure.
//!
//! What it is not: their digests, which are verified before.
//!
//! Sources: <https://github.com/opencontainers/image-spec/blob/main/manifest.md>,
//! <https://github.com/opencontainers/image-spec/blob/main/image-index.md>
//! and <https://github.com/opencontainers/image-spec/blob/main/config.md>.

use crate::reference::Digest;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The forms of an index and of a manifest that are read.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// A part of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) media_type: String,
}

/// An image in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedImage {
    pub(crate) digest: Digest,
    pub(crate) architecture: String,
}

/// What a reference leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Document {
    /// Images for several architectures: those for Linux.
    Index(Vec<ListedImage>),
    /// One image: its config, and its layers, the lowest first.
    Manifest { config: Descriptor, layers: Vec<Descriptor> },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    schema_version: Option<u32>,
    config: Option<RawPart>,
    layers: Option<Vec<RawPart>>,
    manifests: Option<Vec<RawListed>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPart {
    digest: String,
    size: u64,
    #[serde(default)]
    media_type: String,
}

#[derive(Deserialize)]
struct RawListed {
    digest: String,
    #[serde(default)]
    platform: Platform,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Platform {
    architecture: String,
    os: String,
}

fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text).ok_or_else(|| {
        format!("it names the digest {:?}, which is not a digest", api::formats::text::cut(text, 100))
    })
}

impl RawPart {
    fn part(self) -> Result<Descriptor, String> {
        Ok(Descriptor { digest: digest(&self.digest)?, size: self.size, media_type: self.media_type })
    }
}

impl Document {
    /// Reads an index or a manifest. What could be read as both is neither: two readers would run two images.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let raw: Raw = serde_json::from_slice(bytes).map_err(|e| client::chain(&e))?;
        if raw.schema_version == Some(1) {
            return Err(
                "a manifest of Docker's schema 1, which is not supported any more; push the image again"
                    .to_owned(),
            );
        }
        match raw {
            Raw { config: None, layers: None, manifests: Some(listed), .. } => {
                let linux = listed.into_iter().filter(|l| l.platform.os == "linux");
                let all: Result<Vec<ListedImage>, String> = linux
                    .map(|l| {
                        Ok(ListedImage { digest: digest(&l.digest)?, architecture: l.platform.architecture })
                    })
                    .collect();
                Ok(Self::Index(all?))
            }
            Raw { config: Some(config), layers: Some(layers), manifests: None, .. } => {
                let layers: Result<Vec<Descriptor>, String> = layers.into_iter().map(RawPart::part).collect();
                Ok(Self::Manifest { config: config.part()?, layers: layers? })
            }
            _ => Err("it is neither an index nor a manifest of an image".to_owned()),
        }
    }
}

/// The parts of an image's config that are read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ImageConfig {
    pub(crate) architecture: String,
    pub(crate) os: String,
    pub(crate) created: String,
    config: Option<Runtime>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Runtime {
    #[serde(rename = "Labels")]
    labels: Option<BTreeMap<String, String>>,
}

impl ImageConfig {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|e| client::chain(&e))
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        self.config.as_ref().and_then(|c| c.labels.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn sha(c: char) -> String {
        format!("sha256:{}", c.to_string().repeat(64))
    }

    #[test]
    fn documents_are_told_apart_and_what_is_both_is_refused() {
        let read = |value: Value| Document::read(value.to_string().as_bytes());
        let listed = |os: &str, architecture: &str| json!({"digest": sha('a'), "size": 1, "platform": {"os": os, "architecture": architecture}});
        let index = json!({"schemaVersion": 2, "manifests": [listed("linux", "arm64"), listed("unknown", "unknown"), listed("windows", "amd64")]});
        let arm = ListedImage { digest: Digest::parse(&sha('a')).unwrap(), architecture: "arm64".to_owned() };
        assert_eq!(read(index).unwrap(), Document::Index(vec![arm]));
        let part = json!({"digest": sha('b'), "size": 7, "mediaType": "m"});
        let manifest = json!({"schemaVersion": 2, "config": part, "layers": [part]});
        assert!(matches!(read(manifest).unwrap(), Document::Manifest { layers, .. } if layers[0].size == 7));
        for (bad, words) in [
            (json!({"config": part, "layers": [], "manifests": []}), "neither"),
            (json!({}), "neither"),
            (json!({"schemaVersion": 1}), "schema 1"),
            (json!({"config": part, "layers": [{"digest": "sha256:x", "size": 1}]}), "is not a digest"),
            (json!({"config": part, "layers": [{"digest": sha('a'), "size": -1}]}), "cannot be read"),
            (json!([]), "cannot be read"),
        ] {
            let why = read(bad.clone()).unwrap_err();
            assert!(why.contains(words), "{bad}: {why}");
        }
    }

    #[test]
    fn labels_may_be_missing_or_null() {
        for text in ["{}", "{\"config\":null}", "{\"config\":{}}", "{\"config\":{\"Labels\":null}}"] {
            assert!(ImageConfig::read(text.as_bytes()).unwrap().labels().is_empty(), "{text}");
        }
        let config = ImageConfig::read(b"{\"config\":{\"Labels\":{\"a\":\"b\"}}}").unwrap();
        assert_eq!(config.labels().get("a").map(String::as_str), Some("b"));
    }
}
