//! What a change means for the rollout of a pool: which drains would wait, what the pool's policy asks for, and how long it may
//! take. Pure.
//!
//! What it is not: a promise. The pace is that of the pool's last rollout, and an approval takes as long as a person takes.

use crate::change::disruption_policy;
use crate::change::parsed::{ParsedConfigs, unreadable};
use crate::objects::configs;
use crate::objects::cost_key::cost_key;
use api::conditions::{get_true, of_object};
use api::formats::text::chain;
use api::names::node_condition::UPDATED;
use api::v1alpha1::{RolloutPolicy, Wave};
use desired::PoolDisruption;
use host::DisruptionPolicy;
use jiff::{SignedDuration, Timestamp};
use rollout::drain::{Outlook, outlook};
use rollout::policy::{ChangeAsked, Costs};
use rollout::view::{BudgetView, PodView};
use rollout::{Queued, Situation};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Nodes of one rollout finish within this time of each other. A longer gap separates two rollouts.
const SAME_ROLLOUT: SignedDuration = SignedDuration::from_hours(1);

/// A node that would have to wait, or lose something, when it is drained now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedDrain {
    /// The node.
    pub node: String,
    /// Its drain would wait; otherwise something is lost with it.
    pub waits: bool,
    /// For which pod and budget, or what is lost.
    pub why: String,
}

/// The RolloutPolicy of a pool, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicySummary {
    /// Its name.
    pub policy: String,
    /// Its waves.
    pub waves: Vec<String>,
    /// Its gates.
    pub gates: Vec<String>,
    /// Its windows.
    pub windows: Vec<String>,
    /// Its freezes that are not over.
    pub freezes: Vec<String>,
}

/// How long a change may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeEstimate {
    /// Seconds for its nodes, at the pace of the last rollout.
    pub seconds: i64,
    /// Seconds of soaks in addition.
    pub soaks: i64,
    /// How many nodes of the last rollout the pace is taken from.
    pub from_nodes: usize,
}

impl fmt::Display for TimeEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |seconds: i64| match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
            (0, 0, s) => format!("{s} s"),
            (0, m, s) => format!("{m} min {s} s"),
            (h, m, _) => format!("{h} h {m} min"),
        };
        write!(f, "about {}", span(self.seconds))?;
        if self.soaks > 0 {
            write!(f, ", and {} of soaks", span(self.soaks))?;
        }
        write!(f, ", at the pace of the last rollout ({} nodes)", self.from_nodes)
    }
}

/// The disruption policy for a pool's nodes. A pool may set by itself what a change without a policy costs.
pub(crate) fn policy_of(policy: &DisruptionPolicy, situation: &Situation, pool: &str) -> DisruptionPolicy {
    let notes = situation.pools.get(pool).and_then(|p| p.metadata.annotations.as_ref());
    policy.clone().for_pool(&PoolDisruption::of(notes))
}

/// What the changes cost that nodes of a situation are on their way with, or may take next, as far as the MachineConfigs are among
/// these objects.
pub(crate) fn costs_among(objects: &[(String, Value)], situation: &Situation) -> Costs {
    if !situation.asks_for_costs() {
        return Costs::new();
    }
    let targets = situation.pools.values().map(|pool| &*pool.spec.configuration.name);
    let changes = changes(situation, targets);
    let configs = configs(objects).map_err(|error| chain(&error));
    let policy = disruption_policy(objects).map_err(|error| chain(&error));
    match (configs, policy) {
        (Ok(configs), Ok(policy)) => costs_of(&policy, &ParsedConfigs::new(&configs, []), situation, changes),
        (Err(why), _) | (_, Err(why)) => {
            let why: Arc<str> = why.into();
            changes.into_iter().map(|change| (change, Err(why.clone()))).collect()
        }
    }
}

/// What the change to a config costs the nodes of a situation, for windows that let some changes pass, and what the changes cost
/// that nodes are on their way with.
pub(crate) fn costs(
    policy: &DisruptionPolicy,
    configs: &ParsedConfigs<'_>,
    situation: &Situation,
    target: &str,
) -> Costs {
    costs_of(policy, configs, situation, changes(situation, [target]))
}

/// The changes to these configs from those that nodes are in, and the changes that nodes are on their way with: one that reboots
/// anyway may take the next config along.
fn changes<'a>(situation: &Situation, targets: impl IntoIterator<Item = &'a str>) -> BTreeSet<ChangeAsked> {
    let targets: Vec<Arc<str>> = targets.into_iter().map(Arc::from).collect();
    let nodes = situation.nodes.values();
    let all = nodes.filter_map(|node| Some((node.current_config.as_ref()?, node.desired_config.as_ref())));
    all.flat_map(|(from, desired)| {
        let to = targets.iter().chain(desired);
        to.map(|to| ChangeAsked { from: from.clone(), to: to.clone() })
    })
    .collect()
}

