//! One pass through the steps: what was planned is written, and what was written is waited for.
//!
//! Flow: [`Keeper::pass`] looks at the cluster, reads the settings, and carries out step after step until one stops. Within
//! a step every object is tried, so that one that is refused does not keep the others from being there.
//!
//! What it is not: the plans (see `plan`), and the conditions (see `status`).

use super::cluster::{self, Seen};
use super::metrics::Metrics;
use super::objects::{Key, Rollout, differs, marked, rollout, selector, superfluous, trouble};
use super::plan::{self, Inputs, Pools};
use super::run::Options;
use super::{Descriptor, Needs, STEPS, Step, Stop, Stopped, Work};
use crate::install::settings::Settings;
use crate::install::{How, controller_config, established, pool_object};
use crate::manifests::pods::Scaled;
use crate::manifests::rights::CONTROLLER;
use crate::reconcile;
use crate::request::ReconcileError;
use crate::settings_object::{self, Wanted};
use crate::{definitions, facts, joining};
use api::names::{CONTROLLER_CONFIG, VERSION_RAW};
use api::v1::ControllerConfig;
use api::v1alpha1::ManagementState;
use client::{CallError, call, chain};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A rollout that takes longer than this has failed. The reference's limit, and that of a Deployment.
const ROLLOUT: Duration = Duration::from_mins(10);
/// The versions of kubelets change rarely, and reading all Nodes of a large cluster costs.
const KUBELETS: Duration = Duration::from_mins(10);
/// The label by which Services, Deployments and so on find their pods.
const SHOWN: usize = 3;

/// When the kubelets were looked at, and what was found.
type Kubelets = (Instant, u64, Vec<(String, u64)>);

/// What keeps an installation, and what it remembers from one pass to the next. All of it can be lost.
pub(super) struct Keeper {
    pub(super) client: Client,
    pub(super) options: Options,
    pub(super) metrics: Arc<Metrics>,
    /// Since when a step has been waiting.
    waiting: HashMap<Step, Instant>,
    /// The kubelets' versions, and when they were read.
    kubelets: Option<Kubelets>,
}

/// What a pass has done and found.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// What was read.
    pub(super) seen: Seen,
    /// What was written, a line each.
    pub(super) done: Vec<String>,
    /// Where it stopped.
    pub(super) stopped: Option<Stopped>,
    /// Somebody else wrote first: what was read is stale.
    pub(super) conflict: bool,
    /// Whether a controller is available.
    pub(super) controller: Option<bool>,
    /// The API server's minor version, and the kubelets'.
    pub(super) kubelets: Option<(u64, Vec<(String, u64)>)>,
}

/// Why a step did not end well.
enum Trouble {
    Conflict,
    Stop(Stop),
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        if error.is_conflict() { Self::Conflict } else { Self::Stop(Stop::Failed(with_remedy(&error))) }
    }
}

impl From<ReconcileError> for Trouble {
    fn from(error: ReconcileError) -> Self {
        match error {
            ReconcileError::Call(error) => error.into(),
            other => Self::Stop(Stop::Failed(chain(&other))),
        }
    }
}

fn failed(why: impl Into<String>) -> Trouble {
    Trouble::Stop(Stop::Failed(why.into()))
}

/// What to do about a refusal.
fn remedy(error: &CallError) -> &'static str {
    let by_policy = error.status().is_some_and(|s| {
        s.message.contains("ValidatingAdmissionPolicy") || s.message.contains("admission webhook")
    });
    if error.is_forbidden() && !by_policy {
        "the operator's rights are not those of this version: run `mco install` of this version again"
    } else if error.is_refused() {
        "change what refuses it, and the operator goes on"
    } else if error.is_not_found() {
        "run `mco install` again: it makes the namespaces and kinds"
    } else {
        "the operator tries again"
    }
}

