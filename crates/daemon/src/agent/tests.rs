//! Tests of what the agent does between its steps.
//!
//! Not here: tests of the decisions (`protocol::tests`), or of agents against an API server (in the `lab` crate).

mod node_writes;

use super::*;
use crate::cluster::report::Reporting;
use crate::metrics::Metrics;
use crate::protocol::EMPTY_CONFIG;
use api::names::state;
use api::v1::{MachineConfig, MachineConfigSpec};
use host::fault::{Fault, Faults, NoFaults, Point};
use host::{FakeOs, FakeSystemd, Host, Options, OsBackend, Root, Unsupported};
use std::time::Duration;
use tokio::sync::watch;

/// An agent on this folder, without an API server.
fn agent(dir: &std::path::Path, period: Duration) -> (Agent, watch::Sender<Option<NodeFacts>>) {
    agent_with(dir, period, Arc::new(NoFaults))
}

fn agent_with(
    dir: &std::path::Path,
    period: Duration,
    faults: Arc<dyn Faults>,
) -> (Agent, watch::Sender<Option<NodeFacts>>) {
    agent_of(dir, period, faults, Box::new(Unsupported::default()))
}

fn agent_of(
    dir: &std::path::Path,
    period: Duration,
    faults: Arc<dyn Faults>,
    os: Box<dyn OsBackend>,
) -> (Agent, watch::Sender<Option<NodeFacts>>) {
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    agent_of_server(dir, period, faults, os, client)
}

fn agent_of_server(
    dir: &std::path::Path,
    period: Duration,
    faults: Arc<dyn Faults>,
    os: Box<dyn OsBackend>,
    client: kube::Client,
) -> (Agent, watch::Sender<Option<NodeFacts>>) {
    let root = Root::open_with(dir, Options { sync: false, owners: false }, faults).unwrap();
    let systemd = Box::new(FakeSystemd::new(&root));
    let machine = Arc::new(Machine::new(Host::new(root, systemd, os)));
    let settings = Settings {
        reporting: Reporting { events: true, progress: false },
        watch_disk: false,
        drift_period: Some(period),
        trouble: None,
        metrics: Metrics::default(),
        api_server: None,
    };
    let (sender, updates) = watch::channel(None);
    let agent =
        Agent::new(settings, Cluster::new(client, "worker-0"), machine, updates, CancellationToken::new());
    (agent, sender)
}

#[tokio::test]
async fn an_agent_in_the_empty_config_checks_once_per_period() {
    let dir = tempfile::tempdir().unwrap();
    let period = Duration::from_secs(10);
    let (mut agent, _feed) = agent(dir.path(), period);
    agent.view.disk = agent.machine.facts().unwrap();
    agent.view.node = NodeFacts {
        seen: true,
        current: EMPTY_CONFIG.into(),
        desired: EMPTY_CONFIG.into(),
        state: state::DONE.into(),
        ..NodeFacts::default()
    };
    agent.checked_at = Instant::now().checked_sub(period).unwrap();
    assert!(matches!(agent.idle(), Next::Step), "a comparison is due");
    assert_eq!(step(&agent.view), Action::Idle, "there is nothing to compare");
    assert!(matches!(agent.idle(), Next::Wait(Some(_))), "it has compared, and decides again at once");
}

#[tokio::test]
async fn a_control_plane_host_is_recognised_before_its_node_is_labelled() {
    let named = "/srv/pods/etcd-pod.yaml";
    let kubeadm = "/etc/kubernetes/manifests/kube-apiserver.yaml";
    for path in crate::protocol::join::SERVER_DATA.into_iter().chain([named, kubeadm]) {
        let dir = tempfile::tempdir().unwrap();
        let (agent, _feed) = agent(dir.path(), Duration::from_secs(10));
        let settings = dir.path().join("var/lib/kubelet/config.yaml");
        std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
        std::fs::write(settings, "staticPodPath: /srv/pods\n").unwrap();
        assert_eq!(agent.machine.control_plane().unwrap(), None, "nothing is there yet");
        let at = dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        assert_eq!(agent.machine.control_plane().unwrap(), None, "a worker has such folders, too");
        let made = if path.ends_with("yaml") { std::fs::write(&at, "x") } else { std::fs::create_dir(&at) };
        made.unwrap();
        assert_eq!(agent.machine.control_plane().unwrap().as_deref(), Some(path));
        let worker = |assumed| crate::protocol::join::Membership::Pool {
            pool: "worker".into(),
            config: "rendered-worker-1".into(),
            assumed,
        };
        let waits = agent.why_not_yet(&worker(true)).await.unwrap();
        assert!(waits.is_some_and(|why| why.contains(path)));
        assert_eq!(agent.why_not_yet(&worker(false)).await.unwrap(), None, "its label says what it is");
    }
}

/// A disk on which the second file cannot be written and the first one cannot be removed, for a while.
#[derive(Debug, Default)]
struct BrokenDisk(std::sync::atomic::AtomicBool);

