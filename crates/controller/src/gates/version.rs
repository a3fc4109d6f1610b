//! Which version the ControllerConfig belongs to. The annotation `generated-by-version` names one version, and only a
//! controller of that version renders, so that the inputs of two versions never mix.
//!
//! What it is not: the writes that take it over (see `passes::version_claim`).

use crate::gates::RenderGate;
use api::k8s::ResourceExt;
use api::names::annotation::GENERATED_BY_VERSION;
use api::render_reason::RenderReason;
use api::v1::ControllerConfig;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How many times the annotation is taken back at once. An administrator who applies an old file, or a last write of a
/// controller that has just lost the lease, is not a program that keeps writing.
const AT_ONCE: u32 = 2;
/// How often it is taken back after that. The only sign that the other program has stopped is that it no longer writes,
/// so we try. A try costs two writes, one of ours and one of the program's. Once the program has stopped, pools wait no
/// longer than this.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// A program that watches the object has written its version back by then. Until that is known the pools keep their
/// message, so that their conditions do not change with each try.
pub(crate) const PROVED: Duration = Duration::from_secs(5);
/// After this long the annotation counts as ours: no other program writes it. It is longer than the interval at which
/// deployment tools compare.
pub(crate) const SETTLED: Duration = Duration::from_mins(16);

/// The history of the annotation in this term.
#[derive(Debug, Default)]
pub(crate) struct Claim(Mutex<ClaimHistory>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClaimHistory {
    /// How often we have taken it over, and when last.
    pub(crate) taken: Option<(u32, Instant)>,
    /// Why it is not ours now, for the pools' condition.
    pub(crate) why: Option<String>,
}

/// What to do about the annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is ours, or nobody's.
    Nothing,
    /// Write it.
    Take,
    /// Somebody keeps writing it: look again after this time.
    Leave(Duration),
    /// It is ours again, but may still be written back: look again after this time.
    Prove(Duration),
}

/// The version in the annotation, if it is not this one.
pub(crate) fn other<'a>(config: &'a ControllerConfig, version: &str) -> Option<&'a str> {
    config.annotations().get(GENERATED_BY_VERSION).map(String::as_str).filter(|found| *found != version)
}

pub(crate) fn decide(other: Option<&str>, past: &ClaimHistory, now: Instant) -> Step {
    if other.is_none() {
        let left = past.taken.map(|(_, last)| PROVED.saturating_sub(now.duration_since(last)));
        return match left.filter(|left| past.why.is_some() && !left.is_zero()) {
            Some(left) => Step::Prove(left),
            None => Step::Nothing,
        };
    }
    let Some((times, last)) = past.taken else { return Step::Take };
    let ago = now.duration_since(last);
    if times < AT_ONCE || ago >= AGAIN_AFTER {
        return Step::Take;
    }
    Step::Leave(AGAIN_AFTER.saturating_sub(ago))
}

impl Claim {
    pub(crate) fn past(&self) -> ClaimHistory {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, past: ClaimHistory) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = past;
    }

    /// Forgets the history at the start of a term: whoever wrote before may be gone.
    pub(crate) fn forget(&self) {
        self.set(ClaimHistory::default());
    }

    /// Whether this version may render pools from this ControllerConfig.
    pub(crate) fn check(&self, config: &ControllerConfig, version: &str) -> RenderGate {
        match (other(config, version), self.past().why) {
            (None, None) => RenderGate::Open,
            (Some(_), None) => {
                RenderGate::Wait("the controller is writing its version to the ControllerConfig")
            }
            (_, Some(message)) => RenderGate::Refuse { reason: RenderReason::VersionSkew, message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn another_version_is_taken_over_unless_somebody_keeps_writing_it() {
        let start = Instant::now();
        let taken = |times| ClaimHistory { taken: Some((times, start)), why: None };
        let told = |times| ClaimHistory { why: Some("why".to_owned()), ..taken(times) };
        let after = |seconds| start + Duration::from_secs(seconds);
        let leave = |seconds| Step::Leave(Duration::from_secs(seconds));
        for (found, past, now, want) in [
            (None, ClaimHistory::default(), after(0), Step::Nothing),
            (None, taken(9), after(0), Step::Nothing),
            (Some("v0"), ClaimHistory::default(), after(0), Step::Take),
            (Some("v0"), taken(1), after(0), Step::Take),
            (Some("v0"), taken(2), after(0), leave(30)),
            (Some("v0"), taken(2), after(29), leave(1)),
            // The other program may have stopped.
            (Some("v0"), taken(2), after(30), Step::Take),
            // However often it was tried, nobody waits longer than this once the program has stopped.
            (Some("v0"), taken(u32::MAX), after(29), leave(1)),
            (Some("v0"), taken(u32::MAX), after(30), Step::Take),
            // Ours again, but it may still be written back.
            (None, told(9), after(1), Step::Prove(Duration::from_secs(4))),
            (None, told(9), after(5), Step::Nothing),
        ] {
            assert_eq!(decide(found, &past, now), want, "{found:?} {past:?}");
        }
    }
}
