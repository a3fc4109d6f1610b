//! Whether nodes may go to the image that their next config names: its tag is resolved to a digest first, so that all of them get
//! the same, and what no node of the pool can run is refused before the first one is drained, as far as the image's labels tell.
//!
//! A node whose config names the same image already does not wait: for it the image does not change.
//!
//! What it is not: the look at the image, which the controller takes (`api::images::os_image` is what it leaves on the config), or images
//! that are built in the cluster (see `layered`).

use crate::view::NodeView;
use api::formats::text::cut;
use api::images::os_image::{OsImage, is_by_digest, is_in_registry};
use api::names::own;
use api::v1::MachineConfigPool;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The label of a node's architecture.
const ARCHITECTURE: &str = "kubernetes.io/arch";
/// Characters of what a registry says.
const WORDS: usize = 1000;

/// What the controller has found out about a config's image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageLookup {
    /// It cannot be known: the plan is made from files.
    #[default]
    NotKnown,
    /// Nothing yet.
    NotYet,
    /// This.
    Found(OsImage),
}

impl ImageLookup {
    /// From a rendered config's annotations and its `osImageURL`.
    pub fn of(annotations: Option<&BTreeMap<String, String>>, url: &str) -> Self {
        OsImage::read(annotations, url).map_or(Self::NotYet, Self::Found)
    }
}

/// Why nodes do not go to an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum OsImageWait {
    /// It is being looked into.
    Looking {
        /// The image.
        image: String,
    },
    /// Its tag cannot be resolved, for now.
    Unknown {
        /// The image.
        image: String,
        /// Why.
        why: String,
    },
    /// No node of the pool can run it, or one cannot.
    Refused {
        /// The image.
        image: String,
        /// Why.
        why: String,
    },
}

impl OsImageWait {
    /// Whether it ends by itself within moments.
    pub fn is_underway(&self) -> bool {
        matches!(self, Self::Looking { .. })
    }

    /// Whether it stays until somebody names another image.
    pub(crate) fn needs_a_person(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

impl fmt::Display for OsImageWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Looking { image } => write!(f, "osImageURL {image} is being looked into"),
            Self::Unknown { image, why } => write!(
                f,
                "osImageURL {image} cannot be resolved to a digest, so that all nodes get the same image: {}; it is tried again. \
                 Name the image by its digest, or set the pool's annotation {}={} if nodes reach the registry and the controller \
                 does not",
                cut(why, WORDS),
                own::OS_IMAGES,
                own::AS_THEY_ARE
            ),
            Self::Refused { image, why } => {
                write!(
                    f,
                    "osImageURL {image} is refused: {}; name another image, or set the pool's annotation {}={} if its nodes run it all \
                 the same",
                    cut(why, WORDS),
                    own::OS_IMAGES,
                    own::AS_THEY_ARE
                )
            }
        }
    }
}

/// What is known of the image that a pool's config names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsImageInput {
    /// `osImageURL`.
    image: Box<str>,
    /// What was found out; `None`: nothing yet.
    found: Option<OsImage>,
    /// The configs of nodes that name the same image.
    alike: BTreeSet<Arc<str>>,
}

impl OsImageInput {
    /// `None`: nothing that nodes would have to wait for. `alike`: the configs of nodes that name the same image.
    pub(crate) fn of(
        pool: &MachineConfigPool,
        (url, looked): (&str, &ImageLookup),
        alike: impl FnOnce() -> BTreeSet<Arc<str>>,
    ) -> Option<Self> {
        if !is_in_registry(url) || skips_inspection(pool) {
            return None;
        }
        let found = match looked {
            ImageLookup::NotKnown => return None,
            ImageLookup::NotYet => None,
            ImageLookup::Found(found) => Some(found.clone()),
        };
        Some(Self { image: url.into(), found, alike: alike() })
    }

    /// Why nodes that could go wait. Only those whose image would change count.
    pub(crate) fn wait<'n>(&self, nodes: impl Iterator<Item = &'n NodeView>) -> Option<OsImageWait> {
        let changes = |n: &&NodeView| !n.current_config.as_ref().is_some_and(|c| self.alike.contains(c));
        let nodes: Vec<&NodeView> = nodes.filter(changes).collect();
        if nodes.is_empty() {
            return None;
        }
        let image = || self.image.to_string();
        let Some(found) = &self.found else {
            // Other nodes of the pool follow the tag already, and nobody looks any more.
            return self.alike.is_empty().then(|| OsImageWait::Looking { image: image() });
        };
        if !found.refused.is_empty() {
            return Some(OsImageWait::Refused { image: image(), why: found.refused.clone() });
        }
        if let Some(why) = self.other_architecture(found, &nodes) {
            return Some(OsImageWait::Refused { image: image(), why });
        }
        let unknown = !found.unknown.is_empty() && !is_by_digest(&self.image) && self.alike.is_empty();
        unknown.then(|| OsImageWait::Unknown { image: image(), why: found.unknown.clone() })
    }

    fn other_architecture(&self, found: &OsImage, nodes: &[&NodeView]) -> Option<String> {
        let is_for = |n: &NodeView| {
            let own = n.labels.get(ARCHITECTURE).filter(|a| !a.is_empty());
            own.is_none_or(|own| found.architectures.iter().any(|a| a == own))
        };
        let other = nodes.iter().find(|n| !found.architectures.is_empty() && !is_for(n))?;
        let own = other.labels.get(ARCHITECTURE).unwrap_or_default();
        Some(format!("it is for {}, and node {} is {own}", found.architectures.join(", "), other.name))
    }
}

