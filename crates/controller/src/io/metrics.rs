//! Metrics: one struct on a registry that is passed in. Names and labels are part of the interface, because dashboards
//! and alerts use them. Metrics that the reference implementation has too are named as there.
//!
//! What it is not: their documentation for operators. `cargo xtask gen` makes the page of the book from the texts here.

use super::certificate_metrics::BundleEnds;
use super::image_metrics::ImageMetrics;
use super::labels::{Node, Pool, PoolState};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// `node`, `pool`, `state`, `reason`: words of [`rollout::Step::words`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct State {
    pub(crate) node: String,
    pub(crate) pool: String,
    pub(crate) state: String,
    pub(crate) reason: String,
}

/// `name`, as client-go labels its work queues.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct QueueName {
    pub(crate) name: &'static str,
}

/// From a tenth of a millisecond to a minute and three quarters.
fn latencies() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 4.0, 11))
}

/// Since when each node's drain waits for a pod. Computed in seconds when the metric is read, so that it grows without
/// a write.
#[derive(Debug, Clone, Default)]
pub(crate) struct DrainWaits(Arc<Mutex<BTreeMap<String, Instant>>>);

impl DrainWaits {
    /// Records whether the node's drain waits.
    pub(crate) fn set(&self, node: &str, waits: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !waits {
            all.remove(node);
        } else if !all.contains_key(node) {
            all.insert(node.to_owned(), Instant::now());
        }
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Collector for DrainWaits {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut family = encoder.encode_descriptor(
            "mcc_drain_blocked_seconds",
            "How long the drain of a node has been waiting for pods",
            None,
            MetricType::Gauge,
        )?;
        for (node, since) in all {
            let gauge = ConstGauge::new(since.elapsed().as_secs_f64());
            gauge.encode(family.encode_family(&Node { node })?)?;
        }
        Ok(())
    }
}

/// `subcontroller`, `state`, `object`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PassLabels {
    pub(crate) subcontroller: String,
    pub(crate) state: String,
    pub(crate) object: String,
}

/// `queue`, `outcome` (`done`, `stale`, `again`, `failed`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Pass {
    pub(crate) queue: String,
    pub(crate) outcome: String,
}

/// All metrics.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) state: Family<State, Gauge>,
    pub(crate) rollout_nodes: Family<PoolState, Gauge>,
    pub(crate) rollout_held: Family<Pool, Gauge>,
    pub(crate) drain_waits: DrainWaits,
    pub(crate) bundle_ends: BundleEnds,
    pub(crate) boot_image_skew: Gauge,
    pub(crate) queue_latency: Family<QueueName, Histogram, fn() -> Histogram>,
    pub(crate) work_duration: Family<QueueName, Histogram, fn() -> Histogram>,
    pub(crate) machine_count: Family<Pool, Gauge>,
    pub(crate) updated_machine_count: Family<Pool, Gauge>,
    pub(crate) degraded_machine_count: Family<Pool, Gauge>,
    pub(crate) unavailable_machine_count: Family<Pool, Gauge>,
    pub(crate) os_image_url_override: Family<Pool, Gauge>,
    pub(crate) pool_alert: Family<Node, Gauge>,
    pub(crate) drain_err: Family<Node, Gauge>,
    pub(crate) sub_controller_state: Family<PassLabels, Gauge>,
    pub(crate) passes: Family<Pass, Counter>,
    pub(crate) leader: Gauge,
    pub(crate) images: ImageMetrics,
}

