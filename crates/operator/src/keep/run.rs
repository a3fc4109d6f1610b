//! The operator's loop: who acts, when the next pass begins, and how long a failed one waits.
//!
//! Flow: the Lease is won → watches of everything that a pass looks at → a pass at each change, after each wait, and each
//! hour → the Lease is lost or the process ends, and the pass that runs is dropped. A pass that was dropped anywhere is taken
//! up by the next one, here or elsewhere.
//!
//! What it is not: a pass (see `pass`).

use super::cluster::{KINDS, kept_label};
use super::metrics::Metrics;
use super::pass::{Keeper, Passed};
use super::{AGAIN, Stop, report};
use crate::manifests::rights::OPERATOR;
use api::boot_token;
use api::names::{CLUSTER, CONTROLLER_CONFIG, NAMESPACE};
use api::server_tls;
use api::v1::{ControllerConfig, MachineConfigPool};
use api::v1alpha1::MachineConfigOperator;
use client::lease::{AlwaysLeader, ByLease, Leadership, Role, TermSignals};
use client::{Backoff, CallError, chain};
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource};
use listen::tls::TlsProfile;
use listen::{Access, Addresses, Endpoint, Health, ListenError};
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
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

/// The operator's options.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Without a settings object: the config server asks for boot tokens, so user data must have them.
    pub require_token: bool,
    /// The image that this process runs in. `None`: it is not a pod, and leaves the operator's own Deployment alone.
    pub image: Option<String>,
    /// Act only while holding the Lease, so that several may run.
    pub leader_elect: bool,
    /// Where metrics and probes are served.
    pub metrics: Addresses,
}

/// Why the operator could not start, or a single pass failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Metrics and probes cannot be served: an address is taken, or a certificate cannot be used.
    #[error("metrics")]
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

/// Makes one pass, and returns what it wrote. What must be waited for is left to the next pass.
///
/// # Errors
/// The first step that failed.
pub async fn once(client: Client, options: Options) -> Result<Vec<String>, StartError> {
    let metrics = Arc::new(Metrics::new(&mut Registry::default()));
    let mut keeper = Keeper::new(client, options, metrics);
    let mut passed = Box::pin(keeper.pass()).await?;
    for _ in 0..CONFLICTS {
        if !passed.conflict {
            break;
        }
        passed = Box::pin(keeper.pass()).await?;
    }
    report::report(&keeper.client, &keeper.metrics, &passed).await;
    match passed.stopped {
        Some(super::Stopped { step, stop: Stop::Failed(why) }) => Err(StartError::Failed { step, why }),
        _ => Ok(passed.done),
    }
}

/// Runs until `stop`.
///
/// # Errors
/// The address of the metrics is taken.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), StartError> {
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
    let leadership: Box<dyn Leadership> = if options.leader_elect {
        Box::new(ByLease::new(client.clone(), OPERATOR, Arc::new(TermSignals::default())))
    } else {
        Box::new(AlwaysLeader)
    };
    let leading = tokio::sync::watch::Sender::new(Role::Standby);
    let mut lead = leading.subscribe();
    let give_up = CancellationToken::new();
    let lease = tokio::spawn(leadership.run(leading, give_up.clone()));
    while !stop.is_cancelled() {
        let led = tokio::select! {
            () = stop.cancelled() => break,
            led = lead.wait_for(Role::leads) => led.is_ok(),
        };
        if !led {
            break;
        }
        metrics.leader.set(1);
        let keeper = Keeper::new(client.clone(), options.clone(), Arc::clone(&metrics));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = lead.wait_for(|role| !role.leads()) => {}
            () = term(keeper) => {}
        }
        metrics.leader.set(0);
    }
    give_up.cancel();
    if lease.await.is_err() {
        tracing::warn!("the lease's task ended by itself");
    }
    Ok(())
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
    /// Wait this long whatever changes: a failure must not make a busy loop.
    All(Duration),
}

/// How long to wait, after so many failures and conflicts in a row.
fn rest(passed: Option<&Passed>, failures: u32, conflicts: u32) -> Rest {
    match passed {
        None => Rest::All(RETRY.delay(failures)),
        Some(passed) if passed.conflict && conflicts < CONFLICTS => Rest::None,
        Some(passed) if passed.conflict => Rest::All(RETRY.delay(conflicts)),
        Some(passed) => match passed.stopped.as_ref().map(|s| &s.stop) {
            None => Rest::UntilChange(AGAIN),
            Some(Stop::Waiting(_)) => Rest::UntilChange(WAITING),
            Some(Stop::Failed(_)) => Rest::All(RETRY.delay(failures)),
        },
    }
}

