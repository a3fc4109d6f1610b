//! An annotation on the Node that ends the wait of its agent before the next try.

use crate::{ActionError, Mode};
use api::k8s::Node;
use api::names::annotation;
use api::node_state::NodeState;
use client::call;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use rollout::view::own;
use serde::Serialize;
use serde_json::json;

/// A node whose agent is asked to try again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetriedNode {
    /// The node.
    pub node: String,
    /// What its agent said before.
    pub state: String,
    /// Why it said so; empty: it gave no reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl RetriedNode {
    /// Whether its agent said that it cannot go on.
    pub(crate) fn fails(&self) -> bool {
        NodeState::parse(&self.state).is_some_and(NodeState::is_bad)
    }
}

/// What agents say that are to try again.
///
/// # Errors
/// A node that does not exist, or on which no agent has reported; a request that failed.
async fn to_retry(client: &Client, names: &[String]) -> Result<Vec<RetriedNode>, ActionError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut all = vec![];
    for name in names {
        let Some(node) = call(|| format!("get node {name}"), nodes.get_opt(name)).await? else {
            let why = format!("there is no node {name:?}; `mco status --all` lists the nodes");
            return Err(ActionError::Refused(why));
        };
        let note = |key: &str| node.annotations().get(key).cloned().unwrap_or_default();
        let asked = RetriedNode {
            node: name.clone(),
            state: note(annotation::STATE),
            reason: note(annotation::REASON),
        };
        if asked.state.is_empty() {
            let why = format!(
                "no agent has reported on node {name}, so nothing can be retried; is `mco daemon start` running there?"
            );
            return Err(ActionError::Refused(why));
        }
        all.push(asked);
    }
    Ok(all)
}

/// Asks agents to try again. All names are checked before the first Node is written: a wrong name changes nothing.
///
/// # Errors
/// A node that does not exist, or on which no agent has reported; a request that failed.
pub async fn retry(client: &Client, names: &[String], how: Mode) -> Result<Vec<RetriedNode>, ActionError> {
    let all = to_retry(client, names).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    for RetriedNode { node: name, .. } in all.iter().filter(|_| how == Mode::Write) {
        let now = jiff::Timestamp::now().to_string();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {own::RETRY: now}}}));
        let params = PatchParams::default();
        call(|| format!("cannot annotate node {name}"), nodes.patch(name, &params, &patch)).await?;
    }
    Ok(all)
}
