//! MachineConfigNode objects: one for each node, with the node's name and owned by it. The spec says which pool the
//! node is in and which config it is to move to. The steps in the status are written by whoever takes them.
//!
//! What it is not: needed for an update. A cluster that lacks this kind, or refuses one of its objects, still rolls
//! out.

use crate::cache::store::KNOWN_AGAIN;
use crate::cache::trimmed::TrimmedMachineConfigNode;
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::io::clock::now;
use crate::kind;
use crate::passes::descriptor::Descriptor;
use crate::queue::{Outcome, Pass, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use api::k8s::ResourceExt;
use api::names::own;
use api::v1::{ControllerConfig, MachineConfigNode, MachineConfigPool};
use client::merge_patch::{bound_to_version, difference};
use client::{CallError, call};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use rollout::machine_config_nodes::{self, Action, Progress};
use rollout::view::NodeView;
use rollout::{Cluster, Index};
use serde_json::json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often to look whether the kind has been installed.
const NOT_INSTALLED: Duration = Duration::from_secs(10);
/// How often a refused write is tried again.
const REFUSED: Duration = Duration::from_secs(60);
/// How many times a step is written again after a conflict.
const TRIES: usize = 3;

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::MachineConfigNodes,
    work: Work { name: "progress", ..Work::QUIET },
    reads: &[&inputs::CONTROLLER_CONFIGS, &inputs::POOLS, &inputs::NODES, &inputs::MACHINE_CONFIG_NODES],
    rights: &[
        Right::new("create", kind::MACHINE_CONFIG_NODES),
        Right::new("patch", kind::MACHINE_CONFIG_NODES),
        Right::new("delete", kind::MACHINE_CONFIG_NODES),
        Right::new("patch", kind::MACHINE_CONFIG_NODES).on("status"),
    ],
    marked_by,
    effects: Effects::NONE,
    start: |shared, _| {
        let (shared, probe) = (shared.clone(), Arc::<Probe>::default());
        Box::new(move |node| {
            let (shared, probe) = (shared.clone(), probe.clone());
            Box::pin(async move { pass(&shared, &probe, node).await })
        })
    },
};

/// The one node whose pass checks whether MachineConfigNodes have been installed, as long as they are not. With thousands of
/// nodes, one check from time to time is enough.
type Probe = Mutex<Option<String>>;

fn marked_by(changed: &Changed<'_>, known: KnownObjects<'_>, marks: &mut DirtyKeys) {
    let all = || known.stores.nodes.names();
    match changed {
        Changed::Pool(change) => {
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            let selects = |p: Option<&MachineConfigPool>| p.and_then(|p| p.spec.node_selector.clone());
            if old.is_none() || new.is_none() || selects(old) != selects(new) {
                // Nodes may come from any pool, or go to any pool.
                marks.mark_all(Pass::MachineConfigNodes, all());
            }
        }
        Changed::ControllerConfig(change) => {
            let cluster = |c: &Option<Arc<ControllerConfig>>| Cluster::of(c.as_deref().map(|c| &c.spec));
            if cluster(&change.old) != cluster(&change.new) {
                // The rule that sorts nodes into pools has changed.
                marks.mark_all(Pass::MachineConfigNodes, all());
            }
        }
        Changed::Node(change) => marks.mark(Pass::MachineConfigNodes, &change.name),
        Changed::MachineConfigNode(change) => {
            let spec = |n: &Option<Arc<MachineConfigNode>>| n.as_ref().map(|n| n.spec.clone());
            if spec(&change.old) != spec(&change.new) {
                marks.mark(Pass::MachineConfigNodes, &change.name);
            }
        }
        Changed::TermBegins => {
            // Objects of nodes that disappeared meanwhile are deleted.
            let objects = known.stores.machine_config_nodes.names();
            marks.mark_all(Pass::MachineConfigNodes, all().into_iter().chain(objects));
        }
        _ => {}
    }
}

