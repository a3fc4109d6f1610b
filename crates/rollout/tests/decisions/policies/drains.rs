//! Drains that do not end: nodes are looked at before they are cordoned, put aside, and called back.
//!
//! What it is not: the drain itself (see `rollout::drain`).

use super::*;
use api::v1alpha1::{DrainEnd, MaxDisruption};
use rollout::Wait;
use rollout::drain::{DrainLimit, Outlook};

const OLD: &str = "rendered-worker-00000000000000000000000000000001";
const NEW: &str = "rendered-worker-00000000000000000000000000000002";

/// As [`planned`], with what is known of drains.
fn looked(nodes: &[NodeView], policy: &Policy, outlooks: &[(&str, Outlook)], max: i32) -> PoolPlan {
    let most = IntOrString::Int(max);
    looked_with(nodes, Some((policy, &PolicyFacts::default())), outlooks, |pool| {
        pool.spec.max_unavailable = Some(most);
    })
}

/// As [`looked`], for a pool of any kind with or without a policy.
fn looked_with(
    nodes: &[NodeView],
    policy: Option<(&Policy, &PolicyFacts)>,
    outlooks: &[(&str, Outlook)],
    change: impl FnOnce(&mut MachineConfigPool),
) -> PoolPlan {
    under(nodes, policy.map(|(policy, facts)| PolicyInput::InForce { policy, facts }), outlooks, change)
}

/// Under a policy that cannot be used.
fn unusable(nodes: &[NodeView]) -> PoolPlan {
    under(nodes, Some(PolicyInput::Unusable("its window has no end")), &[], |_| {})
}

/// A node whose drain for [`NEW`] has put it aside, and which is not called back yet.
fn given_up() -> NodeView {
    let mut node = node("a", "z", OLD, NEW);
    (node.unschedulable, node.cordon) = (true, Some(rollout::view::CordonMark::Drain));
    node.desired_drain = Some(format!("drain-{NEW}").into());
    node.quarantine = Some(NEW.into());
    node
}

fn under(
    nodes: &[NodeView],
    policy: Option<PolicyInput<'_>>,
    outlooks: &[(&str, Outlook)],
    change: impl FnOnce(&mut MachineConfigPool),
) -> PoolPlan {
    let mut pool = pool(1);
    pool.spec.configuration.name = NEW.to_owned();
    change(&mut pool);
    let cluster = Facts {
        cluster: Cluster::Plain,
        outlooks: outlooks.iter().map(|(n, o)| (Arc::from(*n), o.clone())).collect(),
        looks: true,
        ..Facts::default()
    };
    let inputs = Inputs {
        pools: vec![PoolInput { policy, ..PoolInput::of(&pool) }],
        nodes: nodes.iter().collect(),
        facts: &cluster,
        now: Time(at(NOON)),
    };
    plan(&inputs).pools.remove(0)
}

fn looks(plan: &PoolPlan) -> String {
    plan.policy.iter().flat_map(|p| &p.looks).map(|n| &**n).collect()
}

#[test]
fn what_cannot_be_used_taints_no_node_and_what_is_called_back_is_not_on_its_way() {
    // Nodes that wait under a policy with waves carry no update taint, and get none while it cannot be used.
    let nodes: Vec<NodeView> = ["a", "b"].map(|n| node(n, "z", OLD, OLD)).into();
    let plan = unusable(&nodes);
    assert!(plan.hold.is_some() && plan.patches.iter().all(|p| p.taints.is_none()), "{plan}");
    // When its node was sent is forgotten with the call: if a person sends it later, its deadline counts from then.
    let mut sent = given_up();
    sent.sent = Some(format!("{NEW} 2026-07-01T00:00:00Z").into());
    let plan = looked(&[sent], &quarantine(), &[], 1);
    assert_eq!(plan.patches[0].desired_config, rollout::Change::Set(OLD.into()), "{plan}");
    assert_eq!(plan.patches[0].sent, rollout::Change::Remove, "{plan}");
}

fn quarantine() -> Policy {
    let drain = Some(DrainLimit { after: hours(1), then: DrainEnd::Quarantine });
    Policy { drain, ..Policy::default() }
}

