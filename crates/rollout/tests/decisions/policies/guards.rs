//! What waves, approvals and gates must not let through: edits in the middle of a rollout, nodes that are out of service
//! or just joined, and progress that only seems to be there.
//!
//! What it is not: the ordinary course of a rollout (see the parent module).

use super::*;
use api::names::EMPTY_CONFIG;
use api::v1alpha1::RolloutPolicy;
use rollout::policy::gates::Reading;

fn canary_and_rest() -> Vec<Wave> {
    vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)]
}

/// A canary and the rest, and a gate about nodes that is checked all the time.
fn guarded() -> Policy {
    Policy { waves: canary_and_rest(), gates: vec![gate("ready", false, false, true)], ..Policy::default() }
}

/// As [`settled`], for another config of the pool.
fn settled_to(
    config: &str,
    nodes: &[NodeView],
    policy: &Policy,
    facts: &mut PolicyFacts,
    now: &str,
) -> PoolPlan {
    for _ in 0..9 {
        let plan = planned_to(config, nodes, policy, facts, now);
        let Some(next) = plan.policy.as_ref().map(|p| p.progress.clone()) else { return plan };
        if next == facts.progress {
            return plan;
        }
        facts.progress = next;
    }
    panic!("the progress never settles: {:?}", facts.progress)
}

fn dead(mut node: NodeView) -> NodeView {
    node.not_ready = Some("Ready is False".into());
    node
}

#[test]
fn an_edit_in_the_middle_of_a_rollout_goes_by_wave_and_approval() {
    let approved = Wave { needs_approval: true, ..wave("canary", Members::Number(1)) };
    let policy = Policy { waves: vec![approved, wave("rest", Members::Rest)], ..Policy::default() };
    let mut facts = under_way(&policy, &six(4, 0));
    let plan = settled_to("newer", &six(4, 0), &policy, &mut facts, NOON);
    assert_eq!(goes(&plan), "", "{plan}");
    assert!(hold(&plan).starts_with("wave canary waits for an approval"), "{plan}");
    // With the approval the first wave goes, and no other node of the abandoned change.
    facts.approval = Some(ApprovalRequest::parse("newer/canary", None));
    let plan = settled_to("newer", &six(4, 0), &policy, &mut facts, NOON);
    assert_eq!(goes(&plan), "a", "{plan}");
    // Later waves of the abandoned change go when the gates let them.
    let policy = Policy { gates: vec![gate("ready", true, false, false)], ..guarded() };
    let mut facts = under_way(&policy, &six(4, 0));
    let mut nodes = six(4, 0);
    nodes[0] = node("a", "z", "newer", "newer");
    facts.gates = [("ready".into(), GateState::Failing("1 of 2".to_owned()))].into();
    let plan = settled_to("newer", &nodes, &policy, &mut facts, NOON);
    assert_eq!((&*goes(&plan), &*hold(&plan)), ("", "gate ready has not passed: 1 of 2"), "{plan}");
}

#[test]
fn nodes_of_a_rejected_config_and_of_one_that_was_replaced_while_a_gate_failed_go_ahead() {
    let policy = guarded();
    let mut facts = under_way(&policy, &six(0, 0));
    settled(&six(1, 0), &policy, &mut facts, NOON);
    facts.gates = [("ready".into(), GateState::Failed("b is broken".to_owned()))].into();
    let plan = settled(&six(3, 0), &policy, &mut facts, NOON);
    assert_eq!(hold(&plan), "gate ready fails: b is broken");
    let plan = settled_to("newer", &six(3, 0), &policy, &mut facts, NOON);
    assert_eq!((&*goes(&plan), &*hold(&plan)), ("abc", ""), "{plan}");
    let rejected = &facts.progress.rejected[0];
    assert_eq!(
        (&*rejected.config, &*rejected.reason),
        ("new", "it was replaced while gate ready failed: b is broken")
    );
}

#[test]
fn a_change_that_is_taken_back_while_nobody_may_move_leaves_its_baseline_and_its_verdict() {
    let policy = guarded();
    let mut facts = under_way(&policy, &six(0, 0));
    settled(&six(1, 0), &policy, &mut facts, NOON);
    assert_eq!(facts.progress.baseline.len(), 1);
    facts.gates = [("ready".into(), GateState::Failed("b is broken".to_owned()))].into();
    settled(&six(1, 0), &policy, &mut facts, NOON);
    // The pool is back in the proved config, and `a` is not.
    settled_to("old", &six(1, 0), &policy, &mut facts, NOON);
    assert_eq!((facts.progress.baseline.len(), &*facts.progress.rejected[0].config), (1, "new"));
    // What `a` breaks in the next config is compared with the time before both.
    let plan = settled_to("newer", &six(1, 0), &policy, &mut facts, NOON);
    assert_eq!((&*goes(&plan), facts.progress.baseline.len()), ("a", 1), "{plan}");
    // Once all nodes are back, nothing is left of it.
    settled_to("old", &six(0, 0), &policy, &mut facts, NOON);
    assert!(facts.progress.baseline.is_empty());
}

