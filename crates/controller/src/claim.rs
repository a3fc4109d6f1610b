//! Whose ControllerConfig it is: the annotation `generated-by-version` names one version, and only a controller of that
//! version renders, so that the inputs of two versions never mix. The controller that holds the lease is who owns it: it
//! takes over what an older, a newer or a foreign one has left there, and says so. Only where another program writes it
//! back again and again does rendering wait, and the pools' condition names that program.
//!
//! What it is not: leadership (see `leader`). Two controllers of one cluster agree about that by the Lease.

use crate::call::{CallError, call};
use crate::context::Context;
use crate::events::{Source, reference};
use crate::refusal::AGAIN;
use api::events::ControllerEvent;
use api::k8s::ResourceExt;
use api::names::annotation::GENERATED_BY_VERSION;
use api::v1::ControllerConfig;
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
/// Then it is left for so long, twice as long each time, up to [`LONGEST`]: the other program may have gone.
const FIRST_WAIT: Duration = Duration::from_secs(60);
/// See [`FIRST_WAIT`]. What has stood for as long is nobody else's any more.
const LONGEST: Duration = Duration::from_mins(16);

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
}

/// The version that stands there, where it is not this one.
fn other<'a>(config: &'a ControllerConfig, version: &str) -> Option<&'a str> {
    config.annotations().get(GENERATED_BY_VERSION).map(String::as_str).filter(|found| *found != version)
}

fn decide(other: Option<&str>, past: &Past, now: Instant) -> Step {
    if other.is_none() {
        return Step::Nothing;
    }
    let Some((times, last)) = past.taken else { return Step::Take };
    let ago = now.duration_since(last);
    let doublings = times.saturating_sub(AT_ONCE).min(8);
    let wait = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST);
    if times < AT_ONCE || ago >= wait { Step::Take } else { Step::Leave(wait.saturating_sub(ago)) }
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
            (None, _) => May::Go,
            (Some(_), None) => May::Wait,
            (Some(_), Some(why)) => May::Not(why),
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
        let stands = past.taken.filter(|(_, last)| last.elapsed() < LONGEST);
        context.claim.set(Past { taken: stands, why: None });
        return Ok(None);
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
        let after = |seconds| start + Duration::from_secs(seconds);
        let leave = |seconds| Step::Leave(Duration::from_secs(seconds));
        for (found, past, now, want) in [
            (None, Past::default(), after(0), Step::Nothing),
            (None, taken(9), after(0), Step::Nothing),
            (Some("v0"), Past::default(), after(0), Step::Take),
            (Some("v0"), taken(1), after(0), Step::Take),
            (Some("v0"), taken(2), after(0), leave(60)),
            (Some("v0"), taken(2), after(59), leave(1)),
            // It may have gone.
            (Some("v0"), taken(2), after(60), Step::Take),
            (Some("v0"), taken(3), after(60), leave(60)),
            (Some("v0"), taken(99), after(60), leave(900)),
            (Some("v0"), taken(u32::MAX), after(16 * 60), Step::Take),
        ] {
            assert_eq!(decide(found, &past, now), want, "{found:?} {past:?}");
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
