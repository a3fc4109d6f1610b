//! Drains step by step: cordon, evictions by kubectl's rules, budgets, reports, uncordon, and cordons that are kept.
//! They include cases 164 to 166 from the table of the reference's own tests, by number.
//!
//! What it is not: limits of drains (see `limits`).

mod limits;

use crate::common::{Mk, at, moved};
use rollout::drain::{Answer, Blocker, Drain, DrainPlan, LATE_AFTER, Request, SLOW_AFTER, Skip, plan};
use rollout::view::{BudgetView, CordonMark, Names, NodeView, PodView};
use serde_json::{Value, json};

fn node(desired: &str, applied: &str) -> Mk {
    let mut node = moved("n", "v0", "v1").note("desiredDrain", desired);
    if !applied.is_empty() {
        node = node.note("lastAppliedDrain", applied);
    }
    node
}

fn pod(name: &str, change: &Value) -> PodView {
    let mut pod = json!({
        "metadata": {"namespace": "app", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", "controller": true}]},
        "spec": {"nodeName": "n", "containers": [], "terminationGracePeriodSeconds": 30},
        "status": {"phase": "Running"},
    });
    merge(&mut pod, change);
    PodView::from_pod(&serde_json::from_value(pod).unwrap(), &mut Names::default())
}

fn merge(to: &mut Value, change: &Value) {
    match (to, change) {
        (Value::Object(to), Value::Object(change)) => {
            change.iter().for_each(|(k, v)| merge(to.entry(k.clone()).or_insert(Value::Null), v));
        }
        (to, change) => *to = change.clone(),
    }
}

fn budget(selector: &Value, allowed: i32) -> BudgetView {
    let budget = json!({
        "metadata": {"namespace": "app", "name": "pdb"},
        "spec": {"selector": selector, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    BudgetView::from_budget(&serde_json::from_value(budget).unwrap(), &mut Names::default())
}

fn run(node: &NodeView, pods: &[PodView], budgets: &[BudgetView], state: &Drain, second: i64) -> DrainPlan {
    plan(node, &pods.iter().collect::<Vec<_>>(), &budgets.iter().collect::<Vec<_>>(), state, at(second))
}

fn apply(node: &mut NodeView, plan: &DrainPlan) {
    if let Some(patch) = &plan.patch {
        *node = patch.applied_to(node);
    }
}

fn evicted(plan: &DrainPlan) -> Vec<&str> {
    plan.evict.iter().map(|e| &*e.name).collect()
}

#[test]
fn a_refused_cordon_is_reported_as_refused() {
    let told = |node: &NodeView, state: &Drain| {
        let plan = run(node, &[], &[], state, 0);
        let progress = plan.progress_when_refused("denied");
        progress.map(|p| (p.parent.type_, p.parent.status, p.child.unwrap().type_, p.parent.message))
    };
    let rows = [
        (node("drain-v1", "").view(), Some(("UpdateExecuted", "Cordoned", "cordoned"))),
        (
            node("uncordon-v1", "drain-v1").cordoned().view(),
            Some(("UpdateComplete", "Uncordoned", "cannot be uncordoned")),
        ),
        // The refused patch only records that the node is drained.
        (node("drain-v1", "").cordoned().note("cordon", "drain").view(), None),
        (node("drain-v1", "drain-v1").view(), None),
    ];
    for (node, want) in rows {
        let got = told(&node, &Drain::Idle);
        assert_eq!(got.is_some(), want.is_some(), "{got:?}");
        let (Some((parent, status, child, message)), Some(want)) = (got, want) else { continue };
        assert_eq!((parent.as_str(), status.as_str(), child.as_str()), (want.0, "Unknown", want.1));
        assert!(message.contains(want.2) && message.contains("denied"), "{message}");
    }
}

#[test]
fn a_request_is_open_until_it_is_echoed() {
    let rows = [
        ("drain-v1", "", Request::Drain("drain-v1")),
        ("drain-v1", "uncordon-v0", Request::Drain("drain-v1")),
        ("drain-v1", "drain-v1", Request::None),
        ("uncordon-v1", "drain-v1", Request::Uncordon("uncordon-v1")),
        ("reboot-v1", "", Request::Unknown("reboot-v1")),
        ("nonsense", "drain-v1", Request::Unknown("nonsense")),
        ("", "", Request::None),
    ];
    for (desired, applied, want) in rows {
        assert_eq!(Request::of(&node(desired, applied).view()), want, "{desired} {applied}");
    }
    let plan = run(&node("nonsense", "").view(), &[], &[], &Drain::Idle, 0);
    assert!(plan.patch.is_none() && plan.refused.unwrap().contains("nonsense"));
}

#[test]
fn a_drain_cordons_then_evicts_then_reports_done() {
    let mut node = node("drain-v1", "uncordon-v0").view();
    let pods = [pod("web", &json!({}))];
    let first = run(&node, &pods, &[], &Drain::Idle, 0);
    let patch = first.patch.as_ref().unwrap();
    assert_eq!(patch.unschedulable, Some(true), "165");
    assert!(first.evict.is_empty(), "no eviction before the cordon was seen");
    assert_eq!(first.progress.as_ref().unwrap().child.as_ref().unwrap().type_, "Cordoned");
    apply(&mut node, &first);
    let second = run(&node, &pods, &[], &first.state, 1);
    assert_eq!(evicted(&second), ["web"]);
    assert!(second.patch.is_none());
    let mut state = second.state;
    state.record("uid-web", Answer::Accepted, at(1));
    let third = run(&node, &pods, &[], &state, 2);
    assert!(third.evict.is_empty(), "asked once");
    let leaving = [pod("web", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))];
    let fourth = run(&node, &leaving, &[], &third.state, 3);
    assert!(fourth.evict.is_empty() && fourth.patch.is_none());
    assert_eq!(fourth.waiting[0].why, Blocker::Terminating(Some(30)));
    let fifth = run(&node, &[], &[], &fourth.state, 4);
    apply(&mut node, &fifth);
    assert_eq!(node.last_applied_drain.as_deref(), Some("drain-v1"), "165");
    assert_eq!((fifth.state, node.cordon), (Drain::Idle, Some(CordonMark::Drain)));
    node.desired_drain = Some("uncordon-v1".into());
    let last = run(&node, &[], &[], &Drain::Idle, 5);
    apply(&mut node, &last);
    assert!(!node.unschedulable, "164");
    assert_eq!((node.last_applied_drain.as_deref(), node.cordon), (Some("uncordon-v1"), None), "164");
    assert_eq!(run(&node, &[], &[], &Drain::Idle, 6), DrainPlan { node: "n".into(), ..DrainPlan::default() });
}

#[test]
fn a_node_uncordoned_during_a_drain_is_cordoned_again_and_not_reported_drained() {
    let mut node = node("drain-v1", "").view();
    let first = run(&node, &[], &[], &Drain::Idle, 0);
    apply(&mut node, &first);
    node.unschedulable = false;
    let again = run(&node, &[], &[], &first.state, 9);
    let patch = again.patch.unwrap();
    assert_eq!(patch.unschedulable, Some(true), "166");
    assert!(patch.last_applied_drain.is_keep(), "166");
    assert!(
        matches!(again.state, Drain::Draining { since, .. } if since == at(9)),
        "the time limit starts again"
    );
}

#[test]
fn pods_are_chosen_as_kubectl_chooses_them() {
    let daemon_set = json!({"metadata": {"ownerReferences":
        [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "1", "controller": true}]}});
    let mut finished_ds = daemon_set.clone();
    finished_ds["status"] = json!({"phase": "Failed"});
    let rows = [
        ("of a ReplicaSet", json!({}), Ok((false, false))),
        ("of a DaemonSet", daemon_set, Err(Skip::DaemonSet)),
        ("of a DaemonSet, finished", finished_ds, Ok((false, false))),
        (
            "mirror",
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
            Err(Skip::Mirror),
        ),
        ("without controller", json!({"metadata": {"ownerReferences": null}}), Ok((true, false))),
        ("with emptyDir", json!({"spec": {"volumes": [{"name": "x", "emptyDir": {}}]}}), Ok((false, true))),
        (
            "finished",
            json!({"metadata": {"ownerReferences": null}, "status": {"phase": "Succeeded"}}),
            Ok((false, false)),
        ),
    ];
    let node = node("drain-v1", "").cordoned().view();
    for (about, change, want) in rows {
        let plan = run(&node, &[pod("p", &change)], &[], &Drain::Idle, 0);
        let got = match &*plan.evict {
            [one] => Ok((one.unmanaged, one.loses_data)),
            _ => Err(plan.skipped[0].why),
        };
        assert_eq!(got, want, "{about}");
        assert!(plan.evict.iter().all(|e| e.grace.is_none() && &*e.uid == "uid-p"), "{about}");
        assert_eq!(plan.patch.is_some(), want.is_err(), "{about}: pods that stay do not block the drain");
    }
    let elsewhere = pod("p", &json!({"spec": {"nodeName": "other"}}));
    assert!(run(&node, &[elsewhere], &[], &Drain::Idle, 0).evict.is_empty());
}

fn blocked(state: &mut Drain, second: i64) {
    state.record("uid-web", Answer::from_status(429, "Cannot evict pod"), at(second));
}

#[test]
fn a_drain_waits_for_a_disruption_budget_and_names_it() {
    let node = node("drain-v1", "").cordoned().view();
    let pods = [pod("web", &json!({}))];
    let none = [budget(&json!({"matchLabels": {"app": "web"}}), 0)];
    let mut state = run(&node, &pods, &none, &Drain::Idle, 0).state;
    blocked(&mut state, 0);
    let waits = run(&node, &pods, &none, &state, 0);
    assert!(waits.evict.is_empty() && waits.patch.is_none());
    assert!(waits.recheck.unwrap() <= jiff::SignedDuration::from_secs(1));
    let text = waits.waiting[0].to_string();
    for part in ["app/web", "app/pdb", "allows 0 disruptions", "1 pods healthy, 1 needed"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(evicted(&run(&node, &pods, &none, &state, 2)), ["web"], "retried after a delay");
    let free = [budget(&json!({}), 1)];
    let soon = at(0) + jiff::SignedDuration::from_millis(300);
    let refs = (pods.iter().collect::<Vec<_>>(), free.iter().collect::<Vec<_>>());
    assert_eq!(
        evicted(&plan(&node, &refs.0, &refs.1, &waits.state, soon)),
        ["web"],
        "at once when the budget allows it"
    );
    let other = [budget(&json!({"matchLabels": {"app": "db"}}), 0)];
    let unknown = run(&node, &pods, &other, &state, 0);
    assert!(matches!(&unknown.waiting[0].why, Blocker::UnknownBudget(text) if text == "Cannot evict pod"));
}

#[test]
fn only_as_many_evictions_are_tried_as_the_budget_allows() {
    let node = node("drain-v1", "").cordoned().view();
    let pods: Vec<_> = ["a", "b", "c"].map(|n| pod(n, &json!({}))).into();
    let mut state = run(&node, &pods, &[], &Drain::Idle, 0).state;
    for name in ["a", "b", "c"] {
        for _ in 0..6 {
            state.record(&format!("uid-{name}"), Answer::from_status(429, "no"), at(0));
        }
    }
    let plan = run(&node, &pods, &[budget(&json!({}), 1)], &state, 1);
    assert_eq!(evicted(&plan), ["a"]);
}

#[test]
fn an_overdue_drain_is_reported_once_at_the_time_limit() {
    let mut node = node("drain-v1", "").cordoned().view();
    let pods = [pod("web", &json!({}))];
    let budgets = [budget(&json!({}), 0)];
    let mut state = run(&node, &pods, &budgets, &Drain::Idle, 0).state;
    let mut said = vec![];
    let mut writes = 0;
    for second in (0..4_000).step_by(5) {
        blocked(&mut state, second);
        let plan = run(&node, &pods, &budgets, &state, second);
        said.extend(plan.events.iter().map(|e| (second, e.reason.to_string())));
        writes += usize::from(plan.patch.is_some());
        assert_eq!(plan.late, second >= LATE_AFTER.as_secs());
        apply(&mut node, &plan);
        state = plan.state;
    }
    let want = [
        (10, "DrainWaiting"),
        (SLOW_AFTER.as_secs(), "DrainThresholdExceeded"),
        (LATE_AFTER.as_secs(), "DrainFailed"),
    ];
    assert_eq!(said, want.map(|(s, r)| (s, r.to_owned())));
    assert_eq!(writes, 1, "the text does not change");
    assert!(node.drain_wait.as_deref().unwrap().contains("PodDisruptionBudget app/pdb allows 0 disruptions"));
    let done = run(&node, &[], &budgets, &state, 4_001);
    apply(&mut node, &done);
    assert_eq!(node.drain_wait, None);
}

#[test]
fn a_drain_whose_pods_cannot_be_listed_says_so_and_evicts_nothing() {
    let mut node = node("drain-v1", "").cordoned().view();
    let mut state = Drain::default();
    let mut said = vec![];
    for second in [0, 5, 12, 20, 700] {
        let why = if second < 20 { "forbidden" } else { "no answer" };
        let plan = rollout::drain::plan_unreadable(&node, &state, why, at(second));
        assert!(plan.evict.is_empty() && plan.waiting.is_empty(), "{plan}");
        said.extend(plan.events.iter().map(|e| (second, e.reason.to_string())));
        apply(&mut node, &plan);
        state = plan.state;
        let wait = node.drain_wait.as_deref().unwrap();
        assert!(wait.contains("list of its pods") && wait.contains(why), "{second}: {wait}");
        assert_eq!(
            node.last_applied_drain.as_deref().unwrap_or_default(),
            "",
            "the node is not reported drained"
        );
    }
    assert_eq!(said, [(12, "DrainWaiting".to_owned()), (700, "DrainThresholdExceeded".to_owned())]);
    // The pods can be listed again, and there are none.
    let plan = run(&node, &[], &[], &state, 701);
    apply(&mut node, &plan);
    assert_eq!((node.last_applied_drain.as_deref(), node.drain_wait), (Some("drain-v1"), None));
}

#[test]
fn a_persons_cordon_stays_after_the_update() {
    let mut node = node("drain-v1", "uncordon-v0").cordoned().view();
    let drained = run(&node, &[], &[], &Drain::Idle, 0);
    apply(&mut node, &drained);
    assert_eq!(node.cordon, Some(CordonMark::Kept));
    node.desired_drain = Some("uncordon-v1".into());
    let plan = run(&node, &[], &[], &Drain::Idle, 1);
    apply(&mut node, &plan);
    assert!(node.unschedulable && node.cordon.is_none());
    assert_eq!(node.last_applied_drain.as_deref(), Some("uncordon-v1"), "the daemon continues");
    let text = plan.progress.unwrap().parent.message;
    assert!(text.contains("stays so"), "{text}");
}

#[test]
fn our_cordon_is_recognised_after_a_restart_and_after_a_second_target() {
    let mut node = node("drain-v1", "uncordon-v0").view();
    let first = run(&node, &[], &[], &Drain::Idle, 0);
    apply(&mut node, &first);
    // The controller restarts here: its state is lost, but the mark is on the node.
    let drained = run(&node, &[], &[], &Drain::Idle, 1);
    apply(&mut node, &drained);
    assert_eq!(node.cordon, Some(CordonMark::Drain));
    // The pool's config changes in the middle of the update: another drain without an uncordon in between.
    node.desired_drain = Some("drain-v2".into());
    let again = run(&node, &[], &[], &Drain::Idle, 2);
    apply(&mut node, &again);
    node.desired_drain = Some("uncordon-v2".into());
    let last = run(&node, &[], &[], &Drain::Idle, 3);
    apply(&mut node, &last);
    assert!(!node.unschedulable);
    // A drain by another controller leaves no mark, only its last applied request.
    let mut foreign = crate::common::moved("n", "v0", "v2")
        .cordoned()
        .note("desiredDrain", "drain-v2")
        .note("lastAppliedDrain", "drain-v1")
        .view();
    let drained = run(&foreign, &[], &[], &Drain::Idle, 0);
    apply(&mut foreign, &drained);
    assert_eq!(foreign.cordon, None, "not a person's");
}
