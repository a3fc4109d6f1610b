//! What is shown of a plan: findings, filters, ages, and the outcomes of waiting until updated.

use super::*;
use crate::status::findings::Problem;
use rollout::view::{DaemonState, NodeView};
use rollout::{Capacity, NoPool, PoolPlan, Reason, Target, Unmanaged};
use serde_json::json;
use std::sync::Arc;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A pool with these conditions, all ten minutes old.
fn pool(name: &str, conditions: &[(&str, &str)]) -> MachineConfigPool {
    let since = (now() - jiff::SignedDuration::from_mins(10)).to_string();
    let conditions: Vec<_> = [("Updated", ""), ("Updating", "")]
        .iter()
        .filter(|(t, _)| conditions.iter().all(|(c, _)| c != t))
        .map(|(t, _)| json!({"type": t, "status": "False", "lastTransitionTime": since, "reason": "", "message": ""}))
        .chain(conditions.iter().map(
            |(t, m)| json!({"type": t, "status": "True", "lastTransitionTime": since, "reason": "", "message": m}),
        ))
        .collect();
    serde_json::from_value(
        json!({"metadata": {"name": name}, "spec": {"configuration": {"name": format!("rendered-{name}-1")}},
        "status": {"conditions": conditions}}),
    )
    .unwrap()
}

fn planned(pool: &str, steps: Vec<Step>) -> PoolPlan {
    let step = |(i, step)| NodeStep { node: format!("{pool}-{i}").into(), step };
    PoolPlan {
        pool: pool.into(),
        target: Some(Target { config: format!("rendered-{pool}-1").into(), image: None }),
        capacity: Capacity { max: 1, ..Capacity::default() },
        nodes: steps.into_iter().enumerate().map(step).collect(),
        ..PoolPlan::default()
    }
}

fn shown(plan: &RolloutPlan, pools: Vec<MachineConfigPool>, only: &[&str]) -> Snapshot {
    let nodes = plan.pools.iter().flat_map(|p| &p.nodes).map(|n| {
        let state = if n.step == Step::Done { DaemonState::Done } else { DaemonState::Working };
        let view = NodeView { name: n.node.clone(), state, ..NodeView::default() };
        let readiness = Some(now() - jiff::SignedDuration::from_secs(42));
        (n.node.to_string(), KnownNode { view, readiness })
    });
    let pools = pools.into_iter().map(|p| (p.metadata.name.clone().unwrap(), p)).collect();
    let only: Vec<String> = only.iter().map(|o| (*o).to_owned()).collect();
    let (nodes, progress) = (nodes.collect(), BTreeMap::new());
    Snapshot::of(
        View {
            plan,
            pools: &pools,
            nodes: &nodes,
            policies: None,
            progress: &progress,
            pins: &PinFacts::default(),
        },
        &only,
        now(),
    )
}

fn one(pool_plan: PoolPlan) -> RolloutPlan {
    RolloutPlan { pools: vec![pool_plan], ..RolloutPlan::default() }
}

