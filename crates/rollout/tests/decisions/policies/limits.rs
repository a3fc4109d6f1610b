//! What a policy says besides waves and gates: which changes pass windows and freezes, what another pool has rejected, and
//! which config new machines get.
//!
//! What it is not: the ordinary course of a rollout (see the parent module).

use super::*;
use api::names::pool_condition::CONFIG_UNPROVED;
use api::v1::MachineConfigPoolStatus;
use api::v1alpha1::MaxDisruption;
use rollout::RolloutPlan;

fn change(from: &str) -> ChangeAsked {
    ChangeAsked { from: from.into(), to: "new".into() }
}

/// How many changes are asked for whose cost is not known.
fn asked(plan: &PoolPlan, facts: &PolicyFacts) -> usize {
    let changes = plan.policy.iter().flat_map(|p| &p.changes);
    changes.filter(|change| !facts.costs.contains_key(change)).count()
}

#[test]
fn outside_of_windows_goes_what_costs_no_more_than_the_policy_says_and_what_is_not_known_waits() {
    let window = || Window::new("0 14 * * *", TimeZone::UTC, hours(2)).unwrap();
    let most = |most| Policy { windows: vec![window()], max_disruption: most, ..Policy::default() };
    let costs = |least| PolicyFacts {
        costs: [(change("old"), Ok(ChangeCost { least, certificates: false }))].into(),
        ..PolicyFacts::default()
    };
    let rows = [
        (Some(MaxDisruption::Reload), costs(Some(MaxDisruption::None)), "cde", 0),
        (Some(MaxDisruption::Reload), costs(Some(MaxDisruption::Reload)), "cde", 0),
        (Some(MaxDisruption::Reload), costs(Some(MaxDisruption::Restart)), "", 0),
        (Some(MaxDisruption::Drain), costs(None), "", 0),
        (Some(MaxDisruption::Drain), PolicyFacts::default(), "", 1),
        (None, costs(Some(MaxDisruption::None)), "", 0),
    ];
    for (limit, facts, want, asks) in rows {
        let plan = planned(&six(2, 0), &most(limit), &facts, NOON);
        let unknown = asked(&plan, &facts);
        assert_eq!((&*goes(&plan), unknown), (want, asks), "{limit:?} {:?}: {plan}", facts.costs);
        assert_eq!(plan.hold.is_some(), want.is_empty(), "{plan}");
        // It is looked at again when the window opens.
        assert_eq!(plan.look_again, Some(at("2026-07-01T14:00:00Z")), "{plan}");
    }
    // A cost that is known goes on being asked for, so that it is kept up to date.
    let plan = planned(&six(2, 0), &most(Some(MaxDisruption::Reload)), &costs(None), NOON);
    assert_eq!(plan.policy.unwrap().changes, [change("old")]);
    // While it is not known, no node is told to take the change along, and none is told that it is not to.
    let reload = most(Some(MaxDisruption::Reload));
    let plan = planned(&six(2, 0), &reload, &PolicyFacts::default(), NOON);
    assert!(plan.patches.iter().all(|p| p.waiting.is_keep()), "{plan}");
    let mut marked = six(2, 0);
    marked.iter_mut().skip(2).for_each(|n| n.waiting = Some("new".into()));
    let plan = planned(&marked, &reload, &PolicyFacts::default(), NOON);
    assert!(plan.patches.iter().all(|p| p.waiting.is_keep()), "{plan}");
    // Whoever does not know the cost takes over what the controller has decided.
    let facts = PolicyFacts { let_go: true, ..PolicyFacts::default() };
    assert_eq!(goes(&planned(&six(2, 0), &most(Some(MaxDisruption::Reload)), &facts, NOON)), "cde");
    // One node is in a config from which the change costs more: the whole pool waits.
    let mut facts = costs(Some(MaxDisruption::None));
    facts.costs.insert(change("older"), Ok(ChangeCost::default()));
    let mut nodes = six(2, 0);
    nodes[5] = node("f", "z", "older", "older");
    assert_eq!(goes(&planned(&nodes, &most(Some(MaxDisruption::Reload)), &facts, NOON)), "");
}

