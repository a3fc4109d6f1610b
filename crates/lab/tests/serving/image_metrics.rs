//! The metrics of image builds in a real Prometheus, after a failed and a successful build: every metric that an alert uses has
//! a series, and the first failure fires the alert.
//!
//! Fake: the Job controller. What a build writes is in `tests/cluster/image_builds.rs`, and the limits of each alert are in
//! `alerts.yaml`.

use crate::product::{Cluster, machine_config, text};
use crate::prometheus::query;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use operator::monitoring::ALERTS;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const NAMESPACE: &str = "openshift-machine-config-operator";
const POOL: &str = "imaged";

/// Waits for the Job of a build other than this one; returns the build's name.
async fn started(cluster: &Cluster, jobs: &Api<DynamicObject>, before: &str) -> String {
    cluster
        .wait(&format!("a Job other than that of {before:?}"), async || {
            let all = jobs.list(&ListParams::default()).await.ok()?.items;
            let builds = all.iter().filter_map(|j| j.metadata.name.as_deref()?.strip_prefix("build-"));
            builds.into_iter().find(|build| *build != before).map(str::to_owned)
        })
        .await
}

async fn ends(cluster: &Cluster, jobs: &Api<DynamicObject>, build: &str, status: Value, state: &str) {
    let patch = Patch::Merge(json!({"status": status}));
    jobs.patch_status(&format!("build-{build}"), &PatchParams::default(), &patch).await.unwrap();
    cluster
        .wait(&format!("MachineOSBuild {build} is {state}"), async || {
            crate::product::condition(&cluster.get("MachineOSBuild", build).await, state)
        })
        .await;
}

/// Waits until Prometheus answers with one series.
async fn has(cluster: &Cluster, prometheus: SocketAddr, expr: &str) {
    cluster
        .wait(&format!("Prometheus has one series of {expr}"), async || {
            query(prometheus, expr).await.ok().filter(|found| found.len() == 1)
        })
        .await;
}

/// A pool without nodes has an image of its own, whose first build fails.
pub(crate) async fn are_scraped(cluster: &Cluster, prometheus: SocketAddr) {
    let mut base = machine_config("10-imaged", POOL, json!({"ignition": {"version": "3.4.0"}}));
    base["spec"]["osImageURL"] = json!(format!("registry.lab.test:5000/base@sha256:{}", "0a".repeat(32)));
    cluster.create(base).await;
    cluster.add_pool(POOL, &[]).await;
    let builder = json!({"metadata": {"annotations": {"machineconfig.dev/image-builder": "registry.lab.test:5000/buildah"}}});
    cluster.patch("ControllerConfig", "machine-config-controller", builder).await;
    let containerfile = |run: &str| json!([{"containerfileArch": "NoArch", "content": format!("FROM configs AS final\nRUN {run}\n")}]);
    cluster
        .create(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineOSConfig",
            "metadata": {"name": POOL},
            "spec": {
                "machineConfigPool": {"name": POOL},
                "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": {"name": "push"},
                "renderedImagePushSpec": "registry.lab.test:5000/team/os:latest",
                "containerFile": containerfile("false"),
            },
        }))
        .await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
    let jobs: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), NAMESPACE, &kind);
    let first = started(cluster, &jobs, "").await;
    // Prometheus sees a failure as an increase only if the series existed before it.
    let of = |metric: &str, state: &str| format!("{metric}{{pool=\"{POOL}\",state=\"{state}\"}}");
    has(cluster, prometheus, &format!("{} == 0", of("ocl_build_total", "failed"))).await;
    has(cluster, prometheus, &format!("ocl_active_builds{{pool=\"{POOL}\"}} == 1")).await;
    ends(cluster, &jobs, &first, json!({"failed": 4}), "Failed").await;
    has(cluster, prometheus, &format!("{} == 1", of("ocl_build_total", "failed"))).await;
    has(cluster, prometheus, &format!("{} == 1", of("ocl_build_state", "failed"))).await;
    has(cluster, prometheus, &format!("ALERTS{{alertname=\"OCLBuildFailed\",pool=\"{POOL}\"}}")).await;

    let correct = json!({"spec": {"containerFile": containerfile("true")}});
    cluster.patch("MachineOSConfig", POOL, correct).await;
    let second = started(cluster, &jobs, &first).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let digest = format!("sha256:{}", "1a".repeat(32));
    let map = json!({"metadata": {"name": format!("digest-{second}")}, "data": {"digest": digest}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    ends(cluster, &jobs, &second, json!({"succeeded": 1}), "Succeeded").await;
    has(cluster, prometheus, &format!("{} == 1", of("ocl_build_total", "succeeded"))).await;
    has(cluster, prometheus, &format!("{} == 1", of("ocl_image_push_total", "succeeded"))).await;
    has(cluster, prometheus, "mco_mosc_count == 1 and on () mco_mosc_count:sum == 1").await;

    let all = query(prometheus, "count by (__name__) ({__name__=~\"ocl_.*\"})").await.unwrap();
    let there: BTreeSet<String> = all.iter().map(|series| text(&series["metric"]["__name__"])).collect();
    for alert in ALERTS.iter().filter(|alert| alert.name.starts_with("OCL")) {
        let begin = alert.expr.find("ocl_").unwrap();
        let word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        let metric: String = alert.expr[begin..].chars().take_while(word).collect();
        assert!(there.contains(&metric), "{} asks for {metric}, and Prometheus has {there:?}", alert.name);
    }
    cluster.delete("MachineOSConfig", POOL).await;
    cluster
        .wait("the pool's series are gone", async || {
            let left = query(prometheus, &format!("ocl_build_state{{pool=\"{POOL}\"}}")).await.ok()?;
            left.is_empty().then_some(())
        })
        .await;
}
