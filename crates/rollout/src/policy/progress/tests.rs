//! What a policy decides when only the OS image of a pool changes, from the flags of its nodes.
//!
//! What it is not: what plans show of a policy (see the crate's tests of decisions).

use super::*;
use crate::policy::{Members, Wave};
use jiff::SignedDuration;
use serde_json::json;

/// A node in config `old`.
fn node(name: &str) -> NodeView {
    let node: api::k8s::Node = serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "annotations": {
            api::names::annotation::CURRENT_CONFIG: "old",
            api::names::annotation::DESIRED_CONFIG: "old",
            api::names::annotation::STATE: "Done",
        }},
    }))
    .unwrap();
    NodeView::interned(&node, &mut crate::view::Names::default())
}

#[test]
fn another_image_of_a_proved_config_goes_by_wave() {
    let wave = |name: &str, members| Wave {
        name: name.into(),
        members,
        max_unavailable: None,
        soak: SignedDuration::ZERO,
        needs_approval: false,
    };
    let canary = wave("canary", Members::Number(1));
    let policy = Policy { waves: vec![canary, wave("rest", Members::Rest)], ..Policy::default() };
    let facts = PolicyFacts {
        progress: PoolProgress { proved: Some("new".to_owned()), ..PoolProgress::default() },
        ..PolicyFacts::default()
    };
    let old: Vec<NodeView> = ["a", "b", "c", "d", "e", "f"].map(node).into();
    let flags = Flags { candidate: true, ready: true, ..Flags::default() };
    let nodes: Vec<_> = old.iter().map(|n| (n, flags)).collect();
    let worker: MachineConfigPool = serde_json::from_value(json!({
        "metadata": {"name": "worker"}, "spec": {"configuration": {"name": "new"}, "maxUnavailable": 3},
    }))
    .unwrap();
    let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
    let at_start = |layered: bool| {
        let about = PolicySubject { pool: &worker, config: "new", plain: !layered, elsewhere: &[] };
        next((&policy, &facts), about, &nodes, now)
    };
    assert!(at_start(false).allowance.hold.is_none());
    assert_eq!(at_start(true).allowance.hold, Some(Hold::Recording { policy: "".into() }));
    // All nodes have the image, and one has drifted: there is nothing to roll out.
    let there = Flags { at_target: true, ready: true, updated: true, ..Default::default() };
    let drifted = Flags { updated: false, ..there };
    let nodes: Vec<_> = old.iter().zip([drifted, there, there, there, there, there]).collect();
    let about = PolicySubject { pool: &worker, config: "new", plain: false, elsewhere: &[] };
    let later = next((&policy, &facts), about, &nodes, now);
    assert!(later.allowance.hold.is_none() && later.progress.config.is_none(), "{later:?}");
}
