//! What builds have pushed to registries, and when it goes from there: images of builds that are gone, and layers of a
//! MachineOSConfig that is gone or keeps its layers elsewhere. Pure.
//!
//! The list of it is a ConfigMap ([`LIST`]) with one key for each image, so that nothing is forgotten: an image is on the list before
//! its build's status says that it succeeded, and leaves it when the registry has deleted it. Builds may go meanwhile in any way, by
//! this controller, by a person, or by the API server's garbage collection.
//!
//! Nothing goes that anything names: a build or a MachineOSConfig, a node (the image that it runs, is to run, or ran before that), a
//! MachineConfig, a stream. Images are compared by their digests, wherever they are.
//!
//! What it is not: requests to registries, or which builds go (see `prune`).

use crate::names;
use crate::plan::is_foreign;
use crate::state::State;
use api::k8s::Time;
use api::v1::{MachineOSBuild, MachineOSConfig};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The ConfigMap with the list, in the namespace of the installation.
pub const LIST: &str = api::names::PUSHED_IMAGES;
/// How long a deletion is tried that fails by itself, such as at a registry that does not answer.
const PATIENCE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How many are on the list that registries do not delete: for people who look them up.
const MOST_KEPT: usize = 100;
/// How many are on the list that are tried again and again. A ConfigMap has room for about twice as many.
const MOST_TRIED: usize = 500;
/// Bytes of a hash in a key.
const HASH: usize = 16;

/// What was pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// An OS image.
    Image {
        /// By its digest.
        name: String,
        /// By the tag that it was pushed to.
        tag: String,
    },
    /// Layers for later builds.
    Layers {
        /// The repository that they are in, under tags that are hashes.
        repository: String,
    },
}

impl What {
    fn name(&self) -> &str {
        match self {
            Self::Image { name, .. } => name,
            Self::Layers { repository } => repository,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image { name, .. } => write!(f, "image {name}"),
            Self::Layers { repository } => write!(f, "layers in {repository}"),
        }
    }
}

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pushed {
    /// What was pushed.
    pub what: What,
    /// The Secret with which it was pushed.
    pub secret: String,
    /// The MachineOSConfig that asked for it.
    pub os_config: String,
    /// Its pool.
    pub pool: String,
    /// Why it is still there although nothing names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// Why something is still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
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
    /// The image of a build that has succeeded. `None`: it has none that was pushed here, or it is to stay.
    pub fn image(build: &MachineOSBuild, name: &str) -> Option<Self> {
        let notes = build.metadata.annotations.as_ref();
        let labels = build.metadata.labels.as_ref();
        let is_taken_over = is_foreign(build)
            || notes.is_some_and(|a| a.contains_key(names::REUSES))
            || names::is_pre_built(build);
        let label = |key: &str| labels.and_then(|l| l.get(key)).cloned().unwrap_or_default();
        // A status that names another place was not written by a build that pushed there.
        let place = names::repository(&build.spec.rendered_image_push_spec);
        let is_pushed = names::is_by_digest(name) && names::repository(name) == place;
        (is_pushed && !is_taken_over && !names::keeps(notes)).then(|| Self {
            what: What::Image { name: name.to_owned(), tag: build.spec.rendered_image_push_spec.clone() },
            secret: notes.and_then(|a| a.get(names::PUSH_SECRET)).cloned().unwrap_or_default(),
            os_config: build.spec.machine_os_config.name.clone(),
            pool: label(names::POOL),
            kept: None,
        })
    }

    /// The layers that builds of this MachineOSConfig keep for later ones. `None`: none, or they are to stay for good.
    pub fn layers(config: &MachineOSConfig) -> Option<Self> {
        if keeps(config) {
            return None;
        }
        Some(Self {
            what: What::Layers { repository: names::layer_cache(config)?.to_owned() },
            secret: config.spec.rendered_image_push_secret.name.clone(),
            os_config: config.metadata.name.clone().unwrap_or_default(),
            pool: config.spec.machine_config_pool.name.clone(),
            kept: None,
        })
    }

    /// Its key in the list: a name of an image has characters that a key must not have.
    pub fn key(&self) -> String {
        let kind = if matches!(self.what, What::Image { .. }) { "image" } else { "layers" };
        let hash = Sha256::digest(self.what.name());
        format!("{kind}-{}", api::text::hex(hash.get(..HASH).unwrap_or_default()))
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

/// What is known of everything that may name an image.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The list, by its keys.
    pub list: &'a BTreeMap<String, Pushed>,
    /// All MachineOSConfigs.
    pub configs: &'a [&'a MachineOSConfig],
    /// All MachineOSBuilds.
    pub builds: &'a [&'a MachineOSBuild],
    /// Texts that name images otherwise: of nodes, MachineConfigs, streams.
    pub named: &'a BTreeSet<String>,
}

