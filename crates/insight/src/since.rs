//! Since when a node is in its state, from what the cluster keeps: MachineConfigNodes, the Node's conditions, the pool's.
//!
//! What it is not: a record of its own. Where nobody wrote a time down, none is told.

use api::k8s::Node;
use api::names::node_condition::{NODE_DEGRADED, UPDATED};
use api::v1::MachineConfigNode;
use jiff::Timestamp;
use rollout::{Reason, Step, Wait};

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
}

impl Progress {
    /// Read from a MachineConfigNode; `None`: it has no status yet.
    pub fn of(object: &MachineConfigNode) -> Option<Self> {
        let status = object.status.as_ref()?;
        let config = status.config_version.as_ref()?.current.clone();
        let conditions = || status.conditions.iter().flatten();
        let when = |type_: &str| {
            let mut all = conditions().filter(|c| c.type_ == type_ && c.status == "True");
            all.next().map(|c| c.last_transition_time.0)
        };
        let step = conditions().map(|c| c.last_transition_time.0).max();
        Some(Self { config, done: when(UPDATED), step, degraded: when(NODE_DEGRADED) })
    }
}

/// When the Node's `Ready` condition last changed.
pub(crate) fn readiness(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready")?;
    ready.last_transition_time.as_ref().map(|t| t.0)
}

/// Since when a node is where it stands. `readiness`: see [`readiness`]; `behind`: since when its pool is not updated.
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
    fn each_state_has_its_time_or_none() {
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
}
