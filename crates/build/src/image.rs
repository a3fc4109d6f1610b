//! What an image says of itself, from what `skopeo inspect` prints: its digest, labels and layers, and whether a node can boot it.
//!
//! What it is not: the request to the registry.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Labels of images that a node can boot, the first that is there counts: bootc's, and what OSTree writes into its own images.
const BOOTABLE: [&str; 3] = ["containers.bootc", "ostree.bootable", "ostree.commit"];
/// Labels with the version of the operating system, the first that is there counts.
const VERSION: [&str; 3] = ["org.opencontainers.image.version", "version", "io.openshift.build.version"];
/// The label of the stream that an OS image is of.
const STREAM: &str = "io.openshift.os.streamclass";
/// The label of the kernel of an OSTree image.
const KERNEL: &str = "ostree.linux";

/// What an image says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageFacts {
    /// The image by its digest: what a MachineConfig's `osImageURL` names.
    pub image: String,
    /// For example `amd64`, as Go calls it.
    pub architecture: String,
    /// When it was made.
    pub created: String,
    /// The version of the operating system.
    pub os_version: Option<String>,
    /// The stream that it is of.
    pub stream: Option<String>,
    /// Its kernel.
    pub kernel: Option<String>,
    /// The label by which a node can boot it; without one it is no OS image.
    pub bootable_by: Option<String>,
    /// The size of its layers as they are pulled, in bytes.
    pub size: u64,
    /// Its layers, the lowest first.
    pub layers: Vec<LayerFacts>,
    /// All of its labels.
    pub labels: BTreeMap<String, String>,
}

/// A layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerFacts {
    /// Its digest.
    pub digest: String,
    /// Its size as it is pulled, in bytes.
    pub size: u64,
}

/// Why an answer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Not JSON, or not what was asked for.
    #[error("skopeo's answer cannot be read")]
    Answer(#[from] serde_json::Error),
    /// No image for this architecture.
    #[error("the list of images has none for linux/{0}")]
    Architecture(String),
    /// A digest that is none.
    #[error("the registry names the digest {0:?}, which is none")]
    Digest(String),
}

/// A manifest, or a list of manifests for several architectures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manifest {
    /// One image, with its layers.
    One(Vec<LayerFacts>),
    /// The digest of the image for the architecture that was asked for.
    Listed(String),
}

impl Manifest {
    /// From `skopeo inspect --raw`.
    ///
    /// # Errors
    /// Not a manifest, or a list without this architecture.
    pub fn read(raw: &str, architecture: &str) -> Result<Self, ImageError> {
        #[derive(Deserialize)]
        struct Raw {
            #[serde(default)]
            layers: Vec<LayerFacts>,
            #[serde(default)]
            manifests: Vec<Listed>,
        }
        #[derive(Deserialize)]
        struct Listed {
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
        let raw: Raw = serde_json::from_str(raw)?;
        if raw.manifests.is_empty() {
            return Ok(Self::One(raw.layers));
        }
        let fits = |m: &&Listed| m.platform.os == "linux" && m.platform.architecture == architecture;
        match raw.manifests.iter().find(fits) {
            Some(found) => Ok(Self::Listed(found.digest.clone())),
            None => Err(ImageError::Architecture(architecture.to_owned())),
        }
    }
}

/// The parts of `skopeo inspect` that are read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Inspected {
    /// The image without tag.
    pub name: String,
    /// Its digest, or that of the list it is in.
    pub digest: String,
    /// Its architecture.
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    created: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

impl Inspected {
    /// From `skopeo inspect`.
    ///
    /// # Errors
    /// Not its answer, or a digest that is none.
    pub fn read(text: &str) -> Result<Self, ImageError> {
        let read: Self = serde_json::from_str(text)?;
        if crate::names::is_digest(&read.digest) { Ok(read) } else { Err(ImageError::Digest(read.digest)) }
    }

