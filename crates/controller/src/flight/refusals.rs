//! When a failed request is reported on an object: at once if the API server will refuse it every time; after a few
//! seconds if it could have passed by itself and did not.
//!
//! What it is not: a retry. Everything is tried again, refused writes too: the controller does not watch admission
//! policies, so it cannot see when one changes.

use crate::queue::Outcome;
use api::formats::text::{MAX_ANSWER_CHARS, cut};
use client::CallError;
use rollout::{Trouble, TroubleOf};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A failure that lasts this long does not pass by itself: conflicts are over in milliseconds, a restart of the API
/// server in seconds. People are promised a condition within ten seconds.
const LASTS: Duration = Duration::from_secs(5);

/// How often a refused write is tried again although nothing that is watched has changed.
pub(crate) const AGAIN: Duration = Duration::from_secs(15);

/// What a failure says about itself.
pub(crate) trait Failure {
    /// Whether it will fail every time.
    fn is_refused(&self) -> bool;
    /// Whether it was decided on an old version of an object; a new decision may work at once.
    fn is_stale(&self) -> bool;
    /// The failure and its causes in one line.
    fn chain(&self) -> String;
}

impl Failure for CallError {
    fn is_refused(&self) -> bool {
        self.is_refused()
    }

    fn is_stale(&self) -> bool {
        self.is_conflict() || self.is_not_found()
    }

    fn chain(&self) -> String {
        self.chain()
    }
}

/// Why one of our own MachineConfigs is not stored, or not deleted, as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The write failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The write was accepted, but something else is stored.
    #[error(
        "machineconfig {name}: the API server stored something other than what was sent (different: \
         {fields}): a mutating admission policy or webhook changed it; exempt machineconfigs from that \
         policy or webhook"
    )]
    Altered {
        /// The object.
        name: String,
        /// The names of the fields, never their values.
        fields: String,
    },
    /// The deletion was accepted, but the object stays.
    #[error(
        "machineconfig {name} is being deleted, but still has the finalizers {finalizers}: start the program \
         that removes them, or remove them by hand with `kubectl edit machineconfig {name}`"
    )]
    Held {
        /// The object.
        name: String,
        /// The finalizers that hold it.
        finalizers: String,
    },
}

impl Failure for WriteError {
    fn is_refused(&self) -> bool {
        match self {
            Self::Call(error) => error.is_refused(),
            Self::Altered { .. } => true,
            // Whoever set the finalizer may still be at work.
            Self::Held { .. } => false,
        }
    }

    fn is_stale(&self) -> bool {
        matches!(self, Self::Call(error) if error.is_stale())
    }

    fn chain(&self) -> String {
        match self {
            Self::Call(error) => error.chain(),
            Self::Altered { .. } | Self::Held { .. } => self.to_string(),
        }
    }
}

/// Why a write was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotWritten {
    /// The object has changed: decide again.
    Stale,
    /// It fails, and that must be reported.
    Refused(String),
}

/// What currently fails, by what was tried, and since when.
#[derive(Debug, Default)]
pub(crate) struct CurrentFailures(Mutex<HashMap<String, Instant>>);

impl CurrentFailures {
    /// The API server's message once it must be reported; `None` while the failure may still pass by itself.
    pub(crate) fn due_message(&self, what: &str, error: &impl Failure) -> Option<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *all.entry(what.to_owned()).or_insert_with(Instant::now);
        let due = error.is_refused() || since.elapsed() >= LASTS;
        due.then(|| cut(&error.chain(), MAX_ANSWER_CHARS).into_owned())
    }

    /// The outcome of a write. A conflict may pass by itself, until it has lasted; any other failure is reported.
    pub(crate) fn outcome(&self, what: &str, done: Result<(), CallError>) -> Result<(), NotWritten> {
        let Err(error) = done else {
            self.resolved(what);
            return Ok(());
        };
        match self.due_message(what, &error) {
            Some(words) => Err(NotWritten::Refused(words)),
            None if error.is_stale() => Err(NotWritten::Stale),
            None => Err(NotWritten::Refused(cut(&error.chain(), MAX_ANSWER_CHARS).into_owned())),
        }
    }

    /// Forgets everything that is no longer tried.
    pub(crate) fn retain(&self, tried: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|what, _| tried(what));
    }

    /// Forgets everything at the start of a term: what failed in an earlier term has not failed since.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    #[cfg(test)]
    pub(crate) fn knows(&self, what: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(what)
    }

    /// Records that it works, or is no longer tried.
    pub(crate) fn resolved(&self, what: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(what);
    }
}

