//! A MachineConfig that this controller makes: whether the stored object is as it should be, what to write when it is
//! not, and whether somebody else changed it. Pure, except for the memory of what was seen.
//!
//! Two things tell an edit by somebody else from a change of templates or settings. The first is the digest of what
//! this process has seen stored. The second, for changes made while no controller ran, is the annotation
//! [`annotation::WRITTEN`]; it counts only if this very build wrote the object, because another build may write the
//! same config in another form.
//!
//! What it is not: the content of these MachineConfigs (see `render::template`, `render::generated`), or the writes
//! (see `write_config`).

use crate::flight::merge_patch::difference;
use api::k8s::ResourceExt;
use api::names::{CONTROLLER_CONFIG, annotation, label};
use api::v1::MachineConfig;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often somebody who keeps writing the same change (a deployment tool) is told about it.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// The digests of objects that were stored as they should be. If one differs later, somebody else changed it.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<HashMap<String, Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    digest: u64,
    told: Option<Instant>,
}

impl Kept {
    /// Forgets everything: another leader may have written since.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether exactly this was stored before.
    pub(crate) fn was_stored(&self, name: &str, digest: u64) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(name).is_some_and(|s| s.digest == digest)
    }

    pub(crate) fn record_stored(&self, name: &str, digest: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = seen.get(name).and_then(|s| s.told);
        seen.insert(name.to_owned(), Seen { digest, told });
    }

    pub(crate) fn may_tell(&self, name: &str) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = seen.get_mut(name) else { return false };
        let may = seen.told.is_none_or(|at| at.elapsed() >= TELL_AGAIN);
        if may {
            seen.told = Some(Instant::now());
        }
        may
    }

    /// Forgets an object that we deleted ourselves.
    pub(crate) fn gone(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// The object with its own digest, as it should be stored.
pub(crate) fn with_digest(config: &MachineConfig) -> MachineConfig {
    let mut written_config = config.clone();
    written_config.annotations_mut().insert(annotation::WRITTEN.to_owned(), written(config));
    written_config
}

/// The first half of a SHA-256 over the parts of a MachineConfig that matter: spec and role. Forging it is no concern
/// here.
fn written(config: &MachineConfig) -> String {
    let what = json!([config.spec, config.labels().get(label::ROLE)]).to_string();
    let digest = Sha256::digest(what.as_bytes());
    api::text::hex(digest.iter().take(16))
}

/// Whether somebody else wrote the object after this build (`hash`) did; `false` also if that cannot be known.
pub(crate) fn edited(have: &MachineConfig, hash: &str) -> bool {
    let note = |key: &str| have.annotations().get(key);
    let by_us = note(annotation::GENERATED_BY_CONTROLLER).is_some_and(|by| by == hash);
    by_us && note(annotation::WRITTEN).is_some_and(|as_written| *as_written != written(have))
}

pub(crate) fn digest(config: &MachineConfig) -> u64 {
    let mut hasher = DefaultHasher::new();
    json!(config).to_string().hash(&mut hasher);
    hasher.finish()
}

/// The write that one MachineConfig needs.
pub(crate) enum Put {
    Create,
    Patch(Value),
}

/// Whether it is stored as it should be. `wanted` is the result of [`with_digest`].
pub(crate) fn is_as(have: &MachineConfig, wanted: &MachineConfig) -> bool {
    let fixed = fixed(have, wanted);
    // Equal values have equal JSON, and comparing the values takes a fraction of the time.
    fixed == *have || difference(&json!(have), &json!(fixed)).is_none()
}

/// The stored object with our fields restored. Labels and annotations of others stay.
fn fixed(have: &MachineConfig, wanted: &MachineConfig) -> MachineConfig {
    let mut fixed = have.clone();
    fixed.spec = wanted.spec.clone();
    fixed.labels_mut().extend(wanted.labels().clone());
    fixed.annotations_mut().extend(wanted.annotations().clone());
    fixed.metadata.owner_references.clone_from(&wanted.metadata.owner_references);
    fixed
}

pub(crate) fn change(have: Option<&MachineConfig>, wanted: &MachineConfig) -> Option<Put> {
    let Some(have) = have else { return Some(Put::Create) };
    let mut patch = difference(&json!(have), &json!(fixed(have, wanted)))?;
    patch["metadata"]["resourceVersion"] = json!(have.metadata.resource_version);
    Some(Put::Patch(patch))
}

/// The fields that the API server stored differently from what was sent; `None` if all are as sent.
pub(crate) fn altered(answer: &MachineConfig, wanted: &MachineConfig) -> Option<String> {
    difference(&json!(answer), &json!(fixed(answer, wanted))).map(|patch| fields(&patch))
}

/// The names of the fields that a patch changes; never their values.
pub(crate) fn fields(patch: &Value) -> String {
    let mut fields = Vec::new();
    for (part, value) in patch.as_object().into_iter().flatten() {
        for key in value.as_object().into_iter().flat_map(|v| v.keys()).filter(|k| *k != "resourceVersion") {
            fields.push(format!("{part}.{key}"));
        }
    }
    fields.join(", ")
}

/// MachineConfigs that the templates no longer produce: owned by the ControllerConfig and marked as made by a
/// controller. If somebody removed the owner or the mark, the object is theirs and stays.
pub(crate) fn leaving<'a>(
    wanted: &[MachineConfig],
    standing: &[&'a MachineConfig],
) -> Vec<&'a MachineConfig> {
    let made = |config: &&MachineConfig| {
        let mark = config.annotations().get(annotation::GENERATED_BY_CONTROLLER);
        is_from_template(config) && mark.is_some_and(|mark| !mark.is_empty())
    };
    let wants = |config: &MachineConfig| wanted.iter().any(|w| w.metadata.name == config.metadata.name);
    standing.iter().copied().filter(made).filter(|config| !wants(config)).collect()
}