/// One pass over one node.
async fn pass(shared: &Shared, probe: &Probe, name: String) -> Outcome {
    // Without a list of the objects, each of them would be made again.
    if !shared.stores.machine_config_nodes.is_synced() {
        return Outcome::After(KNOWN_AGAIN);
    }
    let probe = || probe.lock().unwrap_or_else(PoisonError::into_inner);
    if probe().as_ref().is_some_and(|node| *node != name) {
        return Outcome::Done;
    }
    match carry_out(shared, &name).await {
        Ok(()) => {
            if probe().take().is_some() {
                shared.queues.of(Pass::MachineConfigNodes).mark_all(shared.stores.nodes.names());
            }
            Outcome::Done
        }
        // The object is gone, or another writer created it.
        Err(e)
            if e.is_conflict()
                || e.is_not_found() && shared.stores.machine_config_nodes.get(&name).is_some() =>
        {
            Outcome::Stale
        }
        Err(e) if e.is_not_found() => {
            *probe() = Some(name);
            Outcome::After(NOT_INSTALLED)
        }
        Err(e) if e.is_refused() => {
            tracing::warn!(
                node = name,
                "the API server refuses a change of its MachineConfigNode, which \
                stays as it is: {}",
                e.chain()
            );
            // Nothing waits for it, and there may be thousands.
            Outcome::After(REFUSED)
        }
        Err(e) => Outcome::Failed(e.chain()),
    }
}

async fn carry_out(shared: &Shared, name: &str) -> Result<(), CallError> {
    let stores = &shared.stores;
    let node = stores.nodes.get(name);
    let pools = stores.pools.all();
    let names: Vec<String> = pools.iter().map(|p| p.name_any()).collect();
    let selectors = names.iter().zip(&pools).map(|(n, p)| (n.as_str(), p.spec.node_selector.as_ref()));
    let cluster = Cluster::of(stores.controller_config().as_deref().map(|c| &c.spec));
    let index = Index::new(cluster, selectors);
    let owners = node.as_ref().map(|n| (index.owners_of(n), n));
    let owner = match &owners {
        Some((owners, n)) => {
            let configs = [n.current_config.as_deref(), n.desired_config.as_deref()];
            // It may belong to a pool whose selector cannot be evaluated. The node pass reports that on the pool.
            if index.possible_owner(&n.labels, owners, &configs).is_some() {
                return Ok(());
            }
            owners.primary
        }
        None => None,
    };
    let pool = owner.and_then(|i| names.get(i)).map(String::as_str);
    let object = stores.machine_config_nodes.get(name);
    let api = shared.api::<TrimmedMachineConfigNode>();
    let what = || format!("machineconfignode {name}");
    // Nodes in no pool are not ours. An object that exists already is still kept up to date.
    let node = node.filter(|_| pool.is_some() || object.is_some());
    let existing: Vec<&MachineConfigNode> = object.as_deref().into_iter().collect();
    for action in machine_config_nodes::lifecycle(node.as_deref().map(|n| (n, pool)), &existing) {
        match action {
            Action::Create(wanted) => {
                let made = shared.api::<MachineConfigNode>();
                let answer = call(what, made.create(&PostParams::default(), &wanted)).await?;
                shared.machine_config_node_answer(TrimmedMachineConfigNode(MachineConfigNode {
                    status: None,
                    ..answer
                }));
            }
            Action::Spec { name, uid, spec } => {
                let old = object.as_ref().map(|o| json!(o.spec)).unwrap_or_default();
                let Some(patch) = difference(&old, &json!(spec)) else { continue };
                // Bound to the uid and not to the version: we alone write the spec, and the version moves with every
                // step that the daemon reports. Emptying `managedFields` stops the API server from tracking them for
                // this object until somebody uses server-side apply on it. That saves a third of the cost of each later
                // step.
                let mut metadata = json!({ "uid": uid, "managedFields": [{}] });
                let desired = &spec.config_version.desired;
                if object.as_ref().is_some_and(|o| o.spec.config_version.desired != *desired) {
                    let wait_history = shared.wait_history.lock().unwrap_or_else(PoisonError::into_inner);
                    // What is there is of an earlier update: without a wait it goes.
                    metadata["annotations"] = json!({ own::WAITED: wait_history.of(&name, desired) });
                }
                let body = Patch::Merge(json!({ "metadata": metadata, "spec": patch }));
                let answer = call(what, api.patch(&name, &PatchParams::default(), &body)).await?;
                shared.machine_config_node_answer(answer);
            }
            Action::Delete { name, uid } => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions { uid, resource_version: None }),
                    ..DeleteParams::default()
                };
                match call(what, api.delete(&name, &params)).await {
                    Ok(_) => {
                        tracing::debug!(
                            node = name,
                            "deleted the MachineConfigNode of a node that no longer exists"
                        );
                    }
                    // The garbage collector was faster.
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e),
                }
            }
        }
    }
    Ok(())
}