    /// Together with the layers.
    pub fn with_layers(self, layers: Vec<LayerFacts>) -> ImageFacts {
        let labels = self.labels.unwrap_or_default();
        let first = |keys: &[&'static str]| -> Option<&'static str> {
            keys.iter().copied().find(|k| labels.get(*k).is_some_and(|v| !v.is_empty()))
        };
        let value = |keys: &[&'static str]| first(keys).and_then(|k| labels.get(k)).cloned();
        ImageFacts {
            image: crate::names::by_digest(&self.name, &self.digest),
            architecture: self.architecture,
            created: self.created,
            os_version: value(&VERSION),
            stream: value(&[STREAM]),
            kernel: value(&[KERNEL]),
            bootable_by: first(&BOOTABLE).map(str::to_owned),
            size: layers.iter().fold(0, |sum: u64, l| sum.saturating_add(l.size)),
            layers,
            labels,
        }
    }
}

impl fmt::Display for ImageFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "not said".to_owned());
        writeln!(f, "image         {}", self.image)?;
        writeln!(f, "architecture  {}", self.architecture)?;
        writeln!(f, "OS version    {}", unknown(&self.os_version))?;
        writeln!(f, "kernel        {}", unknown(&self.kernel))?;
        writeln!(f, "stream        {}", unknown(&self.stream))?;
        match &self.bootable_by {
            Some(label) => writeln!(f, "bootable      yes, by its label {label}")?,
            None => {
                writeln!(f, "bootable      not known: it has none of the labels {}", BOOTABLE.join(", "))?;
            }
        }
        writeln!(f, "created       {}", self.created)?;
        writeln!(f, "size          {} in {} layers", megabytes(self.size), self.layers.len())?;
        for layer in &self.layers {
            writeln!(f, "  {:>10}  {}", megabytes(layer.size), layer.digest)?;
        }
        writeln!(f, "labels")?;
        self.labels.iter().try_for_each(|(key, value)| writeln!(f, "  {key}={}", api::text::cut(value, 200)))
    }
}

fn megabytes(bytes: u64) -> String {
    let tenths = bytes.saturating_add(50_000) / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_image_says_is_read_from_skopeos_answers() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let answer = json!({
            "Name": "r.example.com/os", "Digest": digest, "Created": "2026-11-23T14:28:55Z", "Architecture": "amd64",
            "Labels": {"containers.bootc": "1", "ostree.linux": "6.1.0", "version": "42"},
        });
        let layers = json!({"layers": [{"digest": "sha256:1", "size": 1_000_000}, {"digest": "sha256:2", "size": 449_999}]});
        let Manifest::One(layers) = Manifest::read(&layers.to_string(), "amd64").unwrap() else { panic!() };
        let facts = Inspected::read(&answer.to_string()).unwrap().with_layers(layers);
        assert_eq!(facts.image, format!("r.example.com/os@{digest}"));
        let text = facts.to_string();
        for want in [
            "OS version    42\n",
            "yes, by its label containers.bootc",
            "size          1.4 MB in 2 layers",
            "stream        not said",
        ] {
            assert!(text.contains(want), "{text}");
        }
        let none = json!({"Name": "x", "Digest": digest, "Labels": null});
        assert!(
            Inspected::read(&none.to_string()).unwrap().with_layers(vec![]).to_string().contains("not known")
        );
        let lies = json!({"Name": "x", "Digest": "sha256:00"});
        assert!(matches!(Inspected::read(&lies.to_string()), Err(ImageError::Digest(_))));
    }

    #[test]
    fn of_a_list_the_image_for_the_architecture_counts() {
        let of = |os: &str, architecture: &str, digest: &str| json!({"digest": digest, "size": 1, "platform": {"os": os, "architecture": architecture}});
        let list = json!({"manifests": [of("linux", "arm64", "a"), of("linux", "amd64", "b"), of("unknown", "unknown", "c")]});
        let listed = |architecture| Manifest::read(&list.to_string(), architecture);
        assert_eq!(listed("amd64").unwrap(), Manifest::Listed("b".to_owned()));
        assert!(matches!(listed("s390x"), Err(ImageError::Architecture(_))));
        assert!(matches!(Manifest::read("not JSON", "amd64"), Err(ImageError::Answer(_))));
    }
}
