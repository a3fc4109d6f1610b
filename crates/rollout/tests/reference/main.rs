//! A second implementation of the reference's update controller, written from the description of its behaviour (which
//! nodes count as unavailable, which it taints and updates, what it counts and reports). It runs on any pool and nodes
//! beside the real plan, until nothing changes; both must arrive at the same Nodes and the same status.
//!
//! What it is not: the recorded situations (`recorded.rs`), or what we do differently on purpose: values of
//! `maxUnavailable` that cannot be read or are negative, pools of the control plane, nodes under their update's own
//! cordon, nodes that have drifted, configs whose names say that they were rendered for the same pool, and builds that
//! failed in a pool that is not paused (there the reference writes no status at all).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]
#[path = "../common/mod.rs"]
mod common;
mod machine;
mod recorded;

use api::v1::MachineConfigPoolStatus;
use machine::{Node, Quorum, Reference};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::{option, prop_assert_eq};
use rollout::{BuildState, Layering, OsBuildView, OsConfigView};
use serde_json::{Value, json};

fn one_of<T: Copy + std::fmt::Debug + 'static>(list: &'static [T]) -> impl Strategy<Value = T> {
    (0..list.len()).prop_map(move |i| list[i])
}

fn any_node(i: usize, images: bool) -> impl Strategy<Value = Node> {
    let config = || option::weighted(0.9, one_of(&["old", "old", "new", "new", "other", ""]));
    let image =
        move || option::weighted(if images { 0.6 } else { 0.05 }, one_of(&["img0", "img1", "img1", ""]));
    let state = one_of(&[
        Some("Done"),
        Some("Done"),
        Some("Done"),
        Some("Working"),
        Some("Degraded"),
        Some("Unreconcilable"),
        Some("Rebooting"),
        Some("Bogus"),
        Some(""),
        None,
    ]);
    let conditions = one_of::<&[(&str, &str)]>(&[
        &[("Ready", "True")],
        &[("Ready", "True"), ("DiskPressure", "False"), ("MemoryPressure", "True")],
        &[("Ready", "True"), ("MemoryPressure", "False"), ("NetworkUnavailable", "False")],
        &[],
        &[("Ready", "False")],
        &[("Ready", "Unknown")],
        &[("Ready", "True"), ("DiskPressure", "Unknown")],
        &[("Ready", "True"), ("NetworkUnavailable", "True")],
    ]);
    let zone = option::of(one_of(&["a", "b", "c"]));
    let steady = any::<bool>();
    let notes = (config(), config(), image(), image(), state, steady);
    (notes, conditions, 0..8_u8, zone, 0..20_i64, any::<bool>()).prop_map(
        move |(
            (current, desired, current_image, desired_image, state, steady),
            conditions,
            cordon,
            zone,
            created,
            tainted,
        )| {
            // Half of them have finished: otherwise no slot would ever be free.
            let (desired, desired_image) =
                if steady { (current, current_image) } else { (desired, desired_image) };
            let notes = [
                ("currentConfig", current),
                ("desiredConfig", desired),
                ("currentImage", current_image),
                ("desiredImage", desired_image),
                ("state", state),
            ];
            Node {
                name: format!("n{i}"),
                notes: notes.into_iter().filter_map(|(k, v)| Some((k, v?.to_owned()))).collect(),
                conditions: conditions.to_vec(),
                unschedulable: cordon == 0,
                zone,
                created,
                tainted,
            }
        },
    )
}

fn any_layering() -> impl Strategy<Value = Layering> {
    let config = option::weighted(0.9, one_of(&["", "img1", "img1", "img1"]));
    let states = [
        BuildState::Initial,
        BuildState::Prepared,
        BuildState::Building,
        BuildState::Succeeded,
        BuildState::Succeeded,
        BuildState::Succeeded,
        BuildState::Failed,
        BuildState::Interrupted,
    ];
    let build = option::weighted(
        0.9,
        ((0..states.len()).prop_map(move |i| states[i]), one_of(&["", "img1", "img1", "img0"])),
    );
    (config, build).prop_map(|(config, build)| Layering {
        config: config.map(|image| OsConfigView { name: "mosc".into(), image: image.into() }),
        // The relevant build is the one for the pool's config.
        build: build.filter(|_| config.is_some()).map(|(state, image)| OsBuildView {
            name: "mosb".into(),
            machine_config: "new".into(),
            state,
            image: image.into(),
        }),
    })
}

fn any_pool() -> impl Strategy<Value = Reference> {
    let max = prop_oneof![
        Just(Value::Null),
        (0..8).prop_map(|n| json!(n)),
        (0..130).prop_map(|n| json!(format!("{n}%"))),
        (0..130).prop_map(|n| json!(format!("+{n}%"))),
    ];
    let layering = prop_oneof![3 => Just(Layering::default()), 2 => any_layering()];
    let conditions = (0..6_u8, 0..6_u8);
    (max, 0..5_u8, layering, conditions, 0..9_usize).prop_flat_map(
        |(max, paused, layering, conditions, n)| {
            let nodes = (0..n).map(|i| any_node(i, layering.is_layered())).collect::<Vec<_>>();
            (nodes, Just((max, paused, layering, conditions))).prop_map(
                |(nodes, (max, paused, layering, (render, build)))| {
                    let mut list = vec![];
                    for (type_, on) in [("RenderDegraded", render == 0), ("ImageBuildDegraded", build == 0)] {
                        if on {
                            let condition = api::conditions::Condition::new(type_, true, "", String::new());
                            api::conditions::set(&mut list, condition, &api::k8s::Time(common::at(0)));
                        }
                    }
                    let status = MachineConfigPoolStatus {
                        conditions: Some(list),
                        ..MachineConfigPoolStatus::default()
                    };
                    Reference { target: "new", paused: paused == 0, max, layering, nodes, status }
                },
            )
        },
    )
}

/// One of the two pools.
fn any_half(first: usize, most: usize) -> impl Strategy<Value = Reference> {
    (0..=most, 0..5_u8).prop_flat_map(move |(n, paused)| {
        let nodes = (first..first + n).map(|i| any_node(i, false)).collect::<Vec<_>>();
        nodes.prop_map(move |nodes| Reference {
            target: "new",
            paused: paused == 0,
            max: json!(1),
            layering: Layering::default(),
            nodes,
            status: MachineConfigPoolStatus::default(),
        })
    })
}

fn any_quorum() -> impl Strategy<Value = Quorum> {
    (any_half(0, 3), any_half(10, 2)).prop_map(|(master, arbiter)| Quorum { master, arbiter })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn any_situation_ends_as_the_reference_would_leave_it(mut reference in any_pool()) {
        let failed = reference.layering.build.as_ref().is_some_and(|b| b.state == BuildState::Failed);
        if failed && !reference.paused {
            return Ok(());
        }
        let ours = reference.ours();
        for _ in 0..12 {
            reference.sync();
        }
        prop_assert_eq!(ours, reference.outcome(), "{:#?}", reference);
    }

    #[test]
    fn a_quorum_ends_as_the_reference_would_leave_it(mut reference in any_quorum()) {
        // The reference lets the arbiter go while masters wait behind a failing one, and a drifted master becomes one
        // once it is sent.
        if reference.master.nodes.iter().any(|n| n.failing() || reference.master.drifted(n)) {
            return Ok(());
        }
        let ours = reference.ours();
        for _ in 0..12 {
            reference.sync();
        }
        prop_assert_eq!(ours, reference.outcome(), "{:#?}", reference);
    }
}
