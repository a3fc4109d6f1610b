//! Gates: what must hold in the cluster for a rollout to go on.
//!
//! What it is not: the checks (see the controller), and what their answers mean (see `rollout::policy::gates`).

use super::rules::{ALWAYS_ALONE, JOB_NOT_ALWAYS, ONE_GATE, SOME_TIME, TIMEOUT_FITS, WORKLOADS_SELECT};
use crate::k8s::LabelSelector;
use crate::v1alpha1::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// How many checks in a row must fail for the gate to fail.
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
    /// Passes when the values of a Prometheus query stay within a bound.
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
    /// For as long as the pool is being updated.
    Always,
}

/// What follows when a check has no answer.
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
    #[schemars(schema_with = "crate::v1alpha1::label_selector")]
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

/// A query of Prometheus. Each of its values must stay within a bound. An empty result counts as no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusGate {
    /// The URL of Prometheus, without `/api/v1/query`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^/?#@]+(/[^?#]*)?$"))]
    pub url: String,
    /// The query, in PromQL.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,
    /// The bound within which every value must stay.
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
    /// Less than the bound, or equal to it.
    AtMost,
    /// More than the bound, or equal to it.
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
    /// The CronJob in `namespace` whose template is used. The CronJob may be suspended.
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
