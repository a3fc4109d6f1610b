//! RolloutPolicies that are parsed, and those that are refused.

use super::*;
use api::v1alpha1::{Operator, RolloutPolicy, RolloutPolicySpec, RolloutPolicyStatus, WorkloadKind};
use rollout::policy::gates::{self, Check, Reading, Record};
use rollout::policy::{Assigned, PolicyPool, Verdict, assign, changes_words_only, parse};

#[test]
fn the_example_is_read_and_what_cannot_be_used_is_named_with_its_path() {
    let text = include_str!("../../../../../examples/policies/rollout-policy.yaml");
    let policy: RolloutPolicy = api::formats::yaml::from_str(text).unwrap();
    let policy = parse("workers", &policy.spec).unwrap();
    assert_eq!((policy.waves.len(), policy.gates.len(), policy.windows.len()), (3, 5, 1));
    assert!(policy.rolls_back && matches!(policy.waves[2].members, Members::Rest));
    let rows = [
        (json!({"windows": [{"name": "n", "cron": "0 25 * * *", "duration": "1h"}]}), "spec.windows[0].cron"),
        (json!({"windows": [{"name": "n", "cron": "0 0 30 2 *", "duration": "1h"}]}), "never comes"),
        (
            json!({"windows": [{"name": "n", "cron": "0 0 * * *", "duration": "1h", "timeZone": "Mars/Base"}]}),
            "spec.windows[0].timeZone: \"Mars/Base\" is no time zone",
        ),
        (json!({"waves": [{"name": "a"}, {"name": "b"}]}), "spec.waves[0]"),
        (json!({"waves": [{"name": "a", "size": "0%"}]}), "spec.waves[0].size"),
        (json!({"waves": [{"name": "a", "size": 1}, {"name": "a", "size": 1}]}), "spec.waves[1].name"),
        (
            json!({"waves": [{"name": "a", "nodeSelector": {"matchExpressions": [{"key": "k", "operator": "Odd"}]}}]}),
            "spec.waves[0].nodeSelector: matchExpressions[0].operator",
        ),
        (
            json!({"gates": [{"name": "g", "prometheus": {"url": "http://p:9090", "query": "sum(rate(x[5m])",
                "bound": {"operator": "AtMost", "value": "1"}}}]}),
            "spec.gates[0].prometheus.query: '(' is not closed",
        ),
        (json!({"gates": [{"name": "g", "http": {"url": "ftp://x"}}]}), "spec.gates[0].http.url"),
        (json!({"gates": [{"name": "g"}]}), "spec.gates[0]: a gate has exactly one"),
        // A gate that would never be asked.
        (
            json!({"gates": [{"name": "g", "when": ["Soak"], "http": {"url": "http://x"}}]}),
            "spec.gates[0].when: it is checked while a wave soaks, and no wave has a soak",
        ),
        (
            json!({"waves": [{"name": "a", "size": 1, "soak": "0s"}], "gates": [
                {"name": "f", "when": ["Always"], "http": {"url": "http://x"}},
                {"name": "g", "when": ["Soak"], "http": {"url": "http://x"}}]}),
            "spec.gates[1].when",
        ),
        (json!({"nodeDeadline": "soon"}), "spec.nodeDeadline"),
        (json!({"unrelatedUnavailable": "some"}), "spec.unrelatedUnavailable"),
    ];
    for (mut spec, want) in rows {
        spec["pools"] = json!({"names": ["worker"]});
        let spec: RolloutPolicySpec = serde_json::from_value(spec).unwrap();
        let error = parse("p", &spec).unwrap_err().to_string();
        assert!(error.contains(want), "{want}: {error}");
    }
}

