//! Looks at the nodes whose drains a plan asks about, because a RolloutPolicy has `spec.drain`: their pods and all budgets
//! are listed, as the controller does. Without them a snapshot would show an order of nodes that the controller does not
//! follow.
//!
//! What it is not: the judgement of pods and budgets (see `rollout::drain::outlook`), or the choice of the nodes (see
//! `rollout::plan`).

use api::k8s::{Pod, PodDisruptionBudget};
use client::{CallError, call};
use futures::future::{BoxFuture, join_all};
use kube::api::ListParams;
use kube::{Api, Client};
use rollout::RolloutPlan;
use rollout::drain::{OUTLOOK_INTERVAL, OUTLOOK_MAX_AGE, Outlook, outlook};
use rollout::view::{BudgetView, Names, NodeView, PodView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long the first snapshot waits for them.
pub(super) const OUTLOOKS_LIMIT: Duration = Duration::from_secs(5);

/// Nodes whose pods are listed at once.
const IN_FLIGHT: usize = 8;

/// How long nobody looks again after a refusal. Rights may be given meanwhile, and an authorizer may err.
const REFUSED: Duration = Duration::from_secs(60);

/// What was seen of some nodes.
type Seen = Vec<(Arc<str>, Result<Outlook, Unseen>)>;

/// Why a node was not seen.
#[derive(Debug, Clone)]
enum Unseen {
    /// This person may not list pods or budgets.
    Forbidden,
    /// The request failed; why.
    Failed(String),
}

impl From<CallError> for Unseen {
    fn from(error: CallError) -> Self {
        if error.is_forbidden() { Self::Forbidden } else { Self::Failed(error.chain()) }
    }
}

/// What is known of drains.
pub(super) struct DrainOutlooks {
    client: Client,
    /// What was seen of a node, and when.
    known: BTreeMap<Arc<str>, (Outlook, Instant)>,
    /// When a node was looked at last, with or without success.
    tried: BTreeMap<Arc<str>, Instant>,
    /// The nodes that the last plan asks about.
    wanted: Mutex<BTreeSet<Arc<str>>>,
    under_way: Option<BoxFuture<'static, Seen>>,
    /// When this person was refused to list pods or budgets; `None`: the last look was not refused.
    refused: Option<Instant>,
}

impl DrainOutlooks {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            known: BTreeMap::new(),
            tried: BTreeMap::new(),
            wanted: Mutex::default(),
            under_way: None,
            refused: None,
        }
    }

    /// What drains would do, as far as it is known. `None`: this person may not look, and then no node waits for a look.
    pub(super) fn outlooks(&self) -> Option<BTreeMap<Arc<str>, Outlook>> {
        let counts = self.known.iter().filter(|(_, (_, at))| at.elapsed() < OUTLOOK_MAX_AGE);
        let known = counts.map(|(node, (outlook, _))| (node.clone(), outlook.clone())).collect();
        self.refused.is_none().then_some(known)
    }

    /// What is not known because this person may not look, as a sentence.
    pub(super) fn unread(&self) -> Option<&'static str> {
        self.refused.is_some().then_some(
            "pods and PodDisruptionBudgets cannot be read: in pools whose RolloutPolicy has spec.drain, the controller may let \
             other nodes go first",
        )
    }

    /// Takes the nodes that a plan asks about. One that is made after a refusal asks about none; the nodes of before are
    /// the ones that are looked at again.
    pub(super) fn request(&self, plan: &RolloutPlan) {
        if self.refused.is_some() {
            return;
        }
        let of_policies = plan.pools.iter().filter_map(|pool| pool.policy.as_ref());
        let nodes = of_policies.flat_map(|p| p.looks.iter().cloned()).collect();
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// The nodes that are to be looked at now, and when the next one is.
    fn due(&self) -> (Vec<Arc<str>>, Option<Instant>) {
        let again = self.refused.map(|at| at + REFUSED);
        if again.is_some_and(|at| at > Instant::now()) {
            return (vec![], again);
        }
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let next = |node: &Arc<str>| self.tried.get(node).map(|at| *at + OUTLOOK_INTERVAL);
        let now = Instant::now();
        let due = wanted.iter().filter(|node| next(node).is_none_or(|at| at <= now)).cloned().collect();
        (due, wanted.iter().filter_map(next).filter(|at| *at > now).min())
    }

    /// Whether the last plan asks about nodes that are to be looked at now.
    pub(super) fn are_due(&self) -> bool {
        self.under_way.is_some() || !self.due().0.is_empty()
    }

    /// Looks at the nodes that are due, and waits until one of them is. Returns when something else is known than before. If
    /// the caller is dropped meanwhile, nothing is lost.
    pub(super) async fn changed(&mut self) {
        loop {
            if let Some(looking) = &mut self.under_way {
                let seen = looking.await;
                self.under_way = None;
                if self.take(seen) {
                    return;
                }
            }
            let (due, next) = self.due();
            match next {
                _ if !due.is_empty() => {
                    self.under_way = Some(Box::pin(list_outlooks(self.client.clone(), due)));
                }
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    fn take(&mut self, seen: Seen) -> bool {
        let (before, now) = (self.outlooks(), Instant::now());
        let is_refused = seen.iter().any(|(_, seen)| matches!(seen, Err(Unseen::Forbidden)));
        self.refused = is_refused.then_some(now);
        for (node, seen) in seen {
            self.tried.insert(node.clone(), now);
            match seen {
                Ok(outlook) => drop(self.known.insert(node, (outlook, now))),
                Err(Unseen::Forbidden) => {}
                Err(Unseen::Failed(why)) => drop(self.known.insert(node, (Outlook::unread(&why), now))),
            }
        }
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        self.tried.retain(|node, _| wanted.contains(node));
        self.known.retain(|_, (_, at)| at.elapsed() < OUTLOOK_MAX_AGE);
        drop(wanted);
        before != self.outlooks()
    }
}

/// Lists pods and budgets, and judges each of these nodes.
async fn list_outlooks(client: Client, nodes: Vec<Arc<str>>) -> Seen {
    let api: Api<PodDisruptionBudget> = Api::all(client.clone());
    let listed = call(|| "list poddisruptionbudgets".to_owned(), api.list(&ListParams::default())).await;
    let budgets: Vec<BudgetView> = match listed {
        Ok(list) => list.items.iter().map(|b| BudgetView::from_budget(b, &mut Names::default())).collect(),
        Err(error) => {
            let why = Unseen::from(error);
            return nodes.into_iter().map(|node| (node, Err(why.clone()))).collect();
        }
    };
    let mut all = vec![];
    for some in nodes.chunks(IN_FLIGHT) {
        all.extend(join_all(some.iter().map(|node| list_outlook(&client, node, &budgets))).await);
    }
    all
}

async fn list_outlook(
    client: &Client,
    node: &Arc<str>,
    budgets: &[BudgetView],
) -> (Arc<str>, Result<Outlook, Unseen>) {
    let api: Api<Pod> = Api::all(client.clone());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let listed = call(|| format!("list the pods of node {node}"), api.list(&of_node)).await;
    let seen = listed.map(|list| {
        let mut names = Names::default();
        let pods: Vec<PodView> = list.items.iter().map(|pod| PodView::from_pod(pod, &mut names)).collect();
        let view = NodeView { name: node.clone(), ..NodeView::default() };
        outlook(&view, &pods.iter().collect::<Vec<_>>(), &budgets.iter().collect::<Vec<_>>())
    });
    (node.clone(), seen.map_err(Unseen::from))
}
