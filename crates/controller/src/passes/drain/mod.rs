//! The drain pass: carries out `rollout::drain::plan` for one node and its pods.
//!
//! Flow: a node with an open request is looked at once. If pods have to leave, it gets a session (see `session`): a watch of
//! its pods, and a watch of the disruption budgets, which all sessions share. Every change of the node, its pods or the
//! budgets makes the node dirty. A pass plans, sends the node's patch, then all evictions at once, and records their answers
//! for the next plan. A node without a request costs one look at its annotations.
//!
//! Guarantees: pods are listed only after the node was seen cordoned, with a consistent read. Dropping a session at any
//! line is harmless: everything is stored in the cluster. The start time of a drain is, too, if its pool's policy limits drains.
//!
//! What it is not: the choice of pods, of waits, or of what is reported.

mod session;

use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::nodes::{PATCHES_IN_FLIGHT, PATIENCE, PatchOf, send};
use crate::flight::refusals::Topic;
use crate::io::clock::now;
use crate::io::events::{Source, node_reference};
use crate::io::labels;
use crate::kind;
use crate::passes::descriptor::Descriptor;
use crate::passes::machine_config_nodes;
use crate::queue::{Outcome, Pass, Spacing, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use client::{CallError, call};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod as WholePod;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Preconditions};
use rollout::drain::{self, Answer, DrainLimit, DrainPlan, Evict, Request};
use rollout::view::{BudgetView, NodeView, PodView};
use rollout::{NodePatch, TroubleOf};
use session::{Session, Sessions};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Evictions of one node in flight at once; a node rarely runs more than 110 pods.
const IN_FLIGHT: usize = 64;

/// How long a pass waits for the first list of pods; after that, the next change calls it again.
const FIRST_LIST: Duration = Duration::from_millis(200);

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::Drain,
    // One pass for each node with a request; `maxUnavailable` limits their number. The spacing collects pods that end
    // together.
    work: Work { name: "drain", parallel: 512, spacing: Spacing::millis(5, 250) },
    reads: &[&inputs::NODES, &inputs::PODS, &inputs::BUDGETS, &inputs::MACHINE_CONFIG_NODES],
    rights: &[
        Right::new("patch", kind::NODES),
        Right::new("create", kind::PODS).on("eviction"),
        Right::new("patch", kind::MACHINE_CONFIG_NODES).on("status"),
    ],
    marked_by,
    effects: Effects::NONE,
    start: |shared, _| {
        let drains = Arc::new(Drains::new(shared.clone()));
        Box::new(move |key| {
            let drains = drains.clone();
            Box::pin(async move { drains.pass(key).await })
        })
    },
};

fn marked_by(changed: &Changed<'_>, known: KnownObjects<'_>, marks: &mut DirtyKeys) {
    match changed {
        Changed::Node(change) => marks.mark(Pass::Drain, &change.name),
        Changed::DrainLimits(nodes) => {
            marks.mark_all(Pass::Drain, nodes.iter().map(|node| node.to_string()));
        }
        Changed::TermBegins => marks.mark_all(Pass::Drain, known.stores.nodes.names()),
        _ => {}
    }
}

/// The drain pass and its sessions.
pub(crate) struct Drains {
    shared: Arc<Shared>,
    sessions: Sessions,
}

