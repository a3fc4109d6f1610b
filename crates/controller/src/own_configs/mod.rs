//! The MachineConfigs that this controller makes, from templates and from settings: each is created, restored after an edit (and
//! an event says where to make the change instead), or deleted.
//!
//! Two things tell an edit by somebody else from a change of templates or settings. The first is the digest of what
//! this process has seen stored ([`StoredConfigs`](crate::flight::stored_configs::StoredConfigs)). The second, for changes made
//! while no controller ran, is the annotation [`annotation::WRITTEN`]; it counts only if this very build wrote the object,
//! because another build may write the same config in another form.
//!
//! What it is not: their content (see `render::template`, `render::generated`), or the check whether a pool may be rendered from
//! what is stored (see [`crate::render_prerequisites`]).

use crate::cache::trimmed::Config;
use crate::cache::watch::version_of;
use crate::flight::refusals::WriteError;
use crate::flight::stored_configs::digest;
use crate::io::events::{Source, reference};
use crate::render_prerequisites::with_our_fields;
use crate::shared::Shared;
use api::events::ControllerEvent;
use api::k8s::ResourceExt;
use api::names::{annotation, label};
use api::v1::MachineConfig;
use client::merge_patch::difference;
use client::{CallError, call};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use render::generated::{Origin, source_of};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

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
    api::formats::text::hex(digest.iter().take(16))
}

/// Whether somebody else wrote the object after this build (`hash`) did; `false` also if that cannot be known.
fn edited(have: &MachineConfig, hash: &str) -> bool {
    let note = |key: &str| have.annotations().get(key);
    let by_us = note(annotation::GENERATED_BY_CONTROLLER).is_some_and(|by| by == hash);
    by_us && note(annotation::WRITTEN).is_some_and(|as_written| *as_written != written(have))
}

/// The write that one MachineConfig needs.
enum Write {
    Create,
    Patch(Value),
}

fn change(have: Option<&MachineConfig>, wanted: &MachineConfig) -> Option<Write> {
    let Some(have) = have else { return Some(Write::Create) };
    let mut patch = difference(&json!(have), &json!(with_our_fields(have, wanted)))?;
    patch["metadata"]["resourceVersion"] = json!(have.metadata.resource_version);
    Some(Write::Patch(patch))
}

/// The fields that the API server stored differently from what was sent; `None` if all are as sent.
fn altered(answer: &MachineConfig, wanted: &MachineConfig) -> Option<String> {
    difference(&json!(answer), &json!(with_our_fields(answer, wanted))).map(|patch| fields(&patch))
}

/// The names of the fields that a patch changes; never their values.
fn fields(patch: &Value) -> String {
    let mut fields = Vec::new();
    for (part, value) in patch.as_object().into_iter().flatten() {
        for key in value.as_object().into_iter().flat_map(|v| v.keys()).filter(|k| *k != "resourceVersion") {
            fields.push(format!("{part}.{key}"));
        }
    }
    fields.join(", ")
}

/// The object stored under a name. It is read from the API server if the cache keeps no spec of it: somebody may have
/// made it look like a pool's rendered config.
async fn stored_object(shared: &Shared, name: &str) -> Result<Option<Arc<MachineConfig>>, CallError> {
    match shared.stores.configs.get(name).as_deref() {
        None => Ok(None),
        Some(Config::Source(have)) => Ok(Some(have.clone())),
        Some(Config::Rendered(_)) => {
            let api = shared.api::<MachineConfig>();
            let mut have = call(|| format!("machineconfig {name}"), api.get(name)).await?;
            have.metadata.managed_fields = None;
            Ok(Some(Arc::new(have)))
        }
    }
}

