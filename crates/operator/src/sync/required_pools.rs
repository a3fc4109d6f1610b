//! Whether the pools that an upgrade waits for are in a config of the new version. Pure.
//!
//! What it is not: which pools there are (see `plan`).

use api::conditions::{StatusCondition as _, is_true};
use api::k8s::ObjectMeta;
use api::names::annotation::{GENERATED_BY_CONTROLLER, RELEASE_IMAGE_VERSION};
use api::names::{label, pool_condition};
use api::v1::MachineConfigPool;

/// What the pools that an upgrade waits for have not done yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pools {
    /// All are in their configs.
    Done,
    /// Some are on their way; with the number of their nodes.
    Moving { what: String, nodes: u32 },
    /// One cannot get there by waiting.
    Stuck(String),
}

/// What a rendered config must be of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// The controller's mark on what it renders.
    pub(super) controller: &'a str,
    /// The release that the ControllerConfig names; empty: none.
    pub(super) release: &'a str,
}

impl Target<'_> {
    /// What a rendered config lacks. `None`: it is of this version and release.
    fn lacks(&self, rendered: &ObjectMeta) -> Option<String> {
        let note = |key: &str| {
            rendered.annotations.as_ref().and_then(|a| a.get(key)).map(String::as_str).unwrap_or_default()
        };
        let (by, release) = (note(GENERATED_BY_CONTROLLER), note(RELEASE_IMAGE_VERSION));
        let words = |version: &str, release: &str| match release {
            "" => version.to_owned(),
            release => format!("{version}, release {release}"),
        };
        (by != self.controller || release != self.release).then(|| {
            format!(
                "was rendered by {}, not yet by {}",
                words(by, release),
                words(self.controller, self.release)
            )
        })
    }
}

/// The pools that an upgrade waits for.
pub(super) fn required(pools: &[MachineConfigPool]) -> Vec<MachineConfigPool> {
    let is = |p: &&MachineConfigPool| {
        p.metadata.labels.as_ref().is_some_and(|l| l.contains_key(label::REQUIRED_FOR_UPGRADE))
    };
    pools.iter().filter(is).cloned().collect()
}

