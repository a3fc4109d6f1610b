//! Gates: what a check found, compared with what was broken before the change, gives what the gate says.
//!
//! What it is not: the requests of a check. Whoever makes them hands the answers to the functions here, and keeps one
//! [`Record`] for each gate of a pool.

use crate::hold::GateState;
use api::formats::text::cut;
use api::k8s::LabelSelector;
use api::v1alpha1::{Operator, SecretKey, WorkloadKind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How many broken things a baseline holds; the schema of the policy's status allows no more.
pub const MAX_BROKEN: usize = 256;
/// How many of them a text names.
const NAMED: usize = 5;
/// Characters of what somebody else's server said.
const WORDS: usize = 300;

/// A check that must pass for more nodes to go.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Its name.
    pub name: Arc<str>,
    /// Checked before a wave begins.
    pub before_wave: bool,
    /// Checked while a wave soaks.
    pub soak: bool,
    /// Checked as long as a config is on its way.
    pub always: bool,
    /// Time from one check to the next.
    pub interval: Duration,
    /// How long one check may take.
    pub timeout: Duration,
    /// So many failed checks in a row make it fail.
    pub failure_limit: u32,
    /// Whether no answer counts as a failed check. Otherwise the rollout waits for one.
    pub no_answer_fails: bool,
    /// What is checked.
    pub check: Check,
}

/// What a gate checks.
#[derive(Clone, Debug)]
pub enum Check {
    /// Each node of the pool has this condition.
    NodeCondition {
        /// The condition.
        type_: String,
        /// Its status.
        status: String,
    },
    /// Workloads have as many available pods as they ask for, or as before.
    Workloads {
        /// Of these kinds.
        kinds: Vec<WorkloadKind>,
        /// In these namespaces; `None`: in all.
        namespaces: Option<Vec<String>>,
        /// With these labels.
        selector: LabelSelector,
    },
    /// A query of Prometheus keeps a bound.
    Prometheus {
        /// Its URL, without `/api/v1/query`.
        url: String,
        /// In PromQL.
        query: String,
        /// How its value is compared.
        operator: Operator,
        /// With what.
        bound: f64,
        /// The Secret with a bearer token.
        token: Option<SecretKey>,
    },
    /// A GET request is answered.
    Http {
        /// Its URL.
        url: String,
        /// The status; `None`: 200 to 399.
        status: Option<u16>,
        /// The Secret with a bearer token.
        token: Option<SecretKey>,
    },
    /// A Job on each node of a wave ends well.
    Job {
        /// Where the CronJob is.
        namespace: String,
        /// The CronJob with its template.
        cron_job: String,
    },
}

impl Gate {
    /// Whether it compares with the time before the change. A Job runs on nodes that are in the new config only.
    pub fn has_baseline(&self) -> bool {
        !matches!(self.check, Check::Job { .. })
    }

    /// Whether it is about all nodes of the pool.
    pub(super) fn of_nodes(&self) -> bool {
        matches!(self.check, Check::NodeCondition { .. })
    }

    /// Whether it is about workloads.
    pub(super) fn of_workloads(&self) -> bool {
        matches!(self.check, Check::Workloads { .. })
    }

