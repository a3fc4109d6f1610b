//! One pass through the steps: what was planned is written, and what was written is waited for.
//!
//! Flow: [`Syncer::pass`] looks at the cluster, reads the settings, and carries out step after step until one stops; then it approves
//! the certificates of machines that join. Within a step every object is tried, so that one that is refused does not keep the others
//! from being there.
//!
//! What it is not: the plans (see `plan`), and the conditions (see `status`).

mod controller_config;
mod definitions;
mod machine_configuration;
mod objects;
mod pools;
mod step_error;

use super::cluster::{self, ClusterState};
use super::metrics::Metrics;
use super::options::Options;
use super::pass_failures::{PassFailures, with_joining};
use super::plan::{self, Inputs, Prometheus};
use super::required_pools;
use super::{Descriptor, Needs, STEPS, Step, Stop, Stopped, Work};
use crate::accounts::{CONTROLLER, OPERATOR};
use crate::facts::release;
use crate::install::read_controller_config;
use crate::manifests::replicas::ReplicaOverride;
use crate::settings;
use crate::settings::object::{self, CheckedSettings};
use crate::{booting_machines, definitions as kinds, joining};
use api::names::{CONTROLLER_CONFIG, VERSION_RAW};
use api::v1::ControllerConfig;
use api::v1alpha1::{Access, ManagementState};
use client::{CallError, chain};
use definitions::Stored;
use kube::Client;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use step_error::{StepError, failed, with_remedy};
use tokio::time::Instant;

/// A rollout that takes longer than this has failed. The reference's limit, and that of a Deployment.
const ROLLOUT: Duration = Duration::from_mins(10);
/// The versions of kubelets change rarely, and reading all Nodes of a large cluster costs.
const KUBELETS: Duration = Duration::from_mins(10);

/// Since when a step waits, and for what it was made to.
type Waiting = HashMap<Step, (Instant, String)>;

/// When the kubelets were looked at, and what was found.
type Kubelets = (Instant, u64, Vec<(String, u64)>);

/// What brings an installation to its settings, pass after pass, and what it remembers from one pass to the next. All of it can be lost.
pub(super) struct Syncer {
    pub(super) client: Client,
    pub(super) options: Options,
    pub(super) metrics: Arc<Metrics>,
    /// Since when a step has been waiting.
    waiting: Waiting,
    /// The kubelets' versions, and when they were read.
    kubelets: Option<Kubelets>,
    /// What is known of the versions in which objects are stored.
    stored: Stored,
    /// Why machines that join wait, as the log has said it.
    joining: Option<String>,
}

/// What a pass has done and found.
#[derive(Debug, Default)]
pub(super) struct PassResult {
    /// What was read.
    pub(super) seen: ClusterState,
    /// What was written, a line each.
    pub(super) done: Vec<String>,
    /// Where it stopped.
    pub(super) stopped: Option<Stopped>,
    /// Every step has succeeded. What keeps nothing from being installed may be reported nevertheless.
    pub(super) complete: bool,
    /// Somebody else wrote first: what was read is stale.
    pub(super) conflict: bool,
    /// Whether a controller is available.
    pub(super) controller: Option<bool>,
    /// Whether boot images were looked at.
    pub(super) boot_images_read: bool,
    /// Whether stored versions were looked at.
    pub(super) stored_read: bool,
    /// The certificate of a machine that joins could not be looked at or approved. Where that was refused, `stopped` says why, but
    /// for the time in which parts are rolled out.
    pub(super) joining_failed: bool,
    /// The API server's minor version, and the kubelets'.
    pub(super) kubelets: Option<(u64, Vec<(String, u64)>)>,
    /// Where the cluster has OpenShift's objects: those of its namespaces that there are.
    pub(super) openshift: Option<Vec<&'static str>>,
    /// The release that the cluster was installed with, where it has releases.
    pub(super) installed: Option<String>,
    /// Boot images that are too old for an upgrade.
    pub(super) boot_images: Option<String>,
    /// Objects that may be stored in a version that an upgrade drops: a sentence for each definition.
    pub(super) stored: Vec<String>,
    /// When the first of them may be rewritten.
    pub(super) settles: Option<Duration>,
    /// The image of the operator and its parts that is wanted.
    pub(super) image: Option<String>,
    /// A newer version keeps the installation.
    pub(super) outdated: bool,
    /// The Deployment of this operator is gone: nothing is written any more but the status that says so.
    pub(super) removed: bool,
    /// The release that is wanted, where a payload or the cluster names one.
    pub(super) release: Option<String>,
}

/// What a pass reports that has no settings to go by. Whoever corrects them is told that it is seen late.
fn without_settings(why: String, unwatched: Option<String>) -> Option<Stopped> {
    let mut failures = PassFailures::default();
    // No step follows.
    let _ = failures.record(Stopped { step: Step::Settings, stop: Stop::Failed(why) });
    failures.with_watches(unwatched).reported()
}

