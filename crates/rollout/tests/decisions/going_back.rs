//! What an administrator does in the middle of a rollout: pause, revert, change `maxUnavailable`, add and remove nodes
//! and pools. Each case is played with daemons that do what they are asked.

use crate::common::{World, goes, moved, pool};
use rollout::view::{DaemonState, NodeView};
use serde_json::{Value, json};

/// One round of the controller; returns the nodes that were sent.
fn round(world: &mut World) -> Vec<String> {
    let plan = world.plan();
    world.apply(&plan);
    plan.pools.iter().flat_map(goes).collect()
}

/// Every daemon that has something to do reaches its config, or fails at it.
fn daemons(world: &mut World, broken: &str) {
    for node in world.nodes.iter_mut().filter(|n| n.current_config != n.desired_config) {
        if node.desired_config.as_deref() == Some(broken) {
            node.state = DaemonState::Degraded;
            node.reason = Some("it does not work".into());
        } else {
            (node.current_config, node.state) = (node.desired_config.clone(), DaemonState::Done);
            node.reason = None;
        }
    }
}

fn at(world: &World, config: &str) -> usize {
    world.nodes.iter().filter(|n| n.current_config.as_deref() == Some(config)).count()
}

fn six(max: Value) -> World {
    World::workers(max, (0..6).map(|i| moved(&format!("n{i}"), "v0", "v0").created(i)).collect())
}

fn node<'a>(world: &'a World, name: &str) -> &'a NodeView {
    world.nodes.iter().find(|n| &*n.name == name).unwrap()
}

#[test]
fn a_rollout_goes_node_by_node_to_the_end() {
    let mut world = six(json!(2));
    let mut order = vec![];
    while at(&world, "v1") < 6 {
        let mut sent = round(&mut world);
        assert_eq!(sent.len(), 2);
        sent.sort();
        order.extend(sent);
        assert!(round(&mut world).is_empty(), "no third");
        daemons(&mut world, "");
    }
    assert_eq!(order, ["n0", "n1", "n2", "n3", "n4", "n5"]);
    world.settle();
    assert!(world.nodes.iter().all(|n| !n.has_update_taint()));
}

#[test]
fn a_pause_stops_new_nodes_and_lets_running_ones_finish() {
    let mut world = six(json!(2));
    round(&mut world);
    world.pools[0].spec.paused = true;
    daemons(&mut world, "");
    assert!(round(&mut world).is_empty());
    assert_eq!(at(&world, "v1"), 2);
    world.pools[0].spec.paused = false;
    assert_eq!(round(&mut world), ["n2", "n3"]);
}

#[test]
fn a_bad_config_breaks_max_unavailable_nodes_at_most_and_a_revert_recovers_them() {
    for back_to in ["v0", "v2"] {
        let mut world = six(json!(2));
        for _ in 0..4 {
            round(&mut world);
            daemons(&mut world, "v1");
        }
        let broken = world.nodes.iter().filter(|n| n.state == DaemonState::Degraded).count();
        assert_eq!((broken, at(&world, "v0")), (2, 6));
        world.pools[0].spec.configuration.name = back_to.to_owned();
        for _ in 0..8 {
            round(&mut world);
            daemons(&mut world, "v1");
            // A daemon whose desired config is its current one has nothing left to do.
            for node in world.nodes.iter_mut().filter(|n| n.current_config == n.desired_config) {
                node.state = DaemonState::Done;
            }
        }
        assert_eq!(at(&world, back_to), 6, "without manual work on any node");
        world.settle();
        assert_eq!(world.pools[0].status.as_ref().unwrap().degraded_machine_count, 0);
    }
}

