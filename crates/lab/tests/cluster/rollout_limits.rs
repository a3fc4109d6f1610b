//! The limits that a RolloutPolicy sets, against a real API server and controller: gates on node conditions, on workloads and
//! by Jobs, each first failing and then passing; nodes of one zone; a deadline for nodes; nodes that are out of service for
//! other reasons; and pools that would take a change that another pool has rejected.
//!
//! Not here: HTTP gates and gates that cannot be read (`rollout_policy`), Prometheus and real workloads (`node/workload.rs`).

use crate::product::policies::{progress, proved};
use crate::product::{Cluster, condition, is_done, machine_config, note, one_file, text, with_controller};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const ZONE: &str = "topology.kubernetes.io/zone";
/// The nodes of the first test, two in each zone.
const NODES: usize = 6;

fn policy(spec: &Value) -> Value {
    let mut policy = json!({
        "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "workers"},
        "spec": {"pools": {"names": ["worker"]}},
    });
    policy["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    policy
}

/// Waits until both the policy's status and the pool's condition give this reason for the hold.
async fn held(cluster: &Cluster, words: &str) {
    cluster
        .wait(&format!("policy and pool to say {words:?}"), async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            let said = condition(&pool, "Updating").unwrap_or_default();
            (said.contains(words) && text(&progress(cluster).await["held"]).contains(words)).then_some(())
        })
        .await;
}

/// The nodes whose desired config is another one than this.
async fn sent(cluster: &Cluster, before: &str) -> BTreeSet<String> {
    let nodes = cluster.list("Node").await;
    let sent = nodes.iter().filter(|n| note(n, "desiredConfig") != before);
    sent.map(|n| text(&n["metadata"]["name"])).collect()
}

async fn status(cluster: &Cluster, kind: &str, name: &str, status: Value) {
    let patch = json!({ "status": status }).to_string();
    let said = cluster
        .kubectl(&["patch", kind, name, "--subresource=status", "--type=strategic", "-p", &patch])
        .await;
    assert_eq!(said.code, 0, "{said:?}");
}

/// Sets a node's condition `Healthy`.
async fn healthy(cluster: &Cluster, node: &str, is: &str) {
    status(cluster, "node", node, json!({"conditions": [{"type": "Healthy", "status": is}]})).await;
}

/// Sets how many of the shop's two pods are available.
async fn shop(cluster: &Cluster, available: u32) {
    let all = json!({"replicas": 2, "updatedReplicas": 2, "readyReplicas": available, "availableReplicas": available});
    status(cluster, "deployment", "shop", all).await;
}

/// Objects in the namespace `default`.
fn objects(cluster: &Cluster, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::namespaced_with(cluster.client.clone(), "default", &resource)
}

async fn jobs(cluster: &Cluster) -> Vec<Value> {
    let all = objects(cluster, "batch", "Job").list(&ListParams::default()).await.unwrap();
    all.items.into_iter().map(|job| json!(job)).collect()
}

/// The Jobs that have not ended, by node.
async fn open_jobs(cluster: &Cluster) -> BTreeMap<String, String> {
    let jobs = jobs(cluster).await;
    let open = jobs.iter().filter(|job| job["status"]["conditions"].as_array().is_none_or(Vec::is_empty));
    open.map(|job| (text(&job["spec"]["template"]["spec"]["nodeName"]), text(&job["metadata"]["name"])))
        .collect()
}

/// Ends a Job as the Job controller would.
async fn end(cluster: &Cluster, job: &str, well: bool) {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let types = if well { ["SuccessCriteriaMet", "Complete"] } else { ["FailureTarget", "Failed"] };
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "message": "by the test", "reason": "Test",
            "lastProbeTime": now, "lastTransitionTime": now})
    };
    let mut all = json!({"startTime": now, "conditions": types.map(condition)});
    if well {
        all["completionTime"] = json!(now);
        all["succeeded"] = json!(1);
    } else {
        all["failed"] = json!(1);
    }
    status(cluster, "job", job, all).await;
}

async fn make_workload(cluster: &Cluster) {
    let (labels, containers) = (json!({"app": "shop"}), json!([{"name": "a", "image": "a"}]));
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "shop", "namespace": "default", "labels": labels},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}},
    });
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "smoke", "namespace": "default"},
        "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"backoffLimit": 0, "template": {
            "spec": {"restartPolicy": "Never", "containers": containers}}}}},
    });
    for (group, kind, object) in [("apps", "Deployment", deployment), ("batch", "CronJob", cron_job)] {
        let object = serde_json::from_value(object).unwrap();
        objects(cluster, group, kind).create(&PostParams::default(), &object).await.unwrap();
    }
    shop(cluster, 2).await;
}

