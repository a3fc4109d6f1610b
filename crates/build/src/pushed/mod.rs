//! What builds have pushed to registries, and when it goes from there: images of builds that are gone, and layers of a
//! MachineOSConfig that is gone or keeps its layers elsewhere. Pure.
//!
//! The list of it is a ConfigMap ([`LIST`]) with one key for each image, so that nothing is forgotten: an image is on the
//! list before its build's status says that it succeeded, and leaves it when the registry has deleted it. Builds may go
//! meanwhile in any way, by this controller, by a person, or by the API server's garbage collection.
//!
//! A build that does not succeed may have pushed an image, too, and nobody knows its digest. So the tag of a build is on
//! the list before its Job is there. When the build has succeeded, the tag leaves the list. When it has ended in any other
//! way, the registry is asked for the tag, and what it names is on the list by its digest from then on.
//!
//! Nothing goes that anything names: a build or a MachineOSConfig, a node (the image that it runs, is to run, or ran before
//! that), a MachineConfig, a stream. Images are compared by their digests, wherever they are. See [`clean_up`].
//!
//! What it is not: requests to registries, or which builds go (see `prune`).

mod clean_up;

pub use clean_up::{CleanUp, CleanUpInputs, clean_up};

use crate::names;
use crate::ownership::is_foreign;
use api::k8s::Time;
use api::v1::{MachineOSBuild, MachineOSConfig};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The ConfigMap with the list, in the namespace of the installation.
pub const LIST: &str = api::names::PUSHED_IMAGES;
/// How long a deletion is tried that fails by itself, such as at a registry that does not answer.
const PATIENCE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Bytes of a hash in a key.
const HASH: usize = 16;

/// What was pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PushedContent {
    /// An OS image.
    Image {
        /// By its digest.
        name: String,
        /// By the tag that it was pushed to.
        tag: String,
    },
    /// Whatever a build has pushed that did not succeed.
    Tag {
        /// The tag that it pushes to.
        name: String,
    },
    /// Layers for later builds.
    Layers {
        /// The repository that they are in, under tags that are hashes.
        repository: String,
    },
}

impl PushedContent {
    fn name(&self) -> &str {
        match self {
            Self::Image { name, .. } | Self::Tag { name } => name,
            Self::Layers { repository } => repository,
        }
    }
}

impl fmt::Display for PushedContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image { name, .. } => write!(f, "image {name}"),
            Self::Tag { name } => write!(f, "an image that may have the tag {name}"),
            Self::Layers { repository } => write!(f, "layers in {repository}"),
        }
    }
}

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pushed {
    /// What was pushed.
    pub what: PushedContent,
    /// The Secret with which it was pushed.
    pub secret: String,
    /// The MachineOSConfig that asked for it.
    pub os_config: String,
    /// Its pool.
    pub pool: String,
    /// Why it is still there although nothing names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<NotDeleted>,
}

/// Why something is still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotDeleted {
    /// What the registry, or the API server, said.
    pub why: String,
    /// Since when that is known.
    pub since: Time,
    /// It is not tried again.
    pub for_good: bool,
    /// Somebody has to mend something in the cluster first. It is tried until then.
    #[serde(default)]
    pub until_mended: bool,
}

impl Pushed {
    /// What a build pushes. `None`: it pushes nothing, or what it pushes is to stay.
    fn by(build: &MachineOSBuild, what: PushedContent) -> Option<Self> {
        let notes = build.metadata.annotations.as_ref();
        let labels = build.metadata.labels.as_ref();
        let is_taken_over = is_foreign(build)
            || notes.is_some_and(|a| a.contains_key(names::REUSES))
            || names::is_pre_built(build);
        (!is_taken_over && !names::keeps_old_images(notes)).then(|| Self {
            what,
            secret: notes.and_then(|a| a.get(names::PUSH_SECRET)).cloned().unwrap_or_default(),
            os_config: build.spec.machine_os_config.name.clone(),
            pool: labels.and_then(|l| l.get(names::POOL)).cloned().unwrap_or_default(),
            kept: None,
        })
    }

    /// The image of a build that has succeeded. `None`: it has none that was pushed here, or it is to stay.
    pub fn image(build: &MachineOSBuild, name: &str) -> Option<Self> {
        let tag = &build.spec.rendered_image_push_spec;
        // A status that names another place was not written by a build that pushed there.
        let is_pushed = names::has_valid_digest(name) && names::repository(name) == names::repository(tag);
        let what = PushedContent::Image { name: name.to_owned(), tag: tag.clone() };
        is_pushed.then(|| Self::by(build, what)).flatten()
    }

    /// The tag of a build, for what it pushes without success. `None`: it pushes nothing, or what it pushes is to stay.
    pub fn tag(build: &MachineOSBuild) -> Option<Self> {
        Self::by(build, PushedContent::Tag { name: build.spec.rendered_image_push_spec.clone() })
    }

