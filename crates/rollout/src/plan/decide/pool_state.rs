//! What is known of a pool before nodes are chosen: the predicates of its nodes, what holds it, what its policy allows, and how many
//! nodes may be on their way.
//!
//! What it is not: the choice, or what is written (see `outcome`).

use super::{Back, Eval, goal};
use crate::hold::Hold;
use crate::inputs::{Inputs, PoolInput};
use crate::node::membership::BrokenSelector;
use crate::node::{Desired, Flags, Goal, flags};
use crate::os_image::OsImageWait;
use crate::plan::capacity::{max_unavailable, measure};
use crate::plan::prefetch::{self, Prefetch};
use crate::policy::{self, Allowance, PolicyInput, PolicyPlan, PolicySubject, RejectedElsewhere};
use crate::target::Target;
use crate::view::NodeView;
use api::formats::text::{MAX_REASON_CHARS, cut};
use api::v1alpha1::{DrainEnd, PoolProgress};
use std::sync::Arc;

impl<'a> Eval<'a> {
    pub(super) fn new(
        input: &'a PoolInput<'a>,
        nodes: &[&'a NodeView],
        broken: Option<&BrokenSelector>,
        (inputs, elsewhere): (&Inputs<'_>, &[RejectedElsewhere<'_>]),
    ) -> Self {
        let facts = inputs.facts;
        let spec = &input.pool.spec;
        let wanted = goal(input);
        let back = going_back(input, wanted);
        let goal = Goal { config: back.as_ref().map_or(wanted.config, |b| b.to), ..wanted };
        let look = |n: &&'a NodeView| {
            let flags = flags(n, Desired::of(n), goal);
            (*n, flags.without_answer(facts.unanswered.get(&n.name)))
        };
        let mut nodes: Vec<_> = nodes.iter().map(look).collect();
        let frees = !quarantines(input.policy);
        if frees {
            nodes.iter_mut().for_each(|(_, flags)| flags.quarantined = false);
        }
        let max = max_unavailable(input.name(), spec.max_unavailable.as_ref(), nodes.len());
        let prefetch = prefetch::limit(input, nodes.len());
        let mut hold = if let Some(broken) = broken {
            Some(Hold::Selector { pool: broken.pool.clone(), error: broken.to_string() })
        } else if spec.node_selector.as_ref().is_some_and(api::formats::selector::is_empty) {
            Some(Hold::SelectsAll)
        } else if goal.config.is_empty() {
            Some(Hold::NothingRendered)
        } else if input.pool.metadata.deletion_timestamp.is_some() {
            Some(Hold::Deleting)
        } else if spec.paused {
            Some(Hold::Paused)
        } else if let Err(wait) = input.layering.ready() {
            Some(Hold::Image(wait))
        } else if !input.config_exists {
            Some(Hold::ConfigMissing(goal.config.into()))
        } else if let Some(wait) = os_image_wait(input, &nodes).filter(|_| back.is_none()) {
            Some(Hold::OsImage(wait))
        } else if let Err(text) = &max {
            Some(Hold::MaxUnavailable(text.clone()))
        } else if let Err(text) = &prefetch {
            Some(Hold::PrefetchLimit(text.clone()))
        } else {
            input.refused.map(|why| Hold::Refused(why.to_owned()))
        };
        let mut followed = None;
        let mut excused = 0;
        let leave = match (&hold, input.policy) {
            (None, Some(PolicyInput::Unusable(why))) => {
                Allowance { hold: Some(Hold::Policy(why.to_owned())), ..Allowance::default() }
            }
            (None, Some(PolicyInput::InForce { policy, facts })) => {
                excused = policy.allowed_unavailable(nodes.len());
                let name = policy.name.clone();
                let is_back = back.is_some();
                let plan = |progress, checks, changes, held: Option<&Hold>| PolicyPlan {
                    policy: name,
                    progress,
                    checks,
                    changes,
                    back: is_back,
                    held_for: held.map(|hold| hold.word().to_owned()),
                    overlap: policy::overlap(&policy.waves, &nodes),
                    looks: vec![],
                };
                if let Some(back) = &back {
                    let held = Some(cut(&back.why.to_string(), MAX_REASON_CHARS).into_owned());
                    let progress = PoolProgress { held, gates: vec![], ..facts.progress.clone() };
                    followed = Some(plan(progress, vec![], vec![], Some(&back.why)));
                    // All are back.
                    let hold = nodes.iter().all(|(_, f)| !f.candidate).then(|| back.why.clone());
                    // What is out of service may be so because of the config that it leaves.
                    excused = 0;
                    Allowance { hold, back: true, zones: policy.zones.clone(), ..Allowance::default() }
                } else if policy.is_default() {
                    without_waves(input, elsewhere)
                } else {
                    let plain = !input.layering.is_layered();
                    let about = PolicySubject { pool: input.pool, config: goal.config, plain, elsewhere };
                    let next = policy::next((policy, facts), about, &nodes, inputs.now.0);
                    let held = next.allowance.hold.as_ref().filter(|h| !matches!(h, Hold::Recording { .. }));
                    followed = Some(plan(next.progress, next.checks, next.changes, held));
                    let proved = facts.progress.proved.as_deref().filter(|_| !input.layering.is_layered());
                    let looks = policy.drain.is_some() && inputs.facts.looks;
                    Allowance {
                        zones: policy.zones.clone(),
                        joins: proved.map(Arc::from),
                        looks,
                        ..next.allowance
                    }
                }
            }
            (None, None) => without_waves(input, elsewhere),
            (Some(_), _) => Allowance::default(),
        };
        let mut max = max.unwrap_or(0);
        if let Some(own) = &leave.max_unavailable {
            match max_unavailable(input.name(), Some(own), nodes.len()) {
                Ok(own) => max = max.min(own),
                Err(text) => hold = Some(Hold::MaxUnavailable(text)),
            }
        }
        let capacity = measure(max, excused, &nodes);
        // Updates under way finish even while a policy holds the pool, and taints are removed from nodes that are done.
        let tends = hold.is_none();
        let fetches = tends && back.is_none() && prefetch::goes_on_while(leave.hold.as_ref());
        let prefetch = match prefetch {
            Ok(Some(at_once)) if fetches => {
                let target = Target::of(goal.config.into(), &input.layering);
                Prefetch::of(input, target, at_once, &nodes)
            }
            _ => Prefetch::default(),
        };
        let hold = hold.or_else(|| leave.hold.clone()).or_else(|| prefetch.hold.clone());
        Self { input, tends, frees, hold, capacity, nodes, leave, prefetch, policy: followed, back }
    }
}

