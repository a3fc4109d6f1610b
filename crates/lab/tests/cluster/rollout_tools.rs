//! An administrator's tools during a rollout: `mco plan`, `pause`, `resume`, `status`, the pool's status when a node
//! cannot be written, and the metrics of the real controller, scraped as Prometheus would.
//!
//! Not here: the rollout itself (`rollout.rs`), and `mco undo` (`undo`).

use crate::product;
use crate::product::controllers::Controller;
use crate::product::{Cluster, condition, defined, is_done, machine_config, note, one_file, text};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const NODES: usize = 4;
/// The name of the MachineConfig that is rolled out.
pub(crate) const CHANGE: &str = "50-tools";

/// A controller that serves its metrics at this address.
pub(crate) fn controller(cluster: &Cluster, metrics: SocketAddr) -> Controller {
    let args = ["--leader-elect=false", &format!("--metrics-listen={metrics}")];
    Controller::with(cluster, "mco-controller", cluster.lab.kubeconfig(), &args, &[])
}

/// The text that `/metrics` serves now.
async fn scrape(address: SocketAddr) -> String {
    let Ok(mut connection) = tokio::net::TcpStream::connect(address).await else { return String::new() };
    let request = "GET /metrics HTTP/1.1\r\nHost: controller\r\nConnection: close\r\n\r\n";
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut said = String::new();
    connection.read_to_string(&mut said).await.unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    said
}

