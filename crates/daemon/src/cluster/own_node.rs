//! The agent's own Node: a watch of that one object, reduced on arrival to the fields that the agent uses, and which state
//! of it counts if the watch and the API server's answers differ.
//!
//! This is not a cache. Only the newest state is kept, so a slow reader skips the states in between. That is intended.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

use crate::cluster::calls::Cluster;
use crate::protocol::NodeFacts;
use crate::protocol::clock::Moment;
use api::k8s::Node;
use client::Backoff;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The updates of the agent's own Node. `None`: there is no such Node.
pub type NodeUpdates = watch::Receiver<Option<NodeFacts>>;

/// The first and the longest wait after the watch broke. The library's own back-off goes beyond a minute: an agent
/// would see no change for that long after the API server is back. Half of each wait is random.
const WAITS: Backoff = Backoff { first: Duration::from_millis(500), last: Duration::from_secs(8) };

/// How long the watch may show an older Node than the API server's last answer. Events normally arrive some hundredths
/// of a second after the answer. If they do not arrive within this time, etcd may have been restored from a backup,
/// and the agent reads the Node.
const WATCH_CATCHES_UP: Duration = Duration::from_secs(5);
/// How long a kubelet may take to register its Node before the node name is reported as possibly wrong, and how often
/// that is repeated.
const NODE_IS_REGISTERED: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);
const ABSENCE_IS_TOLD_AGAIN: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

/// The agent's own Node: what the watch shows, compared with the API server's answers to the agent's own writes. These may
/// be newer than the watch; and a cluster that was restored to an earlier state has an older Node than the one known.
#[derive(Debug)]
pub(crate) struct OwnNode {
    updates: NodeUpdates,
    /// The resource version of the watch's newest Node when it was last read.
    watched_version: String,
    /// Since when the watch has shown an older Node than the API server's last answer.
    behind_since: Option<Instant>,
    /// When to report, or report again, that the cluster has no such Node.
    tell_absence_at: Option<Moment>,
}

impl OwnNode {
    pub(crate) fn new(updates: NodeUpdates) -> Self {
        Self { updates, watched_version: String::new(), behind_since: None, tell_absence_at: None }
    }

    /// The newest Node from the watch, if it is news, and not older than the one that is known.
    pub(crate) fn newest(&mut self, known: &NodeFacts) -> Option<NodeFacts> {
        let newest = self.updates.borrow_and_update().clone();
        let facts = newest.filter(|f| f.resource_version != self.watched_version)?;
        self.watched_version.clone_from(&facts.resource_version);
        if is_older(&facts, known) {
            self.behind_since.get_or_insert_with(Instant::now);
            return None;
        }
        Some(facts)
    }

    /// Reads the Node if the watch stays behind the API server's last answer. No write of ours is in progress
    /// meanwhile, so the answer is the truth, whatever its version.
    pub(crate) async fn read_when_behind(
        &mut self,
        cluster: &Cluster,
        known: &NodeFacts,
    ) -> Option<NodeFacts> {
        if self.behind_since.is_none_or(|since| since.elapsed() < WATCH_CATCHES_UP) {
            return None;
        }
        match cluster.own_node().await {
            Ok(node) => {
                let facts = NodeFacts::of(&node);
                if is_older(&facts, known) {
                    tracing::warn!(
                        had = %known.resource_version,
                        has = %facts.resource_version,
                        "the cluster's Node is older than the one seen before: etcd was restored; continuing from it"
                    );
                }
                Some(facts)
            }
            Err(error) => {
                let error = error.chain();
                tracing::warn!(
                    error,
                    "the watch shows an older Node than before, but the Node cannot be read"
                );
                self.behind_since = Some(Instant::now());
                None
            }
        }
    }

    /// The Node that is known is the current one, from wherever it came.
    pub(crate) fn caught_up(&mut self) {
        self.behind_since = None;
    }

    /// How long until the Node is read if the watch stays behind. `None`: it is not behind.
    pub(crate) fn time_until_read(&self) -> Option<Duration> {
        self.behind_since.map(|since| WATCH_CATCHES_UP.saturating_sub(since.elapsed()))
    }

    /// Waits for a change. False: the watch has ended, and none will come.
    pub(crate) async fn changed(&mut self) -> bool {
        self.updates.changed().await.is_ok()
    }

