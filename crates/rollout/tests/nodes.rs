//! Which pool owns a node, which nodes move, and what is written: the cases of the reference's own tests, as tables.
//! The numbers of rows are those of that table: here 1 to 62; 63 to 87 in `pool_status.rs`, 164 to 166 in `drains.rs`.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on ends.
mod common;

use common::{Mk, World, at, goes, moved, node, notes, patch, pool, selector};
use rollout::{
    BuildState, Change, Cluster, Facts, Hold, Layering, OsBuildView, OsConfigView, Step, Unanswered, Wait,
    max_unavailable,
};
use serde_json::{Value, json};

fn owners(world: &World) -> Vec<(String, String)> {
    let plan = world.plan();
    let mut all: Vec<_> = plan
        .pools
        .iter()
        .flat_map(|p| p.nodes.iter().map(|n| (n.node.to_string(), p.pool.to_string())))
        .collect();
    all.sort();
    all
}

#[test]
fn a_node_belongs_to_master_before_custom_pools_before_worker() {
    let pools = || ["master", "worker", "infra", "infra2"].map(|p| pool(p, "v1", Value::Null)).to_vec();
    let windows = |n: Mk| n.label("kubernetes.io/os", "windows");
    let rows: [(&str, Mk, Option<&str>); 9] = [
        ("1 unrelated label", node("n").roles(&["other"]), None),
        ("2 master", node("n").roles(&["master"]), Some("master")),
        ("3 master and worker", node("n").roles(&["master", "worker"]), Some("master")),
        ("4 worker and infra", node("n").roles(&["worker", "infra"]), Some("infra")),
        ("5 master and infra", node("n").roles(&["master", "infra"]), Some("master")),
        ("6 two custom pools", node("n").roles(&["worker", "infra", "infra2"]), None),
        ("7 another key", node("n").roles(&[]).label("node-role", "master"), None),
        ("8 Windows", windows(node("n").roles(&["master", "worker"])), None),
        ("custom alone", node("n").roles(&["infra"]), Some("infra")),
    ];
    for (about, node, want) in rows {
        let mut world = World::new(pools(), vec![node]);
        world.facts.cluster = Cluster::OpenShift;
        let got = owners(&world);
        assert_eq!(got.first().map(|(_, pool)| pool.as_str()), want, "{about}");
        assert!(got.len() <= 1, "{about}");
        assert_eq!(!world.plan().pool_alerts.is_empty(), about.starts_with('5'), "{about}");
    }
}

#[test]
fn two_custom_pools_are_refused_with_node_pools_and_remedy() {
    let pools = ["worker", "infra", "infra2"].map(|p| pool(p, "v1", Value::Null)).to_vec();
    let mut world = World::new(pools, vec![node("n").roles(&["worker", "infra", "infra2"])]);
    let plan = world.plan();
    let text = plan.unmanaged[0].to_string();
    for part in ["node n", "infra, infra2", "remove labels"] {
        assert!(text.contains(part), "{text}");
    }
    for pool in &plan.pools[1..] {
        let conditions = pool.status.as_ref().unwrap().conditions.as_deref().unwrap();
        assert_eq!(api::conditions::get(conditions, rollout::MEMBERSHIP_CONFLICT).unwrap().message, text);
        assert!(!api::conditions::is_true(conditions, "Degraded"), "the pool's own nodes are fine");
        assert!(pool.events.iter().any(|e| e.reason.text() == rollout::MEMBERSHIP_CONFLICT), "{pool}");
    }
    world.apply(&plan);
    assert!(world.plan().pools.iter().all(|p| p.events.is_empty()), "said once");
    world.nodes[0].labels = [("node-role.kubernetes.io/infra", "")].into_iter().collect();
    world.settle();
    let conditions = world.pools[1].status.as_ref().unwrap().conditions.as_deref().unwrap();
    assert!(!api::conditions::is_true(conditions, rollout::MEMBERSHIP_CONFLICT));
}

