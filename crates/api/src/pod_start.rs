//! What keeps a pod from starting, as the scheduler or the kubelet writes it into the pod's status. Pure.
//!
//! What it is not: what to do about it (see the operator, and `build`), or the end of a container that has run.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/>.

use crate::conditions::{self, StatusCondition as _};
use crate::pod::Pod;
use std::fmt;

/// Waiting reasons of a container that is about to start: nothing is wrong.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];
/// Waiting reasons of a container whose image is missing.
///
/// Source: the kubelet's `pkg/kubelet/images/types.go`, and `pkg/apis/runtime/v1/errors` of `cri-api`.
const IMAGE: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];
/// The waiting reason of a container that was started and has ended again, several times.
const CRASH: &str = "CrashLoopBackOff";

/// The kind of obstacle, by what ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// The scheduler has found no node. One may come, or be uncordoned.
    NoNode,
    /// A container's image cannot be used: another image ends it, or a registry that answers.
    Image,
    /// A container ends again and again: its log says why.
    Crash,
    /// The kubelet cannot create or start a container, for example because a Secret is missing.
    Container,
}

/// Why a pod does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotStarted<'a> {
    /// The kind of obstacle.
    pub obstacle: Obstacle,
    /// One word of Kubernetes, for example `Unschedulable` or `ImagePullBackOff`.
    pub reason: &'a str,
    /// The explanation of the scheduler or the kubelet; may be empty.
    pub message: &'a str,
}

impl fmt::Display for NotStarted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message {
            "" => f.write_str(self.reason),
            message => write!(f, "{}: {message}", self.reason),
        }
    }
}

/// What keeps a pod from starting: the first container that waits for more than its creation, else that no node was found for
/// it. `None`: it runs, it starts, or its status does not say.
pub fn not_started(pod: &Pod) -> Option<NotStarted<'_>> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let no_node = || {
        let scheduled = conditions::get(conditions, "PodScheduled").filter(|c| c.is_false())?;
        let reason = scheduled.reason.as_deref().unwrap_or("Unschedulable");
        let message = scheduled.message.as_deref().unwrap_or_default();
        Some(NotStarted { obstacle: Obstacle::NoNode, reason, message })
    };
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let waiting = containers.filter_map(|c| c.state.as_ref()?.waiting.as_ref()).find_map(|waiting| {
        let reason = waiting.reason.as_deref().filter(|reason| !STARTING.contains(reason))?;
        let obstacle = match reason {
            CRASH => Obstacle::Crash,
            _ if IMAGE.contains(&reason) => Obstacle::Image,
            _ => Obstacle::Container,
        };
        Some(NotStarted { obstacle, reason, message: waiting.message.as_deref().unwrap_or_default() })
    });
    waiting.or_else(no_node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_a_kubelet_says_comes_first_and_a_container_that_is_being_created_is_no_obstacle() {
        let waits = |list: &str, reason: &str, message: &str| json!({list: [{"name": "c", "state": {"waiting": {"reason": reason, "message": message}}}]});
        let scheduled = |status: &str, reason: &str| json!({"conditions": [{"type": "PodScheduled", "status": status, "reason": reason, "message": "0/2 nodes"}]});
        let mut both = waits("containerStatuses", "ErrImagePull", "not found");
        both["conditions"] = scheduled("False", "Unschedulable")["conditions"].clone();
        let rows = [
            (both, Some((Obstacle::Image, "ErrImagePull: not found"))),
            (scheduled("False", "Unschedulable"), Some((Obstacle::NoNode, "Unschedulable: 0/2 nodes"))),
            (scheduled("False", "SchedulingGated"), Some((Obstacle::NoNode, "SchedulingGated: 0/2 nodes"))),
            (scheduled("True", "x"), None),
            (waits("containerStatuses", "ContainerCreating", ""), None),
            (waits("containerStatuses", "PodInitializing", ""), None),
            (
                waits("containerStatuses", "ImagePullBackOff", "not found"),
                Some((Obstacle::Image, "ImagePullBackOff: not found")),
            ),
            (waits("initContainerStatuses", "ErrImagePull", ""), Some((Obstacle::Image, "ErrImagePull"))),
            (
                waits("containerStatuses", "CrashLoopBackOff", "x"),
                Some((Obstacle::Crash, "CrashLoopBackOff: x")),
            ),
            (
                waits("containerStatuses", "CreateContainerConfigError", "secret \"a\" not found"),
                Some((Obstacle::Container, "CreateContainerConfigError: secret \"a\" not found")),
            ),
            (json!({"phase": "Running", "containerStatuses": [{"name": "c", "state": {}}]}), None),
            (Value::Null, None),
        ];
        for (status, want) in rows {
            let pod: Pod = serde_json::from_value(json!({"status": status})).unwrap();
            let found = not_started(&pod).map(|why| (why.obstacle, why.to_string()));
            let found = found.as_ref().map(|(obstacle, text)| (*obstacle, text.as_str()));
            assert_eq!(found, want, "{status}");
        }
    }
}
