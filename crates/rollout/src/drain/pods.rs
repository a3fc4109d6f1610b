//! Which pods a drain evicts, leaves or waits for: the rules of `kubectl drain --force --ignore-daemonsets
//! --delete-emptydir-data --grace-period=-1`.
//!
//! Finished pods are evicted too, as kubectl does; no budget guards them.
//!
//! What it is not: the changes to the node (see the parent module).
//!
//! Sources: <https://kubernetes.io/docs/reference/kubectl/generated/kubectl_drain/>
//! and <https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/>.

use crate::view::{BudgetView, NodeView, PodPhase, PodView};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The first wait after a refused eviction.
pub const RETRY_MIN: SignedDuration = SignedDuration::from_secs(1);

/// The longest wait between two evictions of one pod. The reference tries every 5 s.
pub const RETRY_MAX: SignedDuration = SignedDuration::from_secs(10);

/// The shortest wait, if the budget's status allows an eviction: that status may lag behind the eviction that used it
/// up.
pub const RETRY_ALLOWED: SignedDuration = SignedDuration::from_millis(200);

/// How long an accepted eviction may take to appear in the cache before it is sent again.
pub const EVICTION_VISIBLE_WITHIN: SignedDuration = SignedDuration::from_secs(5);
/// How many pods a text names; for the rest it gives a number.
const NAMED_PODS: usize = 3;

/// The evictions of one pod so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// How many.
    pub count: u32,
    /// The last one's time.
    pub at: Timestamp,
    /// The last one's answer.
    pub answer: Answer,
}

/// The API server's answer to an eviction (Kubernetes documentation, "API-initiated Eviction").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The pod is being deleted.
    Accepted,
    /// There is no such pod any more (404, or 409 on the UID).
    Gone,
    /// A budget does not allow it now (429), in the API server's words.
    Blocked(String),
    /// Anything else: refused, or no answer.
    Failed(String),
}

impl Answer {
    /// From an HTTP status and the text that came with it.
    pub fn from_status(code: u16, message: &str) -> Self {
        match code {
            200..=299 => Self::Accepted,
            404 | 409 => Self::Gone,
            429 => Self::Blocked(message.to_owned()),
            _ => Self::Failed(format!("{code}: {message}")),
        }
    }
}

/// A pod to evict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evict {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The precondition of the eviction: another pod with the same name is not meant.
    pub uid: Box<str>,
    /// The grace period to ask for; `None`: the pod's own.
    pub grace: Option<i64>,
    /// It has no controller, so nothing will create it again.
    pub unmanaged: bool,
    /// The contents of its emptyDir volumes are lost with it.
    pub loses_data: bool,
    /// It is deleted, not evicted: its budget does not allow that, and the policy of the node's pool does not wait longer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub past_budget: bool,
}

/// A pod that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// `NAMESPACE/NAME`.
    pub pod: String,
    /// Why.
    pub why: Skip,
}

/// Why a pod stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Skip {
    /// Its DaemonSet would create it again at once.
    DaemonSet,
    /// The kubelet runs it from a file (static pod).
    Mirror,
}

/// A pod that the drain waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// `NAMESPACE/NAME`.
    pub pod: String,
    /// Its UID.
    pub uid: Box<str>,
    /// Why it still exists.
    pub why: Blocker,
}

/// Why a pod still exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Blocker {
    /// It is evicted now.
    Asked,
    /// It is terminating, with this grace period in seconds.
    Terminating(Option<i64>),
    /// A budget guards it.
    Budget {
        /// `NAMESPACE/NAME`.
        budget: String,
        /// How many disruptions it allows now.
        allowed: i32,
        /// How many pods are healthy.
        healthy: i32,
        /// How many must be.
        needed: i32,
    },
    /// A budget that is not in our cache guards it; the API server's words.
    UnknownBudget(String),
    /// The eviction was refused or not answered.
    Refused(String),
}

/// The result for the pods of a node.
pub(super) struct PodsToDrain {
    pub(super) evict: Vec<Evict>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) waiting: Vec<Waiting>,
    /// When to look again at the latest.
    pub(super) next: SignedDuration,
}

pub(super) fn sort(
    node: &NodeView,
    pods: &[&PodView],
    budgets: &[&BudgetView],
    (tries, deletes): (&BTreeMap<Box<str>, Attempt>, bool),
    now: Timestamp,
) -> PodsToDrain {
    let mut found = PodsToDrain { evict: vec![], skipped: vec![], waiting: vec![], next: RETRY_MAX };
    let mut mine: Vec<&PodView> = pods.iter().copied().filter(|p| p.node == node.name).collect();
    mine.sort_unstable_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    // What each budget still allows within this plan, so that many pods of one budget do not all try for one free
    // place.
    let mut left: Vec<i32> = budgets.iter().map(|b| b.disruptions_allowed).collect();
    for pod in mine {
        if let Some(why) = skip_reason(pod) {
            found.skipped.push(Skipped { pod: pod.to_string(), why });
            continue;
        }
        let why = if pod.deleting {
            Blocker::Terminating(pod.grace)
        } else {
            let (due, why) = next_try(pod, budgets, &mut left, tries.get(&pod.uid), now);
            let guarded = matches!(why, Blocker::Budget { .. } | Blocker::UnknownBudget(_));
            if deletes && guarded {
                found.evict.push(Evict { past_budget: true, ..evict(pod) });
            } else if due <= SignedDuration::ZERO {
                found.evict.push(evict(pod));
            } else {
                found.next = found.next.min(due);
            }
            why
        };
        found.waiting.push(Waiting { pod: pod.to_string(), uid: pod.uid.clone(), why });
    }
    found
}

