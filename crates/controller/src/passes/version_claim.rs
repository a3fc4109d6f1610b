//! Takes over the ControllerConfig for this version. The annotation `generated-by-version` names one version, and only
//! a controller of that version renders, so that the inputs of two versions never mix. The holder of the lease owns the
//! annotation: it replaces the version of an older, newer or foreign controller, and says so. Only if another program
//! keeps writing its own version back does rendering wait; the pools' condition then names that program.
//!
//! What it is not: leadership (see `leader`). Two controllers of one cluster settle that by the Lease.

use crate::flight::refusals::AGAIN;
use crate::gates::version::{ClaimHistory, PROVED, SETTLED, Step, decide, other};
use crate::io::events::{Source, reference};
use crate::passes::queue::Pass;
use crate::shared::Shared;
use api::events::ControllerEvent;
use api::k8s::ResourceExt;
use api::names::annotation::GENERATED_BY_VERSION;
use api::v1::ControllerConfig;
use client::{CallError, call};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// The field manager of this controller's write of the annotation, as the API server records it.
const FIELD_MANAGER: &str = "machine-config-controller";
/// Takes the annotation over if it is not ours. Returns when to look again, unless the next change of the annotation is
/// soon enough.
///
/// # Errors
/// A read or write that may work when it is tried again.
pub(crate) async fn claim_version(
    shared: &Shared,
    config: &ControllerConfig,
) -> Result<Option<Duration>, CallError> {
    let version = shared.versions.raw.as_str();
    let past = shared.gates.version.past();
    let step = decide(other(config, version), &past, Instant::now());
    let name = config.name_any();
    let trouble = || format!("generated-by-version of {name}");
    if step == Step::Nothing {
        shared.troubles.over(&trouble());
        let stands = past.taken.filter(|(_, last)| last.elapsed() < SETTLED);
        told(shared, ClaimHistory { taken: stands, why: None });
        return Ok(None);
    }
    if let Step::Prove(left) = step {
        return Ok(Some(left));
    }
    match change(shared, config, &past, step).await {
        Ok(again) => {
            shared.troubles.over(&trouble());
            Ok(again)
        }
        Err(error) => {
            let Some(words) = shared.troubles.words(&trouble(), &error) else { return Err(error) };
            let found = other(config, version).unwrap_or_default();
            let why = format!(
                "ControllerConfig {name}: metadata.annotations[{GENERATED_BY_VERSION}] is {found:?}, but \
                 this controller is {version:?} and cannot change it: {words}"
            );
            told(shared, ClaimHistory { why: Some(why), ..past });
            Ok(Some(AGAIN))
        }
    }
}

async fn change(
    shared: &Shared,
    config: &ControllerConfig,
    past: &ClaimHistory,
    step: Step,
) -> Result<Option<Duration>, CallError> {
    let (name, version) = (config.name_any(), shared.versions.raw.as_str());
    let api = shared.api::<ControllerConfig>();
    let what = || format!("metadata of controllerconfig {name}");
    // The cache does not keep who wrote it.
    let there = call(what, api.get(&name)).await?;
    let Some(found) = other(&there, version).map(str::to_owned) else {
        shared.controller_config_answer(there);
        return Ok(None);
    };
    let by = writer(&there).unwrap_or_else(|| "an unknown field manager".to_owned());
    if let Step::Leave(wait) = step {
        let why = format!(
            "ControllerConfig {name}: metadata.annotations[{GENERATED_BY_VERSION}] is {found:?}, but this \
             controller is {version:?}, and {by} restores it after each correction: stop that program, or \
             remove the annotation from what it applies"
        );
        told(shared, ClaimHistory { why: Some(why), ..past.clone() });
        return Ok(Some(wait));
    }
    let body = Patch::Merge(json!({"metadata": {
        "resourceVersion": there.metadata.resource_version,
        "annotations": {GENERATED_BY_VERSION: version},
    }}));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let answer = call(what, api.patch(&name, &params, &body)).await?;
    let times = past.taken.map_or(0, |(times, _)| times).saturating_add(1);
    // If we took it over before and somebody wrote it back, the pools keep their message until it is known that nobody
    // writes it any more. If we never took it over, their message was about a refused write, which is over.
    let retry = past.taken.is_some() && past.why.is_some();
    let taken = Some((times, Instant::now()));
    if retry {
        // See `AGAIN_AFTER`: the pools report it, once.
        shared.gates.version.set(ClaimHistory { taken, why: past.why.clone() });
        shared.controller_config_answer(answer);
        return Ok(Some(PROVED));
    }
    told(shared, ClaimHistory { taken, why: None });
    let message = format!(
        "{GENERATED_BY_VERSION} was {found:?}, written by {by}; this controller, {version:?}, is the leader \
         and has changed it to its own version"
    );
    let about = reference(&answer);
    shared.events.publish(Source::Template, about, ControllerEvent::VersionTakenOver, message);
    shared.controller_config_answer(answer);
    Ok(None)
}

/// Records why the pools wait, and has them report it.
fn told(shared: &Shared, past: ClaimHistory) {
    if shared.gates.version.past() == past {
        return;
    }
    if let Some(why) = &past.why {
        tracing::warn!("{why}");
    }
    shared.gates.version.set(past);
    shared.mark_all_pools(Pass::Render);
}

