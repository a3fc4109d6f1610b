//! Metrics: one struct on a registry that is passed in. Names and labels are part of the interface (dashboards and
//! alerts use them).

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// `pool`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Pool {
    pub(crate) pool: String,
}

/// `node`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Node {
    pub(crate) node: String,
}

/// `subcontroller`, `state`, `object`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Sub {
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

/// All of them.
#[derive(Debug, Default, Clone)]
pub(crate) struct Metrics {
    pub(crate) machine_count: Family<Pool, Gauge>,
    pub(crate) updated_machine_count: Family<Pool, Gauge>,
    pub(crate) degraded_machine_count: Family<Pool, Gauge>,
    pub(crate) unavailable_machine_count: Family<Pool, Gauge>,
    pub(crate) os_image_url_override: Family<Pool, Gauge>,
    pub(crate) pool_alert: Family<Node, Gauge>,
    pub(crate) drain_err: Family<Node, Gauge>,
    pub(crate) sub_controller_state: Family<Sub, Gauge>,
    pub(crate) passes: Family<Pass, Counter>,
    pub(crate) leader: Gauge,
}

impl Metrics {
    /// Made and registered.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let m = Self::default();
        let Self {
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
            "Nodes of a pool that are not ready or on their way",
            unavailable_machine_count.clone(),
        );
        registry.register(
            "os_image_url_override",
            "1 when a MachineConfig of the pool overrides the default OS image",
            os_image_url_override.clone(),
        );
        registry.register("mcc_pool_alert", "1 for a node whose pools are in conflict", pool_alert.clone());
        registry.register(
            "mcc_drain_err",
            "1 for a node whose drain has failed for more than an hour",
            drain_err.clone(),
        );
        registry.register(
            "mcc_sub_controller_state",
            "Unix time of the last success of a part of the controller on an object",
            sub_controller_state.clone(),
        );
        registry.register("mcc_passes", "Passes over work queues by outcome", passes.clone());
        registry.register("mcc_leader", "1 while this process acts, 0 while it stands by", leader.clone());
        m
    }

    /// A part of the controller succeeded on an object.
    pub(crate) fn success(&self, subcontroller: &str, state: &str, object: &str, now: jiff::Timestamp) {
        let labels = Sub {
            subcontroller: subcontroller.to_owned(),
            state: state.to_owned(),
            object: object.to_owned(),
        };
        self.sub_controller_state.get_or_create(&labels).set(now.as_second());
    }

    /// A pool is gone: so are its series.
    pub(crate) fn forget_pool(&self, pool: &str) {
        let labels = Pool { pool: pool.to_owned() };
        for family in [
            &self.machine_count,
            &self.updated_machine_count,
            &self.degraded_machine_count,
            &self.unavailable_machine_count,
            &self.os_image_url_override,
        ] {
            family.remove(&labels);
        }
    }

    /// A node is gone: so are its series.
    pub(crate) fn forget_node(&self, node: &str) {
        let labels = Node { node: node.to_owned() };
        self.pool_alert.remove(&labels);
        self.drain_err.remove(&labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_dashboards_use_are_written_out() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.machine_count.get_or_create(&Pool { pool: "worker".to_owned() }).set(3);
        metrics.drain_err.get_or_create(&Node { node: "n1".to_owned() }).set(1);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in ["mco_machine_count{pool=\"worker\"} 3", "mcc_drain_err{node=\"n1\"} 1"] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        metrics.forget_node("n1");
        text.clear();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(!text.contains("n1"), "{text}");
    }
}
