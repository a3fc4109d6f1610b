//! What the changes cost a node that a plan asks about, because windows or freezes of a RolloutPolicy let some of them pass, or
//! let a node take a change along with another one. Both configs of each change are read, as the controller does. Without them a
//! snapshot would show nodes as waiting that the controller lets go.
//!
//! What it is not: the computation (see `lookups`), or the choice of the changes (see `rollout::plan`).

use crate::status::looked_up::{LookedUp, LookupRule, Seen, Unseen};
use api::rendered::RenderedName;
use api::v1::MachineConfigPool;
use desired::PoolDisruption;
use kube::Client;
use rollout::RolloutPlan;
use rollout::policy::{ChangeAsked, ChangeCost, Costs};
use std::collections::BTreeMap;
use std::time::Duration;

/// A cost is computed again after this time: the cluster's disruption policy may have changed. The controller does the same.
const EVERY: Duration = Duration::from_secs(300);

/// A change, and what the pool that it leads to sets for the disruption of its nodes.
type Asked = (ChangeAsked, PoolDisruption);

/// What is known of costs.
pub(super) struct ChangeCosts(LookedUp<Asked, ChangeCost>);

fn pool_disruption(pools: &BTreeMap<String, MachineConfigPool>, change: &ChangeAsked) -> PoolDisruption {
    let pool = RenderedName::parse(&change.to).and_then(|name| pools.get(name.pool));
    PoolDisruption::of(pool.and_then(|pool| pool.metadata.annotations.as_ref()))
}

impl ChangeCosts {
    pub(super) fn new(client: Client) -> Self {
        Self(LookedUp::new(
            client,
            LookupRule { look: |client, asked| Box::pin(look(client, asked)), every: EVERY, counts: None },
        ))
    }

    /// What changes cost, as far as it is known, with the pools' present settings.
    pub(super) fn costs(&self, pools: &BTreeMap<String, MachineConfigPool>) -> Costs {
        let is_current = |(change, pool): &Asked| *pool == pool_disruption(pools, change);
        let known = self.0.known().filter(|(asked, _)| is_current(asked));
        known.map(|((change, _), cost)| (change.clone(), *cost)).collect()
    }

    /// What is not known: the kind that cannot be read, and what follows from that, as a sentence.
    pub(super) fn unread(&self) -> Option<String> {
        let shown = "nodes are shown as waiting that a window or a freeze may let go";
        if self.0.is_refused() {
            return Some(format!(
                "MachineConfigs and MachineConfigurations cannot be read, so it is not known what changes cost: {shown}"
            ));
        }
        let ((ChangeAsked { from, to }, _), why) = self.0.failure()?;
        Some(format!("what the change from {from} to {to} costs a node is not known ({why}): {shown}"))
    }

    /// Takes the changes that a plan asks about.
    pub(super) fn request(&self, plan: &RolloutPlan, pools: &BTreeMap<String, MachineConfigPool>) {
        let changes = plan.pools.iter().filter_map(|pool| pool.policy.as_ref()).flat_map(|p| &p.changes);
        self.0.request(changes.map(|change| (change.clone(), pool_disruption(pools, change))).collect());
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

async fn look(client: Client, asked: Vec<Asked>) -> Seen<Asked, ChangeCost> {
    let read = lookups::read_costs(&client, asked).await.into_iter();
    let seen = read.map(|(asked, cost)| match cost {
        Ok(cost) => (asked, Ok(cost)),
        Err(error) if error.is_forbidden() => (asked, Err(Unseen::Forbidden)),
        Err(error) => (asked, Err(Unseen::Failed(error.chain()))),
    });
    seen.collect()
}
