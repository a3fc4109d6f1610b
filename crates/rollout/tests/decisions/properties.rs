//! Properties that hold for any pools and nodes: `maxUnavailable`, the pause, the fixed point, at most one patch for
//! each node, and that a patch's JSON does the same as its effect on a view.

use crate::common::{Mk, World, node, pool};
use api::k8s::Node;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use proptest::{collection, option, prop_assert, prop_assert_eq};
use rollout::view::{DaemonState, NodeView};
use rollout::{NodePatch, RolloutPlan, Step};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn one_of(list: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    (0..list.len()).prop_map(move |i| list[i])
}

fn any_node(i: usize) -> impl Strategy<Value = Mk> {
    let config = || option::of(one_of(&["old", "new", "other", ""]));
    let state =
        option::of(one_of(&["Done", "Done", "Done", "Working", "Degraded", "Unreconcilable", "Bogus"]));
    let roles = one_of(&["worker", "worker", "worker", "infra", "master", "infra2", "none"]);
    let zone = option::of(one_of(&["a", "b"]));
    let flags = (any::<bool>(), any::<u8>(), any::<bool>(), any::<u8>());
    (config(), config(), state, roles, zone, flags).prop_map(
        move |(current, desired, state, role, zone, flags)| {
            let mut n = node(&format!("n{i}")).roles(&["worker", role]).created(i64::from(flags.1));
            for (key, value) in [("currentConfig", current), ("desiredConfig", desired), ("state", state)] {
                if let Some(value) = value {
                    n = n.note(key, value);
                }
            }
            if let Some(zone) = zone {
                n = n.label("topology.kubernetes.io/zone", zone);
            }
            if role == "infra2" {
                n = n.label("node-role.kubernetes.io/infra", "");
            }
            if flags.0 {
                n = n.taint("UpdateInProgress", "PreferNoSchedule");
            }
            if flags.2 {
                n = n.taint("team", "NoSchedule");
            }
            if flags.3 >= 192 {
                n = n.taint("machineconfig.dev/joining", "NoSchedule");
            }
            match flags.3 % 8 {
                0 => n.unready(),
                1 => n.cordoned(),
                _ => n,
            }
        },
    )
}

fn any_nodes() -> impl Strategy<Value = Vec<Mk>> {
    (0..10_usize).prop_flat_map(|n| (0..n).map(any_node).collect::<Vec<_>>())
}

fn any_max() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        (0..6).prop_map(|n| json!(n)),
        (0..130).prop_map(|n| json!(format!("{n}%"))),
        Just(json!("many")),
    ]
}

fn any_world() -> impl Strategy<Value = (World, Vec<Mk>)> {
    let paused = collection::vec(any::<u8>(), 4);
    let topology = one_of(&["", "HighlyAvailable", "HighlyAvailableArbiter"]);
    let scheduler = option::of(any::<bool>());
    (any_nodes(), collection::vec(any_max(), 4), paused, topology, scheduler).prop_map(
        |(nodes, max, paused, topology, scheduler)| {
            let pools = ["master", "worker", "infra", "infra2"].iter().zip(max).zip(&paused);
            let pools = pools.map(|((name, max), paused)| {
                let mut pool = pool(name, "new", max);
                pool.spec.paused = paused % 4 == 0;
                pool
            });
            let mut world = World::new(pools.collect(), nodes.clone());
            world.facts.control_plane_topology = topology.into();
            world.facts.masters_schedulable = scheduler;
            (world, nodes)
        },
    )
}

/// The rule written independently of the crate.
fn out_of_service(n: &NodeView, target: &str) -> bool {
    let ready = n.not_ready.is_none() && !n.unschedulable;
    let text = |t: &Option<std::sync::Arc<str>>| t.as_deref().unwrap_or_default().to_owned();
    let (current, desired) = (text(&n.current_config), text(&n.desired_config));
    let bad = [DaemonState::Degraded, DaemonState::Unreconcilable].contains(&n.state);
    let arrived = current == desired && !current.is_empty() && n.state == DaemonState::Done;
    let gave_up = current != desired && bad;
    !ready || !(arrived || gave_up) || (gave_up && desired == target)
}

fn members<'a>(world: &'a World, plan: &RolloutPlan, pool: usize) -> Vec<&'a NodeView> {
    let names: BTreeSet<_> = plan.pools[pool].nodes.iter().map(|n| n.node.clone()).collect();
    world.nodes.iter().filter(|n| names.contains(&n.name)).collect()
}