#[test]
fn a_pool_has_one_policy_and_holds_when_that_is_not_so() {
    let policy = |name: &str, spec: serde_json::Value| -> RolloutPolicy {
        serde_json::from_value(json!({"metadata": {"name": name, "generation": 1}, "spec": spec})).unwrap()
    };
    let labels = [("team".to_owned(), "a".to_owned())].into();
    let pools =
        [PolicyPool { name: "worker", labels: None }, PolicyPool { name: "infra", labels: Some(&labels) }];
    let names = |names: &[&str]| json!({"pools": {"names": names}});
    let select = |value: &str| json!({"pools": {"selector": {"matchLabels": {"team": value}}}});
    let rows = [
        (vec![("p", names(&["worker"]))], "worker: p", "p InForce"),
        (vec![("p", select("a"))], "infra: p", "p InForce"),
        (vec![("p", select("b"))], "", "p NoPool"),
        (
            vec![("p", names(&["worker", "infra"])), ("q", select("a"))],
            "infra: RolloutPolicies p, q are all for this pool, and none of them is in force; leave one that names or selects it, worker: p",
            "p SeveralPolicies, q SeveralPolicies",
        ),
        (
            vec![("p", json!({"pools": {"names": ["worker"]}, "nodeDeadline": "0s"}))],
            "worker: RolloutPolicy p cannot be used: spec.nodeDeadline: must be longer than 0s",
            "p Invalid",
        ),
    ];
    for (specs, want_pools, want_policies) in rows {
        let policies: Vec<_> = specs.into_iter().map(|(name, spec)| policy(name, spec)).collect();
        let got = assign(&policies, &pools);
        let of_pools: Vec<String> = got
            .pools
            .iter()
            .map(|(pool, assigned)| match assigned {
                Assigned::Policy(policy) => format!("{pool}: {}", policy.name),
                Assigned::Unusable(why) => format!("{pool}: {why}"),
            })
            .collect();
        let verdicts: Vec<String> = got
            .policies
            .iter()
            .map(|(policy, verdict)| match verdict {
                Verdict::InForce { .. } => format!("{policy} InForce"),
                Verdict::NotInForce { reason, .. } => format!("{policy} {}", reason.text()),
            })
            .collect();
        assert_eq!((of_pools.join(", ").as_str(), verdicts.join(", ").as_str()), (want_pools, want_policies));
    }
    let pool = pool(1);
    let inputs = Inputs {
        pools: vec![PoolInput { policy: Some(PolicyInput::Unusable("two for one")), ..PoolInput::of(&pool) }],
        nodes: vec![],
        facts: &Facts::default(),
        now: Time(at(NOON)),
    };
    assert_eq!(plan(&inputs).pools[0].hold.as_ref().unwrap().to_string(), "two for one");
}

fn take(
    check: Check,
    limit: u32,
    no_answer_fails: bool,
    baseline: Option<&[&str]>,
    readings: &[Reading],
) -> String {
    let gate = Gate { check, failure_limit: limit, no_answer_fails, ..gate("g", true, true, false) };
    let baseline: Option<Vec<String>> = baseline.map(|b| b.iter().map(|s| (*s).to_owned()).collect());
    let mut record = Record::default();
    for reading in readings {
        record.record_check(&gate, baseline.as_deref(), reading.clone());
    }
    match record.state.unwrap() {
        GateState::Passed => "passed".to_owned(),
        GateState::Failing(why) => format!("failing: {why}"),
        GateState::Failed(why) => format!("failed: {why}"),
        GateState::Unknown(why) => format!("unknown: {why}"),
    }
}