#[test]
fn a_pool_that_waits_only_because_a_cost_is_not_known_says_so_with_the_reason() {
    let windows = || vec![Window::new("0 14 * * *", TimeZone::UTC, hours(2)).unwrap()];
    let most = |most| Policy { windows: windows(), max_disruption: most, ..Policy::default() };
    let freeze = Freeze {
        from: at("2026-07-01T00:00:00Z"),
        until: None,
        reason: "year-end".to_owned(),
        certificates: true,
    };
    let frozen = Policy { freezes: vec![freeze], ..Policy::default() };
    let limited = || most(Some(MaxDisruption::Reload));
    let unreadable = || Err("machineconfig new: cannot be read".into());
    let cost = |least| Ok(ChangeCost { least, certificates: false });
    let (says, word) = ("its cost for a node is not known: ", "CostUnknown");
    let (not_yet, why) =
        (format!("{says}it is not computed yet"), format!("{says}machineconfig new: cannot be read"));
    // Columns: the policy, what is known of the change from `old`, and from `older`; what the hold says, and its word.
    type Known = Option<Result<ChangeCost, Arc<str>>>;
    let rows: [(Policy, Known, Known, Option<&str>, &str); 7] = [
        (limited(), None, cost(Some(MaxDisruption::None)).into(), Some(&not_yet), "OutsideWindow"),
        (limited(), unreadable().into(), cost(Some(MaxDisruption::None)).into(), Some(&why), word),
        (frozen, unreadable().into(), unreadable().into(), Some(&why), word),
        // Whatever it costs, the other change has to wait.
        (limited(), unreadable().into(), cost(None).into(), None, "OutsideWindow"),
        (limited(), cost(None).into(), unreadable().into(), None, "OutsideWindow"),
        (limited(), cost(None).into(), cost(None).into(), None, "OutsideWindow"),
        // Nothing passes this one's windows.
        (most(None), unreadable().into(), unreadable().into(), None, "OutsideWindow"),
    ];
    for (policy, old, older, want, word) in rows {
        let known = [(change("old"), old), (change("older"), older)];
        let costs = known.into_iter().filter_map(|(change, cost)| Some((change, cost?))).collect();
        let facts = PolicyFacts { costs, ..PolicyFacts::default() };
        let mut nodes = six(2, 0);
        nodes[5] = node("f", "z", "older", "older");
        let plan = planned(&nodes, &policy, &facts, NOON);
        let said = hold(&plan);
        assert_eq!(said.contains("not known"), want.is_some(), "{said}");
        assert!(said.contains(want.unwrap_or_default()), "{said}");
        let policy = plan.policy.unwrap();
        assert_eq!(policy.held_for.as_deref(), Some(word), "{said}");
        assert_eq!(policy.progress.held.as_deref(), Some(&*said), "people see it in the policy's status");
    }
}

#[test]
fn certificates_pass_a_freeze_that_lets_them_and_no_other() {
    let freeze = |name: &str, certificates| Freeze {
        from: at("2026-07-01T00:00:00Z"),
        until: None,
        reason: name.to_owned(),
        certificates,
    };
    let facts = |certificates| PolicyFacts {
        costs: [(change("old"), Ok(ChangeCost { least: None, certificates }))].into(),
        ..PolicyFacts::default()
    };
    let open = || freeze("open", true);
    let rows = [
        (vec![open()], facts(true), "cde"),
        (vec![open()], facts(false), ""),
        (vec![open()], PolicyFacts::default(), ""),
        (vec![freeze("shut", false)], facts(true), ""),
        (vec![open(), freeze("shut", false)], facts(true), ""),
    ];
    for (freezes, facts, want) in rows {
        let policy = Policy { freezes, ..Policy::default() };
        let plan = planned(&six(2, 0), &policy, &facts, NOON);
        assert_eq!(goes(&plan), want, "{:?}: {plan}", policy.freezes);
    }
    // What passes the freeze still waits for a window, unless it passes that, too.
    let window = |cron| vec![Window::new(cron, TimeZone::UTC, hours(2)).unwrap()];
    let both = |least, certificates| PolicyFacts {
        costs: [(change("old"), Ok(ChangeCost { least, certificates }))].into(),
        ..PolicyFacts::default()
    };
    let (shut, opened) = ("0 14 * * *", "0 11 * * *");
    let none = Some(MaxDisruption::None);
    let rows = [
        (shut, None, both(none, true), "", "window"),
        (shut, none, both(none, true), "cde", ""),
        (shut, none, both(None, true), "", "window"),
        (shut, none, both(none, false), "", "freeze"),
        (shut, none, PolicyFacts::default(), "", "freeze"),
        (opened, None, both(None, true), "cde", ""),
        (opened, none, both(none, false), "", "freeze"),
    ];
    for (cron, max_disruption, facts, want, held) in rows {
        let freezes = vec![open()];
        let policy = Policy { freezes, windows: window(cron), max_disruption, ..Policy::default() };
        let plan = planned(&six(2, 0), &policy, &facts, NOON);
        assert_eq!(goes(&plan), want, "{cron} {max_disruption:?} {:?}: {plan}", facts.costs);
        assert!(hold(&plan).to_lowercase().contains(held), "{held}: {plan}");
        assert_eq!(asked(&plan, &facts), usize::from(facts.costs.is_empty()), "{plan}");
    }
}

