//! Waves, approvals, and the limits of pools and zones that hold beside them.

use super::*;

#[test]
fn a_wave_begins_when_the_one_before_it_is_done_and_has_soaked() {
    let canary = Wave { soak: hours(1), ..wave("canary", Members::Number(1)) };
    let half = Wave { max_unavailable: Some(IntOrString::Int(1)), ..wave("half", Members::Percent(50)) };
    let policy = Policy { waves: vec![canary, half], ..Policy::default() };
    let mut facts = PolicyFacts::default();
    // Before the rollout is written down, nothing goes.
    let plan = planned(&six(0, 0), &policy, &facts, NOON);
    assert_eq!((&*goes(&plan), plan.hold), ("", Some(Hold::Recording { policy: "".into() })));
    let rows = [
        // Done and moving nodes, the time, who goes, what the last node reports, why the pool holds.
        ((0, 0), NOON, "a", "waits: wave canary goes first", ""),
        ((0, 1), NOON, "", "waits: wave canary goes first", ""),
        (
            (1, 0),
            "2026-07-01T12:30:00Z",
            "",
            "waits: its pool is held",
            "wave canary is done and soaks until 2026-07-01T13:30:00Z",
        ),
        // Its node is not in service any more: the soak begins again when it is.
        ((0, 1), "2026-07-01T12:40:00Z", "", "waits: wave canary goes first", ""),
        (
            (1, 0),
            "2026-07-01T12:50:00Z",
            "",
            "waits: its pool is held",
            "wave canary is done and soaks until 2026-07-01T13:50:00Z",
        ),
        ((1, 0), "2026-07-01T13:50:00Z", "b", "waits: wave half goes first", ""),
        ((1, 1), "2026-07-01T13:50:00Z", "", "waits: wave half goes first", ""),
        // All waves have proved themselves: the rest goes, as many as the pool allows.
        ((4, 0), "2026-07-01T13:51:00Z", "ef", "goes now", ""),
    ];
    for ((done, moving), now, want, last, held) in rows {
        let plan = settled(&six(done, moving), &policy, &mut facts, now);
        let about = format!("{done} done, {moving} moving, {now}: {plan} {:?}", facts.progress);
        assert_eq!((&*goes(&plan), &*hold(&plan)), (want, held), "{about}");
        assert_eq!(plan.nodes[5].step.to_string(), last, "{about}");
        let again = held.rsplit(' ').next().filter(|t| !t.is_empty()).map(at);
        assert_eq!(plan.look_again, again, "{about}");
        assert_eq!(plan.policy.unwrap().progress.held.unwrap_or_default(), held);
    }
    settled(&six(6, 0), &policy, &mut facts, NOON);
    assert_eq!((facts.progress.proved.as_deref(), facts.progress.config.as_deref()), (Some("new"), None));
    // What joins late takes the proved config at once, without waves.
    let plan = settled(&six(5, 0), &policy, &mut facts, NOON);
    assert_eq!((&*goes(&plan), facts.progress.wave), ("f", None));
    // A canary that fails keeps the others where they are.
    let mut failing = six(0, 1);
    failing[0].state = rollout::view::DaemonState::Degraded;
    let plan = settled(&failing, &policy, &mut PolicyFacts::default(), NOON);
    assert_eq!(goes(&plan), "");
    assert!(hold(&plan).starts_with("node a failed: Degraded"), "{}", hold(&plan));
}

#[test]
fn only_nodes_whose_wave_has_begun_carry_the_update_taint() {
    let pair = Wave { max_unavailable: Some(IntOrString::Int(1)), ..wave("pair", Members::Number(2)) };
    let policy = Policy { waves: vec![pair], ..Policy::default() };
    let tainted = |nodes: &[NodeView]| -> String {
        nodes.iter().filter(|n| n.has_update_taint()).map(|n| &*n.name).collect()
    };
    let after = |nodes: &[NodeView], plan: &PoolPlan| -> Vec<NodeView> {
        let of = |n: &NodeView| plan.patches.iter().find(|p| p.node == n.name).map(|p| p.applied_to(n));
        nodes.iter().map(|n| of(n).unwrap_or_else(|| n.clone())).collect()
    };
    let mut facts = PolicyFacts::default();
    let plan = settled(&six(0, 0), &policy, &mut facts, NOON);
    let nodes = after(&six(0, 0), &plan);
    assert_eq!((&*goes(&plan), &*tainted(&nodes)), ("a", "b"), "{plan}");
    // Held: nothing changes. Once the policy is gone, all wait as the reference's nodes do.
    let freeze = Freeze { from: at(NOON), until: None, reason: "a fair".into(), certificates: false };
    let frozen = Policy { freezes: vec![freeze], ..policy.clone() };
    let plan = settled(&nodes, &frozen, &mut facts, NOON);
    assert!(plan.hold.is_some(), "{plan}");
    assert_eq!(tainted(&after(&nodes, &plan)), "b", "{plan}");
    let plan = planned(&nodes, &Policy::default(), &PolicyFacts::default(), NOON);
    assert_eq!(tainted(&after(&nodes, &plan)), "def", "{plan}");
    // One that was tainted before the policy came loses the taint until its turn.
    let nodes = after(&nodes, &plan);
    let plan = settled(&nodes, &policy, &mut facts, NOON);
    assert_eq!(tainted(&after(&nodes, &plan)), "", "{plan}");
}

