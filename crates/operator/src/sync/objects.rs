//! The objects that the operator keeps: when one must be written, when one may be deleted, and whether a workload has been
//! rolled out. Pure.
//!
//! What it is not: which objects there are to be (see `plan`), and requests (see `cluster`).

use super::down_nodes::DownNodes;
pub(crate) use crate::objects::{FIELD_MANAGER, KEPT_BY, Key, marked};
use crate::ownership::is_applied_by_us;
use api::conditions::{self, StatusCondition as _};
use api::k8s::Pod;
use api::names::NAMESPACE;
use api::pod_start::{Obstacle, not_started};
use serde_json::{Map, Value};

/// Whether the object that is there is not what is wanted: never written, written otherwise, or changed since in a field
/// that we set.
pub(crate) fn differs(wanted: &Value, there: Option<&Value>) -> bool {
    there.is_none_or(|there| !covers(wanted, there))
}

/// Whether all that is wanted stands there. Fields that the API server or others have added do not count, and neither does
/// the difference between a field without content and one that is not there.
pub(crate) fn covers(wanted: &Value, there: &Value) -> bool {
    match (wanted, there) {
        (Value::Object(wanted), Value::Object(there)) => {
            wanted.iter().all(|(key, value)| match there.get(key) {
                Some(there) => covers(value, there),
                None => is_empty(value),
            })
        }
        (Value::Array(wanted), Value::Array(there)) => {
            wanted.len() == there.len() && wanted.iter().zip(there).all(|(w, t)| covers(w, t))
        }
        (wanted, Value::Null) => is_empty(wanted),
        (wanted, there) => wanted == there,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        Value::Number(_) => false,
    }
}

/// The objects that are no longer wanted: they carry our label, our field manager has applied them, and nothing wanted has
/// their key. An object that somebody else labelled is left alone.
pub(crate) fn superfluous<'a>(wanted: &[Key], there: impl IntoIterator<Item = &'a Value>) -> Vec<&'a Value> {
    there.into_iter().filter(|o| is_kept(o) && !wanted.contains(&Key::of(o))).collect()
}

/// Whether the operator has made this object.
pub(crate) fn is_kept(object: &Value) -> bool {
    object["metadata"]["labels"][KEPT_BY.0] == KEPT_BY.1 && is_applied_by_us(object)
}

/// How far a workload has been rolled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// Every pod is of the new template, and one at least works.
    Done,
    /// Pods are being replaced.
    Moving(String),
    /// Kubernetes has given up on it.
    Stuck(String),
}

/// How far a Deployment or DaemonSet has been rolled out. Another kind has nothing to roll out.
///
/// Pods that are not available do not count once they are of the new template: a node that is drained must not hold the
/// other parts up. Nor must one that is down: a DaemonSet's pods that are stranded there are never replaced.
pub(crate) fn rollout(object: &Value, down: &DownNodes) -> Rollout {
    let status = |key: &str| object["status"][key].as_i64().unwrap_or_default();
    let key = Key::of(object);
    let observed =
        status("observedGeneration") >= object["metadata"]["generation"].as_i64().unwrap_or_default();
    let (wanted, updated, available, old) = match key.kind.as_str() {
        "Deployment" => {
            let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
            let updated = status("updatedReplicas");
            // A new pod may stand beside the old one that it is to replace, and only the old one be available.
            let old = (status("replicas") - updated).max(0);
            (wanted, updated, status("availableReplicas"), old)
        }
        "DaemonSet" => {
            let wanted = (status("desiredNumberScheduled") - down.stranded()).max(0);
            (wanted, status("updatedNumberScheduled"), status("numberAvailable"), 0)
        }
        _ => return Rollout::Done,
    };
    let given_up = conditions::get(conditions::of_object(object), "Progressing")
        .filter(|c| c.is_false() && c["reason"] == "ProgressDeadlineExceeded");
    let all = observed && updated >= wanted && (wanted == 0 || available > old);
    match given_up {
        _ if all => Rollout::Done,
        Some(condition) if observed => Rollout::Stuck(format!(
            "{key}: {}",
            condition["message"].as_str().unwrap_or("no pod becomes ready")
        )),
        _ => Rollout::Moving(format!(
            "{key}: {updated} of {wanted} pods are of this version, {available} are available{}",
            down.words()
        )),
    }
}

