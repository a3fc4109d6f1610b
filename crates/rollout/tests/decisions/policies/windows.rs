//! Windows and freezes.

use super::*;

#[test]
fn a_window_that_cannot_be_says_why() {
    for (cron, lasts, want) in [
        ("0 22 * *", 1, "five fields"),
        ("0 22 * * * Europe/Berlin", 1, "five fields"),
        ("@daily", 1, "five fields"),
        ("0 25 * * *", 1, "0 25 * * *"),
        ("0 22 * * FUN", 1, "FUN"),
        ("0 22 * * *", 0, "longer"),
    ] {
        let error = Window::new(cron, TimeZone::UTC, hours(lasts)).unwrap_err().to_string();
        assert!(error.contains(want) && !error.contains('\n'), "{cron}: {error}");
    }
}

#[test]
fn outside_of_windows_and_within_freezes_nothing_begins_and_what_is_under_way_ends() {
    let window = Window::new("0 14 * * *", TimeZone::UTC, hours(2)).unwrap();
    let freeze = Freeze {
        from: at("2026-07-01T15:00:00Z"),
        until: Some(at("2026-07-03T00:00:00Z")),
        reason: "quarter's end".to_owned(),
        certificates: false,
    };
    let policy = Policy { windows: vec![window], freezes: vec![freeze], ..Policy::default() };
    let rows = [
        (
            NOON,
            "",
            "no maintenance window is open; the next one opens at 2026-07-01T14:00:00Z",
            "2026-07-01T14:00:00Z",
        ),
        // The freeze comes before the window's end.
        ("2026-07-01T14:00:00Z", "cd", "", "2026-07-01T15:00:00Z"),
        (
            "2026-07-01T15:00:00Z",
            "",
            "a freeze is in force until 2026-07-03T00:00:00Z: quarter's end",
            "2026-07-03T00:00:00Z",
        ),
        ("2026-07-03T15:59:59Z", "cd", "", "2026-07-03T16:00:00Z"),
        (
            "2026-07-03T16:00:00Z",
            "",
            "no maintenance window is open; the next one opens at 2026-07-04T14:00:00Z",
            "2026-07-04T14:00:00Z",
        ),
    ];
    for (now, want, hold, again) in rows {
        let plan = planned(&six(1, 1), &policy, &PolicyFacts::default(), now);
        let held = plan.hold.as_ref().map(Hold::to_string).unwrap_or_default();
        assert_eq!((&*goes(&plan), &*held), (want, hold), "{now}");
        assert_eq!(plan.look_again, Some(at(again)), "{now}");
        let updating = plan.status.as_ref().and_then(|s| s.conditions.as_deref());
        let updating = api::conditions::get(updating.unwrap(), "Updating").unwrap();
        assert!(updating.message.contains(hold), "{now}: {}", updating.message);
        // A node that has finished loses its taint meanwhile, and one on its way is not called back.
        assert!(plan.patches.iter().all(|p| p.desired_config.is_keep() || want.contains(&*p.node)), "{plan}");
    }
    let mut ended = six(1, 0);
    let taint = json!({"key": "UpdateInProgress", "effect": "PreferNoSchedule"});
    ended[0].taints = [serde_json::from_value(taint).unwrap()].into();
    let plan = planned(&ended, &policy, &PolicyFacts::default(), NOON);
    assert!(plan.hold.is_some() && plan.patches.iter().any(|p| &*p.node == "a"), "{plan}");
    // If no node has to go, there is nothing to wait for.
    let plan = planned(&six(6, 0), &policy, &PolicyFacts::default(), NOON);
    assert_eq!((plan.hold, plan.look_again), (None, None));
}

