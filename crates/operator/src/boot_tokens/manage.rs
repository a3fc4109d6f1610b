//! What `mco token` does: creates, lists and revokes boot tokens.
//!
//! What it is not: arguments and tables.

use super::keep_namespace;
use crate::reconcile_error::ReconcileError;
use api::first_boot::boot_token::{
    ENTROPY, LABEL, MOVED, NAME_PREFIX, NAMESPACE, OLD_NAMESPACE, Record, Token,
};
use api::first_boot::expected_nodes;
use api::names::annotation::{CUSTOM_POOL_LABELS_APPLIED, FIRST_BOOT_NODES};
use api::names::{MASTER, WORKER};
use api::v1::MachineConfigPool;
use client::{CallError, call, retry};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

/// A token that is to be created.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The only pool whose config it grants.
    pub pool: String,
    /// The machine that it is for, by the name of its node.
    pub node: Option<String>,
    /// The addresses from which the machine must ask; empty for any.
    pub addresses: Vec<IpNet>,
    /// When it expires; `None` for never.
    pub expires: Option<Timestamp>,
    /// Whether it is for a single machine's boot.
    pub single_use: bool,
    /// How long after its use the same machine may ask again.
    pub grace: SignedDuration,
}

/// Why something could not be done with a token. No text has its secret.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// There is no such pool.
    #[error("there is no MachineConfigPool {pool:?}: `mco status` lists the pools")]
    NoPool {
        /// The name that was given.
        pool: String,
    },
    /// Others write the pool again and again.
    #[error("MachineConfigPool {pool} keeps being changed by others; try again")]
    Contended {
        /// The pool.
        pool: String,
    },
    /// The namespace could not be created, or the system returns no random bytes.
    #[error(transparent)]
    Reconcile(#[from] ReconcileError),
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Creates a token for a pool that exists, with the namespace if it is missing.
///
/// # Errors
/// There is no such pool, or a request failed.
pub async fn create(client: &Client, new: NewToken) -> Result<Token, TokenError> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let what = || format!("get MachineConfigPool {}", new.pool);
    if call(what, pools.get_opt(&new.pool)).await?.is_none() {
        return Err(TokenError::NoPool { pool: new.pool });
    }
    let mut entropy = [0; ENTROPY];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut entropy);
    random.map_err(|_| ReconcileError::Random)?;
    let token = Token::new(&entropy);
    let NewToken { pool, node, addresses, expires, single_use, grace } = new;
    let record = Record { node, addresses, expires, single_use, grace, ..Record::new(&token, &pool) };
    keep_namespace(client).await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let (secret, params) = (record.to_secret(), PostParams::default());
    let what = || format!("create Secret {NAMESPACE}/{}", record.secret_name());
    call(what, secrets.create(&params, &secret)).await?;
    Ok(token)
}

/// Writes into a pool that it expects this node, which gets the pool's labels when it has booted into the pool's config. The
/// built-in pools have no such labels. Returns a warning if an earlier installation of the machine left its Node.
///
/// # Errors
/// A request failed, or others write the pool again and again.
pub async fn expect_node(client: &Client, pool: &str, node: &str) -> Result<Option<String>, TokenError> {
    if [MASTER, WORKER].contains(&pool) {
        return Ok(None);
    }
    add_to_pool(&Api::all(client.clone()), pool, node).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    // A user who may not read Nodes does not get this warning.
    let old = call(|| format!("get Node {node}"), nodes.get_opt(node)).await.ok().flatten();
    Ok(old.and_then(|old| left_over(&old, pool)))
}

/// What to do about a Node that an earlier installation of the machine left. The controller takes the name off the pool's
/// list as soon as it sees that this Node has its labels, and the new machine would never get them.
fn left_over(node: &Node, pool: &str) -> Option<String> {
    node.annotations().get(CUSTOM_POOL_LABELS_APPLIED)?;
    let name = node.name_any();
    Some(format!(
        "Node {name} of an earlier installation still exists, so the new node would not be given the labels \
         of pool {pool}: delete it (`kubectl delete node {name}`) before the machine boots, then create the token again"
    ))
}

async fn add_to_pool(pools: &Api<MachineConfigPool>, pool: &str, node: &str) -> Result<(), TokenError> {
    // A pool's status, and with it its resourceVersion, changes with every node that moves.
    let add = || async {
        let object = call(|| format!("get MachineConfigPool {pool}"), pools.get(pool)).await?;
        let Some(list) = expected_nodes::with(object.metadata.annotations.as_ref(), node) else {
            return Ok(());
        };
        let version = object.metadata.resource_version;
        let metadata = json!({"resourceVersion": version, "annotations": {FIRST_BOOT_NODES: list}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "metadata": metadata })));
        call(|| format!("change MachineConfigPool {pool}"), pools.patch(pool, &params, &patch))
            .await
            .map(drop)
    };
    match retry::on_conflict(add).await {
        Err(error) if error.is_conflict() => Err(TokenError::Contended { pool: pool.to_owned() }),
        done => Ok(done?),
    }
}

/// The tokens of a cluster.
#[derive(Debug, Clone, Default)]
pub struct TokenList {
    /// The tokens, sorted by pool and ID.
    pub records: Vec<Record>,
    /// Labelled Secrets that are no boot tokens, each with the reason.
    pub unreadable: Vec<String>,
}

/// Lists all tokens, with those that are still in the namespace of older releases.
///
/// # Errors
/// A request failed.
pub async fn list(client: &Client) -> Result<TokenList, CallError> {
    let labelled = ListParams::default().labels(LABEL);
    let mut found = TokenList::default();
    for namespace in [NAMESPACE, OLD_NAMESPACE] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let listed = match call(|| format!("list Secrets in {namespace}"), secrets.list(&labelled)).await {
            // A user who may see tokens need not have rights in the old namespace.
            Err(error) if error.is_forbidden() && namespace == OLD_NAMESPACE => continue,
            listed => listed?,
        };
        let counts = |s: &&Secret| namespace == NAMESPACE || !s.annotations().contains_key(MOVED);
        for secret in listed.items.iter().filter(counts) {
            match Record::from_secret(secret) {
                Ok(record) if found.records.iter().any(|r| r.id == record.id) => {}
                Ok(record) => found.records.push(record),
                Err(why) => found.unreadable.push(why.to_string()),
            }
        }
    }
    found.records.sort_by(|x, y| (&x.pool, &x.id).cmp(&(&y.pool, &y.id)));
    Ok(found)
}

/// Revokes the token with this ID. Returns whether there was one.
///
/// # Errors
/// A request failed.
pub async fn revoke(client: &Client, id: &str) -> Result<bool, CallError> {
    let name = format!("{NAME_PREFIX}{id}");
    let mut found = false;
    // The old namespace first: a Secret that stays there would be moved again.
    for namespace in [OLD_NAMESPACE, NAMESPACE] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let params = DeleteParams::default();
        match call(|| format!("delete Secret {namespace}/{name}"), secrets.delete(&name, &params)).await {
            Ok(_) => found = true,
            Err(error) if error.is_not_found() => {}
            Err(error) if error.is_forbidden() && namespace == OLD_NAMESPACE => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_an_earlier_installation_is_warned_of() {
        let node = |annotations| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n1", "annotations": annotations}})).unwrap()
        };
        assert_eq!(left_over(&node(json!({})), "infra"), None);
        let warning = left_over(&node(json!({CUSTOM_POOL_LABELS_APPLIED: ""})), "infra").unwrap();
        assert!(warning.contains("kubectl delete node n1") && warning.contains("pool infra"), "{warning}");
    }
}
