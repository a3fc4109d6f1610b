//! `bench rollout --policy`: the same rollout under a RolloutPolicy with five waves and gates of all kinds that need no Job,
//! without soaks; and a gate that fails when a third of the nodes are on their way: how soon no further node is sent, and how
//! soon all nodes are back.
//!
//! Real: the controller with its checks of gates. Simplified: one server on loopback answers for Prometheus and for a workload's
//! front page; the workload is a Deployment that asks for no pods.

use anyhow::Context;
use api::v1alpha1::RolloutPolicy;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use lab::NodeNews;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

/// A rollback without progress for this long has stopped.
const PATIENCE: Duration = Duration::from_secs(180);
/// The policy and the Deployment.
const NAME: &str = "bench";

/// The server that gates ask.
pub(super) struct Gates {
    broken: Arc<AtomicBool>,
}

impl Gates {
    /// Starts the server, and creates the policy for the pool.
    pub(super) async fn begin(client: &kube::Client, pool: &str) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let broken = Arc::new(AtomicBool::new(false));
        let says = broken.clone();
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let broken = says.load(Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let _ = connection.read(&mut request).await;
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
        Ok(Self { broken })
    }

    /// Lets the front page answer with an error.
    fn break_down(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Breaks the gate when a third of the nodes are on their way to another config than `before`. Returns how many nodes
    /// were sent, how many milliseconds after the failure the last one was, and after how many seconds all were back.
    pub(super) async fn fail(
        &self,
        news: &mut UnboundedReceiver<NodeNews>,
        before: &str,
        count: usize,
    ) -> anyhow::Result<(usize, f64, f64)> {
        let mut desired: HashMap<String, String> = HashMap::new();
        let (mut sent, mut back): (HashSet<String>, HashSet<String>) = (HashSet::new(), HashSet::new());
        let (mut broken, mut last) = (None::<Instant>, Duration::ZERO);
        loop {
            let next = tokio::time::timeout(PATIENCE, news.recv()).await.context("no node moves")?;
            let (name, facts) = next.context("the lab's watch of Nodes has ended")?;
            let Some(facts) = facts else { continue };
            let old = desired.insert(name.clone(), facts.desired.clone());
            if facts.desired != before && old.as_ref() != Some(&facts.desired) {
                sent.insert(name.clone());
                last = broken.map_or(Duration::ZERO, |at| at.elapsed());
            }
            let is_back = facts.current == before && facts.desired == before && !facts.unschedulable;
            if is_back && sent.contains(&name) {
                back.insert(name);
            } else {
                back.remove(&name);
            }
            match broken {
                None if sent.len() * 3 >= count => {
                    self.break_down();
                    broken = Some(Instant::now());
                }
                Some(at) if back.len() == sent.len() => {
                    return Ok((sent.len(), last.as_secs_f64() * 1000.0, at.elapsed().as_secs_f64()));
                }
                _ => {}
            }
        }
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
            ],
            "onFailure": "Rollback",
        },
    });
    let policies: Api<RolloutPolicy> = Api::all(client.clone());
    policies.patch(NAME, &params, &Patch::Apply(&policy)).await.context("rolloutpolicy bench")?;
    Ok(())
}
