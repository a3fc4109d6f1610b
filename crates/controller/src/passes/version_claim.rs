//! Whose ControllerConfig it is: the annotation `generated-by-version` names one version, and only a controller of that
//! version renders, so that the inputs of two versions never mix. The controller that holds the lease is who owns it: it
//! takes over what an older, a newer or a foreign one has left there, and says so. Only where another program writes it
//! back again and again does rendering wait, and the pools' condition names that program.
//!
//! What it is not: leadership (see `leader`). Two controllers of one cluster agree about that by the Lease.

use crate::context::Context;
use crate::flight::refusals::AGAIN;
use crate::io::events::{Source, reference};
use api::events::ControllerEvent;
use api::k8s::ResourceExt;
use api::names::annotation::GENERATED_BY_VERSION;
use api::v1::ControllerConfig;
use client::{CallError, call};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The name under which the API server keeps who wrote the annotation.
const FIELD_MANAGER: &str = "machine-config-controller";
/// So often it is taken back at once: an administrator who applies an old file, or a last write of a controller that has
/// just lost the lease, is not a program that keeps writing.
const AT_ONCE: u32 = 2;
/// Then it is taken back this often. Nothing tells that a program has ended but that it does not write any more, so it is
/// tried; a try costs two writes, one of ours and one of its own, and pools wait no longer than this once it has ended.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// A program that watches the object has written it back by then. Until that is known the pools say what they said, so that
/// their conditions do not change with each try.
const PROVED: Duration = Duration::from_secs(5);
/// What has stood for so long is nobody else's any more: longer than deployment tools take from one look to the next.
const SETTLED: Duration = Duration::from_mins(16);

/// What happened to the annotation in this term.
#[derive(Debug, Default)]
pub(crate) struct Claim(Mutex<Past>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Past {
    /// How often we have taken it over, and when last.
    taken: Option<(u32, Instant)>,
    /// Why it is not ours now, for the pools' condition.
    why: Option<String>,
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is ours, or nobody's.
    Nothing,
    /// Write it.
    Take,
    /// Somebody keeps writing it: look again after this.
    Leave(Duration),
    /// It is ours again, and may be written back yet: look again after this.
    Prove(Duration),
}

/// The version that stands there, where it is not this one.
fn other<'a>(config: &'a ControllerConfig, version: &str) -> Option<&'a str> {
    config.annotations().get(GENERATED_BY_VERSION).map(String::as_str).filter(|found| *found != version)
}

fn decide(other: Option<&str>, past: &Past, now: Instant) -> Step {
    if other.is_none() {
        let left = past.taken.map(|(_, last)| PROVED.saturating_sub(now.duration_since(last)));
        return match left.filter(|left| past.why.is_some() && !left.is_zero()) {
            Some(left) => Step::Prove(left),
            None => Step::Nothing,
        };
    }
    let Some((times, last)) = past.taken else { return Step::Take };
    let ago = now.duration_since(last);
    if times < AT_ONCE || ago >= AGAIN_AFTER {
        return Step::Take;
    }
    Step::Leave(AGAIN_AFTER.saturating_sub(ago))
}

/// May pools be rendered?
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum May {
    Go,
    /// It is being taken over.
    Wait,
    /// It cannot be, and why.
    Not(String),
}

impl Claim {
    fn past(&self) -> Past {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, past: Past) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = past;
    }

    /// A new term: whoever wrote before may be gone.
    pub(crate) fn forget(&self) {
        self.set(Past::default());
    }

    /// May pools be rendered by this version from this ControllerConfig?
    pub(crate) fn may(&self, config: &ControllerConfig, version: &str) -> May {
        match (other(config, version), self.past().why) {
            (None, None) => May::Go,
            (Some(_), None) => May::Wait,
            (_, Some(why)) => May::Not(why),
        }
    }
}

/// Makes the annotation ours where it is not. Returns when to look again, if that is not when it changes.
///
/// # Errors
/// A read or write that may work when it is tried again.
pub(crate) async fn see_to(
    context: &Context,
    config: &ControllerConfig,
) -> Result<Option<Duration>, CallError> {
    let version = context.versions.raw.as_str();
    let past = context.claim.past();
    let step = decide(other(config, version), &past, Instant::now());
    let name = config.name_any();
    let trouble = || format!("generated-by-version of {name}");
    if step == Step::Nothing {
        context.troubles.over(&trouble());
        let stands = past.taken.filter(|(_, last)| last.elapsed() < SETTLED);
        told(context, Past { taken: stands, why: None });
        return Ok(None);
    }
    if let Step::Prove(left) = step {
        return Ok(Some(left));
    }
    match change(context, config, &past, step).await {
        Ok(again) => {
            context.troubles.over(&trouble());
            Ok(again)
        }
        Err(error) => {
            let Some(words) = context.troubles.words(&trouble(), &error) else { return Err(error) };
            let found = other(config, version).unwrap_or_default();
            let why = format!(
                "ControllerConfig {name}: metadata.annotations[{GENERATED_BY_VERSION}] is {found:?}, this controller is \
                 {version:?} and cannot take it over: {words}"
            );
            told(context, Past { why: Some(why), ..past });
            Ok(Some(AGAIN))
        }
    }
}

