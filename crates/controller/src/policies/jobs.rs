//! The Jobs of a gate: one on each node that is done, made from a CronJob's template, all beside each other, and waited for.
//!
//! Flow: the nodes that the plan names → a Job on each of them, once → its end. While Jobs run, more nodes are done: theirs begin
//! beside those that run, and nothing is asked twice.
//!
//! What it is not: what an end means for the gate (see `rollout::policy::gates`).

use crate::policies::about::{OfPolicy, Wanted};
use crate::policies::requests::WORDS;
use crate::shared::Shared;
use api::text::cut;
use client::call;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use rollout::policy::Gate;
use rollout::policy::gates::{Check, Reading};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// Requests about Jobs of one gate at a time. The Jobs themselves all run beside each other.
const REQUESTS_OF_JOBS: usize = 32;
/// The first and the longest pause between two looks for the end of a Job; each is twice as long as the one before.
const LOOK_AT_JOB: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// How long a Job is kept after its end, for people who want to see its logs.
const JOB_IS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The Jobs of one gate, from check to check.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// The nodes on which its Job has ended well. They are not asked for again.
    ended: BTreeSet<Arc<str>>,
}

impl Jobs {
    /// The nodes on which its Job has ended well.
    pub(super) fn ended(&self) -> &BTreeSet<Arc<str>> {
        &self.ended
    }

    /// Waits until the Jobs of all wanted nodes have ended, also of those that are wanted meanwhile, or until one has failed. Each
    /// has the gate's whole time.
    pub(super) async fn check(
        &mut self,
        shared: &Shared,
        gate: &Gate,
        wanted: &mut watch::Receiver<Wanted>,
    ) -> Reading {
        let done = match &gate.check {
            Check::Job { namespace, cron_job } => self.run(shared, gate, (namespace, cron_job), wanted).await,
            _ => Err("it runs no Jobs".to_owned()),
        };
        done.unwrap_or_else(|why| Reading::NoAnswer(cut(&why, WORDS).into_owned()))
    }

    async fn run(
        &mut self,
        shared: &Shared,
        gate: &Gate,
        (namespace, cron_job): (&str, &str),
        wanted: &mut watch::Receiver<Wanted>,
    ) -> Result<Reading, String> {
        let api = |kind: &str| -> Api<DynamicObject> {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", kind));
            Api::namespaced_with(shared.client.clone(), namespace, &resource)
        };
        let (cron_jobs, jobs) = (api("CronJob"), api("Job"));
        let what = || format!("cronjob {namespace}/{cron_job}");
        let template = timeout(gate.timeout, call(what, cron_jobs.get(cron_job))).await;
        let template = template.map_err(|_| late(gate))?.map_err(|e| e.chain())?;
        let template = template.data.pointer("/spec/jobTemplate").cloned().unwrap_or_default();
        let requests = Semaphore::new(REQUESTS_OF_JOBS);
        // A task of a gate is about one attempt (see `checks`); only the nodes change.
        let about = Wanted { nodes: vec![], ..wanted.borrow().clone() };
        let one = async |node: Arc<str>| {
            let end = one_job((&requests, &jobs), gate, &template, &about, &node);
            let end = timeout(gate.timeout, end).await.unwrap_or_else(|_| Err(late(gate)));
            (node, end)
        };
        let (mut under_way, mut open) = (FuturesUnordered::new(), BTreeSet::new());
        let mut news = true;
        loop {
            if std::mem::take(&mut news) {
                let nodes: BTreeSet<Arc<str>> = wanted.borrow_and_update().nodes.iter().cloned().collect();
                // On a node that is out of service a Job would never end.
                if !open.is_subset(&nodes) {
                    (under_way, open) = (FuturesUnordered::new(), BTreeSet::new());
                }
                for node in nodes.difference(&self.ended) {
                    if open.insert(node.clone()) {
                        under_way.push(one(node.clone()));
                    }
                }
            }
            if under_way.is_empty() {
                return Ok(Reading::Broken(vec![]));
            }
            tokio::select! {
                Some((node, end)) = under_way.next() => match end? {
                    None => {
                        open.remove(&node);
                        self.ended.insert(node);
                    }
                    // One that failed is an answer, whatever the others do.
                    Some(why) => return Ok(Reading::Broken(vec![why])),
                },
                changed = wanted.changed() => match changed {
                    Ok(()) => news = true,
                    Err(_) => return Err("nobody waits for it any more".to_owned()),
                },
            }
        }
    }
}

fn late(gate: &Gate) -> String {
    format!("no answer within {} s", gate.timeout.as_secs_f64())
}

