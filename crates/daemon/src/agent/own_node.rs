//! How the agent takes in its own Node: from the watch, from the API server's answers to its writes, and from a
//! cluster that was restored to an earlier state.
//!
//! Not here: the watch itself (`cluster::node_watch`).

use super::{Agent, Next, WATCH_CATCHES_UP};
use crate::protocol::clock::Moment;
use crate::protocol::{NodeFacts, Phase};
use api::k8s::Node;
use std::time::Instant;

/// How long a kubelet may take to register its Node before the node name is reported as possibly wrong, and how often
/// that is repeated.
const NODE_IS_REGISTERED: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);
const ABSENCE_IS_TOLD_AGAIN: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

impl Agent {
    /// Takes in the newest Node from the watch, unless the answer to one of our patches was newer.
    pub(super) fn take_watched_node(&mut self) {
        if let Some(trouble) = &mut self.settings.trouble {
            self.view.trouble.clone_from(&trouble.borrow_and_update());
        }
        let newest =
            self.updates.borrow_and_update().clone().filter(|f| f.resource_version != self.watched_version);
        let Some(facts) = newest else { return };
        self.watched_version.clone_from(&facts.resource_version);
        if is_older(&facts, &self.view.node) {
            self.behind_since.get_or_insert_with(Instant::now);
            return;
        }
        self.take_node(facts);
    }

    /// Reads the Node if the watch stays behind the API server's last answer. No write of ours is in progress
    /// meanwhile, so the answer is the truth, whatever its version.
    pub(super) async fn ask_when_behind(&mut self) {
        if self.behind_since.is_none_or(|since| since.elapsed() < WATCH_CATCHES_UP) {
            return;
        }
        match self.cluster.own_node().await {
            Ok(node) => {
                let facts = NodeFacts::of(&node);
                if is_older(&facts, &self.view.node) {
                    tracing::warn!(
                        had = %self.view.node.resource_version,
                        has = %facts.resource_version,
                        "the cluster's Node is older than the one seen before: etcd was restored; continuing from it"
                    );
                }
                self.take_node(facts);
            }
            Err(error) => {
                let error = error.chain();
                tracing::warn!(
                    error,
                    "the watch shows an older Node than before, but the Node cannot be read"
                );
                self.behind_since = Some(Instant::now());
            }
        }
    }

    /// Waits while the cluster has no Node of this name. A kubelet registers its Node within seconds. After a while
    /// the name may be wrong, which is reported from time to time.
    pub(super) async fn wait_for_node(&mut self, until: Option<Moment>) -> Next {
        let now = Moment::now();
        let mut tell_at = *self.tell_absence_at.get_or_insert(now + NODE_IS_REGISTERED);
        if now >= tell_at {
            // A watch that has not started yet shows no Node either.
            match self.cluster.own_node().await {
                Err(error) if error.is_not_found() => self.doubt_name(),
                Err(error) => tracing::warn!(error = error.chain(), "the Node cannot be read; trying again"),
                Ok(_) => {}
            }
            tell_at = now + ABSENCE_IS_TOLD_AGAIN;
            self.tell_absence_at = Some(tell_at);
        }
        Next::Wait(Some(until.map_or(tell_at, |until| until.min(tell_at))))
    }

    pub(super) fn doubt_name(&self) {
        tracing::warn!(
            "the cluster has no Node {name}: if `kubectl get nodes` shows this machine under another name, \
             start the agent with --node-name (or NODE_NAME) set to that name; otherwise check that the kubelet runs",
            name = self.cluster.node(),
        );
    }

    /// Takes a Node as the current state.
    pub(super) fn take_node(&mut self, facts: NodeFacts) {
        self.behind_since = None;
        if !self.view.node.seen {
            self.view.silent_since = None;
        }
        // An annotation that was there before this process began is not a new request.
        let asked = facts.asks_again(&self.view.node);
        self.view.node = facts;
        if asked && let Phase::Failed(failure) = &mut self.view.phase {
            tracing::info!(job = ?failure.job, "asked to try again now");
            failure.retry_at = Moment::now();
        }
        if self.machine.set_rules(&self.view.node.drift) && self.ever_checked {
            self.look_again();
        }
    }

    pub(super) fn take_answer(&mut self, node: &Node) {
        self.failed_calls = 0;
        self.view.silent_since = None;
        self.take_node(NodeFacts::of(node));
    }
}

/// Whether this is the same object at an earlier version.
fn is_older(facts: &NodeFacts, than: &NodeFacts) -> bool {
    let version = |f: &NodeFacts| f.resource_version.parse::<u64>().ok();
    facts.uid == than.uid && version(facts).zip(version(than)).is_some_and(|(new, old)| new < old)
}
