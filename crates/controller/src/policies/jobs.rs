//! The Jobs of a gate: one on each node that is done, made from a CronJob's template, all beside each other, and waited for.
//!
//! Flow: the nodes that the plan names → a Job on each of them, once → its end. While Jobs run, more nodes are done: theirs begin
//! beside those that run, and nothing is asked twice. One watch tells of all ends for as long as the gate is checked; where it is
//! not allowed, or is cut, each Job is asked for.
//!
//! What it is not: what an end means for the gate (see `rollout::policy::gates`).

use crate::io::backoff::WORK;
use crate::policies::check_subject::{OfPolicy, Wanted};
use crate::policies::requests::WORDS;
use crate::shared::Shared;
use api::text::cut;
use client::call;
use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject, GetParams, PostParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Resource};
use rollout::policy::Gate;
use rollout::policy::gates::{Check, Reading};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// Requests about Jobs of one gate at a time. The Jobs themselves all run beside each other.
const REQUESTS_OF_JOBS: usize = 32;
/// The first and the longest pause between two looks for the end of a Job; each is twice as long as the one before.
const LOOK_AT_JOB: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// The pause between two looks while a watch tells of ends. It may have been cut without a word.
const LOOK_BESIDE_WATCH: Duration = Duration::from_secs(10);
/// How long a CronJob counts that was read.
const TEMPLATE_COUNTS: Duration = Duration::from_secs(10);
/// What an answer is to be made of: the object's metadata.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// How long one watch lasts, in seconds.
const WATCH_LASTS: u32 = 240;
/// The label of Jobs: the gate's attempt that they belong to.
const ATTEMPT: &str = "machineconfig.dev/gate";
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
    following: Option<Following>,
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
        wanted: &mut watch::Receiver<Wanted>,
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
        let about = Wanted { nodes: vec![], ..wanted.borrow().clone() };
        let following = self.following.get_or_insert_with(|| {
            Following::start(jobs.clone(), format!("{ATTEMPT}={}", attempt(gate, &about)))
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

/// The value of [`ATTEMPT`]: all Jobs of a gate at one attempt have the same.
fn attempt(gate: &Gate, about: &Wanted) -> String {
    let hash = Sha256::digest(job_name(gate, about, ""));
    api::text::hex(hash.iter().take(8))
}

/// The Job's name. A Job of an earlier attempt at the same config says nothing of this one, so the name follows the
/// policy's generation and the time at which the rollout began.
fn job_name(gate: &Gate, about: &Wanted, node: &str) -> String {
    let Wanted { config, since, policy, baseline: _, workloads: _, nodes: _, away: _ } = about;
    let generation = policy.generation.unwrap_or_default();
    let since = since.as_ref().map(|t| t.0.as_second()).unwrap_or_default();
    let hash = Sha256::digest(format!("{config}/{node}/{}/{generation}/{since}", policy.uid));
    let hash = api::text::hex(hash.iter().take(8));
    let short: String = gate.name.chars().take(40).collect();
    format!("gate-{short}-{hash}")
}

/// A Job on one node from a CronJob's template. It goes with its policy, and a day after its end unless the template
/// says when.
fn job(template: &Value, about: &Wanted, node: &str, name: &str, attempt: String) -> Value {
    let mut job = template.clone();
    job["apiVersion"] = "batch/v1".into();
    job["kind"] = "Job".into();
    job["metadata"]["name"] = name.into();
    job["metadata"]["labels"][ATTEMPT] = attempt.into();
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
    (requests, jobs, ends): (&Semaphore, &JobApi, &Ends),
    gate: &Gate,
    template: &Value,
    about: &Wanted,
    node: &str,
) -> Result<Option<String>, String> {
    let name = job_name(gate, about, node);
    let what = || format!("job {name}");
    let [mut pause, longest] = LOOK_AT_JOB;
    let mut exists = false;
    // Before it exists: its end is not missed.
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
            let wait = if ends.are_told() { LOOK_BESIDE_WATCH } else { pause };
            pause = (pause * 2).min(longest);
            match timeout(wait, &mut told).await {
                Ok(Ok(ended)) => end = Some(ended),
                // Another look waits for the same Job.
                Ok(Err(_)) => told = ends.expect(&name),
                Err(_) => {}
            }
        }
        match end {
            Some(End::Well) => return Ok(None),
            Some(End::Failed(why)) => return Ok(Some(format!("{name} on {node} ({why})"))),
            None => {}
        }
    }
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Well,
    /// And why, in the words of its controller.
    Failed(String),
}

