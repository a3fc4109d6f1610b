//! Leader election: two controllers started at the same time, a clean hand-over, a crash, a partition, a freeze,
//! patches of a dead leader that arrive under the next one, a standby's caches, and clocks that are a minute wrong.
//! Each time the new leader continues the rollout that it finds, and an observer checks that never more nodes are out
//! of service than the pool allows.
//!
//! This is not a benchmark. The printed times are for people. The limits at which it fails are several times what a
//! lease of 15 s and a check each second need.

use crate::product::controllers::{Controller, all_well, faketime, middle, slow};
use crate::product::observer::Observer;
use crate::product::{Cluster, MCO, defined, note, text};
use lab::{ApiProxy, Call, Fault, FaultProxy, Verdict};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a simulated reboot takes.
const REBOOT: Duration = Duration::from_millis(700);
const NODES: usize = 8;
/// Far longer than any successful hand-over takes.
const FAR_TOO_LONG: Duration = Duration::from_secs(60);
/// The kinds that a standby has read before it can take over.
const NEEDED: [&str; 4] = ["nodes", "machineconfigpools", "machineconfigs", "controllerconfigs"];
/// The namespace and name of the lease.
const LEASE: (&str, &str) = ("openshift-machine-config-operator", "machine-config-controller");

/// The identity of the lease's holder.
async fn holder(cluster: &Cluster) -> String {
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
        kube::Api::namespaced(cluster.client.clone(), LEASE.0);
    let lease = leases.get_opt(LEASE.1).await.ok().flatten();
    lease.and_then(|l| l.spec?.holder_identity).unwrap_or_default()
}

/// A controller with its own connection to the API server.
struct Candidate {
    name: &'static str,
    proxy: FaultProxy,
    kubeconfig: PathBuf,
}

impl Candidate {
    async fn new(cluster: &Cluster, name: &'static str) -> Self {
        let plane = cluster.lab.control_plane();
        let proxy = FaultProxy::start(plane.server().ip(), plane.server()).await.unwrap();
        let kubeconfig = plane.identity_via(name, &["system:masters"], &proxy.url()).unwrap();
        Self { name, proxy, kubeconfig }
    }

    fn start(&self, cluster: &Cluster, env: &[(&str, &str)]) -> Controller {
        Controller::with(cluster, self.name, &self.kubeconfig, &[], env)
    }
}

/// Whether this process holds the lease. Its identity contains its process id.
fn leads(controller: &Controller, holder: &str) -> bool {
    holder.contains(&format!("_{}_", controller.pid()))
}