/// The error, and what to do about it.
fn with_remedy(error: &CallError) -> String {
    format!("{}; {}", error.chain(), remedy(error))
}

impl Keeper {
    pub(super) fn new(client: Client, options: Options, metrics: Arc<Metrics>) -> Self {
        Self { client, options, metrics, waiting: HashMap::new(), kubelets: None }
    }

    /// Makes one pass.
    ///
    /// # Errors
    /// The cluster could not be read. Everything else is part of what was found.
    pub(super) async fn pass(&mut self) -> Result<Passed, CallError> {
        let mut passed = Passed { seen: Box::pin(cluster::look(&self.client)).await?, ..Passed::default() };
        let wanted = match passed.seen.settings.as_ref() {
            None => None,
            Some(settings) if settings.spec.management_state == ManagementState::Unmanaged => {
                passed.controller = controller(&passed.seen);
                return Ok(passed);
            }
            Some(settings) => {
                let versions = settings.status.iter().flat_map(|s| &s.versions);
                let newer = versions
                    .filter(|v| v.name == super::status::OPERATOR)
                    .find(|v| definitions::is_newer(&v.version));
                let read = settings_object::read(settings);
                let why = match (newer, read) {
                    (Some(newer), _) => Err(format!(
                        "{} was brought to {} and this operator is {VERSION_RAW}: it changes nothing; run `mco install` of {} or \
                         newer, which replaces it",
                        settings_object::name(),
                        newer.version,
                        newer.version
                    )),
                    (None, Err(wrong)) => Err(format!("{}: {}", settings_object::name(), wrong.join("; "))),
                    (None, Ok(wanted)) => Ok(wanted),
                };
                match why {
                    Ok(wanted) => Some(wanted),
                    Err(why) => {
                        passed.controller = controller(&passed.seen);
                        passed.stopped = Some(Stopped { step: Step::Settings, stop: Stop::Failed(why) });
                        return Ok(passed);
                    }
                }
            }
        };
        for descriptor in STEPS.iter().filter(|d| wanted.is_some() || d.needs == Needs::Nothing) {
            match Box::pin(self.step(descriptor, wanted.as_ref(), &mut passed)).await {
                Ok(()) => {
                    self.waiting.remove(&descriptor.step);
                }
                Err(Trouble::Conflict) => {
                    passed.conflict = true;
                    break;
                }
                Err(Trouble::Stop(stop)) => {
                    let stop = self.within_its_time(descriptor.step, stop);
                    passed.stopped = Some(Stopped { step: descriptor.step, stop });
                    break;
                }
            }
        }
        if wanted.is_some() {
            passed.controller = controller(&passed.seen);
            passed.kubelets = self.kubelets().await;
        }
        Ok(passed)
    }

