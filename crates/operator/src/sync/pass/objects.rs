//! The steps that are lists of objects: what differs is written, and workloads are waited for.
//!
//! What it is not: which objects those are (see `plan`), and when one differs (see `sync::objects`).

use super::step_error::{StepError, failed, remedy};
use super::{PassResult, Syncer};
use crate::accounts::OPERATOR;
use crate::monitoring::MONITORING;
use crate::settings::object::CheckedSettings;
use crate::sync::cluster::ClusterState;
use crate::sync::down_nodes::DownNodes;
use crate::sync::objects::{
    Key, Rollout, blocked_pods, differs, marked, rollout, selector, superfluous, unscheduled,
};
use crate::sync::plan::{self, Inputs};
use crate::sync::{Stop, cluster};
use api::formats::text::statements;
use api::names::NAMESPACE;
use client::{CallError, call_optional};
use serde_json::{Value, json};

/// How many refusals are named. Of the others the number is said.
const SHOWN: usize = 3;

/// The object as it is applied over the one that was read: the API server refuses it with a conflict if that one is gone, instead of
/// creating what somebody has deleted a moment ago.
fn bound(mut object: Value, there: Option<&Value>) -> Value {
    if let Some(uid) = there.map(|there| &there["metadata"]["uid"]).filter(|uid| uid.is_string()) {
        object["metadata"]["uid"] = uid.clone();
    }
    object
}

impl Syncer {
    /// Writes what differs of a step's objects, and waits for its workloads.
    pub(super) async fn objects(
        &self,
        plan: fn(&Inputs<'_>) -> Result<Vec<Value>, String>,
        wanted: &CheckedSettings,
        passed: &mut PassResult,
    ) -> Result<(), StepError> {
        let objects = self.planned(plan, wanted, &passed.seen)?;
        let mut errors: Vec<CallError> = vec![];
        let (mut slow, none) = (None, DownNodes::default());
        for object in objects.into_iter().map(marked) {
            let key = Key::of(&object);
            let at = passed.seen.kept.iter().position(|o| Key::of(o) == key);
            let there = at.and_then(|i| passed.seen.kept.get(i));
            let now = if differs(&object, there) {
                match cluster::apply(&self.client, &bound(object.clone(), there)).await {
                    Ok(now) => {
                        self.metrics.applied.inc();
                        passed.done.push(key.to_string());
                        now
                    }
                    // A definition that has just been made: the API server is about to serve its kind.
                    Err(error) if error.is_not_found() && object["apiVersion"] == MONITORING => {
                        let what = format!("{key}: its kind is not served yet");
                        slow = slow.or(Some((key, Value::Null, Rollout::Moving(what))));
                        continue;
                    }
                    Err(error) => {
                        errors.push(error);
                        continue;
                    }
                }
            } else {
                there.cloned().unwrap_or_default()
            };
            match rollout(&now, passed.seen.down.get(&key).unwrap_or(&none)) {
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
                return Err(StepError::Conflict);
            }
            let texts = statements(errors.iter().map(CallError::chain), SHOWN);
            return Err(failed(format!("{texts}; {}", remedy(first))));
        }
        match slow {
            None => Ok(()),
            Some((key, object, how)) => Err(self.why_slow(&key, &object, how).await),
        }
    }

    /// Why a workload is not rolled out yet: what its pods say comes first.
    async fn why_slow(&self, key: &Key, object: &Value, how: Rollout) -> StepError {
        if object.is_null() {
            return match how {
                Rollout::Moving(what) | Rollout::Stuck(what) => StepError::Stop(Stop::Waiting(what)),
                Rollout::Done => StepError::Stop(Stop::Waiting(key.to_string())),
            };
        }
        let image = object.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str);
        let pods = cluster::pods(&self.client, &selector(object)).await.unwrap_or_default();
        if let Some(why) = blocked_pods(key, image.unwrap_or_default(), &pods) {
            return failed(why);
        }
        match how {
            Rollout::Stuck(why) => {
                failed(format!("{why}; see kubectl -n openshift-machine-config-operator describe pods"))
            }
            Rollout::Moving(what) => {
                let more = unscheduled(&pods).map(|why| format!("; {why}")).unwrap_or_default();
                StepError::Stop(Stop::Waiting(what + &more))
            }
            Rollout::Done => StepError::Stop(Stop::Waiting(key.to_string())),
        }
    }

    /// The operator's own objects. Where the settings name another image than this process runs in, everything else waits
    /// for the operator of that image: it has the manifests that belong to it. This one goes on until that one is ready.
    pub(super) async fn own(
        &self,
        plan: fn(&Inputs<'_>) -> Result<Vec<Value>, String>,
        wanted: &CheckedSettings,
        passed: &mut PassResult,
    ) -> Result<(), StepError> {
        let written = self.objects(plan, wanted, passed).await;
        match &self.options.image {
            Some(own) if *own != wanted.image => match written {
                Err(StepError::Stop(Stop::Waiting(_))) | Ok(()) => Err(StepError::Stop(Stop::Waiting(
                    format!("the operator of {} is to take over from the one of {own}", wanted.image),
                ))),
                other => other,
            },
            // Our own rollout needs no wait: this process is of the image that is wanted.
            _ => match written {
                Err(StepError::Stop(Stop::Waiting(_))) => Ok(()),
                other => other,
            },
        }
    }

    /// Whether the Deployment is gone to which this pod belongs. An uninstall deletes it first, and this process works on until the
    /// kubelet ends its pod: it must not make its Deployment again, let a machine in, or write anything else that is taken away now.
    pub(super) async fn is_removed(&self, seen: &ClusterState) -> Result<bool, CallError> {
        if self.options.image.is_none() {
            return Ok(false);
        }
        let own = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": OPERATOR, "namespace": NAMESPACE}});
        let key = Key::of(&own);
        if seen.kept.iter().any(|object| Key::of(object) == key) {
            return Ok(false);
        }
        // Whoever has applied it by hand may have left out the label.
        let Some(api) = cluster::api_of(&self.client, &own) else { return Ok(false) };
        let found = call_optional(|| format!("get {key}"), api.get_metadata(&key.name)).await?;
        Ok(found.is_none())
    }

    pub(super) async fn prune(
        &self,
        wanted: &CheckedSettings,
        passed: &mut PassResult,
    ) -> Result<(), StepError> {
        let mut keys = self.planned(plan::wanted, wanted, &passed.seen)?;
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
}