/// Waits until this controller holds the lease and has begun to update a node; prints how long each took.
async fn takes_over(cluster: &Cluster, what: &str, new: &Controller, observer: &Observer, since: Instant) {
    cluster
        .wait(&format!("{what}: the other one holds the lease"), async || {
            leads(new, &holder(cluster).await).then_some(())
        })
        .await;
    let held = since.elapsed();
    let first = cluster
        .wait(&format!("{what}: the other one acts"), async || {
            observer.starts().into_iter().find(|s| s.at > since + held.mul_f64(0.9)).map(|s| s.at)
        })
        .await;
    let acted = first.saturating_duration_since(since);
    eprintln!(
        "{what}: lease after {:.1} s, first node sent after {:.1} s",
        held.as_secs_f64(),
        acted.as_secs_f64()
    );
    assert!(held < FAR_TOO_LONG, "{what} took {held:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_changes_of_leader() {
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(NODES).simulated().reboot_time(REBOOT)).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let (one, two) = (Candidate::new(&cluster, "one").await, Candidate::new(&cluster, "two").await);

    // Both start at the same time, on a fresh cluster.
    let (first, second) = (one.start(&cluster, &[]), two.start(&cluster, &[]));
    cluster.settled("worker", NODES, &["00-worker"], &[]).await;
    let led = holder(&cluster).await;
    assert!(leads(&first, &led) != leads(&second, &led), "{led}");
    let (leader, standby, away, near) =
        if leads(&first, &led) { (first, second, &one, &two) } else { (second, first, &two, &one) };
    assert!(!standby.log().contains(" leading"), "both lead\n{}", standby.log());
    let rendered = cluster.list("MachineConfig").await.len();
    let observer = Observer::start(&cluster, "worker", 1).await;
    let all: Vec<usize> = (0..NODES).collect();

    let scenario = async {
        // The leader exits cleanly.
        middle(&cluster, "50-clean", "worker", 1).await;
        let asked = Instant::now();
        leader.stop().await;
        eprintln!("clean: ended after {:.1} s", asked.elapsed().as_secs_f64());
        takes_over(&cluster, "clean", &standby, &observer, asked).await;
        // A new standby starts during the rollout and does not take over.
        let newer = away.start(&cluster, &[]);
        cluster.settled("worker", NODES, &["50-clean"], &[]).await;
        assert!(leads(&standby, &holder(&cluster).await));

        // The leader crashes.
        middle(&cluster, "50-crash", "worker", 1).await;
        let killed = Instant::now();
        standby.kill().await;
        takes_over(&cluster, "crash", &newer, &observer, killed).await;
        cluster.settled("worker", NODES, &["50-crash"], &[]).await;

        // The leader is partitioned: it is alive but cut off. When its connection is back, another controller leads.
        let other = near.start(&cluster, &[]);
        middle(&cluster, "50-partition", "worker", 1).await;
        away.proxy.set(Fault::Blackhole);
        takes_over(&cluster, "partition", &other, &observer, Instant::now()).await;
        away.proxy.set(Fault::None);
        cluster.settled("worker", NODES, &["50-partition"], &[]).await;
        assert!(leads(&other, &holder(&cluster).await));

        // The leader is frozen with its caches and with patches in flight, and resumes when another controller leads.
        middle(&cluster, "50-frozen", "worker", 1).await;
        other.signal("STOP").await;
        takes_over(&cluster, "frozen", &newer, &observer, Instant::now()).await;
        other.signal("CONT").await;
        cluster.settled("worker", NODES, &["50-frozen"], &[]).await;
        assert!(leads(&newer, &holder(&cluster).await));
        newer.stop().await;
        other.stop().await;
        assert_eq!(holder(&cluster).await, "", "the lease is not given up");
    };
    observer.guard(scenario).await;
    all_well(&cluster, &all, &["50-clean", "50-crash", "50-partition", "50-frozen"]).await;
    // One MachineConfig and one rendered config for each of the four changes: no leader has created an additional one.
    let made = cluster.list("MachineConfig").await.len().saturating_sub(rendered);
    assert!(made <= 2 * 4, "{made} MachineConfigs for four changes");
    cluster.stop().await;
}

/// The lists that a controller has requested: `(kind, whether only metadata)`, in order.
type Lists = Arc<Mutex<Vec<(String, bool)>>>;

/// Records every list of the objects that a rollout's decisions need.
fn note_lists(call: &Call<'_>, lists: &Lists) {
    let kind = call.path.rsplit('/').next().unwrap_or_default();
    let read = call.method == "GET" && !call.is_watch();
    // OpenShift's `config.openshift.io` has a resource named `nodes` too.
    if read && NEEDED.contains(&kind) && !call.path.contains("config.openshift.io") {
        lists.lock().unwrap().push((kind.to_owned(), call.metadata_only));
    }
}

