//! Masters, the arbiter, and the node that runs the operator.

use super::*;

#[test]
fn a_drifted_arbiter_and_its_masters_do_not_wait_for_each_other() {
    let old = |name: &str| moved(name, "v0", "v0");
    let drifted = |name: &str| old(name).state("Degraded");
    let none: [&str; 0] = [];
    type Row<'r> = (&'r str, Mk, Mk, &'r [&'r str], &'r [&'r str]);
    let rows: [Row<'_>; 4] = [
        ("it goes first", old("m"), drifted("a"), &none, &["a"]),
        ("so it does before a drifted master", drifted("m"), drifted("a"), &none, &["a"]),
        ("not beside a master that is away", old("m").unready(), drifted("a"), &none, &none),
        ("a drifted master goes before it", drifted("m"), old("a"), &["m"], &none),
    ];
    for (about, master, arbiter, masters, arbiters) in rows {
        let world = arbiter_world(master, arbiter);
        assert_eq!(goes(&world.plan_of("master")), masters, "{about}");
        assert_eq!(goes(&world.plan_of("arbiter")), arbiters, "{about}");
    }
}

#[test]
fn the_node_that_runs_the_operator_goes_last() {
    let master = |name: &str| moved(name, "v0", "v0").roles(&["master"]);
    let mut world =
        World::new(vec![pool("master", "v1", Value::Null)], vec![master("a"), master("b").created(2_000)]);
    world.facts.operator_node = Some("a".into());
    let plan = world.plan_of("master");
    assert_eq!(goes(&plan), ["b"]);
    assert_eq!(plan.nodes[0].step, Step::Waits(Wait::RunsOperator));
    assert!(plan.events.iter().any(|e| e.reason.text() == "DeferringOperatorNodeUpdate"));
    world.nodes.pop();
    assert_eq!(goes(&world.plan_of("master")), ["a"]);
}

#[test]
fn masters_and_the_arbiter_update_one_at_a_time() {
    let old = |name: &str| moved(name, "v0", "v0");
    let ok = |name: &str| moved(name, "v1", "v1");
    let both = arbiter_world(old("m"), old("a"));
    assert_eq!(goes(&both.plan_of("master")), ["m"], "60");
    let plan = both.plan_of("arbiter");
    assert_eq!((goes(&plan), plan.patches.len()), (vec![], 1), "60: tainted, not sent");
    assert!(both.plan().pools.iter().all(|p| p.status.is_some()), "60");

    let mut paused = arbiter_world(old("m"), old("a"));
    paused.pools[1].spec.paused = true;
    assert_eq!(goes(&paused.plan_of("arbiter")), ["a"], "61");
    assert!(paused.plan_of("master").patches.is_empty(), "61");

    let mut out = arbiter_world(old("m").unready(), old("a"));
    out.pools[1].spec.paused = true;
    let plan = out.plan_of("arbiter");
    assert!(plan.patches.is_empty() && plan.status.is_some(), "62: {plan}");

    let away = arbiter_world(old("m"), ok("a").unready());
    let plan = away.plan_of("master");
    assert_eq!(goes(&plan), Vec::<String>::new());
    assert!(plan.hold.as_ref().unwrap().to_string().contains("arbiter a"), "{plan}");
    let done = arbiter_world(ok("m"), old("a"));
    assert_eq!(goes(&done.plan_of("arbiter")), ["a"]);
    let mut alone = arbiter_world(ok("m"), old("a"));
    alone.pools.pop();
    assert_eq!(alone.plan_of("arbiter").hold, Some(Hold::NoMasterPool));
}

#[test]
fn the_scheduler_decides_whether_masters_take_pods() {
    let mut world = World::new(
        vec![pool("master", "v1", Value::Null)],
        vec![moved("m", "v1", "v1").roles(&["master"]).taint("node-role.kubernetes.io/master", "NoSchedule")],
    );
    assert!(world.plan_of("master").patches.is_empty(), "without a Scheduler object nothing is decided");
    world.facts.masters_schedulable = Some(true);
    let body = patch(&world.plan_of("master"), "m");
    assert_eq!(body["metadata"]["labels"]["node-role.kubernetes.io/worker"], "");
    assert_eq!(body["metadata"]["labels"]["node-role.kubernetes.io/control-plane"], "");
    assert_eq!(body["spec"], json!({"taints": null}));
    world.settle();
    world.facts.masters_schedulable = Some(false);
    let body = patch(&world.plan_of("master"), "m");
    assert_eq!(body["metadata"]["labels"], json!({"node-role.kubernetes.io/worker": null}));
    assert_eq!(
        body["spec"]["taints"],
        json!([{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}])
    );
    world.settle();
    assert!(world.plan_of("master").patches.is_empty());
}