#[test]
fn what_was_broken_before_does_not_fail_a_gate_and_no_answer_never_passes_one() {
    let broken = |list: &[&str]| Reading::Broken(list.iter().map(|s| (*s).to_owned()).collect());
    let none = || Reading::NoAnswer("timeout".to_owned());
    let nodes = || Check::NodeCondition { type_: "Ready".to_owned(), status: "True".to_owned() };
    let shop = || Check::Workloads { kinds: vec![], namespaces: None, selector: LabelSelector::default() };
    let errors = |operator| Check::Prometheus {
        url: String::new(),
        query: String::new(),
        operator,
        bound: 0.5,
        token: None,
    };
    let http = || Check::Http { url: String::new(), status: None, token: None };
    let rows = [
        (take(nodes(), 1, false, Some(&["b"]), &[broken(&["b"])]), "passed"),
        (take(nodes(), 1, false, Some(&["b"]), &[broken(&["a", "b"])]), "failed: Ready is not True on a"),
        (
            take(nodes(), 2, false, Some(&[]), &[broken(&["a"])]),
            "failing: 1 of 2 checks in a row: Ready is not True on a",
        ),
        (
            take(nodes(), 2, false, Some(&[]), &[broken(&["a"]), broken(&[]), broken(&["a"])]),
            "failing: 1 of 2 checks in a row: Ready is not True on a",
        ),
        (
            take(nodes(), 2, false, Some(&[]), &[broken(&["a"]), none(), broken(&["a"])]),
            "failed: Ready is not True on a",
        ),
        (take(nodes(), 1, false, None, &[broken(&["a"])]), "passed"),
        (
            take(nodes(), 1, false, None, &[broken(&["a"]), broken(&["a", "b"])]),
            "failed: Ready is not True on b",
        ),
        (take(nodes(), 1, false, Some(&[]), &[none()]), "unknown: timeout"),
        (take(nodes(), 1, true, Some(&[]), &[none()]), "failed: no answer: timeout"),
        (take(nodes(), 1, true, None, &[none()]), "unknown: timeout"),
        (take(shop(), 1, false, Some(&["Deployment s/a=1"]), &[broken(&["Deployment s/a=1"])]), "passed"),
        (
            take(
                shop(),
                1,
                false,
                Some(&["Deployment s/a=1"]),
                &[broken(&["Deployment s/a=0", "Deployment s/b=2"])],
            ),
            "failed: fewer pods are available than before: Deployment s/a (0 available), Deployment s/b (2 available)",
        ),
        (take(errors(Operator::AtMost), 1, false, Some(&["0.9"]), &[broken(&["0.8"])]), "passed"),
        (
            take(errors(Operator::AtMost), 1, false, Some(&["0.6"]), &[broken(&["0.8"])]),
            "failed: the value is 0.8, at most 0.5 is allowed, and was 0.6 before the change",
        ),
        (
            take(errors(Operator::AtLeast), 1, false, Some(&[]), &[broken(&["0.1"])]),
            "failed: the value is 0.1, at least 0.5 is allowed",
        ),
        (
            take(
                http(),
                1,
                false,
                Some(&["the answer's HTTP status is 500"]),
                &[broken(&["the answer's HTTP status is 503"])],
            ),
            "passed",
        ),
        (
            take(http(), 1, false, Some(&[]), &[broken(&["the answer's HTTP status is 503"])]),
            "failed: the answer's HTTP status is 503",
        ),
    ];
    for (got, want) in rows {
        assert_eq!(got, want);
    }
}