/// What changes cost with the settings of the pools that they lead to, or why that is not known.
fn costs_of(
    policy: &DisruptionPolicy,
    configs: &ParsedConfigs<'_>,
    situation: &Situation,
    changes: BTreeSet<ChangeAsked>,
) -> Costs {
    let missing = |name: &str| format!("MachineConfig {name} is not in the input");
    let cost = |change: &ChangeAsked| {
        let parsed = |name| configs.get(name).ok_or_else(|| missing(name));
        let (old, new) = (parsed(&change.from)?, parsed(&change.to)?);
        let policy = policy.clone().for_pool(&cost_key(&situation.pools, change).pool);
        match (&*old, &*new) {
            (Ok(old), Ok(new)) => Ok(lookups::change_cost(old, new, &policy)),
            (Err(bad), _) => Err(unreadable(&change.from, bad)),
            (_, Err(bad)) => Err(unreadable(&change.to, bad)),
        }
    };
    changes.into_iter().map(|change| (change.clone(), cost(&change).map_err(Arc::from))).collect()
}

/// The nodes of a queue whose drains would wait or lose something, in the queue's order.
pub(crate) fn drains(situation: &Situation, queue: &[Queued]) -> Vec<ExpectedDrain> {
    let pods: Vec<&PodView> = situation.pods.iter().collect();
    let budgets: Vec<&BudgetView> = situation.budgets.iter().collect();
    let nodes = queue.iter().filter_map(|queued| situation.nodes.get(&*queued.node));
    let seen = nodes.filter_map(|node| {
        let (waits, why) = match outlook(node, &pods, &budgets) {
            Outlook::Ends => return None,
            Outlook::Loses(why) => (false, why),
            Outlook::Waits(why) => (true, why),
        };
        Some(ExpectedDrain { node: node.name.to_string(), waits, why })
    });
    seen.collect()
}

fn wave(wave: &Wave) -> String {
    let mut text = wave.name.clone();
    let mut add = |more: String| text = format!("{text}, {more}");
    if let Some(soak) = &wave.soak {
        add(format!("soaks {}", soak.0));
    }
    if wave.approval == api::v1alpha1::Approval::Needed {
        add("waits for an approval".to_owned());
    }
    text
}

/// The policy of a pool, if it has one that is in force.
pub(crate) fn policy(situation: &Situation, pool: &str, now: Timestamp) -> Option<PolicySummary> {
    let object = of_pool(situation, pool)?;
    let spec = &object.spec;
    let when = |gate: &api::v1alpha1::Gate| {
        let all: Vec<String> = gate.when.iter().map(|when| format!("{when:?}")).collect();
        format!("{} ({})", gate.name, all.join(", "))
    };
    let window =
        |w: &api::v1alpha1::Window| format!("{}: {} {}, for {}", w.name, w.cron, w.time_zone, w.duration.0);
    let freezes = spec.freezes.iter().filter(|f| f.to.0 > now);
    Some(PolicySummary {
        policy: object.metadata.name.clone().unwrap_or_default(),
        waves: spec.waves.iter().map(wave).collect(),
        gates: spec.gates.iter().map(when).collect(),
        windows: spec.windows.iter().map(window).collect(),
        freezes: freezes.map(|f| format!("{}: {} to {}", f.name, f.from.0, f.to.0)).collect(),
    })
}

fn of_pool<'a>(situation: &'a Situation, pool: &str) -> Option<&'a RolloutPolicy> {
    let policies = situation.policies();
    let name = policies.policy(pool)?.name.clone();
    situation.rollout_policies.iter().find(|p| p.metadata.name.as_deref() == Some(&*name))
}

/// How long this number of nodes takes at the pace of the pool's last rollout; `None`: that is not known. `done`: when each
/// node was done, from the MachineConfigNodes.
pub(crate) fn time(
    situation: &Situation,
    pool: &str,
    nodes: usize,
    done: &[Timestamp],
) -> Option<TimeEstimate> {
    let mut done = done.to_vec();
    done.sort_unstable();
    let mut last = done.split_off(done.len().saturating_sub(1));
    while let Some(before) = done.pop() {
        if last.last().is_none_or(|first| first.duration_since(before) > SAME_ROLLOUT) {
            break;
        }
        last.push(before);
    }
    let (newest, oldest) = (last.first()?, last.last()?);
    let gaps = i64::try_from(last.len().checked_sub(1).filter(|gaps| *gaps > 0)?).ok()?;
    let seconds = newest.duration_since(*oldest).as_secs().saturating_mul(i64::try_from(nodes).ok()?) / gaps;
    let soaks = of_pool(situation, pool).map(|p| {
        let all = p.spec.waves.iter().filter_map(|w| w.soak.as_ref()?.get());
        all.map(|soak| i64::try_from(soak.as_secs()).unwrap_or(i64::MAX)).fold(0, i64::saturating_add)
    });
    Some(TimeEstimate { seconds: seconds.max(1), soaks: soaks.unwrap_or_default(), from_nodes: last.len() })
}

