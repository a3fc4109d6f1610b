//! By what the cost of a change is asked for: the change, and the settings of the pools that decide what a change may cost.
//!
//! Not here: the cost (see `lookups`).

use api::v1::MachineConfigPool;
use desired::PoolDisruption;
use lookups::CostKey;
use rollout::policy::ChangeAsked;
use std::collections::BTreeMap;

/// What a change is asked for by, with the pools as they are now.
pub(crate) fn cost_key(pools: &BTreeMap<String, MachineConfigPool>, change: &ChangeAsked) -> CostKey {
    let notes = |pool: &str| pools.get(pool).and_then(|pool| pool.metadata.annotations.as_ref());
    CostKey::of(change, |pool| PoolDisruption::of(notes(pool)))
}
