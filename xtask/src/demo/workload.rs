//! Pods that really run on the demo's nodes, with a PodDisruptionBudget, so that a drain has pods to evict and to wait
//! for.

use anyhow::{Context, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const NAME: &str = "demo-workload";
const NAMESPACE: &str = "default";
const REPLICAS: i32 = 3;
/// A pod starts within seconds, but a loaded machine needs longer.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(200);

/// Creates a Deployment of three pods, of which two must always run, and waits until all three do.
pub(super) async fn start(client: &kube::Client) -> anyhow::Result<()> {
    let params = PatchParams::apply("demo").force();
    let labels = json!({"app": NAME});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "automountServiceAccountToken": false,
                "containers": [{"name": "pause", "image": lab::PAUSE_IMAGE, "imagePullPolicy": "Never"}],
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": labels},
                }],
            },
        }},
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": NAME},
        "spec": {"minAvailable": REPLICAS - 1, "selector": {"matchLabels": labels}},
    });
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    deployments
        .patch(NAME, &params, &Patch::Apply(&deployment))
        .await
        .context("cannot make the demo's pods")?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), NAMESPACE);
    budgets.patch(NAME, &params, &Patch::Apply(&budget)).await.context("cannot make the demo's budget")?;
    let start = Instant::now();
    loop {
        let status = deployments.get(NAME).await?.status.unwrap_or_default();
        let available = status.available_replicas.unwrap_or_default();
        if available == REPLICAS {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            bail!("{available} of {REPLICAS} demo pods run after {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The pods by name, each with the node that it runs on.
pub(super) async fn pods(client: &kube::Client) -> anyhow::Result<BTreeMap<String, String>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let list = pods.list(&ListParams::default().labels(&format!("app={NAME}"))).await?;
    let node = |p: &Pod| p.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default();
    Ok(list.items.iter().map(|p| (p.name_any(), node(p))).collect())
}
