//! The status of a RolloutPolicy: how far each of its pools is, and what the controller remembers of it.
//!
//! What it is not: the computing of it (see `rollout::policy`).

use crate::k8s::Time;
use crate::v1alpha1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the policy and its pools stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPolicyStatus {
    /// The generation that this was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// `Ready`: the policy is sound, picks pools, and is the only one for each of them. `Held`: no further node of one of
    /// its pools moves, and why. `WavesOverlap`: selectors of its waves pick the same nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The wave of the first pool of `pools` that has one. Absent: all pools are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub current_wave: Option<String>,
    /// Each pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pools: Vec<PoolProgress>,
}

/// Where a pool stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolProgress {
    /// The pool.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The rendered config that is on its way. Absent: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub config: Option<String>,
    /// Since when `config` is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The last rendered config that all waves have reached while their gates passed. A rollback goes back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub proved: Option<String>,
    /// The wave that moves or soaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub wave: Option<String>,
    /// Whether the gates before that wave have passed, so that its nodes may go. They are checked once for each wave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wave_begun: bool,
    /// Whether that wave waits for an approval although the policy asks for none: another pool has rejected a change that
    /// this one would take, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approval_needed: bool,
    /// When that wave's soak ends, if nothing fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak_until: Option<Time>,
    /// Who approved which wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["wave"]))]
    pub approvals: Vec<WaveApproval>,
    /// Why no further node moves; the pool's status says the same. Absent: nodes may move, or none has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2000))]
    pub held: Option<String>,
    /// What each gate said last, as long as it is checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["gate"]))]
    pub gates: Vec<GateResult>,
    /// What was broken already before the change, for each gate. No node moves before this is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["gate"]))]
    pub baseline: Vec<GateBaseline>,
    /// Configs that were rejected because they did harm; none of them is tried again until the policy or the config changes.
    /// The newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["config"]))]
    pub rejected: Vec<RejectedConfig>,
}

/// An approval by a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaveApproval {
    /// The wave.
    #[schemars(length(min = 1, max = 63))]
    pub wave: String,
    /// The rendered config that it is for; another one has to be approved again.
    #[schemars(length(min = 1, max = 253))]
    pub config: String,
    /// Who gave it: the name as the API server knows it.
    #[schemars(length(min = 1, max = 1024))]
    pub by: String,
    /// When it was given.
    pub at: Time,
}

/// What a gate said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateResult {
    /// The gate.
    #[schemars(length(min = 1, max = 63))]
    pub gate: String,
    /// What it said.
    pub outcome: GateOutcome,
    /// Why, in words; empty for one that passed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2000))]
    pub message: String,
}

/// What a gate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GateOutcome {
    /// It passes.
    Passed,
    /// As many checks have failed in a row as its `failureLimit` says.
    Failed,
    /// Checks fail, but not yet as many in a row.
    Failing,
    /// There is no answer, or no check has ended yet.
    NoAnswer,
}

/// What was broken before a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateBaseline {
    /// The gate.
    #[schemars(length(min = 1, max = 63))]
    pub gate: String,
    /// Nodes without the condition; workloads with fewer available pods than they ask for, each with the number
    /// (`Deployment shop/front=2`); the value that was not within the bound; how the request failed. Empty: nothing was
    /// broken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 640)), extend("x-kubernetes-list-type" = "atomic"))]
    pub broken: Vec<String>,
    /// The workloads that were there, so that one that is gone does not pass: the first 256 by kind and name. Empty for other
    /// gates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 640)), extend("x-kubernetes-list-type" = "atomic"))]
    pub workloads: Vec<String>,
}

/// A config that was rejected because it did harm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedConfig {
    /// The rendered config.
    #[schemars(length(min = 1, max = 253))]
    pub config: String,
    /// The gate or the node that failed, and how.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// When it was rejected.
    pub at: Time,
}
