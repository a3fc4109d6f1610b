//! Rollouts while the API server fails: it is unreachable, requests and watches fail, answers are lost, writes to one node are
//! never answered. Each rollout ends in the right state, and an independent observer checks that never more nodes are out of
//! service than the pool allows.
//!
//! Not here: faults of the controller itself (`leader`, `outages`).

use crate::product::controllers::{Controller, all_well, middle, slow};
use crate::product::observer::Observer;
use crate::product::{Cluster, defined, note};
use lab::{ApiProxy, Call, Verdict};
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a simulated reboot takes.
const REBOOT: Duration = Duration::from_millis(300);
/// How long the API server is unreachable.
const OUTAGE: Duration = Duration::from_secs(120);

/// An observer with a lower limit than the pool's must report a violation. Otherwise nothing would prove that observers
/// can fail at all.
async fn the_observer_sees_one_too_many(cluster: &Cluster) {
    let strict = Observer::start(cluster, "worker", 1).await;
    cluster.create(slow("50-strict", "worker")).await;
    cluster.settled("worker", 6, &["50-strict"], &[]).await;
    let said = strict.violation().unwrap_or_default();
    assert!(said.contains("only 1 may be"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_two_minutes_without_the_api_server() {
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(6).simulated().reboot_time(REBOOT)).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": 2}})).await;
    let mut controller = Controller::alone(&cluster, cluster.lab.kubeconfig());
    cluster.settled("worker", 6, &["00-worker"], &[]).await;
    let observer = Observer::start(&cluster, "worker", 2).await;
    let rollout = async {
        let moving = middle(&cluster, "50-outage", "worker", 1).await;
        cluster.lab.control_plane().stop_api_server().await;
        eprintln!("the API server goes while {moving:?} are on their way");
        tokio::time::sleep(OUTAGE).await;
        controller.lives();
        cluster.lab.control_plane().start_api_server().await.unwrap();
        let back = Instant::now();
        cluster.settled("worker", 6, &["50-outage"], &[]).await;
        eprintln!("through {:.1} s after the API server came back", back.elapsed().as_secs_f64());
    };
    observer.guard(rollout).await;
    all_well(&cluster, &[0, 1, 2, 3, 4, 5], &["50-outage"]).await;
    controller.stop().await;
    cluster.stop().await;
}

/// Every third of the requests that the filter selects.
fn every_third(
    filter: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static,
    verdict: Verdict,
) -> impl Fn(&Call<'_>) -> Verdict + Send + Sync + 'static {
    let count = AtomicU64::new(0);
    move |call| {
        let hit = filter(call) && count.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        if hit { verdict } else { Verdict::Pass }
    }
}

/// One rollout for each fault. The fault lasts from beginning to end, for the controller and the daemons.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_failing_requests_and_watches() {
    let Some(builder) = defined() else { return };
    let builder = builder.nodes(6).simulated().reboot_time(REBOOT).daemon_faults(true);
    let cluster = Cluster::start(builder).await;
    let daemons = cluster.lab.daemon_faults().unwrap();
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": 2}})).await;
    let proxy = ApiProxy::start(cluster.lab.control_plane()).await.unwrap();
    let kubeconfig = proxy.kubeconfig(cluster.lab.control_plane(), "controller").unwrap();
    let mut controller = Controller::alone(&cluster, &kubeconfig);
    cluster.settled("worker", 6, &["00-worker"], &[]).await;
    let observer = Observer::start(&cluster, "worker", 2).await;
    let mut all: Vec<&'static str> = vec![];
    let write = |call: &Call<'_>| call.is_write();
    let step = async |name: &'static str, fault: &dyn Fn(), tick: &dyn Fn()| {
        fault();
        let start = Instant::now();
        cluster.create(slow(name, "worker")).await;
        let ticking = async {
            loop {
                tokio::time::sleep(Duration::from_millis(250)).await;
                tick();
            }
        };
        let with = [name];
        let settled = observer.guard(cluster.settled("worker", 6, &with, &[]));
        tokio::select! {
            () = ticking => {}
            _ = settled => {}
        }
        let hits = (proxy.hits(), daemons.hits());
        proxy.heal();
        daemons.heal();
        let took = start.elapsed().as_secs_f64();
        eprintln!(
            "{name}: through in {took:.1} s, {} requests of the controller hit, {} of daemons",
            hits.0, hits.1
        );
        hits
    };

    all.push("50-cut");
    let cut = || {
        proxy.cut();
        daemons.cut();
    };
    step("50-cut", &|| (), &cut).await;

    // Open watches are answered with 410, and so is every third new one; then the continuations of lists, too.
    all.push("50-gone");
    let gone = || {
        let again = |call: &Call<'_>| call.is_watch() || call.query.contains("continue=");
        proxy.set(every_third(again, Verdict::Refuse(410, "Expired")));
    };
    assert!(step("50-gone", &gone, &|| proxy.expire_watches()).await.0 > 0);

    for (name, verdict) in [
        ("50-conflict", Verdict::Refuse(409, "Conflict")),
        ("50-lost", Verdict::LoseAnswer),
        ("50-busy", Verdict::Refuse(429, "TooManyRequests")),
        ("50-fault", Verdict::Refuse(500, "InternalError")),
    ] {
        all.push(name);
        let both = || {
            proxy.set(every_third(write, verdict));
            daemons.set(every_third(write, verdict));
        };
        let hits = step(name, &both, &|| ()).await;
        assert!(hits.0 > 0 && hits.1 > 0, "{name} hit nothing");
    }

    // The caches are out of date: every watch is cut again and again, and new ones start late. Writes are quick.
    all.push("50-stale");
    let late = || {
        proxy.set(
            |call| if call.is_write() { Verdict::Pass } else { Verdict::Late(Duration::from_millis(900)) },
        );
        proxy.cut();
    };
    let ticks = AtomicU64::new(0);
    let cut = || {
        if ticks.fetch_add(1, Ordering::Relaxed) % 8 == 7 {
            proxy.cut();
        }
    };
    assert!(step("50-stale", &late, &cut).await.0 > 0);

    controller.lives();
    all_well(&cluster, &[0, 1, 2, 3, 4, 5], &all).await;
    the_observer_sees_one_too_many(&cluster).await;
    controller.stop().await;
    cluster.stop().await;
}

/// Writes to one node are never answered, as when an admission webhook hangs. Its pool reports it, and the other nodes
/// continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_unanswered_patches_blocks_no_other_pool() {
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(4).simulated().reboot_time(REBOOT)).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let proxy = ApiProxy::start(cluster.lab.control_plane()).await.unwrap();
    let kubeconfig = proxy.kubeconfig(cluster.lab.control_plane(), "controller").unwrap();
    let mut controller = Controller::alone(&cluster, &kubeconfig);
    cluster.settled("worker", 4, &["00-worker"], &[]).await;
    cluster.add_pool("hung", &["worker-0", "worker-1"]).await;
    cluster.settled("hung", 2, &["00-worker"], &[]).await;
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    let observer = Observer::start(&cluster, "hung", 1).await;
    proxy.set(|call| {
        let hangs = call.method == "PATCH" && call.path == "/api/v1/nodes/worker-0";
        if hangs { Verdict::Swallow } else { Verdict::Pass }
    });
    let scenario = async {
        cluster.create(slow("50-hung", "hung")).await;
        cluster.create(slow("50-free", "worker")).await;
        // Pool `hung` also selects the MachineConfigs for workers.
        cluster.complains("hung", "Updating", &["does not answer", "worker-0"]).await;
        cluster.settled("worker", 2, &["50-free"], &[]).await;
        let target = cluster.rendered("hung").await;
        for name in ["worker-0", "worker-1"] {
            let node = cluster.get("Node", name).await;
            assert_ne!(note(&node, "desiredConfig"), target, "{name}: the slot is kept");
        }
        assert!(proxy.hits() > 0);
        proxy.heal();
        proxy.cut();
        cluster.settled("hung", 2, &["50-free", "50-hung"], &[]).await;
    };
    observer.guard(scenario).await;
    controller.lives();
    all_well(&cluster, &[0, 1, 2, 3], &["50-free"]).await;
    controller.stop().await;
    cluster.stop().await;
}