/// Why nodes do not go to the image of the pool's config.
fn os_image_wait(input: &PoolInput<'_>, nodes: &[(&NodeView, Flags)]) -> Option<OsImageWait> {
    let image = input.os_image.as_ref().filter(|_| !input.layering.is_layered())?;
    image.wait(nodes.iter().filter(|(_, flags)| flags.candidate).map(|(node, _)| *node))
}

/// Whether nodes whose drains do not end are put aside; of a policy that cannot be used, it is not known that they are not.
fn quarantines(policy: Option<PolicyInput<'_>>) -> bool {
    match policy {
        None => false,
        Some(PolicyInput::Unusable(_)) => true,
        Some(PolicyInput::InForce { policy, .. }) => {
            policy.drain.is_some_and(|drain| drain.then == DrainEnd::Quarantine)
        }
    }
}

/// What a pool may do that has no policy, or one that asks for nothing: all, unless another pool has rejected its change.
fn without_waves(input: &PoolInput<'_>, elsewhere: &[RejectedElsewhere<'_>]) -> Allowance {
    Allowance { hold: policy::holds_without_waves(elsewhere, input.pool), ..Allowance::default() }
}

/// What the pool's policy says about a config that it has rejected.
fn going_back<'a>(input: &PoolInput<'a>, wanted: Goal<'_>) -> Option<Back<'a>> {
    // The image of an earlier build is not known.
    if wanted.layering.is_layered() {
        return None;
    }
    let (to, rejected) = policy::rollback_target(input.policy, wanted.config)?;
    let Some(PolicyInput::InForce { policy, .. }) = input.policy else { return None };
    let why = Hold::Rejected {
        config: wanted.config.into(),
        reason: rejected.reason.clone(),
        policy: policy.name.clone(),
        back_to: Some(to.into()),
    };
    Some(Back { to, why })
}
