//! `bench rollout --policy`: the same rollout under a RolloutPolicy with five waves and gates of all kinds, without soaks. Then
//! a gate fails when a hundred nodes, or a third of fewer, are on their way to a change that needs no reboot. Measured from the
//! gate's first failed answer: how soon no further node is started, and how soon all nodes are rolled back.
//!
//! Real: the controller with its gates, and the Jobs that it creates. Simplified: one server on loopback answers for both
//! Prometheus and a workload's front page; the workload is a Deployment of no pods; a fake Job controller marks
//! each Job as succeeded.

use anyhow::Context;
use api::v1alpha1::RolloutPolicy;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use lab::NodeNews;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

/// A rollback without progress for this long has stopped.
const PATIENCE: Duration = Duration::from_secs(180);
/// The name of the policy, the Deployment and the CronJob.
const NAME: &str = "bench";
/// The gate fails when this many nodes have been started.
const SENT: usize = 100;
/// The pause before a watch of Jobs that has ended is restarted.
const AGAIN: Duration = Duration::from_millis(100);
/// The number of Jobs that are ended at the same time.
const AT_ONCE: usize = 16;

/// The server that the gates query.
pub(super) struct Gates {
    page: Arc<FrontPage>,
    tasks: [JoinHandle<()>; 2],
}

/// The front page that one of the gates requests.
#[derive(Default)]
struct FrontPage {
    is_broken: AtomicBool,
    /// When it first answered with an error.
    said_so: OnceLock<Instant>,
}

impl Gates {
    /// Starts the server, and creates the policy for the pool.
    pub(super) async fn begin(client: &kube::Client, pool: &str) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let page = Arc::new(FrontPage::default());
        let of_server = page.clone();
        let server = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let page = of_server.clone();
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let read = connection.read(&mut request).await.unwrap_or_default();
                    // The answers for Prometheus never fail here.
                    let of_page = request.get(..read).is_some_and(|r| r.starts_with(b"GET / "));
                    let broken = of_page && page.is_broken.load(Ordering::Relaxed);
                    if broken {
                        page.said_so.get_or_init(Instant::now);
                    }
                    let body =
                        json!({"status": "success", "data": {"resultType": "scalar", "result": [0, "0.1"]}});
                    let (status, body) = (if broken { 500 } else { 200 }, body.to_string());
                    let answer = format!(
                        "HTTP/1.1 {status} -\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = connection.write_all(answer.as_bytes()).await;
                });
            }
        });
        apply(client, pool, address).await?;
        let jobs = tokio::spawn(end_jobs(client.clone()));
        Ok(Self { page, tasks: [server, jobs] })
    }

    /// Deletes the policy and ends the server.
    pub(super) async fn end(self, client: &kube::Client) -> anyhow::Result<()> {
        let policies: Api<RolloutPolicy> = Api::all(client.clone());
        policies.delete(NAME, &DeleteParams::default()).await.context("rolloutpolicy bench")?;
        self.tasks.iter().for_each(JoinHandle::abort);
        Ok(())
    }

    /// Breaks the gate when enough nodes are on their way to a config other than `before`. Returns how many nodes were started,
    /// how many milliseconds after the first failed answer the last of them was, and after how many seconds all were back.
    pub(super) async fn fail(
        &self,
        news: &mut UnboundedReceiver<NodeNews>,
        before: &str,
        count: usize,
    ) -> anyhow::Result<(usize, f64, f64)> {
        let mut desired: HashMap<String, String> = HashMap::new();
        let (mut sent, mut back): (HashSet<String>, HashSet<String>) = (HashSet::new(), HashSet::new());
        let (mut broken, mut last) = (false, Instant::now());
        loop {
            let next = tokio::time::timeout(PATIENCE, news.recv()).await.context("no node moves")?;
            let (name, facts) = next.context("the lab's watch of Nodes has ended")?;
            let Some(facts) = facts else { continue };
            let old = desired.insert(name.clone(), facts.desired.clone());
            if facts.desired != before && old.as_ref() != Some(&facts.desired) {
                sent.insert(name.clone());
                last = Instant::now();
            }
            let is_back = facts.current == before && facts.desired == before && !facts.unschedulable;
            if is_back && sent.contains(&name) {
                back.insert(name);
            } else {
                back.remove(&name);
            }
            if !broken && sent.len() >= SENT.min(count.div_ceil(3)) {
                self.page.is_broken.store(true, Ordering::Relaxed);
                broken = true;
            }
            if let Some(at) = self.page.said_so.get().filter(|_| back.len() == sent.len()) {
                let late = last.saturating_duration_since(*at);
                return Ok((sent.len(), late.as_secs_f64() * 1000.0, at.elapsed().as_secs_f64()));
            }
        }
    }
}

/// The fake Job controller.
async fn end_jobs(client: kube::Client) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
    let jobs: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
    let end = async |name: String| {
        let now = k8s_openapi::jiff::Timestamp::now().to_string();
        let condition = |type_: &str| json!({"type": type_, "status": "True", "lastProbeTime": now, "lastTransitionTime": now});
        let status = json!({"status": {
            "startTime": now, "completionTime": now, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        }});
        let ended = jobs.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
        if let Err(error) = ended {
            eprintln!("job {name}: {error}");
        }
    };
    let open = WatchParams::default().fields("status.successful=0");
    loop {
        if let Ok(events) = jobs.watch(&open, "0").await {
            let names = events.try_filter_map(async |event| match event {
                WatchEvent::Added(job) => Ok(job.metadata.name),
                _ => Ok(None),
            });
            let names = names.filter_map(async |name| name.ok());
            names.for_each_concurrent(AT_ONCE, &end).await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn apply(client: &kube::Client, pool: &str, address: SocketAddr) -> anyhow::Result<()> {
    let labels = json!({"app": NAME});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
        },
    });
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let deployments: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let params = PatchParams::apply(NAME).force();
    deployments.patch(NAME, &params, &Patch::Apply(&deployment)).await?;
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}],
        }}}}},
    });
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "CronJob"));
    let cron_jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    cron_jobs.patch(NAME, &params, &Patch::Apply(&cron_job)).await?;
    let always = json!(["Always"]);
    let policy = json!({
        "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": NAME},
        "spec": {
            "pools": {"names": [pool]},
            "waves": [
                {"name": "canary", "size": 1}, {"name": "twentieth", "size": "5%"}, {"name": "tenth", "size": "10%"},
                {"name": "third", "size": "30%"}, {"name": "rest"},
            ],
            "gates": [
                {"name": "nodes", "interval": "30s", "nodeCondition": {"type": "MemoryPressure", "status": "False"}},
                {"name": "workloads", "when": always, "interval": "1s", "timeout": "1s",
                    "workloads": {"kinds": ["Deployment"], "selector": {"matchLabels": labels}}},
                {"name": "errors", "when": always, "interval": "1s", "timeout": "1s", "failureLimit": 3, "prometheus":
                    {"url": format!("http://{address}"), "query": "a", "bound": {"operator": "AtMost", "value": "0.5"}}},
                {"name": "front-page", "when": always, "interval": "1s", "timeout": "1s", "failureLimit": 1,
                    "http": {"url": format!("http://{address}/")}},
                {"name": "smoke", "when": ["BeforeWave"], "interval": "1s", "timeout": "30s", "failureLimit": 1,
                    "job": {"namespace": "default", "cronJob": NAME}},
            ],
            "onFailure": "Rollback",
        },
    });
    let policies: Api<RolloutPolicy> = Api::all(client.clone());
    policies.patch(NAME, &params, &Patch::Apply(&policy)).await.context("rolloutpolicy bench")?;
    Ok(())
}
