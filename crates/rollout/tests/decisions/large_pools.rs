//! A pool of thousands of nodes: it is planned again for every change of one node, and all of its nodes are in memory.
//!
//! What it is not: a benchmark. `cargo xtask bench rollout --nodes 5000` measures what a plan costs.

use crate::common::{World, moved, pool};
use api::k8s::Node;
use rollout::view::{Names, NodeView};
use serde_json::json;

fn world(nodes: usize) -> World {
    let mut names = Names::default();
    let mut world =
        World::new(vec![pool("master", "v1", json!(1)), pool("worker", "v1", json!("10%"))], vec![]);
    for i in 0..nodes {
        // Some done, some on their way, most waiting. This is the most expensive case: each waiting node has a reason.
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

#[test]
fn a_plan_of_thousands_of_nodes_gives_each_its_step() {
    let world = world(20_000);
    let plan = world.plan();
    assert_eq!(plan.pools[1].nodes.len(), world.nodes.len());
}

#[test]
fn a_node_is_a_few_hundred_bytes() {
    let fixed = size_of::<NodeView>();
    let labels = world(2).nodes[0].labels.iter().count() * size_of::<[usize; 4]>();
    println!("{fixed} bytes and {labels} for labels");
    assert!(fixed + labels <= 736, "{fixed} + {labels}");
}