#[test]
fn a_wave_takes_the_same_nodes_whatever_has_become_of_them_and_never_those_of_an_earlier_one() {
    let selector: LabelSelector =
        serde_json::from_value(json!({"matchLabels": {"topology.kubernetes.io/zone": "z2"}})).unwrap();
    let waves = vec![
        wave("z2", Members::Selected(selector)),
        wave("some", Members::Percent(34)),
        wave("none", Members::Number(0)),
        wave("all", Members::Rest),
    ];
    let policy = Policy { waves, ..Policy::default() };
    let zones = |moved: &[&str]| -> Vec<NodeView> {
        let one = |name: &str| {
            let zone = if ["c", "f"].contains(&name) { "z2" } else { "z1" };
            let config = if moved.contains(&name) { "new" } else { "old" };
            node(name, zone, config, config)
        };
        ["a", "b", "c", "d", "e", "f"].map(one).into()
    };
    let mut facts = PolicyFacts::default();
    for (moved, want) in [
        (&[][..], "cf"),
        (&["c"], "f"),
        (&["c", "f"], "abd"),
        (&["c", "f", "b"], "ad"),
        (&["c", "f", "a", "b", "d"], "e"),
    ] {
        assert_eq!(goes(&settled(&zones(moved), &policy, &mut facts, NOON)), want, "{moved:?}");
    }
}

#[test]
fn an_approval_is_of_one_config_and_one_wave() {
    let canary = Wave { needs_approval: true, ..wave("canary", Members::Number(1)) };
    let policy = Policy { waves: vec![canary, wave("rest", Members::Rest)], ..Policy::default() };
    let asked = |value: &str| PolicyFacts {
        approval: Some(ApprovalRequest::parse(value, Some("jane"))),
        ..PolicyFacts::default()
    };
    let rows = [
        (PolicyFacts::default(), "", "wave canary waits for an approval; give it with `mco approve POOL`"),
        (
            asked("other/canary"),
            "",
            "wave canary waits for an approval; that of other/canary is for another config or wave; give it with `mco approve POOL`",
        ),
        (asked("new/rest"), "", "wave canary waits for an approval; give it with `mco approve POOL`"),
        (asked("new/canary"), "a", ""),
    ];
    for (mut facts, want, held) in rows {
        let plan = settled(&six(0, 0), &policy, &mut facts, NOON);
        assert_eq!((&*goes(&plan), &*hold(&plan)), (want, held), "{:?}", facts.approval);
        assert_eq!(plan.hold.is_some_and(|h| h.needs_a_person()), !held.is_empty());
        let kept: Vec<_> =
            facts.progress.approvals.iter().map(|a| (&*a.wave, &*a.config, &*a.by, &a.at)).collect();
        let want = [("canary", "new", "jane", &Time(at(NOON)))];
        assert_eq!(kept, if held.is_empty() { want.to_vec() } else { vec![] });
        // Another config begins without it.
        let other = planned_to("newer", &six(0, 0), &policy, &facts, NOON);
        assert_eq!(other.policy.unwrap().progress.approvals, []);
    }
}