/// The leader dies with a patch in flight that would update the second node. The pool gets another config, the next
/// leader updates the first node again, and then the old patch arrives: it must be refused. The standby filled its
/// caches long before it led; when it takes over it lists only names and versions again.
#[tokio::test(flavor = "multi_thread")]
async fn late_patches_of_a_dead_leader_are_refused() {
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(4).simulated().reboot_time(Duration::from_secs(3))).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let plane = cluster.lab.control_plane();
    let (one, two) = (ApiProxy::start(plane).await.unwrap(), ApiProxy::start(plane).await.unwrap());
    let kubeconfigs = [one.kubeconfig(plane, "one").unwrap(), two.kubeconfig(plane, "two").unwrap()];
    let leader = Controller::with(&cluster, "one", &kubeconfigs[0], &[], &[]);
    cluster.settled("worker", 4, &["00-worker"], &[]).await;
    let lists = Lists::default();
    let noted = lists.clone();
    two.set(move |call| {
        note_lists(call, &noted);
        Verdict::Pass
    });
    let standby = Controller::with(&cluster, "two", &kubeconfigs[1], &[], &[]);
    cluster
        .wait("the standby's caches", async || {
            let known = lists.lock().unwrap();
            let read = |kind: &&str| known.iter().any(|(k, _)| k == kind);
            NEEDED.iter().all(read).then_some(())
        })
        .await;
    let observer = Observer::start(&cluster, "worker", 1).await;

    // The first node is updated; the patch of any other node is held back.
    cluster.create(slow("50-first", "worker")).await;
    let first = cluster
        .wait("the first node to go", async || observer.starts().into_iter().next().map(|s| s.node))
        .await;
    let own = format!("/api/v1/nodes/{first}");
    one.set(move |call| {
        let other = call.path.starts_with("/api/v1/nodes/") && call.path != own;
        if call.method == "PATCH" && other { Verdict::HoldBack } else { Verdict::Pass }
    });
    let scenario = async {
        cluster.wait("a patch of another node", async || (one.hits() > 0).then_some(())).await;
        let known: Vec<String> = lists.lock().unwrap().drain(..).map(|(kind, _)| kind).collect();
        for kind in NEEDED {
            assert!(known.iter().any(|k| k == kind), "the standby has not read the {kind} yet: {known:?}");
        }
        assert!(!leads(&standby, &holder(&cluster).await));
        let before = cluster.rendered("worker").await;
        cluster.create(slow("51-second", "worker")).await;
        cluster
            .wait("another target", async || (cluster.rendered("worker").await != before).then_some(()))
            .await;
        leader.kill().await;
        let before = observer.starts().len();
        let next = cluster
            .wait("the next leader to send a node", async || observer.starts().get(before).cloned())
            .await;
        assert_eq!(next.node, first, "it sends the first node again");
        assert_eq!(one.deliver_held().await.unwrap(), [409], "a late patch is refused");
        cluster.settled("worker", 4, &["50-first", "51-second"], &[]).await;
    };
    observer.guard(scenario).await;
    let mut read = lists.lock().unwrap().clone();
    read.sort();
    let names = ["controllerconfigs", "machineconfigpools", "machineconfigs", "nodes"];
    let names = names.map(|kind| (kind.to_owned(), true));
    assert_eq!(read, names, "its caches were up to date: it reads only names and versions");
    for node in cluster.list("Node").await {
        let sealed = note(&node, "sealed");
        assert_eq!(sealed.is_empty(), text(&node["metadata"]["name"]) == first, "{sealed:?}");
    }
    all_well(&cluster, &[0, 1, 2, 3], &["50-first", "51-second"]).await;
    standby.stop().await;
    cluster.stop().await;
}

/// A standby's watch of MachineConfigs stops silently; a config is created and rolled out, and the leader dies. The new
/// leader's watch has never shown it that config, but it must not send any node back to an older one.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_with_silent_watches_sends_no_node_back() {
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(3).simulated().reboot_time(REBOOT)).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let plane = cluster.lab.control_plane();
    let two = ApiProxy::start(plane).await.unwrap();
    let kubeconfig = two.kubeconfig(plane, "two").unwrap();
    let leader = Controller::with(&cluster, "one", cluster.lab.kubeconfig(), &[], &[]);
    cluster.settled("worker", 3, &["00-worker"], &[]).await;
    let lists = Lists::default();
    let noted = lists.clone();
    two.set(move |call| {
        note_lists(call, &noted);
        Verdict::Pass
    });
    let standby = Controller::with(&cluster, "two", &kubeconfig, &[], &[]);
    cluster
        .wait("the standby's caches", async || {
            let known = lists.lock().unwrap();
            NEEDED.iter().all(|kind| known.iter().any(|(k, _)| k == kind)).then_some(())
        })
        .await;
    assert!(!leads(&standby, &holder(&cluster).await));
    two.set(|call| {
        let silent = call.is_watch() && call.path.ends_with("/machineconfigs");
        if silent { Verdict::Swallow } else { Verdict::Pass }
    });
    two.cut();
    cluster.wait("the standby watches again, in silence", async || (two.hits() > 0).then_some(())).await;
    cluster.create(slow("50-unheard", "worker")).await;
    cluster.settled("worker", 3, &["50-unheard"], &[]).await;
    let target = cluster.rendered("worker").await;
    let observer = Observer::start(&cluster, "worker", 1).await;
    // The open watch stays silent.
    two.heal();
    leader.kill().await;
    cluster
        .wait("the other one holds the lease", async || {
            leads(&standby, &holder(&cluster).await).then_some(())
        })
        .await;
    // The next change is rendered with everything that the watch had missed.
    cluster.create(slow("51-next", "worker")).await;
    cluster.settled("worker", 3, &["50-unheard", "51-next"], &[]).await;
    let last = cluster.rendered("worker").await;
    let sent: Vec<String> = observer.starts().into_iter().map(|s| s.config).collect();
    assert!(sent.iter().all(|config| *config == last), "sent to {sent:?}, from {target} to {last}");
    assert_eq!(sent.len(), 3, "{sent:?}");
    // On a machine so slow that the connection was dropped in the meantime, there is nothing to catch up with.
    let caught_up = standby.log().contains("the cache is behind the API server");
    eprintln!("the watch was silent to the end: {caught_up}");
    standby.stop().await;
    cluster.stop().await;
}