/// When nodes were done with the last change, as their MachineConfigNodes say; those of one pool.
pub(crate) fn finish_times<'a>(objects: impl Iterator<Item = &'a Value>, pool: &str) -> Vec<Timestamp> {
    let of_pool = objects.filter(|o| o["kind"] == "MachineConfigNode" && o["spec"]["pool"]["name"] == pool);
    let when = |object: &Value| {
        let updated = get_true(of_object(object), UPDATED)?;
        updated["lastTransitionTime"].as_str()?.parse().ok()
    };
    of_pool.filter_map(when).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_pace_is_that_of_the_last_rollout_and_of_no_earlier_one() {
        let none = Situation::default();
        type Row<'a> = (&'a [i64], usize, Option<(i64, usize)>);
        let rows: [Row<'_>; 6] = [
            (&[], 5, None),
            (&[100], 5, None),
            (&[100, 160], 5, Some((300, 2))),
            // Nodes that are updated at the same time are done close to each other.
            (&[100, 101, 159, 160], 6, Some((120, 4))),
            // The first two are of an earlier rollout.
            (&[100, 110, 90_000, 90_060, 90_120], 10, Some((600, 3))),
            (&[100, 90_000], 10, None),
        ];
        for (done, nodes, want) in rows {
            let done: Vec<Timestamp> = done.iter().map(|s| at(*s)).collect();
            let got = time(&none, "worker", nodes, &done).map(|t| (t.seconds, t.from_nodes));
            assert_eq!(got, want, "{done:?}");
        }
        let said = TimeEstimate { seconds: 3_725, soaks: 600, from_nodes: 9 }.to_string();
        assert_eq!(
            said,
            "about 1 h 2 min, and 10 min 0 s of soaks, at the pace of the last rollout (9 nodes)"
        );
    }

    #[test]
    fn a_pools_policy_and_the_expected_drains_are_said() {
        let objects = [
            json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": "worker"}, "spec": {"configuration": {"name": "new"}}}),
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "p"}, "spec": {
                "pools": {"names": ["worker"]},
                "waves": [{"name": "canary", "size": 1, "soak": "10m", "approval": "Needed"}, {"name": "rest"}],
                "gates": [{"name": "shop", "http": {"url": "http://shop"}}],
                "windows": [{"name": "nights", "cron": "0 22 * * *", "duration": "6h"}],
                "freezes": [
                    {"name": "over", "from": "2025-01-01T00:00:00Z", "to": "2025-02-01T00:00:00Z"},
                    {"name": "year-end", "from": "2026-12-20T00:00:00Z", "to": "2027-01-04T00:00:00Z"}]}}),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}),
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "front", "labels": {"app": "shop"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]},
                "spec": {"nodeName": "n1", "containers": []}}),
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": "shop"},
                "spec": {"selector": {"matchLabels": {"app": "shop"}}},
                "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}}),
        ];
        let situation = Situation::from_objects(objects.iter().map(|o| ("f", o))).unwrap();
        let now = "2026-07-01T12:00:00Z".parse().unwrap();
        let said = policy(&situation, "worker", now).unwrap();
        assert_eq!(said.waves, ["canary, soaks 10m, waits for an approval", "rest"]);
        assert_eq!(said.gates, ["shop (BeforeWave, Soak)"]);
        assert_eq!(said.windows, ["nights: 0 22 * * * Etc/UTC, for 6h"]);
        assert_eq!(said.freezes, ["year-end: 2026-12-20T00:00:00Z to 2027-01-04T00:00:00Z"]);
        assert_eq!(policy(&situation, "infra", now), None);
        let queued = |node: &str| Queued { node: node.into(), now: false, waits: None };
        let expected = drains(&situation, &[queued("n1"), queued("n2")]);
        assert_eq!((expected.len(), &*expected[0].node, expected[0].waits), (1, "n1", true));
        assert!(expected[0].why.contains("PodDisruptionBudget shop/shop"), "{expected:?}");
    }
}