#[test]
fn no_more_nodes_of_one_zone_are_out_than_the_policy_allows() {
    let policy = Policy {
        zones: Some(ZoneLimit { key: "topology.kubernetes.io/zone".into(), max: 1 }),
        ..Policy::default()
    };
    let zones = |out: &str| -> Vec<NodeView> {
        let one = |(name, zone): (&str, &str)| {
            node(name, zone, "old", if out.contains(name) { "new" } else { "old" })
        };
        [("a", "z1"), ("b", "z1"), ("c", "z2"), ("d", "z2"), ("e", "z3")].map(one).into()
    };
    let plan = settled(&zones(""), &policy, &mut PolicyFacts::default(), NOON);
    assert_eq!(goes(&plan), "ace");
    assert_eq!(
        plan.nodes[1].step.to_string(),
        "waits: 1 of the nodes of zone z1 may be out at once, and are"
    );
    assert_eq!(goes(&settled(&zones("d"), &policy, &mut PolicyFacts::default(), NOON)), "ae");
    // A node that failed in another config takes no room from itself.
    let mut failed = zones("");
    failed[0] = node("a", "z1", "old", "bad");
    failed[0].state = rollout::view::DaemonState::Degraded;
    assert_eq!(goes(&settled(&failed, &policy, &mut PolicyFacts::default(), NOON)), "ace");
    // Nodes that report a fault are in service, and take room as the others do.
    let mut faulty = zones("");
    for node in &mut faulty[..2] {
        node.state = rollout::view::DaemonState::Degraded;
    }
    let plan = settled(&faulty, &policy, &mut PolicyFacts::default(), NOON);
    assert_eq!(goes(&plan).matches(['a', 'b']).count(), 1, "{plan}");
}

#[test]
fn no_wave_sends_more_than_the_pool_allows_and_what_was_sent_before_goes_where_the_pool_goes_now() {
    let many = Wave {
        max_unavailable: Some(IntOrString::String("100%".to_owned())),
        ..wave("all", Members::Percent(100))
    };
    let policy = Policy { waves: vec![many], ..Policy::default() };
    assert_eq!(goes(&settled(&six(0, 1), &policy, &mut PolicyFacts::default(), NOON)), "bc");
    let wrong = Wave {
        max_unavailable: Some(IntOrString::String("many".to_owned())),
        ..wave("all", Members::Percent(100))
    };
    let policy = Policy { waves: vec![wrong], ..Policy::default() };
    let plan = settled(&six(0, 0), &policy, &mut PolicyFacts::default(), NOON);
    assert!(matches!(plan.hold, Some(Hold::MaxUnavailable(text)) if text == "many"));
    // Sent to a config that the pool has left again, and not begun yet: it is sent on at once, although its wave comes
    // later.
    let mut back = six(0, 0);
    back[5] = node("f", "z", "rendered-worker-1", "rendered-worker-2");
    back[5].state = rollout::view::DaemonState::Done;
    let first = Policy { waves: vec![wave("first", Members::Number(1))], ..Policy::default() };
    let plan = settled(&back, &first, &mut PolicyFacts::default(), NOON);
    assert!(goes(&plan).starts_with('a'), "{plan}");
}

#[test]
fn nodes_of_no_wave_go_last_also_where_a_wave_is_named_as_they_are() {
    for names in [["canary", "most"], ["canary", "rest"], ["rest", "rest-2"]] {
        let waves = names.map(|name| wave(name, Members::Number(2)));
        let policy = Policy { waves: waves.into(), ..Policy::default() };
        let (mut facts, mut seen) = (under_way(&policy, &six(0, 0)), vec![]);
        for done in [0, 2, 4] {
            let plan = settled(&six(done, 0), &policy, &mut facts, NOON);
            seen.push(goes(&plan));
        }
        assert_eq!(seen, ["ab", "cd", "ef"], "{names:?}: {:?}", facts.progress);
    }
}

#[test]
fn waves_that_select_the_same_nodes_are_told_and_each_node_goes_with_the_first() {
    let select = |name: &str, zone: &str| {
        let labels = [("topology.kubernetes.io/zone".to_owned(), zone.to_owned())];
        let selector = LabelSelector { match_labels: Some(labels.into()), ..LabelSelector::default() };
        wave(name, Members::Selected(selector))
    };
    let apart: Vec<NodeView> =
        ["a", "b"].into_iter().zip(["y", "z"]).map(|(name, zone)| node(name, zone, "old", "old")).collect();
    let rows = [
        (
            vec![select("first", "z"), select("second", "z")],
            six(0, 0),
            Some("waves first and second select the same nodes (a, b, c, d, e and 1 more)"),
        ),
        (vec![select("first", "y"), select("second", "z")], apart.clone(), None),
        (vec![select("first", "z"), wave("second", Members::Rest)], apart, None),
    ];
    for (waves, nodes, want) in rows {
        let policy = Policy { waves, ..Policy::default() };
        let plan = settled(&nodes, &policy, &mut under_way(&policy, &nodes), NOON);
        let told = plan.policy.as_ref().unwrap().overlap.clone();
        assert_eq!(told.is_some(), want.is_some(), "{plan}");
        assert!(told.unwrap_or_default().contains(want.unwrap_or_default()), "{plan}");
        let conditions = plan.status.unwrap().conditions.unwrap();
        let updating = conditions.iter().find(|c| c.type_ == "Updating").unwrap();
        assert_eq!(updating.message.contains("select the same nodes"), want.is_some(), "{updating:?}");
    }
}
