//! What is written to a node, and what is not.

use super::*;

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
fn held_pools_write_nothing_to_nodes() {
    let nodes =
        || vec![moved("a", "v0", "v0"), moved("b", "v0", "v0").taint("UpdateInProgress", "PreferNoSchedule")];
    let mut empty = World::workers(json!(1), nodes());
    empty.pools[0].spec.configuration.name.clear();
    // The reference writes nothing at all here. The tests of statuses check what the status says.
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
