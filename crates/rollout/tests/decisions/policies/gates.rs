//! When gates are checked, and what waits for them.

use super::*;

fn checks(plan: &PoolPlan) -> Vec<(String, bool)> {
    let all = &plan.policy.as_ref().unwrap().checks;
    all.iter().map(|c| (c.gate.to_string(), c.baseline.is_some())).collect()
}

#[test]
fn gates_are_checked_when_they_are_to_be_and_nothing_goes_before_they_pass() {
    let policy = gated(gate("ready", true, true, false));
    let mut facts = PolicyFacts::default();
    let plan = settled(&six(0, 0), &policy, &mut facts, NOON);
    assert_eq!(
        hold(&plan),
        "gate ready cannot be read, and no node goes without it: it has not been checked yet"
    );
    assert_eq!(checks(&plan), [("ready".to_owned(), false)]);
    // The first check says what was broken before; the second one compares with that.
    facts.gates = [("ready".into(), GateState::Passed)].into();
    facts.baselines = [("ready".into(), vec!["f".to_owned()])].into();
    let plan = planned(&six(0, 0), &policy, &facts, NOON);
    assert_eq!((&*goes(&plan), plan.hold.is_some()), ("", true), "the baseline is not stored yet");
    let plan = settled(&six(0, 0), &policy, &mut facts, NOON);
    // The wave has begun, and that is stored: the gate has no more to say until it soaks.
    assert_eq!((&*goes(&plan), checks(&plan), facts.progress.wave_begun), ("a", vec![], true));
    assert_eq!(facts.progress.baseline[0].broken, ["f"]);
    // The canary moves: this gate has nothing to say, and a failure of an old check would be no news.
    facts.gates.clear();
    let plan = settled(&six(0, 1), &policy, &mut facts, NOON);
    assert_eq!((checks(&plan), plan.hold), (vec![], None));
    // It soaks: the gate is checked, and its soak does not end without an answer.
    let plan = settled(&six(1, 0), &policy, &mut facts, NOON);
    assert_eq!(checks(&plan).len(), 1);
    let late = "2026-07-01T14:00:00Z";
    let rows = [
        (None, "gate ready cannot be read, and no node goes without it: it has not been checked yet"),
        (
            Some(GateState::Unknown("Prometheus does not answer".to_owned())),
            "gate ready cannot be read, and no node goes without it: Prometheus does not answer",
        ),
        (Some(GateState::Failing("1 of 3".to_owned())), "gate ready has not passed: 1 of 3"),
        (Some(GateState::Failed("3 of 5 replicas".to_owned())), "gate ready fails: 3 of 5 replicas"),
    ];
    for (state, want) in rows {
        let mut facts =
            PolicyFacts { gates: state.map(|s| ("ready".into(), s)).into_iter().collect(), ..facts.clone() };
        let plan = settled(&six(1, 0), &policy, &mut facts, late);
        assert_eq!((&*goes(&plan), &*hold(&plan)), ("", want));
        assert!(!plan.hold.unwrap().needs_a_person());
    }
    facts.gates = [("ready".into(), GateState::Passed)].into();
    let plan = settled(&six(1, 0), &policy, &mut facts, late);
    assert_eq!(goes(&plan), "bcd");
    // A gate that is checked all the time stops the next node in the middle of a wave.
    let policy = gated(gate("ready", false, false, true));
    let mut facts = PolicyFacts { progress: facts.progress, ..PolicyFacts::default() };
    for (state, want) in
        [(Some(GateState::Passed), "d"), (Some(GateState::Failed(String::new())), ""), (None, "")]
    {
        facts.gates = state.into_iter().map(|s| ("ready".into(), s)).collect();
        assert_eq!(goes(&settled(&six(1, 2), &policy, &mut facts.clone(), late)), want);
    }
}

#[test]
fn jobs_run_beside_their_wave_and_after_the_last_one_too() {
    let check = rollout::policy::gates::Check::Job { namespace: "a".to_owned(), cron_job: "b".to_owned() };
    let waves = vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)];
    let gates = vec![Gate { check, ..gate("smoke", true, false, false) }];
    let policy = Policy { waves, gates, ..Policy::default() };
    let mut facts = under_way(&policy, &six(0, 0));
    // So many of the first nodes are done, and the next ones move. Jobs have ended on `ran`. Which go, and on which are Jobs?
    let mut after = |done: usize, moving: usize, ran: &str| {
        let ran = ran.chars().map(|c| Arc::from(c.to_string())).collect();
        facts.ran_on = [("smoke".into(), ran)].into();
        let plan = settled(&six(done, moving), &policy, &mut facts, NOON);
        let checks = &plan.policy.as_ref().unwrap().checks;
        let on: String = checks.iter().flat_map(|c| c.nodes.iter().map(|n| &**n)).collect();
        (goes(&plan), on, facts.progress.proved.clone().unwrap_or_default())
    };
    let row = |goes: &str, on: &str, proved: &str| (goes.to_owned(), on.to_owned(), proved.to_owned());
    assert_eq!(after(1, 0, ""), row("", "a", "old"));
    assert_eq!(after(1, 0, "a"), row("bcd", "", "old"));
    assert_eq!(after(3, 3, "a"), row("", "bc", "old"), "they begin on nodes that are done");
    assert_eq!(after(6, 0, "abc"), row("", "bcdef", "old"));
    assert_eq!(after(6, 0, "abcdef"), row("", "", "new"));
}

