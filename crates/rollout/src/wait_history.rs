//! What nodes waited for before they were sent to another config, and for how long. It is remembered from plan to plan, and
//! stored in the annotation [`own::WAITED`] of the MachineConfigNode together with the config that the node is sent to. So it
//! needs no write of its own, and can still be read when the rollout is over.
//!
//! What it is not: what a node waits for now, which the plan says. Waits from before the process started are not known.

use crate::hold::{Hold, Wait};
use crate::plan::{RolloutPlan, Step};
use api::k8s::ObjectMeta;
use api::names::own;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// How many different waits are stored for one node: every watch of the object transfers them.
const MOST: usize = 6;

/// What a node waited for before it was sent to a config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastWaits {
    /// The rendered config that it was sent to.
    pub config: String,
    /// What it waited for, each with its seconds, in the order in which the waits began.
    pub waits: Vec<(String, u32)>,
}

/// What is stored on a MachineConfigNode. A value that cannot be read counts as none.
pub fn past_waits(object: &ObjectMeta) -> Option<PastWaits> {
    serde_json::from_str(object.annotations.as_ref()?.get(own::WAITED)?).ok()
}

/// One node's wait.
#[derive(Debug, Default)]
struct Waiting {
    config: Arc<str>,
    /// What is over.
    past: Vec<(Cow<'static, str>, u32)>,
    /// What it waits for now, and since when.
    now: Option<(Cow<'static, str>, Timestamp)>,
}

/// The waits of all nodes that wait now or are being updated.
#[derive(Debug, Default)]
pub struct WaitHistory(HashMap<Arc<str>, Waiting>);

impl WaitHistory {
    /// Records what a plan says. This runs for thousands of nodes several times a second.
    pub fn follow(&mut self, plan: &RolloutPlan, now: Timestamp) {
        let mut before = std::mem::take(&mut self.0);
        for pool in &plan.pools {
            let Some(config) = pool.target.as_ref().map(|target| &target.config) else { continue };
            for node in &pool.nodes {
                let waits = match &node.step {
                    Step::Done | Step::Unavailable(_) => continue,
                    Step::Waits(wait) => Some(about(wait, pool.hold.as_ref())),
                    Step::Goes | Step::Moving { .. } | Step::Failing(_) => None,
                };
                let known = before.remove(&node.node).filter(|known| known.config == *config);
                if known.is_none() && waits.is_none() {
                    continue;
                }
                let mut known =
                    known.unwrap_or_else(|| Waiting { config: config.clone(), ..Waiting::default() });
                known.goes_on(waits, now);
                self.0.insert(node.node.clone(), known);
            }
        }
    }

    /// The value of [`own::WAITED`] for a node that is sent to this config; `None`: it did not wait.
    pub fn of(&self, node: &str, config: &str) -> Option<String> {
        let known = self.0.get(node).filter(|known| *known.config == *config && !known.past.is_empty())?;
        let waits = known.past.iter().map(|(what, seconds)| (what.to_string(), *seconds)).collect();
        serde_json::to_string(&PastWaits { config: config.to_owned(), waits }).ok()
    }
}

impl Waiting {
    fn goes_on(&mut self, waits: Option<Cow<'static, str>>, at: Timestamp) {
        if self.now.as_ref().map(|(what, _)| what) == waits.as_ref() {
            return;
        }
        if let Some((what, since)) = self.now.take() {
            // Whole seconds: what lasts from one plan to the next is no wait.
            let seconds = u32::try_from(at.duration_since(since).as_secs()).unwrap_or_default();
            if let Some((_, all)) = self.past.iter_mut().find(|(known, _)| *known == what) {
                *all = all.saturating_add(seconds);
            } else if seconds > 0 && self.past.len() < MOST {
                self.past.push((what, seconds));
            }
        }
        self.now = waits.map(|what| (what, at));
    }
}

/// What is waited for, in few words that stay the same while the wait does: `it waited for …`.
fn about(wait: &Wait, hold: Option<&Hold>) -> Cow<'static, str> {
    match wait {
        Wait::Pool => hold.map_or("its pool".into(), held),
        Wait::Capacity { .. } => "a free slot".into(),
        Wait::Node(reason) => format!("the node to be available ({})", reason.word()).into(),
        Wait::Unanswered => "the API server".into(),
        Wait::RunsOperator | Wait::ControlPlane(_) => "other control-plane nodes".into(),
        Wait::Etcd(_) => "etcd".into(),
        Wait::PoolLabels(_) => "its pool's labels".into(),
        Wait::Prefetch(_) => "the fetch of the OS image".into(),
        Wait::Wave(wave) => format!("wave {wave}").into(),
        Wait::DrainOutlook => "a look at its pods".into(),
        Wait::Quarantined { .. } => "its pods, put aside".into(),
        Wait::Zone { zone, .. } if zone.is_empty() => "a free slot without a zone".into(),
        Wait::Zone { zone, .. } => format!("a free slot in zone {zone}").into(),
    }
}

fn held(hold: &Hold) -> Cow<'static, str> {
    match hold {
        Hold::Frozen { .. } => "the end of a freeze".into(),
        Hold::OutsideWindow { .. } => "a window".into(),
        Hold::Gate { gate, .. } => format!("gate {gate}").into(),
        Hold::Approval { wave, .. } | Hold::RejectedElsewhere { wave: Some(wave), .. } => {
            format!("an approval of wave {wave}").into()
        }
        Hold::RejectedElsewhere { .. } => "an approval".into(),
        Hold::Soak { wave, .. } => format!("wave {wave} to prove itself").into(),
        Hold::NodeFailed { node, .. } => format!("node {node}, which failed").into(),
        Hold::Paused => "the pool, which was paused".into(),
        Hold::Image(_) | Hold::OsImage(_) => "its OS image".into(),
        Hold::Prefetch { .. } => "the fetch of the OS image".into(),
        other => format!("its pool ({})", other.word()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{NodeStep, PoolPlan};
    use crate::target::Target;
    use std::collections::BTreeMap;

    fn plan(config: &str, hold: Option<Hold>, step: Step) -> RolloutPlan {
        let target = Some(Target { config: config.into(), ..Target::default() });
        let nodes = vec![NodeStep { node: "n".into(), step }];
        RolloutPlan {
            pools: vec![PoolPlan { target, hold, nodes, ..PoolPlan::default() }],
            ..RolloutPlan::default()
        }
    }

    #[test]
    fn what_a_node_waited_for_is_known_when_it_goes_and_forgotten_when_it_is_done() {
        let (mut history, mut second) = (WaitHistory::default(), 0);
        let mut then = |history: &mut WaitHistory, seconds: i64, plan: RolloutPlan| {
            history.follow(&plan, Timestamp::from_second(second).unwrap());
            second += seconds;
        };
        let wait = |wait| plan("new", None, Step::Waits(wait));
        let slot = |by: &str| wait(Wait::Capacity { max: 1, by: [by.into()].into() });
        let gate = Hold::Gate { gate: "shop".into(), state: crate::hold::GateState::Passed };
        then(
            &mut history,
            60,
            plan(
                "new",
                Some(Hold::Frozen { until: None, reason: String::new(), unknown: None }),
                Step::Waits(Wait::Pool),
            ),
        );
        then(&mut history, 5, plan("new", Some(gate), Step::Waits(Wait::Pool)));
        then(&mut history, 7, wait(Wait::Wave("canary".into())));
        then(&mut history, 20, slot("a"));
        then(&mut history, 20, slot("b"));
        then(&mut history, 0, wait(Wait::DrainOutlook));
        then(&mut history, 3, slot("c"));
        then(&mut history, 9, plan("new", None, Step::Goes));
        then(&mut history, 9, plan("new", None, Step::Goes));
        let text = history.of("n", "new").unwrap();
        assert_eq!(
            text,
            r#"{"config":"new","waits":[["the end of a freeze",60],["gate shop",5],["wave canary",7],["a free slot",43]]}"#
        );
        assert_eq!((history.of("n", "other"), history.of("m", "new")), (None, None));
        let annotations = BTreeMap::from([(own::WAITED.to_owned(), text)]);
        let object = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
        assert_eq!(past_waits(&object).unwrap().waits.len(), 4);
        let update =
            |config: &str| crate::PastUpdate { config: config.to_owned(), ..crate::PastUpdate::default() };
        assert!(
            update("new").with_this_update(&object).unwrap().contains("gate shop"),
            "the agent takes it over"
        );
        assert!(!update("old").with_this_update(&object).unwrap().contains("gate shop"), "of another config");

        // Another config begins anew, and what is done is forgotten.
        then(&mut history, 4, plan("newer", None, Step::Waits(Wait::RunsOperator)));
        then(&mut history, 1, plan("newer", None, Step::Goes));
        assert!(history.of("n", "newer").unwrap().ends_with(r#"[["other control-plane nodes",4]]}"#));
        then(&mut history, 1, plan("newer", None, Step::Done));
        assert_eq!((history.of("n", "newer"), history.0.len()), (None, 0));
    }
}