    /// Whether it is about the nodes of a wave.
    pub(super) fn of_wave(&self) -> bool {
        matches!(self.check, Check::Job { .. })
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading {
    /// What is broken now, in the form of [`api::v1alpha1::GateBaseline::broken`]; empty: nothing.
    Broken(Vec<String>),
    /// There was no answer, and why.
    NoAnswer(String),
}

/// What is remembered of a gate from check to check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Failed checks in a row.
    fails: u32,
    /// What was broken when it was checked for the first time, if no baseline was known then.
    pub found: Option<Vec<String>>,
    /// The workloads that were there when it was checked for the first time, in order, and no more of them than a baseline holds.
    pub workloads: Vec<String>,
    /// What it says; `None`: no check has ended.
    pub state: Option<GateState>,
}

impl Record {
    /// Records the result of a check. `baseline`: what was broken before the change, if that is stored already.
    pub fn record_check(&mut self, gate: &Gate, baseline: Option<&[String]>, reading: Reading) {
        let limit = gate.failure_limit.max(1);
        let known = baseline.is_some() || !gate.has_baseline();
        let why = match reading {
            Reading::NoAnswer(why) if gate.no_answer_fails && known => format!("no answer: {why}"),
            Reading::NoAnswer(why) => {
                self.state = Some(GateState::Unknown(cut(&why, WORDS).into_owned()));
                return;
            }
            Reading::Broken(now) if now.len() > MAX_BROKEN => {
                let why = format!(
                    "{} objects fail the check, and at most {MAX_BROKEN} can be tracked; narrow the gate's selector",
                    now.len()
                );
                self.state = Some(GateState::Unknown(why));
                return;
            }
            Reading::Broken(now) => match why_worse(&gate.check, baseline.or(self.found.as_deref()), &now) {
                Some(why) => why,
                None => {
                    if !known && self.found.is_none() {
                        self.found = Some(now);
                    }
                    (self.fails, self.state) = (0, Some(GateState::Passed));
                    return;
                }
            },
        };
        self.fails = self.fails.saturating_add(1);
        self.state = Some(if self.fails >= limit {
            GateState::Failed(why)
        } else {
            GateState::Failing(format!("{} of {limit} checks in a row: {why}", self.fails))
        });
    }
}

/// Why what is broken now is worse than before; `None`: it is not. Without a baseline only a Job is.
pub fn why_worse(check: &Check, before: Option<&[String]>, now: &[String]) -> Option<String> {
    let before = match check {
        Check::Job { .. } => &[],
        _ => before?,
    };
    match check {
        Check::NodeCondition { type_, status } => {
            let new: Vec<&str> = now.iter().filter(|n| !before.contains(n)).map(String::as_str).collect();
            (!new.is_empty()).then(|| format!("{type_} is not {status} on {}", first_and_count(&new)))
        }
        Check::Workloads { .. } => {
            let counts = |list: &[String]| -> BTreeMap<String, u64> {
                let split = |e: &String| {
                    e.rsplit_once('=').map(|(name, n)| (name.to_owned(), n.parse().unwrap_or(0)))
                };
                list.iter().filter_map(split).collect()
            };
            let (before, now) = (counts(before), counts(now));
            let new = now.iter().filter(|(name, n)| before.get(*name).is_none_or(|had| *n < had));
            let new: Vec<String> = new.map(|(name, n)| format!("{name} ({n} available)")).collect();
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            (!new.is_empty())
                .then(|| format!("fewer pods are available than before: {}", first_and_count(&new)))
        }
        Check::Prometheus { operator, bound, .. } => {
            let value = |list: &[String]| list.first().and_then(|v| v.parse::<f64>().ok());
            let value_now = now.first()?;
            let lower_is_better = matches!(operator, Operator::LessThan | Operator::AtMost);
            let no_worse = match (value(before), value(now)) {
                (Some(had), Some(has)) => {
                    if lower_is_better {
                        has <= had
                    } else {
                        has >= had
                    }
                }
                _ => false,
            };
            let was =
                before.first().map(|had| format!(", and was {had} before the change")).unwrap_or_default();
            (!no_worse)
                .then(|| format!("the value is {value_now}, {} {bound} is allowed{was}", words(*operator)))
        }
        Check::Http { .. } => now.first().filter(|_| before.is_empty()).cloned(),
        Check::Job { .. } => {
            let all: Vec<&str> = now.iter().map(String::as_str).collect();
            (!all.is_empty()).then(|| format!("the Job failed: {}", first_and_count(&all)))
        }
    }
}

fn words(operator: Operator) -> &'static str {
    match operator {
        Operator::LessThan => "less than",
        Operator::AtMost => "at most",
        Operator::AtLeast => "at least",
        Operator::GreaterThan => "more than",
    }
}

/// The first of these, and how many more there are.
pub(super) fn first_and_count(all: &[&str]) -> String {
    api::formats::text::names(all, NAMED)
}