fn merge(to: &mut Value, change: &Value) {
    match (to, change) {
        (Value::Object(to), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    to.remove(key);
                } else {
                    merge(to.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (to, change) => {
            *to = if change.is_object() { json!({}) } else { change.clone() };
            if change.is_object() {
                merge(to, change);
            }
        }
    }
}

proptest! {
    #[test]
    fn max_unavailable_is_never_exceeded((world, _) in any_world()) {
        let plan = world.plan();
        let mut after = world.clone();
        after.apply(&plan);
        for (i, pool) in plan.pools.iter().enumerate() {
            let count = |w: &World| members(w, &plan, i).iter().filter(|n| out_of_service(n, "new")).count();
            let (before, now) = (count(&world), count(&after));
            prop_assert!(now <= before.max(pool.capacity.max), "{before} then {now}: {pool}");
            let size = pool.nodes.len();
            prop_assert!(pool.capacity.max <= size.max(5) * 130 / 100);
            if ["master", "arbiter"].contains(&&*pool.pool) {
                prop_assert!(pool.capacity.max <= 1);
            }
        }
    }

    #[test]
    fn a_paused_pool_moves_no_node((world, _) in any_world()) {
        let plan = world.plan();
        for (pool, plan) in world.pools.iter().zip(&plan.pools).filter(|(p, _)| p.spec.paused) {
            prop_assert!(plan.patches.iter().all(|p| p.desired_config.is_keep() && p.desired_image.is_keep()));
            let scheduler = world.facts.masters_schedulable.is_some();
            let tainted = |p: &NodePatch| world.nodes.iter().any(|n| n.name == p.node && n.has_joining_taint());
            prop_assert!(plan.patches.iter().all(tainted) || scheduler, "{:?} {plan}", pool.metadata.name);
        }
    }

    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_do((mut world, _) in any_world()) {
        let plan = world.plan();
        world.apply(&plan);
        let again = world.plan();
        let goes = |name: &str| plan.pools.iter().any(|p| p.nodes.iter().any(|n| n.step == Step::Goes && *n.node == *name));
        let stays = |n: &&NodeView| n.current_config == n.desired_config && goes(&n.name);
        if world.nodes.iter().find(stays).is_some() || world.facts.masters_schedulable.is_some() {
            // A node that is told to stay where it is comes back into service and frees its slot, which takes one more
            // round. Labels do the same.
            world.settle();
            return Ok(());
        }
        prop_assert!(again.pools.iter().all(|p| p.patches.is_empty() && p.events.is_empty()), "{plan}then\n{again}");
        prop_assert!(again.unmanaged_patches.is_empty(), "{plan}then\n{again}");
        prop_assert!(again.pools.iter().all(|p| p.status.is_none()), "{plan}then\n{again:?}");
    }

    #[test]
    fn every_node_is_accounted_for_once((world, _) in any_world()) {
        let plan = world.plan();
        let mut names: Vec<_> = plan.pools.iter().flat_map(|p| &p.nodes).map(|n| n.node.clone()).collect();
        names.extend(plan.unmanaged.iter().map(|u| u.node.clone()));
        names.sort();
        let mut want: Vec<_> = world.nodes.iter().map(|n| n.name.clone()).collect();
        want.sort();
        prop_assert_eq!(names, want);
        for pool in &plan.pools {
            let patched: BTreeSet<_> = pool.patches.iter().map(|p| &p.node).collect();
            prop_assert_eq!(patched.len(), pool.patches.len(), "one patch a node");
            prop_assert!(pool.patches.iter().all(|p| !p.is_empty() && &*p.resource_version == "1"));
        }
    }

    #[test]
    fn the_order_of_nodes_in_the_cache_does_not_matter((world, _) in any_world()) {
        let mut turned = world.clone();
        turned.nodes.reverse();
        prop_assert_eq!(world.plan(), turned.plan());
    }

    #[test]
    fn a_plan_survives_json_and_is_printable((world, _) in any_world()) {
        let plan = world.plan();
        let text = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(&plan, &serde_json::from_str::<RolloutPlan>(&text).unwrap());
        let words = plan.to_string();
        for node in plan.pools.iter().flat_map(|p| &p.nodes) {
            prop_assert!(words.contains(&format!("{}: ", node.node)), "{words}");
        }
    }

    #[test]
    fn the_json_patch_has_the_effect_that_the_plan_assumes((world, nodes) in any_world()) {
        let plan = world.plan();
        for patch in plan.patches() {
            let at = world.nodes.iter().position(|n| n.name == patch.node).unwrap();
            let mk = nodes[at].clone();
            let expected = patch.applied_to(&mk.clone().view());
            let mut object = mk.json();
            merge(&mut object, &patch.merge_patch());
            let object: Node = serde_json::from_value(object).unwrap();
            prop_assert_eq!(NodeView::from_node(&object), expected);
        }
    }
}
