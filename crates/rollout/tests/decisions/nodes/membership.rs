//! Which pool owns a node.

use super::*;

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
        assert!(!api::conditions::is_true(conditions, "Degraded"), "the pool's own nodes are not degraded");
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
fn a_pool_counts_only_the_nodes_that_it_owns() {
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
fn a_broken_selector_degrades_its_pool_only_and_holds_nodes_that_it_may_match() {
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
            // Labelled for it, but not moved yet.
            at("i", &["worker", "infra"], "worker"),
            // It is in one of its configs, so the labels that cannot be read now once selected it.
            at("j", &["worker"], "infra"),
            // Another pool whose name begins in the same way.
            at("k", &["worker"], "infra-two"),
            at("m", &["master", "infra"], "infra"),
            at("g", &["gpu", "worker"], "gpu"),
            // Either gpu or a conflict: the broken selector leaves that open.
            at("h", &["gpu", "infra"], "gpu"),
        ];
        let mut world = World::new(pools, nodes);
        // The pool worked before somebody broke its selector.
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
        // Once corrected, it works again.
        world.pools[1].spec.node_selector = selector(json!({"matchLabels": {role: ""}}));
        world.nodes.retain(|n| &*n.name != "h");
        world.settle();
        assert!(!is(&world, 1, "Degraded") && !is(&world, 1, rollout::MEMBERSHIP_CONFLICT));
        assert_eq!(world.plan_of("infra").nodes.len(), 1);
    }
}

#[test]
fn a_broken_selector_of_a_built_in_pool_holds_nodes_of_no_other_pool() {
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
