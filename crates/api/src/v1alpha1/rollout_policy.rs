//! RolloutPolicy: how a change goes through the nodes of a pool, what must hold meanwhile, and when it may happen.
//!
//! What it is not: the deciding (see `rollout`). Nothing reads this kind yet, so it is not installed.

use super::{Condition, Duration};
use crate::definition::{Cel, Column, kind};
use crate::k8s::{IntOrString, LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

kind! {
    /// RolloutPolicy says how a change goes through the nodes of pools: in which waves, what must hold before it goes on,
    /// what happens when that fails, and when nodes may be disturbed.
    RolloutPolicy {
        spec: RolloutPolicySpec, status: RolloutPolicyStatus,
        group: "machineconfig.dev", version: "v1alpha1", plural: "rolloutpolicies", singular: "rolloutpolicy",
        short_names: ["rop"],
        categories: ["machineconfig"],
        columns: [
            Column::text("Wave", ".status.currentWave", "The wave of the pool that is furthest behind."),
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
            Column::text("Pools", ".spec.pools.names", "The pools that it names.").wide(),
            Column::AGE,
        ],
    }
}

const ONE_TARGET: Cel = Cel {
    rule: "has(self.names) != has(self.selector)",
    message: "give either names, or a selector that selects pools by their labels",
};
const SELECTS: Cel = Cel {
    rule: "!has(self.selector) || (has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || \
           (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
    message: "an empty selector selects no pool; give it matchLabels or matchExpressions",
};
const ONE_SIZE: Cel = Cel {
    rule: "!(has(self.nodeSelector) && has(self.size))",
    message: "a wave has a nodeSelector or a size, not both; split it into two waves",
};
const REST_IS_LAST: Cel = Cel {
    rule: "self.all(w, has(w.nodeSelector) || has(w.size) || w.name == self[size(self) - 1].name)",
    message: "a wave with neither nodeSelector nor size takes all nodes that are left, so only the last can be one",
};
const AT_MOST_ALL: Cel = Cel {
    rule: "self.map(w, has(w.size) && type(w.size) == string ? int(string(w.size).replace('%', '')) : 0).sum() <= 100",
    message: "the waves' percentages are more than 100% together",
};
const ONE_GATE: Cel = Cel {
    rule: "[has(self.nodeCondition), has(self.workloads), has(self.prometheus), has(self.http), \
           has(self.job)].filter(g, g).size() == 1",
    message: "a gate has exactly one of nodeCondition, workloads, prometheus, http and job; write one gate for each",
};
const ALWAYS_ALONE: Cel = Cel {
    rule: "!('Always' in self.when) || size(self.when) == 1",
    message: "Always includes BeforeWave and Soak; write it alone",
};
const JOB_NOT_ALWAYS: Cel = Cel {
    rule: "!has(self.job) || !('Always' in self.when)",
    message: "a job runs once a node; use it with BeforeWave or Soak",
};
const TIMEOUT_FITS: Cel = Cel {
    rule: "has(self.job) || duration(self.timeout) <= duration(self.interval)",
    message: "timeout is longer than interval: the next check would begin before the last one has ended",
};
const WORKLOADS_SELECT: Cel = Cel {
    rule: "(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || \
           (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",
    message: "an empty selector selects no workload; give it matchLabels or matchExpressions",
};
const SOME_TIME: Cel = Cel { rule: "duration(self) > duration('0s')", message: "must be longer than 0s" };
const ENDS_LATER: Cel =
    Cel { rule: "self.from < self.to", message: "to must be after from, or the freeze never takes effect" };
const NEEDS_WINDOWS: Cel = Cel {
    rule: "!has(self.maxDisruption) || (has(self.windows) && size(self.windows) > 0)",
    message: "maxDisruption applies outside of windows, but there are none; add windows, or remove maxDisruption",
};
const SOAK_GATES_NEED_A_SOAK: Cel = Cel {
    rule: "!has(self.gates) || size(self.gates) == 0 || !has(self.waves) || size(self.waves) == 0 || \
           self.gates.exists(g, !('Soak' in g.when) || size(g.when) > 1) || self.waves.exists(w, has(w.soak))",
    message: "all gates are checked during the soak, but no wave has a soak; give a wave a soak, or check \
        the gates at other times",
};

/// The pools, and how their nodes move.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [NEEDS_WINDOWS, SOAK_GATES_NEED_A_SOAK]))]
pub struct RolloutPolicySpec {
    /// The pools that this policy is for. A pool has one policy: where two pick the same, neither is in force for it, its
    /// rollout holds, and both say so.
    pub pools: PoolTarget,
    /// Groups of nodes, one after the other. A wave begins when the one before it is in the new config, has soaked, its
    /// gates hold, and it is approved where that is asked for. The first one is the canary. Without waves all nodes are one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"],
        "x-kubernetes-validations" = [REST_IS_LAST, AT_MOST_ALL]))]
    pub waves: Vec<Wave>,
    /// A limit on the nodes of one zone that may be unavailable at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<Zones>,
    /// What must hold for the rollout to go on. What was broken before the change already does not stop it.
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
    /// How many nodes that are unavailable for reasons of their own take no slot of `maxUnavailable`: a number, or a
    /// percentage of the pool. Without it, each of them takes one.
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

