//! A plan's cost: a pool of thousands of nodes is planned again for every change of one of them.
//!
//! What it is not: a benchmark. Limits are wide enough for an unoptimised build on a busy machine; a plan that is
//! quadratic in the nodes, or a view that grows fat, is still caught.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on ends.
mod common;

use api::k8s::Node;
use common::{World, moved, pool};
use rollout::view::{Names, NodeView};
use serde_json::json;
use std::time::{Duration, Instant};

fn world(nodes: usize) -> World {
    let mut names = Names::default();
    let mut world =
        World::new(vec![pool("master", "v1", json!(1)), pool("worker", "v1", json!("10%"))], vec![]);
    for i in 0..nodes {
        // Some done, some on their way, most waiting: the dearest case, each waiting node has a reason.
        let (current, desired) =
            [("v1", "v1"), ("v0", "v1"), ("v0", "v0")][if i % 50 == 0 { 1 } else { 2 * (i % 2) }];
        let node = moved(&format!("node-{i:05}.example.com"), current, desired)
            .label("kubernetes.io/arch", "amd64")
            .label("kubernetes.io/hostname", &format!("node-{i:05}.example.com"))
            .label("kubernetes.io/os", "linux")
            .label("node.kubernetes.io/instance-type", "large")
            .label("topology.kubernetes.io/region", "r")
            .label("topology.kubernetes.io/zone", ["a", "b", "c"][i % 3])
            .note("controlPlaneTopology", "HighlyAvailable");
        let node: Node = serde_json::from_value(node.json()).unwrap();
        world.nodes.push(NodeView::interned(&node, &mut names));
    }
    world.facts.control_plane_topology = "HighlyAvailable".into();
    world.settle();
    world
}

fn fastest(world: &World) -> Duration {
    (0..5)
        .map(|_| {
            let start = Instant::now();
            let plan = world.plan();
            let took = start.elapsed();
            assert_eq!(plan.pools[1].nodes.len(), world.nodes.len());
            took
        })
        .min()
        .unwrap()
}

#[test]
fn a_plan_is_quick_and_linear_in_the_nodes() {
    let (small, large) = (world(5_000), world(20_000));
    let (fast, slow) = (fastest(&small), fastest(&large));
    println!("5,000 nodes: {fast:?}; 20,000 nodes: {slow:?}");
    assert!(fast < Duration::from_millis(400), "{fast:?}");
    assert!(slow < fast * 12, "{fast:?} then {slow:?}: not linear");
}

#[test]
fn a_node_is_a_few_hundred_bytes() {
    let fixed = size_of::<NodeView>();
    let labels = world(2).nodes[0].labels.iter().count() * size_of::<[usize; 4]>();
    println!("{fixed} bytes and {labels} for labels");
    assert!(fixed + labels <= 700, "{fixed} + {labels}");
}
