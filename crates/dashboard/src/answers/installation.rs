//! The installation: what the operator says, whether each of its parts runs, and who leads. Read from the API server when it is
//! asked for; what cannot be read says so, and the rest stands.
//!
//! What it is not: metrics. Of what running processes count, it shows what the leaders write onto their Leases.

use crate::answers::details::part;
use crate::response;
use crate::shared::ForPerson;
use api::definition::{Defined as _, Definition};
use api::names::{self, part};
use api::v1alpha1::MachineConfigOperator;
use axum::response::Response;
use client::{CallError, ProcessCounts, call};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

/// An object that is read.
#[derive(Debug, Clone, Copy)]
struct ObjectRef {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    name: &'static str,
}

const fn object_ref(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    name: &'static str,
) -> ObjectRef {
    ObjectRef { group, version, kind, name }
}

const SETTINGS: Definition = MachineConfigOperator::DEFINITION;
/// Those with conditions.
const SAY: [ObjectRef; 3] = [
    object_ref(SETTINGS.group, SETTINGS.version, SETTINGS.kind, names::CLUSTER),
    object_ref("config.openshift.io", "v1", "ClusterOperator", "machine-config"),
    object_ref(names::GROUP, "v1", "ControllerConfig", names::CONTROLLER_CONFIG),
];

/// The parts, in the order in which the operator installs them.
const PARTS: [ObjectRef; 5] = [
    object_ref("apps", "v1", "Deployment", part::OPERATOR),
    object_ref("apps", "v1", "Deployment", part::CONTROLLER),
    object_ref("apps", "v1", "DaemonSet", part::SERVER),
    object_ref("apps", "v1", "DaemonSet", part::AGENT),
    object_ref("apps", "v1", "Deployment", part::DASHBOARD),
];

/// The leases of those parts of which one process acts.
const LEADERS: [ObjectRef; 2] = [
    object_ref("coordination.k8s.io", "v1", "Lease", part::OPERATOR),
    object_ref("coordination.k8s.io", "v1", "Lease", part::CONTROLLER),
];