/// Each kind of gate stops the second wave while it fails, and lets it go when it passes; gates by Jobs check the first wave
/// too. Then the wave goes, never with two nodes of one zone at a time.
#[tokio::test(flavor = "multi_thread")]
async fn each_gate_stops_a_wave_until_it_passes_and_no_zone_loses_two_nodes() {
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(NODES).simulated().reboot_time(Duration::from_millis(700));
    let cluster = Cluster::start(builder).await;
    let free = json!({"spec": {"maxUnavailable": "100%"}});
    cluster.patch("MachineConfigPool", "worker", free).await;
    cluster.settled("worker", NODES, &["00-worker"], &[]).await;
    let before = cluster.rendered("worker").await;
    let mut names: Vec<String> =
        cluster.list("Node").await.iter().map(|n| text(&n["metadata"]["name"])).collect();
    names.sort();
    for (i, name) in names.iter().enumerate() {
        let zone = ["a", "b", "c"][i % 3];
        cluster.patch("Node", name, json!({"metadata": {"labels": {ZONE: zone}}})).await;
        healthy(&cluster, name, "True").await;
    }
    make_workload(&cluster).await;
    let short = |more: Value| {
        let mut gate = json!({"interval": "1s", "timeout": "1s", "failureLimit": 1});
        gate.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        gate
    };
    cluster
        .create(policy(&json!({
            "waves": [{"name": "canary", "size": 1}, {"name": "rest"}],
            "zones": {"topologyKey": ZONE, "maxUnavailable": 1},
            "gates": [
                short(json!({"name": "healthy", "when": ["Always"], "nodeCondition": {"type": "Healthy"}})),
                short(json!({"name": "shop", "when": ["Always"], "workloads": {"selector": {"matchLabels": {"app": "shop"}}}})),
                // The Job's deadline is longer than the test.
                {"name": "smoke", "when": ["BeforeWave"], "interval": "1s", "timeout": "1s", "failureLimit": 1,
                    "job": {"namespace": "default", "cronJob": "smoke"}},
            ],
        })))
        .await;
    proved(&cluster, &before).await;

    cluster.create(machine_config("50-limits", "worker", one_file("/etc/limits", "x"))).await;
    let canary = cluster
        .wait("the Job on the canary", async || {
            let open = open_jobs(&cluster).await;
            let nodes: BTreeSet<String> = open.keys().cloned().collect();
            (!nodes.is_empty()).then_some(nodes)
        })
        .await;
    assert_eq!((canary.len(), &sent(&cluster, &before).await), (1, &canary), "one node and its Job");
    let entry = progress(&cluster).await["baseline"].as_array().unwrap().clone();
    let of_shop = entry.iter().find(|b| b["gate"] == "shop").unwrap();
    assert_eq!(
        of_shop["workloads"],
        json!(["Deployment default/shop"]),
        "the next leader knows what was there"
    );

    // Another node becomes unhealthy.
    let other = names.iter().find(|n| !canary.contains(*n)).unwrap();
    healthy(&cluster, other, "False").await;
    held(&cluster, &format!("gate healthy fails: Healthy is not True on {other}")).await;
    healthy(&cluster, other, "True").await;
    // The Job fails. When it is deleted, it is created again.
    for job in open_jobs(&cluster).await.into_values() {
        end(&cluster, &job, false).await;
    }
    held(&cluster, "gate smoke fails: the Job failed").await;
    shop(&cluster, 1).await;
    held(&cluster, "fewer pods are available than before: Deployment default/shop (1 available)").await;
    assert_eq!(sent(&cluster, &before).await, canary, "no further node goes");
    // There is no garbage collector here, so dependents must not be waited for.
    let at_once = DeleteParams::background();
    for job in jobs(&cluster).await {
        let name = text(&job["metadata"]["name"]);
        objects(&cluster, "batch", "Job").delete(&name, &at_once).await.unwrap();
    }
    cluster
        .wait("another Job on the canary", async || {
            let job = open_jobs(&cluster).await.into_values().next()?;
            end(&cluster, &job, true).await;
            Some(())
        })
        .await;
    assert_eq!(sent(&cluster, &before).await, canary, "the shop still holds it");
    shop(&cluster, 2).await;

    // The rest goes. Each check uses one list of all nodes.
    let zones: BTreeMap<String, &str> =
        names.iter().enumerate().map(|(i, n)| (n.clone(), ["a", "b", "c"][i % 3])).collect();
    let new = cluster
        .watch_until("all nodes to be done, with never two of a zone on their way", async || {
            let nodes = cluster.list("Node").await;
            let away = nodes.iter().filter(|n| !is_done(n) || n["spec"]["unschedulable"] == true);
            let mut out: BTreeMap<&str, usize> = BTreeMap::new();
            away.for_each(|n| *out.entry(zones[&text(&n["metadata"]["name"])]).or_default() += 1);
            assert!(out.values().all(|n| *n <= 1), "{out:?}");
            for job in open_jobs(&cluster).await.into_values() {
                end(&cluster, &job, true).await;
            }
            let new = cluster.rendered("worker").await;
            let all = nodes.iter().filter(|n| is_done(n) && note(n, "currentConfig") == new).count();
            (all == NODES).then_some(new)
        })
        .await;
    cluster
        .wait("the config to count as proved, once the last Jobs have ended", async || {
            for job in open_jobs(&cluster).await.into_values() {
                end(&cluster, &job, true).await;
            }
            (progress(&cluster).await["proved"] == json!(new)).then_some(())
        })
        .await;
    let jobs = jobs(&cluster).await;
    let on: BTreeSet<String> =
        jobs.iter().map(|j| text(&j["spec"]["template"]["spec"]["nodeName"])).collect();
    assert_eq!((on.len(), jobs.len()), (NODES, NODES), "one Job on each node");
    cluster.no_panic();
    cluster.stop().await;
}