#[test]
fn nodes_are_looked_at_before_they_are_cordoned_and_those_that_cannot_drain_go_last() {
    let nodes: Vec<NodeView> = ["a", "b", "c"].map(|n| node(n, "z", OLD, OLD)).into();
    let waits = || Outlook::Waits("pod x: its budget".to_owned());
    let loses = || Outlook::Loses("pod y".to_owned());
    type Row<'a> = (&'a [(&'a str, Outlook)], i32, &'a str, &'a str);
    let rows: [Row<'_>; 7] = [
        // Known, slots, who goes, who is looked at.
        (&[], 1, "", "a"),
        (&[("a", Outlook::Ends)], 1, "a", ""),
        (&[("a", waits())], 1, "", "ab"),
        (&[("a", waits()), ("b", Outlook::Ends)], 1, "b", "a"),
        (&[("a", waits()), ("b", waits()), ("c", waits())], 1, "a", "abc"),
        (&[("a", loses()), ("b", Outlook::Ends)], 1, "b", ""),
        (&[("a", loses()), ("b", Outlook::Ends), ("c", waits())], 2, "ab", ""),
    ];
    for (known, max, goes_now, looked_at) in rows {
        let plan = looked(&nodes, &quarantine(), known, max);
        assert_eq!((&*goes(&plan), &*looks(&plan)), (goes_now, looked_at), "{known:?}: {plan}");
    }
    let plan = looked(&nodes, &quarantine(), &[], 1);
    assert_eq!(plan.nodes[0].step, Step::Waits(Wait::DrainOutlook));
    // Whoever asks for no limit of drains is not made to wait for looks.
    assert_eq!(goes(&looked(&nodes, &Policy::default(), &[], 1)), "a");
}

#[test]
fn a_node_whose_drain_does_not_end_is_called_back_and_put_aside_and_another_one_goes() {
    let mut nodes: Vec<NodeView> = ["a", "b", "c"].map(|n| node(n, "z", OLD, OLD)).into();
    nodes[0] = given_up();
    let known = [("b", Outlook::Ends)];
    let plan = looked(&nodes, &quarantine(), &known, 1);
    let patch = plan.patches.iter().find(|p| &*p.node == "a").unwrap();
    assert_eq!(patch.desired_config, rollout::Change::Set(OLD.into()), "{plan}");
    assert!(patch.quarantine.is_keep(), "{plan}");
    assert_eq!(goes(&plan), "", "its slot is free only when it is in service again");
    assert!(matches!(plan.nodes[0].step, Step::Waits(Wait::Quarantined { .. })), "{plan}");
    nodes[0] = patch.applied_to(&nodes[0]);
    let plan = looked(&nodes, &quarantine(), &known, 1);
    assert!(plan.patches.iter().all(|p| &*p.node != "a"), "it stays called back: {plan}");
    // Its agent has had it uncordoned.
    (nodes[0].unschedulable, nodes[0].cordon) = (false, None);
    (nodes[0].state, nodes[0].desired_drain) = (rollout::view::DaemonState::Done, None);
    let plan = looked(&nodes, &quarantine(), &known, 1);
    assert_eq!((&*goes(&plan), &*looks(&plan)), ("b", "a"), "{plan}");
    let updating = plan.status.as_ref().and_then(|s| s.conditions.as_deref());
    let updating = api::conditions::get(updating.unwrap(), "Updating").unwrap();
    assert!(
        updating.message.contains("put aside, because their drains did not end: a;"),
        "{}",
        updating.message
    );
    // As long as it would wait again, it stays. Then it goes, after all others.
    let waits = Outlook::Waits("pod x: its budget".to_owned());
    for (outlook, want) in [(waits, ""), (Outlook::Ends, "a")] {
        let mut others_done = nodes.clone();
        (others_done[1], others_done[2]) = (node("b", "z", NEW, NEW), node("c", "z", NEW, NEW));
        let plan = looked(&others_done, &quarantine(), &[("a", outlook)], 1);
        assert_eq!(goes(&plan), want, "{plan}");
        let removed = plan.patches.iter().any(|p| p.quarantine == rollout::Change::Remove);
        assert_eq!(removed, !want.is_empty(), "{plan}");
    }
    // A person ends it. Another config does, too.
    let mut freed = nodes.clone();
    freed[0].quarantine = None;
    assert_eq!(goes(&looked(&freed, &quarantine(), &[("a", Outlook::Ends)], 1)), "a");
    nodes[0].quarantine = Some(OLD.into());
    let plan = looked(&nodes, &quarantine(), &[("a", Outlook::Ends)], 1);
    assert_eq!(goes(&plan), "a", "{plan}");
}

/// Node `a` is put aside, and all others are done.
fn one_is_quarantined() -> Vec<NodeView> {
    let mut nodes: Vec<NodeView> = ["a", "b", "c"].map(|n| node(n, "z", NEW, NEW)).into();
    nodes[0] = node("a", "z", OLD, OLD);
    nodes[0].quarantine = Some(NEW.into());
    nodes
}

#[test]
fn a_node_that_is_put_aside_waits_for_the_window_too() {
    let windows = vec![Window::new("0 14 * * *", TimeZone::UTC, hours(2)).unwrap()];
    let policy = Policy { windows, max_disruption: Some(MaxDisruption::Drain), ..quarantine() };
    let asks = ChangeAsked { from: OLD.into(), to: NEW.into() };
    let known = [("a", Outlook::Ends)];
    for (least, want) in [(None, ""), (Some(MaxDisruption::Drain), "a")] {
        let costs = [(asks.clone(), Ok(ChangeCost { least, certificates: false }))].into();
        let facts = PolicyFacts { costs, ..PolicyFacts::default() };
        let plan = looked_with(&one_is_quarantined(), Some((&policy, &facts)), &known, |_| {});
        assert_eq!(goes(&plan), want, "{plan}");
        assert_eq!(plan.hold.is_some(), want.is_empty(), "{plan}");
    }
    // If no node can be asked, nothing shows that the change may pass.
    let mut nodes = one_is_quarantined();
    nodes[0].quarantine = None;
    nodes[0].not_ready = Some("NotReady".into());
    let facts = PolicyFacts::default();
    let plan = looked_with(&nodes, Some((&policy, &facts)), &known, |_| {});
    assert!(matches!(plan.hold, Some(Hold::OutsideWindow { .. })), "{plan}");
}

#[test]
fn a_node_that_reboots_anyway_takes_what_waits_for_the_window() {
    const NEWER: &str = "rendered-worker-00000000000000000000000000000003";
    let windows = || vec![Window::new("0 14 * * *", TimeZone::UTC, hours(2)).unwrap()];
    let policy = Policy { windows: windows(), ..Policy::default() };
    let reload = Some(MaxDisruption::Reload);
    let facts = |anyway, waits| {
        let cost = |to: &str, least| {
            (ChangeAsked { from: OLD.into(), to: to.into() }, Ok(ChangeCost { least, certificates: false }))
        };
        PolicyFacts { costs: [cost(NEW, anyway), cost(NEWER, waits)].into(), ..PolicyFacts::default() }
    };
    // `a` drains for the first change, whose window has closed meanwhile. `b` has not begun.
    let mut nodes = vec![given_up(), node("b", "z", OLD, OLD)];
    nodes[0].quarantine = None;
    let to_newer = |policy: &Policy, facts: &PolicyFacts, nodes: &[NodeView]| {
        looked_with(nodes, Some((policy, facts)), &[], |pool| pool.spec.configuration.name = NEWER.to_owned())
    };
    let drain = Some(MaxDisruption::Drain);
    for (anyway, waits, want) in
        [(None, None, "a"), (None, reload, "a"), (drain, drain, "a"), (drain, None, ""), (reload, drain, "")]
    {
        let plan = to_newer(&policy, &facts(anyway, waits), &nodes);
        assert_eq!(goes(&plan), want, "{anyway:?} {waits:?}: {plan}");
        assert!(matches!(plan.hold, Some(Hold::OutsideWindow { .. })), "all others wait: {plan}");
    }
    // As long as a cost is not known, the node stays on its way to the first one, and the costs are asked for, each once.
    let plan = to_newer(&policy, &PolicyFacts::default(), &nodes);
    assert_eq!(goes(&plan), "", "{plan}");
    let limited = Policy { max_disruption: reload, ..policy.clone() };
    let plan = to_newer(&limited, &PolicyFacts::default(), &nodes);
    assert_eq!(plan.policy.map(|p| p.changes.len()), Some(2));
    // Once it has changed something, it ends what it does.
    let mut begun = nodes.clone();
    begun[0].last_applied_drain = begun[0].desired_drain.clone();
    assert_eq!(goes(&to_newer(&policy, &facts(None, None), &begun)), "");
    // In a freeze nothing new begins, and waves keep their order.
    let from = at("2026-07-01T00:00:00Z");
    let freeze = Freeze { from, until: None, reason: "year end".to_owned(), certificates: false };
    let frozen = Policy { freezes: vec![freeze], ..policy.clone() };
    assert_eq!(goes(&to_newer(&frozen, &facts(None, None), &nodes)), "");
    let canary = LabelSelector {
        match_labels: Some([("topology.kubernetes.io/zone".to_owned(), "y".to_owned())].into()),
        ..LabelSelector::default()
    };
    let waves = vec![wave("canary", Members::Selected(canary)), wave("rest", Members::Rest)];
    let in_waves = Policy { waves, ..policy };
    nodes[1] = node("b", "y", OLD, OLD);
    let mut known = facts(None, None);
    known.progress.config = Some(NEWER.to_owned());
    known.progress.wave = Some("canary".to_owned());
    let plan = to_newer(&in_waves, &known, &nodes);
    assert_eq!(goes(&plan), "", "its wave is the second one: {plan}");
}

#[test]
fn a_node_is_not_put_aside_any_longer_than_a_policy_asks_for_it() {
    let facts = PolicyFacts::default();
    let report =
        Policy { drain: Some(DrainLimit { after: hours(1), then: DrainEnd::Report }), ..Policy::default() };
    let without = Policy { node_deadline: Some(hours(1)), ..Policy::default() };
    let known = [("a", Outlook::Ends)];
    for policy in [None, Some(&without), Some(&report)] {
        let plan = looked_with(&one_is_quarantined(), policy.map(|p| (p, &facts)), &known, |_| {});
        let patch = plan.patches.iter().find(|p| &*p.node == "a").unwrap();
        assert_eq!((&*goes(&plan), &patch.quarantine), ("a", &rollout::Change::Remove), "{policy:?}: {plan}");
    }
    // Its drain goes on where it stands.
    let plan = looked_with(&[given_up()], None, &[], |_| {});
    let patch = plan.patches.iter().find(|p| &*p.node == "a").unwrap();
    assert_eq!(
        (&patch.quarantine, &patch.desired_config),
        (&rollout::Change::Remove, &rollout::Change::Keep)
    );
    // Of a policy that cannot be used it is not known what it asks for.
    let plan = unusable(&one_is_quarantined());
    assert!(plan.patches.iter().all(|p| p.quarantine.is_keep()), "{plan}");
}

#[test]
fn a_node_whose_drain_was_given_up_is_called_back_also_while_its_pool_is_paused() {
    let facts = PolicyFacts::default();
    let policy = quarantine();
    for with in [None, Some((&policy, &facts))] {
        let plan = looked_with(&[given_up()], with, &[], |pool| pool.spec.paused = true);
        let patch = plan.patches.iter().find(|p| &*p.node == "a").unwrap();
        assert_eq!(patch.desired_config, rollout::Change::Set(OLD.into()), "{plan}");
        assert!(patch.quarantine.is_keep(), "{plan}");
        assert!(matches!(plan.nodes[0].step, Step::Waits(Wait::Quarantined { .. })), "{plan}");
        let called = patch.applied_to(&given_up());
        let plan = looked_with(&[called], with, &[], |pool| pool.spec.paused = true);
        assert!(plan.patches.is_empty(), "{plan}");
    }
}

#[test]
fn a_wave_does_not_wait_for_a_node_that_is_put_aside() {
    let policy = Policy {
        waves: vec![wave("canary", Members::Number(2)), wave("rest", Members::Rest)],
        drain: quarantine().drain,
        ..Policy::default()
    };
    let mut nodes = six(1, 0);
    nodes[1].quarantine = Some("new".into());
    let mut facts = under_way(&policy, &six(0, 0));
    let plan = settled(&nodes, &policy, &mut facts, NOON);
    assert_eq!(facts.progress.wave.as_deref(), Some("rest"), "{plan}");
    // A wave that consists of it proves nothing.
    let one =
        Policy { waves: vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)], ..policy };
    let mut nodes = six(0, 0);
    nodes[0].quarantine = Some("new".into());
    let mut facts = under_way(&one, &six(0, 0));
    settled(&nodes, &one, &mut facts, NOON);
    assert_eq!(facts.progress.wave.as_deref(), Some("canary"));
}