/// Looks at the required pools. `rendered`: the metadata of the configs that they name. A pool that the controller has looked
/// at and that has no nodes has nothing to do: whether it could be rendered is said by its own conditions and by Upgradeable.
pub(super) fn required_pools(
    pools: &[MachineConfigPool],
    rendered: &[ObjectMeta],
    target: Target<'_>,
) -> Pools {
    let mut moving = vec![];
    let mut nodes = 0;
    for pool in required(pools) {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let status = pool.status.clone().unwrap_or_default();
        let conditions = status.conditions.as_deref().unwrap_or_default();
        nodes += u32::try_from(status.machine_count).unwrap_or_default();
        let observed = pool.metadata.generation.unwrap_or_default() <= status.observed_generation;
        if pool.status.is_some() && observed && status.machine_count == 0 {
            continue;
        }
        let updated = observed && is_true(conditions, pool_condition::UPDATED);
        if is_true(conditions, pool_condition::DEGRADED) {
            let why = conditions.iter().find(|c| {
                c.is_true()
                    && ![pool_condition::UPDATING, pool_condition::DEGRADED].contains(&c.type_.as_str())
            });
            let why = why.map_or_else(String::new, |c| format!(": {}: {}", c.type_, c.message));
            return Pools::Stuck(format!("MachineConfigPool {name} is degraded{why}"));
        }
        let config = pool.spec.configuration.name.as_str();
        let there = rendered.iter().find(|metadata| metadata.name.as_deref() == Some(config));
        let lacks = there.and_then(|metadata| target.lacks(metadata));
        if updated && lacks.is_none() {
            continue;
        }
        if pool.spec.paused {
            return Pools::Stuck(format!(
                "MachineConfigPool {name} is paused and cannot get to its config; mco resume {name}"
            ));
        }
        if let Some(lacks) = lacks {
            let pinned = match rollout::pinned_config(&pool) {
                Some(_) => format!("; the pool is pinned to it: mco undo {name} --release"),
                None => String::new(),
            };
            moving.push(format!("MachineConfigPool {name}: {config} {lacks}{pinned}"));
            continue;
        }
        moving.push(match config {
            "" => format!("MachineConfigPool {name}: no config is rendered yet; is the controller running?"),
            _ => format!(
                "MachineConfigPool {name}: {} of {} nodes are in {config}",
                status.updated_machine_count, status.machine_count
            ),
        });
    }
    if moving.is_empty() { Pools::Done } else { Pools::Moving { what: moving.join("; "), nodes } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn required_pools_are_waited_for_unless_waiting_cannot_help() {
        let pool = |name: &str, required: bool, paused: bool, conditions: Value| -> MachineConfigPool {
            let labels = if required { json!({label::REQUIRED_FOR_UPGRADE: ""}) } else { json!({}) };
            serde_json::from_value(json!({
                    "metadata": {"name": name, "labels": labels, "generation": 2},
                    "spec": {"paused": paused, "configuration": {"name": "rendered-1"}},
                    "status": {"observedGeneration": 2, "machineCount": 3, "updatedMachineCount": 1, "conditions": conditions},
                }))
                .unwrap()
        };
        let yes = |kind: &str| json!([{"type": kind, "status": "True", "message": "m"}]);
        let target = Target { controller: "v2", release: "4.22.1" };
        let of = |controller: &str, release: &str| -> ObjectMeta {
            serde_json::from_value(json!({"name": "rendered-1", "annotations": {
                    GENERATED_BY_CONTROLLER: controller, RELEASE_IMAGE_VERSION: release}}))
            .unwrap()
        };
        let look = |pool: MachineConfigPool| required_pools(&[pool], &[of("v2", "4.22.1")], target);
        assert_eq!(look(pool("worker", false, false, json!([]))), Pools::Done, "nobody waits for it");
        assert_eq!(look(pool("master", true, false, yes("Updated"))), Pools::Done);
        let moving = look(pool("master", true, false, yes("Updating")));
        assert_eq!(
            moving,
            Pools::Moving {
                what: "MachineConfigPool master: 1 of 3 nodes are in rendered-1".to_owned(),
                nodes: 3
            }
        );
        let paused = look(pool("master", true, true, json!([])));
        assert!(matches!(&paused, Pools::Stuck(why) if why.contains("mco resume master")), "{paused:?}");
        let degraded = json!([{"type": "Degraded", "status": "True"}, {"type": "NodeDegraded", "status": "True", "message": "n"}]);
        let stuck = look(pool("master", true, false, degraded.clone()));
        assert_eq!(stuck, Pools::Stuck("MachineConfigPool master is degraded: NodeDegraded: n".to_owned()));
        // Updated, and not yet rendered by this version, or for this release.
        for (controller, release) in [("v1", "4.22.1"), ("v2", "4.22.0"), ("", "")] {
            let found = required_pools(
                &[pool("master", true, false, yes("Updated"))],
                &[of(controller, release)],
                target,
            );
            assert!(
                matches!(&found, Pools::Moving { what, nodes: 3 } if what.contains("rendered-1 was rendered by")
                        && what.ends_with("not yet by v2, release 4.22.1")),
                "{found:?}"
            );
        }
        // Nobody is in it: there is nothing to wait for, unless nobody has counted yet.
        let mut empty = pool("master", true, false, degraded);
        empty.status.as_mut().unwrap().machine_count = 0;
        assert_eq!(look(empty.clone()), Pools::Done);
        empty.metadata.generation = Some(3);
        assert!(matches!(look(empty.clone()), Pools::Stuck(_)), "its status is of an earlier generation");
        empty.status = None;
        assert!(matches!(look(empty), Pools::Moving { nodes: 0, .. }), "no controller has looked at it");
    }
}
