//! The objects of our own parts: pods, what they may do in a cluster, and what the API server refuses. Pure: from settings
//! to objects.
//!
//! What it is not: putting these into the cluster (see `install` and `sync`).

pub(crate) mod admission;
pub(crate) mod agents;
mod network;
pub(crate) mod own_secrets;
pub(crate) mod parts;
pub(crate) mod pods;
pub(crate) mod replicas;
pub(crate) mod rights;

use serde_json::Value;

/// What `mco install --image` applies besides the definitions, the namespace `openshift-machine-config-operator` and the
/// settings object: the operator and its rights. Everything else is the operator's, from the settings.
pub fn operator(
    image: &str,
    replicas: u32,
    pull_secret: Option<&rights::PullSecret>,
    old_tokens: &[String],
    openshift: &[&str],
) -> Vec<Value> {
    let mut all = rights::installer(pull_secret, old_tokens, openshift);
    // Without a digest: charts put other values into the same objects.
    all.extend(pods::operator(image, replicas).into_iter().map(crate::objects::labelled));
    all
}