#[test]
fn each_problem_is_a_finding_and_nothing_else_is() {
    let degraded = |why: &str| Step::Failing(Reason::Daemon(DaemonState::Degraded, Some(why.into())));
    let drain = |wait: Option<&str>| Step::Moving {
        state: DaemonState::Working,
        rebooting: false,
        drain: wait.map(Into::into),
    };
    let queue = || Step::Waits(Wait::Capacity { max: 1, by: vec![Arc::from("worker-0")].into() });
    let held = PoolPlan { hold: Some(Hold::Paused), ..planned("worker", vec![Step::Done]) };
    let unmanaged = |why| RolloutPlan {
        unmanaged: vec![Unmanaged { node: "lost".into(), why, tainted_until: None }],
        ..one(planned("worker", vec![Step::Done]))
    };
    let alert = RolloutPlan { pool_alerts: vec!["m".into()], ..one(planned("worker", vec![])) };
    let both = || NoPool::SeveralCustom(vec!["a".into(), "worker".into()]);
    type Row<'r> = (&'r str, RolloutPlan, &'r [(&'r str, &'r str)], &'r [&'r str], &'r [Problem]);
    let rows: Vec<Row<'_>> = vec![
        ("at rest", one(planned("worker", vec![Step::Done])), &[("Updated", "")], &[], &[]),
        ("a rollout", one(planned("worker", vec![drain(None), queue(), Step::Goes])), &[], &[], &[]),
        (
            "a node fails",
            one(planned("worker", vec![degraded("x")])),
            &[("Degraded", "n")],
            &[],
            &[Problem::Degraded; 2],
        ),
        ("a pool is held", one(held), &[], &[], &[Problem::Held]),
        (
            "a drain waits",
            one(planned("worker", vec![drain(Some("a/b"))])),
            &[],
            &[],
            &[Problem::DrainBlocked],
        ),
        ("pinned", one(planned("worker", vec![Step::Done])), &[], &[], &[Problem::Held]),
        (
            "a selector",
            one(planned("worker", vec![])),
            &[("MembershipConflict", "x")],
            &[],
            &[Problem::Conflict],
        ),
        ("in no pool", unmanaged(NoPool::NoMatch), &[], &[], &[Problem::NoPool]),
        ("in no pool, and one pool is asked for", unmanaged(NoPool::NoMatch), &[], &["worker"], &[]),
        ("in two", unmanaged(both()), &[], &[], &[Problem::Conflict]),
        ("in two, one of them asked for", unmanaged(both()), &[], &["worker"], &[Problem::Conflict]),
        ("a control-plane node", alert, &[], &[], &[Problem::Conflict]),
    ];
    for (about, plan, conditions, only, want) in rows {
        let mut worker = pool("worker", conditions);
        if about == "pinned" {
            let pin = (rollout::view::own::PINNED.to_owned(), "rendered-worker-0".to_owned());
            worker.metadata.annotations = Some([pin].into());
        }
        let snapshot = shown(&plan, vec![worker], only);
        let said: Vec<Problem> = snapshot.findings.iter().map(|f| f.problem).collect();
        assert_eq!(said, want, "{about}: {:?}", snapshot.findings);
        assert!(snapshot.findings.iter().all(|f| !f.message.is_empty()), "{about}");
    }
}

#[test]
fn a_pool_that_is_held_in_an_older_config_is_not_updated_and_says_so() {
    let plan = one(planned("worker", vec![Step::Done]));
    let mut worker = pool("worker", &[("Updated", "")]);
    let free = shown(&plan, vec![worker.clone()], &[]);
    assert!(free.is_updated() && free.stuck().is_none());
    let pin = (rollout::view::own::PINNED.to_owned(), "rendered-worker-0".to_owned());
    worker.metadata.annotations = Some([pin].into());
    let held = shown(&plan, vec![worker], &[]);
    assert!(!held.is_updated());
    assert!(held.stuck().unwrap().contains("rendered-worker-0"), "{:?}", held.stuck());
    assert!(held.has_node("worker-0") && !held.has_node("worker-00"));
}

#[test]
fn of_a_thousand_nodes_only_the_unfinished_are_listed() {
    let mut steps = vec![Step::Done; 998];
    steps.push(Step::Waits(Wait::Node(Reason::NotReady("kubelet".into()))));
    steps.push(Step::Waits(Wait::Capacity { max: 1, by: vec![Arc::from("worker-7")].into() }));
    let all = shown(&one(planned("worker", steps)), vec![pool("worker", &[])], &[]);
    let undone = Filter { phases: vec![Phase::Waits], nodes: vec![] };
    let shown = all.clone().filtered(&undone);
    let row = |node: &str| shown.pools[0].nodes.iter().find(|n| n.name == node).unwrap();
    let ago = |node: &str| now().duration_since(row(node).since.unwrap()).as_secs();
    assert_eq!((ago("worker-998"), ago("worker-999"), shown.hidden_nodes), (42, 600, 998));
    assert!(row("worker-998").why.contains("kubelet"), "{:?}", row("worker-998"));
    assert_eq!(all.pools[0].machines, 1000);
    let named = Filter { phases: vec![], nodes: vec!["worker-3".to_owned()] };
    let named = all.clone().filtered(&named);
    assert_eq!((named.pools[0].nodes.len(), named.hidden_nodes), (1, 999));
    assert_eq!(all.clone().filtered(&Filter::default()), all);
    let failing = all.filtered(&Filter { phases: vec![Phase::Failing], nodes: vec![] });
    assert_eq!((failing.pools[0].nodes.len(), failing.hidden_nodes), (0, 1000));
}

