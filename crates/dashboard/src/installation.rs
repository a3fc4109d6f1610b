//! The installation: what the operator says, whether each of its parts runs, and who leads. Read from the API server when it is
//! asked for; what cannot be read says so, and the rest stands.
//!
//! What it is not: the counters of the running processes; those are for Prometheus.

use crate::answer;
use crate::look::part;
use crate::routes::Here;
use api::names;
use axum::response::Response;
use client::{CallError, call};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

/// An object that is read.
#[derive(Debug, Clone, Copy)]
struct Place {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    name: &'static str,
}

const fn place(group: &'static str, version: &'static str, kind: &'static str, name: &'static str) -> Place {
    Place { group, version, kind, name }
}

/// Those with conditions.
const SAY: [Place; 3] = [
    place("machineconfig.dev", "v1alpha1", "MachineConfigOperator", names::CLUSTER),
    place("config.openshift.io", "v1", "ClusterOperator", "machine-config"),
    place(names::GROUP, "v1", "ControllerConfig", names::CONTROLLER_CONFIG),
];

/// The parts, in the order in which the operator installs them.
const PARTS: [Place; 5] = [
    place("apps", "v1", "Deployment", "machine-config-operator"),
    place("apps", "v1", "Deployment", "machine-config-controller"),
    place("apps", "v1", "DaemonSet", "machine-config-server"),
    place("apps", "v1", "DaemonSet", "machine-config-daemon"),
    place("apps", "v1", "Deployment", "machine-config-dashboard"),
];

/// The leases of those parts of which one process acts.
const LEADERS: [Place; 2] = [
    place("coordination.k8s.io", "v1", "Lease", "machine-config-operator"),
    place("coordination.k8s.io", "v1", "Lease", "machine-config-controller"),
];

/// Reads an object; `Ok(None)`: there is none, or the cluster does not serve its kind.
async fn read(client: &Client, what: Place, namespaced: bool) -> Result<Option<DynamicObject>, CallError> {
    let Place { group, version, kind, name } = what;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = if namespaced {
        Api::namespaced_with(client.clone(), names::NAMESPACE, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    call(|| format!("get {} {name}", kind.to_lowercase()), api.get_opt(name)).await
}

/// All of it.
pub(crate) async fn operator(Here(shared): Here) -> Response {
    let client = &shared.client;
    let said = async |what: Place| {
        // One without a status is in the cluster all the same.
        let of = |object: DynamicObject| object.data["status"]["conditions"].as_array().cloned();
        let conditions = read(client, what, false).await.map(|o| o.map(|o| of(o).unwrap_or_default()));
        json!({"object": format!("{} {}", what.kind, what.name), "conditions": part(conditions)})
    };
    let runs = async |what: Place| {
        let state = read(client, what, true).await.map(|o| o.map(|o| state(&o.data)));
        json!({"kind": what.kind, "name": what.name, "state": part(state)})
    };
    let leads = async |what: Place| {
        let holder = read(client, what, true).await.map(|o| o.map(|o| leader(&o.data)));
        json!({"name": what.name, "lease": part(holder)})
    };
    let (said, parts, leaders) = tokio::join!(
        futures::future::join_all(SAY.map(said)),
        futures::future::join_all(PARTS.map(runs)),
        futures::future::join_all(LEADERS.map(leads)),
    );
    answer::masked(json!({"said": said, "parts": parts, "leaders": leaders}))
}

/// How many pods of a Deployment or DaemonSet there are to be, are available, and are of its present template; and its images.
fn state(object: &Value) -> Value {
    let status = &object["status"];
    let number = |names: [&Value; 2]| names.iter().find_map(|n| n.as_u64()).unwrap_or_default();
    let containers = object["spec"]["template"]["spec"]["containers"].as_array();
    let images: Vec<&str> = containers.into_iter().flatten().filter_map(|c| c["image"].as_str()).collect();
    json!({
        "wanted": number([&object["spec"]["replicas"], &status["desiredNumberScheduled"]]),
        "available": number([&status["availableReplicas"], &status["numberAvailable"]]),
        "updated": number([&status["updatedReplicas"], &status["updatedNumberScheduled"]]),
        "images": images,
    })
}

/// Who holds a lease, since when, and when it was renewed last.
fn leader(object: &Value) -> Value {
    let spec = &object["spec"];
    json!({"holder": spec["holderIdentity"], "since": spec["acquireTime"], "renewed": spec["renewTime"]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployments_and_daemon_sets_count_their_pods_under_different_names() {
        let template = json!({"spec": {"containers": [{"image": "mco:1"}]}});
        let deployment = json!({"spec": {"replicas": 2, "template": template},
            "status": {"availableReplicas": 1, "updatedReplicas": 2}});
        let said = json!({"wanted": 2, "available": 1, "updated": 2, "images": ["mco:1"]});
        assert_eq!(state(&deployment), said);
        let daemons = json!({"spec": {"template": template},
            "status": {"desiredNumberScheduled": 2, "numberAvailable": 1, "updatedNumberScheduled": 2}});
        assert_eq!(state(&daemons), said);
        let new = json!({"wanted": 0, "available": 0, "updated": 0, "images": []});
        assert_eq!(state(&json!({})), new, "it has no status yet");
    }
}
