//! Pods, with the few fields that are read here: who they are, where they run, what a drain loses with them, and why
//! they do not start.
//!
//! Not here: pods as they are written. `k8s-openapi`'s Pod has some hundred types below it, and the code that reads them
//! was a tenth of the program.
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/>.

use crate::k8s::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A Pod. Fields that are not named here are not kept: never write one back.
///
/// Source: the Kubernetes API reference, `Pod v1 core`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, kube::Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
#[serde(default, rename_all = "camelCase")]
pub struct Pod {
    /// Name, namespace, labels, owners, deletion.
    pub metadata: ObjectMeta,
    /// Where and how it runs.
    pub spec: Option<PodSpec>,
    /// What its kubelet reports.
    pub status: Option<PodStatus>,
}

/// `spec` of a [`Pod`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// The node that it is bound to.
    pub node_name: Option<String>,
    /// Its grace period, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
    /// Its volumes.
    pub volumes: Option<Vec<Volume>>,
}

/// A volume, as far as it matters to a drain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    /// Set on volumes whose contents are deleted with the pod.
    pub empty_dir: Option<EmptyDir>,
}

/// `emptyDir` of a [`Volume`]; its medium and size are not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmptyDir {}

/// `status` of a [`Pod`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: Option<String>,
    /// Why its node ended it, for example `Evicted`.
    pub reason: Option<String>,
    /// The same, for people.
    pub message: Option<String>,
    /// Its conditions, as `Ready`.
    pub conditions: Option<Vec<PodCondition>>,
    /// Its init containers.
    pub init_container_statuses: Option<Vec<ContainerStatus>>,
    /// Its containers.
    pub container_statuses: Option<Vec<ContainerStatus>>,
}

/// A condition of a [`Pod`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    /// For example `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, as one word.
    pub reason: Option<String>,
    /// Why, for people.
    pub message: Option<String>,
}

/// A container of a [`Pod`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Its name in the pod.
    pub name: String,
    /// How often it was restarted.
    pub restart_count: i32,
    /// Which container it is: another one after each start, `containerd://ID`.
    #[serde(rename = "containerID")]
    pub container_id: Option<String>,
    /// What it does now.
    pub state: Option<ContainerState>,
}

/// What a container does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Set while it cannot run yet.
    pub waiting: Option<Waiting>,
    /// Set when it has ended.
    pub terminated: Option<Terminated>,
}

/// How a container has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    /// Its exit code.
    pub exit_code: i32,
    /// `Completed` or `Error`, or why it was ended, for example `OOMKilled`.
    pub reason: Option<String>,
    /// What it wrote into its termination message, or the end of its log.
    pub message: Option<String>,
}

/// Why a container does not run yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// For example `ImagePullBackOff`.
    pub reason: Option<String>,
    /// The kubelet's words.
    pub message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_fields_that_are_read_have_the_names_of_kubernetes() {
        let whole = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "a", "terminationGracePeriodSeconds": 30, "volumes": [{"emptyDir": {}}, {}]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m"}],
                "initContainerStatuses": [{"name": "i", "restartCount": 0}],
                "containerStatuses": [{
                    "name": "c", "restartCount": 3, "containerID": "containerd://1",
                    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
                }],
            },
        });
        // The two types agree about every one of these fields.
        let complete: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "nodeName": "a", "terminationGracePeriodSeconds": 30, "serviceAccountName": "not read",
                "containers": [{"name": "c"}],
                "volumes": [{"name": "e", "emptyDir": {"medium": "Memory"}}, {"name": "h", "hostPath": {"path": "/"}}],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m"}],
                "initContainerStatuses": [{"name": "i", "restartCount": 0, "image": "i", "imageID": "", "ready": true}],
                "containerStatuses": [{
                    "name": "c", "restartCount": 3, "containerID": "containerd://1", "image": "i", "imageID": "", "ready": false,
                    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
                }],
            },
        }))
        .unwrap();
        let read: Pod = serde_json::from_value(serde_json::to_value(complete).unwrap()).unwrap();
        assert_eq!(read, serde_json::from_value(whole).unwrap());
        let spec = read.spec.unwrap();
        assert_eq!(spec.volumes.unwrap().iter().filter(|v| v.empty_dir.is_some()).count(), 1);
    }
}
