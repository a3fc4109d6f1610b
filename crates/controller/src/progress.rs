//! MachineConfigNode objects: one for each node, named as it and owned by it, whose spec says which pool the node is in
//! and which config it is to move to. The steps in its status are written by those who take them.
//!
//! What it is not: needed for an update. A cluster without the kind, or one that refuses an object, rolls out all the
//! same.

use crate::call::{CallError, call};
use crate::context::Context;
use crate::patch::{bound, difference};
use crate::queue::Outcome;
use api::k8s::{ObjectMeta, OwnerReference, ResourceExt};
use api::names::NOT_YET_SET;
use api::v1::{DesiredConfigVersion, MachineConfigNode, MachineConfigNodeSpec, NamedRef};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use rollout::Index;
use rollout::view::NodeView;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How often to look whether the kind has come to be installed.
const NOT_INSTALLED: Duration = Duration::from_secs(10);

/// What a pass does about one node's object.
#[derive(Debug, Clone, PartialEq)]
enum Plan {
    Nothing,
    Create(Box<MachineConfigNode>),
    Change(MachineConfigNodeSpec),
    Delete,
}

/// The spec that the object is to have.
fn spec(node: &NodeView, pool: &str) -> MachineConfigNodeSpec {
    let desired = node.desired_config.as_deref().filter(|c| !c.is_empty()).unwrap_or(NOT_YET_SET);
    MachineConfigNodeSpec {
        node: NamedRef { name: node.name.to_string() },
        pool: NamedRef { name: pool.to_owned() },
        config_version: DesiredConfigVersion { desired: desired.to_owned() },
    }
}

fn plan(node: Option<&NodeView>, pool: Option<&str>, object: Option<&MachineConfigNode>) -> Plan {
    let Some(node) = node.filter(|n| !n.pending) else {
        return if object.is_some() && node.is_none() { Plan::Delete } else { Plan::Nothing };
    };
    let wanted = spec(node, pool.unwrap_or(NOT_YET_SET));
    match object {
        Some(object) if object.spec == wanted => Plan::Nothing,
        Some(_) => Plan::Change(wanted),
        // Nodes that are not ours (Windows, in no pool) get none.
        None if pool.is_none() => Plan::Nothing,
        None => Plan::Create(Box::new(MachineConfigNode {
            metadata: ObjectMeta {
                name: Some(node.name.to_string()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Node".to_owned(),
                    name: node.name.to_string(),
                    uid: node.uid.to_string(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: wanted,
            status: None,
        })),
    }
}

/// One pass over one node.
pub(crate) async fn pass(context: Arc<Context>, name: String) -> Outcome {
    if !context.stores.progress.is_synced() {
        return Outcome::After(NOT_INSTALLED);
    }
    match carry_out(&context, &name).await {
        Ok(()) => Outcome::Done,
        Err(e) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(e) if e.is_invalid() => {
            tracing::warn!(node = name, "its MachineConfigNode is refused and left as it is: {}", e.chain());
            Outcome::Done
        }
        Err(e) => Outcome::Failed(e.chain()),
    }
}

async fn carry_out(context: &Context, name: &str) -> Result<(), CallError> {
    let stores = &context.stores;
    let node = stores.nodes.get(name);
    let pools = stores.pools.all();
    let names: Vec<String> = pools.iter().map(|p| p.name_any()).collect();
    let selectors = names.iter().zip(&pools).map(|(n, p)| (n.as_str(), p.spec.node_selector.as_ref()));
    // With a selector that cannot be evaluated no node's pool is sure; the node pass says so on the pools.
    let Ok(index) = Index::new(selectors) else { return Ok(()) };
    let owner = node.as_ref().and_then(|n| index.owners(&n.labels).primary);
    let pool = owner.and_then(|i| names.get(i)).map(String::as_str);
    let object = stores.progress.get(name);
    let api = context.api::<MachineConfigNode>();
    let what = || format!("machineconfignode {name}");
    match plan(node.as_deref(), pool, object.as_deref()) {
        Plan::Nothing => {}
        Plan::Create(wanted) => {
            let answer = call(what, api.create(&PostParams::default(), &wanted)).await?;
            context.progress_answer(answer);
        }
        Plan::Change(wanted) => {
            let Some(object) = object else { return Ok(()) };
            let Some(patch) = difference(&json!(object.spec), &json!(wanted)) else { return Ok(()) };
            let body = Patch::Merge(bound("spec", patch, object.metadata.resource_version.as_deref()));
            let answer = call(what, api.patch(name, &PatchParams::default(), &body)).await?;
            context.progress_answer(answer);
        }
        Plan::Delete => {
            let Some(object) = object else { return Ok(()) };
            let preconditions = Preconditions { uid: object.metadata.uid.clone(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match call(what, api.delete(name, &params)).await {
                Ok(_) => tracing::debug!(node = name, "deleted the MachineConfigNode of a node that is gone"),
                // The garbage collector was faster.
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(desired: Option<&str>) -> NodeView {
        NodeView {
            name: "n".into(),
            uid: "u".into(),
            desired_config: desired.map(Into::into),
            ..NodeView::default()
        }
    }

    #[test]
    fn an_object_follows_its_node_and_pool() {
        let have = MachineConfigNode::new("n", spec(&node(Some("rendered-worker-1")), "worker"));
        assert_eq!(plan(Some(&node(Some("rendered-worker-1"))), Some("worker"), Some(&have)), Plan::Nothing);
        let Plan::Change(moved) = plan(Some(&node(Some("rendered-worker-2"))), Some("infra"), Some(&have)) else {
            panic!("no change");
        };
        assert_eq!((&*moved.pool.name, &*moved.config_version.desired), ("infra", "rendered-worker-2"));
        assert_eq!(plan(None, None, Some(&have)), Plan::Delete);
        assert_eq!(plan(None, None, None), Plan::Nothing);
    }

    #[test]
    fn a_new_object_is_owned_by_its_node_and_says_what_is_not_known_yet() {
        let Plan::Create(new) = plan(Some(&node(None)), Some("worker"), None) else { panic!("no object") };
        assert_eq!(new.spec.config_version.desired, NOT_YET_SET);
        assert_eq!(new.metadata.owner_references.unwrap()[0].uid, "u");
        assert_eq!(plan(Some(&node(None)), None, None), Plan::Nothing, "in no pool");
        let pending = NodeView { pending: true, ..node(None) };
        assert_eq!(plan(Some(&pending), Some("worker"), None), Plan::Nothing, "no machine yet");
    }
}