#[test]
fn a_forecast_knows_what_drains_would_wait_for() {
    let object = |node: &NodeView| {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node.name, "labels": {"node-role.kubernetes.io/worker": ""}, "annotations": {
                annotation::CURRENT_CONFIG: OLD, annotation::DESIRED_CONFIG: OLD, annotation::STATE: "Done"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    };
    let mut objects: Vec<_> = ["a", "b"].iter().map(|n| object(&node(n, "z", OLD, OLD))).collect();
    objects.extend([
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "metadata": {"name": "worker"},
            "spec": {"configuration": {"name": NEW}, "maxUnavailable": 1,
                "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}}}),
        json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "p"},
            "spec": {"pools": {"names": ["worker"]}, "drain": {"after": "1h", "then": "Quarantine"}}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "s", "name": "x", "labels": {"app": "x"}},
            "spec": {"nodeName": "a", "containers": []}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "s", "name": "x"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}}, "status": {"disruptionsAllowed": 0, "currentHealthy": 1,
            "desiredHealthy": 1, "expectedPods": 1}}),
    ]);
    let situation = rollout::Situation::from_objects(objects.iter().map(|o| ("f", o))).unwrap();
    let queue = situation.queue("worker", &Time(at(NOON)));
    assert_eq!(queue.iter().filter(|q| q.now).map(|q| &*q.node).collect::<Vec<_>>(), ["b"], "{queue:?}");
}
