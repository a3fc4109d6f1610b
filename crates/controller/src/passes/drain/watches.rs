//! What a drain sees of pods and disruption budgets: one look at a node's pods, and watches that last as long as a session.
//!
//! What it is not: what follows from them (see `rollout::drain`).

use super::Drains;
use crate::cache::store::{Change, Store};
use crate::cache::watch::{OnChange, Presence, follow};
use crate::passes::queue::Pass;
use api::k8s::{Pod, PodDisruptionBudget};
use client::{CallError, call};
use kube::Api;
use kube::api::ListParams;
use kube::runtime::watcher;
use rollout::drain::Request;
use rollout::view::{BudgetView, PodView};
use std::sync::{Arc, PoisonError};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Lists of single nodes' pods in flight at once. Each request in flight holds a connection with its buffers.
pub(super) const LOOKS_IN_FLIGHT: usize = 16;

/// A watch and the objects that it delivers; dropping it ends the watch.
pub(super) struct Watched<T> {
    pub(super) store: Arc<Store<T>>,
    _stop: DropGuard,
}

impl Drains {
    /// The pods of one node, read consistently.
    pub(super) async fn look(&self, node: &str) -> Result<Vec<PodView>, CallError> {
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
        let keep = move |pod: Pod| {
            let mut names = shared.names.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(PodView::from_pod(&pod, &mut names))
        };
        let (shared, name) = (self.shared.clone(), node.to_owned());
        let changed = move |_: &Change<PodView>| shared.queues.of(Pass::Drain).mark(name.clone());
        let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        self.watch("Pod", Api::<Pod>::all(self.shared.client.clone()), config, keep, Box::new(changed))
    }

    /// The budgets of all namespaces, watched as long as any node drains.
    pub(super) fn watch_budgets(&self) -> Arc<Watched<BudgetView>> {
        let mut budgets = self.budgets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = budgets.upgrade() {
            return watched;
        }
        let shared = self.shared.clone();
        let keep = move |budget: PodDisruptionBudget| {
            let mut names = shared.names.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(BudgetView::from_budget(&budget, &mut names))
        };
        let shared = self.shared.clone();
        let changed = move |_: &Change<BudgetView>| {
            let open = shared.stores.nodes.all().into_iter().filter(|n| Request::of(n) != Request::None);
            shared.queues.of(Pass::Drain).mark_all(open.map(|n| n.name.to_string()));
        };
        let api = Api::<PodDisruptionBudget>::all(self.shared.client.clone());
        let watched =
            self.watch("PodDisruptionBudget", api, watcher::Config::default(), keep, Box::new(changed));
        *budgets = Arc::downgrade(&watched);
        watched
    }

    fn watch<K, T>(
        &self,
        kind: &str,
        api: Api<K>,
        config: watcher::Config,
        keep: impl Fn(K) -> Result<T, String> + Send + 'static,
        on_change: OnChange<T>,
    ) -> Arc<Watched<T>>
    where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
        T: Send + Sync + 'static,
    {
        let (store, stop) = (Arc::new(Store::default()), CancellationToken::new());
        let (kind, into, token) = (kind.to_owned(), store.clone(), stop.clone());
        tokio::spawn(async move {
            follow(api, config, kind, Presence::Required, &into, keep, on_change, token).await;
        });
        Arc::new(Watched { store, _stop: stop.drop_guard() })
    }
}