impl BrokenDisk {
    fn set(&self, broken: bool) {
        self.0.store(broken, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Faults for BrokenDisk {
    fn at(&self, p: Point<'_>) -> Result<(), Fault> {
        let struck = [("rename into place", "/etc/two"), ("remove", "/etc/one")].contains(&(p.call, p.on));
        if struck && p.before && self.0.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(Fault::Fail(std::io::ErrorKind::PermissionDenied.into()));
        }
        Ok(())
    }
}

fn files(name: &str, paths: &[&str]) -> MachineConfig {
    let file = |path: &&str| serde_json::json!({"path": path, "contents": {"source": "data:,x"}});
    let files: Vec<_> = paths.iter().map(file).collect();
    let config = serde_json::json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    MachineConfig::new(name, MachineConfigSpec { config: Some(config), ..Default::default() })
}

#[tokio::test]
async fn a_host_with_an_unfinished_undo_is_not_done_when_its_config_is_reverted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
    let disk = Arc::new(BrokenDisk::default());
    let (mut agent, _feed) = agent_with(dir.path(), Duration::from_secs(10), disk.clone());
    let (empty, a) = (files(EMPTY_CONFIG, &[]), files("a", &["/etc/zero"]));
    let b = files("b", &["/etc/one", "/etc/two", "/etc/zero"]);
    let policy = host::DisruptionPolicy::default();
    let (_, work) = agent.machine.prepare(&empty, &a, &policy).unwrap();
    agent.machine.apply(work, &Default::default(), &Default::default()).unwrap();
    agent.machine.host().reboot_done().unwrap();
    let node = |desired: &str| NodeFacts {
        seen: true,
        current: "a".into(),
        desired: desired.into(),
        state: state::WORKING.into(),
        ..NodeFacts::default()
    };
    agent.view.node = node("b");
    agent.view.disk = agent.machine.facts().unwrap();
    agent.view.checked = true;
    let (cost, work) = agent.machine.prepare(&a, &b, &policy).unwrap();
    let pair = ConfigPair { from: "a".into(), to: "b".into() };
    agent.work = Some(work);
    agent.view.phase = Phase::Prepared { pair: pair.clone(), cost, to_fetch: false, asked: None };
    disk.set(true);
    agent.apply(pair).await;
    let Phase::Failed(failure) = &agent.view.phase else { panic!("{:?}", agent.view.phase) };
    assert!(failure.reason.contains("the undo is not complete"), "{}", failure.reason);
    assert!(dir.path().join("etc/one").exists());
    // The desired config goes back to the old one.
    agent.view.node = node("a");
    let next = step(&agent.view);
    let done = |action: &Action| match action {
        Action::Idle => true,
        Action::Write { changes, .. } => changes.get(annotation::STATE).is_some_and(|s| s == state::DONE),
        _ => false,
    };
    assert!(!done(&next), "a host between two configs is called done: {next:?}");
    assert_eq!(next, Action::Recover);
    // As long as the undo fails, the node is degraded, with the path in the reason.
    agent.recover().await;
    let Action::Write { changes, .. } = step(&agent.view) else { panic!("{:?}", step(&agent.view)) };
    assert_eq!(changes[annotation::STATE], state::DEGRADED);
    assert!(changes[annotation::REASON].contains("/etc/one"), "{changes:?}");
    disk.set(false);
    agent.recover().await;
    assert!(!dir.path().join("etc/one").exists());
    assert_eq!(step(&agent.view), Action::Check { config: "a".into(), record: false });
    agent.view.checked = true;
    assert!(done(&step(&agent.view)));
}

#[tokio::test]
async fn a_drain_requested_again_before_a_reboot_has_a_time_limit_and_clears_the_reboot_record() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
    let (mut agent, _feed) = agent(dir.path(), Duration::from_secs(10));
    let (empty, a) = (files(EMPTY_CONFIG, &[]), files("a", &["/etc/one"]));
    let (cost, work) = agent.machine.prepare(&empty, &a, &host::DisruptionPolicy::default()).unwrap();
    assert!(cost.reboot);
    agent.machine.apply(work, &Default::default(), &Default::default()).unwrap();
    let recorded = |agent: &Agent| match agent.machine.facts().unwrap().reboot {
        crate::protocol::RebootFact::Owed { cleared, .. } => cleared,
        other => panic!("{other:?}"),
    };
    assert!(recorded(&agent), "the drain was complete");
    agent.view.disk = agent.machine.facts().unwrap();
    agent.view.checked = true;
    agent.view.phase = Phase::Applied { config: "a".into(), asked: None };
    agent.view.silent_since = None;
    // A person has uncordoned the node since.
    agent.view.node = NodeFacts {
        seen: true,
        desired: "a".into(),
        state: state::WORKING.into(),
        desired_drain: "drain-a".into(),
        last_applied_drain: "drain-a".into(),
        ..NodeFacts::default()
    };
    let next = step(&agent.view);
    assert!(matches!(agent.act(next).await, Next::Step));
    assert!(!recorded(&agent), "a later process would reboot while new pods run");
    let Action::Write { cordon: Some(Cordon::Begin), .. } = step(&agent.view) else {
        panic!("{:?}", step(&agent.view))
    };
    // The API server has accepted it.
    (agent.view.node.unschedulable, agent.view.node.own_cordon) = (true, true);
    agent.view.node.last_applied_drain = String::new();
    let next = step(&agent.view);
    assert!(matches!(agent.act(next).await, Next::Step), "the clock starts");
    let next = step(&agent.view);
    let Action::Wait { why: Waiting::Drain, until: Some(_) } = &next else { panic!("{next:?}") };
    assert!(matches!(agent.act(next).await, Next::Wait(Some(_))));
    agent.view.now += jiff::SignedDuration::from_hours(1);
    let Action::Write { changes, .. } = step(&agent.view) else { panic!("{:?}", step(&agent.view)) };
    assert_eq!(changes[annotation::STATE], state::DEGRADED);
    // The drain is complete.
    agent.view.node.last_applied_drain = "drain-a".into();
    let next = step(&agent.view);
    assert_eq!(next, Action::RecordCleared { config: "a".into(), cleared: true });
    assert!(matches!(agent.act(next).await, Next::Step), "{:?}", agent.view);
    assert!(recorded(&agent));
    let Action::Write { changes, .. } = step(&agent.view) else { panic!("{:?}", step(&agent.view)) };
    assert_eq!(changes[annotation::POST_CONFIG_ACTION], annotation::REBOOTING);
}

