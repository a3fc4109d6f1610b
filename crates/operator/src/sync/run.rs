//! The operator's loop: who acts, when the next pass begins, and how long a failed one waits.
//!
//! Flow: the Lease is won → watches of everything that a pass looks at → a pass at each change, after each wait, and each
//! hour → the Lease is lost or the process ends, and the pass that runs is dropped. A pass that was dropped anywhere is taken
//! up by the next one, here or elsewhere.
//!
//! What it is not: a pass (see `pass`).

use super::followed::{Followed, watches};
use super::metrics::Metrics;
use super::options::Options;
use super::pass::{PassResult, Syncer};
use super::{AGAIN, Step, Stop, Stopped, cluster, report, status};
use crate::accounts::OPERATOR;
use crate::{definitions, settings};
use api::names::VERSION_RAW;
use api::v1alpha1::{ImageFrom, MachineConfigOperator};
use client::lease::Candidacy;
use client::{Backoff, CallError, ProcessCounts, chain};
use kube::Client;
use listen::tls::TlsProfile;
use listen::{Access, Endpoint, Health, ListenError};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Changes come in bursts: a pass begins this long after the first change.
const SETTLE: Duration = Duration::from_millis(500);
/// The waits after passes that failed: jitter keeps several operators, and several clusters, apart.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_secs(60) };
/// While something is waited for, a pass is made at least this often: pods tell of their trouble without any change of what
/// is watched.
const WAITING: Duration = Duration::from_secs(10);
/// So many conflicts in a row are taken as a race; more are a fight, and wait as failures do.
const CONFLICTS: u32 = 5;

/// Why the operator could not start, or a single pass failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Metrics and probes cannot be served: an address is taken, or a certificate cannot be used.
    #[error("metrics cannot be served")]
    Metrics(#[from] ListenError),
    /// The cluster could not be read.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A step that cannot be done.
    #[error("{step}: {why}")]
    Failed {
        /// The step.
        step: super::Step,
        /// The object, the cause and the remedy.
        why: String,
    },
}

/// Makes one pass, and returns what it wrote. What must be waited for is left to the next pass, but for a definition that has
/// just got another version to store: after a minute its objects are rewritten.
///
/// # Errors
/// The operator of another version keeps the installation, and this is not a pod of it: nothing is written then. Or the first step
/// of the installation that failed.
pub async fn run_once(client: Client, options: Options) -> Result<Vec<String>, StartError> {
    if options.image.is_none()
        && let Some(why) = cluster::settings(&client).await?.as_ref().and_then(kept_by_another_version)
    {
        return Err(StartError::Failed { step: Step::Settings, why });
    }
    let metrics = Arc::new(Metrics::new(&mut Registry::default()));
    let mut syncer = Syncer::new(client, options, metrics);
    let mut passed = Box::pin(syncer.pass(None)).await?;
    for _ in 0..CONFLICTS {
        if !passed.conflict {
            break;
        }
        passed = Box::pin(syncer.pass(None)).await?;
    }
    // Nobody comes back in time for these: the next run would wait for the whole of it again.
    for _ in 0..CONFLICTS {
        let Some(left) = passed.settles else { break };
        tokio::time::sleep(left).await;
        let before = std::mem::take(&mut passed.done);
        passed = Box::pin(syncer.pass(None)).await?;
        passed.done.splice(0..0, before);
    }
    report::report(&syncer.client, &syncer.metrics, &passed).await;
    ended(passed)
}

/// What a single pass has written, or the step that failed. What says nothing of the installation is logged.
fn ended(passed: PassResult) -> Result<Vec<String>, StartError> {
    match passed.stopped {
        Some(Stopped { step, stop: Stop::Failed(why) }) if step.is_of_installation() => {
            Err(StartError::Failed { step, why })
        }
        Some(Stopped { step, stop: Stop::Failed(why) }) => {
            tracing::warn!("{}: {why}", step.failed());
            Ok(passed.done)
        }
        _ => Ok(passed.done),
    }
}