/// A node that failed after its drain is still under its own update's cordon. A person's cordon is treated differently.
#[test]
fn a_node_that_failed_under_its_own_cordon_goes_back_and_takes_no_further_slot() {
    use rollout::view::CordonMark::{Daemon, Drain, Kept};
    for (cordon, goes) in [(Some(Daemon), true), (Some(Drain), true), (Some(Kept), false), (None, false)] {
        let mut world = six(json!(1));
        round(&mut world);
        daemons(&mut world, "v1");
        let broken = world.nodes.iter_mut().find(|n| n.state == DaemonState::Degraded).unwrap();
        (broken.unschedulable, broken.cordon) = (true, cordon);
        let name = broken.name.to_string();
        for back_to in ["v0", "v2"] {
            let mut world = world.clone();
            world.pools[0].spec.configuration.name = back_to.to_owned();
            let sent = round(&mut world);
            assert_eq!(sent, if goes { vec![name.clone()] } else { vec![] }, "{cordon:?} {back_to}");
        }
    }
}

#[test]
fn a_revert_during_a_rollout_only_removes_the_taint_of_waiting_nodes() {
    let mut world = six(json!(1));
    round(&mut world);
    daemons(&mut world, "");
    assert!(node(&world, "n5").has_update_taint());
    world.pools[0].spec.configuration.name = "v0".to_owned();
    assert_eq!(round(&mut world), ["n0"], "only the node that had moved goes back");
    assert!(world.nodes.iter().all(|n| !n.has_update_taint()));
}

#[test]
fn a_changed_max_unavailable_holds_from_the_next_plan_on() {
    let mut world = six(json!(3));
    assert_eq!(round(&mut world).len(), 3);
    world.pools[0].spec.max_unavailable = serde_json::from_value(json!(1)).unwrap();
    assert!(round(&mut world).is_empty(), "three are being updated");
    daemons(&mut world, "");
    assert_eq!(round(&mut world), ["n3"]);
    world.pools[0].spec.max_unavailable = serde_json::from_value(json!("50%")).unwrap();
    assert_eq!(round(&mut world), ["n4", "n5"], "a new slot is used at once");
}

#[test]
fn nodes_may_join_and_leave_during_a_rollout() {
    let mut world = six(json!(1));
    round(&mut world);
    world.nodes.remove(0);
    assert_eq!(round(&mut world), ["n1"], "a deleted node holds no slot");
    world.nodes.push(moved("n9", "v1", "v1").unready().view());
    daemons(&mut world, "");
    assert!(round(&mut world).is_empty(), "a new node that is not ready yet takes the slot");
    world.nodes.last_mut().unwrap().not_ready = None;
    assert_eq!(round(&mut world), ["n2"]);
}

#[test]
fn nodes_may_change_pools_during_a_rollout() {
    let mut world = six(json!(1));
    world.pools.push(pool("infra", "v5", json!(1)));
    round(&mut world);
    for name in ["n0", "n5"] {
        let node = world.nodes.iter_mut().find(|n| &*n.name == name).unwrap();
        node.labels = [("node-role.kubernetes.io/infra", ""), ("node-role.kubernetes.io/worker", "")]
            .into_iter()
            .collect();
    }
    // n0 is being updated to v1 and holds infra's only slot; worker's is free.
    assert_eq!(round(&mut world), ["n1"]);
    daemons(&mut world, "");
    assert_eq!(round(&mut world), ["n2", "n0"]);
    world.pools.pop();
    daemons(&mut world, "");
    for _ in 0..6 {
        round(&mut world);
        daemons(&mut world, "");
    }
    assert_eq!(at(&world, "v1"), 6, "without their pool they are workers again");
}

#[test]
fn a_missing_rendered_config_is_given_to_no_node() {
    let mut world = six(json!(2));
    world.settle();
    let plan = rollout::plan(&rollout::Inputs {
        pools: world
            .pools
            .iter()
            .map(|p| rollout::PoolInput { config_exists: false, ..rollout::PoolInput::of(p) })
            .collect(),
        nodes: world.nodes.iter().collect(),
        facts: &world.facts,
        now: api::k8s::Time(crate::common::at(0)),
    });
    assert!(plan.pools[0].patches.is_empty());
    let text = plan.pools[0].hold.as_ref().unwrap().to_string();
    assert!(text.contains("MachineConfig v1 does not exist"), "{text}");
}