/// Of the MachineConfigs to delete, those of roles that have no template left at all. That is more likely a folder that
/// was not mounted, or is being copied, than somebody's intent; and all nodes of the role would lose their files.
pub(crate) fn emptied(wanted: &[MachineConfig], leaving: &[&MachineConfig]) -> Vec<String> {
    let role = |config: &MachineConfig| config.labels().get(label::ROLE).cloned();
    let kept: BTreeSet<_> = wanted.iter().map(role).collect();
    leaving.iter().filter(|config| !kept.contains(&role(config))).map(|config| config.name_any()).collect()
}

/// Whether the template pass made it: the ControllerConfig owns it.
pub(crate) fn is_from_template(object: &MachineConfig) -> bool {
    let mut owners = object.metadata.owner_references.iter().flatten();
    owners.any(|o| o.controller == Some(true) && o.kind == "ControllerConfig" && o.name == CONTROLLER_CONFIG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_server::{machine_config as mc, template};
    use api::names::VERSION_HASH;

    #[test]
    fn an_edit_is_told_by_the_object_alone_and_never_taken_from_a_new_template_or_another_build() {
        let ours = |mut mc: MachineConfig| {
            mc.annotations_mut()
                .insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), VERSION_HASH.to_owned());
            with_digest(&mc)
        };
        // As the API server returns it: with the fields that it adds, and keys in another order.
        let stored = |mc: &MachineConfig| -> MachineConfig {
            let mut value = json!(mc);
            value["metadata"]["resourceVersion"] = json!("7");
            value["metadata"]["annotations"]["theirs"] = json!("x");
            serde_json::from_str(&value.to_string()).unwrap()
        };
        let mut made = mc("00-worker", None);
        made.spec.config = Some(json!({"ignition": {"version": "3.5.0"}, "b": 1, "a": 2}));
        let have = stored(&ours(made));
        assert!(!edited(&have, VERSION_HASH), "recognised as written, whatever the templates contain now");
        let mut config = have.clone();
        config.spec.config = Some(json!({"ignition": {"version": "3.5.0"}}));
        assert!(edited(&config, VERSION_HASH), "another config");
        let mut kargs = have.clone();
        kargs.spec.kernel_arguments = Some(vec!["quiet".to_owned()]);
        assert!(edited(&kargs, VERSION_HASH), "a kernel argument");
        let mut role = have;
        role.labels_mut().insert(label::ROLE.to_owned(), "infra".to_owned());
        assert!(edited(&role, VERSION_HASH), "another role");
        for key in [annotation::WRITTEN, annotation::GENERATED_BY_CONTROLLER] {
            let mut unknown = config.clone();
            unknown.annotations_mut().remove(key);
            assert!(!edited(&unknown, VERSION_HASH), "without {key} it is unknown");
        }
        let mut other = config;
        other.annotations_mut().insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), "another".to_owned());
        assert!(!edited(&other, VERSION_HASH), "another build may write the same in other words");
    }

    #[test]
    fn a_patch_is_told_by_its_fields_and_never_by_what_they_hold() {
        let patch = json!({"metadata": {"resourceVersion": "1", "labels": {"a": null}}, "spec": {"config": {"x": "secret"}}});
        assert_eq!(fields(&patch), "metadata.labels, spec.config");
    }

    #[test]
    fn only_what_stood_is_told_of_and_not_all_the_time() {
        let kept = Kept::default();
        assert!(!kept.was_stored("a", 1) && !kept.may_tell("a"));
        kept.record_stored("a", 1);
        assert!(kept.was_stored("a", 1) && !kept.was_stored("a", 2));
        assert!(kept.may_tell("a") && !kept.may_tell("a"));
        kept.record_stored("a", 1);
        assert!(!kept.may_tell("a"), "reported a moment ago");
    }

    #[test]
    fn only_what_the_templates_have_made_and_make_no_more_is_to_go() {
        let wanted = [template("00-worker", "worker")];
        let mut own = template("50-own", "worker");
        own.metadata.owner_references = None;
        let mut taken = template("51-taken", "worker");
        taken.annotations_mut().clear();
        let mut kubelet = template("99-worker-generated-kubelet", "worker");
        kubelet
            .metadata
            .owner_references
            .iter_mut()
            .flatten()
            .for_each(|o| o.kind = "KubeletConfig".to_owned());
        let mut old = template("01-worker-old", "worker");
        old.annotations_mut().insert(annotation::GENERATED_BY_CONTROLLER.to_owned(), "v0".to_owned());
        let standing = [&wanted[0], &own, &taken, &kubelet, &old];
        let going = leaving(&wanted, &standing);
        let names: Vec<_> = going.iter().map(|c| c.name_any()).collect();
        assert_eq!(names, ["01-worker-old"]);
        // One of several may be deleted. The last ones of a role stay until somebody confirms that.
        assert!(emptied(&wanted, &going).is_empty());
        let masters = [template("00-master", "master"), template("01-master-kubelet", "master")];
        let all = [&wanted[0], &masters[0], &masters[1]];
        assert_eq!(emptied(&wanted, &all), ["00-master", "01-master-kubelet"]);
        assert_eq!(emptied(&[], &all).len(), 3);
    }
}