impl Drains {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { sessions: Sessions::new(shared.clone()), shared }
    }

    /// One pass over one node.
    pub(crate) async fn pass(&self, name: String) -> Outcome {
        let Some(node) = self.shared.stores.nodes.get(&name) else {
            if self.end(&name) {
                tracing::info!(node = name, "deleted while it was drained; nothing is left to do for it");
            }
            return Outcome::Done;
        };
        if Request::of(&node) == Request::None && node.drain_wait.is_none() && node.draining.is_none() {
            self.end(&name);
            return Outcome::Done;
        }
        // One key never runs twice at once, so the pass can take the session out while it runs.
        let mut session = self.sessions.take(&name).unwrap_or_else(Session::new);
        let outcome = self.step(&node, &mut session).await;
        self.sessions.put_back(name, session);
        outcome
    }

    async fn step(&self, node: &NodeView, session: &mut Session) -> Outcome {
        let draining = matches!(Request::of(node), Request::Drain(_)) && node.unschedulable;
        if draining && session.pods.is_none() {
            // If nothing has to leave, one look is enough, and the drain is over.
            let pods = match self.sessions.list_pods(&node.name).await {
                Ok(pods) => pods,
                Err(error) => {
                    let outcome = outcome_of(&error);
                    if let Outcome::Failed(why) = &outcome {
                        self.report_unreadable(node, session, why).await;
                    }
                    return outcome;
                }
            };
            let pods: Vec<&PodView> = pods.iter().collect();
            let plan = drain::plan_within(self.limit(node), node, &pods, &[], &session.state, now().0);
            if plan.waiting.is_empty() {
                return self.carry_out(node, session, plan).await;
            }
        }
        if draining {
            let pods = session.pods.get_or_insert_with(|| self.sessions.watch_pods(&node.name)).clone();
            let budgets = session.budgets.get_or_insert_with(|| self.sessions.watch_budgets()).clone();
            let listed = async { tokio::join!(pods.store.synced(), budgets.store.synced()) };
            if tokio::time::timeout(FIRST_LIST, listed).await.is_err() {
                if let Some(why) = pods.store.trouble().or_else(|| budgets.store.trouble()) {
                    self.report_unreadable(node, session, &why).await;
                }
                // The first list may be empty, and an empty list marks nothing.
                return Outcome::After(FIRST_LIST);
            }
        }
        let pods = session.pods.as_ref().map(|w| w.store.all()).unwrap_or_default();
        let budgets = session.budgets.as_ref().map(|w| w.store.all()).unwrap_or_default();
        let pods: Vec<&PodView> = pods.iter().map(AsRef::as_ref).collect();
        let budgets: Vec<&BudgetView> = budgets.iter().map(AsRef::as_ref).collect();
        let plan = drain::plan_within(self.limit(node), node, &pods, &budgets, &session.state, now().0);
        self.carry_out(node, session, plan).await
    }

    /// How long the node's drain may take.
    fn limit(&self, node: &NodeView) -> Option<DrainLimit> {
        let limits = self.shared.drain_limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.get(&node.name).copied()
    }

    /// The node's pods or budgets cannot be read: the node reports that, and no pod is evicted.
    async fn report_unreadable(&self, node: &NodeView, session: &mut Session, why: &str) {
        let plan = drain::plan_unreadable(node, &session.state, why, now().0);
        self.carry_out(node, session, plan).await;
    }

    async fn carry_out(&self, node: &NodeView, session: &mut Session, plan: DrainPlan) -> Outcome {
        tracing::debug!("{plan}");
        if plan.refused != session.refused {
            if let Some(why) = &plan.refused {
                tracing::warn!(node = %node.name, "{why}");
            }
            session.refused.clone_from(&plan.refused);
        }
        if let Some(patch) = &plan.patch
            && let Err(error) = self.send(&node.name, patch).await
        {
            // A conflict passes by itself. One that lasts is reported like any other refusal.
            let words = self.shared.troubles.due_message(&failure_key(&node.name), &error);
            let outcome = match words {
                Some(words) => Outcome::Failed(words),
                None => outcome_of(&error),
            };
            if let Outcome::Failed(why) = &outcome {
                let text = format!("Node {} cannot be updated for its drain: {why}", node.name);
                self.report_problem(&node.name, Some(text));
                if let Some(step) = plan.progress_when_refused(why) {
                    machine_config_nodes::report_step(&self.shared, node, &step).await;
                }
            }
            return outcome;
        }
        self.shared.troubles.resolved(&failure_key(&node.name));
        self.report_problem(&node.name, plan.over.clone());
        session.state = plan.state;
        for event in &plan.events {
            let about = node_reference(&node.name);
            self.shared.events.publish(Source::Node, about, event.reason, event.message.clone());
        }
        self.count(node, plan.late);
        self.shared.metrics.drain_waits.set(&node.name, !plan.waiting.is_empty());
        if let Some(step) = &plan.progress {
            machine_config_nodes::report_step(&self.shared, node, step).await;
        }
        let api = self.shared.client.clone();
        let evictions = plan.evict.into_iter().map(|pod| {
            let api = Api::<WholePod>::namespaced(api.clone(), &pod.namespace);
            async move {
                let answer = evict(&api, &pod).await;
                (pod, answer)
            }
        });
        let mut evictions = futures::stream::iter(evictions).buffer_unordered(IN_FLIGHT);
        let mut again = false;
        while let Some((pod, answer)) = evictions.next().await {
            match &answer {
                Answer::Accepted => tracing::info!(node = %node.name, "evicted {pod}"),
                Answer::Gone => {}
                Answer::Blocked(why) => tracing::debug!(node = %node.name, "{pod} stays for now: {why}"),
                Answer::Failed(why) => tracing::warn!(node = %node.name, "eviction of {pod} failed: {why}"),
            }
            session.state.record(&pod.uid, answer, now().0);
            again = true;
        }
        if again {
            // The answers lead to another plan, and that plan knows the time of the next try.
            return Outcome::After(Duration::ZERO);
        }
        match plan.recheck {
            Some(wait) => Outcome::After(wait.try_into().unwrap_or_default()),
            None => Outcome::Done,
        }
    }

    /// Sends the node's patch. Its outcome affects no decision about other nodes.
    async fn send(&self, node: &str, patch: &NodePatch) -> Result<(), CallError> {
        let place = self.shared.permits.take(PatchOf::Drain, &self.shared.terms);
        let waits = || {
            format!(
                "{PATCHES_IN_FLIGHT} updates of other nodes for their drains have no answer from the API server, and this one waits \
                 for them"
            )
        };
        let place = self.reporting(node, waits, place).await;
        let hangs = || {
            "the API server does not answer; the update is sent again until it does. If it answers other requests, look for an \
             admission webhook that hangs"
                .to_owned()
        };
        self.reporting(node, hangs, send(&*self.shared, &place, patch)).await
    }

    /// Waits for a part of the node's update. If it takes longer than [`PATIENCE`], the node's pool reports why, and the wait
    /// goes on.
    async fn reporting<T>(
        &self,
        node: &str,
        why: impl FnOnce() -> String,
        part: impl Future<Output = T>,
    ) -> T {
        let mut part = pin!(part);
        if let Ok(done) = tokio::time::timeout(PATIENCE, &mut part).await {
            return done;
        }
        self.report_problem(node, Some(format!("Node {node} cannot be updated for its drain: {}", why())));
        part.await
    }

    /// Sets what the node's pool reports about its drain.
    fn report_problem(&self, node: &str, text: Option<String>) {
        self.shared.report_problem(Topic::Drain, TroubleOf::Node(node.into()), text);
    }

    fn end(&self, name: &str) -> bool {
        self.shared.troubles.resolved(&failure_key(name));
        self.report_problem(name, None);
        let ended = self.sessions.take(name);
        self.shared.metrics.drain_err.remove(&labels::Node { node: name.to_owned() });
        self.shared.metrics.drain_waits.set(name, false);
        ended.is_some()
    }

    fn count(&self, node: &NodeView, late: bool) {
        let labels = labels::Node { node: node.name.to_string() };
        if late {
            self.shared.metrics.drain_err.get_or_create(&labels).set(1);
        } else {
            self.shared.metrics.drain_err.remove(&labels);
        }
    }
}