/// A group of nodes that move together. Of the nodes that no earlier wave has.
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
    /// How long all nodes of the wave must have been in the new config, with gates that hold, before the next one begins.
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
    /// The label of a node that names its zone. Nodes without it are one zone together.
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

/// A check of the cluster, or of what runs in it, that must pass for the rollout to go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [ONE_GATE, ALWAYS_ALONE, JOB_NOT_ALWAYS, TIMEOUT_FITS]))]
pub struct Gate {
    /// Its name in status and events.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// When the check runs.
    #[serde(default = "before_and_soak")]
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub when: Vec<When>,
    /// Time from one check to the next.
    #[serde(default = "half_a_minute")]
    #[schemars(extend("x-kubernetes-validations" = [SOME_TIME]))]
    pub interval: Duration,
    /// How long one check may take. For a job: until it has ended.
    #[serde(default = "ten_seconds")]
    #[schemars(extend("x-kubernetes-validations" = [SOME_TIME]))]
    pub timeout: Duration,
    /// The gate fails when so many checks fail in a row.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 1000))]
    pub failure_limit: i32,
    /// What happens when there is no answer. No answer never counts as a pass.
    #[serde(default)]
    pub no_answer: NoAnswer,
    /// Passes when the pool's nodes have a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_condition: Option<NodeConditionGate>,
    /// Passes when workloads have as many available pods as before the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<WorkloadsGate>,
    /// Passes when a Prometheus query keeps a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusGate>,
    /// Passes when an HTTP request is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpGate>,
    /// A Job that runs on each node of the wave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobGate>,
}

fn before_and_soak() -> Vec<When> {
    vec![When::BeforeWave, When::Soak]
}

fn half_a_minute() -> Duration {
    Duration("30s".to_owned())
}

fn ten_seconds() -> Duration {
    Duration("10s".to_owned())
}

fn three() -> i32 {
    3
}

/// When a gate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum When {
    /// Before a wave begins.
    BeforeWave,
    /// While a wave soaks.
    Soak,
    /// As long as the pool is on its way.
    Always,
}

/// What no answer means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NoAnswer {
    /// The rollout waits until there is one.
    #[default]
    Hold,
    /// It counts as a failed check.
    Fail,
}

/// A condition that the nodes of the pool must have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeConditionGate {
    /// The condition's type, `Ready` for example.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// The status that it must have.
    #[serde(default = "is_true")]
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
}

fn is_true() -> String {
    "True".to_owned()
}

/// Workloads that must have as many available pods as before the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [WORKLOADS_SELECT]))]
pub struct WorkloadsGate {
    /// Which kinds are looked at.
    #[serde(default = "all_workloads")]
    #[schemars(length(min = 1, max = 3), extend("x-kubernetes-list-type" = "set"))]
    pub kinds: Vec<WorkloadKind>,
    /// The namespaces that they are in. Without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub namespaces: Option<Vec<String>>,
    /// Picks them by their labels.
    #[schemars(schema_with = "super::label_selector")]
    pub selector: LabelSelector,
}

fn all_workloads() -> Vec<WorkloadKind> {
    vec![WorkloadKind::Deployment, WorkloadKind::StatefulSet, WorkloadKind::DaemonSet]
}

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadKind {
    /// `apps/v1` Deployment.
    Deployment,
    /// `apps/v1` StatefulSet.
    StatefulSet,
    /// `apps/v1` DaemonSet.
    DaemonSet,
}

/// A query of Prometheus whose every value must keep a bound. An empty result is no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusGate {
    /// The URL of Prometheus, without `/api/v1/query`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^/?#@]+(/[^?#]*)?$"))]
    pub url: String,
    /// The query, in PromQL.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,
    /// The bound that every value must keep.
    pub bound: Bound,
    /// The Secret that holds a bearer token to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretKey>,
}

/// A bound of a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bound {
    /// How the value is compared.
    pub operator: Operator,
    /// The bound: a decimal number as text, such as `"0.05"`.
    #[schemars(length(min = 1, max = 32), regex(pattern = "^-?[0-9]+(\\.[0-9]+)?$"))]
    pub value: String,
}

/// How a value is compared with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// Less than the bound.
    LessThan,
    /// Less than the bound, or the bound.
    AtMost,
    /// The bound, or more.
    AtLeast,
    /// More than the bound.
    GreaterThan,
}

/// A GET request that must be answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpGate {
    /// The URL of the request. It must not hold a user name or password; use `token`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^/?#@]+([/?][^#]*)?$"))]
    pub url: String,
    /// The HTTP status that the answer must have. Without it, any from 200 to 399.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 599))]
    pub status: Option<i32>,
    /// The Secret that holds a bearer token to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretKey>,
}