/// Whether the images of this pool are not looked into, by [`own::OS_IMAGES`].
pub fn skips_inspection(pool: &MachineConfigPool) -> bool {
    let notes = pool.metadata.annotations.as_ref();
    notes.and_then(|a| a.get(own::OS_IMAGES)).is_some_and(|value| value == own::AS_THEY_ARE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(config: &str, architecture: &str) -> NodeView {
        let node = json!({"metadata": {"name": "n", "labels": {ARCHITECTURE: architecture},
            "annotations": {"machineconfiguration.openshift.io/currentConfig": config}}});
        NodeView::from_node(&serde_json::from_value(node).unwrap())
    }

    fn input(url: &str, looked: &ImageLookup, annotation: &str, in_use: bool) -> Option<OsImageInput> {
        let pool =
            json!({"metadata": {"name": "worker", "annotations": {own::OS_IMAGES: annotation}}, "spec": {}});
        OsImageInput::of(&serde_json::from_value(pool).unwrap(), (url, looked), || {
            in_use.then(|| "same".into()).into_iter().collect()
        })
    }

    #[test]
    fn nodes_wait_until_their_next_image_is_known_and_only_they() {
        let found = |change: fn(&mut OsImage)| {
            let mut found = OsImage {
                of: "q.io/os:1".to_owned(),
                image: "i".to_owned(),
                architectures: vec!["amd64".to_owned()],
                ..OsImage::default()
            };
            change(&mut found);
            ImageLookup::Found(found)
        };
        let digest = format!("q.io/os@sha256:{}", "0".repeat(64));
        let unknown = |f: &mut OsImage| f.unknown = "it is away".to_owned();
        // Columns: the image, what was found out, the node's config and architecture, and what the wait says.
        for (about, url, looked, config, architecture, want) in [
            (
                "not looked into yet",
                "q.io/os:1",
                ImageLookup::NotYet,
                "old",
                "amd64",
                Some("is being looked into"),
            ),
            ("by digest too", &*digest, ImageLookup::NotYet, "old", "amd64", Some("is being looked into")),
            ("the node has it", "q.io/os:1", ImageLookup::NotYet, "same", "amd64", None),
            ("others follow the tag", "q.io/os:1", ImageLookup::NotYet, "old+", "amd64", None),
            ("known", "q.io/os:1", found(|_| {}), "old", "amd64", None),
            (
                "another architecture",
                "q.io/os:1",
                found(|_| {}),
                "old",
                "arm64",
                Some("for amd64, and node n is arm64"),
            ),
            ("the node has it, whatever it is", "q.io/os:1", found(|_| {}), "same", "arm64", None),
            ("the node says nothing", "q.io/os:1", found(|_| {}), "old", "", None),
            (
                "refused",
                "q.io/os:1",
                found(|f| f.refused = "no OS".to_owned()),
                "old",
                "amd64",
                Some("is refused: no OS"),
            ),
            (
                "a tag, registry away",
                "q.io/os:1",
                found(unknown),
                "old",
                "amd64",
                Some("it is away; it is tried again"),
            ),
            ("a digest, registry away", &*digest, found(unknown), "old", "amd64", None),
            ("from files", "q.io/os:1", ImageLookup::NotKnown, "old", "amd64", None),
            ("a short name", "os:1", ImageLookup::NotYet, "old", "amd64", None),
            ("no image", "", ImageLookup::NotYet, "old", "amd64", None),
        ] {
            let in_use = config != "old";
            let wait = input(url, &looked, "", in_use)
                .and_then(|i| i.wait([&node(config, architecture)].into_iter()));
            let said = wait.map(|w| w.to_string());
            assert_eq!(said.is_some(), want.is_some(), "{about}: {said:?}");
            assert!(said.unwrap_or_default().contains(want.unwrap_or_default()), "{about}");
        }
        assert_eq!(input("q.io/os:1", &ImageLookup::NotYet, own::AS_THEY_ARE, false), None);
        assert_eq!(input("q.io/os:1", &ImageLookup::NotYet, "", false).unwrap().wait([].into_iter()), None);
    }
}
