//! Three control-plane nodes with stacked etcd and three workers: a change goes through all of them with real drains and
//! reboots while the cluster is used, and at the end the hosts get their own files back in the same way.

use super::installed_cluster::{InstalledCluster, NAMESPACE};
use super::watchers::{Quorum, Workload, Writer};
use lab::RealNode;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time limit for an election in etcd: it takes seconds, and longer on a busy computer. Without a quorum there
/// would be no leader until a node has booted and started its pods.
const ELECTION: Duration = Duration::from_secs(20);
/// Writes continue through another API server: the load balancer notices within a second that one is down, and then
/// etcd may need an election.
const WITHOUT_WRITES: Duration = Duration::from_secs(40);

/// The pods of a Deployment by UID, each with its node.
async fn pods_of(site: &InstalledCluster, deployment: &str) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = site.ours("pods").await;
    pods.iter()
        .filter(|pod| pod["metadata"]["labels"]["k8s-app"] == deployment)
        .map(|pod| (text(&pod["metadata"]["uid"]), text(&pod["spec"]["nodeName"])))
        .collect()
}

/// How often the lease of a part has changed its holder.
async fn transitions(site: &InstalledCluster, part: &str) -> u64 {
    let args = ["-n", NAMESPACE, "get", "lease", part, "-o", "json"];
    let lease: Value = serde_json::from_str(&site.read(&args).await).unwrap();
    lease["spec"]["leaseTransitions"].as_u64().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_rolls_through_three_control_planes_and_three_workers_under_load() {
    let Some(site) = InstalledCluster::start(3, 3).await else { return };
    let quorum = Quorum::start(site.cluster.etcd_members());
    let writer = Writer::start(site.client.clone()).await;
    site.install().await;

    let workload = Workload::start(site.client.clone()).await;
    let mut before = BTreeMap::new();
    for part in ["machine-config-controller", "machine-config-operator"] {
        before.insert(part, (pods_of(&site, part).await, transitions(&site, part).await));
    }
    assert!(before["machine-config-controller"].0.len() >= 2, "{before:?}");

    let start = Instant::now();
    let names = site.apply_the_guides_change(&["master", "worker"]).await;
    let masters: Vec<&RealNode> = site.cluster.control_planes().iter().collect();
    let workers: Vec<&RealNode> = site.cluster.workers().iter().collect();
    site.changed("master", &masters, &names[0]).await;
    site.changed("worker", &workers, &names[1]).await;
    site.until_updated().await;
    eprintln!("the change went through six nodes in {:.0} s", start.elapsed().as_secs_f64());

    // Every node has rebooted, including those of the leaders, so other pods have taken over.
    for (part, (old, handed)) in before {
        site.wait(&format!("{part} runs in other pods"), async || {
            let now = pods_of(&site, part).await;
            (now.len() >= old.len() && now.keys().all(|uid| !old.contains_key(uid))).then_some(())
        })
        .await;
        assert!(transitions(&site, part).await > handed, "the lease of {part} has never changed hands");
    }
    site.cluster.wait_ready(Duration::from_secs(240)).await.unwrap();
    site.no_panic().await;

    // All hosts get their own files back, with the same reboots, under the same observers.
    site.uninstall(&[masters, workers].concat()).await;
    workload.finish();
    let without_leader = quorum.finish();
    assert!(without_leader < ELECTION, "etcd had no leader for {without_leader:?}");
    let without_writes = writer.finish().await;
    assert!(without_writes < WITHOUT_WRITES, "no write was acknowledged for {without_writes:?}");
    site.stop().await;
}
