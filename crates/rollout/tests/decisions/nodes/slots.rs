//! How many nodes are updated at once, and which.

use super::*;

#[test]
fn max_unavailable_is_rounded_down_and_at_least_one() {
    let rows = [
        ("13", Value::Null, Ok(1)),
        ("14", json!(2), Ok(2)),
        ("15", json!(0), Ok(1)),
        ("16", json!("50%"), Ok(2)),
        ("17", json!("60%"), Ok(2)),
        ("18", json!("50 percent"), Err("50 percent")),
        ("18", json!("60"), Err("60")),
        ("18", json!("40 %"), Err("40 %")),
        ("empty", json!("%"), Err("%")),
        ("signed", json!("+50%"), Ok(2)),
        ("signed", json!("-50%"), Err("-50%")),
        ("twice", json!("50%%"), Err("50%%")),
        ("negative", json!(-1), Err("-1")),
        ("all", json!("100%"), Ok(4)),
    ];
    for (about, value, want) in rows {
        let value = serde_json::from_value::<Option<api::k8s::IntOrString>>(value).unwrap();
        let got = max_unavailable("worker", value.as_ref(), 4);
        assert_eq!(got.as_ref().map_err(String::as_str), want.as_ref().map_err(|e: &&str| *e), "{about}");
    }
    let ten = api::k8s::IntOrString::Int(10);
    for control_plane in ["master", "arbiter"] {
        assert_eq!(max_unavailable(control_plane, Some(&ten), 20), Ok(1), "one at a time");
    }
}

#[test]
fn an_invalid_max_unavailable_holds_the_pool_and_is_reported() {
    let mut world = World::workers(json!("half"), vec![moved("a", "v0", "v0")]);
    let plan = world.plan_of("worker");
    assert_eq!(plan.hold, Some(Hold::MaxUnavailable("half".to_owned())));
    assert!(plan.patches.is_empty());
    world.settle();
    let conditions = world.pools[0].status.as_ref().unwrap().conditions.as_deref().unwrap();
    let message = &api::conditions::get(conditions, "Updating").unwrap().message;
    assert!(message.contains("half") && message.contains("10%"), "{message}");
}

