//! How far the update of a node is, and since when, from what the cluster keeps: MachineConfigNodes, the conditions of Nodes and of
//! pools.
//!
//! What it is not: a record of its own. Where no time was recorded, none is shown.

use api::conditions::StatusCondition as _;
use api::k8s::Node;
use api::names::node_condition::{NODE_DEGRADED, PINNED_DEGRADED, PINNED_PROGRESSING, UPDATED};
use api::v1::{MachineConfigNode, NodeStepCondition, PinnedImageSetState};
use jiff::Timestamp;
use rollout::{PastUpdate, PastWaits, Reason, Step, Wait};
use serde::Serialize;

/// How far a node is, as its MachineConfigNode says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The config that the node is in.
    pub config: String,
    /// When its update to that config was done.
    pub done: Option<Timestamp>,
    /// The last step of an update.
    pub step: Option<Timestamp>,
    /// When it began to fail.
    pub degraded: Option<Timestamp>,
    /// How far the pull of its OS image is; absent when it pulls none now.
    pub pull: Option<String>,
    /// The steps of the update that are begun or done. Those of an update that is over are withdrawn, but for `Updated`.
    pub steps: Vec<Milestone>,
    /// Updates that are over, the oldest first.
    pub updates: Vec<PastUpdate>,
    /// How far it is with the PinnedImageSets of its pools.
    pub pins: Vec<PinnedImageSetState>,
    /// What it waited for before it was sent to the config that it goes to, or was sent to last.
    pub turn: Option<PastWaits>,
}

/// A step of an update that is begun or done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Milestone {
    /// The condition's type, one of `api::names::node_condition`.
    pub step: String,
    /// It is done; otherwise it is under way.
    pub done: bool,
    /// Since when.
    pub since: Timestamp,
}

impl Progress {
    /// Read from a MachineConfigNode; `None`: it has no status yet.
    pub fn of(object: &MachineConfigNode) -> Option<Self> {
        let status = object.status.as_ref()?;
        let config = status.config_version.as_ref()?.current.clone();
        // Pinning images is not a step of an update.
        let is_step = |c: &&NodeStepCondition| ![PINNED_PROGRESSING, PINNED_DEGRADED].contains(&&*c.type_);
        let conditions = || status.conditions.iter().flatten().filter(is_step);
        let when = |type_: &str| {
            let mut all = conditions().filter(|c| c.type_ == type_ && c.is_true());
            all.next().map(|c| c.last_transition_time.0)
        };
        let step = conditions().map(|c| c.last_transition_time.0).max();
        let begun = conditions().filter(|c| !c.is_false()).map(|c| Milestone {
            step: c.type_.clone(),
            done: c.is_true(),
            since: c.last_transition_time.0,
        });
        let steps = begun.collect();
        let pull = rollout::machine_config_nodes::pull_progress(status).map(str::to_owned);
        let updates = rollout::past_updates(&object.metadata);
        let turn = rollout::past_waits(&object.metadata);
        Some(Self {
            config,
            done: when(UPDATED),
            step,
            degraded: when(NODE_DEGRADED),
            pull,
            steps,
            updates,
            pins: status.pinned_image_sets.clone().unwrap_or_default(),
            turn,
        })
    }
}

/// What a node does or waits for, in words.
pub(crate) fn node_state_text(step: &Step, progress: Option<&Progress>) -> String {
    match (step, progress.and_then(|p| p.pull.as_deref())) {
        (Step::Moving { .. } | Step::Waits(Wait::Pool | Wait::Prefetch(_)), Some(pull)) => {
            format!("{step}; it pulls the OS image: {pull}")
        }
        _ => step.to_string(),
    }
}

/// When the Node's `Ready` condition last changed.
pub(crate) fn readiness(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready")?;
    ready.last_transition_time.as_ref().map(|t| t.0)
}