impl Syncer {
    pub(super) fn new(client: Client, options: Options, metrics: Arc<Metrics>) -> Self {
        let (waiting, stored) = (HashMap::new(), Stored::default());
        Self { client, options, metrics, waiting, kubelets: None, stored, joining: None }
    }

    /// Makes one pass. `unwatched`: why changes are seen late, if they are.
    ///
    /// # Errors
    /// The API server does not answer, or refuses even the settings. Everything else is part of what was found.
    pub(super) async fn pass(&mut self, unwatched: Option<String>) -> Result<PassResult, CallError> {
        let mut passed = match Box::pin(self.steps(unwatched)).await {
            Err(error) if !error.is_outage() => self.unread(&error).await?,
            other => other?,
        };
        let refused = self.approve(&mut passed).await;
        passed.stopped = with_joining(passed.stopped.take(), refused);
        Ok(passed)
    }

    /// Approves the certificates of machines that join. Returns why such machines wait, with the remedy, where that is refused and
    /// waiting does not help. Anything else is logged and tried again. Whatever keeps the installation from going on is no fault of a
    /// machine that joins.
    async fn approve(&mut self, passed: &mut PassResult) -> Option<String> {
        let failed = match may_join(passed) {
            true => joining::approve(&self.client, &mut passed.done).await.err(),
            false => None,
        };
        passed.joining_failed = failed.is_some();
        // After a conflict it is only looked at again: somebody else has decided meanwhile.
        let failed = failed.filter(|error| !error.is_conflict());
        let why = failed.as_ref().map(|error| format!("machines that join wait: {}", with_remedy(error)));
        // Once for each trouble, not once for each pass. While parts are rolled out, nothing else says it.
        if let Some(why) = why.as_ref().filter(|why| self.joining.as_ref() != Some(*why)) {
            tracing::warn!("{}: {why}", Step::Joining);
        }
        self.joining.clone_from(&why);
        why.filter(|_| failed.is_some_and(|error| error.is_refused()))
    }

    /// What can be said when something else than the settings is refused.
    async fn unread(&self, error: &CallError) -> Result<PassResult, CallError> {
        let seen =
            ClusterState { settings: cluster::settings(&self.client).await?, ..ClusterState::default() };
        let stop = Stop::Failed(with_remedy(error));
        // Where that cannot be read either, nobody has said that it is gone.
        let removed = self.is_removed(&seen).await.unwrap_or_default();
        let stopped = Some(Stopped { step: Step::Read, stop });
        Ok(PassResult { seen, stopped, removed, ..PassResult::default() })
    }