/// Makes passes for as long as it is polled.
async fn term(mut keeper: Keeper) {
    let mut followed = false;
    let mut changes = changes(&keeper, followed);
    let (mut failures, mut conflicts) = (0_u32, 0_u32);
    let mut told = String::new();
    loop {
        let passed = match Box::pin(keeper.pass()).await {
            Ok(passed) => {
                passed.done.iter().for_each(|d| tracing::info!("written: {d}"));
                report::report(&keeper.client, &keeper.metrics, &passed).await;
                Some(passed)
            }
            Err(error) => {
                tracing::warn!("{}", chain(&error));
                None
            }
        };
        let words =
            passed.as_ref().and_then(|p| p.stopped.as_ref()).map_or_else(String::new, |s| match &s.stop {
                Stop::Waiting(what) => format!("{}: waiting: {what}", s.step),
                Stop::Failed(why) => format!("{}: {why}", s.step.failed()),
            });
        // Once for each trouble, not once for each pass.
        if !words.is_empty() && words != told {
            tracing::warn!("{words}");
        }
        told = words;
        let by_settings = passed.as_ref().map_or(followed, |p| p.seen.settings.is_some());
        if by_settings != followed {
            followed = by_settings;
            changes = self::changes(&keeper, followed);
        }
        let failed = passed
            .as_ref()
            .is_none_or(|p| p.stopped.as_ref().is_some_and(|s| matches!(s.stop, Stop::Failed(_))));
        let rest = rest(passed.as_ref(), failures, conflicts);
        failures = if failed { failures.saturating_add(1) } else { 0 };
        conflicts = if passed.as_ref().is_some_and(|p| p.conflict) { conflicts.saturating_add(1) } else { 0 };
        match rest {
            Rest::None => continue,
            Rest::All(wait) => tokio::time::sleep(wait).await,
            Rest::UntilChange(wait) => {
                tokio::select! {
                    _ = changes.next() => {}
                    () = tokio::time::sleep(wait) => {}
                }
                tokio::time::sleep(SETTLE).await;
            }
        }
        while let Some(Some(())) = futures::FutureExt::now_or_never(changes.next()) {}
    }
}

fn of<K>(api: Api<PartialObjectMeta<K>>, config: watcher::Config) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    watcher::watcher(api, config).default_backoff().map(|_| ()).boxed()
}

/// Yields when something that a pass depends on changes. An error of a watch counts as a change: the pass reports it.
/// `by_settings`: the parts are kept, too; else only what booting machines need.
fn changes(keeper: &Keeper, by_settings: bool) -> SelectAll<BoxStream<'static, ()>> {
    let client = &keeper.client;
    let all = watcher::Config::default();
    let named = |name: &str| all.clone().fields(&format!("metadata.name={name}"));
    let own =
        |name: &str| of(Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), NAMESPACE), named(name));
    let mut streams = SelectAll::new();
    streams
        .push(of(Api::<PartialObjectMeta<ControllerConfig>>::all(client.clone()), named(CONTROLLER_CONFIG)));
    streams.push(of(Api::<PartialObjectMeta<MachineConfigPool>>::all(client.clone()), all.clone()));
    streams.push(own(server_tls::CA));
    streams.push(own(server_tls::SERVING));
    streams.push(of(
        Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), NAMESPACE),
        named(server_tls::CA),
    ));
    streams.push(of(
        Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), api::user_data::NAMESPACE),
        all.clone(),
    ));
    if by_settings || keeper.options.require_token {
        // Without tokens the operator may have no right to watch them.
        let tokens = all.clone().labels(boot_token::LABEL);
        let own = Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), boot_token::NAMESPACE);
        streams.push(of(own, tokens));
    }
    if by_settings || keeper.options.image.is_some() {
        streams
            .push(of(Api::<PartialObjectMeta<MachineConfigOperator>>::all(client.clone()), named(CLUSTER)));
    }
    if by_settings {
        let joining = all.clone().fields(&format!("spec.signerName={}", crate::joining::SIGNER));
        streams.push(of(Api::<PartialObjectMeta<CertificateSigningRequest>>::all(client.clone()), joining));
        let kept = all.labels(&kept_label());
        let apis = KINDS.iter().flat_map(|kind| kind.apis(client));
        let watched = |api: Api<PartialObjectMeta<DynamicObject>>| {
            watcher::watcher(api, kept.clone()).default_backoff().map(|_| ()).boxed()
        };
        apis.for_each(|api| streams.push(watched(api)));
    }
    streams
}

#[cfg(test)]
mod tests {
    use super::super::{Step, Stopped};
    use super::*;

    #[test]
    fn a_failure_waits_longer_each_time_and_never_the_same_while_a_change_ends_any_other_wait() {
        let stopped =
            |stop| Passed { stopped: Some(Stopped { step: Step::Rights, stop }), ..Passed::default() };
        let failed = stopped(Stop::Failed(String::new()));
        let mut waits = vec![];
        for failures in 0..8 {
            let Rest::All(wait) = rest(Some(&failed), failures, 0) else {
                panic!("a change must not make a busy loop")
            };
            assert!(wait <= RETRY.last && wait >= RETRY.first / 2, "{wait:?}");
            waits.push(wait);
        }
        assert!(waits[7] > waits[0] * 8, "{waits:?}");
        let again: Vec<Rest> = (0..4).map(|_| rest(None, 7, 0)).collect();
        assert!(again.windows(2).any(|pair| pair[0] != pair[1]), "without jitter: {again:?}");
        assert_eq!(rest(Some(&Passed::default()), 0, 0), Rest::UntilChange(AGAIN));
        assert_eq!(rest(Some(&stopped(Stop::Waiting(String::new()))), 0, 0), Rest::UntilChange(WAITING));
        let race = Passed { conflict: true, ..Passed::default() };
        assert_eq!(rest(Some(&race), 0, 0), Rest::None);
        assert!(matches!(rest(Some(&race), 0, CONFLICTS), Rest::All(_)));
    }
}
