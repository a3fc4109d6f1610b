//! What is shown of a plan: findings, filters, ages, and how a wait for the end ends.

use super::follow::KnownNode;
use super::*;
use rollout::view::{DaemonState, NodeView};
use rollout::{Capacity, NoPool, PoolPlan, Reason, Target, Unmanaged};
use serde_json::json;
use std::sync::Arc;

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A pool whose conditions are these, since ten minutes.
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
    from_plan(plan, &pools, &nodes.collect(), &BTreeMap::new(), &only, now())
}

fn one(pool_plan: PoolPlan) -> RolloutPlan {
    RolloutPlan { pools: vec![pool_plan], ..RolloutPlan::default() }
}

#[test]
fn every_thing_that_is_not_as_it_should_be_is_a_finding_and_nothing_else_is() {
    let degraded = |why: &str| Step::Failing(Reason::Daemon(DaemonState::Degraded, Some(why.into())));
    let drain = |wait: Option<&str>| Step::Moving {
        state: DaemonState::Working,
        rebooting: false,
        drain: wait.map(Into::into),
    };
    let queue = || Step::Waits(Wait::Capacity { max: 1, by: vec![Arc::from("worker-0")].into() });
    let held = PoolPlan { hold: Some(Hold::Paused), ..planned("worker", vec![Step::Done]) };
    let unmanaged = |why| RolloutPlan {
        unmanaged: vec![Unmanaged { node: "lost".into(), why }],
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
fn of_a_thousand_nodes_those_that_are_not_done_are_listed_and_the_others_counted() {
    let mut steps = vec![Step::Done; 998];
    steps.push(Step::Waits(Wait::Node(Reason::NotReady("kubelet".into()))));
    steps.push(Step::Waits(Wait::Capacity { max: 1, by: vec![Arc::from("worker-7")].into() }));
    let all = shown(&one(planned("worker", steps)), vec![pool("worker", &[])], &[]);
    let undone = Filter { phases: vec![Phase::Waits], nodes: vec![] };
    let text = all.clone().filtered(&undone).text_at(now());
    assert!(text.lines().count() < 12, "{text}");
    let row =
        |node: &str| text.lines().find(|l| l.trim_start().starts_with(node)).unwrap_or_default().to_owned();
    assert!(row("worker-998").contains("42 s") && row("worker-998").contains("kubelet"), "{text}");
    assert!(row("worker-999").contains("10 min"), "{text}");
    assert!(text.contains("998 nodes are not shown"), "{text}");
    assert_eq!(all.pools[0].machines, 1000);
    let named = Filter { phases: vec![], nodes: vec!["worker-3".to_owned()] };
    let named = all.clone().filtered(&named);
    assert_eq!((named.pools[0].nodes.len(), named.hidden_nodes), (1, 999));
    assert_eq!(all.clone().filtered(&Filter::default()), all);
    assert!(
        !all.filtered(&Filter { phases: vec![Phase::Failing], nodes: vec![] })
            .text_at(now())
            .contains("NODE ")
    );
}

#[test]
fn a_pool_that_cannot_get_there_says_why_and_one_that_was_refused_is_not_updated() {
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

/// A path of jq, as far as examples use them: fields, `[]`, `| {a, b}`, `| select(.a == "b")`.
fn follows(value: &serde_json::Value, filter: &str) -> Result<(), String> {
    let mut at = vec![value];
    for part in filter.split('|').map(str::trim) {
        if let Some(fields) = part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
            let missing = fields.split(',').map(str::trim).find(|f| at.iter().all(|v| v.get(f).is_none()));
            return missing.map_or(Ok(()), |f| Err(format!("no field {f:?}")));
        }
        for step in part.trim_start_matches('.').split('.') {
            let (field, each) = step.strip_suffix("[]").map_or((step, false), |f| (f, true));
            at = at.into_iter().filter_map(|v| v.get(field)).collect();
            if each {
                at = at.into_iter().filter_map(|v| v.as_array()).flatten().collect();
            }
            if at.is_empty() {
                return Err(format!("no field {field:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn the_fields_that_examples_of_jq_name_are_there() {
    let held =
        PoolPlan { hold: Some(Hold::Paused), ..planned("worker", vec![Step::Done, Step::Waits(Wait::Pool)]) };
    let value = json!(shown(&one(held), vec![pool("worker", &[("Degraded", "x")])], &[]));
    follows(&value, ".pools[].waiting").unwrap_err();
    let help = <crate::args::Mco as clap::CommandFactory>::command();
    let status = help.find_subcommand("status").unwrap().get_after_help().unwrap().to_string();
    let guide = include_str!("../../../../docs/rollouts.md");
    let lines = status.lines().chain(guide.lines()).filter(|l| l.contains("mco status"));
    let filters: Vec<&str> = lines.filter_map(|l| l.split("jq '").nth(1)?.split('\'').next()).collect();
    assert!(filters.len() >= 2, "{filters:?}");
    for filter in filters {
        follows(&value, filter).unwrap_or_else(|e| panic!("jq '{filter}': {e} in {value}"));
    }
}