    async fn steps(&mut self, unwatched: Option<String>) -> Result<PassResult, CallError> {
        let mut passed =
            PassResult { seen: Box::pin(cluster::read(&self.client)).await?, ..PassResult::default() };
        passed.removed = self.is_removed(&passed.seen).await?;
        if passed.removed {
            // It follows no change any more, so that watches do not matter.
            let why = format!(
                "Deployment {OPERATOR} is gone: this operator is being removed, and writes nothing any more but this status; if that \
                 is a mistake, run `mco install` with the same --image"
            );
            passed.stopped = Some(Stopped { step: Step::MachineConfigOperator, stop: Stop::Failed(why) });
            return Ok(passed);
        }
        let wanted = match passed.seen.settings.as_ref() {
            // They were there when this pod was made. Without them nobody knows whether machines need tokens, and what was written
            // by them stays.
            None if self.options.image.is_some() => {
                let why = format!(
                    "{} does not exist: nothing is changed until it does; apply it again, or run `mco install` of {VERSION_RAW} \
                     with the same --image",
                    settings::name()
                );
                passed.stopped = without_settings(why, unwatched);
                return Ok(passed);
            }
            None => None,
            Some(settings) if settings.spec.management_state == ManagementState::Unmanaged => {
                // Nothing is late where nothing is changed. A watch that does not work is in the log.
                passed.controller = Some(controller(&passed.seen));
                return Ok(passed);
            }
            Some(settings) => {
                let versions = settings.status.iter().flat_map(|s| &s.versions);
                let newer = versions
                    .filter(|v| v.name == super::status::OPERATOR)
                    .find(|v| kinds::is_newer(&v.version));
                let read = object::read(settings).and_then(|wanted| {
                    let image = || release::operator_image(&passed.seen.release);
                    wanted.with_payload_image(image).map_err(|why| vec![why])
                });
                passed.outdated = newer.is_some();
                let why = match (newer, read) {
                    (Some(newer), _) => Err(format!(
                        "{} was upgraded to {}, but this operator is {VERSION_RAW}: it changes nothing; run `mco install` of \
                         {} or newer, which replaces it",
                        settings::name(),
                        newer.version,
                        newer.version
                    )),
                    (None, Err(wrong)) => Err(format!("{}: {}", settings::name(), wrong.join("; "))),
                    (None, Ok(wanted)) => Ok(wanted),
                };
                match why {
                    Ok(wanted) => Some(wanted),
                    Err(why) => {
                        passed.controller = Some(controller(&passed.seen));
                        passed.stopped = without_settings(why, unwatched);
                        return Ok(passed);
                    }
                }
            }
        };
        passed.image = wanted.as_ref().map(|w| w.image.clone());
        let mut failures = PassFailures::default();
        for descriptor in STEPS.iter().filter(|d| wanted.is_some() || d.needs == Needs::Nothing) {
            match Box::pin(self.step(descriptor, wanted.as_ref(), &mut passed)).await {
                Ok(()) => {
                    self.waiting.remove(&descriptor.step);
                }
                Err(StepError::Conflict) => {
                    passed.conflict = true;
                    break;
                }
                Err(StepError::Stop(stop)) => {
                    let stop = within_its_time(&mut self.waiting, descriptor.step, &goal(&passed), stop);
                    if failures.record(Stopped { step: descriptor.step, stop }).is_break() {
                        break;
                    }
                }
                Err(StepError::Noted(step, why)) => failures.remember(step, why),
            }
        }
        passed.complete = failures.is_empty() && !passed.conflict;
        passed.stopped = failures.with_watches(unwatched).reported();
        if wanted.is_some() {
            passed.controller = Some(controller(&passed.seen));
            passed.kubelets = self.kubelets().await;
            // An operator that leaves the definitions to another version leaves the objects to it, too.
            let early = [Step::MachineConfigOperator, Step::CustomResourceDefinitions];
            if passed.stopped.as_ref().is_none_or(|stopped| !early.contains(&stopped.step)) {
                passed.stored_read = true;
                self.stored_versions(&mut passed).await;
            }
        }
        Ok(passed)
    }

    /// How long a step has been waiting for this.
    fn waited(&self, step: Step, goal: &str) -> Duration {
        let waiting = self.waiting.get(&step).filter(|(_, before)| before == goal);
        waiting.map(|(since, _)| since.elapsed()).unwrap_or_default()
    }

    /// The kubelets' versions, read now and then. Without them nothing is said about skew.
    async fn kubelets(&mut self) -> Option<(u64, Vec<(String, u64)>)> {
        if self.kubelets.as_ref().is_none_or(|(at, ..)| at.elapsed() > KUBELETS) {
            match cluster::kubelets(&self.client).await {
                Ok(found) => self.kubelets = found.map(|(server, all)| (Instant::now(), server, all)),
                Err(error) => tracing::debug!("the kubelets' versions are not known: {}", error.chain()),
            }
        }
        self.kubelets.as_ref().map(|(_, server, all)| (*server, all.clone()))
    }