/// Pools `worker` and `other` on their way to `new` with a node in `old` each. `worker` has rejected it.
fn two_pools(sources: [[&[&str]; 2]; 2], facts: &PolicyFacts) -> (String, bool) {
    let policy = Policy {
        waves: vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)],
        ..Policy::default()
    };
    let plan = two_pools_with(sources, Some((&policy, facts)), None);
    (hold(&plan), plan.policy.as_ref().is_some_and(|p| p.progress.approval_needed))
}

/// The same where `other` has this policy, or none, and this approval in its annotation.
fn two_pools_with(
    sources: [[&[&str]; 2]; 2],
    of_other: Option<(&Policy, &PolicyFacts)>,
    approval: Option<&str>,
) -> PoolPlan {
    let policy = Policy {
        waves: vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)],
        ..Policy::default()
    };
    let mut rejecting = under_way(&policy, &six(0, 0));
    let rejected = json!({"config": "new", "reason": "gate ok fails", "at": NOON});
    rejecting.progress.rejected = vec![serde_json::from_value(rejected).unwrap()];
    let of = |name: &str, [before, after]: [&[&str]; 2]| -> MachineConfigPool {
        let list = |all: &[&str]| all.iter().map(|n| json!({"name": n})).collect::<Vec<_>>();
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"matchLabels": {"role": name}}, "maxUnavailable": 3,
                "configuration": {"name": "new", "source": list(after)},
            },
            "status": {"configuration": {"name": "old", "source": list(before)}},
        }))
        .unwrap()
    };
    let mut pools = [of("worker", sources[0]), of("other", sources[1])];
    pools[1].metadata.annotations =
        approval.map(|value| [(api::names::own::APPROVED.to_owned(), value.to_owned())].into());
    let nodes = ["worker", "other"].map(|role| {
        let mut node = node(role, "z", "old", "old");
        node.labels = rollout::view::Labels::new(
            Some(&[("role".to_owned(), role.to_owned())].into()),
            &mut rollout::view::Names::default(),
        );
        node
    });
    let cluster = Facts { cluster: Cluster::Plain, ..Facts::default() };
    let with = |pool, of: Option<(_, _)>| PoolInput {
        policy: of.map(|(policy, facts)| PolicyInput::InForce { policy, facts }),
        ..PoolInput::of(pool)
    };
    let inputs = Inputs {
        pools: vec![with(&pools[0], Some((&policy, &rejecting))), with(&pools[1], of_other)],
        nodes: nodes.iter().collect(),
        facts: &cluster,
        now: Time(at(NOON)),
    };
    let RolloutPlan { mut pools, .. } = plan(&inputs);
    pools.remove(1)
}

#[test]
fn a_pool_without_waves_waits_as_a_whole_for_what_another_has_rejected() {
    let both = [["base"].as_slice(), ["base", "a"].as_slice()];
    let other = [["base"].as_slice(), ["base", "b"].as_slice()];
    let (nothing, facts) = (Policy::default(), PolicyFacts::default());
    let windows = Policy {
        windows: vec![Window::new("0 11 * * *", TimeZone::UTC, hours(2)).unwrap()],
        ..Policy::default()
    };
    for policy in [None, Some((&nothing, &facts)), Some((&windows, &facts))] {
        let rows = [
            (both, None, "no node goes: pool worker has rejected new"),
            (both, Some("old/all"), "no node goes: pool worker has rejected new"),
            (both, Some("new/all"), ""),
            (other, None, ""),
            // It has the change already, and a person takes it back.
            ([["base", "a"].as_slice(), ["base"].as_slice()], None, ""),
        ];
        for (sources, approval, want) in rows {
            let plan = two_pools_with([both, sources], policy, approval);
            assert!(hold(&plan).starts_with(want), "{approval:?}: {plan}");
            assert_eq!(
                (hold(&plan).is_empty(), goes(&plan).is_empty()),
                (want.is_empty(), !want.is_empty()),
                "{plan}"
            );
        }
    }
}

