//! Drains that take too long, by the limits of a RolloutPolicy; and what a drain would wait for, known before the cordon.

use super::{apply, budget, evicted, node, pod};
use crate::common::{at, moved};
use api::v1alpha1::DrainEnd;
use rollout::drain::{Answer, Drain, DrainLimit, DrainPlan, Outlook, outlook, plan_unreadable, plan_within};
use rollout::view::NodeView;
use serde_json::json;

#[test]
fn a_drain_past_its_limit_is_told_or_given_up_or_goes_past_the_budget_and_not_before() {
    let pods = [pod("web", &json!({}))];
    let budgets = [budget(&json!({}), 0)];
    let (pods, budgets): (Vec<_>, Vec<_>) = (pods.iter().collect(), budgets.iter().collect());
    for then in [DrainEnd::Report, DrainEnd::Quarantine, DrainEnd::DeletePods] {
        let limit = Some(DrainLimit { after: jiff::SignedDuration::from_secs(60), then });
        let mut node = moved("n", "rendered-a-1", "rendered-a-2")
            .note("desiredDrain", "drain-rendered-a-2")
            .cordoned()
            .note("cordon", "drain")
            .view();
        let first = plan_within(limit, &node, &pods, &budgets, &Drain::Idle, at(0));
        let mut state = first.state;
        state.record("uid-web", Answer::Blocked("no".to_owned()), at(0));
        let before = plan_within(limit, &node, &pods, &budgets, &state, at(59));
        assert!(before.evict.iter().all(|e| !e.past_budget) && before.over.is_none(), "{then:?}: {before}");
        assert!(before.recheck <= Some(jiff::SignedDuration::from_secs(1)), "{then:?}: {:?}", before.recheck);
        let mut state = before.state;
        state.record("uid-web", Answer::Blocked("no".to_owned()), at(59));
        let after = plan_within(limit, &node, &pods, &budgets, &state, at(60));
        assert!(after.over.as_ref().unwrap().contains("the drain of node n takes more than 1m"), "{after:?}");
        let told = |plan: &DrainPlan| {
            plan.events.iter().filter(|e| e.message.contains("takes more than 1m")).count()
        };
        assert_eq!(told(&after), 1, "{then:?}");
        let past: Vec<bool> = after.evict.iter().map(|e| e.past_budget).collect();
        assert_eq!(past, if then == DrainEnd::DeletePods { vec![true] } else { vec![] }, "{then:?}");
        apply(&mut node, &after);
        let quarantined = (then == DrainEnd::Quarantine).then_some("rendered-a-2");
        assert_eq!(node.quarantine.as_deref(), quarantined, "{then:?}");
        let again = plan_within(limit, &node, &pods, &budgets, &after.state, at(90));
        assert_eq!(told(&again), 0, "{then:?}: it is told once");
        assert_eq!(
            again.evict.is_empty(),
            quarantined.is_some(),
            "{then:?}: what is put aside keeps its pods"
        );
    }
}

#[test]
fn the_time_of_a_drain_goes_on_under_the_next_leader_and_is_written_only_where_it_is_limited() {
    let pods = [pod("web", &json!({}))];
    let budgets = [budget(&json!({}), 0)];
    let (pods, budgets): (Vec<_>, Vec<_>) = (pods.iter().collect(), budgets.iter().collect());
    let minute = Some(DrainLimit { after: jiff::SignedDuration::from_secs(60), then: DrainEnd::Report });
    let draining = |node: &NodeView| node.draining.as_deref().map(str::to_owned);
    let recorded = Some(format!("drain-v1 {}", at(0)));
    // Written with the cordon, and in no patch of its own.
    let mut node = node("drain-v1", "").view();
    let cordon = plan_within(minute, &node, &pods, &budgets, &Drain::Idle, at(0));
    apply(&mut node, &cordon);
    assert_eq!((node.unschedulable, draining(&node)), (true, recorded.clone()));
    let same = plan_within(minute, &node, &pods, &budgets, &cordon.state, at(5));
    assert!(same.patch.is_none(), "{same}");
    // Each of these is a leader that has seen nothing of it.
    let new_leader = |node: &NodeView, at| {
        let first = plan_within(minute, node, &pods, &budgets, &Drain::Idle, at);
        assert!(first.over.is_none(), "no pod was asked to go yet: {first:?}");
        let mut state = first.state;
        state.record("uid-web", Answer::Blocked("no".to_owned()), at);
        plan_within(minute, node, &pods, &budgets, &state, at)
    };
    let early = new_leader(&node, at(59));
    assert!(early.over.is_none() && early.recheck <= Some(jiff::SignedDuration::from_secs(1)), "{early:?}");
    assert!(new_leader(&node, at(60)).over.is_some());
    let unreadable = plan_unreadable(&node, &Drain::Idle, "no", at(601));
    assert!(unreadable.events.iter().any(|e| e.message.contains("more than 10 minutes")), "{unreadable}");
    // A note that is about another drain, from a clock that is ahead, or no note at all, counts for nothing.
    for (note, is_over) in [("drain-v0", false), ("drain-v1", true)] {
        node.draining = Some(format!("{note} {}", at(0)).into());
        assert_eq!(new_leader(&node, at(90)).over.is_some(), is_over, "{note}");
    }
    for note in ["drain-v1", "drain-v1 soon", "", &format!("drain-v1 {}", at(5000))] {
        node.draining = Some(note.into());
        assert!(new_leader(&node, at(90)).over.is_none(), "{note}");
    }
    // It goes with the drain, however that ends.
    node.draining = recorded.as_deref().map(Into::into);
    let mut drained = node.clone();
    let end = plan_within(minute, &drained, &[], &[], &Drain::Idle, at(70));
    apply(&mut drained, &end);
    assert_eq!((drained.last_applied_drain.as_deref(), draining(&drained)), (Some("drain-v1"), None));
    let mut back = node.clone();
    back.desired_drain = None;
    let end = new_leader(&back, at(70));
    apply(&mut back, &end);
    assert_eq!(draining(&back), None);
    // A drain that was under way when the policy got its limit; and one that nothing limits.
    node.draining = None;
    let unlimited = plan_within(None, &node, &pods, &budgets, &Drain::Idle, at(100));
    assert!(unlimited.patch.is_none(), "{unlimited}");
    let mut state = unlimited.state;
    state.record("uid-web", Answer::Blocked("no".to_owned()), at(100));
    let limited = plan_within(minute, &node, &pods, &budgets, &state, at(170));
    assert!(limited.over.is_some(), "it has lasted so long already");
    apply(&mut node, &limited);
    assert_eq!(draining(&node), Some(format!("drain-v1 {}", at(100))));
}

