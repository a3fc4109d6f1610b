//! A fake API server, for tests of how a pass handles its answers, including answers that a real one cannot be made to
//! give.

use crate::cache::store::Item;
use crate::io::events::Recorder;
use crate::io::metrics::Metrics;
use crate::passes;
use crate::shared::Shared;
use api::k8s::{OwnerReference, ResourceExt};
use api::names::{CONTROLLER_CONFIG, annotation, label};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use http::{Request, Response};
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::sync::Arc;

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
    let metrics = Metrics::new(registry);
    Shared::new(client, "/".into(), events, metrics, &passes::REACTIONS, passes::settings())
}

/// An object as a cache keeps it.
pub(crate) fn item<T>(value: T) -> Item<T> {
    Item { version: 1, uid: "u".to_owned(), value: Arc::new(value) }
}

/// Puts the ControllerConfig into the caches, and the pool `worker` whose config is `rendered-worker-a`.
pub(crate) fn put_pool(shared: &Shared) {
    let pool: MachineConfigPool = serde_json::from_value(
        json!({"metadata": {"name": "worker"}, "spec": {"configuration": {"name": "rendered-worker-a"}}}),
    )
    .unwrap();
    let cluster: ControllerConfig =
        serde_json::from_value(json!({"metadata": {"name": CONTROLLER_CONFIG}, "spec": {}})).unwrap();
    shared.stores.pools.apply("worker".to_owned(), item(pool));
    shared.stores.controller_configs.apply(CONTROLLER_CONFIG.to_owned(), item(cluster));
}

/// A config by which a registry is talked to without TLS.
pub(crate) fn insecure(registry: &str) -> Value {
    let conf = format!("%5B%5Bregistry%5D%5D%0Alocation%20%3D%20%22{registry}%22%0Ainsecure%20%3D%20true%0A");
    json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [
        {"path": "/etc/containers/registries.conf", "contents": {"source": format!("data:,{conf}")}}]}})
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
