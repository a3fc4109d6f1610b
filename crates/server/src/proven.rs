//! Which rendered config a pool serves: only one that has proved itself. Pure.
//!
//! A config is proved when a node of the pool is in it. Until then new machines get the config that all nodes were
//! last in together.

use api::v1::MachineConfigPool;

/// The rendered config to serve; none where there is none yet.
///
/// The count of updated nodes belongs to the generation that the status was computed from. The reference reads it as
/// it stands, and so serves, for a moment after each rendering, a config that no node is in; we do not.
pub fn proven(pool: &MachineConfigPool) -> Option<&str> {
    let status = pool.status.as_ref();
    let observed = status.map_or(0, |s| s.observed_generation);
    let current = pool.metadata.generation.is_none_or(|g| observed >= g);
    let updated = status.map_or(0, |s| s.updated_machine_count);
    let name = if current && updated > 0 {
        &pool.spec.configuration.name
    } else {
        &status?.configuration.name
    };
    (!name.is_empty()).then_some(name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_new_config_is_served_once_a_node_is_in_it() {
        // generation, observed, updated, wanted
        let rows = [
            (3, 3, 0, Some("old")),
            (3, 3, 1, Some("new")),
            (3, 2, 1, Some("old")),
            (3, 4, 1, Some("new")),
        ];
        for (generation, observed, updated, want) in rows {
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
            assert_eq!(proven(&pool), want, "{generation} {observed} {updated}");
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
            assert_eq!(proven(&pool), None);
        }
    }
}
