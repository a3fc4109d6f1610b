//! The product's programs on the lab's nodes: they are started, and speak for their nodes. What they do there is
//! tested where they are.

use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use lab::{Lab, LabBuilder, Reporter};

const STATE: &str = "machineconfiguration.openshift.io/state";
const CURRENT: &str = "machineconfiguration.openshift.io/currentConfig";

fn with_controller() -> Option<LabBuilder> {
    let mco = lab::built_mco();
    if !lab::require(mco.is_none().then(|| "the mco program is not built: cargo build -p cli".to_owned())) {
        return None;
    }
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates");
    Some(Lab::start().mco_binary(mco?).templates(templates).controller(true).progress(Reporter::stderr()))
}

/// Waits until every node says that it is done with a config.
async fn wait_done(lab: &Lab, limit: Duration) {
    let nodes: Api<Node> = Api::all(lab.client());
    let start = Instant::now();
    loop {
        lab.check().unwrap();
        let all = nodes.list(&kube::api::ListParams::default()).await.unwrap();
        let said = |node: &Node, key: &str| {
            node.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default()
        };
        if all
            .items
            .iter()
            .all(|node| said(node, STATE) == "Done" && said(node, CURRENT).starts_with("rendered-"))
        {
            eprintln!("{} nodes done {:?} after the lab was up", all.items.len(), start.elapsed());
            return;
        }
        let states: Vec<_> = all.items.iter().map(|node| said(node, STATE)).collect();
        let log = std::fs::read_to_string(lab.controller_log()).unwrap_or_default();
        assert!(start.elapsed() < limit, "{states:?}\n{log}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_nodes_join_their_pool() {
    let Some(builder) = with_controller() else { return };
    let lab = builder.nodes(20).simulated().scheduler(false).start().await.unwrap();
    wait_done(&lab, Duration::from_secs(60)).await;
    assert!(lab.node(19).read_file("/etc/machine-config-daemon/currentconfig").await.is_ok());
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_nodes_join_their_pool_and_survive_the_loss_of_power() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let lab = builder.nodes(2).real().scheduler(false).start().await.unwrap();
    wait_done(&lab, Duration::from_secs(90)).await;
    let node = lab.node(0);
    assert_eq!(node.run(["systemctl", "is-active", lab::DAEMON_UNIT]).await.unwrap().trim(), "active");
    assert!(!node.logs(lab::DAEMON_UNIT).await.unwrap().is_empty());
    let machine = lab.real_node(0).unwrap().machine();
    machine.power_cut().await.unwrap();
    machine.power_on();
    node.wait_ready(&lab.client(), Duration::from_secs(60)).await.unwrap();
    wait_done(&lab, Duration::from_secs(60)).await;
    lab.stop().await;
}