/// What is read of a Job. There may be thousands of them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct TrimmedJob {
    metadata: JobMeta,
    status: JobStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct JobMeta {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct JobStatus {
    conditions: Vec<JobCondition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct JobCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    message: String,
}

/// How a Job has ended, if it has.
fn end_of(job: &TrimmedJob) -> Option<End> {
    let is = |type_: &str| job.status.conditions.iter().find(|c| c.type_ == type_ && c.status == "True");
    if is("Complete").is_some() {
        return Some(End::Well);
    }
    is("Failed").map(|failed| End::Failed(failed.message.clone()))
}

/// The requests about Jobs of one namespace.
#[derive(Clone)]
struct JobApi {
    client: Client,
    at: kube::core::Request,
}

impl JobApi {
    fn new(client: Client, namespace: &str) -> Self {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
        let at = kube::core::Request::new(DynamicObject::url_path(&resource, Some(namespace)));
        Self { client, at }
    }

    /// Creates a Job. Of the answer only the metadata is asked for: the rest is what was sent.
    async fn create(&self, job: &Value) -> kube::Result<TrimmedJob> {
        let body = serde_json::to_vec(job).map_err(kube::Error::SerdeError)?;
        let mut request = self.at.create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(METADATA_ONLY));
        self.client.request(request).await
    }

    async fn get(&self, name: &str) -> kube::Result<TrimmedJob> {
        let request = self.at.get(name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }

    async fn watch(
        &self,
        params: &WatchParams,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<TrimmedJob>>> + use<>> {
        let request = self.at.watch(params, "0").map_err(kube::Error::BuildRequest)?;
        self.client.request_events(request).await
    }
}

/// The watch of the Jobs of one attempt. It outlives single checks: each watch begins with all Jobs that are there. It ends with
/// this.
#[derive(Debug)]
struct Following {
    ends: Arc<Ends>,
    task: AbortHandle,
}

impl Following {
    fn start(jobs: JobApi, selector: String) -> Self {
        let ends = Arc::<Ends>::default();
        let of_task = ends.clone();
        let task = tokio::spawn(async move { of_task.follow(&jobs, selector).await }).abort_handle();
        Self { ends, task }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The ends of Jobs, as one watch tells of them.
#[derive(Debug, Default)]
struct Ends {
    /// Who waits for the end of which Job.
    waiting: Mutex<HashMap<String, oneshot::Sender<End>>>,
    /// The watch is there.
    told: AtomicBool,
}

impl Ends {
    /// The end of a Job, once it is told.
    fn expect(&self, name: &str) -> oneshot::Receiver<End> {
        let (waits, end) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), waits);
        end
    }

    /// Whether a watch tells of ends now.
    fn are_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    fn tell(&self, job: &TrimmedJob) {
        let Some(end) = end_of(job) else { return };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waits) = waiting.remove(&job.metadata.name) {
            // Its task may have ended by its own look.
            let _ = waits.send(end);
        }
    }

    /// Watches the Jobs of one attempt, for ever. Each watch begins with all that are there.
    async fn follow(&self, jobs: &JobApi, selector: String) {
        let mut failures = 0;
        loop {
            let params = WatchParams::default().labels(&selector).timeout(WATCH_LASTS);
            match jobs.watch(&params).await {
                Ok(events) => {
                    self.told.store(true, Ordering::Release);
                    let mut events = std::pin::pin!(events);
                    while let Some(Ok(event)) = events.next().await {
                        match event {
                            WatchEvent::Added(job) | WatchEvent::Modified(job) => self.tell(&job),
                            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                            WatchEvent::Error(_) => break,
                        }
                        failures = 0;
                    }
                }
                // It may not be allowed: then each Job is asked for.
                Err(error) => tracing::debug!("a watch of Jobs: {}", client::chain(&error)),
            }
            self.told.store(false, Ordering::Release);
            tokio::time::sleep(WORK.delay(failures)).await;
            failures += 1;
        }
    }
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