#[test]
fn answers_of_servers_are_read_and_what_says_nothing_is_no_answer() {
    let query = |body: serde_json::Value| gates::of_prometheus(200, &body.to_string(), Operator::AtMost, 0.5);
    let vector = |values: &[&str]| {
        let series: Vec<_> = values.iter().map(|v| json!({"metric": {}, "value": [1.0, v]})).collect();
        json!({"status": "success", "data": {"resultType": "vector", "result": series}})
    };
    assert_eq!(query(vector(&["0.1", "0.5"])), Reading::Broken(vec![]));
    assert_eq!(query(vector(&["0.1", "0.7", "0.6"])), Reading::Broken(vec!["0.7".to_owned()]));
    let scalar = json!({"status": "success", "data": {"resultType": "scalar", "result": [1.0, "0.6"]}});
    assert_eq!(query(scalar), Reading::Broken(vec!["0.6".to_owned()]));
    for (body, want) in [
        (vector(&[]), "no result"),
        (vector(&["NaN"]), "NaN"),
        (json!({"status": "error", "error": "parse error"}), "refuses the query: parse error"),
        (json!({"status": "success", "data": {"resultType": "matrix", "result": []}}), "matrix"),
    ] {
        let Reading::NoAnswer(why) = query(body.clone()) else { panic!("{body}") };
        assert!(why.contains(want), "{why}");
    }
    assert!(matches!(gates::of_prometheus(502, "<html>", Operator::AtMost, 1.0), Reading::NoAnswer(_)));
    assert_eq!(gates::of_http(302, None), Reading::Broken(vec![]));
    assert_eq!(
        gates::of_http(200, Some(204)),
        Reading::Broken(vec!["the answer's HTTP status is 200, not 204".to_owned()])
    );
    let deployment = json!({"metadata": {"namespace": "s", "name": "a"}, "spec": {"replicas": 3}, "status": {"availableReplicas": 2}});
    assert_eq!(
        gates::of_workload(WorkloadKind::Deployment, 9, &deployment).as_deref(),
        Some("Deployment s/a=2")
    );
    let set = json!({"metadata": {"namespace": "s", "name": "a"}, "status": {"desiredNumberScheduled": 2, "numberAvailable": 2}});
    assert_eq!(gates::of_workload(WorkloadKind::DaemonSet, 0, &set), None);
    // Its pods on the nodes that are on their way are not missed.
    let set = json!({"metadata": {"namespace": "s", "name": "a"}, "status": {"desiredNumberScheduled": 6, "numberAvailable": 4}});
    for (away, entry) in [(2, None), (1, Some("DaemonSet s/a=4")), (9, None)] {
        assert_eq!(gates::of_workload(WorkloadKind::DaemonSet, away, &set).as_deref(), entry, "{away}");
    }
    let statuses = [("a".to_owned(), "False".to_owned()), ("b".to_owned(), "True".to_owned())].into();
    let nodes: Vec<Arc<str>> = ["a", "b", "gone"].map(Arc::from).into();
    assert_eq!(gates::of_nodes("True", &nodes, &statuses), Reading::Broken(vec!["a".to_owned()]));
}

#[test]
fn the_status_of_a_policy_follows_the_plan_and_is_written_on_change_only() {
    let mut policy: RolloutPolicy = serde_json::from_value(json!({
        "metadata": {"name": "p", "generation": 2},
        "spec": {"pools": {"names": ["worker"]}, "waves": [{"name": "canary", "size": 1}], "onFailure": "Rollback"},
        "status": {"observedGeneration": 2, "pools": [{"name": "worker", "proved": "old",
            "rejected": [{"config": "new", "reason": "bad", "at": NOON}]}]},
    }))
    .unwrap();
    let (pool, nodes, facts) = (pool(3), six(0, 0), Facts { cluster: Cluster::Plain, ..Facts::default() });
    let run = |policy: &RolloutPolicy, now: &str| {
        let policies = PoolPolicies::of(&[policy], &[&pool], None, None);
        let inputs = Inputs {
            pools: vec![PoolInput { policy: policies.input("worker"), ..PoolInput::of(&pool) }],
            nodes: nodes.iter().collect(),
            facts: &facts,
            now: Time(at(now)),
        };
        let plan = plan(&inputs);
        let status = policies.status(policy, &plan.of_policies(), &Time(at(now)));
        (plan, status)
    };
    let (plan, status) = run(&policy, NOON);
    assert!(matches!(plan.pools[0].hold, Some(Hold::Rejected { .. })), "{plan}");
    policy.status = Some(status.unwrap());
    let status = policy.status.as_ref().unwrap();
    assert_eq!((&*status.conditions[0].status, &*status.conditions[0].reason), ("True", "InForce"));
    assert_eq!(run(&policy, "2026-07-01T13:00:00Z").1, None, "nothing has changed but the time");
    // The policy changes: what it rejected is tried again.
    policy.metadata.generation = Some(3);
    for _ in 0..3 {
        if let Some(status) = run(&policy, NOON).1 {
            policy.status = Some(status);
        }
    }
    let (plan, _) = run(&policy, NOON);
    assert_eq!(goes(&plan.pools[0]), "a", "{plan}");
    assert_eq!(policy.status.unwrap().current_wave.as_deref(), Some("canary"));
}