/// A node that is out of service for a reason of its own takes no slot. A node that is past its deadline has its config
/// rejected, and goes back. A pool that would take the same MachineConfig waits for a person.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_late_has_its_config_rejected_and_other_pools_wait() {
    let Some(builder) = with_controller() else { return };
    // Longer than the deadline on any machine.
    let builder = builder.nodes(4).simulated().reboot_time(Duration::from_secs(4));
    let cluster = Cluster::start(builder).await;
    let free = json!({"spec": {"maxUnavailable": "100%"}});
    cluster.patch("MachineConfigPool", "worker", free).await;
    cluster.settled("worker", 4, &["00-worker"], &[]).await;
    cluster.add_pool("infra", &[cluster.lab.node(3).name()]).await;
    cluster.settled("infra", 1, &["00-worker"], &[]).await;
    let before = cluster.settled("worker", 3, &["00-worker"], &[]).await;
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": 1}})).await;
    let waves = json!({
        "waves": [{"name": "canary", "size": 2}, {"name": "rest"}],
        "nodeDeadline": "1s", "unrelatedUnavailable": 1, "onFailure": "Rollback",
    });
    cluster.create(policy(&waves)).await;
    proved(&cluster, &before).await;
    // It would otherwise take the only slot.
    let sick = cluster.lab.node(0).name().to_owned();
    let kubelet = cluster.lab.kubelet(0).unwrap();
    kubelet.set_down("a disk is broken");
    kubelet.settled().await.unwrap();
    // This pool comes later.
    cluster.patch("MachineConfigPool", "infra", json!({"spec": {"paused": true}})).await;
    cluster.create(machine_config("50-late", "worker", one_file("/etc/late", "x"))).await;
    let rejected = cluster
        .wait("the config to be rejected", async || {
            let rejected = progress(&cluster).await["rejected"][0].clone();
            rejected.is_object().then_some(rejected)
        })
        .await;
    assert!(text(&rejected["reason"]).contains("it has not reached the config within 1s"), "{rejected}");
    cluster
        .wait("the node to be back", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            let nodes = cluster.list("Node").await;
            let back = nodes.iter().filter(|n| text(&n["metadata"]["name"]) != sick);
            let all =
                back.into_iter().all(|n| is_done(n) && note(n, "currentConfig") != text(&rejected["config"]));
            (all && condition(&pool, "Degraded")?.contains("is rejected")).then_some(())
        })
        .await;

    let new = cluster
        .wait("pool infra to have the change", async || {
            let pool = cluster.get("MachineConfigPool", "infra").await;
            let sources = pool["spec"]["configuration"]["source"].as_array()?.clone();
            let has = sources.iter().any(|s| s["name"] == "50-late");
            has.then(|| text(&pool["spec"]["configuration"]["name"]))
        })
        .await;
    cluster.patch("MachineConfigPool", "infra", json!({"spec": {"paused": false}})).await;
    cluster.complains("infra", "Updating", &["pool worker has rejected", "50-late"]).await;
    let node = cluster.get("Node", cluster.lab.node(3).name()).await;
    assert_ne!(note(&node, "desiredConfig"), new);
    let said = cluster.mco(&["approve", "infra"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(cluster.settled("infra", 1, &["50-late"], &[]).await, new);
    let nodes = cluster.list("Node").await;
    let hit = nodes.iter().filter(|n| note(n, "currentConfig") == text(&rejected["config"])).count();
    assert_eq!(hit, 0, "nobody is in the rejected config");
    cluster.no_panic();
    cluster.stop().await;
}