#[test]
fn a_node_that_cannot_be_called_back_is_not_put_aside_and_its_drain_goes_on() {
    let pods = [pod("web", &json!({}))];
    let budgets = [budget(&json!({}), 0)];
    let (pods, budgets): (Vec<_>, Vec<_>) = (pods.iter().collect(), budgets.iter().collect());
    let limit = Some(DrainLimit { after: jiff::SignedDuration::from_secs(60), then: DrainEnd::Quarantine });
    let rows = [
        ("rendered-b-1", "", true, "of the same pool"),
        ("rendered-a-1", "", false, "it comes from another pool"),
        ("rendered-b-2", "", false, "only its image changes"),
        ("rendered-a-1", "rendered-b-2", false, "it was marked all the same"),
    ];
    for (current, mark, is_put_aside, about) in rows {
        let mut node = moved("n", current, "rendered-b-2")
            .note("desiredDrain", "drain-rendered-b-2")
            .cordoned()
            .note("cordon", "drain")
            .view();
        node.quarantine = (!mark.is_empty()).then(|| mark.into());
        let first = plan_within(limit, &node, &pods, &budgets, &Drain::Idle, at(0));
        let mut state = first.state;
        state.record("uid-web", Answer::Blocked("no".to_owned()), at(0));
        let after = plan_within(limit, &node, &pods, &budgets, &state, at(60));
        let over = after.over.as_deref().unwrap();
        assert_eq!(over.contains("is given up"), is_put_aside, "{about}: {over}");
        apply(&mut node, &after);
        let want = is_put_aside.then_some("rendered-b-2").or((!mark.is_empty()).then_some(mark));
        assert_eq!(node.quarantine.as_deref(), want, "{about}");
        let later = plan_within(limit, &node, &pods, &budgets, &after.state, at(90));
        assert_eq!(evicted(&later).is_empty(), is_put_aside, "{about}: {later}");
    }
}

#[test]
fn a_look_before_the_cordon_finds_what_a_drain_would_wait_for() {
    let node = node("", "").view();
    let bare = json!({"metadata": {"ownerReferences": null}});
    let scratch = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let daemon_set = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "1", "controller": true}]}});
    let elsewhere = json!({"spec": {"nodeName": "m"}});
    let finished = json!({"status": {"phase": "Succeeded"}});
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let all = || json!({});
    let rows = [
        (vec![], 0, "its pods can leave"),
        (vec![pod("web", &json!({}))], 1, "its pods can leave"),
        (
            vec![pod("web", &json!({}))],
            0,
            "pod app/web: PodDisruptionBudget app/pdb allows no disruption now",
        ),
        (vec![pod("web", &bare)], 1, "pod app/web has no controller that creates it again"),
        (vec![pod("web", &scratch)], 1, "pod app/web loses its emptyDir"),
        (vec![pod("web", &bare)], 0, "allows no disruption now"),
        (vec![pod("web", &daemon_set)], 0, "its pods can leave"),
        (vec![pod("web", &elsewhere)], 0, "its pods can leave"),
        (vec![pod("web", &finished)], 0, "its pods can leave"),
        (vec![pod("web", &leaving)], 0, "its pods can leave"),
    ];
    for (pods, allowed, want) in rows {
        let budget = budget(&all(), allowed);
        let seen = outlook(&node, &pods.iter().collect::<Vec<_>>(), &[&budget]);
        assert!(seen.to_string().contains(want), "{pods:?} {allowed}: {seen}");
        assert_eq!(matches!(seen, Outlook::Waits(_)), want.contains("no disruption"), "{seen}");
    }
}
