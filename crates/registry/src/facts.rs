//! What an image says of itself: its digest, architectures, labels and layers, and whether a node can boot it. Pure.
//!
//! What it is not: the request to the registry (see [`crate::Registry`]).
//!
//! Sources: <https://github.com/opencontainers/image-spec/blob/main/config.md>
//! and <https://github.com/opencontainers/image-spec/blob/main/annotations.md>.

use api::images::os_image::{BOOTABLE_LABELS, bootable_by};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Labels with the version of the operating system, the first that is there counts.
const VERSION: [&str; 3] = ["org.opencontainers.image.version", "version", "io.openshift.build.version"];
/// The label of the stream that an OS image is of.
pub const STREAM: &str = "io.openshift.os.streamclass";
/// The label of the kernel of an OSTree image.
const KERNEL: &str = "ostree.linux";
/// The label of an image of extensions.
const EXTENSIONS: &str = "io.openshift.os.extensions";

/// What an image says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageFacts {
    /// The image by its digest: what a MachineConfig's `osImageURL` names.
    pub image: String,
    /// The architecture that was looked at, for example `amd64`, as Go calls it.
    pub architecture: String,
    /// All architectures that the image is for.
    pub architectures: Vec<String>,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerFacts {
    /// Its digest.
    pub digest: String,
    /// Its size as it is pulled, in bytes.
    pub size: u64,
}

/// What a label says: `true` and `1` are yes, in any case.
fn is_yes(value: &str) -> bool {
    value.eq_ignore_ascii_case("true") || value == "1"
}

impl ImageFacts {
    /// From the image's labels.
    pub(crate) fn with_labels(self, labels: BTreeMap<String, String>) -> Self {
        let first = |keys: &[&'static str]| -> Option<&'static str> {
            keys.iter().copied().find(|k| labels.get(*k).is_some_and(|v| !v.is_empty()))
        };
        let value = |keys: &[&'static str]| first(keys).and_then(|k| labels.get(k)).cloned();
        Self {
            os_version: value(&VERSION),
            stream: value(&[STREAM]),
            kernel: value(&[KERNEL]),
            bootable_by: bootable_by(&labels).map(str::to_owned),
            labels,
            ..self
        }
    }

    /// Whether it is an image of extensions for an OS image.
    #[must_use]
    pub fn is_extensions(&self) -> bool {
        self.labels.get(EXTENSIONS).is_some_and(|v| is_yes(v))
    }
}

impl fmt::Display for ImageFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "not said".to_owned());
        writeln!(f, "image         {}", self.image)?;
        writeln!(f, "architecture  {}", self.architecture)?;
        if self.architectures.len() > 1 {
            writeln!(f, "also for      {}", self.others().join(", "))?;
        }
        writeln!(f, "OS version    {}", unknown(&self.os_version))?;
        writeln!(f, "kernel        {}", unknown(&self.kernel))?;
        writeln!(f, "stream        {}", unknown(&self.stream))?;
        match &self.bootable_by {
            Some(label) => writeln!(f, "bootable      yes, by its label {label}"),
            None if self.is_extensions() => {
                writeln!(f, "bootable      no, it holds extensions of an OS image")
            }
            None => {
                writeln!(
                    f,
                    "bootable      not known: none of the labels {} says so",
                    BOOTABLE_LABELS.join(", ")
                )
            }
        }?;
        writeln!(f, "created       {}", self.created)?;
        writeln!(f, "size          {} in {} layers", megabytes(self.size), self.layers.len())?;
        for layer in &self.layers {
            writeln!(f, "  {:>10}  {}", megabytes(layer.size), layer.digest)?;
        }
        writeln!(f, "labels")?;
        self.labels
            .iter()
            .try_for_each(|(key, value)| writeln!(f, "  {key}={}", api::formats::text::cut(value, 200)))
    }
}

impl ImageFacts {
    fn others(&self) -> Vec<&str> {
        self.architectures.iter().map(String::as_str).filter(|a| *a != self.architecture).collect()
    }
}

fn megabytes(bytes: u64) -> String {
    let tenths = bytes.saturating_add(50_000) / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(labels: &[(&str, &str)]) -> ImageFacts {
        ImageFacts::default()
            .with_labels(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn labels_say_whether_a_node_can_boot_the_image() {
        for (labels, by) in [
            (vec![("containers.bootc", "1"), ("ostree.commit", "x")], Some("containers.bootc")),
            (vec![("containers.bootc", "True")], Some("containers.bootc")),
            // The nodes' own check has these rows, too.
            (vec![("containers.bootc", "2")], Some("containers.bootc")),
            (vec![("containers.bootc", "false")], None),
            (vec![("containers.bootc", "")], None),
            (vec![("containers.bootc", "0"), ("ostree.bootable", "true")], Some("ostree.bootable")),
            (vec![("ostree.commit", "0a")], Some("ostree.commit")),
            (vec![("ostree.commit", "")], None),
            (vec![], None),
        ] {
            assert_eq!(facts(&labels).bootable_by.as_deref(), by, "{labels:?}");
        }
        assert!(facts(&[("io.openshift.os.extensions", "true")]).is_extensions());
        assert!(!facts(&[("io.openshift.os.extensions", "no")]).is_extensions());
    }

    #[test]
    fn what_is_said_reads_well() {
        let layers =
            [1_000_000, 449_999].map(|size| LayerFacts { digest: "sha256:1".to_owned(), size }).to_vec();
        let both = ["amd64", "arm64"].map(str::to_owned);
        let of = ImageFacts {
            layers,
            size: 1_449_999,
            architecture: "amd64".to_owned(),
            architectures: both.to_vec(),
            ..ImageFacts::default()
        };
        let text = of.with_labels([("version".to_owned(), "42".to_owned())].into()).to_string();
        for want in [
            "OS version    42\n",
            "bootable      not known",
            "size          1.4 MB in 2 layers",
            "stream        not said",
            "also for      arm64\n",
            "  version=42\n",
        ] {
            assert!(text.contains(want), "{text}");
        }
    }
}
