//! RolloutPolicy: how a change goes through the nodes of a pool, what must hold meanwhile, and when it may happen.
//!
//! What it is not: the deciding (see `rollout::policy`).

mod gates;
mod rules;
mod status;
#[cfg(test)]
mod tests;

pub use gates::*;
pub use status::*;

use super::Duration;
use crate::definition::{Column, kind};
use crate::k8s::{IntOrString, LabelSelector, Time};
use rules::{
    AT_MOST_ALL, ENDS_LATER, NEEDS_WINDOWS, ONE_SIZE, ONE_TARGET, REST_IS_LAST, SELECTS,
    SOAK_GATES_NEED_A_SOAK, SOME_TIME,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

kind! {
    /// RolloutPolicy says how a change goes through the nodes of pools: in which waves, what must hold before it goes on,
    /// what happens when that fails, and when nodes may be disturbed.
    RolloutPolicy {
        spec: RolloutPolicySpec, status: RolloutPolicyStatus,
        group: "machineconfig.dev", version: "v1alpha1", plural: "rolloutpolicies", singular: "rolloutpolicy",
        short_names: ["rop"],
        categories: ["mco"],
        columns: [
            Column::text("Wave", ".status.currentWave", "The wave of the pool that is furthest behind."),
            Column::text(
                "Held",
                ".status.conditions[?(@.type==\"Held\")].reason",
                "Why no further node of its pools moves, as one word; `NotHeld` if nothing holds them.",
            ),
            Column::text("On-Failure", ".spec.onFailure", "What happens when a gate or a node fails."),
            Column::text(
                "Ready",
                ".status.conditions[?(@.type==\"Ready\")].status",
                "Whether the policy is valid and in force.",
            ),
            Column::text(
                "Reason",
                ".status.conditions[?(@.type==\"Ready\")].reason",
                "Why it is not in force, as one word.",
            ),
            Column::text("Pools", ".spec.pools.names", "The pools that it names.").wide_only(),
            Column::AGE,
        ],
    }
}

/// The pools, and how their nodes move.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [NEEDS_WINDOWS, SOAK_GATES_NEED_A_SOAK]))]
pub struct RolloutPolicySpec {
    /// The pools that this policy is for. A pool can have one policy only: if two select it, neither is in force for it,
    /// its rollout is held, and the status of both says so.
    pub pools: PoolTarget,
    /// Groups of nodes, one after the other. A wave begins when the one before it is in the new config and has soaked, its
    /// gates pass, and it is approved if the policy asks for that. The first one is the canary. Without waves, all nodes
    /// are one wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"],
        "x-kubernetes-validations" = [REST_IS_LAST, AT_MOST_ALL]))]
    pub waves: Vec<Wave>,
    /// A limit on the nodes of one zone that may be unavailable at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<Zones>,
    /// What must pass for the rollout to go on. What was broken already before the change does not stop it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub gates: Vec<Gate>,
    /// What happens when a gate fails, or a node fails, does not come back, or takes longer than `nodeDeadline`.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// How long a node may be on its way to a config before it counts as failed. Without it there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [SOME_TIME]))]
    pub node_deadline: Option<Duration>,
    /// What happens to a drain that does not end. Without it, drains are tried for as long as it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainLimit>,
    /// How many nodes that are unavailable for reasons other than this rollout do not count against `maxUnavailable`: a
    /// number, or a percentage of the pool. Without it, each of them counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::number_or_percentage")]
    pub unrelated_unavailable: Option<IntOrString>,
    /// When nodes may be moved to another config. Without windows, at any time. A node that is on its way when a window
    /// closes ends what it began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub windows: Vec<Window>,
    /// When nothing new starts, whatever windows say. What is on its way ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub freezes: Vec<Freeze>,
    /// The most that a change may cost a node outside of windows; one that costs more waits for the next. Without it,
    /// nothing happens outside of windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_disruption: Option<MaxDisruption>,
}

