//! Nodes that were sent to one config of their pool, and are retargeted to the next one in the slot that they hold.

use crate::view::NodeView;
use crate::{Facts, Inputs, PoolInput, Step, plan};
use api::k8s::{Node, Time};
use api::v1::MachineConfigPool;
use serde_json::json;

const OLD: &str = "rendered-worker-0";
const FIRST: &str = "rendered-worker-1";
const SECOND: &str = "rendered-worker-2";

/// A name, the node's annotations, the mark of its cordon, and whether it is retargeted.
type Row = (&'static str, Vec<(&'static str, &'static str)>, Option<&'static str>, bool);

/// A worker in `OLD` with these annotations, and with this mark of its cordon.
fn node(name: &str, notes: &[(&str, &str)], cordon: Option<&str>) -> NodeView {
    let mut node = json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "7",
            "labels": {"node-role.kubernetes.io/worker": ""}, "annotations": {}},
        "spec": {"unschedulable": cordon.is_some()},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let all = [("currentConfig", OLD)].iter().chain(notes).copied();
    for (key, value) in all.chain(cordon.filter(|c| !c.is_empty()).map(|c| ("cordon", c))) {
        node["metadata"]["annotations"][format!("machineconfiguration.openshift.io/{key}")] = json!(value);
    }
    let node: Node = serde_json::from_value(node).unwrap();
    NodeView::from_node(&node)
}

fn pool(max: u32) -> MachineConfigPool {
    let pool = json!({
        "metadata": {"name": "worker", "uid": "u"},
        "spec": {
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            "maxUnavailable": max, "configuration": {"name": SECOND},
        },
    });
    serde_json::from_value(pool).unwrap()
}

fn sent(pool: &MachineConfigPool, nodes: &[NodeView]) -> Vec<String> {
    let facts = Facts::default();
    let inputs = Inputs {
        pools: vec![PoolInput::of(pool)],
        nodes: nodes.iter().collect(),
        facts: &facts,
        now: Time(jiff::Timestamp::UNIX_EPOCH),
    };
    let plan = plan(&inputs);
    let goes = plan.pools[0].nodes.iter().filter(|n| n.step == Step::Goes);
    goes.map(|n| n.node.to_string()).collect()
}

#[test]
fn only_a_node_that_has_not_begun_is_retargeted() {
    let drain = "drain-rendered-worker-1";
    let to = ("desiredConfig", FIRST);
    let (done, working) = (("state", "Done"), ("state", "Working"));
    let asked = ("desiredDrain", drain);
    let (stays, image, bad) = (("desiredConfig", OLD), ("desiredImage", "q.io/os:1"), ("state", "Degraded"));
    let answered = ("lastAppliedDrain", drain);
    let before =
        [("desiredDrain", "uncordon-rendered-worker-0"), ("lastAppliedDrain", "uncordon-rendered-worker-0")];
    let rows: [Row; 14] = [
        ("has not begun", vec![to, done], None, true),
        ("has not begun, and was drained before", [&[to, done][..], &before].concat(), None, true),
        ("its pods are leaving", vec![to, working, asked], Some("daemon"), true),
        ("the controller has cordoned it", vec![to, working, asked], Some("drain"), true),
        ("its pods have left", vec![to, working, asked, answered], Some("daemon"), false),
        ("is at work without a drain", vec![to, working], None, false),
        ("a person has cordoned it", vec![to, done], Some(""), false),
        ("is from another pool", vec![("desiredConfig", "rendered-infra-1"), done], None, false),
        ("failed and is under a person's cordon", vec![to, ("state", "Degraded")], Some(""), false),
        ("failed", vec![to, ("state", "Degraded")], None, true),
        ("failed at an image under its own cordon", vec![stays, image, bad], Some("daemon"), true),
        ("failed at an image under a person's cordon", vec![stays, image, bad], Some(""), false),
        ("a fault in its own config, under its own cordon", vec![stays, bad], Some("daemon"), false),
        (
            "failed under its own cordon",
            vec![to, ("state", "Degraded"), asked, answered],
            Some("daemon"),
            true,
        ),
    ];
    for (what, notes, cordon, goes) in rows {
        let nodes = [node("n", &notes, cordon)];
        assert_eq!(!sent(&pool(1), &nodes).is_empty(), goes, "{what}");
    }
}

#[test]
fn a_retargeted_node_keeps_its_slot() {
    let out = [("desiredConfig", FIRST), ("state", "Done")];
    let still = [("desiredConfig", OLD), ("state", "Done")];
    let nodes: Vec<NodeView> = [("a", &out), ("b", &out), ("c", &still), ("d", &still)]
        .iter()
        .map(|(name, notes)| node(name, *notes, None))
        .collect();
    assert_eq!(sent(&pool(2), &nodes), ["a", "b"]);
    assert_eq!(
        sent(&pool(1), &nodes),
        ["a", "b"],
        "more nodes are out than allowed, and no further one is sent"
    );
    assert_eq!(sent(&pool(3), &nodes), ["a", "b", "c"]);
    let mut paused = pool(3);
    paused.spec.paused = true;
    assert_eq!(sent(&paused, &nodes), [""; 0]);
}
