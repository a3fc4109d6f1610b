//! Which builds that succeeded are deleted: by number and by age, and never one whose image a node runs or boots next.
//!
//! What it is not: the deletion of images in registries. Their tags stay.

use crate::plan::Inputs;
use crate::state::State;
use api::v1::{MachineOSBuild, MachineOSConfig};
use jiff::SignedDuration;

/// How many builds of a pool are kept besides those that are in use.
const KEEP: usize = 5;
/// How old a build may become that is not in use, in days.
const DAYS: i64 = 30;

/// The builds that go, oldest first.
pub(crate) fn choose<'a>(
    inputs: &Inputs<'a>,
    config: &MachineOSConfig,
    wanted: &str,
) -> Vec<&'a MachineOSBuild> {
    let image = |b: &'a MachineOSBuild| b.status.as_ref().and_then(|s| s.digested_image_push_spec.as_deref());
    let current = config.status.as_ref().and_then(|s| s.current_image_pull_spec.as_deref());
    let is_free = |b: &&MachineOSBuild| {
        let image = b.status.as_ref().and_then(|s| s.digested_image_push_spec.as_deref());
        State::of(b) == State::Succeeded
            && b.metadata.name.as_deref() != Some(wanted)
            && image.is_none_or(|i| Some(i) != current && !inputs.in_use.contains(i))
            // Nodes may still be on their way to it.
            && b.spec.machine_config.name != reached(inputs)
    };
    let mut free: Vec<&MachineOSBuild> = inputs.builds.iter().copied().filter(is_free).collect();
    let made = |b: &MachineOSBuild| b.metadata.creation_timestamp.as_ref().map(|t| t.0);
    free.sort_by(|a, b| (made(b), image(b)).cmp(&(made(a), image(a))));
    let oldest = inputs.now.0.saturating_sub(SignedDuration::from_hours(24 * DAYS)).ok();
    let aged = |b: &MachineOSBuild| made(b).zip(oldest).is_some_and(|(made, oldest)| made < oldest);
    let mut gone: Vec<_> =
        free.into_iter().enumerate().filter(|(i, b)| *i >= KEEP || aged(b)).map(|(_, b)| b).collect();
    gone.reverse();
    gone
}

/// The config that all nodes of the pool were last in together.
fn reached<'a>(inputs: &Inputs<'a>) -> &'a str {
    inputs.pool.status.as_ref().map(|s| s.configuration.name.as_str()).unwrap_or_default()
}