/// A registry that answers nothing must not hold the agent up.
#[tokio::test]
async fn a_pull_that_hangs_ends_when_another_config_is_desired_or_the_agent_stops_and_is_done_again_later() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
    let os = FakeOs::default();
    let (mut agent, feed) =
        agent_of(dir.path(), Duration::from_secs(10), Arc::new(NoFaults), Box::new(os.clone()));
    let (empty, mut b) = (files(EMPTY_CONFIG, &[]), files("b", &[]));
    b.spec.os_image_url = "fake:2".to_owned();
    let pair = ConfigPair { from: EMPTY_CONFIG.into(), to: "b".into() };
    let node = |desired: &str, version: &str| NodeFacts {
        seen: true,
        current: EMPTY_CONFIG.into(),
        desired: desired.into(),
        resource_version: version.into(),
        ..NodeFacts::default()
    };
    agent.view.node = node("b", "1");
    let planned = |agent: &mut Agent| {
        let policy = host::DisruptionPolicy::default();
        let (cost, work) = agent.machine.prepare(&empty, &b, &policy).unwrap();
        assert!(work.needs_fetch());
        agent.work = Some(work);
        agent.view.phase = Phase::Prepared { pair: pair.clone(), cost, to_fetch: true, asked: None };
    };
    os.hang(true);
    planned(&mut agent);
    let ends = async {
        // A change that leaves the desired config alone ends nothing.
        feed.send(Some(node("b", "2"))).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        feed.send(Some(node("c", "3"))).unwrap();
    };
    let (next, ()) = tokio::join!(agent.fetch(pair.clone()), ends);
    assert!(matches!(next, Next::Step));
    assert_eq!((agent.view.phase.clone(), agent.view.node.desired.as_str()), (Phase::Idle, "c"));
    assert_eq!(agent.failed_update, None, "an update that was taken back has not failed");

    agent.view.node = node("b", "4");
    planned(&mut agent);
    let stop = agent.shutdown.clone();
    let stops = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel();
    };
    let (next, ()) = tokio::join!(agent.fetch(pair.clone()), stops);
    assert!(matches!(next, Next::Step));
    assert_eq!(agent.view.phase, Phase::Idle);
    assert_eq!(os.fetches(), 0);

    // Ahead of the update it ends in the same way.
    agent.shutdown = CancellationToken::new();
    agent.view.node = NodeFacts { prefetch: "1 b".into(), ..node(EMPTY_CONFIG, "5") };
    let (_, work) = agent.machine.prepare(&empty, &b, &host::DisruptionPolicy::default()).unwrap();
    let ends = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        feed.send(Some(node(EMPTY_CONFIG, "6"))).unwrap();
    };
    let (ended, ()) = tokio::join!(agent.pull(work, |node| node.prefetch == "1 b"), ends);
    assert!(matches!(ended, crate::agent::fetch::Fetched::Ended(Some(_))));
    assert_eq!(os.fetches(), 0);

    os.hang(false);
    agent.shutdown = CancellationToken::new();
    planned(&mut agent);
    agent.fetch(pair).await;
    assert!(matches!(agent.view.phase, Phase::Prepared { to_fetch: false, .. }), "{:?}", agent.view.phase);
    assert_eq!(os.fetches(), 1);
}