/// What nodes' conditions say. `statuses`: of each node, the status of the gate's condition; empty if it has none. A node
/// that is not there says nothing, and a condition that no node has is no answer.
pub fn of_nodes(wanted: &str, nodes: &[Arc<str>], statuses: &BTreeMap<String, String>) -> Reading {
    let mut known = nodes.iter().filter_map(|n| statuses.get(&**n)).peekable();
    if known.peek().is_some() && known.all(String::is_empty) {
        return Reading::NoAnswer("none of its nodes has this condition; correct its type".to_owned());
    }
    let broken = nodes.iter().filter(|n| statuses.get(&***n).is_some_and(|has| has != wanted));
    Reading::Broken(broken.map(ToString::to_string).collect())
}

/// What a workload says: its entry, if it has fewer available pods than it asks for. A DaemonSet has none on the nodes that are
/// `away`: they reboot for the very change that the gate is about.
pub fn of_workload(kind: WorkloadKind, away: usize, object: &Value) -> Option<String> {
    let number = |at: &str| object.pointer(at).and_then(Value::as_u64);
    let (wanted, available) = match kind {
        WorkloadKind::DaemonSet => {
            (number("/status/desiredNumberScheduled"), number("/status/numberAvailable"))
        }
        WorkloadKind::Deployment | WorkloadKind::StatefulSet => {
            (number("/spec/replicas").or(Some(1)), number("/status/availableReplicas"))
        }
    };
    let away = if kind == WorkloadKind::DaemonSet { u64::try_from(away).unwrap_or(u64::MAX) } else { 0 };
    let (wanted, available) = (wanted.unwrap_or(0).saturating_sub(away), available.unwrap_or(0));
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    (available < wanted).then(|| format!("{kind:?} {namespace}/{name}={available}"))
}

/// What Prometheus answered to a query (its HTTP API, `/api/v1/query`): the worst value, if it does not keep the bound.
pub fn of_prometheus(status: u16, body: &str, operator: Operator, bound: f64) -> Reading {
    let answer: Value = match serde_json::from_str(body) {
        Ok(answer) => answer,
        Err(_) => {
            return Reading::NoAnswer(format!(
                "HTTP status {status}, and not an answer of Prometheus; check the gate's url"
            ));
        }
    };
    if answer["status"] != "success" {
        let why = answer["error"].as_str().unwrap_or("it does not say why");
        return Reading::NoAnswer(format!("Prometheus refuses the query: {}; correct it", cut(why, WORDS)));
    }
    let data = &answer["data"];
    let number = |pair: &Value| pair[1].as_str().and_then(|v| v.parse::<f64>().ok());
    let values: Vec<Option<f64>> = match (data["resultType"].as_str(), &data["result"]) {
        (Some("vector"), Value::Array(series)) => series.iter().map(|s| number(&s["value"])).collect(),
        (Some("scalar"), pair) => vec![number(pair)],
        (other, _) => {
            let other = other.unwrap_or("of no type");
            return Reading::NoAnswer(format!(
                "the query's result is a {other}; it must be a vector or a scalar"
            ));
        }
    };
    if values.is_empty() {
        return Reading::NoAnswer("the query has no result; check its metric and labels".to_owned());
    }
    let Some(values) = values.into_iter().map(|v| v.filter(|v| !v.is_nan())).collect::<Option<Vec<f64>>>()
    else {
        return Reading::NoAnswer("the query's result is not a number (NaN)".to_owned());
    };
    let keeps = |v: f64| match operator {
        Operator::LessThan => v < bound,
        Operator::AtMost => v <= bound,
        Operator::AtLeast => v >= bound,
        Operator::GreaterThan => v > bound,
    };
    let worst = values.into_iter().reduce(match operator {
        Operator::LessThan | Operator::AtMost => f64::max,
        Operator::AtLeast | Operator::GreaterThan => f64::min,
    });
    Reading::Broken(worst.filter(|v| !keeps(*v)).map(|v| v.to_string()).into_iter().collect())
}

/// What an HTTP server answered.
pub fn of_http(status: u16, wanted: Option<u16>) -> Reading {
    let fine = wanted.map_or((200..400).contains(&status), |wanted| status == wanted);
    let words = || match wanted {
        Some(wanted) => format!("the answer's HTTP status is {status}, not {wanted}"),
        None => format!("the answer's HTTP status is {status}"),
    };
    Reading::Broken(if fine { vec![] } else { vec![words()] })
}