#[test]
fn a_policys_conditions_name_what_holds_which_pool_and_pools_that_are_not_there() {
    let mut policy: RolloutPolicy = serde_json::from_value(json!({
        "metadata": {"name": "p", "generation": 1},
        "spec": {"pools": {"names": ["worker", "wroker"]}, "waves": [{"name": "canary", "size": 1, "approval": "Needed"}]},
        "status": {"observedGeneration": 1, "pools": [{"name": "worker", "config": "new", "wave": "canary"}]},
    }))
    .unwrap();
    let (mut pool, nodes) = (pool(3), six(0, 0));
    let facts = Facts { cluster: Cluster::Plain, ..Facts::default() };
    let mut said = |policy: &mut RolloutPolicy, approve: Option<&str>, paused: bool| {
        let notes = approve.map(|value| [(api::names::own::APPROVED.to_owned(), value.to_owned())].into());
        (pool.metadata.annotations, pool.spec.paused) = (notes, paused);
        for _ in 0..4 {
            let policies = PoolPolicies::of(&[policy], &[&pool], None, None);
            let inputs = Inputs {
                pools: vec![PoolInput { policy: policies.input("worker"), ..PoolInput::of(&pool) }],
                nodes: nodes.iter().collect(),
                facts: &facts,
                now: Time(at(NOON)),
            };
            match policies.status(policy, &plan(&inputs).of_policies(), &Time(at(NOON))) {
                Some(status) => policy.status = Some(status),
                None => break,
            }
        }
        let all = &policy.status.as_ref().unwrap().conditions;
        let of = |type_: &str| all.iter().find(|c| c.type_ == type_).cloned().unwrap();
        let held = of("Held");
        (of("Ready").message, held.status, held.reason, held.message)
    };
    let rows = [
        (None, false, "True", "ApprovalNeeded", "pool worker: wave canary waits for an approval"),
        (
            Some("old/canary"),
            false,
            "True",
            "WrongApproval",
            "that of old/canary is for another config or wave",
        ),
        (None, true, "True", "Paused", "pool worker: the pool is paused"),
        (Some("new/canary"), false, "False", "NotHeld", "no pool is held"),
    ];
    for (approve, paused, status, reason, words) in rows {
        let got = said(&mut policy, approve, paused);
        assert!(got.0.contains("in force for worker; there is no MachineConfigPool wroker"), "{}", got.0);
        assert_eq!((&*got.1, &*got.2), (status, reason), "{approve:?}: {}", got.3);
        assert!(got.3.contains(words), "{approve:?}: {}", got.3);
    }
}

#[test]
fn words_for_people_are_told_from_what_is_decided_by() {
    let status = |pool: serde_json::Value, held: &str, ready: &str| -> RolloutPolicyStatus {
        let condition = |type_: &str, reason: &str| json!({"type": type_, "status": "True", "reason": reason, "message": "", "lastTransitionTime": NOON});
        serde_json::from_value(json!({
            "observedGeneration": 1, "pools": [pool], "conditions": [condition("Ready", ready), condition("Held", held)],
        }))
        .unwrap()
    };
    let pool = |wave: &str, held: &str, outcome: &str| json!({"name": "worker", "wave": wave, "held": held, "gates": [{"gate": "g", "outcome": outcome}]});
    let old = status(pool("canary", "a", "NoAnswer"), "GateUnreadable", "InForce");
    for (new, want) in [
        (status(pool("canary", "b", "Passed"), "Soak", "InForce"), true),
        (status(pool("canary", "b", "Failing"), "Gate", "InForce"), true),
        // A config that is replaced while a gate fails counts as rejected.
        (status(pool("canary", "b", "Failed"), "Gate", "InForce"), false),
        (status(pool("rest", "b", "Passed"), "Soak", "InForce"), false),
        (status(pool("canary", "a", "NoAnswer"), "GateUnreadable", "Invalid"), false),
        (RolloutPolicyStatus { current_wave: Some("rest".to_owned()), ..old.clone() }, false),
    ] {
        assert_eq!(changes_words_only(&old, &new), want, "{new:?}");
    }
    assert!(
        !changes_words_only(&RolloutPolicyStatus::default(), &old),
        "the first status is written at once"
    );
}
