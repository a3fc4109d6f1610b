//! Which rendered config a pool serves: only one that has worked on a node. Pure.
//!
//! New machines get the pool's target config once a node of the pool has it and, if the pool has a RolloutPolicy, once it has
//! proved itself. Until then they get the last config that all nodes had.

use api::conditions::is_true;
use api::names::pool_condition::CONFIG_UNPROVED;
use api::v1::MachineConfigPool;

/// The name of the rendered config to serve; `None`: there is none yet. `standing` is what the pool serves now.
///
/// The count of updated nodes belongs to the generation that the status was computed from. The reference ignores the
/// generation, so for a moment after each rendering it serves a config that no node has. Here, while the status is out of
/// date, the pool keeps serving what it served before.
pub fn served_config<'a>(pool: &'a MachineConfigPool, standing: Option<&'a str>) -> Option<&'a str> {
    let status = pool.status.as_ref();
    let observed = status.map_or(0, |s| s.observed_generation);
    let stale = pool.metadata.generation.is_some_and(|g| observed < g);
    // The condition is written together with the count. A pool that never had another config has nothing else to serve.
    let unproved = status.is_some_and(|s| {
        let conditions = s.conditions.as_deref().unwrap_or_default();
        is_true(conditions, CONFIG_UNPROVED) && !s.configuration.name.is_empty()
    });
    let proved = status.is_some_and(|s| s.updated_machine_count > 0) && !unproved;
    let name = match (stale, standing) {
        (true, Some(standing)) => standing,
        (false, _) if proved => &pool.spec.configuration.name,
        _ => &status?.configuration.name,
    };
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_new_config_is_served_once_a_node_is_in_it() {
        // Columns: generation, observed generation, updated, served now, wanted.
        let rows = [
            (3, 3, 0, None, Some("old")),
            (3, 3, 1, None, Some("new")),
            (3, 4, 1, None, Some("new")),
            (3, 2, 1, None, Some("old")),
            (3, 2, 1, Some("between"), Some("between")),
            (3, 3, 0, Some("between"), Some("old")),
            (3, 3, 1, Some("between"), Some("new")),
        ];
        for (generation, observed, updated, standing, want) in rows {
            let pool: MachineConfigPool = serde_json::from_value(json!({
                "metadata": {"name": "worker", "generation": generation},
                "spec": {"configuration": {"name": "new"}},
                "status": {
                    "observedGeneration": observed,
                    "updatedMachineCount": updated,
                    "configuration": {"name": "old"},
                },
            }))
            .unwrap();
            assert_eq!(
                served_config(&pool, standing),
                want,
                "{generation} {observed} {updated} {standing:?}"
            );
        }
    }

    #[test]
    fn a_config_that_has_not_proved_itself_is_served_only_where_there_is_no_other() {
        for (unproved, in_force, want) in
            [("True", "old", Some("old")), ("False", "old", Some("new")), ("True", "", Some("new"))]
        {
            let pool: MachineConfigPool = serde_json::from_value(json!({
                "metadata": {"name": "worker", "generation": 3},
                "spec": {"configuration": {"name": "new"}},
                "status": {
                    "observedGeneration": 3, "updatedMachineCount": 1, "configuration": {"name": in_force},
                    "conditions": [{"type": CONFIG_UNPROVED, "status": unproved}],
                },
            }))
            .unwrap();
            assert_eq!(served_config(&pool, None), want, "{unproved} {in_force:?}");
        }
    }

    #[test]
    fn a_pool_without_a_config_that_was_in_force_serves_none() {
        for pool in [
            json!({"metadata": {"name": "a", "generation": 1}}),
            json!({"metadata": {"name": "a", "generation": 1}, "spec": {"configuration": {"name": "new"}}}),
            json!({"metadata": {"name": "a"}, "spec": {"configuration": {"name": "new"}}, "status": {}}),
        ] {
            let pool: MachineConfigPool = serde_json::from_value(pool).unwrap();
            assert_eq!(served_config(&pool, None), None);
        }
    }
}
