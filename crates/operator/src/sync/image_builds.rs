//! Builds of pools' OS images that were stopped before their end: an upgrade would begin with pools whose images are missing. Pure.
//!
//! What it is not: builds themselves, and what a pool whose build failed says (see `build` and the controller).

use api::conditions::is_true;
use api::names::annotation::CURRENT_BUILD;
use api::v1::{MachineOSBuild, MachineOSConfig};
use kube::ResourceExt as _;

/// The condition of a MachineOSBuild that was stopped.
const INTERRUPTED: &str = "Interrupted";

/// The pools whose build in force was stopped, each with the build. A build that a newer one has replaced is in force nowhere.
pub(super) fn interrupted(configs: &[MachineOSConfig], builds: &[MachineOSBuild]) -> Vec<String> {
    let stopped = |name: &str| {
        let build = builds.iter().find(|b| b.metadata.name.as_deref() == Some(name));
        let conditions = build.and_then(|b| b.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
        is_true(conditions, INTERRUPTED)
    };
    let in_force = configs.iter().filter_map(|config| {
        let build = config.annotations().get(CURRENT_BUILD)?;
        let pool = &config.spec.machine_config_pool.name;
        (config.metadata.deletion_timestamp.is_none() && stopped(build)).then(|| format!("{pool} ({build})"))
    });
    in_force.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pool_whose_build_in_force_was_stopped_is_named() {
        let config = |pool: &str, build: &str| -> MachineOSConfig {
            serde_json::from_value(json!({
                "metadata": {"name": pool, "annotations": {CURRENT_BUILD: build}},
                "spec": {"machineConfigPool": {"name": pool}, "renderedImagePushSecret": {"name": "push"}},
            }))
            .unwrap()
        };
        let build = |name: &str, condition: &str| -> MachineOSBuild {
            let time = "2026-01-01T00:00:00Z";
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"machineConfig": {"name": "r"}, "machineOSConfig": {"name": "c"}, "renderedImagePushSpec": "r/x:1"},
                "status": {"conditions": [
                    {"type": "Interrupted", "status": "False", "reason": "R", "message": "", "lastTransitionTime": time},
                    {"type": condition, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time},
                ]},
            }))
            .unwrap()
        };
        let builds = [build("a-1", "Interrupted"), build("a-2", "Building"), build("b-1", "Interrupted")];
        let of = |configs: &[MachineOSConfig]| interrupted(configs, &builds);
        assert_eq!(of(&[config("a", "a-1"), config("c", "c-1")]), ["a (a-1)"]);
        assert_eq!(of(&[config("a", "a-2")]), [""; 0], "another one has taken its place");
        assert_eq!(of(&[]), [""; 0]);
    }
}