#[test]
fn nodes_that_wait_for_a_window_alone_are_told_what_to_take_if_somebody_reboots_them() {
    let window = || Window::new("0 14 * * *", TimeZone::UTC, hours(2)).unwrap();
    let marks = |plan: &PoolPlan| -> String {
        let set =
            plan.patches.iter().filter(|p| matches!(&p.waiting, rollout::Change::Set(c) if &**c == "new"));
        set.map(|p| &*p.node).collect()
    };
    let removed = |plan: &PoolPlan| -> String {
        plan.patches.iter().filter(|p| p.waiting == rollout::Change::Remove).map(|p| &*p.node).collect()
    };
    let nothing = PolicyFacts::default();
    let policy = Policy { windows: vec![window()], ..Policy::default() };
    let plan = planned(&six(1, 1), &policy, &nothing, NOON);
    assert_eq!((&*marks(&plan), &*goes(&plan)), ("cdef", ""), "{plan}");
    // One that shuts down keeps it, one that has drifted or is put aside gets none.
    let mut marked: Vec<NodeView> = six(1, 1);
    marked.iter_mut().skip(2).for_each(|n| n.waiting = Some("new".into()));
    marked[2].not_ready = Some("Ready is False".into());
    marked[3].unschedulable = true;
    marked[4].state = rollout::view::DaemonState::Working;
    marked[5].quarantine = Some("new".into());
    let quarantines = Policy {
        drain: Some(rollout::drain::DrainLimit {
            after: hours(1),
            then: api::v1alpha1::DrainEnd::Quarantine,
        }),
        ..policy.clone()
    };
    let plan = planned(&marked, &quarantines, &nothing, NOON);
    assert_eq!((&*marks(&plan), &*removed(&plan)), ("", "ef"), "{plan}");
    // The window opens, a freeze begins, the policy goes, the pool has another config or has rejected this one: it is gone.
    let mut all = six(0, 0);
    all.iter_mut().for_each(|n| n.waiting = Some("new".into()));
    let plan = planned(&all, &policy, &nothing, "2026-07-01T14:00:00Z");
    assert_eq!((&*goes(&plan), &*removed(&plan)), ("abc", "abcdef"));
    let (from, until) = (at("2026-07-01T00:00:00Z"), Some(at("2026-07-03T00:00:00Z")));
    let freeze = Freeze { from, until, reason: "audit".to_owned(), certificates: false };
    let frozen = Policy { freezes: vec![freeze], ..policy };
    assert_eq!(removed(&planned(&all, &frozen, &nothing, NOON)), "abcdef");
    assert_eq!(removed(&planned(&all, &Policy::default(), &nothing, NOON)), "abcdef");
    // Of a wave, those whose turn it is, and no node before the wave's gates were asked.
    let waves = vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)];
    let waved = Policy { waves, windows: vec![window()], ..Policy::default() };
    let mut facts = PolicyFacts::default();
    let plan = settled(&six(0, 0), &waved, &mut facts, NOON);
    assert_eq!(marks(&plan), "a", "{plan}");
    let gated = Policy { gates: vec![gate("ready", true, false, false)], ..waved };
    let mut facts = under_way(&gated, &six(0, 0));
    let plan = settled(&six(0, 0), &gated, &mut facts, NOON);
    assert_eq!(marks(&plan), "", "{plan}");
}

#[test]
fn a_node_that_reboots_is_not_sent_for_that_and_one_that_a_person_sends_takes_what_waits() {
    let window = Window::new("0 14 * * *", TimeZone::UTC, hours(2)).unwrap();
    let policy = Policy { windows: vec![window], ..Policy::default() };
    // What waits costs no more than what the reboot has cost already: that is no reason to disturb the node again.
    let change = ChangeAsked { from: "old".into(), to: "new".into() };
    let least = Some(api::v1alpha1::MaxDisruption::None);
    let cost = ChangeCost { least, certificates: false };
    let facts = PolicyFacts { costs: [(change, Ok(cost))].into(), ..PolicyFacts::default() };
    type Happens = fn(&mut NodeView);
    let rows: [(&str, Happens); 5] = [
        ("it is down", |n| n.not_ready = Some("Ready is Unknown".into())),
        ("it is cordoned for it", |n| n.unschedulable = true),
        ("it is down, and cordoned", |n| {
            (n.unschedulable, n.not_ready) = (true, Some("Ready is False".into()));
        }),
        ("it is back, in another boot", |n| n.boot = Some("two".into())),
        ("it drains to have its own config written again", |n| {
            n.state = rollout::view::DaemonState::Working;
            n.desired_drain = Some("drain-old".into());
            (n.unschedulable, n.cordon) = (true, Some(rollout::view::CordonMark::Daemon));
        }),
    ];
    for (what, happens) in rows {
        let mut nodes = six(0, 0);
        happens(&mut nodes[2]);
        let plan = planned(&nodes, &policy, &facts, NOON);
        assert!(plan.patches.iter().all(|p| p.desired_config.is_keep()), "{what}: {plan}");
        assert!(hold(&plan).contains("no maintenance window is open"), "{what}: {plan}");
        // In the window they go, up to the limit; one that is out of service is no reason to send it.
        assert!(!goes(&planned(&nodes, &policy, &facts, "2026-07-01T14:00:00Z")).is_empty(), "{what}");
    }
    // A person has named the pool's config on the node: it takes it, and no other node follows.
    let mut nodes = six(0, 0);
    nodes[2].desired_config = Some("new".into());
    let plan = planned(&nodes, &policy, &facts, NOON);
    assert!(plan.patches.iter().all(|p| p.desired_config.is_keep()), "{plan}");
    assert_eq!(plan.capacity.unavailable.as_slice(), [Arc::<str>::from("c")], "it holds its slot: {plan}");
}
