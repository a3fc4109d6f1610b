//! What the node pass reports besides writes to pools and Nodes: log lines and events, once for each piece of news, and
//! metrics.
//!
//! What it is not: the pools' conditions, which are a part of the plan.

use crate::io::clock::now;
use crate::io::events::{Source, node_reference};
use crate::io::image_metrics::ImageNodes;
use crate::io::{labels, metrics};
use crate::shared::Shared;
use api::events::ControllerEvent;
use api::topology::has_boot_images;
use api::v1::MachineConfigPool;
use rollout::{NoPool, RolloutPlan, Step};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// Pool, state and reason of a node.
type Standing = (Arc<str>, &'static str, &'static str);

/// What was reported already.
#[derive(Debug, Default)]
pub(super) struct Report {
    reported: Mutex<HashMap<Arc<str>, NoPool>>,
    /// Nodes that were reported because no pool vouches for where they booted, with that pool.
    unexpected: Mutex<BTreeSet<(Arc<str>, Arc<str>)>>,
    /// Nodes whose metric reports a conflict between pools.
    alerts: Mutex<BTreeSet<Arc<str>>>,
    /// What each node's metric reports: pool, state and reason.
    states: Mutex<HashMap<Arc<str>, Standing>>,
}

impl Report {
    /// Reports what a plan says; `pools` are those that it was made from.
    pub(super) fn report(&self, shared: &Shared, plan: &RolloutPlan, pools: &[Arc<MachineConfigPool>]) {
        self.report_unmanaged_nodes(plan);
        self.report_unexpected_first_boots(shared, plan);
        self.count(shared, plan, pools);
    }

