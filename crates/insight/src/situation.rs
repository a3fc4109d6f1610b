//! A cluster as the input of a plan of what is under way, with what changes cost: from objects, or listed as it is now.
//!
//! Not here: a change that somebody wants to make (see `change`), and a cluster that is followed (see `status`).

use crate::change::impact;
use crate::objects::cost_key::cost_key;
use crate::objects::lists::{ListError, for_present_plan};
use crate::objects::situation_without_costs;
use api::k8s::Time;
use futures::StreamExt as _;
use kube::Client;
use rollout::policy::ChangeAsked;
use rollout::{Situation, SituationError};
use serde_json::Value;
use std::collections::BTreeSet;

/// The cluster that these objects are, as the controller sees it: if the cluster's FeatureGate switches
/// OSImageStreams off, they are ignored. What changes cost a node is computed from the MachineConfigs among them, where a policy asks.
///
/// # Errors
/// An object of a kind that matters and that cannot be read.
pub fn situation(objects: &[(String, Value)]) -> Result<Situation, SituationError> {
    let mut situation = situation_without_costs(objects)?;
    situation.costs = impact::costs_among(objects, &situation);
    Ok(situation)
}

/// A cluster as it is now.
#[derive(Debug)]
pub struct PresentSituation {
    /// What a plan is made from.
    pub situation: Situation,
    /// Optional kinds that may not be listed (403): assumed to have no objects.
    pub forbidden: Vec<String>,
}

/// Why a cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PresentError {
    /// A list failed.
    #[error(transparent)]
    List(#[from] ListError),
    /// An object that matters cannot be read.
    #[error(transparent)]
    Object(#[from] SituationError),
    /// The program ends.
    #[error("the objects were not read to the end")]
    Ended(#[from] tokio::task::JoinError),
}

impl PresentError {
    /// The API server refused a list because of a missing right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::List(error) if error.is_forbidden())
    }
}

/// Lists what a plan depends on, and looks up what changes cost where the plan for this time asks for it, as the controller and
/// `mco status` do.
///
/// # Errors
/// A list that failed, or an object of a kind that matters and that cannot be read.
pub async fn present_situation(client: &Client, now: &Time) -> Result<PresentSituation, PresentError> {
    let listed = for_present_plan(client).await?;
    // All pods of a cluster are among them: others' work need not wait.
    let read = tokio::task::spawn_blocking(move || {
        situation_without_costs(&listed.objects).map(|situation| (situation, listed.forbidden))
    });
    let (mut situation, forbidden) = read.await??;
    look_up_costs(client, &mut situation, now).await;
    Ok(PresentSituation { situation, forbidden })
}

/// Looks up what changes cost until the plan asks for nothing more: each plan may ask for more.
async fn look_up_costs(client: &Client, situation: &mut Situation, now: &Time) {
    while situation.asks_for_costs() {
        let plan = situation.plan(now);
        let changes =
            plan.pools.iter().filter_map(|pool| pool.policy.as_ref()).flat_map(|policy| &policy.changes);
        let news: BTreeSet<ChangeAsked> =
            changes.filter(|change| !situation.costs.contains_key(*change)).cloned().collect();
        if news.is_empty() {
            return;
        }
        let keys: Vec<_> = news.iter().map(|change| cost_key(&situation.pools, change)).collect();
        let mut costs = lookups::read_costs(client, &lookups::ConfigSlots::default(), keys);
        while let Some((key, cost)) = costs.next().await {
            situation.costs.insert(key.change, cost.map_err(|error| error.chain().into()));
        }
    }
}