/// The value of the only series that begins with this.
fn value(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|l| l.strip_prefix(series)?.trim().parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_sees_stops_and_measures_a_rollout() {
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(NODES).simulated().reboot_time(Duration::from_secs(3))).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let running = controller(&cluster, free);
    cluster.settled("worker", NODES, &["00-worker"], &[]).await;
    let before = cluster.rendered("worker").await;
    let quiet = scrape(free).await;
    for (series, want) in [
        ("mco_machine_count{pool=\"worker\"}", 4.0),
        ("mco_updated_machine_count{pool=\"worker\"}", 4.0),
        ("mco_degraded_machine_count{pool=\"worker\"}", 0.0),
        ("mco_unavailable_machine_count{pool=\"worker\"}", 0.0),
        ("os_image_url_override{pool=\"worker\"}", 0.0),
        ("mcc_boot_image_skew_enforcement_none", 0.0),
        ("mcc_rollout_nodes{pool=\"worker\",state=\"Updated\"}", 4.0),
        ("mcc_rollout_held{pool=\"worker\"}", 0.0),
        ("mcc_leader", 1.0),
    ] {
        assert_eq!(value(&quiet, series), Some(want), "{series} in\n{quiet}");
    }
    for name in ["mco_state", "mcc_sub_controller_state", "mcc_drain_blocked_seconds"] {
        assert!(quiet.contains(&format!("# TYPE {name} gauge")), "{name} in\n{quiet}");
    }

    // The cost is shown before the change is applied; the exit code is for CI.
    let file = cluster.lab.folder().join("change.json");
    let change = machine_config(CHANGE, "worker", one_file("/etc/tools", "new"));
    std::fs::write(&file, change.to_string()).unwrap();
    let file = file.display().to_string();
    let said = cluster.mco(&["plan", "-f", &file, "--refuse", "reboot"]).await;
    assert_eq!(said.code, 3, "{said:?}");
    for word in
        ["pool worker", "reboot (/etc/tools)", "+new", "4 nodes, at most 1 at once", "worker-0 (at once)"]
    {
        assert!(said.out.contains(word), "{word:?} in {}", said.out);
    }
    let would_be = said.out.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(cluster.rendered("worker").await, before, "a plan changes nothing");

    // While the pool is paused, the change is rendered, but no node is updated.
    let said = cluster.mco(&["pause", "worker"]).await;
    assert_eq!((said.code, said.out.as_str()), (0, "pool worker is paused\n"), "{}", said.err);
    cluster.create(change).await;
    cluster
        .wait("the change to be rendered under the name that the plan said", async || {
            (cluster.rendered("worker").await == would_be).then_some(())
        })
        .await;
    let said = cluster.mco(&["pause", "worker", "-o", "json"]).await;
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (&said["items"][0]["changed"], &said["items"][0]["paused"]),
        (&json!(false), &json!(true)),
        "{said}"
    );
    assert_eq!(said["items"][0]["waiting"].as_array().unwrap().len(), NODES, "{said}");
    let said = cluster.mco(&["plan"]).await;
    assert!(said.code == 0 && said.out.contains("held, the pool is paused"), "{said:?}");
    let said = cluster.mco(&["status", "worker", "-o", "json"]).await;
    let shown: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(shown["pools"][0]["estimate"], "unknown", "{shown}");
    assert!(shown["pools"][0]["because"].as_str().unwrap().contains("held"), "{shown}");
    assert!(cluster.list("Node").await.iter().all(|n| is_done(n) && note(n, "currentConfig") == before));
    cluster
        .wait("the metric of the pause", async || {
            let now = scrape(free).await;
            let waits = value(&now, "mcc_rollout_nodes{pool=\"worker\",state=\"Waiting\"}");
            (value(&now, "mcc_rollout_held{pool=\"worker\"}") == Some(1.0) && waits == Some(4.0))
                .then_some(())
        })
        .await;

    // Resumed: one node cannot be written, and the pool reports which one and why; the others are updated.
    deny(&cluster, "worker-3").await;
    let said = cluster.mco(&["resume", "worker"]).await;
    assert!(
        said.code == 0 && said.out.starts_with("pool worker is resumed\n  will be updated in turn: worker-0"),
        "{said:?}"
    );
    let mut estimated = false;
    let start = Instant::now();
    let said = loop {
        let pool = cluster.get("MachineConfigPool", "worker").await;
        let said = cluster.mco(&["status", "worker", "-o", "json"]).await;
        let shown: Value = serde_json::from_str(&said.out).unwrap();
        let row = &shown["pools"][0];
        if row["estimate"] == "about" {
            assert!(row["seconds"].as_i64().unwrap() > 0 && row["fromNodes"].as_u64().unwrap() > 0, "{row}");
            estimated = true;
        }
        let updating = condition(&pool, "Updating").unwrap_or_default();
        if pool["status"]["updatedMachineCount"] == json!(NODES - 1) && updating.contains("worker-3") {
            break updating;
        }
        assert!(start.elapsed() < product::LIMIT, "{updating}\n{}", cluster.state().await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert!(said.contains("not this one") && said.contains("tried again"), "{said}");
    assert!(estimated, "no estimate was given while nodes were updated one by one");
    let moving = scrape(free).await;
    assert!(
        moving.contains("mco_state{node=\"worker-0\",pool=\"worker\",state=\"Updated\",reason=\"\"}"),
        "{moving}"
    );
    for node in ["worker-0", "worker-1", "worker-2"] {
        cluster.told("worker", "SetDesiredConfig: ", &[node]).await;
    }
    allow(&cluster).await;
    cluster.settled("worker", NODES, &[CHANGE], &[]).await;
    let said = cluster.mco(&["status", "worker", "-o", "json"]).await;
    let shown: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        (&shown["pools"][0]["percent"], &shown["pools"][0]["estimate"]),
        (&json!(100), &json!("done"))
    );
    let said = cluster.mco(&["status", "worker", "-o", "yaml"]).await;
    let words = ["pools:\n", "percent: 100\n", "estimate: done\n"];
    assert!(said.code == 0 && words.iter().all(|w| said.out.contains(w)), "{said:?}");

    let done = scrape(free).await;
    for queue in ["node", "render", "drain"] {
        let count = value(&done, &format!("workqueue_queue_duration_seconds_count{{name=\"{queue}\"}}"));
        assert!(count.is_some_and(|n| n > 0.0), "{queue} in\n{done}");
    }
    assert_eq!(value(&done, "mco_updated_machine_count{pool=\"worker\"}"), Some(4.0));
    assert!(value(&done, "mcc_passes_total{queue=\"node\",outcome=\"failed\"}").is_some(), "{done}");
    a_blocked_drain(&cluster, free).await;
    // The series of a deleted pool are removed.
    cluster.add_pool("short", &[]).await;
    let has = async |wanted: bool| {
        let text = scrape(free).await;
        (text.contains("pool=\"short\"") == wanted).then_some(())
    };
    cluster.wait("series of the pool", async || has(true).await).await;
    cluster.delete("MachineConfigPool", "short").await;
    cluster.wait("no series of the pool", async || has(false).await).await;

    let said = cluster.mco(&["resume", "nope"]).await;
    assert!(said.code == 1 && said.err.contains("nope"), "{said:?}");
    running.kill().await;
    cluster.stop().await;
}