    /// Called while the cluster has no Node of this name; returns when to call it again. A kubelet registers its Node
    /// within seconds. After a while the name may be wrong, which is reported from time to time.
    pub(crate) async fn absent(&mut self, cluster: &Cluster) -> Moment {
        let now = Moment::now();
        let mut tell_at = *self.tell_absence_at.get_or_insert(now + NODE_IS_REGISTERED);
        if now >= tell_at {
            // A watch that has not started yet shows no Node either.
            match cluster.own_node().await {
                Err(error) if error.is_not_found() => tracing::warn!(
                    "the cluster has no Node {name}: if `kubectl get nodes` shows this machine under another name, \
                     start the agent with --node-name (or NODE_NAME) set to that name; otherwise check that the kubelet runs",
                    name = cluster.node_name(),
                ),
                Err(error) => tracing::warn!(error = error.chain(), "the Node cannot be read; trying again"),
                Ok(_) => {}
            }
            tell_at = now + ABSENCE_IS_TOLD_AGAIN;
            self.tell_absence_at = Some(tell_at);
        }
        tell_at
    }
}

/// Whether this is the same object at an earlier version.
fn is_older(facts: &NodeFacts, than: &NodeFacts) -> bool {
    let version = |f: &NodeFacts| f.resource_version.parse::<u64>().ok();
    facts.uid == than.uid && version(facts).zip(version(than)).is_some_and(|(new, old)| new < old)
}

/// A watch of one object that starts with a new list whenever it breaks. The library resumes a broken watch at the
/// version where it broke. If etcd was restored from a backup, the API server would then send nothing until it has
/// passed that version again.
pub(crate) fn watch_anew<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let begin = move || -> BoxStream<'static, _> { watcher(api.clone(), config.clone()).boxed() };
    let first = (begin(), None, WAITS.series());
    stream::unfold((first, begin), |((mut watch, broken, mut waits), begin)| async move {
        if let Some(wait) = broken {
            tokio::time::sleep(wait).await;
            watch = begin();
        }
        let event = watch.next().await?;
        let broken = if event.is_err() { waits.next() } else { None };
        Some((event, ((watch, broken, waits), begin)))
    })
}

/// Watches one Node until the guard is dropped.
pub(crate) fn watch_own_node(client: Client, name: &str) -> (NodeUpdates, DropGuard) {
    let (sender, updates) = watch::channel(None);
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    let name = name.to_owned();
    tokio::spawn(async move { stop.run_until_cancelled(follow(client, name, sender)).await });
    (updates, guard)
}

async fn follow(client: Client, name: String, sender: watch::Sender<Option<NodeFacts>>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watch_anew(Api::<Node>::all(client), config));
    let mut seen_in_list = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => seen_in_list = false,
            Ok(watcher::Event::InitApply(node) | watcher::Event::Apply(node)) => {
                seen_in_list = true;
                publish(&sender, Some(NodeFacts::of(&node)));
            }
            Ok(watcher::Event::InitDone) if !seen_in_list => publish(&sender, None),
            Ok(watcher::Event::InitDone) => {}
            Ok(watcher::Event::Delete(_)) => publish(&sender, None),
            Err(error) if client::watch_code(&error) == Some(403) => tracing::warn!(
                node = %name, error = client::chain(&error),
                "this agent may not watch the Node {name}: a node's own credentials give access to the Node \
                 of its own name only; set --node-name (or NODE_NAME) to the name that the kubelet registered"
            ),
            Err(error) => {
                tracing::warn!(node = %name, error = client::chain(&error), "watching the Node; trying again");
            }
        }
    }
}

/// Publishes a Node if it differs. Heartbeats change none of the fields that are used, so they do not wake the agent.
fn publish(sender: &watch::Sender<Option<NodeFacts>>, new: Option<NodeFacts>) {
    sender.send_if_modified(|old| {
        let same = match (old.as_ref(), new.as_ref()) {
            (Some(o), Some(n)) => {
                NodeFacts { resource_version: n.resource_version.clone(), heard: n.heard, ..o.clone() } == *n
            }
            (None, None) => true,
            _ => false,
        };
        *old = new;
        !same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_watch_resumes_within_seconds_after_an_outage_of_any_length() {
        let waits: Vec<Duration> = WAITS.series().take(40).collect();
        assert!(waits.iter().all(|w| *w <= WAITS.last), "{waits:?}");
        assert!(
            waits.iter().take(1).all(|w| *w <= WAITS.first)
                && waits.iter().skip(6).all(|w| *w >= WAITS.last / 2)
        );
    }
}