/// Which pools a policy is for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [ONE_TARGET, SELECTS]))]
pub struct PoolTarget {
    /// The pools' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub names: Option<Vec<String>>,
    /// Picks pools by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::label_selector")]
    pub selector: Option<LabelSelector>,
}

/// A group of nodes that move together, out of the nodes that no earlier wave has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [ONE_SIZE]))]
pub struct Wave {
    /// Its name in status, events and `mco approve`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Picks nodes by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// How many nodes: a number, or a percentage of the pool, rounded up. Nodes are taken in the order in which the pool
    /// would take them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::number_or_percentage")]
    pub size: Option<IntOrString>,
    /// How many nodes may be unavailable at once while this wave moves: a number, or a percentage of the pool. Without it,
    /// the pool's own `maxUnavailable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::number_or_percentage")]
    pub max_unavailable: Option<IntOrString>,
    /// How long all nodes of the wave must have been in the new config, with gates that pass, before the next one begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Duration>,
    /// Whether a person must agree before the wave begins.
    #[serde(default)]
    pub approval: Approval,
}

/// Whether a person must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Approval {
    /// The wave begins by itself.
    #[default]
    NotNeeded,
    /// It begins after `mco approve POOL`, for the config that was approved only. Who approved it, and when, stands in
    /// status.
    Needed,
}

/// How nodes are spread over zones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Zones {
    /// The label of a node that names its zone. Nodes without it are in one zone together.
    #[serde(default = "zone_label")]
    #[schemars(length(min = 1, max = 317))]
    pub topology_key: String,
    /// How many nodes of one zone may be unavailable at once.
    #[schemars(range(min = 1))]
    pub max_unavailable: i32,
}

fn zone_label() -> String {
    "topology.kubernetes.io/zone".to_owned()
}

/// What happens when a gate or a node fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// No further node moves, until the cause is gone or the config changes.
    #[default]
    Hold,
    /// The pool's nodes go back to the config that was proved last, the newest first. The rejected config is not tried again
    /// until something changes.
    Rollback,
}

/// What happens to a drain that does not end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainLimit {
    /// How long a drain may take.
    #[schemars(extend("x-kubernetes-validations" = [SOME_TIME]))]
    pub after: Duration,
    /// What is done after that time.
    #[serde(default)]
    pub then: DrainEnd,
}

/// What is done about a drain that does not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DrainEnd {
    /// An event and a condition say so, and the drain goes on.
    #[default]
    Report,
    /// The node is put aside: it takes pods again, its slot is free, and another node goes first.
    Quarantine,
    /// Pods are deleted although their budgets do not allow it.
    DeletePods,
}

/// When nodes may be moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Its name in status and events.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// When it opens: minute, hour, day of the month, month, day of the week, as crontab(5) has them.
    #[schemars(length(min = 9, max = 200), regex(pattern = "^[^ ]+( [^ ]+){4}$"))]
    pub cron: String,
    /// The time zone of `cron`, by its name in the IANA database, such as `Europe/Zurich`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z][-+_A-Za-z0-9]*(/[-+_A-Za-z0-9]+)*$"))]
    pub time_zone: String,
    /// How long it stays open.
    #[schemars(extend("x-kubernetes-validations" = [SOME_TIME]))]
    pub duration: Duration,
}

fn utc() -> String {
    "Etc/UTC".to_owned()
}

/// A time in which nothing new starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [ENDS_LATER]))]
pub struct Freeze {
    /// Its name in status and events.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The time from which nothing new starts.
    #[schemars(schema_with = "super::time")]
    pub from: Time,
    /// The time at which rollouts go on.
    #[schemars(schema_with = "super::time")]
    pub to: Time,
    /// Whether changes of certificates go out all the same, so that none expires during the freeze.
    #[serde(default)]
    pub allow_certificates: bool,
}

/// How much a change may disturb a node. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum MaxDisruption {
    /// Nothing on the node is disturbed.
    None,
    /// systemd reads its units again, or a service its configuration.
    Reload,
    /// A service is restarted.
    Restart,
    /// Pods are moved away.
    Drain,
}
