//! Acts as the kubelet for the pods of all fake nodes of a lab: a pod that is bound to a running node becomes
//! Running, and a pod that is being deleted is removed.
//!
//! One watch serves all nodes. Not here: containers. A pod on a node that is down stays as it is, as on a real node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::conditions::is_true;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::simulated::fake_kubelet::{BACKOFF, FakeKubelet};
use crate::system::process::lock;

/// The pause before pods are handled again that could not be handled (node down, request failed).
const RETRY: Duration = Duration::from_millis(500);

/// The nodes whose pods are handled.
type Nodes = Arc<Mutex<HashMap<String, Arc<FakeKubelet>>>>;

/// The running fake. Dropping it stops it.
#[derive(Debug)]
pub struct FakePods {
    nodes: Nodes,
    task: JoinHandle<()>,
}

impl FakePods {
    /// Starts it for the pods of the nodes that are given to [`FakePods::add`].
    #[must_use]
    pub fn start(client: Client) -> Self {
        let nodes = Nodes::default();
        let task = tokio::spawn(run(client, Arc::clone(&nodes)));
        Self { nodes, task }
    }

    /// Adds a node whose pods are to be handled.
    pub fn add(&self, node: Arc<FakeKubelet>) {
        lock(&self.nodes).insert(node.name().to_owned(), node);
    }
}

impl Drop for FakePods {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What a kubelet would do with a pod at this moment.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Run,
    Delete,
    Later,
}

fn plan(pod: &Pod, node_up: Option<bool>) -> Step {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    match (node_up, pod.metadata.deletion_timestamp.is_some()) {
        (None, _) => Step::Nothing,
        (Some(false), true) => Step::Later,
        (Some(true), true) => Step::Delete,
        // The node lifecycle controller marks the pods of an unreachable node as not ready, possibly when the node is
        // already back. The kubelet corrects that.
        (Some(up), false) if phase == "Pending" || (phase == "Running" && !is_ready(pod)) => {
            if up {
                Step::Run
            } else {
                Step::Later
            }
        }
        (Some(_), false) => Step::Nothing,
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    is_true(conditions.unwrap_or_default(), "Ready")
}

async fn run(client: Client, nodes: Nodes) {
    let config = watcher::Config::default().fields("spec.nodeName!=");
    let stream = watcher(Api::<Pod>::all(client.clone()), config).backoff(BACKOFF.series()).applied_objects();
    let mut stream = std::pin::pin!(stream);
    let mut later: HashMap<String, Pod> = HashMap::new();
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            () = tokio::time::sleep(RETRY), if !later.is_empty() => {
                for (_, pod) in std::mem::take(&mut later) {
                    handle(&client, &nodes, pod, &mut later).await;
                }
                continue;
            }
        };
        match event {
            Some(Ok(pod)) => handle(&client, &nodes, pod, &mut later).await,
            Some(Err(error)) => tracing::debug!(%error, "watching pods"),
            None => return,
        }
    }
}

async fn handle(client: &Client, nodes: &Nodes, pod: Pod, later: &mut HashMap<String, Pod>) {
    let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let up = lock(nodes).get(&node_name).map(|node| node.is_up());
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let key = format!("{namespace}/{name}");
    later.remove(&key);
    let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let step = plan(&pod, up);
    let done = match step {
        Step::Nothing => return,
        Step::Later => Err(None),
        Step::Run => api
            .patch_status(&name, &PatchParams::default(), &Patch::Strategic(running(&pod)))
            .await
            .map(drop)
            .map_err(Some),
        Step::Delete => {
            api.delete(&name, &DeleteParams::default().grace_period(0)).await.map(drop).map_err(Some)
        }
    };
    match done {
        Ok(()) => {}
        // The pod is gone, or another one has its name: the watch delivers that one.
        Err(Some(kube::Error::Api(status))) if status.code == 404 => {}
        Err(Some(kube::Error::Api(status))) if status.code == 409 && step == Step::Delete => {}
        Err(error) => {
            if let Some(error) = error {
                tracing::debug!(pod = %key, %error, "fake pod");
            }
            later.insert(key, pod);
        }
    }
}

fn running(pod: &Pod) -> serde_json::Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let statuses: Vec<_> = containers
        .map(|container| {
            json!({"name": container.name, "image": container.image.clone().unwrap_or_default(), "imageID": "",
                   "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": now}}})
        })
        .collect();
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    json!({"status": {
        "phase": "Running", "startTime": now, "containerStatuses": statuses,
        "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_follow_their_node_and_their_deletion() {
        let mk = |phase: &str, deleted: bool| {
            let mut pod = Pod::default();
            let status = pod.status.get_or_insert_default();
            status.phase = Some(phase.trim_end_matches(" not ready").to_owned());
            let ready = if phase == "Running" { "True" } else { "False" };
            status.conditions = serde_json::from_value(json!([{"type": "Ready", "status": ready}])).unwrap();
            if deleted {
                let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
                pod.metadata.deletion_timestamp = Some(time);
            }
            pod
        };
        let cases = [
            ("Pending", false, Some(true), Step::Run),
            ("Pending", false, Some(false), Step::Later),
            ("Running", false, Some(true), Step::Nothing),
            ("Running not ready", false, Some(true), Step::Run),
            ("Running not ready", false, Some(false), Step::Later),
            ("Running", true, Some(true), Step::Delete),
            ("Running", true, Some(false), Step::Later),
            ("Pending", true, None, Step::Nothing),
        ];
        for (phase, deleted, up, want) in cases {
            assert_eq!(plan(&mk(phase, deleted), up), want, "{phase} {deleted} {up:?}");
        }
    }
}
