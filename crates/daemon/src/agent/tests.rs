//! What the agent does between its steps.
//!
//! What it is not: the tests of the decisions (`protocol::tests`), nor those with an API server (the lab's).

use super::*;
use crate::protocol::EMPTY_CONFIG;
use host::fault::NoFaults;
use host::{FakeSystemd, Host, Options, Root, Unsupported};
use tokio::sync::watch;

/// An agent on this folder, that has nobody to talk to.
fn agent(dir: &std::path::Path, period: Duration) -> (Agent, watch::Sender<Option<NodeFacts>>) {
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
    let root = Root::open_with(dir, Options { sync: false, owners: false }, Arc::new(NoFaults)).unwrap();
    let systemd = Box::new(FakeSystemd::new(&root));
    let machine = Arc::new(Machine::new(Host::new(root, systemd, Box::new(Unsupported))));
    let settings = Settings {
        reporting: Reporting { events: false, progress: false },
        watch_disk: false,
        drift_period: Some(period),
        trouble: None,
        metrics: Metrics::default(),
    };
    let (sender, feed) = watch::channel(None);
    let agent =
        Agent::new(settings, Cluster::new(client, "worker-0"), machine, feed, CancellationToken::new());
    (agent, sender)
}

#[tokio::test]
async fn a_node_that_waits_in_the_empty_config_looks_once_in_a_period() {
    let dir = tempfile::tempdir().unwrap();
    let period = Duration::from_secs(10);
    let (mut agent, _feed) = agent(dir.path(), period);
    agent.view.node = NodeFacts {
        current: EMPTY_CONFIG.into(),
        desired: EMPTY_CONFIG.into(),
        state: state::DONE.into(),
        ..NodeFacts::default()
    };
    agent.checked_at = Instant::now().checked_sub(period).unwrap();
    assert!(matches!(agent.idle(), Next::Step), "a look is due");
    assert_eq!(step(&agent.view), Action::Idle, "there is nothing to compare");
    assert!(matches!(agent.idle(), Next::Wait(Some(_))), "it has looked, and asks itself again at once");
}
