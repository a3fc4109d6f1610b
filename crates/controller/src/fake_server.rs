//! A fake API server, for tests of how a pass handles its answers, including answers that a real one cannot be made to
//! give.

use crate::io::events::Recorder;
use crate::io::metrics::Metrics;
use crate::shared::Shared;
use api::k8s::{OwnerReference, ResourceExt};
use api::names::{CONTROLLER_CONFIG, annotation, label};
use api::v1::MachineConfig;
use http::{Request, Response};
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

/// A response of the fake server.
pub(crate) fn answer(code: u16, body: &Value) -> Option<Response<Body>> {
    let body = Body::from(body.to_string().into_bytes());
    Some(Response::builder().status(code).body(body).unwrap())
}

/// A client of a server that answers with this function; `None` breaks the connection.
pub(crate) fn client(
    serve: impl Fn(Request<Body>) -> Option<Response<Body>> + Clone + Send + 'static,
) -> kube::Client {
    let fake = tower::service_fn(move |request| {
        let answer = serve(request).ok_or_else(|| std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        async move { answer }
    });
    kube::Client::new(fake, "default")
}

/// The state that passes share, with that client and empty caches.
pub(crate) fn shared(
    serve: impl Fn(Request<Body>) -> Option<Response<Body>> + Clone + Send + 'static,
) -> Shared {
    shared_with(client(serve), &mut Registry::default())
}

/// The same with any client, and with its metrics on this registry.
pub(crate) fn shared_with(client: kube::Client, registry: &mut Registry) -> Shared {
    let (events, _) = Recorder::new(client.clone());
    Shared::new(client, "/".into(), events, Metrics::new(registry), &crate::passes::MARKERS)
}

/// A MachineConfig with the role `worker`, made from the object of this kind and name.
pub(crate) fn machine_config(name: &str, owner: Option<(&str, &str)>) -> MachineConfig {
    let mut mc = MachineConfig::default();
    mc.metadata.name = Some(name.to_owned());
    mc.labels_mut().insert(label::ROLE.to_owned(), "worker".to_owned());
    mc.metadata.owner_references = owner.map(|(kind, name)| {
        vec![OwnerReference { kind: kind.to_owned(), name: name.to_owned(), ..OwnerReference::default() }]
    });
    mc
}

/// A MachineConfig of this role as the template pass makes it.
pub(crate) fn template(name: &str, role: &str) -> MachineConfig {
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {
            "name": name, "labels": {label::ROLE: role}, "annotations": {annotation::GENERATED_BY_CONTROLLER: "v1"},
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "ControllerConfig", "name": CONTROLLER_CONFIG, "uid": "c", "controller": true,
            }],
        },
        "spec": {"config": {"ignition": {"version": "3.5.0"}}},
    }))
    .unwrap()
}
