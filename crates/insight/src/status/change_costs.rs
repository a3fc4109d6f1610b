//! What the changes cost a node that a plan asks about, because windows or freezes of a RolloutPolicy let some of them pass, or
//! let a node take a change along with another one. Both configs of each change are read, as the controller does. Without them a
//! snapshot would show nodes as waiting that the controller lets go.
//!
//! What it is not: the computation (see `lookups`), or the choice of the changes (see `rollout::plan`).

use crate::objects::cost_key::cost_key;
use crate::status::looked_up::{Answers, LookedUp, LookupRule, Unseen};
use api::v1::MachineConfigPool;
use futures::StreamExt as _;
use kube::Client;
use lookups::{ConfigSlots, CostKey};
use rollout::RolloutPlan;
use rollout::policy::{ChangeAsked, ChangeCost, Costs};
use std::collections::BTreeMap;
use std::time::Duration;

/// A cost is computed again after this time: the cluster's disruption policy may have changed. The controller does the same.
const EVERY: Duration = Duration::from_secs(300);

/// What is known of costs.
pub(super) struct ChangeCosts(LookedUp<CostKey, ChangeCost>);

impl ChangeCosts {
    pub(super) fn new(client: Client) -> Self {
        let slots = ConfigSlots::default();
        let look = move |client: &Client, asked| look(client, &slots, asked);
        Self(LookedUp::new(client, LookupRule { look: Box::new(look), every: EVERY, counts: None }))
    }

    /// What changes cost with the pools' present settings, or why that is not known.
    pub(super) fn costs(&self, pools: &BTreeMap<String, MachineConfigPool>) -> Costs {
        let known = self.0.known().map(|(key, cost)| (key, Ok(*cost)));
        let failed = self.0.failures().map(|(key, why)| (key, Err(why.into())));
        let current = known.chain(failed).filter(|(key, _)| **key == cost_key(pools, &key.change));
        current.map(|(key, cost)| (key.change.clone(), cost)).collect()
    }

    /// What is not known: the kind that cannot be read, and what follows from that, as a sentence.
    pub(super) fn unread(&self) -> Option<String> {
        let shown = "some nodes are shown as waiting although a window or a freeze may let them go";
        if self.0.is_refused() {
            return Some(format!(
                "MachineConfigs and MachineConfigurations cannot be read, so it is not known what changes cost: {shown}"
            ));
        }
        if let Some((CostKey { change: ChangeAsked { from, to }, .. }, why)) = self.0.failures().next() {
            return Some(format!(
                "what the change from {from} to {to} costs a node is not known ({why}): {shown}"
            ));
        }
        // Without their number: it changes with each answer, and the sentence is told once.
        (self.0.unanswered() > 0).then(|| format!("it is not known yet what some changes cost: {shown}"))
    }

    /// Takes the changes that a plan asks about.
    pub(super) fn request(&self, plan: &RolloutPlan, pools: &BTreeMap<String, MachineConfigPool>) {
        let changes = plan.pools.iter().filter_map(|pool| pool.policy.as_ref()).flat_map(|p| &p.changes);
        self.0.request(changes.map(|change| cost_key(pools, change)).collect());
    }

    /// Whether the last plan asks about changes whose cost is to be read now.
    pub(super) fn are_due(&self) -> bool {
        self.0.are_due()
    }

    /// See [`LookedUp::changed`].
    pub(super) async fn changed(&mut self) {
        self.0.changed().await;
    }
}

fn look(client: &Client, slots: &ConfigSlots, asked: Vec<CostKey>) -> Answers<CostKey, ChangeCost> {
    let seen = lookups::read_costs(client, slots, asked).map(|(key, cost)| match cost {
        Ok(cost) => (key, Ok(cost)),
        Err(error) if error.is_forbidden() => (key, Err(Unseen::Forbidden)),
        Err(error) => (key, Err(Unseen::Failed(error.chain()))),
    });
    seen.boxed()
}