/// Reads an object; `Ok(None)`: there is none, or the cluster does not serve its kind.
async fn read(
    client: &Client,
    what: ObjectRef,
    namespaced: bool,
) -> Result<Option<DynamicObject>, CallError> {
    let ObjectRef { group, version, kind, name } = what;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = if namespaced {
        Api::namespaced_with(client.clone(), names::NAMESPACE, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    call(|| format!("get {} {name}", kind.to_lowercase()), api.get_opt(name)).await
}

/// All of it.
pub(crate) async fn operator(ForPerson(shared): ForPerson) -> Response {
    let client = &shared.client;
    let said = async |what: ObjectRef| {
        // One without a status is in the cluster all the same.
        let of = |object: DynamicObject| object.data["status"]["conditions"].as_array().cloned();
        let conditions = read(client, what, false).await.map(|o| o.map(|o| of(o).unwrap_or_default()));
        json!({"object": format!("{} {}", what.kind, what.name), "conditions": part(conditions)})
    };
    let runs = async |what: ObjectRef| {
        let state = read(client, what, true).await.map(|o| o.map(|o| state(o.metadata.generation, &o.data)));
        json!({"kind": what.kind, "name": what.name, "state": part(state)})
    };
    let leads = async |what: ObjectRef| {
        let holder = read(client, what, true).await.map(|o| o.map(|o| leader(&o, Timestamp::now())));
        json!({"name": what.name, "lease": part(holder)})
    };
    let (said, parts, leaders) = tokio::join!(
        futures::future::join_all(SAY.map(said)),
        futures::future::join_all(PARTS.map(runs)),
        futures::future::join_all(LEADERS.map(leads)),
    );
    response::masked(json!({"said": said, "parts": parts, "leaders": leaders}))
}

/// How many pods of a Deployment or DaemonSet there are to be, are available, and are of its present template; and its images.
/// `counted`: the numbers are about that template, and not yet about the one before.
fn state(generation: Option<i64>, object: &Value) -> Value {
    let status = &object["status"];
    let number = |names: [&Value; 2]| names.iter().find_map(|n| n.as_u64()).unwrap_or_default();
    let containers = object["spec"]["template"]["spec"]["containers"].as_array();
    let images: Vec<&str> = containers.into_iter().flatten().filter_map(|c| c["image"].as_str()).collect();
    json!({
        "wanted": number([&object["spec"]["replicas"], &status["desiredNumberScheduled"]]),
        "available": number([&status["availableReplicas"], &status["numberAvailable"]]),
        "updated": number([&status["updatedReplicas"], &status["updatedNumberScheduled"]]),
        "images": images,
        "counted": status["observedGeneration"].as_i64() >= generation && status["observedGeneration"].is_i64(),
    })
}

/// Who holds a lease, since when, when it was renewed last, and what it has counted. `silent`: that is longer ago than the lease
/// lasts.
fn leader(object: &DynamicObject, now: Timestamp) -> Value {
    let spec = &object.data["spec"];
    let counted = ProcessCounts::read(&object.metadata, spec["holderIdentity"].as_str().unwrap_or_default());
    let renewed = spec["renewTime"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let lasts = SignedDuration::from_secs(spec["leaseDurationSeconds"].as_i64().unwrap_or_default());
    let silent = renewed.is_none_or(|at| now.duration_since(at) > lasts);
    json!({"holder": spec["holderIdentity"], "since": spec["acquireTime"], "renewed": spec["renewTime"],
        "silent": silent, "counted": counted})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deployments_and_daemon_sets_count_their_pods_under_different_names() {
        let template = json!({"spec": {"containers": [{"image": "mco:1"}]}});
        let deployment = json!({"spec": {"replicas": 2, "template": template},
            "status": {"availableReplicas": 1, "updatedReplicas": 2, "observedGeneration": 3}});
        let said = |counted: bool| json!({"wanted": 2, "available": 1, "updated": 2, "images": ["mco:1"], "counted": counted});
        assert_eq!(state(Some(3), &deployment), said(true));
        assert_eq!(state(Some(4), &deployment), said(false), "the numbers are of the template before");
        let daemons = json!({"spec": {"template": template},
            "status": {"desiredNumberScheduled": 2, "numberAvailable": 1, "updatedNumberScheduled": 2, "observedGeneration": 1}});
        assert_eq!(state(Some(1), &daemons), said(true));
        assert_eq!(state(Some(1), &json!({}))["counted"], false, "it has no status yet");
    }

    #[test]
    fn a_leader_that_renews_its_lease_no_more_is_silent() {
        let counts = json!({"holder": "a", "requests": 4012, "memory": 15_728_640}).to_string();
        let lease = |holder: &str| -> DynamicObject {
            serde_json::from_value(
                json!({"metadata": {"name": "x", "annotations": {names::own::PROCESS_COUNTS: counts}},
                "spec": {"holderIdentity": holder, "acquireTime": "2026-07-01T10:00:00.000000Z",
                    "renewTime": "2026-07-01T12:00:00.000000Z", "leaseDurationSeconds": 15}}),
            )
            .unwrap()
        };
        let said = |holder: &str, now: &str| leader(&lease(holder), now.parse().unwrap());
        assert_eq!(said("a", "2026-07-01T12:00:14Z")["silent"], false);
        assert_eq!(said("a", "2026-07-01T12:00:16Z")["silent"], true);
        let bare: DynamicObject = serde_json::from_value(json!({"metadata": {"name": "x"}})).unwrap();
        assert_eq!(leader(&bare, Timestamp::UNIX_EPOCH)["silent"], true);
        // What it has counted; an earlier holder's figures say nothing of this one.
        let counted = |holder: &str| said(holder, "2026-07-01T12:00:14Z")["counted"].clone();
        assert_eq!((&counted("a")["requests"], &counted("a")["memory"]), (&json!(4012), &json!(15_728_640)));
        assert_eq!(counted("b"), Value::Null);
    }
}