#[test]
fn a_node_that_is_put_aside_in_an_older_config_does_not_excuse_a_gate_that_fails() {
    let drain =
        Some(rollout::drain::DrainLimit { after: hours(1), then: api::v1alpha1::DrainEnd::Quarantine });
    let policy = Policy { rolls_back: true, drain, ..guarded() };
    let mut facts = under_way(&policy, &six(0, 0));
    facts.progress.rejected = vec![api::v1alpha1::RejectedConfig {
        config: "bad".to_owned(),
        reason: "bad".to_owned(),
        at: Time(at(NOON)),
    }];
    let mut nodes = six(1, 0);
    nodes[5] = node("f", "z", "bad", "bad");
    nodes[5].quarantine = Some("new".into());
    settled(&nodes, &policy, &mut facts, NOON);
    facts.gates = [("ready".into(), GateState::Failed("b is broken".to_owned()))].into();
    settled(&nodes, &policy, &mut facts, NOON);
    assert_eq!(&*facts.progress.rejected[0].config, "new");
}

#[test]
fn a_node_that_comes_from_another_pool_does_not_go_before_what_it_is_compared_with() {
    let policy = guarded();
    let (old, new) = (
        "rendered-worker-00000000000000000000000000000001",
        "rendered-worker-00000000000000000000000000000002",
    );
    let other = "rendered-infra-00000000000000000000000000000003";
    let nodes = [node("a", "z", other, other), node("b", "z", old, old)];
    let mut facts = PolicyFacts::default();
    facts.progress.proved = Some(old.to_owned());
    let plan = settled_to(new, &nodes, &policy, &mut facts, NOON);
    assert_eq!(goes(&plan), "", "{plan}");
    assert!(hold(&plan).contains("gate ready"), "{plan}");
}

#[test]
fn a_dead_node_of_an_older_change_does_not_keep_the_next_one_from_beginning() {
    let policy = Policy {
        waves: canary_and_rest(),
        unrelated_unavailable: Some(IntOrString::Int(1)),
        ..Policy::default()
    };
    let mut nodes = six(0, 0);
    nodes[5] = dead(node("f", "z", "older", "older"));
    let plan = settled(&nodes, &policy, &mut under_way(&policy, &six(0, 0)), NOON);
    assert_eq!(goes(&plan), "a", "{plan}");
}

#[test]
fn a_node_that_is_in_the_config_already_stands_for_no_approval_and_no_gate() {
    let two = Wave { needs_approval: true, ..wave("canary", Members::Number(2)) };
    let policy = Policy { waves: vec![two, wave("rest", Members::Rest)], ..Policy::default() };
    let plan = settled(&six(1, 0), &policy, &mut under_way(&policy, &six(0, 0)), NOON);
    assert_eq!(goes(&plan), "", "{plan}");
    assert!(hold(&plan).starts_with("wave canary waits for an approval"), "{plan}");
    let policy = Policy {
        waves: vec![wave("canary", Members::Number(2)), wave("rest", Members::Rest)],
        gates: vec![gate("ready", true, false, false)],
        ..Policy::default()
    };
    // The baseline is known, and no node was let go yet.
    let mut facts = PolicyFacts::default();
    facts.progress.proved = Some("old".to_owned());
    facts.baselines = [("ready".into(), vec![])].into();
    facts.gates = [("ready".into(), GateState::Failing("1 of 2".to_owned()))].into();
    let plan = settled(&six(1, 0), &policy, &mut facts, NOON);
    assert_eq!((&*goes(&plan), &*hold(&plan)), ("", "gate ready has not passed: 1 of 2"), "{plan}");
}

