//! Why a step of a pass failed, and what to do about it.

use crate::reconcile_error::ReconcileError;
use crate::sync::Stop;
use api::names::VERSION_RAW;
use client::{CallError, MissingRight, chain};

/// Why a step failed.
#[derive(Debug)]
pub(super) enum StepError {
    Conflict,
    Stop(Stop),
}

impl From<CallError> for StepError {
    fn from(error: CallError) -> Self {
        if error.is_conflict() { Self::Conflict } else { Self::Stop(Stop::Failed(with_remedy(&error))) }
    }
}

impl From<ReconcileError> for StepError {
    fn from(error: ReconcileError) -> Self {
        match error {
            ReconcileError::Call(error) => error.into(),
            other => Self::Stop(Stop::Failed(chain(&other))),
        }
    }
}

pub(super) fn failed(why: impl Into<String>) -> StepError {
    StepError::Stop(Stop::Failed(why.into()))
}

/// What to do about a refusal.
pub(super) fn remedy(error: &CallError) -> String {
    if let Some(right) = MissingRight::of(error) {
        return format!(
            "{right}: the operator's rights are not those of {VERSION_RAW}; `mco install` of {VERSION_RAW} with the same \
             --image gives them; to give only this one: {}",
            right.commands()
        );
    }
    let words = if error.is_forbidden() && !error.by_admission() {
        "the operator's rights are not those of this version: run `mco install` of this version again with the same --image"
    } else if error.is_refused() {
        "remove what refuses it, and the operator continues"
    } else if error.is_not_found() {
        "run `mco install` again: it creates the namespaces and kinds"
    } else {
        "the operator tries again"
    };
    words.to_owned()
}

/// The error, and what to do about it.
pub(super) fn with_remedy(error: &CallError) -> String {
    format!("{}; {}", error.chain(), remedy(error))
}