/// Creates one MachineConfig, or restores it if it differs.
///
/// # Errors
/// The write fails, or is accepted but something else is stored.
pub(crate) async fn create_or_restore(shared: &Shared, wanted: &MachineConfig) -> Result<(), WriteError> {
    let name = wanted.name_any();
    let digest = digest(wanted);
    let wanted = &with_digest(wanted);
    let there = stored_object(shared, &name).await?;
    let edited = there.as_deref().is_some_and(|have| edited(have, &shared.versions.hash));
    let api = shared.api::<MachineConfig>();
    let what = || format!("machineconfig {name}");
    let (answer, changed) = match change(there.as_deref(), wanted) {
        None => {
            shared.stored_configs.record_stored(&name, digest);
            return Ok(());
        }
        Some(Write::Create) => {
            let made = call(what, api.create(&PostParams::default(), wanted)).await?;
            tracing::info!(name, "made");
            (made, "was deleted and is created again".to_owned())
        }
        Some(Write::Patch(patch)) => {
            let fields = fields(&patch);
            let answer = call(what, api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
            tracing::info!(name, fields, "updated");
            (answer, format!("was changed by somebody else ({fields}) and is restored"))
        }
    };
    if let Some(fields) = altered(&answer, wanted) {
        shared.config_answer(answer);
        return Err(WriteError::Altered { name, fields });
    }
    let not_ours = edited || shared.stored_configs.was_stored(&name, digest);
    shared.stored_configs.record_stored(&name, digest);
    if not_ours && shared.stored_configs.may_report(&name) {
        let (source, instead) = instead(wanted);
        let message = format!("MachineConfig {name} {changed}: {instead}");
        shared.events.publish(source, reference(&answer), ControllerEvent::PutBack, message);
    }
    shared.config_answer(answer);
    Ok(())
}

/// Deletes one MachineConfig, exactly the version that the plan was made from.
///
/// # Errors
/// The deletion fails, or is accepted but a finalizer of somebody else keeps the object.
pub(crate) async fn delete(shared: &Shared, name: &str, why: &str) -> Result<(), WriteError> {
    let Some(have) = shared.stores.configs.get(name) else { return Ok(()) };
    let Some(have) = have.source() else { return Ok(()) };
    let held = |object: &MachineConfig| {
        let finalizers = object.finalizers().join(", ");
        WriteError::Held { name: name.to_owned(), finalizers }
    };
    if have.metadata.deletion_timestamp.is_some() {
        return Err(held(have));
    }
    let preconditions = Preconditions {
        uid: have.metadata.uid.clone(),
        resource_version: have.metadata.resource_version.clone(),
    };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    shared.stored_configs.forget_deleted(name);
    let api = shared.api::<MachineConfig>();
    let answer = match call(|| format!("machineconfig {name}"), api.delete(name, &params)).await {
        Ok(answer) => answer,
        Err(e) if e.is_not_found() => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    // The API server answered with the object, not with a status: the object still exists.
    if let Some(left) = answer.left().filter(|left| !left.finalizers().is_empty()) {
        let error = held(&left);
        shared.config_answer(left);
        return Err(error);
    }
    tracing::info!(name, version = version_of(have.as_ref()), "removed: {why}");
    Ok(())
}

/// What the MachineConfig is made from, and so where to make a change instead.
fn instead(config: &MachineConfig) -> (Source, String) {
    let role = config.labels().get(label::ROLE).map_or("ROLE", String::as_str);
    let owner = config.metadata.owner_references.iter().flatten().next();
    match owner.map(|o| (o.kind.as_str(), o.name.as_str())) {
        Some((kind @ ("KubeletConfig" | "ContainerRuntimeConfig"), name)) => {
            let source = if kind == "KubeletConfig" { Source::Kubelet } else { Source::Runtime };
            (source, format!("it is generated from {kind} {name}; make the change there"))
        }
        Some(("ControllerConfig", _)) => {
            let message = format!(
                "it is generated from the controller's templates; make the change in a MachineConfig of your \
                 own, labelled {}: {role}, whose name sorts after it, for example 50-{role}-mine",
                label::ROLE
            );
            (Source::Template, message)
        }
        _ if source_of(&config.name_any()) == Some(Origin::Registries) => {
            let message = "it is generated from Image cluster and the mirror sets (ImageDigestMirrorSet, \
                ImageTagMirrorSet, \
                           ImageContentSourcePolicy); make the change there";
            (Source::Runtime, message.to_owned())
        }
        _ => {
            let message = format!(
                "it is generated from the templates, Node cluster and FeatureGate cluster; make the change \
                 there, or in a \
                 KubeletConfig for pool {role}"
            );
            (Source::Kubelet, message)
        }
    }
}

#[cfg(test)]
mod tests;
