//! Looks at the nodes whose drains a plan asks about, because a RolloutPolicy has `spec.drain`: their pods and all budgets
//! are listed, as the controller does. Without them a snapshot would show an order of nodes that the controller does not
//! follow.
//!
//! What it is not: the judgement of pods and budgets (see `lookups`), or the choice of the nodes (see `rollout::plan`).

use crate::status::looked_up::{Answers, LookedUp, LookupRule, Unseen};
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::Client;
use rollout::RolloutPlan;
use rollout::drain::{OUTLOOK_INTERVAL, OUTLOOK_MAX_AGE, Outlook};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is known of drains.
pub(super) struct DrainOutlooks(LookedUp<Arc<str>, Outlook>);

impl DrainOutlooks {
    pub(super) fn new(client: Client) -> Self {
        Self(LookedUp::new(
            client,
            LookupRule { look: Box::new(look), every: OUTLOOK_INTERVAL, counts: Some(OUTLOOK_MAX_AGE) },
        ))
    }

    /// What drains would do, as far as it is known. `None`: this person may not look, and then no node waits for a look.
    pub(super) fn outlooks(&self) -> Option<BTreeMap<Arc<str>, Outlook>> {
        let known = self.0.known().map(|(node, outlook)| (node.clone(), outlook.clone())).collect();
        (!self.0.is_refused()).then_some(known)
    }

    /// What is not known because this person may not look, or nobody has looked yet, as a sentence.
    pub(super) fn unread(&self) -> Option<String> {
        let follows =
            "in pools whose RolloutPolicy has spec.drain, the controller may let other nodes go first";
        if self.0.is_refused() {
            return Some(format!("pods and PodDisruptionBudgets cannot be read: {follows}"));
        }
        // Without their number: it changes with each answer, and the sentence is told once.
        (self.0.unanswered() > 0).then(|| format!("the pods of some nodes are not read yet: {follows}"))
    }

    /// Takes the nodes that a plan asks about. One that is made after a refusal asks about none; the nodes of before are
    /// the ones that are looked at again.
    pub(super) fn request(&self, plan: &RolloutPlan) {
        if !self.0.is_refused() {
            let of_policies = plan.pools.iter().filter_map(|pool| pool.policy.as_ref());
            self.0.request(of_policies.flat_map(|p| p.looks.iter().cloned()).collect());
        }
    }

    /// Whether the last plan asks about nodes that are to be looked at now.
    pub(super) fn are_due(&self) -> bool {
        self.0.are_due()
    }

    /// See [`LookedUp::changed`].
    pub(super) async fn changed(&mut self) {
        self.0.changed().await;
    }
}

fn look(client: &Client, nodes: Vec<Arc<str>>) -> Answers<Arc<str>, Outlook> {
    let client = client.clone();
    let inspected = async move { lookups::inspect_drains(&client, &nodes).await };
    let seen = inspected.map(stream::iter).flatten_stream().map(|(node, seen)| match seen {
        Ok(outlook) => (node, Ok(outlook)),
        Err(error) if error.is_forbidden() => (node, Err(Unseen::Forbidden)),
        Err(error) => (node, Ok(Outlook::unread(&error.chain()))),
    });
    seen.boxed()
}