/// Two controllers whose clocks are two minutes apart, each a minute off everyone else's; each leads once.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_works_with_controller_clocks_a_minute_off() {
    let Some(library) = faketime() else { return };
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(6).simulated().reboot_time(REBOOT)).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": 2}})).await;
    let (one, two) = (Candidate::new(&cluster, "fast").await, Candidate::new(&cluster, "slow").await);
    let clock = |offset: &'static str| {
        [
            ("LD_PRELOAD".to_owned(), library.clone()),
            ("FAKETIME".to_owned(), offset.to_owned()),
            // Waiting times do not depend on the clock.
            ("FAKETIME_DONT_FAKE_MONOTONIC".to_owned(), "1".to_owned()),
        ]
    };
    let start = |candidate: &Candidate, offset: &'static str| {
        let env = clock(offset);
        let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        candidate.start(&cluster, &env)
    };
    let fast = start(&one, "+60s");
    cluster.settled("worker", 6, &["00-worker"], &[]).await;
    // Check that the clock is really wrong.
    let pool = cluster.get("MachineConfigPool", "worker").await;
    let said: Vec<jiff::Timestamp> = conditions(&pool).collect();
    let now = jiff::Timestamp::now();
    assert!(said.iter().any(|t| *t > now), "the clock is not shifted: {said:?}, now {now}");
    let behind = start(&two, "-60s");
    let observer = Observer::start(&cluster, "worker", 2).await;
    let scenario = async {
        middle(&cluster, "50-fast", "worker", 1).await;
        assert!(leads(&fast, &holder(&cluster).await), "a lease is taken away by the clock");
        let killed = Instant::now();
        fast.kill().await;
        // It does not take over before the dead leader's lease has expired, whatever its timestamps say.
        takes_over(&cluster, "clocks", &behind, &observer, killed).await;
        cluster.settled("worker", 6, &["50-fast"], &[]).await;
        middle(&cluster, "50-slow", "worker", 1).await;
        let other = start(&one, "+60s");
        cluster.settled("worker", 6, &["50-slow"], &[]).await;
        assert!(leads(&behind, &holder(&cluster).await), "a lease is taken away by the clock");
        other.stop().await;
        behind.stop().await;
    };
    observer.guard(scenario).await;
    all_well(&cluster, &[0, 1, 2, 3, 4, 5], &["50-fast", "50-slow"]).await;
    for node in cluster.list("Node").await {
        let waits = &node["metadata"]["annotations"][format!("{MCO}drainWaitsFor")];
        assert!(waits.is_null() || waits == "", "{waits}");
    }
    cluster.stop().await;
}

fn conditions(pool: &Value) -> impl Iterator<Item = jiff::Timestamp> {
    let all = pool["status"]["conditions"].as_array().into_iter().flatten();
    all.filter_map(|c| text(&c["lastTransitionTime"]).parse().ok())
}