    /// Turns a wait that takes too long into a failure. Pools have their own time.
    fn within_its_time(&mut self, step: Step, stop: Stop) -> Stop {
        let Stop::Waiting(what) = stop else { return stop };
        let since = *self.waiting.entry(step).or_insert_with(Instant::now);
        if step != Step::RequiredPools && since.elapsed() > ROLLOUT {
            let minutes = ROLLOUT.as_secs() / 60;
            return Stop::Failed(format!(
                "{what}, after more than {minutes} minutes; see kubectl -n openshift-machine-config-operator describe pods"
            ));
        }
        Stop::Waiting(what)
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
        wanted: Option<&Wanted>,
        passed: &mut Passed,
    ) -> Result<(), Trouble> {
        match (d.work, wanted) {
            (Work::Objects(plan), Some(wanted)) => self.objects(plan, wanted, passed).await,
            (Work::Own(plan), Some(wanted)) => self.own(plan, wanted, passed).await,
            (Work::Definitions, Some(_)) => self.definitions(passed).await,
            (Work::ControllerConfig, Some(wanted)) => Box::pin(self.controller_config(wanted, passed)).await,
            (Work::Pools, Some(wanted)) => self.pools(wanted, passed).await,
            (Work::Prune, Some(wanted)) => self.prune(wanted, passed).await,
            (Work::RequiredPools, Some(_)) => self.required_pools(passed),
            (Work::Certificates, _) => {
                let spec = spec_of(passed)?;
                reconcile::certificates(&self.client, &spec, &mut passed.done).await.map_err(Trouble::from)
            }
            (Work::UserData, _) => {
                let require_token = wanted.map_or(self.options.require_token, |w| w.require_token);
                let spec = spec_of(passed)?;
                let pools = passed.seen.pools.clone();
                let done = &mut passed.done;
                reconcile::user_data(&self.client, &spec, &pools, require_token, done).await?;
                // Machines that join wait for this, and nothing else does.
                if wanted.is_some()
                    && require_token
                    && let Err(error) = joining::approve(&self.client, done).await
                {
                    tracing::warn!("joining machines wait: {}", chain(&error));
                }
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    /// Writes what differs of a step's objects, and waits for its workloads.
    async fn objects(
        &self,
        plan: fn(&Inputs<'_>) -> Result<Vec<Value>, String>,
        wanted: &Wanted,
        passed: &mut Passed,
    ) -> Result<(), Trouble> {
        let objects = {
            let config = config_of(&passed.seen)?;
            let scaled = scaled(&passed.seen);
            let own_image = self.options.image.as_deref();
            let inputs = Inputs { wanted, config: config.as_ref(), scaled: scaled.as_ref(), own_image };
            plan(&inputs).map_err(failed)?
        };
        let mut errors: Vec<CallError> = vec![];
        let mut slow = None;
        for object in objects.into_iter().map(marked) {
            let key = Key::of(&object);
            let at = passed.seen.kept.iter().position(|o| Key::of(o) == key);
            let there = at.and_then(|i| passed.seen.kept.get(i));
            let now = if differs(&object, there) {
                match cluster::apply(&self.client, &object).await {
                    Ok(now) => {
                        self.metrics.applied.inc();
                        passed.done.push(key.to_string());
                        now
                    }
                    Err(error) => {
                        errors.push(error);
                        continue;
                    }
                }
            } else {
                there.cloned().unwrap_or_default()
            };
            match rollout(&now) {
                Rollout::Done => {}
                moving => slow = slow.or(Some((key, now.clone(), moving))),
            }
            match at.and_then(|i| passed.seen.kept.get_mut(i)) {
                Some(place) => *place = now,
                None => passed.seen.kept.push(now),
            }
        }
        if let Some(first) = errors.first() {
            if errors.iter().all(CallError::is_conflict) {
                return Err(Trouble::Conflict);
            }
            let texts: Vec<String> = errors.iter().take(SHOWN).map(CallError::chain).collect();
            let more = errors.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(" and {more} more objects") } else { String::new() };
            let remedy = remedy(first);
            return Err(failed(format!("{}{more}; {remedy}", texts.join("; "))));
        }
        match slow {
            None => Ok(()),
            Some((key, object, how)) => Err(self.why_slow(&key, &object, how).await),
        }
    }

    /// Why a workload is not rolled out yet: what its pods say comes first.
    async fn why_slow(&self, key: &Key, object: &Value, how: Rollout) -> Trouble {
        let image = object.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
        let pods = cluster::pods(&self.client, &selector(object)).await.unwrap_or_default();
        if let Some(why) = trouble(key, image.unwrap_or_default(), &pods) {
            return failed(why);
        }
        match how {
            Rollout::Stuck(why) => {
                failed(format!("{why}; see kubectl -n openshift-machine-config-operator describe pods"))
            }
            Rollout::Moving(what) => Trouble::Stop(Stop::Waiting(what)),
            Rollout::Done => Trouble::Stop(Stop::Waiting(key.to_string())),
        }
    }

    /// The operator's own objects. Where the settings name another image than this process runs in, everything else waits
    /// for the operator of that image: it has the manifests that belong to it. This one goes on until that one is ready.
    async fn own(
        &self,
        plan: fn(&Inputs<'_>) -> Result<Vec<Value>, String>,
        wanted: &Wanted,
        passed: &mut Passed,
    ) -> Result<(), Trouble> {
        let written = self.objects(plan, wanted, passed).await;
        match &self.options.image {
            Some(own) if *own != wanted.image => match written {
                Err(Trouble::Stop(Stop::Waiting(_))) | Ok(()) => Err(Trouble::Stop(Stop::Waiting(format!(
                    "the operator of {} is to take over from the one of {own}",
                    wanted.image
                )))),
                other => other,
            },
            // Our own rollout needs no wait: this process is of the image that is wanted.
            _ => match written {
                Err(Trouble::Stop(Stop::Waiting(_))) => Ok(()),
                other => other,
            },
        }
    }

    async fn definitions(&self, passed: &mut Passed) -> Result<(), Trouble> {
        let broken = |e: api::crds::CrdError| failed(format!("the CRDs in this build are broken: {e}"));
        let wanted: Vec<Value> = definitions::all(false).map_err(broken)?.into_iter().map(marked).collect();
        let name = |o: &Value| o["metadata"]["name"].clone();
        let of = |object: &Value| passed.seen.definitions.iter().find(|d| name(d) == name(object));
        let ours: Vec<&Value> = wanted.iter().filter_map(of).collect();
        if let Some((name, version)) = definitions::newer(ours) {
            return Err(failed(format!(
                "CustomResourceDefinition {name} was written by {version}, and this operator is {VERSION_RAW}: objects may have \
                 fields that the older definition would drop; run `mco install` of {version} or newer"
            )));
        }
        for object in &wanted {
            // Of what is there only the metadata was read: definitions are large, and the digest tells.
            let only_metadata = json!({"metadata": {
                "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"],
            }});
            if !differs(&only_metadata, of(object)) {
                continue;
            }
            cluster::apply(&self.client, object).await?;
            self.metrics.applied.inc();
            established(&self.client, object).await.map_err(|e| failed(chain(&e)))?;
            passed.done.push(Key::of(object).to_string());
        }
        Ok(())
    }

    async fn controller_config(&self, wanted: &Wanted, passed: &mut Passed) -> Result<(), Trouble> {
        let found = Box::pin(facts::look(&self.client, passed.seen.config.is_none())).await?;
        let found = found.settings(&wanted.said, &wanted.found);
        let there = passed.seen.config.as_ref();
        let (_, step) =
            controller_config(there, &Settings::default(), &found).map_err(|e| failed(chain(&e)))?;
        let Some(step) = step else { return Ok(()) };
        let Some(api) = cluster::api_of(&self.client, &step.object) else { return Ok(()) };
        match &step.how {
            How::Update(patch) => {
                let manager = Some(super::objects::FIELD_MANAGER.to_owned());
                let params = PatchParams { field_manager: manager, ..PatchParams::default() };
                let patch = Patch::Merge(patch);
                call(|| step.to_string(), api.patch(CONTROLLER_CONFIG, &params, &patch)).await?;
            }
            _ => {
                let object =
                    serde_json::from_value(step.object.clone()).map_err(|e| failed(e.to_string()))?;
                let params = PostParams {
                    field_manager: Some(super::objects::FIELD_MANAGER.to_owned()),
                    ..PostParams::default()
                };
                call(|| step.to_string(), api.create(&params, &object)).await?;
            }
        }
        passed.done.push(format!("ControllerConfig {CONTROLLER_CONFIG}"));
        passed.seen.config = cluster::config(&self.client).await?;
        Ok(())
    }

    async fn pools(&self, wanted: &Wanted, passed: &mut Passed) -> Result<(), Trouble> {
        let is_there =
            |name: &String| passed.seen.pools.iter().any(|p| p.metadata.name.as_ref() == Some(name));
        let missing: Vec<&String> = wanted.pools.iter().filter(|name| !is_there(name)).collect();
        for name in missing {
            let object = pool_object(name).map_err(|e| failed(chain(&e)))?;
            let Some(api) = cluster::api_of(&self.client, &object) else { continue };
            let typed = serde_json::from_value(object).map_err(|e| failed(e.to_string()))?;
            call(|| format!("create MachineConfigPool {name}"), api.create(&PostParams::default(), &typed))
                .await?;
            passed.done.push(format!("MachineConfigPool {name}"));
        }
        if passed.done.iter().any(|d| d.starts_with("MachineConfigPool ")) {
            // The steps after this one see them.
            passed.seen.pools = cluster::pools(&self.client).await?;
        }
        Ok(())
    }

    async fn prune(&self, wanted: &Wanted, passed: &mut Passed) -> Result<(), Trouble> {
        let keys = {
            let config = config_of(&passed.seen)?;
            let scaled = scaled(&passed.seen);
            let own_image = self.options.image.as_deref();
            let inputs = Inputs { wanted, config: config.as_ref(), scaled: scaled.as_ref(), own_image };
            plan::wanted(&inputs).map_err(failed)?
        };
        let mut keys = keys;
        // An operator that is no pod keeps no Deployment of its own, and must not take away what keeps itself.
        if self.options.image.is_none() {
            let own = crate::manifests::pods::operator(&wanted.image, 1);
            keys.extend(own.iter().map(Key::of));
        }
        for object in superfluous(&keys, &passed.seen.kept) {
            cluster::delete(&self.client, object).await?;
            self.metrics.deleted.inc();
            passed.done.push(format!("deleted {}, which is no longer wanted", Key::of(object)));
        }
        Ok(())
    }

    fn required_pools(&mut self, passed: &Passed) -> Result<(), Trouble> {
        match plan::required_pools(&passed.seen.pools) {
            Pools::Done => Ok(()),
            Pools::Stuck(why) => Err(failed(why)),
            Pools::Moving { what, nodes } => {
                // The reference's limit: ten minutes a node. Pools without nodes have nothing to wait for.
                let since = self.waiting.get(&Step::RequiredPools).map(Instant::elapsed).unwrap_or_default();
                if nodes > 0 && since > ROLLOUT * nodes {
                    return Err(failed(format!(
                        "{what}, after {} minutes; mco status says why",
                        since.as_secs() / 60
                    )));
                }
                Err(Trouble::Stop(Stop::Waiting(what)))
            }
        }
    }
}

fn config_of(seen: &Seen) -> Result<Option<ControllerConfig>, Trouble> {
    let Some(config) = &seen.config else { return Ok(None) };
    let read = serde_json::from_value(config.clone());
    read.map(Some).map_err(|e| {
        failed(format!("ControllerConfig {CONTROLLER_CONFIG} cannot be read: line {}", e.line()))
    })
}

fn spec_of(passed: &Passed) -> Result<api::v1::ControllerConfigSpec, Trouble> {
    let config = config_of(&passed.seen)?;
    config
        .map(|c| c.spec)
        .ok_or_else(|| failed(format!("there is no ControllerConfig {CONTROLLER_CONFIG}; run `mco install`")))
}

fn deployment(seen: &Seen) -> Option<&Value> {
    seen.kept.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == CONTROLLER)
}

fn scaled(seen: &Seen) -> Option<Scaled> {
    let deployment = serde_json::from_value(deployment(seen)?.clone()).ok()?;
    Scaled::of(&deployment)
}

fn controller(seen: &Seen) -> Option<bool> {
    deployment(seen).map(|d| {
        d["status"]["availableReplicas"].as_i64().unwrap_or_default() > 0 || d["spec"]["replicas"] == 0
    })
}
