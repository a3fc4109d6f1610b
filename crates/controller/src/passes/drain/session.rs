//! The sessions of nodes that are drained: what is known of a drain between its passes, a watch of the node's pods, and a watch
//! of the disruption budgets, which all sessions share. A change of what is watched makes the nodes that it concerns dirty.
//!
//! What it is not: the pass, which plans and evicts (see `drain`).

use crate::cache::store::{Change, Store};
use crate::cache::watch::{OnChange, Presence, WatchedApi, follow};
use crate::queue::Pass;
use crate::shared::Shared;
use api::k8s::{Pod, PodDisruptionBudget};
use client::{CallError, call};
use kube::Api;
use kube::api::ListParams;
use kube::runtime::watcher;
use rollout::drain::{Drain, Request};
use rollout::view::{BudgetView, PodView};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Lists of single nodes' pods in flight at once. Each request in flight holds a connection with its buffers.
const LOOKS_IN_FLIGHT: usize = 16;

/// A watch and the objects that it delivers; dropping it ends the watch.
pub(super) struct Watched<T> {
    pub(super) store: Arc<Store<T>>,
    _stop: DropGuard,
}

/// A node's drain.
pub(super) struct Session {
    pub(super) state: Drain,
    pub(super) pods: Option<Arc<Watched<PodView>>>,
    pub(super) budgets: Option<Arc<Watched<BudgetView>>>,
    /// What was wrong with the request at the last plan; it is logged once.
    pub(super) refused: Option<String>,
}

impl Session {
    pub(super) fn new() -> Self {
        Self { state: Drain::Idle, pods: None, budgets: None, refused: None }
    }
}

/// The sessions, by the names of their nodes.
pub(super) struct Sessions {
    shared: Arc<Shared>,
    of_nodes: Mutex<HashMap<String, Session>>,
    budgets: Mutex<Weak<Watched<BudgetView>>>,
    /// Permits for lists of a node's pods (see [`LOOKS_IN_FLIGHT`]).
    looks: Semaphore,
}

impl Sessions {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let looks = Semaphore::new(LOOKS_IN_FLIGHT);
        Self { shared, of_nodes: Mutex::default(), budgets: Mutex::new(Weak::new()), looks }
    }

    /// Takes the session of a node out. To drop it ends its watches.
    pub(super) fn take(&self, node: &str) -> Option<Session> {
        self.of_nodes.lock().unwrap_or_else(PoisonError::into_inner).remove(node)
    }

    /// Puts the session of a node back, for its next pass.
    pub(super) fn put_back(&self, node: String, session: Session) {
        self.of_nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(node, session);
    }

    /// The pods of one node, read consistently.
    pub(super) async fn list_pods(&self, node: &str) -> Result<Vec<PodView>, CallError> {
        // The semaphore is never closed; and without a permit the list would merely be requested earlier.
        let _place = self.looks.acquire().await;
        let api = Api::<Pod>::all(self.shared.client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let list = call(|| format!("list of the pods of node {node}"), api.list(&params)).await?;
        let mut names = self.shared.names.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(list.items.iter().map(|pod| PodView::from_pod(pod, &mut names)).collect())
    }

    /// The pods of one node, watched as long as its session lasts.
    pub(super) fn watch_pods(&self, node: &str) -> Arc<Watched<PodView>> {
        let shared = self.shared.clone();
        let trim = move |pod: Pod| {
            let mut names = shared.names.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(PodView::from_pod(&pod, &mut names))
        };
        let (shared, name) = (self.shared.clone(), node.to_owned());
        let changed = move |_: &Change<PodView>| shared.queues.of(Pass::Drain).mark(name.clone());
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let api = WatchedApi::new(&self.shared.client, Api::<Pod>::all);
        self.watch("Pod", api, config, trim, Box::new(changed))
    }

    /// The budgets of all namespaces, watched as long as any node drains.
    pub(super) fn watch_budgets(&self) -> Arc<Watched<BudgetView>> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = budgets.upgrade() {
            return watched;
        }
        let shared = self.shared.clone();
        let trim = move |budget: PodDisruptionBudget| {
            let mut names = shared.names.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(BudgetView::from_budget(&budget, &mut names))
        };
        let shared = self.shared.clone();
        let changed = move |_: &Change<BudgetView>| {
            let open = shared.stores.nodes.all().into_iter().filter(|n| Request::of(n) != Request::None);
            shared.queues.of(Pass::Drain).mark_all(open.map(|n| n.name.to_string()));
        };
        let api = WatchedApi::new(&self.shared.client, Api::<PodDisruptionBudget>::all);
        let watched =
            self.watch("PodDisruptionBudget", api, watcher::Config::default(), trim, Box::new(changed));
        *budgets = Arc::downgrade(&watched);
        watched
    }

    fn watch<K, T>(
        &self,
        kind: &str,
        api: WatchedApi<K>,
        config: watcher::Config,
        trim: impl Fn(K) -> Result<T, String> + Send + 'static,
        on_change: OnChange<T>,
    ) -> Arc<Watched<T>>
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
        T: Send + Sync + 'static,
    {
        let (store, stop) = (Arc::new(Store::default()), CancellationToken::new());
        let (kind, into, token) = (kind.to_owned(), store.clone(), stop.clone());
        tokio::spawn(async move {
            follow(api, config, kind, Presence::Required, &into, trim, on_change, token).await;
        });
        Arc::new(Watched { store, _stop: stop.drop_guard() })
    }
}
