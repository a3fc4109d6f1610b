//! Which pool owns a node, which nodes move, and what is written: the cases of the reference's own tests, as tables.
//! The numbers of rows are those of that table: here 1 to 62; 63 to 87 in `pool_status.rs`, 164 to 166 in `drains.rs`.
mod control_plane;
mod first_boot;
mod membership;
mod prefetch;
mod slots;
mod written;

use crate::common::{Mk, World, at, body, goes, moved, node, notes, patch, pool, selector};
use rollout::{
    BuildState, Change, Cluster, Facts, Hold, Layering, OsBuildView, OsConfigView, PoolPlan, Step,
    Unanswered, Wait, max_unavailable,
};
use serde_json::{Value, json};

/// The image builds of a pool: the image in force, the build's state, and the image that was built.
fn layering(image: &str, state: BuildState, built: &str) -> Layering {
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

fn built(image: &str) -> Layering {
    layering(image, BuildState::Succeeded, image)
}

/// What the pool's condition will say.
fn updating(plan: &rollout::PoolPlan) -> String {
    let list = plan.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    api::conditions::get(list, "Updating").map(|c| c.message.clone()).unwrap_or_default()
}

fn arbiter_world(master: Mk, arbiter: Mk) -> World {
    let pools = vec![pool("arbiter", "v1", json!(5)), pool("master", "v1", json!(1))];
    let mut world = World::new(pools, vec![master.roles(&["master"]), arbiter.roles(&["arbiter"])]);
    world.facts = Facts { control_plane_topology: "HighlyAvailableArbiter".into(), ..Facts::default() };
    for node in &mut world.nodes {
        node.control_plane_topology = Some("HighlyAvailableArbiter".into());
    }
    world
}