/// Why a pass of this version by hand must not begin: it would write the definitions and rights of this version, and the operator of
/// another one keeps the parts. `None`: it may, also while an upgrade to this version is under way.
fn kept_by_another_version(settings: &MachineConfigOperator) -> Option<String> {
    let said = settings.status.as_ref()?;
    let rolled_out = said.versions.iter().find(|v| v.name == status::OPERATOR).map(|v| v.version.as_str());
    let at_work = Some(said.observed_by.as_str()).filter(|by| !by.is_empty());
    if [rolled_out, at_work].contains(&Some(VERSION_RAW)) {
        return None;
    }
    let other = rolled_out.or(at_work)?;
    let remedy = match settings.spec.image_from {
        _ if definitions::is_newer(other) => format!("use `mco` of {other} or newer"),
        ImageFrom::Settings => {
            format!(
                "use `mco` of {other}, or upgrade with `mco install --image` and an image of {VERSION_RAW}"
            )
        }
        ImageFrom::ReleasePayload => {
            format!("use `mco` of {other}, or upgrade with the payload of a release of {VERSION_RAW}")
        }
    };
    Some(format!(
        "the operator of {other} keeps the installation, as the status of {} says, and this is {VERSION_RAW}. Nothing was written: \
         only a part of the installation would be of this version; {remedy}",
        settings::name()
    ))
}

/// Runs until `stop`.
///
/// # Errors
/// The address of the metrics is taken.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), StartError> {
    let (client, requests) = client::counted(client);
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::new(&mut registry));
    let ready = Arc::new(AtomicBool::new(false));
    let endpoint = Endpoint {
        registry: Arc::new(registry),
        health: Arc::new(Answered(Arc::clone(&ready))),
        addresses: options.metrics.clone(),
        access: Access::fixed(client.clone()),
        profile: TlsProfile::default(),
    };
    tokio::spawn(endpoint.bind("--metrics-listen").await?.serve(stop.clone()));
    tokio::spawn(be_ready(client.clone(), ready, stop.clone()));
    let mut candidacy = match options.leader_elect {
        true => {
            let metrics = Arc::clone(&metrics);
            let count = move || metrics.count(ProcessCounts::of(&requests));
            Candidacy::by_lease(client.clone(), OPERATOR, Arc::default(), Box::new(count))
        }
        false => Candidacy::alone(),
    };
    while candidacy.until_leader(&stop).await.is_some() {
        metrics.leader.set(1);
        let syncer = Syncer::new(client.clone(), options.clone(), Arc::clone(&metrics));
        tokio::select! {
            () = stop.cancelled() => {}
            () = candidacy.until_lost() => {}
            () = term(syncer) => {}
        }
        stands_by(&metrics);
    }
    candidacy.end().await;
    Ok(())
}

/// What fails from now on is for the next leader to say.
fn stands_by(metrics: &Metrics) {
    metrics.leader.set(0);
    metrics.failed(None);
}

/// Ready is whoever has reached the API server, and stands by for the Lease or holds it: a rollout of the operator must not
/// wait for leadership, which the old one keeps until it ends.
#[derive(Debug)]
struct Answered(Arc<AtomicBool>);

impl Health for Answered {
    fn ready(&self) -> (bool, String) {
        (self.0.load(Ordering::Relaxed), "{}".to_owned())
    }
}

/// Ready once the API server has answered.
async fn be_ready(client: Client, ready: Arc<AtomicBool>, stop: CancellationToken) {
    let mut waits = RETRY.series();
    loop {
        let answer =
            client::call(|| "get the API server's version".to_owned(), client.apiserver_version()).await;
        match answer {
            Ok(_) => break ready.store(true, Ordering::Relaxed),
            Err(error) => tracing::debug!("not ready: {}", error.chain()),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(waits.next().unwrap_or(RETRY.last)) => {}
        }
    }
}

/// How long to wait for a change after a pass.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    /// Begin again at once.
    None,
    /// Wait this long, unless something changes.
    UntilChange(Duration),
    /// Wait this long whatever changes: a failure must not make a busy loop. The watches are listened to meanwhile.
    All(Duration),
}