async fn change(
    context: &Context,
    config: &ControllerConfig,
    past: &Past,
    step: Step,
) -> Result<Option<Duration>, CallError> {
    let (name, version) = (config.name_any(), context.versions.raw.as_str());
    let api = context.api::<ControllerConfig>();
    let what = || format!("metadata of controllerconfig {name}");
    // Who wrote what is not kept in the cache.
    let there = call(what, api.get(&name)).await?;
    let Some(found) = other(&there, version).map(str::to_owned) else {
        context.controller_config_answer(there);
        return Ok(None);
    };
    let by = writer(&there).unwrap_or_else(|| "nobody that the API server knows of".to_owned());
    if let Step::Leave(wait) = step {
        let why = format!(
            "ControllerConfig {name}: metadata.annotations[{GENERATED_BY_VERSION}] is {found:?}, this controller is \
             {version:?}; {by} writes it back each time that it is taken over: stop that program, or take the annotation out \
             of what it applies"
        );
        told(context, Past { why: Some(why), ..past.clone() });
        return Ok(Some(wait));
    }
    let body = Patch::Merge(json!({"metadata": {
        "resourceVersion": there.metadata.resource_version,
        "annotations": {GENERATED_BY_VERSION: version},
    }}));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let answer = call(what, api.patch(&name, &params, &body)).await?;
    let times = past.taken.map_or(0, |(times, _)| times).saturating_add(1);
    // What the pools were told stays until it is known that nobody writes it back.
    let why = past.why.clone();
    context.claim.set(Past { taken: Some((times, Instant::now())), why });
    if past.why.is_some() {
        // A try, see AGAIN_AFTER: told once, by the pools.
        context.controller_config_answer(answer);
        return Ok(Some(PROVED));
    }
    let message = format!(
        "{GENERATED_BY_VERSION} was {found:?}, written by {by}; this controller, {version:?}, leads and has taken it over"
    );
    let about = reference(&answer);
    context.events.tell(Source::Template, about, ControllerEvent::VersionTakenOver, message);
    context.controller_config_answer(answer);
    Ok(None)
}

/// Keeps why the pools wait, and has them say it.
fn told(context: &Context, past: Past) {
    if context.claim.past() == past {
        return;
    }
    if let Some(why) = &past.why {
        tracing::warn!("{why}");
    }
    context.claim.set(past);
    context.queues.render.mark_all(context.stores.pools.names());
}

/// The field manager that wrote the annotation last.
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

    #[tokio::test(start_paused = true)]
    async fn another_version_is_taken_over_unless_somebody_keeps_writing_it() {
        let start = Instant::now();
        let taken = |times| Past { taken: Some((times, start)), why: None };
        let told = |times| Past { why: Some("why".to_owned()), ..taken(times) };
        let after = |seconds| start + Duration::from_secs(seconds);
        let leave = |seconds| Step::Leave(Duration::from_secs(seconds));
        for (found, past, now, want) in [
            (None, Past::default(), after(0), Step::Nothing),
            (None, taken(9), after(0), Step::Nothing),
            (Some("v0"), Past::default(), after(0), Step::Take),
            (Some("v0"), taken(1), after(0), Step::Take),
            (Some("v0"), taken(2), after(0), leave(30)),
            (Some("v0"), taken(2), after(29), leave(1)),
            // It may have gone.
            (Some("v0"), taken(2), after(30), Step::Take),
            // However often it was tried, nobody waits longer once it has.
            (Some("v0"), taken(u32::MAX), after(29), leave(1)),
            (Some("v0"), taken(u32::MAX), after(30), Step::Take),
            // Ours again: it may be written back yet.
            (None, told(9), after(1), Step::Prove(Duration::from_secs(4))),
            (None, told(9), after(5), Step::Nothing),
        ] {
            assert_eq!(decide(found, &past, now), want, "{found:?} {past:?}");
        }
    }

    /// Another program that writes its version back at once, for as long as it runs.
    #[tokio::test(start_paused = true)]
    async fn pools_go_on_half_a_minute_after_the_other_program_has_ended() {
        use crate::cache::store::Item;
        use crate::fake_server::{answer, context};
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
        let ours = crate::version::versions().raw;
        let us = ours.clone();
        let context = context(move |request| match *request.method() == http::Method::GET {
            true => answer(200, &object("v0", count.load(Ordering::Relaxed))),
            false => answer(200, &object(&us, count.fetch_add(2, Ordering::Relaxed) + 1)),
        });
        let put = |version: &str, at: u64| {
            let value: ControllerConfig = serde_json::from_value(object(version, at)).unwrap();
            let item = Item { version: at, uid: "u".to_owned(), value: Arc::new(value) };
            context.stores.controller_configs.apply("c".to_owned(), item);
        };
        put("v0", 1);
        let may = || {
            let config = context.stores.controller_configs.get("c").unwrap();
            context.claim.may(&config, &ours)
        };
        let pass = async || {
            let config = context.stores.controller_configs.get("c").unwrap();
            let again = see_to(&context, &config).await.unwrap();
            if other_runs.load(Ordering::Relaxed) {
                put("v0", writes.load(Ordering::Relaxed));
            }
            again
        };
        for _ in 0..3 {
            pass().await;
        }
        assert!(matches!(may(), May::Not(_)), "{:?}", may());
        // Minutes of it, and no pool is told anything else in between.
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_mins(20) {
            let again = pass().await.unwrap_or(Duration::from_secs(1));
            assert!(matches!(may(), May::Not(_)), "{:?}", may());
            tokio::time::sleep(again.min(Duration::from_secs(1))).await;
        }
        runs.store(false, Ordering::Relaxed);
        let ended = Instant::now();
        while may() != May::Go {
            assert!(ended.elapsed() < Duration::from_secs(45), "{:?}", ended.elapsed());
            pass().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
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
