//! Keeps the shared fleet up to date from watches. A cluster that cannot be followed is asked again, and the
//! page says why meanwhile.
//!
//! What it is not: what is shown of the fleet (see `snapshot`).

use crate::fleet::feed::Feed;
use crate::fleet::node_events::NodeEvents;
use crate::fleet::snapshot::{Cell, Fleet, Masker};
use crate::fleet::timeline::{NodeProgress, Timeline};
use crate::response;
use client::Backoff;
use insight::ClusterWatch;
use kube::Client;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The fleet is sent at most this often: well below what a person sees as a delay, and a thousand changes a second become twenty
/// messages.
const APART: Duration = Duration::from_millis(50);
/// A change after a while without one is shown at once, with those that come within this time.
const GATHER: Duration = Duration::from_millis(10);
/// Times pass without a change in the cluster: soak times and windows end.
const TICK: Duration = Duration::from_secs(5);
/// When a cluster that could not be followed is asked again.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_secs(30) };
/// When it is asked whether kinds that could not be read can be read by now. That is some small requests.
const ASK_ANEW: Backoff = Backoff { first: Duration::from_secs(60), last: Duration::from_secs(10 * 60) };

/// Runs until `stop`.
pub(crate) async fn run(
    client: Client,
    feed: Arc<Feed>,
    timeline: Arc<Mutex<Timeline>>,
    events: Arc<NodeEvents>,
    stop: CancellationToken,
) {
    let mut misses = 0;
    while !stop.is_cancelled() {
        let started = tokio::select! {
            () = stop.cancelled() => return,
            started = ClusterWatch::start(&client) => started,
        };
        match started {
            Ok(cluster) => return follow(cluster, &client, &feed, &timeline, &events, &stop).await,
            Err(error) => feed.trouble(&response::shown_error(&error)),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN.delay(misses)) => misses += 1,
        }
    }
}

async fn follow(
    mut cluster: ClusterWatch,
    client: &Client,
    feed: &Feed,
    timeline: &Mutex<Timeline>,
    events: &NodeEvents,
    stop: &CancellationToken,
) {
    let mut masker = Masker::default();
    let mut troubled = false;
    let mut misses = 0;
    let mut anew = Box::pin(later(ASK_ANEW.delay(misses), cluster.restart_if_more_readable(client)));
    loop {
        let begun = Instant::now();
        let zone = |node: &str| cluster.zone(node);
        let snapshot = cluster.snapshot(&[]);
        if std::mem::replace(&mut troubled, snapshot.trouble.is_some()) && !troubled {
            events.read_again();
        }
        let fleet = Arc::new(Fleet::of(snapshot, zone, &mut masker));
        feed.put(Arc::clone(&fleet));
        // Nobody waits for this one.
        note(&cluster, &fleet, timeline);
        drop(fleet);
        let took = begun.elapsed();
        tokio::select! {
            () = stop.cancelled() => return,
            more = &mut anew => {
                if let Some(more) = more {
                    cluster = more;
                }
                // Never sooner again: all lists are read anew where an API server answers in time by turns.
                misses = misses.saturating_add(1);
                anew.set(later(ASK_ANEW.delay(misses), cluster.restart_if_more_readable(client)));
            }
            // A tick without a change: what depends on the time is looked at again.
            _ = tokio::time::timeout(TICK, cluster.changed_until(|now| gathered(now, begun, took))) => {}
        }
    }
}

async fn later<T>(wait: Duration, what: impl Future<Output = T>) -> T {
    tokio::time::sleep(wait).await;
    what.await
}

/// Until when the changes are gathered that come with one at `now`. An update that takes long is followed by a rest half as long, so
/// that a fleet of any size leaves a third of a processor.
fn gathered(now: Instant, begun: Instant, took: Duration) -> Instant {
    (now + GATHER).max(begun + APART.max(took + took / 2))
}

/// Notes how far each node's update is, and forgets pools and nodes that are gone.
fn note(cluster: &ClusterWatch, fleet: &Fleet, timeline: &Mutex<Timeline>) {
    let mut timeline = timeline.lock().unwrap_or_else(PoisonError::into_inner);
    for Cell { pool, zone: _, row } in fleet.nodes.values() {
        if let Some(Some(progress)) = cluster.progress().get(&row.name) {
            let waits_for = cluster.drain_wait(&row.name);
            timeline.note(NodeProgress { pool, node: &row.name, desired: &row.desired, progress, waits_for });
        }
    }
    let pools = fleet.pools.keys().map(String::as_str).collect();
    timeline.retain(&pools, |node| cluster.progress().contains_key(node));
}

#[cfg(test)]
mod tests;