/// The key of a node's patch in [`crate::flight::refusals::CurrentFailures`].
fn failure_key(node: &str) -> String {
    format!("drain {node}")
}

fn outcome_of(error: &CallError) -> Outcome {
    if error.is_conflict() || error.is_not_found() { Outcome::Stale } else { Outcome::Failed(error.chain()) }
}

/// Evicts one pod, with a precondition on its UID.
async fn evict(api: &Api<WholePod>, pod: &Evict) -> Answer {
    let params = EvictParams {
        delete_options: Some(DeleteParams {
            grace_period_seconds: pod.grace.and_then(|g| u32::try_from(g).ok()),
            preconditions: Some(Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }),
            ..DeleteParams::default()
        }),
        ..EvictParams::default()
    };
    let request = async {
        match (pod.past_budget, params.delete_options.as_ref()) {
            (true, Some(options)) => api.delete(&pod.name, options).await.map(drop),
            _ => api.evict(&pod.name, &params).await.map(drop),
        }
    };
    let Err(error) = call(|| format!("evict pod {}", pod.name), request).await else {
        return Answer::Accepted;
    };
    match error.status() {
        Some(status) if pod.past_budget && error.is_forbidden() => Answer::Failed(format!(
            "its budget does not allow it, and the controller may not delete it; give its service account the right to delete \
             pods: {}",
            status.message
        )),
        Some(status) => Answer::from_status(status.code, &status.message),
        None => Answer::Failed(error.chain()),
    }
}

#[cfg(test)]
mod tests;
