//! The Jobs of a gate: one on each node that is done, made from a CronJob's template. They run in parallel, and their ends
//! are awaited.
//!
//! Flow: the nodes that the plan names → a Job on each of them, once → its end. While Jobs run, more nodes are done: theirs begin
//! beside those that run, and nothing is asked twice. One watch tells of all ends for as long as the gate is checked; where it is
//! not allowed, or is cut, each Job is asked for.
//!
//! What it is not: the requests and the watch (see `job_watch`), or what an end means for the gate (see `rollout::policy::gates`).

use crate::policies::check_subject::{CheckSubject, PolicyReference};
use crate::policies::job_watch::{JobApi, JobEnd, JobEnds, JobWatch, end_of};
use crate::policies::requests::WORDS;
use crate::shared::Shared;
use api::formats::text::cut;
use api::v1alpha1::RolloutPolicy;
use client::call;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Resource as _};
use rollout::policy::Gate;
use rollout::policy::gates::{Check, Reading};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

/// Requests about Jobs of one gate at a time. The Jobs themselves all run beside each other.
const REQUESTS_OF_JOBS: usize = 32;
/// The first and the longest pause between two looks for the end of a Job; each is twice as long as the one before.
const LOOK_AT_JOB: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// The pause between two requests while a watch reports ends: its connection may have broken unnoticed.
const LOOK_BESIDE_WATCH: Duration = Duration::from_secs(10);
/// How long a CronJob counts that was read.
const TEMPLATE_COUNTS: Duration = Duration::from_secs(10);
/// The label of Jobs: the gate's attempt that they belong to.
const ATTEMPT: &str = api::names::label::GATE;
/// How long a Job is kept after its end, for people who want to see its logs.
const JOB_IS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// The Jobs of one gate, from check to check.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// The nodes on which its Job has ended well. They are not asked for again.
    ended: BTreeSet<Arc<str>>,
    /// The CronJob's template, and when it was read.
    template: Option<(Instant, Value)>,
    /// The watch of their ends.
    following: Option<JobWatch>,
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
        wanted: &mut watch::Receiver<CheckSubject>,
    ) -> Reading {
        let done = match &gate.check {
            Check::Job { namespace, cron_job } => self.run(shared, gate, (namespace, cron_job), wanted).await,
            _ => Err("it runs no Jobs".to_owned()),
        };
        if !matches!(&done, Ok(Reading::Broken(broken)) if broken.is_empty()) {
            // It may have been corrected since.
            self.template = None;
        }
        done.unwrap_or_else(|why| Reading::NoAnswer(cut(&why, WORDS).into_owned()))
    }

    async fn run(
        &mut self,
        shared: &Shared,
        gate: &Gate,
        (namespace, cron_job): (&str, &str),
        wanted: &mut watch::Receiver<CheckSubject>,
    ) -> Result<Reading, String> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "CronJob"));
        let cron_jobs: Api<DynamicObject> = Api::namespaced_with(shared.client.clone(), namespace, &resource);
        let jobs = JobApi::new(shared.client.clone(), namespace);
        let template = match self.template.take().filter(|(at, _)| at.elapsed() < TEMPLATE_COUNTS) {
            Some(known) => known,
            None => {
                let what = || format!("cronjob {namespace}/{cron_job}");
                let read = timeout(gate.timeout, call(what, cron_jobs.get(cron_job))).await;
                let read = read.map_err(|_| late(gate))?.map_err(|e| e.chain())?;
                (Instant::now(), read.data.pointer("/spec/jobTemplate").cloned().unwrap_or_default())
            }
        };
        let (_, template) = &*self.template.insert(template);
        let requests = Semaphore::new(REQUESTS_OF_JOBS);
        // A task of a gate is about one attempt (see `checks`); only the nodes change.
        let about = CheckSubject { nodes: vec![], ..wanted.borrow().clone() };
        let following = self.following.get_or_insert_with(|| {
            JobWatch::start(jobs.clone(), format!("{ATTEMPT}={}", attempt(gate, &about)))
        });
        let ends = following.ends.clone();
        let one = async |node: Arc<str>| {
            let end = one_job((&requests, &jobs, &ends), gate, template, &about, &node);
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
                    // One failed Job decides, whatever the others do.
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

/// The value of [`ATTEMPT`]: all Jobs of a gate at one attempt have the same.
fn attempt(gate: &Gate, about: &CheckSubject) -> String {
    let hash = Sha256::digest(job_name(gate, about, ""));
    api::formats::text::hex(hash.iter().take(8))
}

/// The Job's name. A Job of an earlier attempt at the same config says nothing of this one, so the name follows the
/// policy's generation and the time at which the rollout began.
fn job_name(gate: &Gate, about: &CheckSubject, node: &str) -> String {
    let CheckSubject { config, since, policy, baseline: _, workloads: _, nodes: _, away: _ } = about;
    let generation = policy.generation.unwrap_or_default();
    let since = since.as_ref().map(|t| t.0.as_second()).unwrap_or_default();
    let hash = Sha256::digest(format!("{config}/{node}/{}/{generation}/{since}", policy.uid));
    let hash = api::formats::text::hex(hash.iter().take(8));
    let short: String = gate.name.chars().take(40).collect();
    format!("gate-{short}-{hash}")
}

/// A Job on one node from a CronJob's template. It goes with its policy, and a day after its end unless the template
/// says when.
fn job(template: &Value, about: &CheckSubject, node: &str, name: &str, attempt: String) -> Value {
    let mut job = template.clone();
    job["apiVersion"] = "batch/v1".into();
    job["kind"] = "Job".into();
    job["metadata"]["name"] = name.into();
    job["metadata"]["labels"][ATTEMPT] = attempt.into();
    job["metadata"]["annotations"][api::names::own::GATED_CONFIG] = (*about.config).into();
    let PolicyReference { name, uid, generation: _ } = &about.policy;
    if !uid.is_empty() {
        job["metadata"]["ownerReferences"] = json!([
            {"apiVersion": RolloutPolicy::api_version(&()), "kind": RolloutPolicy::kind(&()), "name": name, "uid": uid},
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
    (requests, jobs, ends): (&Semaphore, &JobApi, &JobEnds),
    gate: &Gate,
    template: &Value,
    about: &CheckSubject,
    node: &str,
) -> Result<Option<String>, String> {
    let name = job_name(gate, about, node);
    let what = || format!("job {name}");
    let [mut pause, longest] = LOOK_AT_JOB;
    let mut exists = false;
    // Registered before the Job exists, so that its end is not missed.
    let mut told = ends.expect(&name);
    loop {
        let place = requests.acquire().await.map_err(|e| e.to_string())?;
        let answer = if exists {
            call(what, jobs.get(&name)).await
        } else {
            call(what, jobs.create(&job(template, about, node, &name, attempt(gate, about)))).await
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
        let mut end = end_of(&job);
        if end.is_none() {
            let wait = if ends.is_running() { LOOK_BESIDE_WATCH } else { pause };
            pause = (pause * 2).min(longest);
            match timeout(wait, &mut told).await {
                Ok(Ok(ended)) => end = Some(ended),
                // Another look waits for the same Job.
                Ok(Err(_)) => told = ends.expect(&name),
                Err(_) => {}
            }
        }
        match end {
            Some(JobEnd::Well) => return Ok(None),
            Some(JobEnd::Failed(why)) => return Ok(Some(format!("{name} on {node} ({why})"))),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