/// What happens to the list and to what is on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanUp {
    /// These are not on the list and must be, or are there and have changed.
    pub remember: Vec<Pushed>,
    /// These are taken from the list, by their keys, and stay in the registry.
    pub forget: Vec<String>,
    /// These are deleted in the registry.
    pub delete: Vec<Deletion>,
}

/// Something that is deleted in its registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// What.
    pub pushed: Pushed,
    /// Digests that must stay, whatever else names them. Layers may be images in use.
    pub spare: BTreeSet<String>,
}

/// Whether the MachineOSConfig asks that what was pushed for it stays.
fn keeps(config: &MachineOSConfig) -> bool {
    names::keeps(config.metadata.annotations.as_ref())
}

/// The words of a MachineOSConfig's Containerfiles: one may build on an image of another MachineOSConfig.
fn containerfile_words(config: &MachineOSConfig) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "=,\"';|&()<>`\\".contains(c);
    let files = config.spec.container_file.iter().flatten();
    files.flat_map(move |file| file.content.split(ends)).filter(|word| !word.is_empty())
}

/// All digests in a text, whatever stands around them.
fn digests(text: &str) -> impl Iterator<Item = String> {
    let hex = |rest: &str| rest.get(..64).map(|hex| format!("sha256:{}", hex.to_ascii_lowercase()));
    text.split("sha256:").skip(1).filter_map(hex).filter(|digest| names::is_digest(digest))
}

/// Whether a text is this name of an image, also with a transport before it, such as `docker://` or `ostree-unverified-registry:`.
fn is_name_of(text: &str, name: &str) -> bool {
    let before = text.trim().strip_suffix(name);
    !name.is_empty() && before.is_some_and(|before| before.is_empty() || before.ends_with([':', '/']))
}

/// Whether a word of a Containerfile may become the name of any image of this repository: it leaves the tag open, or has a variable
/// in it.
fn may_be_in(word: &str, repository: &str) -> bool {
    let open = word.contains('$').then(|| word.rfind(repository).map(|at| at + repository.len())).flatten();
    let follows = open.and_then(|end| word.get(end..));
    is_name_of(word, repository) || follows.is_some_and(|rest| rest.starts_with([':', '@', '$']))
}

/// What is to be done.
pub fn clean_up(known: Known<'_>) -> CleanUp {
    let config_of =
        |name: &str| known.configs.iter().find(|c| c.metadata.name.as_deref() == Some(name)).copied();
    // Builds say so themselves, too: their MachineOSConfig may be gone.
    let mut kept_by_build: BTreeSet<&str> = BTreeSet::new();
    for build in known.builds.iter().filter(|b| names::keeps(b.metadata.annotations.as_ref())) {
        kept_by_build.insert(&build.spec.rendered_image_push_spec);
        kept_by_build.extend(build.status.iter().filter_map(|s| s.digested_image_push_spec.as_deref()));
    }
    let is_kept = |p: &Pushed| {
        let by_build = match &p.what {
            What::Image { name, tag } => [name, tag].iter().any(|n| kept_by_build.contains(n.as_str())),
            What::Layers { .. } => false,
        };
        by_build || config_of(&p.os_config).is_some_and(keeps)
    };
    let image = |b: &MachineOSBuild| b.status.as_ref().and_then(|s| s.digested_image_push_spec.clone());
    let succeeded = known.builds.iter().filter(|b| State::of(b) == State::Succeeded);
    let pushed = succeeded.filter_map(|b| Pushed::image(b, &image(b)?));
    let new = |p: &Pushed| !known.list.contains_key(&p.key()) && !is_kept(p);
    let mut plan = CleanUp { remember: pushed.filter(new).collect(), ..CleanUp::default() };

    // Everything that names an image.
    let mut texts: BTreeSet<&str> = known.named.iter().map(String::as_str).collect();
    for build in known.builds {
        texts.extend(build.status.iter().filter_map(|s| s.digested_image_push_spec.as_deref()));
        let notes = build.metadata.annotations.iter();
        texts.extend(
            notes
                .flat_map(|a| [names::REUSES, names::BUILT_ON].map(|key| a.get(key)))
                .flatten()
                .map(String::as_str),
        );
    }
    for config in known.configs {
        texts.insert(&config.spec.rendered_image_push_spec);
        texts.extend(config.status.iter().filter_map(|s| s.current_image_pull_spec.as_deref()));
        let notes = config.metadata.annotations.iter();
        texts.extend(notes.filter_map(|a| Some(a.get(names::PRE_BUILT)?.as_str())));
        texts.extend(containerfile_words(config));
    }
    // What is being built may be pushed under any digest in a moment, and may take any layer.
    let busy: BTreeSet<&str> = known
        .builds
        .iter()
        .filter(|b| !State::of(b).is_terminal())
        .flat_map(|b| {
            let config = config_of(&b.spec.machine_os_config.name);
            [Some(names::repository(&b.spec.rendered_image_push_spec)), config.and_then(names::layer_cache)]
        })
        .flatten()
        .collect();
    let digest = |text: &str| text.split_once('@').map(|(_, d)| d.to_owned()).filter(|d| names::is_digest(d));
    let spare: BTreeSet<String> = texts.iter().flat_map(|t| digests(t)).collect();
    let words: BTreeSet<&str> = known.configs.iter().flat_map(|c| containerfile_words(c)).collect();
    let is_free = |p: &Pushed| match &p.what {
        What::Image { name, tag } => {
            let repository = names::repository(name);
            let named = digest(name).is_none_or(|d| spare.contains(&d))
                || texts.iter().any(|text| is_name_of(text, tag))
                || words.iter().any(|word| may_be_in(word, repository));
            !named && !busy.contains(repository)
        }
        What::Layers { repository } => {
            let used = known.configs.iter().any(|c| names::layer_cache(c) == Some(repository.as_str()));
            !used && !busy.contains(repository.as_str())
        }
    };
    let mut left: Vec<(&String, &Pushed)> = vec![];
    let mut tried: Vec<(&String, &Pushed)> = vec![];
    for (key, pushed) in known.list {
        if is_kept(pushed) {
            plan.forget.push(key.clone());
        } else if pushed.kept.as_ref().is_some_and(|k| k.for_good) {
            left.push((key, pushed));
        } else if !is_free(pushed) {
            // It is named again, and not tried meanwhile: that is no time in which its deletion fails.
            plan.remember.extend(pushed.kept.is_some().then(|| Pushed { kept: None, ..pushed.clone() }));
        } else {
            tried.extend(pushed.kept.is_some().then_some((key, pushed)));
            // What is on the list and goes by itself is no layer.
            let images = known.list.values().filter_map(|p| digest(p.what.name()));
            let spare = spare.iter().cloned().chain(images).collect();
            plan.delete.push(Deletion { pushed: pushed.clone(), spare });
        }
    }
    // Images before layers, which are in the same repository.
    plan.delete.sort_by_key(|d| (matches!(d.pushed.what, What::Layers { .. }), d.pushed.key()));
    for (mut all, most) in [(left, MOST_KEPT), (tried, MOST_TRIED)] {
        all.sort_by_key(|(key, p)| (p.kept.as_ref().map(|k| std::cmp::Reverse(k.since.0)), (*key).clone()));
        plan.forget.extend(all.into_iter().skip(most).map(|(key, _)| key.clone()));
    }
    plan.delete.retain(|d| !plan.forget.contains(&d.pushed.key()));
    plan
}