#[test]
fn waves_that_a_policy_gets_before_a_node_has_gone_count_from_the_first() {
    // A gate holds a pool without waves: all nodes are of the wave `rest`.
    let unread = Policy { gates: vec![gate("ok", false, false, true)], ..Policy::default() };
    let mut facts = PolicyFacts {
        gates: [("ok".into(), GateState::Unknown("no answer".to_owned()))].into(),
        baselines: [("ok".into(), vec![])].into(),
        ..PolicyFacts::default()
    };
    settled(&six(0, 0), &unread, &mut facts, NOON);
    assert_eq!(facts.progress.wave.as_deref(), Some("rest"));
    let policy = Policy { waves: canary_and_rest(), ..Policy::default() };
    facts.gates.clear();
    assert_eq!(goes(&settled(&six(0, 0), &policy, &mut facts, NOON)), "a");
    assert_eq!(facts.progress.wave.as_deref(), Some("canary"));
}

#[test]
fn a_selected_wave_without_nodes_holds() {
    let selector: LabelSelector = serde_json::from_value(json!({"matchLabels": {"tier": "canery"}})).unwrap();
    let policy = Policy {
        waves: vec![wave("canary", Members::Selected(selector)), wave("rest", Members::Rest)],
        ..Policy::default()
    };
    let plan = settled(&six(0, 0), &policy, &mut under_way(&policy, &six(0, 0)), NOON);
    assert_eq!(
        (&*goes(&plan), &*hold(&plan)),
        ("", "wave canary selects no node that is left; correct its nodeSelector, or label a node")
    );
    assert!(plan.hold.unwrap().needs_a_person());
}

#[test]
fn a_wave_whose_nodes_are_all_excused_has_proved_nothing() {
    let policy = Policy {
        waves: canary_and_rest(),
        unrelated_unavailable: Some(IntOrString::Int(1)),
        ..Policy::default()
    };
    let mut nodes = six(0, 0);
    nodes[0] = dead(nodes[0].clone());
    let plan = settled(&nodes, &policy, &mut under_way(&policy, &six(0, 0)), NOON);
    assert_eq!(goes(&plan), "", "{plan}");
    assert_eq!(plan.nodes[1].step.to_string(), "waits: wave canary goes first");
}

#[test]
fn a_config_is_proved_only_if_all_waves_are_done() {
    let policy = Policy { waves: canary_and_rest(), ..Policy::default() };
    let mut facts = under_way(&policy, &six(0, 0));
    settled(&six(1, 0), &policy, &mut facts, NOON);
    assert_eq!(facts.progress.wave.as_deref(), Some("rest"));
    // All others are done, and the canary is not in service any more.
    let mut nodes = six(6, 0);
    nodes[0] = dead(nodes[0].clone());
    settled(&nodes, &policy, &mut facts, NOON);
    assert_eq!(facts.progress.proved.as_deref(), Some("old"));
    settled(&six(6, 0), &policy, &mut facts, NOON);
    assert_eq!(facts.progress.proved.as_deref(), Some("new"));
}

#[test]
fn on_the_way_back_no_more_nodes_are_out_than_the_pool_and_its_zones_allow() {
    let policy = Policy {
        waves: canary_and_rest(),
        rolls_back: true,
        unrelated_unavailable: Some(IntOrString::Int(2)),
        ..Policy::default()
    };
    let mut facts = under_way(&policy, &six(0, 0));
    facts.progress.rejected = vec![api::v1alpha1::RejectedConfig {
        config: "new".to_owned(),
        reason: "bad".to_owned(),
        at: Time(at(NOON)),
    }];
    // Two are out of service because of the config: one more may be.
    let mut nodes = six(6, 0);
    for name in [4, 5] {
        nodes[name] = dead(nodes[name].clone());
    }
    let plan = settled(&nodes, &policy, &mut facts, NOON);
    assert_eq!(goes(&plan), "def", "{plan}");
    // Nodes that report a fault in the rejected config are in service.
    let mut nodes = six(6, 0);
    nodes.iter_mut().for_each(|n| n.state = rollout::view::DaemonState::Degraded);
    let plan = settled(&nodes, &policy, &mut facts, NOON);
    assert_eq!(goes(&plan), "def", "{plan}");
    let zones = Some(ZoneLimit { key: "topology.kubernetes.io/zone".into(), max: 1 });
    let policy = Policy { zones, ..policy };
    let plan = settled(&six(6, 0), &policy, &mut facts, NOON);
    assert_eq!(goes(&plan), "f", "{plan}");
    let plan = settled(&nodes, &policy, &mut facts, NOON);
    assert_eq!(goes(&plan), "f", "{plan}");
}