pub(super) fn skip_reason(pod: &PodView) -> Option<Skip> {
    let by_daemon_set = pod.owner.as_ref().is_some_and(|o| &*o.kind == "DaemonSet");
    if pod.mirror {
        Some(Skip::Mirror)
    } else if by_daemon_set && pod.phase == PodPhase::Alive {
        Some(Skip::DaemonSet)
    } else {
        None
    }
}

fn evict(pod: &PodView) -> Evict {
    let alive = pod.phase == PodPhase::Alive;
    Evict {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        grace: None,
        unmanaged: alive && pod.owner.is_none(),
        loses_data: alive && pod.empty_dir,
        past_budget: false,
    }
}

/// How long until the pod is evicted (zero: now), and why it still exists.
fn next_try(
    pod: &PodView,
    budgets: &[&BudgetView],
    left: &mut [i32],
    last: Option<&Attempt>,
    now: Timestamp,
) -> (SignedDuration, Blocker) {
    let Some(last) = last else {
        take(pod, budgets, left);
        return (SignedDuration::ZERO, Blocker::Asked);
    };
    let since = now.duration_since(last.at);
    match &last.answer {
        Answer::Accepted | Answer::Gone => (EVICTION_VISIBLE_WITHIN - since, Blocker::Terminating(pod.grace)),
        Answer::Failed(text) => (backoff(pod, last.count) - since, Blocker::Refused(text.clone())),
        Answer::Blocked(text) => {
            let guards = || budgets.iter().enumerate().filter(|(_, b)| b.guards(pod));
            let why = match guards().min_by_key(|(_, b)| b.disruptions_allowed) {
                None => Blocker::UnknownBudget(text.clone()),
                Some((_, b)) => Blocker::Budget {
                    budget: format!("{}/{}", b.namespace, b.name),
                    allowed: b.disruptions_allowed,
                    healthy: b.current_healthy,
                    needed: b.desired_healthy,
                },
            };
            let free = guards().next().is_some()
                && guards().all(|(i, _)| left.get(i).is_some_and(|places| *places > 0));
            let wait = if free { RETRY_ALLOWED } else { backoff(pod, last.count) } - since;
            if free && wait <= SignedDuration::ZERO {
                take(pod, budgets, left);
            }
            (wait, why)
        }
    }
}

fn take(pod: &PodView, budgets: &[&BudgetView], left: &mut [i32]) {
    for (places, budget) in left.iter_mut().zip(budgets) {
        if pod.phase == PodPhase::Alive && budget.guards(pod) {
            *places -= 1;
        }
    }
}

/// Doubles from [`RETRY_MIN`] to [`RETRY_MAX`], minus up to a quarter that differs from pod to pod, so that the pods of
/// one budget do not all come back at the same instant. The number is no random one: equal inputs make equal plans.
fn backoff(pod: &PodView, count: u32) -> SignedDuration {
    let mut hasher = std::hash::DefaultHasher::new();
    (&pod.uid, count).hash(&mut hasher);
    let [part, ..] = hasher.finish().to_le_bytes();
    let (first, last) = (RETRY_MIN.unsigned_abs(), RETRY_MAX.unsigned_abs());
    // From 0.5: three quarters of the whole wait.
    let jitter = 1.0 - f64::from(part) / 512.0;
    let wait = api::backoff::wait(first, last, count.saturating_sub(1), jitter);
    SignedDuration::try_from(wait).unwrap_or(RETRY_MAX)
}

/// The list of pods for a text, an event or a condition.
pub(super) fn in_words(waiting: &[Waiting]) -> String {
    // Pods that may need a person's help come first.
    let helpless = |w: &&Waiting| matches!(w.why, Blocker::Asked | Blocker::Terminating(_));
    let (calm, stuck): (Vec<_>, Vec<_>) = waiting.iter().partition(helpless);
    let all: Vec<_> = stuck.into_iter().chain(calm).collect();
    let text = api::formats::text::statements(&all, NAMED_PODS);
    if all.len() > NAMED_PODS { format!("{text} pods") } else { text }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}: {}", self.pod, self.why)
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("being evicted"),
            Self::Terminating(Some(grace)) => write!(f, "terminating, it has {grace} s"),
            Self::Terminating(None) => f.write_str("terminating"),
            Self::Budget { budget, allowed, healthy, needed } => write!(
                f,
                "PodDisruptionBudget {budget} allows {allowed} disruptions ({healthy} pods healthy, {needed} needed)"
            ),
            Self::UnknownBudget(text) => write!(f, "a PodDisruptionBudget: {text}"),
            Self::Refused(text) => write!(f, "eviction refused: {text}"),
        }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Skip::DaemonSet => "of a DaemonSet",
            Skip::Mirror => "a static pod's mirror",
        };
        write!(f, "pod {}: {why}", self.pod)
    }
}

impl fmt::Display for Evict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}/{}", self.namespace, self.name)?;
        if self.unmanaged {
            write!(f, ", no controller creates it again")?;
        }
        if self.loses_data {
            write!(f, ", its emptyDir goes with it")?;
        }
        if self.past_budget {
            write!(f, ", although its budget does not allow it")?;
        }
        Ok(())
    }
}