/// What keeps the pods of a workload from running: the first obstacle that waiting does not end, with the remedy.
pub(crate) fn blocked_pods(workload: &Key, image: &str, pods: &[Pod]) -> Option<String> {
    pods.iter().find_map(|pod| {
        let why = not_started(pod)?;
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let remedy = match why.obstacle {
            Obstacle::NoNode => return None,
            Obstacle::Image => format!(
                "set spec.image of {} to an image that the nodes can pull, or give them {image}",
                crate::settings::name()
            ),
            Obstacle::Crash => format!("see kubectl -n {NAMESPACE} logs {name} --previous"),
            Obstacle::Container => format!("see kubectl -n {NAMESPACE} describe pod {name}"),
        };
        Some(format!("{workload}: pod {name}: {why}; {remedy}"))
    })
}

/// A pod that has no node yet, and why. A node may come, or be uncordoned: this is reported, and the operator waits.
pub(crate) fn unscheduled(pods: &[Pod]) -> Option<String> {
    pods.iter().find_map(|pod| {
        let why = not_started(pod).filter(|why| why.obstacle == Obstacle::NoNode)?;
        Some(format!("pod {}: {why}", pod.metadata.name.as_deref().unwrap_or_default()))
    })
}

/// The labels by which a workload selects its pods, as a selector for requests.
pub(crate) fn selector(workload: &Value) -> String {
    let labels: Option<&Map<String, Value>> =
        workload.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten().filter_map(|(k, v)| Some(format!("{k}={}", v.as_str()?)));
    pairs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn an_object_is_written_when_a_field_of_ours_is_another_and_only_then() {
        let wanted = marked(json!({
            "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"replicas": 2, "args": ["x", "y"], "probe": {"host": null, "port": 1}, "none": [], "off": false},
        }));
        let mut there = wanted.clone();
        there["metadata"]["uid"] = json!("u");
        there["metadata"]["labels"]["theirs"] = json!("1");
        there["spec"]["strategy"] = json!({"type": "RollingUpdate"});
        there["spec"]["probe"].as_object_mut().unwrap().remove("host");
        for gone in ["none", "off"] {
            there["spec"].as_object_mut().unwrap().remove(gone);
        }
        assert!(!differs(&wanted, Some(&there)), "what others add does not count");
        assert!(differs(&wanted, None));
        for (path, value) in [
            ("/spec/replicas", json!(1)),
            ("/spec/args", json!(["x"])),
            ("/spec/args/1", json!("z")),
            ("/metadata/labels", json!({})),
            ("/metadata/annotations", json!({})),
        ] {
            let mut other = there.clone();
            *other.pointer_mut(path).unwrap() = value;
            assert!(differs(&wanted, Some(&other)), "{path}");
        }
        // A field that is no longer wanted shows only in the digest.
        let mut less = wanted;
        less["spec"].as_object_mut().unwrap().remove("args");
        less["metadata"].as_object_mut().unwrap().remove("annotations");
        assert!(differs(&marked(less), Some(&there)));
    }

    #[test]
    fn only_what_the_operator_made_is_ever_superfluous() {
        let object = |name: &str, labelled: bool, manager: &str, operation: &str| {
            let mut object = json!({"kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE,
                "managedFields": [{"manager": manager, "operation": operation}]}});
            if labelled {
                object["metadata"]["labels"] = json!({KEPT_BY.0: KEPT_BY.1});
            }
            object
        };
        let all = [
            object("wanted", true, FIELD_MANAGER, "Apply"),
            object("old", true, FIELD_MANAGER, "Apply"),
            object("unlabelled", false, FIELD_MANAGER, "Apply"),
            object("labelled-by-somebody", true, "kubectl-edit", "Update"),
            object("updated", true, FIELD_MANAGER, "Update"),
        ];
        let found = superfluous(&[Key::of(&all[0])], &all);
        let names: Vec<_> = found.iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["old"]);
    }

    #[test]
    fn a_workload_is_rolled_out_when_all_pods_are_new_and_one_works() {
        let none = DownNodes::default();
        let deployment = |generation: i64, updated: i64, available: i64, pods: i64| {
            json!({"kind": "Deployment", "metadata": {"name": "c", "namespace": NAMESPACE, "generation": 2},
                "spec": {"replicas": 2},
                "status": {"observedGeneration": generation, "replicas": pods, "updatedReplicas": updated,
                    "availableReplicas": available}})
        };
        for (generation, updated, available, pods, done) in [
            (2, 2, 2, 2, true),
            // One node is drained or unavailable: the other pod does the work.
            (2, 2, 1, 2, true),
            (2, 2, 2, 3, true),
            (2, 2, 0, 2, false),
            // Only pods of the old version are available.
            (2, 2, 1, 3, false),
            (2, 2, 2, 4, false),
            (2, 1, 2, 2, false),
            (1, 2, 2, 2, false),
        ] {
            let found = rollout(&deployment(generation, updated, available, pods), &none);
            assert_eq!(found == Rollout::Done, done, "{generation} {updated} {available} {pods}: {found:?}");
        }
        let mut stuck = deployment(2, 1, 1, 2);
        stuck["status"]["conditions"] = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too long"}]);
        assert_eq!(rollout(&stuck, &none), Rollout::Stuck("Deployment c: too long".to_owned()));
        let set = |scheduled: i64, updated: i64, available: i64| {
            json!({"kind": "DaemonSet", "metadata": {"name": "s", "generation": 1}, "status": {"observedGeneration": 1,
                "desiredNumberScheduled": scheduled, "updatedNumberScheduled": updated, "numberAvailable": available}})
        };
        assert_eq!(rollout(&set(0, 0, 0), &none), Rollout::Done, "there is no node for it");
        assert_eq!(rollout(&set(3, 3, 2), &none), Rollout::Done);
        assert!(matches!(rollout(&set(3, 2, 3), &none), Rollout::Moving(text) if text.contains("2 of 3")));
        assert_eq!(rollout(&json!({"kind": "Role"}), &none), Rollout::Done);
        // The third node is off: its old pod stays until the Node is deleted.
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "s-3", "deletionTimestamp": "2026-07-01T11:58:00Z"}, "spec": {"nodeName": "c"}}))
        .unwrap();
        let now = "2026-07-01T12:00:00Z".parse().unwrap();
        let down = DownNodes::of(&set(3, 1, 2), &[pod], &BTreeMap::new(), now);
        assert_eq!(rollout(&set(3, 2, 2), &down), Rollout::Done);
        assert!(
            matches!(rollout(&set(3, 1, 2), &down), Rollout::Moving(text) if text.ends_with("available; nodes that are down: c")),
            "an old pod that works is still to be replaced"
        );
    }

    #[test]
    fn a_pod_without_a_node_is_named_with_what_the_scheduler_says() {
        let pod = |conditions: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "c-1"}, "status": {"conditions": conditions}}))
                .unwrap()
        };
        let condition = |kind: &str, status: &str| json!([{"type": kind, "status": status, "reason": "Unschedulable", "message": "0/2 nodes are available"}]);
        let why = "pod c-1: Unschedulable: 0/2 nodes are available";
        for (conditions, want) in [
            (condition("PodScheduled", "False"), Some(why)),
            (condition("PodScheduled", "True"), None),
            (condition("Ready", "False"), None),
            (json!([]), None),
        ] {
            let pods = [pod(json!([])), pod(conditions.clone())];
            assert_eq!(unscheduled(&pods).as_deref(), want, "{conditions}");
        }
    }

    #[test]
    fn a_pod_that_cannot_pull_its_image_is_named_with_the_remedy() {
        let pod = |reason: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "c-1"},
                "status": {"containerStatuses": [{"name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": reason, "message": "not found"}}}]},
            }))
            .unwrap()
        };
        let key =
            Key { kind: "Deployment".to_owned(), namespace: NAMESPACE.to_owned(), name: "c".to_owned() };
        let found =
            blocked_pods(&key, "mco:1", &[pod("ContainerCreating"), pod("ImagePullBackOff")]).unwrap();
        assert_eq!(
            found,
            "Deployment c: pod c-1: ImagePullBackOff: not found; set spec.image of MachineConfigOperator cluster to an image \
             that the nodes can pull, or give them mco:1"
        );
        assert!(
            blocked_pods(&key, "mco:1", &[pod("CrashLoopBackOff")]).unwrap().contains("logs c-1 --previous")
        );
        // There is no log of a container that was never created.
        let found = blocked_pods(&key, "mco:1", &[pod("CreateContainerConfigError")]).unwrap();
        assert!(found.ends_with("describe pod c-1"), "{found}");
        assert_eq!(blocked_pods(&key, "mco:1", &[pod("ContainerCreating")]), None);
    }
}
