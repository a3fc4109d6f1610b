//! Counts, conditions and events of a pool: the cases of the reference's own tests, as tables.
//! The row numbers are those of that table: 63 to 87 here. Row 72, a pool without either image build object, is part of
//! every table of `nodes`.

use crate::common::{Mk, World, moved, node};
use api::conditions;
use api::v1::ControllerCertificate;
use rollout::{BuildState, ImageWait, Layering, OsBuildView, OsConfigView, PoolInput};
use serde_json::json;

/// The status after the plan.
fn status(world: &World) -> api::v1::MachineConfigPoolStatus {
    let mut world = world.clone();
    let plan = world.plan();
    world.apply(&plan);
    world.pools[0].status.clone().unwrap()
}

/// Status and message of a condition.
fn says(status: &api::v1::MachineConfigPoolStatus, type_: &str) -> (String, String) {
    let c =
        conditions::get(status.conditions.as_deref().unwrap_or_default(), type_).cloned().unwrap_or_default();
    (c.status, c.message)
}

fn image_of(image: &str, state: BuildState, built: &str) -> Layering {
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

#[test]
fn updated_and_available_are_counted_as_the_reference_counts_them() {
    let ok = || moved("n", "v1", "v1");
    let layered = || image_of("img1", BuildState::Succeeded, "img1");
    let plain = Layering::default;
    let rows: Vec<(&str, Mk, Layering, bool, bool)> = vec![
        ("63", ok(), plain(), true, true),
        ("64", moved("n", "v0", "v0"), plain(), false, true),
        ("65", moved("n", "v0", "v0").images(Some("img0"), Some("img0")), layered(), false, true),
        ("66", ok().images(None, Some("img1")).state("Working"), layered(), false, false),
        ("66", ok().images(None, Some("img1")), layered(), false, false),
        ("67", moved("n", "v0", "v1"), plain(), false, false),
        ("67", moved("n", "v0", "v1").state("Done"), plain(), false, false),
        ("67", ok().images(Some("img0"), Some("img1")), layered(), false, false),
        ("68", ok().state("Degraded"), plain(), false, false),
        ("68", ok().state("Degraded").images(Some("img1"), Some("img1")), layered(), false, false),
        ("68", ok().state("Degraded").images(Some("img0"), Some("img1")), layered(), false, false),
        ("69", ok().state("Rebooting"), plain(), false, false),
        ("70", ok().unready(), plain(), true, false),
        ("71", ok().images(Some(""), Some("img1")), layered(), false, false),
        ("no daemon", node("n"), plain(), false, false),
        ("layered and done", ok().images(Some("img1"), Some("img1")), layered(), true, true),
    ];
    for (about, mk, layering, done, available) in rows {
        let mut world = World::workers(json!(1), vec![mk]);
        // Paused, so that the plan changes nothing and the node is counted as it is.
        world.pools[0].spec.paused = true;
        world.layering.insert("worker".to_owned(), layering);
        let got = status(&world);
        assert_eq!(got.updated_machine_count == 1, done, "{about}");
        assert_eq!(got.unavailable_machine_count == 0, available, "{about}");
    }
}

#[test]
fn nodes_update_to_an_image_only_when_its_build_is_current() {
    let config = |image: &str| Some(OsConfigView { name: "mosc".into(), image: image.into() });
    let build = |state, image: &str| {
        Some(OsBuildView { name: "mosb".into(), machine_config: "v1".into(), state, image: image.into() })
    };
    // `None`: nodes are updated. `Some(error?)`: they wait.
    let rows = [
        ("no image build at all", None, None, None),
        ("72", config(""), None, Some(false)),
        ("72", config(""), build(BuildState::Initial, ""), Some(false)),
        ("73", None, build(BuildState::Succeeded, "A"), Some(true)),
        ("74", config("A"), build(BuildState::Succeeded, "B"), Some(false)),
        ("75", config("A"), build(BuildState::Succeeded, "A"), None),
        ("76", config("A"), build(BuildState::Prepared, ""), Some(false)),
        ("76", config("A"), build(BuildState::Building, "A"), Some(false)),
        ("77", config("A"), build(BuildState::Failed, "A"), Some(true)),
    ];
    for (about, config, build, want) in rows {
        let got = Layering { config, build }.ready();
        assert_eq!(got.as_ref().err().map(ImageWait::is_error), want, "{about}: {got:?}");
    }
}

#[test]
fn a_status_has_counts_and_conditions() {
    let all = |n: usize, f: fn(&str) -> Mk| (0..n).map(|i| f(&format!("n{i}"))).collect::<Vec<_>>();
    let old = |name: &str| moved(name, "v0", "v0");
    let ok = |name: &str| moved(name, "v1", "v1");

    // The pool is paused if the plan would change the counts.
    let mut world = World::workers(json!(1), all(3, old));
    world.pools[0].spec.paused = true;
    let got = status(&world);
    let counts = |s: &api::v1::MachineConfigPoolStatus| {
        [
            s.machine_count,
            s.updated_machine_count,
            s.ready_machine_count,
            s.unavailable_machine_count,
            s.degraded_machine_count,
        ]
    };
    assert_eq!(counts(&got), [3, 0, 0, 0, 0], "78");
    assert_eq!(says(&got, "Updated").0, "False", "80");
    let paused = "Pool is paused; will not update to MachineConfig v1";
    assert_eq!(says(&got, "Updating"), ("False".to_owned(), paused.to_owned()), "80");

    world.pools[0].spec.paused = false;
    let got = status(&world);
    assert_eq!(counts(&got), [3, 0, 0, 1, 0], "a node that was just sent counts at once");
    assert_eq!(says(&got, "Updating").1, "All nodes are updating to MachineConfig v1", "78");

    let got = status(&World::workers(json!(1), vec![moved("a", "v0", "v1"), old("b"), old("c")]));
    assert_eq!((counts(&got), says(&got, "Updating").0.as_str()), ([3, 0, 0, 1, 0], "True"), "79");

    let bad = moved("a", "v0", "v1").state("Degraded").note("reason", "disk is full");
    let got = status(&World::workers(json!(1), vec![bad, old("b"), old("c")]));
    assert_eq!(counts(&got), [3, 0, 0, 0, 1], "81");
    let text = "Node a is reporting: \"disk is full\"";
    assert_eq!(says(&got, "NodeDegraded"), ("True".to_owned(), text.to_owned()), "81");
    assert_eq!(says(&got, "Degraded"), ("True".to_owned(), text.to_owned()), "81");
    let reason = &conditions::get(got.conditions.as_deref().unwrap(), "NodeDegraded").unwrap().reason;
    assert_eq!(reason, "1 nodes are reporting degraded status on sync");

    let world = World::workers(json!(1), all(3, ok));
    let got = status(&world);
    assert_eq!(counts(&got), [3, 3, 3, 0, 0], "82");
    assert_eq!(says(&got, "Updated").1, "All nodes are updated with MachineConfig v1", "82");
    assert_eq!(says(&got, "Updating"), ("False".to_owned(), String::new()), "82");
    assert_eq!(got.configuration.name, "v1", "82");
    assert_eq!(got.observed_generation, 1);
}

#[test]
fn a_layered_pool_reports_the_state_of_its_build() {
    let build = |state| image_of("A", state, "A");
    let none = Layering { config: Some(OsConfigView { name: "mosc".into(), image: "".into() }), build: None };
    let new = image_of("A", BuildState::Succeeded, "B");
    // `Updating` while not paused, and while paused.
    let rows = [
        ("none", none, "True", "True"),
        ("prepared", build(BuildState::Prepared), "True", "True"),
        ("building", build(BuildState::Building), "True", "True"),
        ("succeeded", build(BuildState::Succeeded), "True", "False"),
        ("succeeded, another image", new, "True", "False"),
        ("failed", build(BuildState::Failed), "False", "False"),
        ("interrupted", build(BuildState::Interrupted), "False", "False"),
        ("initial", build(BuildState::Initial), "True", "True"),
    ];
    for (about, layering, running, paused) in rows {
        let mut world = World::workers(json!(1), vec![moved("a", "v0", "v0")]);
        world.layering.insert("worker".to_owned(), layering);
        assert_eq!(says(&status(&world), "Updating").0, running, "83 {about}");
        world.pools[0].spec.paused = true;
        assert_eq!(says(&status(&world), "Updating").0, paused, "83 {about}, paused");
        world.pools[0].spec.paused = false;
        let broken = json!([{"type": "RenderDegraded", "status": "True", "message": "no such file"}]);
        world.pools[0].status.get_or_insert_default().conditions = serde_json::from_value(broken).unwrap();
        let got = status(&world);
        assert_eq!(says(&got, "Updating").0, "False", "83 {about}, degraded");
        assert_eq!(says(&got, "Degraded"), ("True".to_owned(), "no such file".to_owned()));
    }
    let mut world = World::workers(json!(1), vec![moved("a", "v1", "v1").images(Some("A"), Some("A"))]);
    world.layering.insert("worker".to_owned(), build(BuildState::Succeeded));
    let got = status(&world);
    assert_eq!(says(&got, "Updating").0, "False", "84");
    assert_eq!(says(&got, "Updated").1, "All nodes are updated with MachineConfig v1 / Image A", "84");
    let failed = json!([{"type": "ImageBuildDegraded", "status": "True"}]);
    world.pools[0].status.get_or_insert_default().conditions = serde_json::from_value(failed).unwrap();
    world.layering.insert("worker".to_owned(), build(BuildState::Failed));
    assert_eq!(says(&status(&world), "Degraded").0, "True");
    world.layering.insert("worker".to_owned(), build(BuildState::Building));
    let got = status(&world);
    assert_eq!(
        (says(&got, "ImageBuildDegraded").0, says(&got, "Degraded").0),
        ("False".into(), "False".into())
    );
}

#[test]
fn a_layered_pool_says_what_holds_it_and_nothing_of_a_hold_that_there_is_not() {
    let held = "; held: spec.maxUnavailable \"half\" is neither";
    for (max, degraded, want) in [
        (
            json!("half"),
            false,
            ("True", "Pool is waiting for its nodes to apply the new OS image (MachineOSBuild mosb)"),
        ),
        (json!("half"), true, ("False", "Pool is degraded; see NodeDegraded and PinnedImageSetsDegraded")),
        (json!(1), true, ("False", "Pool is degraded; see NodeDegraded and PinnedImageSetsDegraded")),
    ] {
        let is_held = max == json!("half");
        let mut world = World::workers(max, vec![moved("a", "v0", "v0")]);
        world.layering.insert("worker".to_owned(), image_of("A", BuildState::Succeeded, "A"));
        if degraded {
            let list = json!([{"type": "NodeDegraded", "status": "True"}, {"type": "PinnedImageSetsDegraded", "status": "True"}]);
            world.pools[0].status.get_or_insert_default().conditions = serde_json::from_value(list).unwrap();
        }
        let (updating, message) = says(&status(&world), "Updating");
        assert!(updating == want.0 && message.starts_with(want.1), "{updating}: {message}");
        assert_eq!(message.contains("held"), is_held, "{message}");
        assert_eq!(message.contains(held), is_held, "{message}");
    }
}

#[test]
fn a_status_has_certificates_and_the_stream() {
    let mut world = World::workers(json!(1), vec![moved("a", "v1", "v1")]);
    let cert = |bundle: &str| ControllerCertificate {
        subject: "CN=ca".to_owned(),
        bundle_file: bundle.to_owned(),
        ..ControllerCertificate::default()
    };
    world.facts.certificates = vec![cert("KubeAPIServerServingCAData"), cert("rootCA")];
    let got = status(&world);
    assert_eq!(got.cert_expirys.unwrap().len(), 1, "85");

    let stream = |world: &World, stream| {
        let input = PoolInput { stream, ..PoolInput::of(&world.pools[0]) };
        let plan = rollout::plan(&rollout::Inputs {
            pools: vec![input],
            nodes: world.nodes.iter().collect(),
            facts: &world.facts,
            now: api::k8s::Time(crate::common::at(1)),
        });
        plan.pools[0].status.as_ref().unwrap().os_image_stream.as_ref().map(|s| s.name.clone())
    };
    assert_eq!(stream(&world, Some("second")).as_deref(), Some("second"), "86");
    assert_eq!(stream(&world, None), None, "87");
    let updating = World::workers(json!(1), vec![moved("a", "v0", "v0")]);
    assert_eq!(stream(&updating, Some("second")), None, "87");
}

#[test]
fn transitions_emit_one_event_and_conditions_keep_their_times() {
    let mut world = World::workers(json!(1), vec![moved("a", "v1", "v1")]);
    world.settle();
    world.pools[0].spec.configuration.name = "v2".to_owned();
    let plan = world.plan_at(200_000);
    let reasons: Vec<_> = plan.pools[0].events.iter().map(|e| e.reason.to_string()).collect();
    assert_eq!(reasons, ["SetDesiredConfig", "Updating"]);
    assert_eq!(plan.pools[0].events[0].message, "Targeted node a to MachineConfig v2");
    world.apply(&plan);
    assert!(world.plan_at(200_001).pools[0].events.is_empty());
    world.nodes = vec![moved("a", "v2", "v2").view()];
    let plan = world.plan_at(200_002);
    let reasons: Vec<_> = plan.pools[0].events.iter().map(|e| e.reason.to_string()).collect();
    assert_eq!(reasons, ["Completed"]);
    world.apply(&plan);
    let list = world.pools[0].status.clone().unwrap().conditions.unwrap();
    let time = |type_: &str| conditions::get(&list, type_).unwrap().last_transition_time.clone().unwrap().0;
    assert_eq!(time("Updated"), crate::common::at(200_002));
    assert_eq!(time("NodeDegraded"), crate::common::at(100_000), "the condition does not change");
    assert!(world.plan_at(300_000).pools[0].status.is_none(), "nothing changed, so nothing is written");
}

#[test]
fn a_refused_change_is_reported_on_the_pool_and_events_name_only_nodes_that_were_patched() {
    let mut world = World::workers(json!(3), ["a", "b", "c"].map(|n| moved(n, "v0", "v0")).to_vec());
    let plan = world.plan_of("worker");
    for (sent, want) in [
        (&["a", "b", "c"][..], "Set target for 3 nodes to MachineConfig v1"),
        (&["b"], "Targeted node b to MachineConfig v1"),
    ] {
        let told = plan.events_of_sent(sent);
        assert_eq!((told.len(), told[0].reason.text(), &*told[0].message), (1, "SetDesiredConfig", want));
    }
    assert!(plan.events_of_sent(&[]).is_empty());
    assert!(plan.events_of_status().all(|e| e.reason.text() != "SetDesiredConfig"));
    // Two were sent, and one patch was refused.
    for node in ["a", "b"] {
        let patch = plan.patches.iter().find(|p| &*p.node == node).unwrap();
        let at = world.nodes.iter().position(|n| &*n.name == node).unwrap();
        world.nodes[at] = patch.applied_to(&world.nodes[at]);
    }
    let inputs = |refused| rollout::Inputs {
        pools: world
            .pools
            .iter()
            .map(|p| rollout::PoolInput { refused, ..rollout::PoolInput::of(p) })
            .collect(),
        nodes: world.nodes.iter().collect(),
        facts: &world.facts,
        now: api::k8s::Time(crate::common::at(9)),
    };
    let plan = rollout::plan(&inputs(Some("patch of node c: webhook says no (400)")));
    let status = plan.pools[0].status.as_ref().unwrap();
    assert!(plan.pools[0].patches.is_empty(), "{plan}");
    assert_eq!((status.unavailable_machine_count, status.machine_count), (2, 3));
    let (updating, message) = says(status, "Updating");
    assert!(
        updating == "True" && message.contains("node c") && message.contains("webhook says no"),
        "{message}"
    );
    assert!(rollout::plan(&inputs(None)).pools[0].patches.iter().any(|p| &*p.node == "c"), "it is retried");
}

#[test]
fn problems_are_reported_also_when_all_nodes_are_updated() {
    use rollout::{Trouble, TroubleOf};
    let all = [
        (TroubleOf::Cluster, "of all"),
        (TroubleOf::Pool("worker".into()), "of the pool"),
        (TroubleOf::Pool("infra".into()), "of another pool"),
        (TroubleOf::Node("a".into()), "of node a"),
        (TroubleOf::Node("x".into()), "of another node"),
    ];
    let mut world = World::workers(json!(1), vec![moved("a", "v1", "v1")]);
    world.facts.troubles = all.map(|(of, text)| Trouble { of, text: text.to_owned() }).into();
    let inputs = rollout::Inputs {
        pools: vec![rollout::PoolInput {
            refused: Some("no (409)"),
            ..rollout::PoolInput::of(&world.pools[0])
        }],
        nodes: world.nodes.iter().collect(),
        facts: &world.facts,
        now: api::k8s::Time(crate::common::at(9)),
    };
    let plan = rollout::plan(&inputs);
    let status = plan.pools[0].status.as_ref().unwrap();
    assert_eq!(says(status, "Updated").0, "True");
    let (updating, message) = says(status, "Updating");
    assert_eq!(updating, "False");
    assert!(message.starts_with("held: ") && message.contains("no (409)"), "{message}");
    assert!(message.ends_with("; of all; of the pool; of node a"), "{message}");
}

#[test]
fn a_pool_without_a_rendered_config_says_so_and_reports_membership_conflicts() {
    let mut world = World::workers(json!(1), vec![node("n").roles(&["worker", "infra", "gpu"])]);
    for name in ["infra", "gpu"] {
        world.pools.push(crate::common::pool(name, "", json!(1)));
    }
    let plan = world.plan();
    for name in ["infra", "gpu"] {
        let of = plan.pools.iter().find(|p| &*p.pool == name).unwrap();
        assert!(of.target.is_none() && of.patches.is_empty(), "{of}");
        let status = of.status.as_ref().unwrap();
        for type_ in ["Updated", "Degraded"] {
            assert_eq!(says(status, type_).0, "False", "{name} {type_}");
        }
        let updating = says(status, "Updating");
        assert_eq!((updating.0.as_str(), updating.1.contains("rendered")), ("False", true), "{updating:?}");
        let conflict = says(status, "MembershipConflict");
        assert_eq!(conflict.0, "True");
        assert!(conflict.1.contains("infra") && conflict.1.contains("gpu"), "{}", conflict.1);
        assert!(status.configuration.name.is_empty());
    }
    world.apply(&plan);
    assert!(world.plan().pools.iter().all(|p| p.status.is_none()), "said once");
}

#[test]
fn one_nodes_long_reason_never_makes_the_status_too_large() {
    let of = |text: &str, n: usize| {
        let bad = |i: usize| moved(&format!("n{i}"), "v0", "v1").state("Degraded").note("reason", text);
        let world = World::workers(json!(1), (0..n).map(bad).collect());
        let status = status(&world);
        let message = says(&status, "NodeDegraded").1;
        assert_eq!(message, says(&status, "Degraded").1);
        (serde_json::to_string(&status).unwrap().len(), message)
    };
    // Text that fits is shown whole, and quoted as before.
    let (_, message) = of("disk \"a\" is full", 1);
    assert_eq!(message, r#"Node n0 is reporting: "disk \"a\" is full""#);
    let (size, message) = of(&"x".repeat(240_000), 1);
    assert!(size < 10_000 && message.contains("… (cut: "), "{size}");
    // Twelve nodes, and the characters that take the most space when quoted.
    for text in ["ü", "\u{1}", "🦀", "\u{10ffff}"] {
        let (size, message) = of(&text.repeat(240_000), 12);
        assert!(size < 200_000, "{size} bytes");
        assert!(message.contains("Node n0 ") && message.ends_with(" and 2 more"), "{message}");
    }
}
