//! What drains of nodes would wait for, before the nodes are cordoned: their pods and all budgets are listed.
//!
//! What it is not: the judgement of pods and budgets (see `rollout::drain::outlook`).

use api::k8s::{Pod, PodDisruptionBudget};
use client::{CallError, call};
use futures::future::join_all;
use kube::api::ListParams;
use kube::{Api, Client};
use rollout::drain::{Outlook, outlook};
use rollout::view::{BudgetView, Names, NodeView, PodView};
use std::sync::Arc;

/// Nodes whose pods are listed at once.
const IN_FLIGHT: usize = 8;

/// Lists all budgets once, and the pods of each of these nodes, and judges their drains. Where the budgets cannot be listed, that
/// error is the answer for every node.
pub async fn inspect_drains(
    client: &Client,
    nodes: &[Arc<str>],
) -> Vec<(Arc<str>, Result<Outlook, Arc<CallError>>)> {
    let api: Api<PodDisruptionBudget> = Api::all(client.clone());
    let listed = call(|| "list poddisruptionbudgets".to_owned(), api.list(&ListParams::default())).await;
    let budgets: Vec<BudgetView> = match listed {
        Ok(list) => list.items.iter().map(|b| BudgetView::from_budget(b, &mut Names::default())).collect(),
        Err(error) => {
            let error = Arc::new(error);
            return nodes.iter().map(|node| (node.clone(), Err(error.clone()))).collect();
        }
    };
    let mut all = vec![];
    for some in nodes.chunks(IN_FLIGHT) {
        all.extend(join_all(some.iter().map(|node| inspect_drain(client, node, &budgets))).await);
    }
    all
}

async fn inspect_drain(
    client: &Client,
    node: &Arc<str>,
    budgets: &[BudgetView],
) -> (Arc<str>, Result<Outlook, Arc<CallError>>) {
    let api: Api<Pod> = Api::all(client.clone());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let listed = call(|| format!("list the pods of node {node}"), api.list(&of_node)).await;
    let seen = listed.map(|list| {
        let mut names = Names::default();
        let pods: Vec<PodView> = list.items.iter().map(|pod| PodView::from_pod(pod, &mut names)).collect();
        let view = NodeView { name: node.clone(), ..NodeView::default() };
        outlook(&view, &pods.iter().collect::<Vec<_>>(), &budgets.iter().collect::<Vec<_>>())
    });
    (node.clone(), seen.map_err(Arc::new))
}
