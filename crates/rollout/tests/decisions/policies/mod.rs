//! Windows, freezes, waves, gates and approvals as a plan shows them, and a check that nothing changes without a
//! policy.
//!
//! What it is not: parts of a policy that no plan shows apart (see the unit tests beside them).

use api::k8s::{IntOrString, LabelSelector, Node, Time};
use api::names::annotation;
use api::v1::MachineConfigPool;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rollout::policy::{
    ApprovalRequest, ChangeAsked, ChangeCost, Freeze, Gate, GateState, Members, Policy, PolicyFacts,
    PolicyInput, PoolPolicies, Wave, Window, ZoneLimit,
};
use rollout::view::NodeView;
use rollout::{Cluster, Facts, Hold, Inputs, PoolInput, PoolPlan, Step, plan};
use serde_json::json;
use std::sync::Arc;

mod drains;
mod failures;
mod gates;
mod guards;
mod limits;
mod parsing;
mod waves;
mod windows;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn hours(n: i64) -> SignedDuration {
    SignedDuration::from_hours(n)
}

/// A node of pool `worker` in this config, in zone `zone`.
fn node(name: &str, zone: &str, current: &str, desired: &str) -> NodeView {
    let state = if current == desired { "Done" } else { "Working" };
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1",
            "labels": {"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": zone},
            "annotations": {
                annotation::CURRENT_CONFIG: current,
                annotation::DESIRED_CONFIG: desired,
                annotation::STATE: state,
            }},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    NodeView::interned(&node, &mut rollout::view::Names::default())
}

fn pool(max: i32) -> MachineConfigPool {
    serde_json::from_value(json!({
        "metadata": {"name": "worker"},
        "spec": {
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            "configuration": {"name": "new"}, "maxUnavailable": max,
        },
    }))
    .unwrap()
}

/// Six nodes, `a` to `f`, of which the first `done` are in the new config and the next `moving` are on their way.
fn six(done: usize, moving: usize) -> Vec<NodeView> {
    let one = |(i, name): (usize, &str)| match i {
        i if i < done => node(name, "z", "new", "new"),
        i if i < done + moving => node(name, "z", "old", "new"),
        _ => node(name, "z", "old", "old"),
    };
    ["a", "b", "c", "d", "e", "f"].into_iter().enumerate().map(one).collect()
}

fn planned(nodes: &[NodeView], policy: &Policy, facts: &PolicyFacts, now: &str) -> PoolPlan {
    planned_to("new", nodes, policy, facts, now)
}

fn planned_to(config: &str, nodes: &[NodeView], policy: &Policy, facts: &PolicyFacts, now: &str) -> PoolPlan {
    let mut pool = pool(3);
    pool.spec.configuration.name = config.to_owned();
    let cluster = Facts { cluster: Cluster::Plain, ..Facts::default() };
    let inputs = Inputs {
        pools: vec![PoolInput {
            policy: Some(PolicyInput::InForce { policy, facts }),
            ..PoolInput::of(&pool)
        }],
        nodes: nodes.iter().collect(),
        facts: &cluster,
        now: Time(at(now)),
    };
    let mut plan = plan(&inputs);
    assert_eq!(plan.look_again, plan.pools[0].look_again);
    plan.pools.remove(0)
}

/// Plans again and again, each time with the progress that the last plan has left, until nothing more is to be written.
fn settled(nodes: &[NodeView], policy: &Policy, facts: &mut PolicyFacts, now: &str) -> PoolPlan {
    for _ in 0..9 {
        let plan = planned(nodes, policy, facts, now);
        let Some(next) = plan.policy.as_ref().map(|p| p.progress.clone()) else { return plan };
        if next == facts.progress {
            return plan;
        }
        // Nothing begins by a decision that is not stored.
        facts.progress = next;
    }
    panic!("the progress never settles: {:?}", facts.progress)
}

fn hold(plan: &PoolPlan) -> String {
    plan.hold.as_ref().map(Hold::to_string).unwrap_or_default()
}

fn goes(plan: &PoolPlan) -> String {
    plan.nodes.iter().filter(|n| n.step == Step::Goes).map(|n| &*n.node).collect()
}

fn wave(name: &str, members: Members) -> Wave {
    Wave {
        name: name.into(),
        members,
        max_unavailable: None,
        soak: SignedDuration::ZERO,
        needs_approval: false,
    }
}

/// A gate that compares nodes' condition `Ready`, checked at these times, that fails at once.
fn gate(name: &str, before_wave: bool, soak: bool, always: bool) -> Gate {
    Gate {
        name: name.into(),
        before_wave,
        soak,
        always,
        interval: std::time::Duration::from_secs(30),
        timeout: std::time::Duration::from_secs(10),
        failure_limit: 1,
        no_answer_fails: false,
        check: rollout::policy::gates::Check::NodeCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
        },
    }
}

const NOON: &str = "2026-07-01T12:00:00Z";

#[test]
fn without_a_policy_and_with_one_that_asks_for_nothing_plans_are_the_same() {
    let (pool, nodes) = (pool(3), six(1, 1));
    let cluster = Facts { cluster: Cluster::Plain, ..Facts::default() };
    let inputs = Inputs {
        pools: vec![PoolInput::of(&pool)],
        nodes: nodes.iter().collect(),
        facts: &cluster,
        now: Time(at(NOON)),
    };
    let without = plan(&inputs);
    assert_eq!(without.look_again, None);
    assert_eq!(without.pools[0], planned(&nodes, &Policy::default(), &PolicyFacts::default(), NOON));
    assert_eq!(goes(&without.pools[0]), "cd");
}

/// A policy with a canary that soaks for an hour, and this gate.
fn gated(gate: Gate) -> Policy {
    let canary = Wave { soak: hours(1), ..wave("canary", Members::Number(1)) };
    Policy { waves: vec![canary], gates: vec![gate], ..Policy::default() }
}

/// The state in the middle of a rollout from `old`, which is proved, to `new`.
fn under_way(policy: &Policy, nodes: &[NodeView]) -> PolicyFacts {
    let mut facts = PolicyFacts::default();
    facts.progress.proved = Some("old".to_owned());
    facts.baselines = policy.gates.iter().map(|g| (g.name.clone(), vec![])).collect();
    facts.gates = policy.gates.iter().map(|g| (g.name.clone(), GateState::Passed)).collect();
    settled(nodes, policy, &mut facts, NOON);
    facts
}