/// The Job's name. A Job of an earlier attempt at the same config says nothing of this one, so the name follows the
/// policy's generation and the time at which the rollout began.
fn job_name(gate: &Gate, about: &Wanted, node: &str) -> String {
    let Wanted { config, since, policy, baseline: _, workloads: _, nodes: _ } = about;
    let generation = policy.generation.unwrap_or_default();
    let since = since.as_ref().map(|t| t.0.as_second()).unwrap_or_default();
    let hash = Sha256::digest(format!("{config}/{node}/{}/{generation}/{since}", policy.uid));
    let hash = api::text::hex(hash.iter().take(8));
    let short: String = gate.name.chars().take(40).collect();
    format!("gate-{short}-{hash}")
}

/// A Job on one node from a CronJob's template. It goes with its policy, and a day after its end unless the template
/// says when.
fn job(template: &Value, about: &Wanted, node: &str, name: &str) -> Value {
    let mut job = template.clone();
    job["apiVersion"] = "batch/v1".into();
    job["kind"] = "Job".into();
    job["metadata"]["name"] = name.into();
    job["metadata"]["annotations"]["machineconfig.dev/config"] = (*about.config).into();
    let OfPolicy { name, uid, generation: _ } = &about.policy;
    if !uid.is_empty() {
        job["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "name": name, "uid": uid},
        ]);
    }
    if job["spec"]["ttlSecondsAfterFinished"].is_null() {
        job["spec"]["ttlSecondsAfterFinished"] = JOB_IS_KEPT.as_secs().into();
    }
    job["spec"]["template"]["spec"]["nodeName"] = node.into();
    job
}

/// Waits for the end of the Job on one node. Returns how it failed, if it did.
async fn one_job(
    (requests, jobs): (&Semaphore, &Api<DynamicObject>),
    gate: &Gate,
    template: &Value,
    about: &Wanted,
    node: &str,
) -> Result<Option<String>, String> {
    let name = job_name(gate, about, node);
    let what = || format!("job {name}");
    let [mut pause, longest] = LOOK_AT_JOB;
    let mut exists = false;
    loop {
        let place = requests.acquire().await.map_err(|e| e.to_string())?;
        let answer = if exists {
            call(what, jobs.get(&name)).await
        } else {
            let job = job(template, about, node, &name);
            let job = serde_json::from_value(job).map_err(|e| format!("the CronJob's template: {e}"))?;
            call(what, jobs.create(&PostParams::default(), &job)).await
        };
        drop(place);
        let job = match answer {
            Ok(job) => job,
            // It was made by an earlier check; or it was deleted since.
            Err(e) if !exists && e.is_conflict() || exists && e.is_not_found() => {
                exists = !exists;
                continue;
            }
            // A quota or a webhook may refuse what is there already.
            Err(e) if !exists => match call(what, jobs.get(&name)).await {
                Ok(job) => job,
                Err(_) => return Err(e.chain()),
            },
            Err(e) => return Err(e.chain()),
        };
        exists = true;
        let conditions = job.data.pointer("/status/conditions").and_then(Value::as_array).cloned();
        let is = |type_: &str| {
            conditions.iter().flatten().find(|c| c["type"] == type_ && c["status"] == "True").cloned()
        };
        if is("Complete").is_some() {
            return Ok(None);
        }
        if let Some(failed) = is("Failed") {
            let why = failed["message"].as_str().unwrap_or_default();
            return Ok(Some(format!("{name} on {node} ({why})")));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::k8s::Time;

    fn about(uid: &str, generation: i64, since: &str) -> Wanted {
        Wanted {
            config: "new".into(),
            since: Some(Time(since.parse().unwrap())),
            policy: OfPolicy { name: "p".to_owned(), uid: uid.to_owned(), generation: Some(generation) },
            baseline: None,
            workloads: vec![],
            nodes: vec!["n".into()],
        }
    }

    #[test]
    fn a_job_belongs_to_one_attempt_and_goes_with_its_policy() {
        let gate = Gate {
            name: "smoke".into(),
            before_wave: true,
            soak: true,
            always: false,
            interval: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
            failure_limit: 1,
            no_answer_fails: false,
            check: Check::Job { namespace: "default".to_owned(), cron_job: "smoke".to_owned() },
        };
        let first = about("u", 1, "2026-07-01T12:00:00Z");
        let name = job_name(&gate, &first, "n");
        assert_eq!(job_name(&gate, &about("u", 1, "2026-07-01T12:00:00Z"), "n"), name);
        for other in [
            about("v", 1, "2026-07-01T12:00:00Z"),
            about("u", 2, "2026-07-01T12:00:00Z"),
            about("u", 1, "2026-07-02T12:00:00Z"),
        ] {
            assert_ne!(job_name(&gate, &other, "n"), name, "{other:?}");
        }
        let made = job(&json!({"spec": {"template": {"spec": {}}}}), &first, "n", &name);
        assert_eq!(made["spec"]["ttlSecondsAfterFinished"], 86400);
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(made["spec"]["template"]["spec"]["nodeName"], "n");
        let keeps = json!({"spec": {"ttlSecondsAfterFinished": 60, "template": {"spec": {}}}});
        assert_eq!(job(&keeps, &first, "n", &name)["spec"]["ttlSecondsAfterFinished"], 60);
    }
}