/// A Job that runs on each node of a wave once the node is in the new config, and must end with exit code 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobGate {
    /// The namespace that it runs in.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The CronJob there whose template it is made from; it may be suspended.
    #[schemars(length(min = 1, max = 52))]
    pub cron_job: String,
}

/// A key of a Secret that holds a bearer token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// The Secret's name, in the namespace of the controller.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[serde(default = "token")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn token() -> String {
    "token".to_owned()
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MaxDisruption {
    /// Nothing notices.
    None,
    /// systemd reads its units again, or a service its configuration.
    Reload,
    /// A service is restarted.
    Restart,
    /// Pods are moved away.
    Drain,
}

/// Where the policy and its pools stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPolicyStatus {
    /// The generation that this was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// `Ready`: the policy is sound, picks pools, and is the only one for each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The wave of the pool that is furthest behind. Absent: all pools are done.
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
    /// The rendered config that all waves were in last, with gates that held; a rollback goes back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub proved: Option<String>,
    /// The wave that moves or soaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub wave: Option<String>,
    /// When that wave's soak ends, if nothing fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak_until: Option<Time>,
    /// Who approved which wave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["wave"]))]
    pub approvals: Vec<WaveApproval>,
    /// Configs that did harm; none of them is tried again until something changes. The newest first.
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
    /// Who: the name as the API server knows it.
    #[schemars(length(min = 1, max = 1024))]
    pub by: String,
    /// When.
    pub at: Time,
}

/// A config that did harm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedConfig {
    /// The rendered config.
    #[schemars(length(min = 1, max = 253))]
    pub config: String,
    /// The gate or the node that failed, and how.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// When.
    pub at: Time,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const EXAMPLE: &str = include_str!("../../../../examples/preview/rollout-policy.yaml");

    /// All of `wanted` stands in `got`; what `got` has besides are defaults.
    fn stands_in(wanted: &Value, got: &Value, at: &str) {
        match (wanted, got) {
            (Value::Object(fields), _) => {
                for (key, value) in fields {
                    stands_in(value, &got[key], &format!("{at}.{key}"));
                }
            }
            (Value::Array(list), Value::Array(others)) => {
                assert_eq!(list.len(), others.len(), "{at}");
                list.iter().zip(others).for_each(|(a, b)| stands_in(a, b, at));
            }
            _ => assert_eq!(wanted, got, "{at}"),
        }
    }

    #[test]
    fn the_example_reads_and_writes_as_it_stands() {
        let text: Value = crate::yaml::from_str(EXAMPLE).unwrap();
        let policy: RolloutPolicy = crate::yaml::from_str(EXAMPLE).unwrap();
        let written = serde_json::to_value(&policy).unwrap();
        stands_in(&text, &written, "");
        let again: RolloutPolicy = serde_json::from_value(written).unwrap();
        assert_eq!(again, policy);
        assert_eq!(policy.spec.gates[1].when, [When::BeforeWave, When::Soak]);
        assert_eq!(policy.spec.zones.as_ref().unwrap().topology_key, "topology.kubernetes.io/zone");
        assert_eq!(policy.spec.waves[2].approval, Approval::NotNeeded);
    }

    #[test]
    fn a_status_reads_as_it_was_written() {
        let at = "2026-01-02T03:04:05Z";
        let status = json!({
            "observedGeneration": 3,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at, "reason": "AsWanted", "message": ""}],
            "currentWave": "canary",
            "pools": [{
                "name": "worker", "config": "rendered-worker-2", "proved": "rendered-worker-1", "wave": "canary", "soakUntil": at,
                "approvals": [{"wave": "tenth", "config": "rendered-worker-2", "by": "jane", "at": at}],
                "rejected": [{"config": "rendered-worker-0", "reason": "gate errors: 0.2 is not at most 0.01", "at": at}],
            }],
        });
        let read: RolloutPolicyStatus = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), status);
        // A stored object may lack everything; it must not end a watch.
        let bare: RolloutPolicy = crate::yaml::from_str("metadata: {name: x}").unwrap();
        assert_eq!((bare.spec, bare.status), (RolloutPolicySpec::default(), None));
    }

    #[test]
    fn lengths_of_time_are_read_unit_by_unit() {
        for (text, seconds) in [
            ("30s", Some(30)),
            ("1h30m", Some(5400)),
            ("2h5s", Some(7205)),
            ("0m", Some(0)),
            ("", None),
            ("30", None),
            ("m", None),
            ("5m1h", None),
            ("1h1h", None),
            ("1d", None),
            ("99999999999999999999s", None),
        ] {
            let got = Duration(text.to_owned()).get().map(|d| d.as_secs());
            assert_eq!(got, seconds, "{text}");
        }
    }
}