#[test]
fn jobs_run_while_the_last_wave_soaks_and_are_told_as_open_to_readers() {
    let check = rollout::policy::gates::Check::Job { namespace: "a".to_owned(), cron_job: "b".to_owned() };
    let waves = vec![Wave { soak: hours(1), ..wave("rest", Members::Rest) }];
    let gates = vec![Gate { check, ..gate("smoke", true, false, false) }];
    let policy = Policy { waves, gates, ..Policy::default() };
    let mut facts = under_way(&policy, &six(0, 0));
    let plan = settled(&six(6, 0), &policy, &mut facts, NOON);
    let checks = &plan.policy.as_ref().unwrap().checks;
    assert_eq!(checks.iter().map(|c| c.nodes.len()).collect::<Vec<_>>(), [6], "beside the soak");
    // The soak is over before they are: it does not begin anew.
    let over = "2026-07-01T13:00:00Z";
    facts.ran_on = [("smoke".into(), ["a".into(), "b".into()].into())].into();
    let until = facts.progress.soak_until.clone();
    let plan = settled(&six(6, 0), &policy, &mut facts, over);
    assert_eq!(facts.progress.soak_until, until);
    assert!(hold(&plan).contains("has not ended on all nodes"), "{plan}");
    assert_eq!(facts.progress.gates[0].outcome, api::v1alpha1::GateOutcome::NoAnswer);
    facts.ran_on = [("smoke".into(), ["a", "b", "c", "d", "e", "f"].map(Arc::from).into())].into();
    settled(&six(6, 0), &policy, &mut facts, over);
    assert_eq!(facts.progress.proved.as_deref(), Some("new"));
}

#[test]
fn a_job_that_fails_keeps_further_nodes_of_its_wave_back() {
    let check = rollout::policy::gates::Check::Job { namespace: "a".to_owned(), cron_job: "b".to_owned() };
    let waves = vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)];
    let gates = vec![Gate { check, ..gate("smoke", true, false, false) }];
    let policy = Policy { waves, gates, ..Policy::default() };
    let mut facts = under_way(&policy, &six(0, 0));
    facts.ran_on = [("smoke".into(), ["a".into()].into())].into();
    assert_eq!(goes(&settled(&six(1, 0), &policy, &mut facts, NOON)), "bcd");
    for (state, want) in [(GateState::Passed, "e"), (GateState::Failing("1 of 3".to_owned()), "")] {
        let mut facts = facts.clone();
        facts.gates = [("smoke".into(), state)].into();
        assert_eq!(goes(&settled(&six(2, 2), &policy, &mut facts, NOON)), want);
    }
}

#[test]
fn gates_before_a_wave_are_asked_when_its_window_opens() {
    let policy = Policy {
        windows: vec![Window::new("0 14 * * *", TimeZone::UTC, hours(2)).unwrap()],
        waves: vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)],
        gates: vec![gate("ready", true, false, false)],
        ..Policy::default()
    };
    let mut facts = under_way(&policy, &six(0, 0));
    settled(&six(0, 0), &policy, &mut facts, NOON);
    assert!(!facts.progress.wave_begun, "{:?}", facts.progress);
    let open = "2026-07-01T14:00:00Z";
    facts.gates.clear();
    assert_eq!(goes(&settled(&six(0, 0), &policy, &mut facts, open)), "", "they have not been asked today");
    facts.gates = [("ready".into(), GateState::Passed)].into();
    assert_eq!(goes(&settled(&six(0, 0), &policy, &mut facts, open)), "a");
}

#[test]
fn the_workloads_that_were_there_are_stored_and_outlive_their_leader() {
    let mut shop = gate("shop", true, false, true);
    shop.check = rollout::policy::gates::Check::Workloads {
        kinds: vec![api::v1alpha1::WorkloadKind::Deployment],
        namespaces: None,
        selector: api::k8s::LabelSelector::default(),
    };
    let policy = gated(shop);
    let mut facts = PolicyFacts::default();
    settled(&six(0, 0), &policy, &mut facts, NOON);
    facts.gates = [("shop".into(), GateState::Passed)].into();
    facts.baselines = [("shop".into(), vec![])].into();
    facts.workloads = [("shop".into(), vec!["Deployment shop/front".to_owned()])].into();
    settled(&six(0, 0), &policy, &mut facts, NOON);
    assert_eq!(facts.progress.baseline[0].workloads, ["Deployment shop/front"]);
    // The next leader has seen none of them, and hands those that are stored to the check.
    let mut next = PolicyFacts { progress: facts.progress.clone(), ..PolicyFacts::default() };
    let plan = settled(&six(0, 1), &policy, &mut next, NOON);
    assert_eq!(plan.policy.unwrap().checks[0].workloads, ["Deployment shop/front"]);
    // The policy was edited: what is there now is what counts from now on.
    next.progress.baseline[0].workloads.clear();
    next.workloads = [("shop".into(), vec!["Deployment shop/back".to_owned()])].into();
    settled(&six(0, 1), &policy, &mut next, NOON);
    assert_eq!(next.progress.baseline[0].workloads, ["Deployment shop/back"]);
    // Another change replaces this one: what people took away between the two is not missed.
    let plan = planned_to("newer", &six(0, 1), &policy, &next, NOON);
    assert!(plan.policy.unwrap().progress.baseline[0].workloads.is_empty());
}
