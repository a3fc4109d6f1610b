//! A MachineConfig that this controller makes: whether the stored object is as it should be, what to write when it is
//! not, and whether somebody else changed it. Pure, except for the memory of what was seen.
//!
//! Two things tell an edit by somebody else from a change of templates or settings. The first is the digest of what
//! this process has seen stored. The second, for changes made while no controller ran, is the annotation
//! [`annotation::WRITTEN`]; it counts only if this very build wrote the object, because another build may write the
//! same config in another form.
//!
//! What it is not: the content of these MachineConfigs (see `render::template`, `render::generated`), or the writes
//! (see `put`).

use crate::io::merge_patch::difference;
use api::k8s::ResourceExt;
use api::names::{annotation, label};
use api::v1::MachineConfig;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
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
    digest.iter().take(16).map(|b| format!("{b:02x}")).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_server::machine_config as mc;
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
        assert!(!edited(&have, VERSION_HASH), "as it was written, whatever the templates now say");
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
            assert!(!edited(&unknown, VERSION_HASH), "without {key} nobody knows");
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
        assert!(!kept.may_tell("a"), "told a moment ago");
    }
}