/// The metric of a blocked drain grows while the drain waits, and is removed when the drain ends.
async fn a_blocked_drain(cluster: &Cluster, metrics: SocketAddr) {
    let namespaced = |group: &str, version: &str, kind: &str| -> kube::Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        kube::Api::namespaced_with(cluster.client.clone(), "default", &resource)
    };
    // There is no controller manager here: nothing creates service accounts or computes the status of budgets, so no
    // budget allows a disruption.
    for (group, kind, object) in [
        ("", "ServiceAccount", json!({"metadata": {"name": "default"}})),
        (
            "policy",
            "PodDisruptionBudget",
            json!({"metadata": {"name": "stuck"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "stuck"}}}}),
        ),
        (
            "",
            "Pod",
            json!({"metadata": {"name": "stuck", "labels": {"app": "stuck"}}, "spec": {
                "nodeName": "worker-0", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "example.com/none"}]}}),
        ),
    ] {
        let mut object = object;
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        namespaced(group, "v1", kind).create(&PostParams::default(), &object).await.unwrap();
    }
    let pods = namespaced("", "v1", "Pod");
    cluster
        .wait("the pod runs", async || {
            let pod = json!(pods.get("stuck").await.ok()?);
            (pod["status"]["phase"] == "Running").then_some(())
        })
        .await;
    cluster.create(machine_config("51-blocked", "worker", one_file("/etc/blocked", "x"))).await;
    let series = "mcc_drain_blocked_seconds{node=\"worker-0\"}";
    let first = cluster
        .wait("the drain is seen to wait", async || {
            value(&scrape(metrics).await, series).filter(|s| *s > 0.0)
        })
        .await;
    cluster
        .wait("it goes on to wait, and the node's state says so", async || {
            let now = scrape(metrics).await;
            let state =
                "mco_state{node=\"worker-0\",pool=\"worker\",state=\"Updating\",reason=\"DrainBlocked\"}";
            (value(&now, series)? > first + 1.0 && value(&now, state).is_some()).then_some(())
        })
        .await;
    let budgets = namespaced("policy", "v1", "PodDisruptionBudget");
    budgets.delete("stuck", &kube::api::DeleteParams::default()).await.unwrap();
    cluster.settled("worker", NODES, &["51-blocked"], &[]).await;
    assert_eq!(value(&scrape(metrics).await, series), None);
}

fn admission(cluster: &Cluster, kind: &str) -> kube::Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
    kube::Api::all_with(cluster.client.clone(), &resource)
}

/// An admission policy that refuses any change of a node's desired config.
async fn deny(cluster: &Cluster, node: &str) {
    let key = format!("{}desiredConfig", product::MCO);
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "not-this-one"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["UPDATE"], "resources": ["nodes"]}]},
            "validations": [{
                "expression": format!("object.metadata.name != '{node}' || object.metadata.annotations['{key}'] == oldObject.metadata.annotations['{key}']"),
                "message": "not this one",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "not-this-one"},
        "spec": {"policyName": "not-this-one", "validationActions": ["Deny"]},
    });
    for object in [policy, binding] {
        let kind = text(&object["kind"]);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        admission(cluster, &kind).create(&PostParams::default(), &object).await.unwrap();
    }
    // The API server needs a moment to apply it.
    cluster
        .wait("the policy to be in force", async || {
            let patch = json!({"metadata": {"annotations": {&key: "x"}}});
            let params = kube::api::PatchParams { dry_run: true, ..kube::api::PatchParams::default() };
            cluster
                .api("Node")
                .patch(node, &params, &kube::api::Patch::Merge(patch))
                .await
                .is_err()
                .then_some(())
        })
        .await;
}

async fn allow(cluster: &Cluster) {
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        admission(cluster, kind).delete("not-this-one", &kube::api::DeleteParams::default()).await.unwrap();
    }
}
