//! Why a step of a pass failed, and what to do about it.

use crate::reconcile_error::ReconcileError;
use crate::sync::{Step, Stop};
use api::formats::shape::ShapeError;
use api::formats::text::statements;
use api::names::VERSION_RAW;
use client::{CallError, MissingRight, chain};

/// Why a step failed.
#[derive(Debug)]
pub(super) enum StepError {
    Conflict,
    Stop(Stop),
    /// Something is wrong although the step has done its work: this is said, as that step, and nothing waits for it.
    Noted(Step, String),
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

/// An object that this operator has made, and that does not fit its kind. No value of it is quoted.
pub(super) fn misshapen(what: &str, error: &ShapeError) -> StepError {
    failed(format!("{what} cannot be written: {error}; this is a bug, please report it"))
}

/// How many rights are named. Of the others the number is said.
const SHOWN_RIGHTS: usize = 3;

/// The rights that the operator was to give to a part and does not have itself, as the API server names them: `{APIGroups:[""],
/// Resources:["secrets"], …}`, one a line. `None`: it was refused for something else.
///
/// Source: `ConfirmNoEscalation` of Kubernetes' `pkg/registry/rbac/validation`, which writes `user` in lower case.
fn rights_not_held(error: &CallError) -> Option<String> {
    let status = error.status().filter(|status| status.code == 403 && !error.by_admission())?;
    let (_, rest) = status.message.split_once("attempting to grant RBAC permissions not currently held:")?;
    let rights = rest.split_once("; resolution errors:").map_or(rest, |(rights, _)| rights);
    let rights: Vec<&str> = rights.lines().map(str::trim).filter(|right| !right.is_empty()).collect();
    Some(statements(rights, SHOWN_RIGHTS))
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
    // So it is where the ControllerConfig names another pull secret in our own namespace than the last installation knew.
    if let Some(rights) = rights_not_held(error) {
        return format!(
            "the operator may give no right that it does not have itself: {rights}; `mco install` of {VERSION_RAW} with the same \
             --image gives it what the settings and the ControllerConfig ask for now"
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

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn a_right_that_the_operator_cannot_give_is_named_with_what_gives_it() {
        let refused = |message: &str| CallError::Api {
            what: "apply Role machine-config-controller".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(
                Status::failure(message, "Forbidden").with_code(403),
            ))),
        };
        let right = "{APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"mine\"], Verbs:[\"list\" \"watch\"]}";
        let begin = "roles.rbac.authorization.k8s.io \"machine-config-controller\" is forbidden: user \"u\" (groups=[\"g\"]) is \
                     attempting to grant RBAC permissions not currently held:\n";
        for (end, named) in [
            (right.to_owned(), right.to_owned()),
            (format!("{right}\n{right}"), format!("{right}; {right}")),
            (format!("{right}; resolution errors: [x]"), right.to_owned()),
        ] {
            let said = remedy(&refused(&format!("{begin}{end}")));
            let want = format!(
                "does not have itself: {named}; `mco install` of {VERSION_RAW} with the same --image gives"
            );
            assert!(said.contains(&want), "{said}");
        }
        let policy =
            "roles \"r\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        for (message, want) in [
            ("no", "the operator's rights are not those of this version"),
            (policy, "remove what refuses it"),
            (
                "roles is forbidden: User \"u\" cannot list resource \"roles\" in API group \"g\" at the cluster scope",
                "u may not list",
            ),
        ] {
            let said = remedy(&refused(message));
            assert!(said.starts_with(want), "{said}");
        }
    }
}