/// Since when a node is in its present state. `readiness`: see [`readiness`]; `behind`: since when its pool is not updated.
pub(crate) fn since(
    step: &Step,
    progress: Option<&Progress>,
    readiness: Option<Timestamp>,
    behind: Option<Timestamp>,
) -> Option<Timestamp> {
    match step {
        Step::Done => progress?.done,
        Step::Goes => None,
        Step::Moving { .. } => progress?.step,
        Step::Failing(_) => progress?.degraded.or(progress?.step),
        Step::Unavailable(why) | Step::Waits(Wait::Node(why)) => match why {
            Reason::NotReady(_) => readiness,
            Reason::Daemon(..) => progress?.degraded,
            // No object records when a node was cordoned.
            Reason::Cordoned | Reason::NotDone(_) => None,
        },
        Step::Waits(_) => behind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollout::view::DaemonState;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn each_state_has_a_start_time_or_none() {
        let condition = |type_: &str, status: &str, second: i64| json!({"type": type_, "status": status, "reason": "r", "message": "", "lastTransitionTime": at(second)});
        let object: MachineConfigNode = serde_json::from_value(json!({
            "metadata": {"name": "n"},
            "spec": {"node": {"name": "n"}, "pool": {"name": "worker"}, "configVersion": {"desired": "a"}},
            "status": {"configVersion": {"current": "a", "desired": "a"}, "conditions": [
                condition("Updated", "True", 10), condition("Drained", "False", 20), condition("NodeDegraded", "False", 5)]},
        }))
        .unwrap();
        let progress = Progress::of(&object).unwrap();
        assert_eq!((progress.done, progress.step, progress.degraded), (Some(at(10)), Some(at(20)), None));
        let begun: Vec<_> = progress.steps.iter().map(|s| (&*s.step, s.done, s.since)).collect();
        assert_eq!(begun, [("Updated", true, at(10))], "a step that is False has not begun");
        let moving = Step::Moving { state: DaemonState::Working, rebooting: false, drain: None };
        let not_ready = Reason::NotReady("x".into());
        for (step, want) in [
            (Step::Done, Some(10)),
            (moving, Some(20)),
            (Step::Goes, None),
            (Step::Failing(Reason::Daemon(DaemonState::Degraded, None)), Some(20)),
            (Step::Unavailable(not_ready.clone()), Some(30)),
            (Step::Waits(Wait::Node(not_ready)), Some(30)),
            (Step::Waits(Wait::Node(Reason::Cordoned)), None),
            (Step::Waits(Wait::Pool), Some(40)),
        ] {
            let said = since(&step, Some(&progress), Some(at(30)), Some(at(40)));
            assert_eq!(said, want.map(at), "{step:?}");
        }
        assert_eq!(since(&Step::Done, None, None, None), None);
    }

    #[test]
    fn a_node_that_pulls_its_image_shows_how_far_it_is() {
        let status = |status: &str| -> MachineConfigNode {
            serde_json::from_value(json!({
                "metadata": {"name": "n"},
                "spec": {"node": {"name": "n"}, "pool": {"name": "worker"}, "configVersion": {"desired": "b"}},
                "status": {"configVersion": {"current": "a", "desired": "b"}, "conditions": [{
                    "type": "ImagePulledFromRegistry", "status": status, "reason": "ImagePulledFromRegistry",
                    "message": "Pulling the OS image: 1.2 GB of 4.7 GB, 25.3 MB/s, 3 min left", "lastTransitionTime": at(1)}]},
            }))
            .unwrap()
        };
        let moving = Step::Moving { state: DaemonState::Working, rebooting: false, drain: None };
        let pulling = node_state_text(&moving, Progress::of(&status("Unknown")).as_ref());
        assert_eq!(
            pulling,
            format!("{moving}; it pulls the OS image: 1.2 GB of 4.7 GB, 25.3 MB/s, 3 min left")
        );
        let ahead = Step::Waits(Wait::Prefetch(rollout::Prefetching::Now));
        assert_eq!(
            node_state_text(&ahead, Progress::of(&status("Unknown")).as_ref()),
            "waits: it fetches the next OS image first; it pulls the OS image: 1.2 GB of 4.7 GB, 25.3 MB/s, 3 min left"
        );
        assert_eq!(node_state_text(&moving, Progress::of(&status("False")).as_ref()), moving.to_string());
        assert_eq!(
            node_state_text(&Step::Done, Progress::of(&status("Unknown")).as_ref()),
            Step::Done.to_string()
        );
    }
}
