//! Windows and freezes: whether what a pool's nodes would take may begin now.
//!
//! What it is not: what the calendar says of a time (see `policy::waves`).

use super::{Evaluation, PolicyOutcome};
use crate::hold::{Hold, UnknownCost};
use crate::policy::waves::{Exemption, calendar};
use crate::policy::{ChangeAsked, ChangeCost, earlier};
use api::v1alpha1::MaxDisruption;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Whether what a pool's nodes would take may pass a window or a freeze.
#[derive(Debug, PartialEq, Eq)]
enum MayPass {
    Yes,
    No,
    /// That depends on what this change costs.
    Unknown(UnknownCost),
}

impl Hold {
    /// The same, with what is not known about the change that may be exempt from it.
    fn with_unknown(mut self, of: UnknownCost) -> Self {
        if let Self::Frozen { unknown, .. } | Self::OutsideWindow { unknown, .. } = &mut self {
            *unknown = Some(of);
        }
        self
    }
}

impl Evaluation<'_> {
    /// Holds nodes back outside of windows and within freezes, unless what they would take may pass.
    pub(super) fn hold_outside_windows(&self, next: &mut PolicyOutcome) {
        let when = calendar(self.policy, self.now);
        next.allowance.look_again = earlier(next.allowance.look_again, when.look_again);
        next.allowance.hold = when.holds.into_iter().find_map(|(hold, limit)| {
            match limit.map_or(MayPass::No, |limit| self.may_pass(limit, &mut next.changes)) {
                MayPass::Yes => None,
                MayPass::No => Some(hold),
                MayPass::Unknown(unknown) => Some(hold.with_unknown(unknown)),
            }
        });
        // In a freeze nothing new begins, not even on a node that reboots anyway.
        if matches!(next.allowance.hold, Some(Hold::OutsideWindow { .. })) {
            let is_known = |change: &ChangeAsked| matches!(self.facts.costs.get(change), Some(Ok(_)));
            let is_known = next.changes.iter().all(is_known);
            next.allowance.only_window = self.about.plain && is_known;
            next.allowance.costs_unknown = !is_known;
            next.allowance.along = self.taking_along(&mut next.changes);
        }
    }

    /// The nodes that are on their way to an earlier config, have changed nothing yet, and are disturbed by it at least as much as
    /// by what waits: one drain and one reboot do for both. `asked`: the changes whose cost matters.
    fn taking_along(&self, asked: &mut Vec<ChangeAsked>) -> HashSet<Arc<str>> {
        // What an OS image costs is not known.
        let nodes = self
            .nodes
            .iter()
            .filter(|(_, f)| self.about.plain && f.waiting && !f.recallable && !f.quarantined);
        let mut along = HashSet::new();
        for (node, _) in nodes {
            let (Some(from), Some(desired)) = (&node.current_config, &node.desired_config) else { continue };
            let mut cost = |to: &str| {
                let change = ChangeAsked { from: from.clone(), to: to.into() };
                self.cost(change, asked).map(|cost| cost.least)
            };
            // No limit lets a reboot pass.
            let at_most =
                |a: Option<MaxDisruption>, b: Option<MaxDisruption>| b.is_none() || a.is_some() && a <= b;
            if let (Some(waiting), Some(anyway)) = (cost(self.config), cost(desired))
                && at_most(waiting, anyway)
            {
                along.insert(node.name.clone());
            }
        }
        along
    }

    /// Whether what all nodes would take may pass a window or a freeze. `asked`: the changes whose cost matters.
    fn may_pass(&self, limit: Exemption, asked: &mut Vec<ChangeAsked>) -> MayPass {
        // What an OS image costs is not known.
        if !self.about.plain {
            return MayPass::No;
        }
        // A node that is put aside is updated as soon as its pods can leave.
        let asks = self.nodes.iter().filter(|(_, f)| f.can_be_asked() || f.quarantined);
        let from: BTreeSet<Arc<str>> = asks.filter_map(|(n, _)| n.current_config.clone()).collect();
        // If nobody asks, nothing shows that what comes next may pass.
        let mut may = if from.is_empty() { MayPass::No } else { MayPass::Yes };
        for from in from {
            let change = ChangeAsked { from, to: self.config.into() };
            let passes = match (self.cost(change.clone(), asked), limit) {
                (None, _) if self.facts.let_go => true,
                (None, _) => {
                    if may == MayPass::Yes {
                        let why = self.facts.costs.get(&change).and_then(|cost| cost.clone().err());
                        may = MayPass::Unknown(UnknownCost { change, why });
                    }
                    continue;
                }
                (Some(cost), Exemption::Certificates) => cost.certificates,
                (Some(cost), Exemption::UpTo(most)) => cost.least.is_some_and(|least| least <= most),
            };
            // One that may not pass holds all of them, whatever the others cost.
            may = if passes { may } else { MayPass::No };
        }
        may
    }

    /// What a change costs, if that is known. `asked`: the changes whose cost matters, so that it is computed, or kept up to date.
    fn cost(&self, change: ChangeAsked, asked: &mut Vec<ChangeAsked>) -> Option<&ChangeCost> {
        let known = self.facts.costs.get(&change).and_then(|cost| cost.as_ref().ok());
        if (known.is_some() || !self.facts.let_go) && !asked.contains(&change) {
            asked.push(change);
        }
        known
    }
}
