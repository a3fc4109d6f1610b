//! The requests about Jobs of a gate, and the watch that reports their ends.
//!
//! What it is not: which Jobs are created, or who waits for them (see `jobs`).

use crate::io::backoff::WORK;
use crate::kind;
use api::conditions::{StatusCondition, get_true};
use futures::{Stream, StreamExt};
use kube::api::{DynamicObject, GetParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, Resource};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// What an answer is to be made of: the object's metadata.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// How long one watch lasts, in seconds.
const WATCH_LASTS: u32 = 240;
/// A watch that has lasted so long has not failed, even if it reported nothing.
const HAS_LASTED: Duration = Duration::from_secs(60);

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobEnd {
    /// With success.
    Well,
    /// And why, in the words of its controller.
    Failed(String),
}

/// What is read of a Job. There may be thousands of them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct TrimmedJob {
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

impl StatusCondition for JobCondition {
    fn kind(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }
}

/// How a Job has ended, if it has.
pub(super) fn end_of(job: &TrimmedJob) -> Option<JobEnd> {
    let is = |type_: &str| get_true(&job.status.conditions, type_);
    if is("Complete").is_some() {
        return Some(JobEnd::Well);
    }
    is("Failed").map(|failed| JobEnd::Failed(failed.message.clone()))
}

/// The requests about Jobs of one namespace.
#[derive(Clone)]
pub(super) struct JobApi {
    client: Client,
    at: kube::core::Request,
}

impl JobApi {
    pub(super) fn new(client: Client, namespace: &str) -> Self {
        let at = kube::core::Request::new(DynamicObject::url_path(&kind::JOBS.resource(), Some(namespace)));
        Self { client, at }
    }

    /// Creates a Job. Of the answer only the metadata is asked for: the rest is what was sent.
    pub(super) async fn create(&self, job: &Value) -> kube::Result<TrimmedJob> {
        let body = serde_json::to_vec(job).map_err(kube::Error::SerdeError)?;
        let mut request = self.at.create(&PostParams::default(), body).map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(METADATA_ONLY));
        self.client.request(request).await
    }

    pub(super) async fn get(&self, name: &str) -> kube::Result<TrimmedJob> {
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
pub(super) struct JobWatch {
    pub(super) ends: Arc<JobEnds>,
    task: AbortHandle,
}

impl JobWatch {
    pub(super) fn start(jobs: JobApi, selector: String) -> Self {
        let ends = Arc::<JobEnds>::default();
        let of_task = ends.clone();
        let task = tokio::spawn(async move { of_task.follow(&jobs, selector).await }).abort_handle();
        Self { ends, task }
    }
}

impl Drop for JobWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The ends of Jobs, as one watch reports them.
#[derive(Debug, Default)]
pub(super) struct JobEnds {
    /// Who waits for the end of which Job.
    waiting: Mutex<HashMap<String, oneshot::Sender<JobEnd>>>,
    /// The watch is there.
    is_open: AtomicBool,
}

impl JobEnds {
    /// The end of a Job, as soon as the watch reports it.
    pub(super) fn expect(&self, name: &str) -> oneshot::Receiver<JobEnd> {
        let (waits, end) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), waits);
        end
    }

    /// Whether the watch is open and reports ends.
    pub(super) fn is_running(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
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
            let begin = Instant::now();
            let params = WatchParams::default().labels(&selector).timeout(WATCH_LASTS);
            match jobs.watch(&params).await {
                Ok(events) => {
                    self.is_open.store(true, Ordering::Release);
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
            self.is_open.store(false, Ordering::Release);
            if begin.elapsed() >= HAS_LASTED {
                failures = 0;
            }
            tokio::time::sleep(WORK.delay(failures)).await;
            failures += 1;
        }
    }
}
