//! Keeps the shared picture up to date: watches in, pictures out. A cluster that cannot be followed is asked again, and the
//! page says why meanwhile.
//!
//! What it is not: what a picture is.

use crate::feed::Feed;
use crate::picture::{Masker, Picture};
use crate::record::{Record, Seen};
use client::Backoff;
use insight::{ClusterWatch, Snapshot};
use kube::Client;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Changes are gathered for this long: well below what a person sees as a delay, and a thousand changes a second become ten
/// messages.
const GATHER: Duration = Duration::from_millis(100);
/// Times pass without a change in the cluster: soak times and windows end.
const TICK: Duration = Duration::from_secs(5);
/// When a cluster that could not be followed is asked again.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_secs(30) };

/// Runs until `stop`.
pub(crate) async fn run(
    client: Client,
    feed: Arc<Feed>,
    record: Arc<Mutex<Record>>,
    stop: CancellationToken,
) {
    let mut misses = 0;
    while !stop.is_cancelled() {
        let started = tokio::select! {
            () = stop.cancelled() => return,
            started = ClusterWatch::start(&client) => started,
        };
        match started {
            Ok(cluster) => return follow(cluster, &feed, &record, &stop).await,
            Err(error) => feed.trouble(&client::chain(&error)),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN.delay(misses)) => misses += 1,
        }
    }
}

async fn follow(mut cluster: ClusterWatch, feed: &Feed, record: &Mutex<Record>, stop: &CancellationToken) {
    let mut masker = Masker::default();
    loop {
        let snapshot = cluster.snapshot(&[]);
        note(&cluster, &snapshot, record);
        let zone = |node: &str| cluster.zone(node);
        feed.put(Picture::of(snapshot, zone, cluster.trouble().as_deref(), &mut masker));
        tokio::select! {
            () = stop.cancelled() => return,
            // A tick without a change: what depends on the time is looked at again.
            _ = tokio::time::timeout(TICK, cluster.changed_within(GATHER)) => {}
        }
    }
}

/// Notes how far each node's update is, and forgets pools and nodes that are gone.
fn note(cluster: &ClusterWatch, snapshot: &Snapshot, record: &Mutex<Record>) {
    let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
    for pool in &snapshot.pools {
        for row in &pool.nodes {
            if let Some(Some(progress)) = cluster.progress().get(&row.name) {
                record.note(Seen { pool: &pool.name, node: &row.name, desired: &row.desired, progress });
            }
        }
    }
    let pools = snapshot.pools.iter().map(|pool| &*pool.name).collect();
    record.retain(&pools, |node| cluster.progress().contains_key(node));
}