/// The field manager that last wrote the annotation.
fn writer(config: &ControllerConfig) -> Option<String> {
    let field = format!("f:{GENERATED_BY_VERSION}");
    let wrote = config.metadata.managed_fields.iter().flatten().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let notes = fields.and_then(|f| f.get("f:metadata")?.get("f:annotations"));
        notes.is_some_and(|notes| notes.get(&field).is_some())
    });
    let last = wrote.max_by(|a, b| a.time.as_ref().map(|t| t.0).cmp(&b.time.as_ref().map(|t| t.0)));
    last.and_then(|entry| entry.manager.clone()).map(|manager| format!("field manager {manager:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::RenderGate;

    /// Another program that writes its version back at once, for as long as it runs.
    #[tokio::test(start_paused = true)]
    async fn pools_go_on_half_a_minute_after_the_other_program_has_ended() {
        use crate::cache::store::Item;
        use crate::fake_server::{answer, shared};
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
        let (runs, writes) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(1)));
        let (other_runs, count) = (runs.clone(), writes.clone());
        let object = |version: &str, at: u64| {
            json!({
                "metadata": {"name": "c", "uid": "u", "resourceVersion": at.to_string(),
                    "annotations": {GENERATED_BY_VERSION: version}},
                "spec": api::v1::ControllerConfigSpec::default(),
            })
        };
        let ours = render::Versions::of_this_build().raw;
        let us = ours.clone();
        let shared = shared(move |request| match *request.method() == http::Method::GET {
            true => answer(200, &object("v0", count.load(Ordering::Relaxed))),
            false => answer(200, &object(&us, count.fetch_add(2, Ordering::Relaxed) + 1)),
        });
        let put = |version: &str, at: u64| {
            let value: ControllerConfig = serde_json::from_value(object(version, at)).unwrap();
            let item = Item { version: at, uid: "u".to_owned(), value: Arc::new(value) };
            shared.stores.controller_configs.apply("c".to_owned(), item);
        };
        put("v0", 1);
        let may = || {
            let config = shared.stores.controller_configs.get("c").unwrap();
            shared.gates.version.check(&config, &ours)
        };
        let pass = async || {
            let config = shared.stores.controller_configs.get("c").unwrap();
            let again = claim_version(&shared, &config).await.unwrap();
            if other_runs.load(Ordering::Relaxed) {
                put("v0", writes.load(Ordering::Relaxed));
            }
            again
        };
        for _ in 0..3 {
            pass().await;
        }
        assert!(matches!(may(), RenderGate::Refuse { .. }), "{:?}", may());
        // This goes on for minutes, and the pools' message does not change in between.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_mins(20) {
            let again = pass().await.unwrap_or(Duration::from_secs(1));
            assert!(matches!(may(), RenderGate::Refuse { .. }), "{:?}", may());
            tokio::time::sleep(again.min(Duration::from_secs(1))).await;
        }
        runs.store(false, Ordering::Relaxed);
        let ended = Instant::now();
        while may() != RenderGate::Open {
            assert!(ended.elapsed() < Duration::from_secs(45), "{:?}", ended.elapsed());
            pass().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// A refused first take-over is no sign that somebody writes the annotation back.
    #[tokio::test(start_paused = true)]
    async fn a_take_over_that_was_refused_at_first_is_one_like_any_other() {
        use crate::cache::store::Item;
        use crate::fake_server::{answer, shared};
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};
        let ours = render::Versions::of_this_build().raw;
        let object = |version: &str, at: u64| {
            json!({
                "metadata": {"name": "c", "uid": "u", "resourceVersion": at.to_string(),
                    "annotations": {GENERATED_BY_VERSION: version}},
                "spec": api::v1::ControllerConfigSpec::default(),
            })
        };
        let denied = Arc::new(AtomicBool::new(true));
        let (denies, us) = (denied.clone(), ours.clone());
        let shared = shared(move |request| match (request.method(), denies.load(Ordering::Relaxed)) {
            (&http::Method::GET, _) => answer(200, &object("v0", 1)),
            (_, true) => answer(403, &json!({"kind": "Status", "code": 403, "message": "not by you"})),
            (_, false) => answer(200, &object(&us, 2)),
        });
        let value: ControllerConfig = serde_json::from_value(object("v0", 1)).unwrap();
        let item = Item { version: 1, uid: "u".to_owned(), value: Arc::new(value) };
        shared.stores.controller_configs.apply("c".to_owned(), item);
        let pass = async || {
            let config = shared.stores.controller_configs.get("c").unwrap();
            claim_version(&shared, &config).await.unwrap()
        };
        assert_eq!(pass().await, Some(AGAIN));
        let why = shared.gates.version.past().why.unwrap_or_default();
        assert!(why.contains("not by you"), "{why}");
        denied.store(false, Ordering::Relaxed);
        assert_eq!(pass().await, None, "nobody has written it back: there is nothing to prove");
        let config = shared.stores.controller_configs.get("c").unwrap();
        assert_eq!(shared.gates.version.check(&config, &ours), RenderGate::Open);
        assert_eq!(shared.gates.version.past().why, None);
    }

    #[test]
    fn the_last_writer_of_the_annotation_is_named() {
        let entry = |manager: &str, time: &str, key: &str| {
            json!({"manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, format!("f:{key}"): {}}}}})
        };
        let config = |entries: serde_json::Value| -> ControllerConfig {
            serde_json::from_value(json!({
                "metadata": {"name": "c", "managedFields": entries},
                "spec": api::v1::ControllerConfigSpec::default(),
            }))
            .unwrap()
        };
        let entries = json!([
            entry("kubectl", "2026-01-01T00:00:00Z", GENERATED_BY_VERSION),
            entry("argocd", "2026-01-02T00:00:00Z", GENERATED_BY_VERSION),
            entry("other", "2026-01-03T00:00:00Z", "other"),
            {"manager": "status", "time": "2026-01-04T00:00:00Z", "fieldsV1": {"f:status": {}}},
        ]);
        assert_eq!(writer(&config(entries)).as_deref(), Some("field manager \"argocd\""));
        assert_eq!(writer(&config(json!([]))), None);
    }
}
