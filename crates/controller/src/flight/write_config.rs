//! Writes the MachineConfigs that this controller makes: creates them, restores them after an edit (and says where to
//! make the change instead), and deletes them.
//!
//! What it is not: their content, or the check whether one is as it should be (see `own_config`).

use crate::cache::stores::Config;
use crate::cache::watch::version_of;
use crate::flight::own_config::{Put, altered, change, digest, edited, fields, with_digest};
use crate::flight::refusals::WriteError;
use crate::io::events::{Source, reference};
use crate::shared::Shared;
use api::events::ControllerEvent;
use api::k8s::ResourceExt;
use api::names::label;
use api::v1::MachineConfig;
use client::{CallError, call};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use render::generated::{Origin, source_of};
use std::sync::Arc;

/// The object stored under a name. It is read from the API server if the cache keeps no spec of it: somebody may have
/// made it look like a pool's rendered config.
async fn there(shared: &Shared, name: &str) -> Result<Option<Arc<MachineConfig>>, CallError> {
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
pub(crate) async fn put(shared: &Shared, wanted: &MachineConfig) -> Result<(), WriteError> {
    let name = wanted.name_any();
    let digest = digest(wanted);
    let wanted = &with_digest(wanted);
    let there = there(shared, &name).await?;
    let edited = there.as_deref().is_some_and(|have| edited(have, &shared.versions.hash));
    let api = shared.api::<MachineConfig>();
    let what = || format!("machineconfig {name}");
    let (answer, changed) = match change(there.as_deref(), wanted) {
        None => {
            shared.kept.record_stored(&name, digest);
            return Ok(());
        }
        Some(Put::Create) => {
            let made = call(what, api.create(&PostParams::default(), wanted)).await?;
            tracing::info!(name, "made");
            (made, "was deleted and is created again".to_owned())
        }
        Some(Put::Patch(patch)) => {
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
    let not_ours = edited || shared.kept.was_stored(&name, digest);
    shared.kept.record_stored(&name, digest);
    if not_ours && shared.kept.may_tell(&name) {
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
pub(crate) async fn remove(shared: &Shared, name: &str, why: &str) -> Result<(), WriteError> {
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
    shared.kept.gone(name);
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
mod tests {
    use super::*;
    use crate::fake_server::machine_config as mc;
    use serde_json::json;

    #[test]
    fn every_kind_says_where_its_change_belongs() {
        for (mc, want) in [
            (mc("00-worker", Some(("ControllerConfig", "c"))), "for example 50-worker-mine"),
            (
                mc("99-worker-generated-kubelet", Some(("KubeletConfig", "k"))),
                "KubeletConfig k; make the change there",
            ),
            (mc("99-worker-generated-registries", Some(("Image", "cluster"))), "ImageDigestMirrorSet"),
            (mc("99-worker-generated-registries", None), "ImageDigestMirrorSet"),
            (mc("98-worker-generated-kubelet", None), "a KubeletConfig for pool worker"),
        ] {
            let (_, message) = instead(&mc);
            assert!(message.contains(want), "{}: {message}", mc.name_any());
        }
    }

    #[tokio::test]
    async fn what_a_policy_changes_on_its_way_is_an_error_that_names_the_field() {
        use crate::fake_server::{answer, shared};
        use crate::flight::refusals::Failure as _;
        let wanted = mc("00-worker", None);
        for (stood, changed) in [(false, false), (false, true), (true, true)] {
            let mut stored = json!(with_digest(&wanted));
            stored["metadata"]["resourceVersion"] = json!("7");
            if changed {
                stored["spec"]["kernelArguments"] = json!(["audit=1"]);
            }
            let there: MachineConfig = serde_json::from_value(stored.clone()).unwrap();
            let shared = shared(move |_| answer(200, &stored));
            if stood {
                // The cache holds the result of an earlier write.
                shared.config_answer(there);
            }
            let done = put(&shared, &wanted).await;
            let text = done.as_ref().err().map(|e| (e.is_refused(), e.chain()));
            assert_eq!(text.is_some(), changed, "{text:?}");
            if let Some((refused, text)) = text {
                assert!(
                    refused && text.contains("00-worker") && text.contains("spec.kernelArguments"),
                    "{text}"
                );
                assert!(!text.contains("audit=1"), "{text}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_finalizer_of_somebody_elses_on_one_that_is_to_go_is_told_when_it_lasts() {
        use crate::fake_server::{answer, shared};
        use crate::flight::refusals::{Troubles, Writes};
        use std::sync::atomic::{AtomicU32, Ordering};
        use std::time::Duration;
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let object = |version: &str, deleted: Option<&str>| {
            json!({"metadata": {"name": "02-worker", "uid": "u", "resourceVersion": version,
                "finalizers": ["example.com/backup"], "deletionTimestamp": deleted}, "spec": {}})
        };
        let shared = shared(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            answer(200, &object("2", Some("2026-01-01T00:00:00Z")))
        });
        shared.config_answer(serde_json::from_value(object("1", None)).unwrap());
        let troubles = Troubles::default();
        let words = async || {
            let done = remove(&shared, "02-worker", "no template makes it").await;
            let mut writes = Writes::default();
            let words = writes.record(&troubles, "02-worker", done);
            assert!(writes.are_over() == words.is_some(), "retried until it is reported");
            words
        };
        assert_eq!(words().await, None, "its owner may still be writing");
        tokio::time::advance(Duration::from_secs(6)).await;
        let told = words().await.expect("it has lasted");
        assert!(told.contains("02-worker") && told.contains("example.com/backup"), "{told}");
        assert_eq!(asked.load(Ordering::Relaxed), 1, "what is being deleted is not deleted again");
    }
}