/// Problems outside rendering and rollout that delay neither of them. Pools report them.
#[derive(Debug, Default)]
pub(crate) struct SideProblems(Mutex<BTreeMap<(Topic, TroubleOf), String>>);

/// What a remark is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The topology cannot be written into the ControllerConfig.
    Topology,
    /// The objects of a kind cannot be read.
    Unread(String),
    /// The status of RolloutPolicies cannot be written.
    Policies,
    /// A node cannot be cordoned or uncordoned, or its drain cannot be recorded as done.
    Drain,
    /// The OSImageStream cannot be filled from images.
    Streams,
    /// What was found out about a pool's OS image cannot be written.
    OsImage,
    /// The pool's OS image is not built, or a step of its build fails.
    ImageBuild,
}

impl SideProblems {
    /// Sets a remark, or removes it. Returns whether that changed anything.
    pub(crate) fn set(&self, topic: Topic, of: TroubleOf, text: Option<String>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match text {
            Some(text) => all.insert((topic, of), text.clone()) != Some(text),
            None => all.remove(&(topic, of)).is_some(),
        }
    }

    /// The remarks in the form that a plan takes.
    pub(crate) fn all(&self) -> Vec<Trouble> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|((_, of), text)| Trouble { of: of.clone(), text: text.clone() }).collect()
    }

    /// Forgets everything at the start of a term.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The outcomes of one pass's writes: each write is tried, even if others fail.
#[derive(Debug, Default)]
pub(crate) struct WriteOutcomes {
    stale: bool,
    refused: bool,
    failed: Option<String>,
}

impl WriteOutcomes {
    /// Records one write. Returns the message to report, if it failed and that is due.
    pub(crate) fn record(
        &mut self,
        troubles: &CurrentFailures,
        what: &str,
        done: Result<(), impl Failure>,
    ) -> Option<String> {
        let Err(error) = done else {
            troubles.resolved(what);
            return None;
        };
        let words = troubles.due_message(what, &error);
        if words.is_some() {
            self.refused = true;
        } else if error.is_stale() {
            self.stale = true;
        } else {
            self.failed.get_or_insert_with(|| error.chain());
        }
        words
    }

    /// Whether each write is done or its failure reported.
    pub(crate) fn are_over(&self) -> bool {
        !self.stale && self.failed.is_none()
    }

    /// When the pass must run again.
    pub(crate) fn outcome(self) -> Outcome {
        match self.failed {
            Some(why) => Outcome::Failed(why),
            None if self.stale => Outcome::Stale,
            None if self.refused => Outcome::After(AGAIN),
            None => Outcome::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn error(code: u16, message: &str) -> CallError {
        let status = Status { code, message: message.to_owned(), ..Status::default() };
        CallError::Api {
            what: "machineconfig a".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_told_at_once_and_anything_else_when_it_lasts() {
        let denied = "admission webhook \"w.example\" denied the request: no";
        for (code, message, at_once) in [
            (400, "no", true),
            (403, "no", true),
            (413, "no", true),
            (422, "no", true),
            (409, denied, true),
            (500, denied, true),
            (409, "the object has been modified", false),
            (404, "no", false),
            (429, "no", false),
            (500, "failed calling webhook \"w.example\"", false),
            (503, "no", false),
        ] {
            let (troubles, error) = (CurrentFailures::default(), error(code, message));
            assert_eq!(troubles.due_message("a", &error).is_some(), at_once, "{code} {message}");
            tokio::time::advance(LASTS / 2).await;
            assert_eq!(troubles.due_message("a", &error).is_some(), at_once, "{code} {message}");
            tokio::time::advance(LASTS).await;
            let words = troubles.due_message("a", &error).unwrap();
            assert!(words.contains("machineconfig a") && words.contains(message), "{words}");
            troubles.resolved("a");
            assert_eq!(troubles.due_message("a", &error).is_some(), at_once, "it begins anew");
        }
        let long = CurrentFailures::default().due_message("a", &error(422, &"x".repeat(1_000_000))).unwrap();
        assert!(long.len() < 3000, "{}", long.len());
    }
}