/// Those tags of a repository that may be somebody's name for an image: not layers, not what belongs to an image by its digest
/// (signatures and the like), and not the tag that the image was pushed to.
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
pub struct Failure {
    /// For people. No secret is in it.
    pub why: String,
    /// Whether it is tried again.
    pub again: Again,
}

/// Whether a deletion that failed is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// No: the registry refuses.
    Never,
    /// For a week: the registry may be away.
    ForAWeek,
    /// Until somebody has mended something in the cluster, such as a Secret that is missing.
    UntilMended,
}

/// What follows from a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// It is gone, and leaves the list.
    Gone,
    /// It stays, and the list says why. `tell`: people are told.
    Stays {
        /// The new entry; `None`: it says that already.
        entry: Option<Box<Pushed>>,
        /// What people are told, once.
        tell: Option<String>,
    },
}

/// What follows from a deletion that was tried.
pub fn after(pushed: &Pushed, done: Result<(), Failure>, now: &Time) -> After {
    let Err(Failure { why, again }) = done else { return After::Gone };
    let until_mended = again == Again::UntilMended;
    // Time in which something had to be mended is no time in which the registry was away.
    let before = pushed.kept.as_ref().filter(|k| k.until_mended == until_mended);
    let since = before.map_or_else(|| now.clone(), |k| k.since.clone());
    let for_good = match again {
        Again::Never => true,
        Again::ForAWeek => now.0.duration_since(since.0) > PATIENCE,
        Again::UntilMended => false,
    };
    if before.is_some_and(|k| k.for_good == for_good) {
        return After::Stays { entry: None, tell: None };
    }
    let why = api::text::cut(&why, api::text::MAX_ANSWER_CHARS).into_owned();
    let what = &pushed.what;
    let tell = match (for_good, until_mended) {
        (true, _) => format!("{what} stays, and is not tried again: {why}; delete it by hand"),
        (false, false) => format!("{what} cannot be deleted yet, and is tried again for seven days: {why}"),
        (false, true) => {
            format!("{what} cannot be deleted yet, and is tried again until that is mended: {why}")
        }
    };
    let entry = Pushed { kept: Some(Kept { why, since, for_good, until_mended }), ..pushed.clone() };
    After::Stays { entry: Some(Box::new(entry)), tell: Some(tell) }
}

#[cfg(test)]
#[path = "pushed_tests.rs"]
mod tests;
