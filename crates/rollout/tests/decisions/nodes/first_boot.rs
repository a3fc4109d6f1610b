//! Labels of the pool that a machine first booted into.

use super::*;

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

/// Whoever has a node's credentials can write annotations of its Node, and delete what was recorded there.
#[test]
fn a_first_boot_gets_pool_labels_once_and_only_if_an_administrator_named_the_node() {
    let says = |name: &str, current: &str| moved(name, current, current).note("firstPivotConfig", "ri");
    for (list, labelled) in [("", false), ("b", false), ("aa,b", false), ("b, a", true)] {
        let mut world = booted(says("a", "v0"));
        expects(&mut world, list);
        let plan = world.plan_of("worker");
        let labels = &patch(&plan, "a")["metadata"]["labels"];
        assert_eq!(labels["node-role.kubernetes.io/infra"] == "", labelled, "{list}: {plan}");
        assert_eq!(goes(&plan).is_empty(), labelled, "{list}: it is an ordinary node of its pool");
        let told: Vec<_> = plan.unexpected.iter().map(|(node, pool)| (&**node, &**pool)).collect();
        assert_eq!(told == [("a", "infra")], !labelled, "{list}: {told:?}");
    }
    // Also if it is in its pool's config already.
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
    // An administrator removes the label, and the node deletes the record.
    world.nodes = vec![says("a", "v1").view()];
    let plan = world.plan();
    assert!(plan.pools.iter().all(|p| p.patches.is_empty()), "once: {plan}");
    // A node that already has the labels, and one that got them and is in another pool now.
    for mk in
        [says("a", "v2").roles(&["worker", "infra"]), says("a", "v1").note("customPoolLabelsApplied", "")]
    {
        let mut world = booted(mk);
        expects(&mut world, "a");
        assert_eq!(world.plan_of("infra").first_boot_nodes, Change::Remove);
    }
}

#[test]
fn only_an_unambiguous_selector_gives_labels() {
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