/// How long to wait, after so many failures and conflicts in a row.
fn rest(passed: Option<&PassResult>, failures: u32, conflicts: u32) -> Rest {
    match passed {
        None => Rest::All(RETRY.delay(failures)),
        Some(passed) if passed.conflict && conflicts < CONFLICTS => Rest::None,
        Some(passed) if passed.conflict => Rest::All(RETRY.delay(conflicts)),
        // One that only says that a watch does not work, that machines wait or that a CA ends soon has done everything. Its wait is that
        // of any other pass; a watch that does not work ends it after a minute at the latest.
        Some(passed) => match stopped_at_installation(passed).map(|s| &s.stop) {
            // Nothing tells any more of the machine that waits.
            None if passed.joining_failed => Rest::UntilChange(WAITING),
            None if !passed.stored.is_empty() => {
                Rest::UntilChange(passed.settles.map_or(RETRY.last, |left| left.min(RETRY.last)))
            }
            None => Rest::UntilChange(AGAIN),
            Some(Stop::Waiting(_)) => Rest::UntilChange(WAITING),
            // Nothing was tried: they are waited for.
            Some(Stop::Failed(_)) if lacks_settings(passed) => Rest::UntilChange(RETRY.last),
            Some(Stop::Failed(_)) => Rest::All(RETRY.delay(failures)),
        },
    }
}

/// How many passes in a row have failed, this one included. One that only says that a watch does not work, that machines wait or that a
/// CA ends soon has done everything: there may be many of these, one a minute or more, and the next failure would wait as the last of
/// a long series.
fn failures_in_a_row(passed: Option<&PassResult>, before: u32) -> u32 {
    let failed = passed.is_none_or(|passed| {
        stopped_at_installation(passed).is_some_and(|s| matches!(s.stop, Stop::Failed(_)))
    });
    if failed { before.saturating_add(1) } else { 0 }
}

/// Whether the pass has ended because there are no settings.
fn lacks_settings(passed: &PassResult) -> bool {
    passed.seen.settings.is_none() && passed.stopped.as_ref().is_some_and(|s| s.step == Step::Settings)
}

/// What keeps the installation from being as it is to be. `None`: nothing does, whatever else the pass says.
fn stopped_at_installation(passed: &PassResult) -> Option<&Stopped> {
    passed.stopped.as_ref().filter(|s| s.step.is_of_installation())
}

/// Makes passes for as long as it is polled.
async fn term(mut syncer: Syncer) {
    let mut followed = Followed::default();
    let mut watches = watches(&syncer.client, &syncer.options, &followed);
    let (mut failures, mut conflicts) = (0_u32, 0_u32);
    let mut told = String::new();
    loop {
        let passed = match Box::pin(syncer.pass(watches.trouble())).await {
            Ok(passed) => {
                passed.done.iter().for_each(|d| tracing::info!("written: {d}"));
                report::report(&syncer.client, &syncer.metrics, &passed).await;
                Some(passed)
            }
            Err(error) => {
                tracing::warn!("{}", chain(&error));
                report::unread(&syncer.metrics);
                None
            }
        };
        let words =
            passed.as_ref().and_then(|p| p.stopped.as_ref()).map_or_else(String::new, |s| match &s.stop {
                Stop::Waiting(what) => format!("{}: waiting: {what}", s.step),
                Stop::Failed(why) => format!("{}: {why}", s.step.failed()),
            });
        // Once for each trouble, not once for each pass. The watches say theirs themselves, and so does what machines wait for.
        let step = passed.as_ref().and_then(|passed| passed.stopped.as_ref()).map(|stopped| stopped.step);
        let is_said = matches!(step, Some(Step::Watch | Step::Joining));
        if !words.is_empty() && words != told && !is_said {
            tracing::warn!("{words}");
        }
        told = words;
        let follow = passed.as_ref().map_or_else(|| followed.clone(), Followed::of);
        if follow != followed {
            followed = follow;
            watches = self::watches(&syncer.client, &syncer.options, &followed);
        }
        let rest = rest(passed.as_ref(), failures, conflicts);
        failures = failures_in_a_row(passed.as_ref(), failures);
        conflicts = if passed.as_ref().is_some_and(|p| p.conflict) { conflicts.saturating_add(1) } else { 0 };
        match rest {
            Rest::None => continue,
            Rest::All(wait) => watches.whole_wait(wait).await,
            Rest::UntilChange(wait) => {
                watches.until_change(wait).await;
                tokio::time::sleep(SETTLE).await;
            }
        }
        watches.catch_up();
    }
}

#[cfg(test)]
mod tests;