/// Writes a step that this process took, for a daemon that does not report it itself. If it cannot be written, that is
/// logged and the update goes on.
pub(crate) async fn report_step(shared: &Shared, node: &NodeView, step: &Progress) {
    // If the node's object is just being created, it gets the next step.
    if shared.stores.machine_config_nodes.get(&node.name).is_none() {
        return;
    }
    for left in (0..TRIES).rev() {
        match try_report(shared, node, step).await {
            Ok(()) => return,
            // The node's daemon writes a step at the same time.
            Err(e) if e.is_conflict() && left > 0 => {}
            Err(e) => {
                return tracing::debug!(node = %node.name, "a step could not be written to the \
                MachineConfigNode: {}", e.chain());
            }
        }
    }
}

async fn try_report(shared: &Shared, node: &NodeView, step: &Progress) -> Result<(), CallError> {
    let api = shared.api::<MachineConfigNode>();
    let what = || format!("status of machineconfignode {}", node.name);
    let object = call(what, api.get(&node.name)).await?;
    let generation = object.metadata.generation.unwrap_or_default();
    let Some(status) = machine_config_nodes::advance(object.status.as_ref(), step, node, generation, &now())
    else {
        return Ok(());
    };
    let old = object.status.as_ref().map_or_else(|| json!({}), |s| json!(s));
    let Some(patch) = difference(&old, &json!(status)) else { return Ok(()) };
    let body = Patch::Merge(bound_to_version("status", &patch, object.metadata.resource_version.as_deref()));
    let api = shared.api::<TrimmedMachineConfigNode>();
    let answer = call(what, api.patch_status(&node.name, &PatchParams::default(), &body)).await?;
    shared.machine_config_node_answer(answer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::Item;
    use crate::fake_server::{answer, shared};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    #[tokio::test]
    async fn while_the_kind_is_not_installed_one_node_looks_for_it_and_not_thousands() {
        let probe = Probe::default();
        let (asked, served) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, there) = (asked.clone(), served.clone());
        let shared = Arc::new(shared(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            match there.load(Ordering::Relaxed) {
                true => {
                    let mut made = json!(MachineConfigNode::new("n0", Default::default()));
                    made["metadata"]["resourceVersion"] = json!("5");
                    answer(201, &made)
                }
                false => answer(404, &json!({"kind": "Status", "status": "Failure", "code": 404})),
            }
        }));
        let selector =
            serde_json::from_value(json!({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}));
        let mut pool = api::v1::MachineConfigPool::new("worker", Default::default());
        pool.spec.node_selector = Some(selector.unwrap());
        let pool = Item { version: 1, uid: "p".to_owned(), value: Arc::new(pool) };
        shared.stores.pools.apply("worker".to_owned(), pool);
        for name in ["n0", "n1", "n2"] {
            let view = NodeView { name: name.into(), uid: name.into(), ..NodeView::default() };
            let item = Item { version: 1, uid: name.to_owned(), value: Arc::new(view) };
            shared.stores.nodes.apply(name.to_owned(), item);
        }
        assert_eq!(
            pass(&shared, &probe, "n0".to_owned()).await,
            Outcome::After(KNOWN_AGAIN),
            "it may be there"
        );
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        shared.stores.machine_config_nodes.replace(std::collections::BTreeMap::new());
        for (name, want) in
            [("n0", Outcome::After(NOT_INSTALLED)), ("n1", Outcome::Done), ("n2", Outcome::Done)]
        {
            assert_eq!(pass(&shared, &probe, name.to_owned()).await, want);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        served.store(true, Ordering::Relaxed);
        assert_eq!(pass(&shared, &probe, "n0".to_owned()).await, Outcome::Done);
        assert_eq!(pass(&shared, &probe, "n1".to_owned()).await, Outcome::Done);
        assert_eq!(asked.load(Ordering::Relaxed), 3, "the others follow once it is there");
    }
}