    async fn step(
        &mut self,
        d: &Descriptor,
        wanted: Option<&CheckedSettings>,
        passed: &mut PassResult,
    ) -> Result<(), StepError> {
        match (d.work, wanted) {
            (Work::Objects(plan), Some(wanted)) => self.objects(plan, wanted, passed).await,
            (Work::Own(plan), Some(wanted)) => self.own(plan, wanted, passed).await,
            (Work::Definitions, Some(wanted)) => self.definitions(wanted.follows_payload, passed).await,
            (Work::ControllerConfig, Some(wanted)) => Box::pin(self.controller_config(wanted, passed)).await,
            (Work::MachineConfiguration, Some(_)) => self.machine_configuration(passed).await,
            (Work::Pools, Some(wanted)) => self.pools(wanted, passed).await,
            (Work::Prune, Some(wanted)) => self.prune(wanted, passed).await,
            (Work::Release, Some(_)) => self.release(passed).await,
            (Work::RequiredPools, Some(_)) => self.required_pools(passed).await,
            (Work::Certificates, _) => {
                let spec = spec_of(passed)?;
                let done = &mut passed.done;
                let mut ending = booting_machines::certificates(&self.client, &spec, done).await?;
                // Parts that somebody has started by hand have certificates of his.
                if let Some(wanted) = wanted {
                    let parts = plan::parts_with_certificates(wanted);
                    ending.extend(booting_machines::metrics_certificates(&self.client, &parts, done).await?);
                }
                // Parts are rolled out nevertheless: what is signed is valid for now.
                if ending.is_empty() {
                    return Ok(());
                }
                Err(StepError::Noted(Step::CaLifetime, ending.join("; ")))
            }
            (Work::UserData, _) => {
                let require_token = wanted.map_or(self.options.require_token, |w| w.require_token);
                let spec = spec_of(passed)?;
                let pools = passed.seen.pools.clone();
                let done = &mut passed.done;
                booting_machines::user_data(&self.client, &spec, &pools, require_token, done).await?;
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    /// What a function of `plan` makes of the settings and of what was seen.
    fn planned<T>(
        &self,
        plan: fn(&Inputs<'_>) -> Result<T, String>,
        wanted: &CheckedSettings,
        seen: &ClusterState,
    ) -> Result<T, StepError> {
        let (config, scaled, log) = (config_of(seen)?, scaled(seen), log(seen));
        let push_secrets = seen.push_secrets.readable(&seen.kept);
        let inputs = Inputs {
            wanted,
            config: config.as_ref(),
            scaled: scaled.as_ref(),
            own_image: self.options.image.as_deref(),
            log: log.as_deref(),
            prometheus: Prometheus::of(&seen.definitions),
            mutates: seen.mutates,
            push_secrets: &push_secrets,
            down: &seen.down,
        };
        plan(&inputs).map_err(failed)
    }
}

/// What the steps are working towards, and how far that is. Another goal has a time of its own: an administrator who has just
/// corrected an image is not to be told that the rollout takes too long. So has each pod and node that gets there: the agents of
/// a large cluster take hours, and end what they have begun before that.
fn goal(passed: &PassResult) -> String {
    let generation = passed.seen.settings.as_ref().and_then(|s| s.metadata.generation).unwrap_or_default();
    let pools = required_pools::required(&passed.seen.pools).into_iter().map(|p| {
        let updated = p.status.map(|s| s.updated_machine_count).unwrap_or_default();
        format!("{} {updated}", p.spec.configuration.name)
    });
    let pods = passed.seen.kept.iter().filter_map(|o| {
        let counts = ["/status/updatedReplicas", "/status/updatedNumberScheduled"];
        counts.iter().find_map(|count| o.pointer(count)).map(Value::to_string)
    });
    let image = passed.image.as_deref().unwrap_or_default();
    format!("{generation} {image} {}", pools.chain(pods).collect::<Vec<_>>().join(" "))
}

/// Turns a wait that takes too long into a failure. Pools have their own time.
fn within_its_time(waiting: &mut Waiting, step: Step, goal: &str, stop: Stop) -> Stop {
    let Stop::Waiting(what) = stop else { return stop };
    if waiting.get(&step).is_none_or(|(_, before)| before != goal) {
        waiting.insert(step, (Instant::now(), goal.to_owned()));
    }
    let since = waiting.get(&step).map(|(since, _)| since.elapsed()).unwrap_or_default();
    if step != Step::RequiredPools && since > ROLLOUT {
        let minutes = ROLLOUT.as_secs() / 60;
        return Stop::Failed(format!(
            "{what}, after more than {minutes} minutes; see kubectl -n openshift-machine-config-operator describe pods"
        ));
    }
    Stop::Waiting(what)
}

/// Whether certificates of machines that join are this operator's to approve: it manages an installation with boot tokens, which
/// no newer version keeps, and which nobody takes away.
fn may_join(passed: &PassResult) -> bool {
    let ours = passed.seen.settings.as_ref().filter(|_| !passed.outdated && !passed.removed);
    let Some(settings) = ours else { return false };
    settings.spec.management_state == ManagementState::Managed
        && settings.spec.config_server.access == Access::BootTokens
}

fn config_of(seen: &ClusterState) -> Result<Option<ControllerConfig>, StepError> {
    let read = seen.config.as_ref().map(read_controller_config);
    read.transpose().map_err(|e| failed(chain(&e)))
}

fn spec_of(passed: &PassResult) -> Result<api::v1::ControllerConfigSpec, StepError> {
    let config = config_of(&passed.seen)?;
    config
        .map(|c| c.spec)
        .ok_or_else(|| failed(format!("there is no ControllerConfig {CONTROLLER_CONFIG}; run `mco install`")))
}

fn log(seen: &ClusterState) -> Option<String> {
    seen.machine_configuration.as_ref().and_then(super::machine_configuration::log)
}

fn deployment(seen: &ClusterState) -> Option<&Value> {
    seen.kept.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == CONTROLLER)
}

fn scaled(seen: &ClusterState) -> Option<ReplicaOverride> {
    ReplicaOverride::of(deployment(seen)?)
}

/// Whether a controller works: one that somebody has deleted or scaled to nothing does not.
fn controller(seen: &ClusterState) -> bool {
    deployment(seen).is_some_and(|d| d["status"]["availableReplicas"].as_i64().unwrap_or_default() > 0)
}

#[cfg(test)]
pub(super) mod tests;