#[test]
fn a_pool_has_the_nodes_whose_owner_it_is() {
    let many = |prefix: &str, roles: &[&str], n: usize| -> Vec<Mk> {
        (0..n).map(|i| node(&format!("{prefix}{i}")).roles(roles)).collect()
    };
    let windows = node("w").label("kubernetes.io/os", "windows");
    let rows: [(&str, &str, Vec<Mk>, usize); 4] = [
        ("9", "master", [many("u", &[], 3), many("w", &["worker"], 3)].concat(), 0),
        ("10", "master", [many("m", &["master"], 2), many("w", &["worker"], 2)].concat(), 2),
        ("11", "infra", [many("m", &["master"], 3), many("i", &["worker", "infra"], 3)].concat(), 3),
        (
            "12",
            "worker",
            [many("m", &["master"], 3), many("i", &["worker", "infra"], 3), vec![windows]].concat(),
            3,
        ),
    ];
    for (about, name, nodes, want) in rows {
        let world = World::new(vec![pool(name, "v1", Value::Null)], nodes);
        assert_eq!(world.plan_of(name).nodes.len(), want, "{about}");
    }
}

#[test]
fn a_pool_with_a_broken_selector_is_degraded_alone_and_no_node_that_may_be_its_own_moves() {
    let broken = |name: &str, selector_of: Value| {
        let mut pool = pool(name, &format!("rendered-{name}-1"), json!(10));
        pool.spec.node_selector = selector(selector_of);
        pool
    };
    let sound = |name: &str| pool(name, &format!("rendered-{name}-1"), json!(10));
    let role = "node-role.kubernetes.io/infra";
    let equals = json!({"matchExpressions": [{"key": role, "operator": "Equals", "values": [""]}]});
    let no_values =
        json!({"matchLabels": {role: ""}, "matchExpressions": [{"key": "zone", "operator": "In"}]});
    let at = |name: &str, roles: &[&str], pool: &str| {
        let config = format!("rendered-{pool}-0");
        moved(name, &config, &config).roles(roles)
    };
    for selector_of in [equals, no_values] {
        let pools = vec![sound("worker"), broken("infra", selector_of), sound("master"), sound("gpu")];
        let nodes = vec![
            at("w", &["worker"], "worker"),
            // Labelled for it, and not moved yet.
            at("i", &["worker", "infra"], "worker"),
            // In a config of it: labels that cannot be read chose it.
            at("j", &["worker"], "infra"),
            // Another pool whose name begins the same.
            at("k", &["worker"], "infra-two"),
            at("m", &["master", "infra"], "infra"),
            at("g", &["gpu", "worker"], "gpu"),
            // gpu, or in conflict: nobody knows.
            at("h", &["gpu", "infra"], "gpu"),
        ];
        let mut world = World::new(pools, nodes);
        // It was well before somebody broke its selector.
        world.pools[1].status = Some(api::v1::MachineConfigPoolStatus {
            conditions: Some(vec![api::conditions::Condition::new("Updated", true, "", "")]),
            ..Default::default()
        });
        let plan = world.plan();
        let sent = |name: &str| {
            let plan = plan.pools.iter().find(|p| &*p.pool == name).unwrap();
            plan.patches.iter().map(|p| p.node.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(sent("worker"), ["k", "w"], "{plan}");
        assert_eq!((sent("master"), sent("gpu")), (vec!["m".to_owned()], vec!["g".to_owned()]), "{plan}");
        assert!(sent("infra").is_empty(), "{plan}");
        let held: Vec<_> = plan.pools[1].nodes.iter().map(|n| &*n.node).collect();
        assert_eq!(held, ["h", "i", "j"], "{plan}");
        for (pool, holds) in plan.pools.iter().zip([false, true, false, false]) {
            assert_eq!(matches!(pool.hold, Some(Hold::Selector { .. })), holds, "{plan}");
        }
        let text = plan.pools[1].hold.as_ref().unwrap().to_string();
        assert!(text.contains("infra") && text.contains("matchExpressions[0]"), "{text}");
        let is = |world: &World, pool: usize, type_: &str| {
            let conditions = world.pools[pool].status.as_ref().and_then(|s| s.conditions.clone());
            api::conditions::is_true(&conditions.unwrap_or_default(), type_)
        };
        world.settle();
        for (pool, want) in [false, true, false, false].into_iter().enumerate() {
            assert_eq!(is(&world, pool, "Degraded"), want, "pool {pool}");
            assert_eq!(is(&world, pool, rollout::MEMBERSHIP_CONFLICT), want, "pool {pool}");
            assert!(!want || !is(&world, pool, "Updated") && !is(&world, pool, "Updating"), "nobody knows");
        }
        // Corrected, it is as well as the others.
        world.pools[1].spec.node_selector = selector(json!({"matchLabels": {role: ""}}));
        world.nodes.retain(|n| &*n.name != "h");
        world.settle();
        assert!(!is(&world, 1, "Degraded") && !is(&world, 1, rollout::MEMBERSHIP_CONFLICT));
        assert_eq!(world.plan_of("infra").nodes.len(), 1);
    }
}

#[test]
fn a_broken_selector_of_a_built_in_pool_holds_whom_nobody_else_owns() {
    let role = |role: &str| format!("node-role.kubernetes.io/{role}");
    for (name, want) in [("worker", vec!["infra", "master"]), ("master", vec!["infra", "worker"])] {
        let mut pools: Vec<_> =
            ["worker", "infra", "master"].map(|p| pool(p, &format!("rendered-{p}-1"), json!(10))).into();
        let broken = pools.iter_mut().find(|p| p.metadata.name.as_deref() == Some(name)).unwrap();
        broken.spec.node_selector =
            selector(json!({"matchExpressions": [{"key": role(name), "operator": "exists"}]}));
        let nodes = vec![
            moved("w", "c", "c"),
            moved("i", "c", "c").roles(&["worker", "infra"]),
            moved("m", "c", "c").roles(&["master"]),
        ];
        let plan = World::new(pools, nodes).plan();
        let mut moving: Vec<&str> =
            plan.pools.iter().filter(|p| !p.patches.is_empty()).map(|p| &*p.pool).collect();
        moving.sort_unstable();
        assert_eq!(moving, want, "{plan}");
    }
}

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
fn a_bound_that_cannot_be_read_holds_the_pool_and_says_so() {
    let mut world = World::workers(json!("half"), vec![moved("a", "v0", "v0")]);
    let plan = world.plan_of("worker");
    assert_eq!(plan.hold, Some(Hold::MaxUnavailable("half".to_owned())));
    assert!(plan.patches.is_empty());
    world.settle();
    let conditions = world.pools[0].status.as_ref().unwrap().conditions.as_deref().unwrap();
    let message = &api::conditions::get(conditions, "Updating").unwrap().message;
    assert!(message.contains("half") && message.contains("10%"), "{message}");
}

/// The image that a layered pool is to be in.
fn layering(image: &str, state: BuildState, built: &str) -> Layering {
    Layering {
        config: Some(OsConfigView { name: "mosc".into(), image: image.into() }),
        build: Some(OsBuildView {
            name: "mosb".into(),
            machine_config: "v1".into(),
            state,
            image: built.into(),
        }),
    }
}

fn built(image: &str) -> Layering {
    layering(image, BuildState::Succeeded, image)
}

#[test]
fn as_many_nodes_go_as_there_are_free_slots() {
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
fn a_node_gets_one_patch_with_nothing_but_what_changes() {
    let taints = |list: Value| json!({"spec": {"taints": list}});
    let update = json!({"key": "UpdateInProgress", "effect": "PreferNoSchedule"});
    let to_v1 = notes(&[("desiredConfig", Some("v1"))]);
    let old = || moved("a", "v0", "v0");
    let ok = || moved("a", "v1", "v1");
    let plain = Layering::default;
    let tainted = |n: Mk| n.taint("UpdateInProgress", "PreferNoSchedule");
    let two = [("desiredConfig", Some("v1")), ("desiredImage", Some("img1"))];
    let both = |extra: Value, mut patch: Value| {
        patch["spec"] = extra["spec"].clone();
        patch
    };
    let building = layering("", BuildState::Building, "");
    let rows: Vec<(&str, i32, Mk, Layering, Value)> = vec![
        ("34 no annotations", 2, node("a"), plain(), to_v1.clone()),
        ("34 unrelated ones", 2, node("a").note("example.com/x", "y"), plain(), to_v1.clone()),
        ("34 only current", 2, node("a").note("currentConfig", "v0"), plain(), to_v1.clone()),
        ("34 v0/v0", 2, old(), plain(), to_v1.clone()),
        ("35 on its way", 2, moved("a", "v0", "v1"), plain(), Value::Null),
        (
            "36 config and image",
            2,
            moved("a", "v0", "v0").images(Some("img0"), Some("img0")),
            built("img1"),
            notes(&two),
        ),
        (
            "37 image alone",
            2,
            ok().images(Some("img0"), Some("img0")),
            built("img1"),
            notes(&[("desiredImage", Some("img1"))]),
        ),
        (
            "38 no longer layered",
            2,
            ok().images(Some("i"), Some("i")),
            plain(),
            notes(&[("desiredImage", None)]),
        ),
        ("39 at target", 2, ok(), plain(), Value::Null),
        ("40 off target, goes at once", 2, old(), plain(), to_v1.clone()),
        ("40 off target, waits", 1, old().unready(), plain(), taints(json!([update]))),
        (
            "41 at target, tainted",
            2,
            tainted(ok()).taint("team", "NoSchedule"),
            plain(),
            taints(json!([{"key": "team", "effect": "NoSchedule"}])),
        ),
        ("41 no taint left", 2, tainted(ok()), plain(), taints(Value::Null)),
        ("42 tainted, goes", 2, tainted(old()), plain(), both(taints(Value::Null), to_v1)),
        ("42 tainted, waits", 1, tainted(old()).unready(), plain(), Value::Null),
        ("43 build not over", 2, old(), building, Value::Null),
        ("44 build over", 2, tainted(old()), built("img1"), both(taints(Value::Null), notes(&two))),
        (
            "45 rolls back the image",
            2,
            ok().images(Some("i"), Some("i")),
            plain(),
            notes(&[("desiredImage", None)]),
        ),
    ];
    for (about, max, mk, layering, want) in rows {
        let mut world = World::workers(json!(max), vec![mk]);
        world.layering.insert("worker".to_owned(), layering);
        let plan = world.plan_of("worker");
        assert_eq!(patch(&plan, "a"), want, "{about}: {plan}");
        assert!(plan.patches.len() <= 1, "{about}");
    }
}

#[test]
fn zones_and_then_age_decide_who_goes_first() {
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
fn a_drifted_node_goes_in_the_slot_that_it_holds() {
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
            "where it belongs, it holds the slot",
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
        assert!(goes(&world.plan_of("worker")).is_empty(), "{about}: and nobody beside it");
    }
    let world = World::workers(json!(1), vec![drifted("a"), drifted("b"), old("c")]);
    let plan = world.plan_of("worker");
    let words = |i: usize| plan.nodes[i].step.to_string();
    assert_eq!(words(1), "waits: one at a time, and the slot is taken by a");
    assert_eq!(words(2), "waits: one at a time, and the slot is taken by a, b");
    let masters = vec![old("m0").roles(&["master"]), drifted("m1").roles(&["master"])];
    let mut world = World::new(vec![pool("master", "v1", json!(3))], masters);
    assert_eq!(goes(&world.plan_of("master")), ["m1"]);
    // The operator's own node goes last, but not while it has the slot that the others wait for.
    world.facts.operator_node = Some("m1".into());
    assert_eq!(goes(&world.plan_of("master")), ["m1"]);
    // Nor beside a member of the control plane that is away, whatever pool that is in.
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
fn a_node_whose_patch_has_no_answer_keeps_a_slot_and_is_left_alone() {
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
            "a drifted one may be on its way",
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
        assert!(!plan.exposed().contains(&"a".into()) || !patch.moves, "{about}");
        assert!(!updating(&plan).contains("does not answer"), "{about}");
        world.facts.unanswered = [("a".into(), Unanswered { overdue: true, ..patch })].into();
        let said = updating(&world.plan_of("worker"));
        assert!(said.contains("does not answer changes of Node a"), "{about}: {said}");
    }
    let mut world = arbiter_world(old("m"), moved("a", "v1", "v1"));
    world.facts.unanswered = [("a".into(), sent)].into();
    assert_eq!(goes(&world.plan_of("master")), none, "the arbiter may be on its way");
    let mut world = arbiter_world(moved("m", "v1", "v1"), old("a"));
    world.facts.unanswered = [("m".into(), sent)].into();
    assert_eq!(goes(&world.plan_of("arbiter")), none, "a master may be on its way");
}

/// What the pool's condition will say.
fn updating(plan: &rollout::PoolPlan) -> String {
    let list = plan.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    api::conditions::get(list, "Updating").map(|c| c.message.clone()).unwrap_or_default()
}

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
fn held_pools_write_nothing_to_nodes() {
    let nodes =
        || vec![moved("a", "v0", "v0"), moved("b", "v0", "v0").taint("UpdateInProgress", "PreferNoSchedule")];
    let mut empty = World::workers(json!(1), nodes());
    empty.pools[0].spec.configuration.name.clear();
    // Where the reference writes nothing at all; what the status says is in the tests of statuses.
    assert_eq!(empty.plan_of("worker").status.unwrap().configuration.name, "", "47");
    let mut paused = World::workers(json!(1), nodes());
    paused.pools[0].spec.paused = true;
    assert!(paused.plan_of("worker").status.is_some(), "48");
    let mut deleted = World::workers(json!(1), nodes());
    deleted.pools[0].metadata.deletion_timestamp = Some(api::k8s::Time(at(5)));
    let mut all = World::workers(json!(1), nodes());
    all.pools[0].spec.node_selector = selector(json!({}));
    for (world, hold) in [
        (empty, Hold::NothingRendered),
        (paused, Hold::Paused),
        (deleted, Hold::Deleting),
        (all, Hold::SelectsAll),
    ] {
        let plan = world.plan_of("worker");
        assert!(plan.patches.is_empty(), "{plan}");
        assert_eq!(plan.hold, Some(hold));
        assert!(plan.nodes.iter().all(|n| n.step == Step::Waits(Wait::Pool)));
    }
}

#[test]
fn nodes_learn_the_control_planes_topology_once() {
    let mut world = World::workers(json!(1), vec![moved("a", "v1", "v1"), moved("b", "v0", "v0")]);
    world.facts.control_plane_topology = "SingleReplica".into();
    world.facts.cluster = Cluster::OpenShift;
    let plan = world.plan_of("worker");
    assert_eq!(patch(&plan, "a"), notes(&[("controlPlaneTopology", Some("SingleReplica"))]));
    let both = [("desiredConfig", Some("v1")), ("controlPlaneTopology", Some("SingleReplica"))];
    assert_eq!(patch(&plan, "b"), notes(&both), "in the same patch");
    world.nodes = vec![moved("a", "v1", "v1").note("controlPlaneTopology", "SingleReplica").view()];
    assert!(world.plan_of("worker").patches.is_empty(), "49");
}

#[test]
fn nodes_get_their_pools_rules_for_drift_and_lose_them_with_it() {
    let rules = "repair /etc/app/**";
    let mut world = World::workers(json!(1), vec![moved("a", "v1", "v1"), moved("b", "v0", "v0")]);
    world.pools[0]
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(api::names::annotation::DRIFT.into(), rules.into());
    let plan = world.plan_of("worker");
    assert_eq!(patch(&plan, "a"), notes(&[("drift", Some(rules))]));
    assert_eq!(patch(&plan, "b"), notes(&[("desiredConfig", Some("v1")), ("drift", Some(rules))]));
    world.pools[0].spec.paused = true;
    assert_eq!(patch(&world.plan_of("worker"), "b"), notes(&[("drift", Some(rules))]), "it is no update");
    world.nodes = vec![moved("a", "v1", "v1").note("drift", rules).view()];
    assert!(world.plan_of("worker").patches.is_empty());
    world.pools[0].metadata.annotations = None;
    assert_eq!(patch(&world.plan_of("worker"), "a"), notes(&[("drift", None)]));
}

/// The nodes that pool `infra` expects.
fn expects(world: &mut World, nodes: &str) {
    let notes = world.pools[1].metadata.annotations.get_or_insert_default();
    notes.insert(api::names::annotation::FIRST_BOOT_NODES.to_owned(), nodes.to_owned());
}

fn booted(extra: Mk) -> World {
    let mut world = World::new(
        vec![pool("worker", "v1", json!(3)), pool("infra", "v2", json!(1)), pool("master", "v3", json!(1))],
        vec![extra],
    );
    expects(&mut world, "a,infra-node-1, infra-node-2");
    world.facts.first_pivot_pools = [("ri", "infra"), ("rw", "worker"), ("rm", "master"), ("rx", "gone")]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
    world
}

#[test]
fn a_machine_that_booted_into_a_custom_pool_gets_its_labels_first() {
    let old = |name: &str| moved(name, "v0", "v0");
    let rows = [
        ("50", old("a").note("firstPivotConfig", "ri"), true),
        ("51", old("a").note("firstPivotConfig", "ri").note("customPoolLabelsApplied", ""), false),
        ("52", old("a"), false),
        ("53", old("a").note("firstPivotConfig", "rw"), false),
        ("53", old("a").note("firstPivotConfig", "rm"), false),
        ("59 pool missing", old("a").note("firstPivotConfig", "rx"), false),
        ("config unknown", old("a").note("firstPivotConfig", "unknown"), false),
    ];
    for (about, mk, labelled) in rows {
        let mut world = booted(mk);
        let plan = world.plan_of("worker");
        if !labelled {
            assert_eq!(goes(&plan), ["a"], "{about}");
            continue;
        }
        let body = patch(&plan, "a");
        assert_eq!(body["metadata"]["labels"], json!({"node-role.kubernetes.io/infra": ""}), "55");
        assert_eq!(
            body["metadata"]["annotations"]["machineconfiguration.openshift.io/customPoolLabelsApplied"],
            ""
        );
        assert_eq!(plan.nodes[0].step, Step::Waits(Wait::PoolLabels("infra".into())));
        world.settle();
        assert_eq!(world.plan_of("infra").nodes.len(), 1);
        assert_eq!(world.nodes[0].desired_config.as_deref(), Some("v2"));
    }
    let mut world = booted(old("worker-node-1"));
    for name in ["infra-node-1", "infra-node-2"] {
        world.nodes.push(old(name).note("firstPivotConfig", "ri").view());
    }
    let plan = world.plan_of("worker");
    assert_eq!(goes(&plan), ["worker-node-1"], "54");
    assert_eq!(plan.patches.iter().filter(|p| p.pool_labels_applied).count(), 2, "54");
}

/// Whoever has a node's credentials can write what its Node says, and delete what was noted there.
#[test]
fn a_nodes_own_word_gives_it_no_labels_and_a_vouched_one_gets_them_once() {
    let says = |name: &str, current: &str| moved(name, current, current).note("firstPivotConfig", "ri");
    for (list, labelled) in [("", false), ("b", false), ("aa,b", false), ("b, a", true)] {
        let mut world = booted(says("a", "v0"));
        expects(&mut world, list);
        let plan = world.plan_of("worker");
        let labels = &patch(&plan, "a")["metadata"]["labels"];
        assert_eq!(labels["node-role.kubernetes.io/infra"] == "", labelled, "{list}: {plan}");
        assert_eq!(goes(&plan).is_empty(), labelled, "{list}: it is an ordinary node of its pool");
        let told: Vec<_> = plan.unvouched.iter().map(|(node, pool)| (&**node, &**pool)).collect();
        assert_eq!(told == [("a", "infra")], !labelled, "{list}: {told:?}");
    }
    // Also when it is in its pool's config by then.
    let mut world = booted(says("a", "v1"));
    expects(&mut world, "b,a");
    assert_eq!(
        patch(&world.plan_of("worker"), "a")["metadata"]["labels"]["node-role.kubernetes.io/infra"],
        ""
    );
    world.apply(&world.plan());
    let plan = world.plan_of("infra");
    assert_eq!(plan.first_boot_nodes, Change::Set("b".into()), "it has served");
    expects(&mut world, "b");
    // An administrator takes the label away, and the node deletes what was noted on it.
    world.nodes = vec![says("a", "v1").view()];
    let plan = world.plan();
    assert!(plan.pools.iter().all(|p| p.patches.is_empty()), "once: {plan}");
    // One that has them already, and one that was given them and is elsewhere now.
    for mk in
        [says("a", "v2").roles(&["worker", "infra"]), says("a", "v1").note("customPoolLabelsApplied", "")]
    {
        let mut world = booted(mk);
        expects(&mut world, "a");
        assert_eq!(world.plan_of("infra").first_boot_nodes, Change::Remove);
    }
}

#[test]
fn only_a_selector_that_leaves_no_choice_gives_labels() {
    let expr = |op: &str, values: Value| json!({"matchExpressions": [{"key": "k", "operator": op, "values": values}]});
    let rows: [(&str, Value, Value); 8] = [
        ("55", json!({"matchLabels": {"k": ""}}), json!({"k": ""})),
        ("56", expr("In", json!([""])), json!({"k": ""})),
        ("56", expr("Exists", Value::Null), json!({"k": ""})),
        ("57", expr("In", json!(["a", "b"])), Value::Null),
        ("57", expr("NotIn", json!(["a"])), Value::Null),
        ("57", expr("DoesNotExist", Value::Null), Value::Null),
        (
            "58",
            json!({"matchLabels": {"k": "v"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["w"]}]}),
            json!({"k": "v"}),
        ),
        ("59", Value::Null, Value::Null),
    ];
    for (about, select, want) in rows {
        let mut world = booted(moved("a", "v0", "v0").note("firstPivotConfig", "ri"));
        world.pools[1].spec.node_selector = selector(select);
        let plan = world.plan();
        let owner = plan.pools.iter().find(|p| !p.nodes.is_empty());
        let body = owner.map(|p| patch(p, "a")).unwrap_or_default();
        assert_eq!(body["metadata"]["labels"], want, "{about}: {plan}");
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

fn arbiter_world(master: Mk, arbiter: Mk) -> World {
    let pools = vec![pool("arbiter", "v1", json!(5)), pool("master", "v1", json!(1))];
    let mut world = World::new(pools, vec![master.roles(&["master"]), arbiter.roles(&["arbiter"])]);
    world.facts = Facts { control_plane_topology: "HighlyAvailableArbiter".into(), ..Facts::default() };
    for node in &mut world.nodes {
        node.control_plane_topology = Some("HighlyAvailableArbiter".into());
    }
    world
}

#[test]
fn masters_and_the_arbiter_take_turns() {
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
    assert!(world.plan_of("master").patches.is_empty(), "no Scheduler, no opinion");
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

#[test]
fn a_plan_reads_like_an_answer() {
    let nodes = vec![
        moved("a", "v1", "v1"),
        moved("b", "v0", "v1"),
        moved("c", "v0", "v0"),
        moved("d", "v0", "v0").unready(),
        moved("e", "v0", "v1").state("Degraded").note("reason", "no space left on /"),
        moved("f", "v0", "v0").cordoned(),
        moved("g", "v1", "v1").cordoned(),
        moved("h", "v0", "v1")
            .note("machineconfiguration.openshift.io/drainWaitsFor", "pod app/web: terminating"),
        moved("i", "v0", "v0"),
        node("j"),
    ];
    let mut world = World::workers(json!(8), nodes);
    world.pools.push(pool("infra", "v2", Value::Null));
    world.nodes.push(moved("k", "v0", "v0").roles(&["infra"]).view());
    world.pools[1].spec.paused = true;
    insta::assert_snapshot!(world.plan().to_string(), @r#"
    pool worker → MachineConfig v1: 1 of 8 may go; unavailable: b, d, f, g, h and 1 more; failing: e
      a: done
      b: moving: Working
      c: goes now
      d: waits: not ready: Ready is False (KubeletNotReady)
      e: failing (Degraded: no space left on /); it tries again
      f: waits: cordoned
      g: in its config, unavailable (cordoned)
      h: moving: draining, pod app/web: terminating
      i: waits: all 8 slots are taken by b, c, d, e, f and 3 more
      j: waits: no daemon has reported there
      patch c: desiredConfig=v1
      patch d: taints=[UpdateInProgress:PreferNoSchedule]
      patch f: taints=[UpdateInProgress:PreferNoSchedule]
      patch i: taints=[UpdateInProgress:PreferNoSchedule]
      patch j: taints=[UpdateInProgress:PreferNoSchedule]
      event Normal SetDesiredConfig MachineConfigPool/worker: Targeted node c to MachineConfig v1
      event Normal Updating MachineConfigPool/worker: All nodes are updating to MachineConfig v1
      event Warning Degraded MachineConfigPool/worker: Node e is reporting: "no space left on /"
    pool infra → MachineConfig v2: held, the pool is paused
      k: waits: its pool is held
    "#);
}