#[test]
fn a_phase_has_one_name_on_the_command_line_and_in_json() {
    for phase in Phase::ALL {
        assert_eq!(json!(phase), phase.name());
        assert!(!phase.meaning().is_empty());
    }
}

#[test]
fn a_blocked_pool_says_why_and_a_refused_pool_is_not_updated() {
    let waits = || planned("worker", vec![Step::Done, Step::Waits(Wait::Pool)]);
    let paused = PoolPlan { hold: Some(Hold::Paused), ..waits() };
    let snapshot = shown(&one(paused), vec![pool("worker", &[])], &[]);
    assert_eq!(snapshot.stuck().as_deref(), Some("pool worker: the pool is paused"));
    let refused = pool("worker", &[("Updated", ""), ("RenderDegraded", "50-a: mode")]);
    let snapshot = shown(&one(planned("worker", vec![Step::Done])), vec![refused], &[]);
    assert!(!snapshot.is_updated());
    assert_eq!(snapshot.stuck().as_deref(), Some("pool worker: it cannot be rendered: 50-a: mode"));
    let moving = Step::Moving { state: DaemonState::Working, rebooting: true, drain: None };
    let snapshot = shown(&one(planned("worker", vec![Step::Done, moving])), vec![pool("worker", &[])], &[]);
    assert_eq!(snapshot.stuck(), None);
    assert_eq!(snapshot.waits_for(), "pool worker, 1 of 2 nodes updated: node worker-1: moving: rebooting");
    let there =
        shown(&one(planned("worker", vec![Step::Done])), vec![pool("worker", &[("Updated", "")])], &[]);
    assert!(there.is_updated() && there.stuck().is_none());
}

#[test]
fn a_pool_says_how_many_nodes_have_the_images_of_its_sets_and_why_others_do_not() {
    let node = |sets: serde_json::Value| -> Option<Arc<Progress>> {
        let status =
            serde_json::json!({"configVersion": {"current": "r", "desired": "r"}, "pinnedImageSets": sets});
        let object = serde_json::json!({"metadata": {}, "status": status});
        Progress::of(&serde_json::from_value(object).unwrap()).map(Arc::new)
    };
    let done = |name: &str| serde_json::json!({"name": name, "desiredGeneration": 2, "currentGeneration": 2});
    let failed = serde_json::json!({"name": "b", "desiredGeneration": 2, "currentGeneration": 1, "lastFailedGeneration": 2,
        "lastFailedGenerationError": "failed to pull image x: not found"});
    let nodes = [
        ("n1", node(serde_json::json!([done("a"), done("b")]))),
        ("n2", node(serde_json::json!([done("a"), failed]))),
        ("n3", node(serde_json::json!([done("a")]))),
    ];
    let nodes = nodes.into_iter().map(|(name, progress)| (name.into(), progress.unwrap().pins.clone()));
    let mut pins = PinFacts { nodes: nodes.collect(), ..PinFacts::default() };
    let pool = |sets: serde_json::Value| -> MachineConfigPool {
        serde_json::from_value(
            serde_json::json!({"metadata": {"name": "p"}, "spec": {"pinnedImageSets": sets}}),
        )
        .unwrap()
    };
    let nodes = || ["n1", "n2", "n3", "n4"].into_iter();
    let both = pool(serde_json::json!([{"name": "a"}, {"name": "b"}]));
    let text = images(&both, nodes(), &pins).unwrap();
    let want =
        "1 of 4 nodes have the images of a, b; node n2: PinnedImageSet b: failed to pull image x: not found";
    assert_eq!(text, want);
    assert_eq!(images(&pool(serde_json::json!(null)), nodes(), &pins), None);
    // A set was changed just now, and no node has seen that yet: the controller counts none of them either.
    pins.generations = [("a".to_owned(), 2), ("b".to_owned(), 3)].into();
    assert!(images(&both, nodes(), &pins).unwrap().starts_with("0 of 4 nodes have the images of a, b"));
}
