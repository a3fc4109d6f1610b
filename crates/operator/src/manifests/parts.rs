//! What the manifests of all parts are made from, and what they have in common: ports, labels, metadata.
//!
//! What it is not: the pods (see `pods`), and how they are reached (see `network`).

pub(crate) use crate::accounts::METRICS;
use crate::manifests::replicas::ReplicaOverride;
use api::names::{NAMESPACE, label};
use ipnet::IpNet;
use serde_json::{Value, json};

/// [`METRICS`] for the config server, which shares its host's network with the agent.
pub(crate) const SERVER_SECURE_METRICS: u16 = 9002;
/// The reference's port for plain HTTP.
pub(super) const PLAIN: u16 = api::first_boot::user_data::PORT + 1;

/// The inputs of the pods' manifests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts<'a> {
    /// The image of all of them.
    pub(crate) image: &'a str,
    /// The API server's URL for booting machines.
    pub(crate) api_server_url: &'a str,
    /// Only machines with a boot token get configs, over HTTPS. False: everybody does, also over plain HTTP, as with the
    /// reference.
    pub(crate) require_token: bool,
    /// Load balancers that send the client's address by PROXY protocol.
    pub(crate) balancers: &'a [IpNet],
    /// How many controllers run, see [`crate::manifests::replicas::controllers`].
    pub(crate) controllers: u32,
    /// Another number that somebody has set.
    pub(crate) scaled: Option<&'a ReplicaOverride>,
}

/// The label by which the pods of a part are found.
pub(super) fn labels(name: &str) -> Value {
    json!({label::PART: name})
}

/// Name, namespace and label of a part's object.
pub(super) fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": NAMESPACE, "labels": labels(name)})
}