#[test]
fn as_many_nodes_update_as_there_are_free_slots() {
    let ok = |n: &str| moved(n, "v1", "v1");
    let old = |n: &str| moved(n, "v0", "v0");
    let img = |n: &str, v: &str, i: &str| moved(n, v, v).images(Some(i), Some(i));
    let plain = Layering::default();
    type Row =
        (&'static str, i32, Vec<Mk>, Layering, &'static [&'static str], &'static [&'static str], usize);
    let rows: Vec<Row> = vec![
        ("19", 1, vec![ok("a"), ok("b"), ok("c")], plain.clone(), &[], &[], 1),
        ("20", 1, vec![ok("a"), ok("b"), ok("c").unready()], plain.clone(), &[], &[], 0),
        ("21", 1, vec![ok("a"), ok("b").unready(), moved("c", "v0", "v1")], plain.clone(), &[], &[], 0),
        ("22", 2, vec![old("a").unready(), old("b"), old("c")], plain.clone(), &["b"], &["c"], 1),
        (
            "23",
            3,
            vec![ok("a"), ok("b").unready(), moved("c", "v0", "v1"), old("d"), old("e")],
            plain.clone(),
            &["d"],
            &["e"],
            1,
        ),
        (
            "24",
            1,
            vec![ok("a"), ok("b"), moved("c", "v0", "v1"), old("d"), old("e")],
            plain.clone(),
            &[],
            &["d", "e"],
            0,
        ),
        (
            "25",
            1,
            vec![ok("a"), moved("b", "v0.1", "v0.2").state("Degraded"), old("c")],
            plain.clone(),
            &["b"],
            &["c"],
            1,
        ),
        ("26", 1, vec![ok("a"), ok("b").state("Degraded"), old("c")], plain.clone(), &[], &["c"], 0),
        (
            "27",
            1,
            vec![ok("a"), ok("b"), moved("c", "v1", "v2").state("Degraded"), ok("d")],
            plain.clone(),
            &["c"],
            &[],
            1,
        ),
        ("28", 1, vec![ok("a"), moved("b", "v1", "v2").state("Done"), ok("c")], plain.clone(), &[], &[], 0),
        (
            "29",
            4,
            vec![
                ok("a"),
                ok("b").unready(),
                moved("c", "v0", "v1"),
                old("d"),
                old("e"),
                old("f"),
                old("g"),
                ok("h"),
                ok("i"),
            ],
            plain.clone(),
            &["d", "e"],
            &["f", "g"],
            2,
        ),
        (
            "30",
            4,
            vec![
                img("a", "v1", "img1"),
                img("b", "v1", "img1").unready(),
                moved("c", "v0", "v1").images(Some("img0"), Some("img1")),
                img("d", "v0", "img0").unready(),
                img("e", "v0", "img0"),
                img("f", "v0", "img0"),
                img("g", "v0", "img0"),
                img("h", "v1", "img1"),
                img("i", "v1", "img1"),
            ],
            built("img1"),
            &["e"],
            &["f", "g"],
            1,
        ),
        (
            "31",
            1,
            vec![ok("a").images(None, Some("img1")), ok("b"), ok("c")],
            built("img1"),
            &[],
            &["b", "c"],
            0,
        ),
        (
            "32",
            1,
            vec![ok("a").images(None, Some("img1")).state("Working"), ok("b"), ok("c")],
            built("img1"),
            &[],
            &["b", "c"],
            0,
        ),
        ("33", 1, vec![ok("a").images(Some("img1"), None), ok("b"), ok("c")], plain.clone(), &[], &[], 0),
        (
            "33",
            1,
            vec![ok("a").images(Some("img1"), None).state("Working"), ok("b"), ok("c")],
            plain,
            &[],
            &[],
            0,
        ),
    ];
    for (about, max, nodes, layering, picks, rest, free) in rows {
        let mut world = World::workers(json!(max), nodes);
        world.layering.insert("worker".to_owned(), layering);
        let plan = world.plan_of("worker");
        assert_eq!(plan.hold, None, "{about}");
        assert_eq!(goes(&plan), picks, "{about}: {plan}");
        assert_eq!(plan.capacity.free, free, "{about}: {plan}");
        let waits = |s: &Step| matches!(s, Step::Waits(Wait::Capacity { .. }));
        let waiting: Vec<_> = plan.nodes.iter().filter(|n| waits(&n.step)).map(|n| &*n.node).collect();
        assert_eq!(waiting, rest, "{about}: {plan}");
        assert_eq!(plan.nodes.len(), world.nodes.len(), "{about}: every node has a step");
    }
}

#[test]
fn nodes_are_ordered_by_zone_then_age() {
    let zone = |name: &str, zone: &str, age: i64| {
        let n = moved(name, "v0", "v0").created(age);
        if zone.is_empty() { n } else { n.label("topology.kubernetes.io/zone", zone) }
    };
    let order = ["q", "r-old", "r-new", "z-old", "z-newer", "z-newest", "old", "newer", "newest"];
    let nodes = vec![
        zone("newest", "", 30),
        zone("z-newer", "ZZZ", 20),
        zone("r-new", "RRR", 20),
        zone("old", "", 10),
        zone("q", "QQQ", 99),
        zone("z-newest", "ZZZ", 30),
        zone("newer", "", 20),
        zone("r-old", "RRR", 10),
        zone("z-old", "ZZZ", 10),
    ];
    for max in 1..=order.len() {
        let plan = World::workers(json!(max), nodes.clone()).plan_of("worker");
        let mut want = order[..max].to_vec();
        want.sort_unstable();
        assert_eq!(goes(&plan), want, "46 with {max}");
    }
}

#[test]
fn a_drifted_node_is_updated_in_the_slot_that_it_holds() {
    let drifted = |name: &str| moved(name, "v0", "v0").state("Degraded");
    let (old, busy) = (|name: &str| moved(name, "v0", "v0"), |name: &str| moved(name, "v0", "v1"));
    let stuck = |name: &str| busy(name).state("Degraded");
    let none: [&str; 0] = [];
    let sent = |config: &str, state: &str| moved("a", config, config).images(None, Some("img")).state(state);
    let rows: [(&str, usize, Vec<Mk>, &[&str]); 16] = [
        ("sent to an image that it cannot run", 1, vec![sent("v0", "Unreconcilable"), old("b")], &["a"]),
        ("where it belongs but for that image", 1, vec![sent("v1", "Unreconcilable"), old("b")], &["a"]),
        ("an agent that does not say so holds its slot", 1, vec![sent("v0", "Working"), old("b")], &none),
        ("it holds the only slot", 1, vec![drifted("a"), old("b")], &["a"]),
        ("whoever is older", 1, vec![old("a").created(1), drifted("b")], &["b"]),
        ("what it cannot do is drift, too", 1, vec![old("a").state("Unreconcilable"), old("b")], &["a"]),
        ("a free slot is for another", 2, vec![drifted("a"), old("b"), old("c")], &["a", "b"]),
        ("one after the other", 1, vec![drifted("a"), drifted("b")], &["a"]),
        ("the first is on its way", 1, vec![busy("a"), drifted("b")], &none),
        ("the first fails at it", 1, vec![stuck("a"), drifted("b")], &none),
        ("beside one that is away", 1, vec![old("a").unready(), drifted("b")], &none),
        ("beside one that a person took out", 1, vec![old("a").cordoned(), drifted("b")], &none),
        ("with room for both", 2, vec![old("a").unready(), drifted("b"), old("c")], &["b"]),
        ("it is away itself", 1, vec![drifted("a").unready(), old("b")], &none),
        (
            "a node in its target config holds the slot",
            1,
            vec![moved("a", "v1", "v1").state("Degraded"), old("b")],
            &none,
        ),
        ("at work elsewhere, it gets there first", 1, vec![moved("a", "v0", "v2"), old("b")], &none),
    ];
    for (about, max, nodes, want) in rows {
        let mut world = World::workers(json!(max), nodes);
        let plan = world.plan_of("worker");
        assert_eq!(goes(&plan), want, "{about}: {plan}");
        world.apply(&world.plan());
        assert!(goes(&world.plan_of("worker")).is_empty(), "{about}: and no other node");
    }
    let world = World::workers(json!(1), vec![drifted("a"), drifted("b"), old("c")]);
    let plan = world.plan_of("worker");
    let words = |i: usize| plan.nodes[i].step.to_string();
    assert_eq!(words(1), "waits: one at a time, and the slot is taken by a");
    assert_eq!(words(2), "waits: one at a time, and the slot is taken by a, b");
    let masters = vec![old("m0").roles(&["master"]), drifted("m1").roles(&["master"])];
    let mut world = World::new(vec![pool("master", "v1", json!(3))], masters);
    assert_eq!(goes(&world.plan_of("master")), ["m1"]);
    // The operator's own node goes last, but not while it holds the slot that the others wait for.
    world.facts.operator_node = Some("m1".into());
    assert_eq!(goes(&world.plan_of("master")), ["m1"]);
    // Nor while another control-plane node is out of service, whatever its pool.
    world.pools.push(pool("worker", "v1", json!(1)));
    world.nodes.push(old("w").roles(&["worker"]).label("node-role.kubernetes.io/etcd", "").unready().view());
    let plan = world.plan_of("master");
    assert_eq!(goes(&plan), none, "{plan}");
    world.nodes.pop();
    world.nodes.push(drifted("w").roles(&["worker"]).label("node-role.kubernetes.io/etcd", "").view());
    let plan = world.plan();
    let all: Vec<_> = plan.pools.iter().flat_map(goes).collect();
    assert_eq!(all, ["m1"], "one of the two: {plan}");
}

#[test]
fn a_node_with_an_unanswered_patch_keeps_its_slot_and_gets_no_other() {
    let old = |name: &str| moved(name, "v0", "v0");
    let none: [&str; 0] = [];
    let sent = Unanswered { moves: true, overdue: false };
    let tainted = Unanswered { moves: false, overdue: false };
    type Row<'r> = (&'r str, usize, Vec<Mk>, Unanswered, &'r [&'r str]);
    let rows: [Row<'_>; 6] = [
        ("it may be on its way", 1, vec![old("a"), old("b")], sent, &none),
        ("so it takes one of two", 2, vec![old("a"), old("b"), old("c")], sent, &["b"]),
        ("one that does not move it takes none", 1, vec![old("a"), old("b")], tainted, &["b"]),
        ("one that is away has its slot", 2, vec![old("a").unready(), old("b"), old("c")], sent, &["b"]),
        (
            "a drifted one may be updated",
            1,
            vec![old("a").state("Degraded"), old("b").state("Degraded")],
            sent,
            &none,
        ),
        ("it may be back already", 1, vec![moved("a", "v1", "v1"), old("b")], tainted, &["b"]),
    ];
    for (about, max, nodes, patch, want) in rows {
        let mut world = World::workers(json!(max), nodes);
        world.facts.unanswered = [("a".into(), patch)].into();
        let plan = world.plan_of("worker");
        assert_eq!(goes(&plan), want, "{about}: {plan}");
        assert!(plan.patches.iter().all(|p| &*p.node != "a"), "{about}: {plan}");
        assert!(!plan.nodes_with_late_patches().contains(&"a".into()) || !patch.moves, "{about}");
        assert!(!updating(&plan).contains("does not answer"), "{about}");
        world.facts.unanswered = [("a".into(), Unanswered { overdue: true, ..patch })].into();
        let said = updating(&world.plan_of("worker"));
        assert!(said.contains("does not answer changes of Node a"), "{about}: {said}");
    }
    let mut world = arbiter_world(old("m"), moved("a", "v1", "v1"));
    world.facts.unanswered = [("a".into(), sent)].into();
    assert_eq!(goes(&world.plan_of("master")), none, "the arbiter may be in progress");
    let mut world = arbiter_world(moved("m", "v1", "v1"), old("a"));
    world.facts.unanswered = [("m".into(), sent)].into();
    assert_eq!(goes(&world.plan_of("arbiter")), none, "a master may be in progress");
}