    /// Reports nodes that no pool can own: once, and again when the reason changes.
    fn report_unmanaged_nodes(&self, plan: &RolloutPlan) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *reported);
        for unmanaged in &plan.unmanaged {
            reported.insert(unmanaged.node.clone(), unmanaged.why.clone());
            if before.get(&unmanaged.node) == Some(&unmanaged.why) {
                continue;
            }
            match &unmanaged.why {
                NoPool::NoMatch => {
                    tracing::debug!(node = %unmanaged.node, "no pool's nodeSelector matches; the node is left alone");
                }
                NoPool::NoDaemon => {
                    tracing::debug!(node = %unmanaged.node, "no role label, and no agent has reported; the node is left alone");
                }
                // The pools' conditions and events report it too; this line is for those who search the log for the
                // node.
                NoPool::SeveralCustom(pools) => tracing::warn!(
                    node = %unmanaged.node,
                    "matches the custom pools {}; left alone until its labels match one of them only",
                    pools.join(" and ")
                ),
            }
        }
    }

    /// Reports, once, nodes that get no labels because only their own Node says that they booted into another pool.
    fn report_unexpected_first_boots(&self, shared: &Shared, plan: &RolloutPlan) {
        let now: BTreeSet<_> = plan.pools.iter().flat_map(|p| p.unexpected.iter().cloned()).collect();
        let mut reported = self.unexpected.lock().unwrap_or_else(PoisonError::into_inner);
        for (node, pool) in now.difference(&reported) {
            let text = format!(
                "Node {node} says that it first booted into pool {pool}, which does not expect it, so it is not given that \
                pool's labels. If it belongs there, label it, or name it in the pool's annotation {}",
                api::names::annotation::FIRST_BOOT_NODES
            );
            tracing::warn!(%node, "{text}");
            let about = node_reference(node);
            shared.events.publish(Source::Node, about, ControllerEvent::FirstBootNotExpected, text);
        }
        *reported = now;
    }

    /// Updates the metrics of pools and of nodes that several pools want.
    fn count(&self, shared: &Shared, plan: &RolloutPlan, pools: &[Arc<MachineConfigPool>]) {
        let metrics = &shared.metrics;
        for (plan, pool) in plan.pools.iter().zip(pools) {
            let Some(status) = plan.status.as_ref().or(pool.status.as_ref()) else { continue };
            let labels = labels::Pool { pool: plan.pool.to_string() };
            for (family, value) in [
                (&metrics.machine_count, status.machine_count),
                (&metrics.updated_machine_count, status.updated_machine_count),
                (&metrics.degraded_machine_count, status.degraded_machine_count),
                (&metrics.unavailable_machine_count, status.unavailable_machine_count),
            ] {
                family.get_or_create(&labels).set(value.into());
            }
        }
        count_images(shared, plan, pools);
        self.count_steps(shared, plan);
        let stores = &shared.stores;
        let unwatched = stores.boot_image_skew.get(api::names::CLUSTER).is_some_and(|none| *none);
        // On clusters without an Infrastructure of their own nobody provides boot images, and there is nothing to report.
        let applies = stores.controller_config().is_some_and(|c| {
            c.spec.copies_infrastructure()
                && !c.spec.control_plane_topology().is_empty()
                && has_boot_images(c.spec.platform_type(), c.spec.topology())
        });
        metrics.boot_image_skew.set(i64::from(unwatched && applies));
        for pool in &plan.pools {
            shared.forget_series_if_gone(&pool.pool);
        }
        let labels = |node: &Arc<str>| labels::Node { node: node.to_string() };
        let now: BTreeSet<Arc<str>> = plan.pool_alerts.iter().cloned().collect();
        let mut before = self.alerts.lock().unwrap_or_else(PoisonError::into_inner);
        for node in before.difference(&now) {
            metrics.pool_alert.remove(&labels(node));
        }
        for node in now.difference(&before) {
            metrics.pool_alert.get_or_create(&labels(node)).set(1);
        }
        *before = now;
    }

    /// Updates the metrics: how many nodes of each pool are in which state, and since when each node is in its state.
    /// Each pass goes through thousands of nodes, so only changes may cost anything.
    fn count_steps(&self, shared: &Shared, plan: &RolloutPlan) {
        let metrics = &shared.metrics;
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *states);
        let labels = |node: &Arc<str>, (pool, state, reason): &Standing| metrics::State {
            node: node.to_string(),
            pool: pool.to_string(),
            state: (*state).to_owned(),
            reason: (*reason).to_owned(),
        };
        let time = now().0.as_second();
        for pool in &plan.pools {
            let mut counts: BTreeMap<&str, i64> = Step::STATES.map(|state| (state, 0)).into();
            for node in &pool.nodes {
                let (state, reason) = node.step.words();
                *counts.entry(state).or_default() += 1;
                let standing = (pool.pool.clone(), state, reason);
                let old = before.remove(&node.node);
                if old.as_ref() != Some(&standing) {
                    if let Some(old) = old {
                        metrics.state.remove(&labels(&node.node, &old));
                    }
                    metrics.state.get_or_create(&labels(&node.node, &standing)).set(time);
                }
                states.insert(node.node.clone(), standing);
            }
            let text = pool.pool.to_string();
            for (state, count) in counts {
                let labels = labels::PoolState { pool: text.clone(), state: state.to_owned() };
                metrics.rollout_nodes.get_or_create(&labels).set(count);
            }
            let held = metrics.rollout_held.get_or_create(&labels::Pool { pool: text }).clone();
            held.set(i64::from(pool.hold.is_some()));
        }
        for (node, old) in before {
            metrics.state.remove(&labels(&node, &old));
        }
    }
}

/// Updates the metrics of pools whose image is built here: how far it is on their nodes.
fn count_images(shared: &Shared, plan: &RolloutPlan, pools: &[Arc<MachineConfigPool>]) {
    let configs = shared.stores.os_configs.all();
    for (plan, pool) in plan.pools.iter().zip(pools) {
        let status = plan.status.as_ref().or(pool.status.as_ref());
        let built_here = configs.iter().any(|c| c.pool() == &*plan.pool);
        let layered = || {
            let runs_image = |node: &Arc<str>| {
                let node = shared.stores.nodes.get(node);
                node.is_some_and(|n| n.current_image.as_ref().is_some_and(|image| !image.is_empty()))
            };
            plan.nodes.iter().filter(|n| runs_image(&n.node)).count()
        };
        let nodes = status.filter(|_| built_here).map(|status| ImageNodes {
            total: status.machine_count.into(),
            updated: status.updated_machine_count.into(),
            layered: i64::try_from(layered()).unwrap_or(i64::MAX),
        });
        shared.metrics.images.nodes(&plan.pool, nodes);
    }
}
