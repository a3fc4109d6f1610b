//! The MachineConfig with an OS image that the benchmarks of OS updates apply, and how long they wait for it.
//!
//! Not here: what is measured (see `os`, `prefetch`).

use super::node_state::Wait;
use super::one_node::NODE;
use api::names::label;
use api::v1::MachineConfig;
use kube::api::{Api, Patch, PatchParams, PostParams};
use std::time::Duration;

/// The time limit for one step.
pub(super) const LIMIT: Duration = Duration::from_secs(300);
/// The pause between two readings. The last one before the reboot may be this much too early.
pub(super) const LOOK: Duration = Duration::from_millis(20);
pub(super) const WAIT: Wait<'_> = Wait { node: NODE, limit: LIMIT, pause: LOOK };
/// The images that updates alternate between. The registry in their names does not exist.
pub(super) const IMAGES: [&str; 2] = ["registry.lab/os:a", "registry.lab/os:b"];

/// Applies the MachineConfig with this image; an empty one creates it.
pub(super) async fn apply(configs: &Api<MachineConfig>, image: &str) -> anyhow::Result<()> {
    let name = "50-bench-os";
    let object = serde_json::json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {label::ROLE: "worker"}},
        "spec": {"osImageURL": image, "config": {"ignition": {"version": "3.4.0"}}},
    });
    if image.is_empty() {
        configs.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    } else {
        configs.patch(name, &PatchParams::default(), &Patch::Merge(object)).await?;
    }
    Ok(())
}