#[test]
fn a_gate_about_nodes_asks_no_node_that_is_on_its_way() {
    let policy = guarded();
    let mut facts = under_way(&policy, &six(0, 0));
    settled(&six(1, 0), &policy, &mut facts, NOON);
    let plan = settled(&six(2, 1), &policy, &mut facts, NOON);
    let asked: String = plan.policy.unwrap().checks[0].nodes.iter().map(|n| &**n).collect();
    assert_eq!(asked, "abdef");
    // A condition that no node has is a mistake in the gate, not a state of the nodes.
    let nodes: Vec<Arc<str>> = vec!["a".into(), "b".into()];
    let none = [("a".to_owned(), String::new()), ("b".to_owned(), String::new())].into();
    let Reading::NoAnswer(why) = rollout::policy::gates::of_nodes("True", &nodes, &none) else {
        panic!("it counts as an answer")
    };
    assert_eq!(why, "none of its nodes has this condition; correct its type");
}

#[test]
fn progress_of_a_pool_is_stored_although_the_policy_is_disputed_for_another_pool() {
    let policy = |name: &str, pools: &[&str]| -> RolloutPolicy {
        serde_json::from_value(json!({
            "metadata": {"name": name, "generation": 1},
            "spec": {"pools": {"names": pools}, "waves": [{"name": "canary", "size": 1}]},
        }))
        .unwrap()
    };
    let (mut p, q) = (policy("p", &["worker", "infra"]), policy("q", &["infra"]));
    let (worker, mut infra) = (pool(3), pool(3));
    infra.metadata.name = Some("infra".to_owned());
    infra.spec.node_selector =
        serde_json::from_value(json!({"matchLabels": {"node-role.kubernetes.io/infra": ""}})).unwrap();
    let (nodes, facts) = (six(0, 0), Facts { cluster: Cluster::Plain, ..Facts::default() });
    let mut run = || {
        let policies = PoolPolicies::of(&[&p, &q], &[&worker, &infra], None, None);
        let input = |pool| PoolInput { policy: policies.input("worker"), ..PoolInput::of(pool) };
        let inputs = Inputs {
            pools: vec![input(&worker)],
            nodes: nodes.iter().collect(),
            facts: &facts,
            now: Time(at(NOON)),
        };
        let plan = plan(&inputs);
        let status = policies.status(&p, &plan.of_policies(), &Time(at(NOON)));
        if let Some(status) = status {
            p.status = Some(status);
        }
        goes(&plan.pools[0])
    };
    let all: Vec<String> = (0..3).map(|_| run()).collect();
    assert_eq!(all.last().unwrap(), "a", "{:?}", p.status);
}

#[test]
fn a_node_that_joins_gets_the_proved_config_at_once_whatever_holds_the_pool() {
    let joins = |desired: &str| {
        let mut joined = six(1, 0);
        joined[5] = node("f", "z", EMPTY_CONFIG, desired);
        joined[5].state = rollout::view::DaemonState::Done;
        joined
    };
    let sent = |plan: &PoolPlan| -> Vec<String> {
        let moved = plan.patches.iter().filter(|p| !p.desired_config.is_keep());
        moved.map(|p| format!("{} {:?}", p.node, p.desired_config)).collect()
    };
    let to = |config: &str| vec![format!("f {:?}", rollout::Change::Set(Arc::<str>::from(config)))];
    // The pool's config is proved, and a freeze is in force.
    let freeze = Freeze { from: at(NOON), until: None, reason: "year's end".to_owned(), certificates: false };
    let policy = Policy { waves: canary_and_rest(), freezes: vec![freeze], ..Policy::default() };
    let mut facts = PolicyFacts::default();
    facts.progress.proved = Some("new".to_owned());
    let plan = settled(&joins(EMPTY_CONFIG), &policy, &mut facts, NOON);
    assert_eq!(sent(&plan), to("new"), "{plan}");
    assert!(plan.hold.is_some(), "nobody else goes: {plan}");
    // Another one is on its way: a node without any config takes the one that is proved, not the one that is not.
    let policy = Policy { waves: canary_and_rest(), ..Policy::default() };
    let mut facts = under_way(&policy, &six(0, 0));
    let plan = settled(&joins(EMPTY_CONFIG), &policy, &mut facts, NOON);
    assert!(sent(&plan).contains(&to("old")[0]), "{plan}");
    // It is left alone until it has arrived there.
    let plan = settled(&joins("old"), &policy, &mut facts, NOON);
    assert!(!sent(&plan).iter().any(|s| s.starts_with('f')), "{plan}");
}
