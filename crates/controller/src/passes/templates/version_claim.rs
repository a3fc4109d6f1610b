//! Takes over the ControllerConfig for this version. The annotation `generated-by-version` names one version, and only
//! a controller of that version renders, so that the inputs of two versions never mix. The holder of the lease owns the
//! annotation: it replaces the version of an older, newer or foreign controller, and says so. Only if another program
//! keeps writing its own version back does rendering wait; the pools' condition then names that program.
//!
//! Where an operator keeps the cluster, it says in the annotation `released-version` when all parts of its version are rolled
//! out. Until then a controller of another version claims nothing, and pools wait.
//!
//! What it is not: leadership (see `client::lease`). Two controllers of one cluster settle that by the Lease.

use crate::change::Changed;
use crate::flight::refusals::AGAIN;
use crate::io::events::{Source, reference};
use crate::render_prerequisites::{ClaimHistory, generated_by_another, released_for_another};
use crate::shared::Shared;
use api::events::ControllerEvent;
use api::k8s::ResourceExt;
use api::names::annotation::GENERATED_BY_VERSION;
use api::names::own::RELEASED_VERSION;
use api::v1::ControllerConfig;
use client::{CallError, call};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// The field manager of this controller's write of the annotation, as the API server records it.
const FIELD_MANAGER: &str = "machine-config-controller";

/// How many times the annotation is taken back at once. An administrator who applies an old file, or a last write of a
/// controller that has just lost the lease, is not a program that keeps writing.
const AT_ONCE: u32 = 2;
/// How often it is taken back after that. The only sign that the other program has stopped is that it no longer writes,
/// so we try. A try costs two writes, one of ours and one of the program's. Once the program has stopped, pools wait no
/// longer than this.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// A program that watches the object has written its version back by then. Until that is known the pools keep their
/// message, so that their conditions do not change with each try.
const PROVED: Duration = Duration::from_secs(5);
/// After this long the annotation counts as ours: no other program writes it. It is longer than the interval at which
/// deployment tools compare.
const SETTLED: Duration = Duration::from_mins(16);

/// The rollout of config server and agents takes no longer than this: the operator gives up on each after ten minutes.
/// After that the pools say why they wait.
const ROLLED_OUT: Duration = Duration::from_mins(25);

/// What to do about the annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is ours, or nobody's.
    Nothing,
    /// Write it.
    Take,
    /// Somebody keeps writing it: look again after this time.
    Leave(Duration),
    /// It is ours again, but may still be written back: look again after this time.
    Prove(Duration),
}

/// What to do when the annotation says another version, or none other.
fn decide(other: Option<&str>, past: &ClaimHistory, now: Instant) -> Step {
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

/// Takes the annotation over if it is not ours. Returns when to look again, unless the next change of the annotation is
/// soon enough.
///
/// # Errors
/// A read or write that may work when it is tried again.
pub(super) async fn claim_version(
    shared: &Shared,
    config: &ControllerConfig,
) -> Result<Option<Duration>, CallError> {
    let version = shared.versions.raw.as_str();
    let past = shared.prerequisites.version.claims();
    if let Some(released) = released_for_another(config, version) {
        return Ok(wait_for_operator(shared, config, released, &past));
    }
    let past = ClaimHistory { held: None, why: past.why.filter(|_| past.held.is_none()), ..past };
    let step = decide(generated_by_another(config, version), &past, Instant::now());
    let name = config.name_any();
    let trouble = || format!("generated-by-version of {name}");
    if step == Step::Nothing {
        shared.troubles.resolved(&trouble());
        let stands = past.taken.filter(|(_, last)| last.elapsed() < SETTLED);
        report_why(shared, ClaimHistory { taken: stands, ..ClaimHistory::default() });
        return Ok(None);
    }
    if let Step::Prove(left) = step {
        return Ok(Some(left));
    }
    match change(shared, config, &past, step).await {
        Ok(again) => {
            shared.troubles.resolved(&trouble());
            Ok(again)
        }
        Err(error) => {
            let Some(words) = shared.troubles.due_message(&trouble(), &error) else { return Err(error) };
            let found = generated_by_another(config, version).unwrap_or_default();
            let why = format!(
                "ControllerConfig {name}: metadata.annotations[{GENERATED_BY_VERSION}] is {found:?}, but \
                 this controller is {version:?} and cannot change it: {words}"
            );
            report_why(shared, ClaimHistory { why: Some(why), ..past });
            Ok(Some(AGAIN))
        }
    }
}

/// Waits for the operator, and has the pools say so when that takes too long. Returns when to look again.
fn wait_for_operator(
    shared: &Shared,
    config: &ControllerConfig,
    released: &str,
    past: &ClaimHistory,
) -> Option<Duration> {
    let since = past.held.unwrap_or_else(Instant::now);
    let left = ROLLED_OUT.saturating_sub(since.elapsed());
    let why = left.is_zero().then(|| {
        format!(
            "ControllerConfig {}: metadata.annotations[{RELEASED_VERSION}] is {released:?}, and this controller is {:?}: for {} \
             minutes the operator has not rolled out all parts of that version; kubectl get machineconfigoperator cluster -o yaml \
             says why. Where no operator runs any more, remove the annotation",
            config.name_any(),
            shared.versions.raw,
            ROLLED_OUT.as_secs() / 60
        )
    });
    report_why(shared, ClaimHistory { why, held: Some(since), ..past.clone() });
    (!left.is_zero()).then_some(left)
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
    let Some(found) = generated_by_another(&there, version).map(str::to_owned) else {
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
        report_why(shared, ClaimHistory { why: Some(why), ..past.clone() });
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
        shared.prerequisites.version.set(ClaimHistory { taken, why: past.why.clone(), held: None });
        shared.controller_config_answer(answer);
        return Ok(Some(PROVED));
    }
    report_why(shared, ClaimHistory { taken, ..ClaimHistory::default() });
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
fn report_why(shared: &Shared, past: ClaimHistory) {
    if shared.prerequisites.version.claims() == past {
        return;
    }
    if let Some(why) = &past.why {
        tracing::warn!("{why}");
    }
    shared.prerequisites.version.set(past);
    shared.changed(&Changed::RenderPrerequisite);
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
mod tests;
