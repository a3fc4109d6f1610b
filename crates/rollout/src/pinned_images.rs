//! PinnedImageSets: which of them a pool has, and how many of its nodes are in step with them.
//!
//! The controller and the agents ask the same function which sets a pool has, so that an agent need not wait until the
//! controller has written them into the pool.
//!
//! What it is not: what a node pulls and in which order (the agent decides that), nor anything that a rollout waits for.

use api::formats::selector::{self, SelectorError};
use api::v1::{MachineConfigPool, PinnedImageSet, PinnedImageSetState, PoolSynchronizerStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The type of the entry in `status.poolSynchronizersStatus`.
const SYNCHRONIZER: &str = "PinnedImageSets";

/// What is known of sets and nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinFacts {
    /// The generation of each set.
    pub generations: BTreeMap<String, i32>,
    /// What the MachineConfigNodes say, of nodes that say anything.
    pub nodes: BTreeMap<Arc<str>, Vec<PinnedImageSetState>>,
}

impl PinFacts {
    /// Whether there are neither sets nor reports of them.
    pub fn is_empty(&self) -> bool {
        let Self { generations, nodes } = self;
        generations.is_empty() && nodes.is_empty()
    }

    /// Whether a node has all of these sets as they are now.
    pub fn has_current_sets<'a>(&self, node: &str, sets: impl IntoIterator<Item = &'a str>) -> bool {
        let states = self.nodes.get(node).map(Vec::as_slice).unwrap_or_default();
        sets.into_iter().all(|set| {
            let Some(state) = states.iter().find(|s| s.name == set) else { return false };
            let newest = self.generations.get(set).copied().or(state.desired_generation);
            state.current_generation.is_some() && state.current_generation == newest
        })
    }
}

/// The sets of a pool, by name.
///
/// # Errors
/// The pool's `machineConfigSelector` cannot be read.
pub fn selected<'a>(
    pool: &MachineConfigPool,
    sets: impl IntoIterator<Item = &'a PinnedImageSet>,
) -> Result<Vec<&'a PinnedImageSet>, SelectorError> {
    let mut found = vec![];
    for set in sets {
        let gone = set.metadata.deletion_timestamp.is_some();
        let selector = pool.spec.machine_config_selector.as_ref();
        if selector::matches(selector, set.metadata.labels.as_ref())? && !gone {
            found.push(set);
        }
    }
    found.sort_unstable_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(found)
}

/// The counts of a pool's nodes. `None`: the pool has no set, and never had one.
pub(crate) fn counted<'a>(
    pool: &MachineConfigPool,
    nodes: impl IntoIterator<Item = &'a str>,
    (ready, unavailable): (i32, i32),
    facts: &PinFacts,
) -> Option<Vec<PoolSynchronizerStatus>> {
    let old = pool.status.as_ref().and_then(|s| s.pool_synchronizers_status.as_ref());
    let sets: Vec<&str> = pool.spec.pinned_image_sets.iter().flatten().map(|set| &*set.name).collect();
    if sets.is_empty() && old.is_none() {
        return None;
    }
    let (mut all, mut updated) = (0, 0);
    for node in nodes {
        all += 1;
        updated += i64::from(facts.has_current_sets(node, sets.iter().copied()));
    }
    let unavailable = i64::from(unavailable).min(all);
    let available = all - unavailable;
    Some(vec![PoolSynchronizerStatus {
        pool_synchronizer_type: SYNCHRONIZER.to_owned(),
        machine_count: all,
        updated_machine_count: updated,
        // A node that leaves its config may still be ready.
        ready_machine_count: i64::from(ready).min(available),
        available_machine_count: available,
        unavailable_machine_count: unavailable,
        observed_generation: pool.metadata.generation,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
    fn pool(spec: Value, status: Value) -> MachineConfigPool {
        serde_json::from_value(
            json!({"metadata": {"name": "p", "generation": 7}, "spec": spec, "status": status}),
        )
        .unwrap()
    }

    fn set(name: &str, role: &str) -> PinnedImageSet {
        let metadata = json!({"name": name, "generation": 2, "labels": {"role": role}});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"pinnedImages": []}})).unwrap()
    }

    #[test]
    fn a_pool_has_the_sets_that_its_selector_fits() {
        let sets = [set("b", "worker"), set("a", "worker"), set("m", "master")];
        let mut gone = set("gone", "worker");
        gone.metadata.deletion_timestamp = Some(api::k8s::Time(jiff::Timestamp::UNIX_EPOCH));
        let any_role =
            json!({"matchExpressions": [{"key": "role", "operator": "In", "values": ["worker", "infra"]}]});
        for (selector, want) in [
            (json!({"matchLabels": {"role": "worker"}}), &["a", "b"][..]),
            (json!({"matchLabels": {"role": "master"}}), &["m"]),
            (any_role, &["a", "b"]),
            (json!({}), &[]),
            (Value::Null, &[]),
        ] {
            let pool = pool(json!({"machineConfigSelector": selector}), json!({}));
            let found = selected(&pool, sets.iter().chain([&gone])).unwrap();
            let names: Vec<_> = found.iter().filter_map(|s| s.metadata.name.as_deref()).collect();
            assert_eq!(names, want, "{selector}");
        }
        let broken =
            json!({"machineConfigSelector": {"matchExpressions": [{"key": "role", "operator": "Like"}]}});
        assert!(selected(&pool(broken, json!({})), &sets).is_err());
    }

    #[test]
    fn a_node_has_current_sets_when_it_has_the_newest_generation_of_each_set() {
        let state = |name: &str, desired, current| PinnedImageSetState {
            name: name.to_owned(),
            desired_generation: Some(desired),
            current_generation: current,
            ..PinnedImageSetState::default()
        };
        let facts = PinFacts {
            generations: BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 5)]),
            nodes: BTreeMap::from([
                ("done".into(), vec![state("a", 2, Some(2)), state("b", 5, Some(5))]),
                // It has not seen the newest generation yet, and says that it is in step with the one before.
                ("late".into(), vec![state("a", 1, Some(1)), state("b", 5, Some(5))]),
                ("failed".into(), vec![state("a", 2, Some(2)), state("b", 5, None)]),
                ("half".into(), vec![state("a", 2, Some(2))]),
            ]),
        };
        let nodes = ["done", "late", "failed", "half", "silent"];
        let current: Vec<_> =
            nodes.into_iter().filter(|node| facts.has_current_sets(node, ["a", "b"])).collect();
        assert_eq!(current, ["done"]);
        assert!(facts.has_current_sets("silent", []), "without a set there is nothing to do");
        let with = pool(json!({"pinnedImageSets": [{"name": "a"}, {"name": "b"}]}), json!({}));
        let counts = counted(&with, nodes, (5, 1), &facts).unwrap();
        let PoolSynchronizerStatus { machine_count, updated_machine_count, observed_generation, .. } =
            counts[0];
        assert_eq!((machine_count, updated_machine_count, observed_generation), (5, 1, Some(7)));
        let PoolSynchronizerStatus {
            ready_machine_count,
            available_machine_count,
            unavailable_machine_count,
            ..
        } = counts[0];
        assert_eq!((ready_machine_count, available_machine_count, unavailable_machine_count), (4, 4, 1));
        assert_eq!(counted(&pool(json!({}), json!({})), nodes, (5, 0), &facts), None);
        // All nodes are in step with nothing.
        let before = pool(json!({}), json!({"poolSynchronizersStatus": counts}));
        assert_eq!(counted(&before, nodes, (5, 0), &facts).unwrap()[0].updated_machine_count, 5);
    }
}