    /// The image that the registry has under a tag of the list. `None`: this is no tag.
    pub fn found(&self, digest: &str) -> Option<Self> {
        let PushedContent::Tag { name: tag } = &self.what else { return None };
        let what = PushedContent::Image { name: names::by_digest(tag, digest), tag: tag.clone() };
        Some(Self { what, kept: None, ..self.clone() })
    }

    /// The layers that builds of this MachineOSConfig keep for later ones. `None`: none, or they are to stay for good.
    pub fn layers(config: &MachineOSConfig) -> Option<Self> {
        if names::keeps_old_images(config.metadata.annotations.as_ref()) {
            return None;
        }
        Some(Self {
            what: PushedContent::Layers { repository: names::layer_cache(config)?.to_owned() },
            secret: config.spec.rendered_image_push_secret.name.clone(),
            os_config: config.metadata.name.clone().unwrap_or_default(),
            pool: config.spec.machine_config_pool.name.clone(),
            kept: None,
        })
    }

    /// Its key in the list: a name of an image has characters that a key must not have.
    pub fn key(&self) -> String {
        let kind = match self.what {
            PushedContent::Image { .. } => "image",
            PushedContent::Tag { .. } => "tag",
            PushedContent::Layers { .. } => "layers",
        };
        let hash = Sha256::digest(self.what.name());
        format!("{kind}-{}", api::formats::text::hex(hash.get(..HASH).unwrap_or_default()))
    }

    /// Its value in the list.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From a value of the list. `None`: it is none of ours.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Those tags of a repository that may be somebody's name for an image: not layers, not what belongs to an image by its
/// digest (signatures and the like), and not the tag that the image was pushed to.
pub fn other_tags(tags: Vec<String>, own: &str) -> Vec<String> {
    let belongs = |t: &str| {
        let rest = t.strip_prefix("sha256-").and_then(|rest| rest.split_once('.'));
        rest.is_some_and(|(hex, kind)| names::is_digest(&format!("sha256:{hex}")) && kind == "sig")
    };
    let (_, others) = layer_tags(tags);
    others.into_iter().filter(|tag| tag != own && !belongs(tag)).collect()
}

/// The tags of a repository: those that hold layers, and the others.
pub fn layer_tags(tags: Vec<String>) -> (Vec<String>, Vec<String>) {
    let is_hash =
        |t: &String| t.len() == 64 && t.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    tags.into_iter().partition(is_hash)
}

/// The tag of an image's signature, where sigstore's form has it beside the image.
pub fn signature_tag(name: &str) -> Option<String> {
    let (repository, digest) = name.split_once('@')?;
    let hex = digest.strip_prefix("sha256:")?;
    Some(format!("{repository}:sha256-{hex}.sig"))
}

/// Why a deletion failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletionFailure {
    /// For people. No secret is in it.
    pub why: String,
    /// Whether it is tried again.
    pub retry: Retry,
}

/// Whether a deletion that failed is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// No: the registry refuses.
    Never,
    /// For a week: the registry may be away.
    ForAWeek,
    /// Until somebody has mended something in the cluster, such as a Secret that is missing.
    UntilFixed,
}

/// What follows from a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionOutcome {
    /// It is gone, and leaves the list.
    Deleted,
    /// It stays, and the list says why. `tell`: people are told.
    Remains {
        /// The new entry; `None`: it says that already.
        entry: Option<Box<Pushed>>,
        /// What people are told, once.
        tell: Option<String>,
    },
}

/// What follows from a deletion that was tried.
pub fn after_deletion(pushed: &Pushed, done: Result<(), DeletionFailure>, now: &Time) -> DeletionOutcome {
    let Err(DeletionFailure { why, retry }) = done else { return DeletionOutcome::Deleted };
    let until_mended = retry == Retry::UntilFixed;
    // Time in which something had to be mended is no time in which the registry was away.
    let before = pushed.kept.as_ref().filter(|k| k.until_mended == until_mended);
    let since = before.map_or_else(|| now.clone(), |k| k.since.clone());
    let for_good = match retry {
        Retry::Never => true,
        Retry::ForAWeek => now.0.duration_since(since.0) > PATIENCE,
        Retry::UntilFixed => false,
    };
    if before.is_some_and(|k| k.for_good == for_good) {
        return DeletionOutcome::Remains { entry: None, tell: None };
    }
    let why = api::formats::text::cut(&why, api::formats::text::MAX_ANSWER_CHARS).into_owned();
    let what = &pushed.what;
    let tell = match (for_good, until_mended) {
        (true, _) => format!(
            "{what} stays in the registry, and its deletion is not tried again: {why}; delete it by hand"
        ),
        (false, false) => format!("{what} could not be deleted; this is tried again for seven days: {why}"),
        (false, true) => {
            format!("{what} could not be deleted; this is tried again until the cause is fixed: {why}")
        }
    };
    // There is probably nothing under a tag, and people were told that its build failed.
    let tell = (!matches!(what, PushedContent::Tag { .. })).then_some(tell);
    let entry = Pushed { kept: Some(NotDeleted { why, since, for_good, until_mended }), ..pushed.clone() };
    DeletionOutcome::Remains { entry: Some(Box::new(entry)), tell }
}

#[cfg(test)]
mod tests;
