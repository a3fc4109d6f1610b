//! What a build's Job says: the few fields that are read, and the state that they mean.
//!
//! What it is not: the Job as it is created (see `objects`).
//!
//! Source: <https://kubernetes.io/docs/concepts/workloads/controllers/job/>.

use crate::state::State;
use api::conditions;
use api::k8s::Time;
use serde::Deserialize;
use serde_json::Value;

/// How many times the Job tries again.
pub(crate) const RETRIES: i32 = 3;

/// A Job, as far as a build needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFacts {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The uid of the object that controls it: the MachineOSBuild.
    pub owner: String,
    /// The pool that it builds for, by its label.
    pub pool: String,
    /// The MachineOSBuild, by its label.
    pub build: String,
    /// Somebody has deleted it.
    pub deleting: bool,
    /// Pods that wait or run.
    pub active: i32,
    /// Pods that run.
    pub ready: i32,
    /// When it was made.
    pub created: Option<Time>,
    /// Pods that succeeded.
    pub succeeded: i32,
    /// Pods that failed.
    pub failed: i32,
    /// Pods that have ended and are not counted yet.
    pub uncounted: bool,
    /// `Complete`, or no condition at all.
    pub complete: bool,
    /// Its condition `Failed`.
    pub failure: Option<JobFailure>,
    /// When it began.
    pub start: Option<Time>,
    /// When it ended.
    pub end: Option<Time>,
}

/// How long a pod may take to start before people are told what it waits for, in seconds.
const START_SECONDS: i64 = 60;

/// When the pods of a Job have to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartCheck {
    /// One of them runs, or all is over.
    Never,
    /// Not before these seconds are over.
    In(i64),
    /// Now.
    Now,
}

/// Why a Job has failed for good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFailure {
    /// For example `BackoffLimitExceeded`, `DeadlineExceeded` or `PodFailurePolicy`.
    pub reason: String,
    /// The Job controller's words.
    pub message: String,
}

impl JobFacts {
    /// From the object as JSON.
    pub fn new(object: &Value) -> Self {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let count = |pointer: &str| {
            let n = object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
            i32::try_from(n).unwrap_or(i32::MAX)
        };
        let time = |pointer: &str| object.pointer(pointer).and_then(|v| Time::deserialize(v).ok());
        let list =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
        let conditions = conditions::of_object(object);
        let word = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let uncounted = ["succeeded", "failed"]
            .iter()
            .any(|key| !list(&format!("/status/uncountedTerminatedPods/{key}")).is_empty());
        let owners = list("/metadata/ownerReferences");
        let label = |key: &str| word(&object["metadata"]["labels"][key]);
        Self {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            owner: owners
                .iter()
                .find(|o| o["controller"] == true)
                .map(|o| word(&o["uid"]))
                .unwrap_or_default(),
            pool: label(crate::names::POOL),
            build: label(crate::names::OS_BUILD),
            deleting: object.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null()),
            active: count("/status/active"),
            ready: count("/status/ready"),
            created: time("/metadata/creationTimestamp"),
            succeeded: count("/status/succeeded"),
            failed: count("/status/failed"),
            uncounted,
            complete: conditions.is_empty() || conditions::is_true(conditions, "Complete"),
            failure: conditions::get_true(conditions, "Failed")
                .map(|c| JobFailure { reason: word(&c["reason"]), message: word(&c["message"]) }),
            start: time("/status/startTime"),
            end: time("/status/completionTime"),
        }
    }

    /// Whether its pods have to be looked at, because none of them has started.
    pub fn start_check(&self, now: &Time) -> StartCheck {
        let waits = matches!(self.state(), State::Prepared | State::Building) && self.ready == 0;
        match &self.created {
            Some(created) if waits && !self.deleting => {
                let age = now.0.duration_since(created.0).as_secs();
                match START_SECONDS.saturating_sub(age) {
                    left @ 1.. => StartCheck::In(left),
                    _ => StartCheck::Now,
                }
            }
            _ => StartCheck::Never,
        }
    }

    /// The state that the Job means for its build: the first row that fits.
    pub fn state(&self) -> State {
        let may_retry = self.failed <= RETRIES;
        if self.deleting && self.succeeded == 0 && may_retry && self.failure.is_none() {
            State::Interrupted
        } else if self.failure.is_some() {
            // A deadline and a failure that is not worth another try come before the last one.
            State::Failed
        } else if (self.active, self.succeeded, self.failed, self.uncounted) == (0, 0, 0, false) {
            State::Prepared
        } else if self.succeeded == 0 && may_retry {
            State::Building
        } else if self.succeeded > 0 {
            if self.complete { State::Succeeded } else { State::Building }
        } else {
            State::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_counts_of_a_job_are_the_state_of_its_build() {
        let failed = |reason: &str| json!([{"type": "Failed", "status": "True", "reason": reason}]);
        let complete = json!([{"type": "Complete", "status": "True"}]);
        for (status, want) in [
            (json!({}), State::Prepared),
            (json!({"active": 1}), State::Building),
            (json!({"uncountedTerminatedPods": {"succeeded": ["x"]}}), State::Building),
            (json!({"failed": 3}), State::Building),
            (json!({"failed": 4}), State::Failed),
            (json!({"failed": 1, "conditions": failed("PodFailurePolicy")}), State::Failed),
            (json!({"active": 1, "conditions": failed("DeadlineExceeded")}), State::Failed),
            (json!({"succeeded": 1}), State::Succeeded),
            (json!({"succeeded": 1, "conditions": complete}), State::Succeeded),
            (json!({"succeeded": 1, "conditions": failed("x")}), State::Failed),
            (
                json!({"succeeded": 1, "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}),
                State::Building,
            ),
        ] {
            assert_eq!(JobFacts::new(&json!({"status": status})).state(), want, "{status}");
        }
        let made = json!({"creationTimestamp": "2026-01-01T00:00:00Z"});
        for (status, seconds, want) in [
            (json!({}), 59, StartCheck::In(1)),
            (json!({}), 60, StartCheck::Now),
            (json!({"active": 1}), 3600, StartCheck::Now),
            (json!({"active": 1, "ready": 1}), 3600, StartCheck::Never),
            (json!({"succeeded": 1}), 3600, StartCheck::Never),
        ] {
            let now = Time(jiff::Timestamp::from_second(1_767_225_600 + seconds).unwrap());
            let job = JobFacts::new(&json!({"metadata": made, "status": status}));
            assert_eq!(job.start_check(&now), want, "{status} after {seconds} s");
        }
        let gone =
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"active": 1}});
        assert_eq!(JobFacts::new(&gone).state(), State::Interrupted);
    }
}
