//! Which builds that succeeded are deleted: by number and by age, and never the last one whose image a node runs or boots next.
//! Builds for configs that differ in files only share an image: the newest of them stands for it.
//!
//! What it is not: the deletion of images in registries, which follows when nothing names them any more (see `pushed`).

use crate::inputs::Inputs;
use crate::state::State;
use api::v1::{MachineOSBuild, MachineOSConfig};
use jiff::SignedDuration;
use std::collections::BTreeSet;

/// How many builds of a pool are kept besides those that are in use.
const KEPT: usize = 5;
/// How old a build may become that is not in use, in days.
const DAYS: i64 = 30;

/// The builds that go, oldest first.
pub(crate) fn builds_to_prune<'a>(
    inputs: &Inputs<'a>,
    config: &MachineOSConfig,
    wanted: &str,
) -> Vec<&'a MachineOSBuild> {
    let image = |b: &'a MachineOSBuild| b.status.as_ref().and_then(|s| s.digested_image_push_spec.as_deref());
    let current = config.status.as_ref().and_then(|s| s.current_image_pull_spec.as_deref());
    let named = config.status.as_ref().and_then(|s| s.machine_os_build.as_ref()).map(|r| r.name.as_str());
    let made = |b: &MachineOSBuild| b.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let mut newest: Vec<&MachineOSBuild> =
        inputs.builds.iter().copied().filter(|b| State::of(b) == State::Succeeded).collect();
    newest.sort_by(|a, b| (made(b), &b.metadata.name).cmp(&(made(a), &a.metadata.name)));
    let is_used = |i: &&str| Some(*i) == current || inputs.in_use.contains(i);
    let mut stood_for: BTreeSet<&str> = BTreeSet::new();
    let mut is_free = |b: &&'a MachineOSBuild| {
        let name = b.metadata.name.as_deref();
        // Of each image in use the first one that is seen is kept.
        let stands = image(b).filter(is_used).is_some_and(|i| stood_for.insert(i));
        // Nodes may still be on their way to what the pool was in last.
        let kept = name == Some(wanted) || name == named || b.spec.machine_config.name == reached(inputs);
        !stands && !kept
    };
    let free: Vec<&MachineOSBuild> = newest.into_iter().filter(|b| is_free(b)).collect();
    let oldest = inputs.now.0.saturating_sub(SignedDuration::from_hours(24 * DAYS)).ok();
    let aged = |b: &MachineOSBuild| made(b).zip(oldest).is_some_and(|(made, oldest)| made < oldest);
    let mut gone: Vec<_> =
        free.into_iter().enumerate().filter(|(i, b)| *i >= KEPT || aged(b)).map(|(_, b)| b).collect();
    gone.reverse();
    gone
}

/// The config that all nodes of the pool were last in together.
fn reached<'a>(inputs: &Inputs<'a>) -> &'a str {
    inputs.pool.status.as_ref().map(|s| s.configuration.name.as_str()).unwrap_or_default()
}
