//! When a failed request is reported on an object: at once if the API server will refuse it every time; after a few
//! seconds if it could have passed by itself and did not.
//!
//! What it is not: a retry. Everything is tried again, refused writes too: the controller does not watch admission
//! policies, so it cannot see when one changes.

use crate::passes::queue::Outcome;
use api::text::{MAX_ANSWER_CHARS, cut};
use client::CallError;
use rollout::{Trouble, TroubleOf};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What fails for so long does not pass by itself: conflicts are over in milliseconds, an API server's restart in
/// seconds. People are promised a condition within ten.
const LASTS: Duration = Duration::from_secs(5);

/// How often something that is refused is tried again although nothing that is watched has changed.
pub(crate) const AGAIN: Duration = Duration::from_secs(15);

/// What a failure says of itself.
pub(crate) trait Failure {
    /// It will fail each time.
    fn is_refused(&self) -> bool;
    /// It was decided on an old version of an object: decided anew, it may work at once.
    fn is_stale(&self) -> bool;
    /// It and its causes in one line.
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

/// Why a MachineConfig of our own does not stand, or go, as it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The write failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The write was accepted, and something else is stored.
    #[error(
        "machineconfig {name}: the API server has stored something else than was sent (different: {fields}); a mutating \
         admission policy or webhook changes it on its way: exempt the kind machineconfigs from that"
    )]
    Altered {
        /// The object.
        name: String,
        /// The fields, never what they hold.
        fields: String,
    },
    /// The deletion was accepted, and the object stays.
    #[error(
        "machineconfig {name} is being deleted and stays for as long as it has the finalizers {finalizers}: start the program \
         that removes them, or remove them by hand with `kubectl edit machineconfig {name}`"
    )]
    Held {
        /// The object.
        name: String,
        /// What holds it.
        finalizers: String,
    },
}

impl Failure for WriteError {
    fn is_refused(&self) -> bool {
        match self {
            Self::Call(error) => error.is_refused(),
            Self::Altered { .. } => true,
            // Whoever set the finalizer may be at work.
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

/// A write that was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undone {
    /// The object has changed: decide anew.
    Stale,
    /// It fails, and this is to be told.
    Refused(String),
}

/// What fails now, by what was tried, and since when.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<HashMap<String, Instant>>);

impl Troubles {
    /// The API server's words, once they are to be told; `None`: it may pass by itself.
    pub(crate) fn words(&self, what: &str, error: &impl Failure) -> Option<String> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *all.entry(what.to_owned()).or_insert_with(Instant::now);
        let due = error.is_refused() || since.elapsed() >= LASTS;
        due.then(|| cut(&error.chain(), MAX_ANSWER_CHARS).into_owned())
    }

    /// The outcome of a write. A conflict is one that may pass by itself until it has lasted; any other failure is told.
    pub(crate) fn judge(&self, what: &str, done: Result<(), CallError>) -> Result<(), Undone> {
        let Err(error) = done else {
            self.over(what);
            return Ok(());
        };
        match self.words(what, &error) {
            Some(words) => Err(Undone::Refused(words)),
            None if error.is_stale() => Err(Undone::Stale),
            None => Err(Undone::Refused(cut(&error.chain(), MAX_ANSWER_CHARS).into_owned())),
        }
    }

    /// Forgets what is not tried any more.
    pub(crate) fn retain(&self, tried: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|what, _| tried(what));
    }

    /// A term begins: what failed in an earlier one has not failed since.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    #[cfg(test)]
    pub(crate) fn knows(&self, what: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(what)
    }

    /// It works, or is not tried any more.
    pub(crate) fn over(&self, what: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(what);
    }
}

/// What goes wrong beside rendering and rollout and holds neither up; pools say it.
#[derive(Debug, Default)]
pub(crate) struct Remarks(Mutex<BTreeMap<(Topic, TroubleOf), String>>);

/// What a remark is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The topology cannot be written into the ControllerConfig.
    Topology,
    /// What there is of a kind cannot be read.
    Unread(String),
    /// A node cannot be cordoned, uncordoned, or told that its drain is over.
    Drain,
}

impl Remarks {
    /// Keeps a remark, or takes it back. `true`: that is new.
    pub(crate) fn set(&self, topic: Topic, of: TroubleOf, text: Option<String>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match text {
            Some(text) => all.insert((topic, of), text.clone()) != Some(text),
            None => all.remove(&(topic, of)).is_some(),
        }
    }

    /// As a plan takes them.
    pub(crate) fn all(&self) -> Vec<Trouble> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|((_, of), text)| Trouble { of: of.clone(), text: text.clone() }).collect()
    }

    /// A term begins.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// What the writes of one pass have come to: each is tried, whatever became of the others.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    stale: bool,
    refused: bool,
    failed: Option<String>,
}

impl Writes {
    /// Books one write. Returns what is to be told of it, if it failed and that is due.
    pub(crate) fn book(
        &mut self,
        troubles: &Troubles,
        what: &str,
        done: Result<(), impl Failure>,
    ) -> Option<String> {
        let Err(error) = done else {
            troubles.over(what);
            return None;
        };
        let words = troubles.words(what, &error);
        if words.is_some() {
            self.refused = true;
        } else if error.is_stale() {
            self.stale = true;
        } else {
            self.failed.get_or_insert_with(|| error.chain());
        }
        words
    }

    /// Is each done, or told of?
    pub(crate) fn are_over(&self) -> bool {
        !self.stale && self.failed.is_none()
    }

    /// When the pass is to run again.
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
            let (troubles, error) = (Troubles::default(), error(code, message));
            assert_eq!(troubles.words("a", &error).is_some(), at_once, "{code} {message}");
            tokio::time::advance(LASTS / 2).await;
            assert_eq!(troubles.words("a", &error).is_some(), at_once, "{code} {message}");
            tokio::time::advance(LASTS).await;
            let words = troubles.words("a", &error).unwrap();
            assert!(words.contains("machineconfig a") && words.contains(message), "{words}");
            troubles.over("a");
            assert_eq!(troubles.words("a", &error).is_some(), at_once, "it begins anew");
        }
        let long = Troubles::default().words("a", &error(422, &"x".repeat(1_000_000))).unwrap();
        assert!(long.len() < 3000, "{}", long.len());
    }
}
