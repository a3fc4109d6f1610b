//! What becomes of the list of what builds have pushed, and of what is on it: what is put there, what leaves it, and what goes from
//! its registry because nothing names it any more. Pure.
//!
//! What it is not: the entries (see the module above), and what follows from a deletion that failed (there, too).

use super::{Pushed, PushedContent};
use crate::names;
use crate::state::State;
use api::v1::{MachineOSBuild, MachineOSConfig};
use std::collections::{BTreeMap, BTreeSet};

/// How many are on the list that registries do not delete: for people who look them up.
pub(super) const MOST_KEPT: usize = 100;
/// How many are on the list that are tried again and again. A ConfigMap has room for about twice as many.
pub(super) const MOST_TRIED: usize = 500;

/// What is known of everything that may name an image.
#[derive(Debug, Clone, Copy)]
pub struct CleanUpInputs<'a> {
    /// The list, by its keys.
    pub list: &'a BTreeMap<String, Pushed>,
    /// All MachineOSConfigs.
    pub configs: &'a [&'a MachineOSConfig],
    /// All MachineOSBuilds.
    pub builds: &'a [&'a MachineOSBuild],
    /// Texts that name images otherwise: of nodes, MachineConfigs, streams.
    pub named: &'a BTreeSet<String>,
    /// The names of builds that have a pod which has not ended: it may push, whatever became of the build.
    pub pushing: &'a BTreeSet<String>,
}

/// What happens to the list and to what is on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CleanUp {
    /// These are not on the list and must be, or are there and have changed.
    pub remember: Vec<Pushed>,
    /// These are taken from the list, by their keys, and stay in the registry.
    pub forget: Vec<String>,
    /// These are deleted in the registry. It is asked first what is behind a tag.
    pub delete: Vec<Pushed>,
    /// These tags, by their keys, are looked at again a little later: pods may still push to them.
    pub later: BTreeSet<String>,
    /// Digests that must stay, whatever else names them. Layers may be images in use.
    pub spare: BTreeSet<String>,
}

/// Whether the MachineOSConfig asks that what was pushed for it stays.
fn keeps_old_images(config: &MachineOSConfig) -> bool {
    names::keeps_old_images(config.metadata.annotations.as_ref())
}

/// Whether a build has had a Job.
fn is_started(build: &MachineOSBuild) -> bool {
    build.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(names::JOB_UID))
}

/// The name of the build that a tag is of. Empty: this is no tag.
fn build_at(what: &PushedContent) -> &str {
    let PushedContent::Tag { name } = what else { return "" };
    name.get(names::repository(name).len()..).and_then(|rest| rest.strip_prefix(':')).unwrap_or_default()
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
pub fn clean_up(known: CleanUpInputs<'_>) -> CleanUp {
    let config_of =
        |name: &str| known.configs.iter().find(|c| c.metadata.name.as_deref() == Some(name)).copied();
    // Builds say so themselves, too: their MachineOSConfig may be gone.
    let mut kept_by_build: BTreeSet<&str> = BTreeSet::new();
    for build in known.builds.iter().filter(|b| names::keeps_old_images(b.metadata.annotations.as_ref())) {
        kept_by_build.insert(&build.spec.rendered_image_push_spec);
        kept_by_build.extend(build.status.iter().filter_map(|s| s.digested_image_push_spec.as_deref()));
    }
    let is_kept = |p: &Pushed| {
        let by_build = match &p.what {
            PushedContent::Image { name, tag } => {
                [name, tag].iter().any(|n| kept_by_build.contains(n.as_str()))
            }
            PushedContent::Tag { name } => kept_by_build.contains(name.as_str()),
            PushedContent::Layers { .. } => false,
        };
        by_build || config_of(&p.os_config).is_some_and(keeps_old_images)
    };
    let image = |b: &MachineOSBuild| b.status.as_ref().and_then(|s| s.digested_image_push_spec.clone());
    let pushed = known.builds.iter().filter_map(|b| match State::of(b) {
        State::Succeeded => Pushed::image(b, &image(b)?),
        // Whoever has started its Job. One that has ended otherwise was on the list, and what it pushed is looked for once.
        state if is_started(b) && !state.is_terminal() => Pushed::tag(b),
        _ => None,
    });
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
    }
    let words: BTreeSet<&str> = known.configs.iter().flat_map(|c| containerfile_words(c)).collect();
    texts.extend(&words);
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
    // The builds of each tag.
    let builds_at = |tag: &str| {
        let of_tag = |b: &&&MachineOSBuild| b.spec.rendered_image_push_spec == tag;
        known.builds.iter().filter(of_tag).map(|b| State::of(b)).collect::<Vec<State>>()
    };
    let is_free = |p: &Pushed| match &p.what {
        PushedContent::Image { name, tag } => {
            let repository = names::repository(name);
            let named = digest(name).is_none_or(|d| spare.contains(&d))
                || texts.iter().any(|text| is_name_of(text, tag))
                || words.iter().any(|word| may_be_in(word, repository));
            !named && !busy.contains(repository)
        }
        // What is behind it is looked at before that is deleted.
        PushedContent::Tag { name } => builds_at(name).iter().all(|state| state.is_terminal()),
        PushedContent::Layers { repository } => {
            let used = known.configs.iter().any(|c| names::layer_cache(c) == Some(repository.as_str()));
            !used && !busy.contains(repository.as_str())
        }
    };
    let mut left: Vec<(&String, &Pushed)> = vec![];
    let mut tried: Vec<(&String, &Pushed)> = vec![];
    for (key, pushed) in known.list {
        let is_superfluous = match &pushed.what {
            PushedContent::Tag { name } => builds_at(name).contains(&State::Succeeded),
            PushedContent::Image { .. } | PushedContent::Layers { .. } => false,
        };
        if is_kept(pushed) || is_superfluous {
            plan.forget.push(key.clone());
        } else if pushed.kept.as_ref().is_some_and(|k| k.for_good) {
            left.push((key, pushed));
        } else if !is_free(pushed) {
            // It is named again, and not tried meanwhile: that is no time in which its deletion fails.
            plan.remember.extend(pushed.kept.is_some().then(|| Pushed { kept: None, ..pushed.clone() }));
        } else if known.pushing.contains(build_at(&pushed.what)) {
            plan.later.insert(key.clone());
        } else {
            tried.extend(pushed.kept.is_some().then_some((key, pushed)));
            plan.delete.push(pushed.clone());
        }
    }
    // Images before layers, which are in the same repository.
    plan.delete.sort_by_key(|p| (matches!(p.what, PushedContent::Layers { .. }), p.key()));
    for (mut all, most) in [(left, MOST_KEPT), (tried, MOST_TRIED)] {
        all.sort_by_key(|(key, p)| (p.kept.as_ref().map(|k| std::cmp::Reverse(k.since.0)), (*key).clone()));
        plan.forget.extend(all.into_iter().skip(most).map(|(key, _)| key.clone()));
    }
    plan.delete.retain(|p| !plan.forget.contains(&p.key()));
    // What is on the list and goes by itself is no layer.
    let images = known.list.values().filter_map(|p| digest(p.what.name()));
    plan.spare = spare.iter().cloned().chain(images).collect();
    plan
}
