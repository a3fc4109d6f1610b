//! The texts of a pool's conditions.
//!
//! What it is not: which condition holds (see the parent module). `pinned_text`, which is shown elsewhere too, is there.

use super::NAMED_NODES;
use crate::inputs::PoolInput;
use crate::node::Flags;
use crate::target::{BuildState, Target};
use crate::view::{NodeView, own};
use api::conditions::{self, Condition};
use api::formats::text::{MAX_NODE_WORDS, cut, names};
use api::names::pool_condition::{NODE_DEGRADED, PINNED_IMAGE_SETS_DEGRADED, RENDER_DEGRADED};
use api::v1::MachineConfigPool;

/// The text about a config that has not proved itself. `served`: what machines get that boot for the first time; empty if
/// there is nothing else than that config.
pub(super) fn unproved_text(config: &str, policy: &str, served: &str) -> String {
    let text = format!("MachineConfig {config} has not proved itself under RolloutPolicy {policy}");
    match served {
        "" => text,
        served => format!("{text}; machines that boot for the first time get {served}"),
    }
}

/// The config that the pool's messages name, with the image if one is in force.
pub(super) fn target_text(pool: &MachineConfigPool, target: &Target) -> String {
    let config = &pool.spec.configuration.name;
    match &target.image {
        Some(image) => format!("MachineConfig {config} / Image {image}"),
        None => format!("MachineConfig {config}"),
    }
}

/// The text about nodes that report trouble.
pub(super) fn degraded_nodes(nodes: &[(&NodeView, Flags)]) -> String {
    let bad = nodes.iter().filter(|(_, f)| f.degraded);
    let told = bad.map(|(n, _)| match &n.reason {
        // Quoted before it is cut, because a control character takes several characters.
        Some(reason) => {
            format!("Node {} is reporting: {}", n.name, cut(&format!("{reason:?}"), MAX_NODE_WORDS))
        }
        None => format!("Node {} is {}", n.name, n.state),
    });
    names(told, NAMED_NODES)
}

/// The text about nodes that are put aside.
pub(super) fn quarantined_text(nodes: &[(&NodeView, Flags)]) -> Option<String> {
    let all: Vec<&str> = nodes.iter().filter(|(_, f)| f.quarantined).map(|(n, _)| &*n.name).collect();
    let named = names(&all, NAMED_NODES);
    (!all.is_empty()).then(|| {
        format!(
            "put aside, because their drains did not end: {named}; each goes when its pods can leave, or when its \
             annotation {} is removed",
            own::QUARANTINE
        )
    })
}

/// The text about patches without an answer.
pub(super) fn unanswered(overdue: &[&str]) -> Option<String> {
    let names = names(overdue, NAMED_NODES);
    (!overdue.is_empty()).then(|| {
        format!(
            "the API server does not answer changes of Node {names}; they are sent again, and slots are kept \
             for them; check for an admission webhook that hangs"
        )
    })
}

/// What `Updating` says of a pool with an image build, if that differs from a pool without one.
pub(super) fn layered_updating(
    input: &PoolInput<'_>,
    old: &[Condition],
    all_updated: bool,
) -> Option<(bool, String)> {
    let config = input.layering.config.as_ref()?;
    let paused = input.pool.spec.paused;
    let degraded = [RENDER_DEGRADED, NODE_DEGRADED, PINNED_IMAGE_SETS_DEGRADED];
    let degraded: Vec<&str> = degraded.into_iter().filter(|t| conditions::is_true(old, t)).collect();
    if !paused && !degraded.is_empty() {
        // As the reference has it, although nodes go on: what holds them, if anything does, is told after this.
        return Some((false, format!("Pool is degraded; see {}", degraded.join(" and "))));
    }
    let Some(build) = &input.layering.build else {
        let text = format!("waiting for an OS image build of MachineOSConfig {} to start", config.name);
        return Some((
            true,
            if paused { format!("Pool is paused; {text}") } else { format!("Pool is {text}") },
        ));
    };
    let name = &build.name;
    let (status, text) = match (build.state, paused) {
        (BuildState::Prepared, false) => (true, "is waiting for the OS image build to start"),
        (BuildState::Prepared, true) => {
            (true, "is paused; the OS image build is prepared and will not roll out")
        }
        (BuildState::Building, false) => (true, "is waiting for the OS image build to complete"),
        (BuildState::Building, true) => (true, "is paused; the OS image build is in progress"),
        (BuildState::Succeeded, false) if all_updated => return None,
        (BuildState::Succeeded, false) => (true, "is waiting for its nodes to apply the new OS image"),
        (BuildState::Succeeded, true) => {
            (false, "is paused; the OS image build is complete and will not roll out")
        }
        (BuildState::Failed, false) => (false, "update is stopped: the OS image build failed"),
        (BuildState::Failed, true) => (false, "is paused; the OS image build failed"),
        (BuildState::Interrupted, false) => (false, "update is stopped: the OS image build was interrupted"),
        (BuildState::Interrupted, true) => (false, "is paused; the OS image build was interrupted"),
        (BuildState::Initial, false) => (true, "is waiting for the OS image build to start"),
        (BuildState::Initial, true) => (true, "is paused; the OS image build is created and has not started"),
    };
    Some((status, format!("Pool {text} (MachineOSBuild {name})")))
}

/// Why a failed image build no longer counts.
pub(super) fn build_cleared(input: &PoolInput<'_>, was: bool) -> Option<(&'static str, &'static str)> {
    let layering = &input.layering;
    match (&layering.config, layering.build.as_ref().map(|b| b.state)) {
        (_, Some(BuildState::Building | BuildState::Prepared)) => {
            Some(("Building", "A new build has started"))
        }
        (_, Some(BuildState::Succeeded)) => Some(("BuildSuccess", "The build succeeded")),
        (Some(_), None) if was => Some(("BuildPending", "A new build is due")),
        (None, None) if was => Some(("NoLayeredObjects", "The pool has no image build")),
        _ => None,
    }
}