impl Metrics {
    /// Creates and registers all metrics.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let m = Self {
            state: Family::default(),
            rollout_nodes: Family::default(),
            rollout_held: Family::default(),
            drain_waits: DrainWaits::default(),
            bundle_ends: BundleEnds::default(),
            boot_image_skew: Gauge::default(),
            queue_latency: Family::new_with_constructor(latencies as fn() -> Histogram),
            work_duration: Family::new_with_constructor(latencies as fn() -> Histogram),
            machine_count: Family::default(),
            updated_machine_count: Family::default(),
            degraded_machine_count: Family::default(),
            unavailable_machine_count: Family::default(),
            os_image_url_override: Family::default(),
            pool_alert: Family::default(),
            drain_err: Family::default(),
            sub_controller_state: Family::default(),
            passes: Family::default(),
            leader: Gauge::default(),
            images: ImageMetrics::new(registry),
        };
        let Self {
            state,
            rollout_nodes,
            rollout_held,
            drain_waits,
            bundle_ends,
            boot_image_skew,
            queue_latency,
            work_duration,
            machine_count,
            updated_machine_count,
            degraded_machine_count,
            unavailable_machine_count,
            os_image_url_override,
            pool_alert,
            drain_err,
            sub_controller_state,
            passes,
            leader,
            images: _,
        } = &m;
        registry.register("mco_machine_count", "Nodes in a pool", machine_count.clone());
        registry.register(
            "mco_updated_machine_count",
            "Nodes of a pool that are in its config",
            updated_machine_count.clone(),
        );
        registry.register(
            "mco_degraded_machine_count",
            "Nodes of a pool that report Degraded or Unreconcilable",
            degraded_machine_count.clone(),
        );
        registry.register(
            "mco_unavailable_machine_count",
            "Nodes of a pool that are not ready or are being updated",
            unavailable_machine_count.clone(),
        );
        registry.register(
            "os_image_url_override",
            "1 when a MachineConfig of the pool overrides the default OS image",
            os_image_url_override.clone(),
        );
        registry.register(
            "mcc_pool_alert",
            "1 for a node of pool master that a custom pool selects too",
            pool_alert.clone(),
        );
        registry.register(
            "mcc_drain_err",
            "1 for a node whose drain has lasted for more than an hour",
            drain_err.clone(),
        );
        registry.register(
            "mcc_sub_controller_state",
            "Unix time at which a pass of the controller last succeeded for an object",
            sub_controller_state.clone(),
        );
        registry.register("mcc_passes", "Passes over work queues by outcome", passes.clone());
        registry.register(
            "mco_state",
            "Unix time at which a node entered its phase of its pool's rollout",
            state.clone(),
        );
        registry.register(
            "mcc_rollout_nodes",
            "Nodes of a pool by their phase of its rollout",
            rollout_nodes.clone(),
        );
        registry.register(
            "mcc_rollout_held",
            "1 while no node of a pool is given a new config, for example because it is paused",
            rollout_held.clone(),
        );
        registry.register_collector(Box::new(drain_waits.clone()));
        registry.register_collector(Box::new(bundle_ends.clone()));
        registry.register(
            "mcc_boot_image_skew_enforcement_none",
            "1 while boot images may be outdated and their age is not checked",
            boot_image_skew.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long a key waits in a queue before it is processed",
            queue_latency.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long processing a key takes",
            work_duration.clone(),
        );
        registry.register(
            "mcc_leader",
            "1 while this process holds the lease and acts, 0 while it stands \
            by",
            leader.clone(),
        );
        m
    }

    /// Records that a key was worked on: how long it had waited, and how long the pass took.
    pub(crate) fn record_pass(&self, name: &'static str, waited: Duration, took: Duration) {
        let labels = QueueName { name };
        self.queue_latency.get_or_create(&labels).observe(waited.as_secs_f64());
        self.work_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A part of the controller succeeded on an object.
    pub(crate) fn success(&self, subcontroller: &str, state: &str, object: &str, now: jiff::Timestamp) {
        let labels = PassLabels {
            subcontroller: subcontroller.to_owned(),
            state: state.to_owned(),
            object: object.to_owned(),
        };
        self.sub_controller_state.get_or_create(&labels).set(now.as_second());
    }

    /// Clears what this process reported about pools and nodes when it stops leading: that is up to the next leader.
    /// Counters stay.
    pub(crate) fn clear_for_standby(&self) {
        let Self {
            state,
            rollout_nodes,
            rollout_held,
            drain_waits,
            bundle_ends,
            boot_image_skew,
            queue_latency: _,
            work_duration: _,
            machine_count,
            updated_machine_count,
            degraded_machine_count,
            unavailable_machine_count,
            os_image_url_override,
            pool_alert,
            drain_err,
            sub_controller_state,
            passes: _,
            leader,
            images,
        } = self;
        state.clear();
        rollout_nodes.clear();
        sub_controller_state.clear();
        for family in [pool_alert, drain_err] {
            family.clear();
        }
        for family in [
            rollout_held,
            machine_count,
            updated_machine_count,
            degraded_machine_count,
            unavailable_machine_count,
            os_image_url_override,
        ] {
            family.clear();
        }
        drain_waits.clear();
        bundle_ends.clear();
        boot_image_skew.set(0);
        leader.set(0);
        images.clear_for_standby();
    }

    /// Removes the series of a pool that is gone.
    pub(crate) fn forget_pool(&self, pool: &str) {
        let labels = Pool { pool: pool.to_owned() };
        for family in [
            &self.machine_count,
            &self.updated_machine_count,
            &self.degraded_machine_count,
            &self.unavailable_machine_count,
            &self.os_image_url_override,
            &self.rollout_held,
        ] {
            family.remove(&labels);
        }
        for state in rollout::Step::STATES {
            self.rollout_nodes.remove(&PoolState { pool: pool.to_owned(), state: state.to_owned() });
        }
        self.images.nodes(pool, None);
        self.images.forget_builds(pool);
    }

    /// Removes the series of a node that is gone.
    pub(crate) fn forget_node(&self, node: &str) {
        let labels = Node { node: node.to_owned() };
        self.pool_alert.remove(&labels);
        self.drain_err.remove(&labels);
        self.drain_waits.set(node, false);
    }
}

/// Every metric with one series, in OpenMetrics' text format: what the reference in the book is made from.
///
/// # Errors
/// A name or label that the format cannot hold.
pub fn metrics_sample() -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    let none = String::new;
    // Destructured, so that a new metric cannot be left out.
    let Metrics {
        state,
        rollout_nodes,
        rollout_held,
        drain_waits,
        bundle_ends,
        boot_image_skew: _,
        queue_latency,
        work_duration,
        machine_count,
        updated_machine_count,
        degraded_machine_count,
        unavailable_machine_count,
        os_image_url_override,
        pool_alert,
        drain_err,
        sub_controller_state,
        passes,
        leader: _,
        images,
    } = Metrics::new(&mut registry);
    images.sample();
    bundle_ends.sample();
    drop(state.get_or_create(&State { node: none(), pool: none(), state: none(), reason: none() }));
    drop(rollout_nodes.get_or_create(&PoolState { pool: none(), state: none() }));
    for by_pool in [
        rollout_held,
        machine_count,
        updated_machine_count,
        degraded_machine_count,
        unavailable_machine_count,
        os_image_url_override,
    ] {
        drop(by_pool.get_or_create(&Pool { pool: none() }));
    }
    for by_node in [pool_alert, drain_err] {
        drop(by_node.get_or_create(&Node { node: none() }));
    }
    drain_waits.set("", true);
    for by_queue in [queue_latency, work_duration] {
        drop(by_queue.get_or_create(&QueueName { name: "" }));
    }
    drop(sub_controller_state.get_or_create(&PassLabels {
        subcontroller: none(),
        state: none(),
        object: none(),
    }));
    drop(passes.get_or_create(&Pass { queue: none(), outcome: none() }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests;
