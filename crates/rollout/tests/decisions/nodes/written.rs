//! What is written to a node, and what is not.

use super::*;

#[test]
fn a_node_gets_one_patch_with_only_the_changed_fields() {
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
fn a_held_pool_patches_no_node() {
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
fn nodes_get_their_pools_settings_and_lose_them_with_the_pools() {
    for (key, name, text) in [
        (api::names::annotation::DRIFT, "drift", "repair /etc/app/**"),
        (api::names::own::TRIAL, "trial", "within=5m"),
        (api::names::annotation::REBOOTS, api::names::annotation::REBOOTS, "AsReference"),
        (api::names::annotation::HOST_PACKAGES, api::names::annotation::HOST_PACKAGES, "Install"),
        (api::names::annotation::LIVE_EXTENSIONS, api::names::annotation::LIVE_EXTENSIONS, "Apply"),
    ] {
        let mut world = World::workers(json!(1), vec![moved("a", "v1", "v1"), moved("b", "v0", "v0")]);
        world.pools[0].metadata.annotations.get_or_insert_default().insert(key.into(), text.into());
        let plan = world.plan_of("worker");
        assert_eq!(patch(&plan, "a"), notes(&[(name, Some(text))]));
        assert_eq!(patch(&plan, "b"), notes(&[("desiredConfig", Some("v1")), (name, Some(text))]));
        world.pools[0].spec.paused = true;
        assert_eq!(patch(&world.plan_of("worker"), "b"), notes(&[(name, Some(text))]), "it is no update");
        world.nodes = vec![moved("a", "v1", "v1").note(name, text).view()];
        assert!(world.plan_of("worker").patches.is_empty());
        world.pools[0].metadata.annotations = None;
        assert_eq!(patch(&world.plan_of("worker"), "a"), notes(&[(name, None)]));
    }
}

#[test]
fn the_printed_plan_is_readable() {
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

#[test]
fn a_node_that_joins_is_kept_free_until_it_is_in_its_pools_config() {
    let joining = json!({"key": "machineconfig.dev/joining", "effect": "NoSchedule"});
    let update = json!({"key": "UpdateInProgress", "effect": "PreferNoSchedule"});
    let empty = |name: &str| moved(name, "mco-empty-mc", "mco-empty-mc").created(2_000);
    let taints = |list: Value| json!({"spec": {"taints": list}});
    let tainted = |mk: Mk| mk.taint("machineconfig.dev/joining", "NoSchedule");
    let sent = |list: Value| {
        let mut patch = notes(&[("desiredConfig", Some("v1"))]);
        patch["spec"] = json!({ "taints": list });
        patch
    };
    let on_its_way = || tainted(moved("a", "mco-empty-mc", "v1").created(2_000));
    let rows: Vec<(&str, Mk, Value)> = vec![
        ("goes at once", empty("a"), sent(json!([joining]))),
        ("waits for another one", empty("a").unready(), taints(json!([update, joining]))),
        ("is tainted already", on_its_way(), Value::Null),
        ("was there before its pool", empty("a").created(1_000), notes(&[("desiredConfig", Some("v1"))])),
        (
            "had a config before",
            moved("a", "v0", "v0").created(2_000),
            notes(&[("desiredConfig", Some("v1"))]),
        ),
        (
            "is done",
            tainted(moved("a", "v1", "v1").created(2_000)).taint("team", "NoSchedule"),
            taints(json!([{"key": "team", "effect": "NoSchedule"}])),
        ),
        (
            "had a config before, registered again, and goes at once",
            tainted(moved("a", "v0", "v0").created(2_000)),
            notes(&[("desiredConfig", Some("v1"))]),
        ),
        (
            "had a config before, registered again, and waits",
            tainted(moved("a", "v0", "v0").created(2_000)).cordoned(),
            taints(json!([update])),
        ),
        (
            "registered with the taint, and its agent has not reported",
            tainted(node("a").created(2_000)),
            taints(json!([joining, update])),
        ),
    ];
    let of = |mk: Mk| {
        let mut world = World::workers(json!(1), vec![mk]);
        world.pools[0].metadata.creation_timestamp = Some(api::k8s::Time(at(1_500)));
        world
    };
    for (about, mk, want) in rows {
        let plan = of(mk).plan_of("worker");
        assert_eq!(patch(&plan, "a"), want, "{about}: {plan}");
    }
    let plan = of(empty("a").roles(&["worker", "control-plane"])).plan_of("worker");
    assert!(
        !patch(&plan, "a").to_string().contains("joining"),
        "the control plane has taints of its own: {plan}"
    );
    // Its kubelet registered it before kubeadm labelled it.
    let above = || on_its_way().roles(&["worker", "control-plane"]);
    for is_paused in [false, true] {
        let mut world = of(above());
        world.pools[0].spec.paused = is_paused;
        let plan = world.plan_of("worker");
        assert_eq!(patch(&plan, "a"), taints(Value::Null), "paused: {is_paused}: {plan}");
    }
    let mut paused = of(empty("a"));
    paused.pools[0].spec.paused = true;
    assert!(paused.plan_of("worker").patches.is_empty(), "a paused pool writes nothing");
    let rows = [
        ("it is in the pool's config", moved("a", "v1", "v1"), taints(Value::Null)),
        ("it registered again in the config that it had", moved("a", "v0", "v0"), taints(Value::Null)),
        ("it is on its way", moved("a", "v0", "v1"), Value::Null),
        ("it never had a config", empty("a"), Value::Null),
        ("its agent has not reported", node("a"), Value::Null),
    ];
    for (about, mk, want) in rows {
        let mut paused = of(tainted(mk.created(2_000)));
        paused.pools[0].spec.paused = true;
        let plan = paused.plan_of("worker");
        assert_eq!(patch(&plan, "a"), want, "paused, {about}: {plan}");
    }
    // Another node has the only slot.
    let mut busy = of(tainted(moved("a", "v0", "v0").created(2_000)));
    busy.nodes.push(moved("b", "v0", "v1").view());
    let plan = busy.plan_of("worker");
    assert_eq!(patch(&plan, "a"), taints(json!([update])), "it waits for its turn: {plan}");
}

#[test]
fn a_node_that_no_pool_owns_loses_the_taint_of_nodes_that_join() {
    const UNTIL: i64 = 2_000 + 600;
    let tainted = |mk: Mk| mk.taint("machineconfig.dev/joining", "NoSchedule").created(2_000);
    let role = |roles: &[&str]| tainted(node("a").roles(roles));
    let rows: Vec<(&str, Mk, Cluster, i64, Option<i64>)> = vec![
        ("another role", role(&["storage"]), Cluster::Plain, 2_001, None),
        ("two custom pools", role(&["infra", "gpu"]), Cluster::Plain, 2_001, None),
        ("no agent yet", role(&[]), Cluster::Plain, UNTIL - 1, Some(UNTIL)),
        ("no agent any more", role(&[]), Cluster::Plain, UNTIL, None),
        ("not labelled yet", role(&[]), Cluster::OpenShift, UNTIL - 1, Some(UNTIL)),
        ("nobody labels it", role(&[]), Cluster::OpenShift, UNTIL, None),
    ];
    for (about, mk, cluster, second, until) in rows {
        let mut world = World::workers(json!(1), vec![mk.clone().taint("team", "NoSchedule")]);
        world.pools.extend(["infra", "gpu"].map(|name| pool(name, "v1", Value::Null)));
        world.facts.cluster = cluster;
        let plan = world.plan_at(second);
        let got: Vec<Value> = plan.unmanaged_patches.iter().map(body).collect();
        let team = json!([{"key": "team", "effect": "NoSchedule"}]);
        let want = if until.is_some() { vec![] } else { vec![json!({"spec": {"taints": team}})] };
        assert_eq!(got, want, "{about}: {plan}");
        assert_eq!(plan.look_again, until.map(at), "{about}: it is looked at again in time");
        let words = plan.unmanaged[0].to_string();
        assert_eq!(
            words.contains("machineconfig.dev/joining:NoSchedule"),
            until.is_some(),
            "{about}: {words}"
        );
        if until.is_none() {
            let unanswered = Unanswered { moves: false, overdue: false };
            world.facts.unanswered.insert("a".into(), unanswered);
            assert!(
                world.plan_at(second).unmanaged_patches.is_empty(),
                "{about}: not while a patch is on its way"
            );
            world.facts.unanswered.clear();
            world.apply(&plan);
            let plan = world.plan_at(second);
            assert!(plan.unmanaged_patches.is_empty() && plan.unmanaged.len() == 1, "{about}: {plan}");
        }
    }
    let plan = World::workers(json!(1), vec![node("a").roles(&["storage"])]).plan();
    assert!(plan.unmanaged_patches.is_empty(), "without the taint there is nothing to remove: {plan}");
}

#[test]
fn a_node_that_no_pool_owns_takes_nothing_along_any_more() {
    let marked = || node("a").roles(&["storage"]).note("machineconfig.dev/waiting", "v1");
    let mut world = World::workers(json!(1), vec![marked()]);
    world.facts.cluster = Cluster::Plain;
    let plan = world.plan();
    let got: Vec<Value> = plan.unmanaged_patches.iter().map(body).collect();
    assert_eq!(got, [json!({"metadata": {"annotations": {"machineconfig.dev/waiting": null}}})], "{plan}");
    world.apply(&plan);
    assert!(world.plan().unmanaged_patches.is_empty());
}