#[test]
fn a_pool_that_would_take_what_another_has_rejected_waits_at_its_first_wave_for_a_person() {
    let policy = Policy {
        waves: vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)],
        ..Policy::default()
    };
    let facts = under_way(&policy, &six(0, 0));
    let edited = [["base", "a"].as_slice(), ["base", "a"].as_slice()];
    let added = |more| [["base"].as_slice(), more];
    let rows = [
        // Both add the same one.
        ([added(&["base", "a"]), added(&["base", "a"])], "MachineConfig a"),
        // Each adds its own.
        ([added(&["base", "a"]), added(&["base", "b"])], ""),
        // One is edited, and nobody knows which.
        ([edited, edited], "MachineConfig a, base"),
        ([edited, added(&["base", "b"])], "MachineConfig base"),
        // One is taken away.
        ([[&["base", "a"], &["base"]], [&["base", "a"], &["base"]]], "MachineConfig a"),
        ([added(&["base", "a"]), [&["other"], &["other"]]], ""),
    ];
    for (sources, want) in rows {
        let (hold, asks) = two_pools(sources, &facts);
        assert_eq!((asks, hold.is_empty()), (!want.is_empty(), want.is_empty()), "{sources:?}: {hold}");
        assert!(hold.contains(want), "{sources:?}: {hold}");
        if asks {
            assert!(hold.starts_with("wave canary waits: pool worker has rejected new"), "{hold}");
        }
    }
    // A person lets it go, and later waves do not ask again.
    let mut approved = facts;
    approved.approval = Some(ApprovalRequest::parse("new/canary", Some("jane")));
    assert!(two_pools([edited, edited], &approved).0.contains("is being written"));
    let given = json!({"wave": "canary", "config": "new", "by": "jane", "at": NOON});
    approved.progress.approvals = vec![serde_json::from_value(given).unwrap()];
    assert_eq!(two_pools([edited, edited], &approved), (String::new(), false));
}

#[test]
fn new_machines_get_a_config_only_when_it_has_proved_itself() {
    let policy = Policy {
        waves: vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)],
        ..Policy::default()
    };
    let says = |status: &MachineConfigPoolStatus| {
        let all = status.conditions.as_deref().unwrap_or_default();
        api::conditions::get(all, CONFIG_UNPROVED).map(|c| (c.status.clone(), c.message.clone()))
    };
    let mut facts = under_way(&policy, &six(0, 0));
    let status = settled(&six(1, 0), &policy, &mut facts, NOON).status.unwrap();
    let text = "MachineConfig new has not proved itself under RolloutPolicy ";
    assert_eq!(says(&status), Some(("True".to_owned(), text.to_owned())));
    assert_eq!(status.configuration.name, "");
    // All nodes are in it, and the last wave soaks: a config that may still be rejected is not the pool's yet.
    let soaks =
        Policy { waves: vec![Wave { soak: hours(1), ..wave("all", Members::Rest) }], ..Policy::default() };
    let mut facts = under_way(&soaks, &six(0, 0));
    let status = settled(&six(6, 0), &soaks, &mut facts, NOON).status.unwrap();
    assert_eq!((status.updated_machine_count, &*status.configuration.name), (6, ""));
    // It has proved itself.
    let plan = settled(&six(6, 0), &policy, &mut under_way(&policy, &six(0, 0)), NOON);
    let status = plan.status.unwrap();
    assert_eq!((says(&status), &*status.configuration.name), (None, "new"));
    // Without waves, gates and rollback nothing has to be proved.
    let status = planned(&six(1, 0), &Policy::default(), &PolicyFacts::default(), NOON).status.unwrap();
    assert_eq!(says(&status), None);
}
