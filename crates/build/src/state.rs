//! The conditions that say how far a build is. Once a build has ended, nothing changes it any more.
//!
//! What it is not: what follows from a state (see `plan`).

use crate::build_reason::BuildReason;
use api::conditions::StatusCondition as _;
pub use api::images::build_state::BuildState as State;
use api::k8s::{MetaCondition, Time};
use api::v1::{MachineOSBuild, MachineOSBuildStatus};
use jiff::SignedDuration;

/// The condition types, with the reason and the message of each, and the state that it stands for.
const CONDITIONS: [(State, &str, &str, &str); 5] = [
    (State::Prepared, "Prepared", "Prepared", "Build Prepared and Pending"),
    (State::Building, "Building", "Building", "Image Build In Progress"),
    (State::Failed, "Failed", "Failed", "Build Failed"),
    (State::Interrupted, "Interrupted", "Interrupted", "Build Interrupted"),
    (State::Succeeded, "Succeeded", "Ready", "Build Ready"),
];

/// Characters of a condition's message that come from a build's log.
const MAX_CAUSE: usize = 4000;

/// Whether a build has ended.
pub fn is_ended(build: &MachineOSBuild) -> bool {
    State::of(build).is_terminal()
}

/// The condition that is `True`.
pub(crate) fn current_condition(build: &MachineOSBuild) -> Option<&MetaCondition> {
    condition_in_force(build.status.as_ref())
}

fn condition_in_force(status: Option<&MachineOSBuildStatus>) -> Option<&MetaCondition> {
    let mut all = status.into_iter().flat_map(|s| s.conditions.iter().flatten());
    all.find(|c| c.is_true())
}

/// Precedes what keeps the pods of a build from starting, in the message of the state that it is in until then.
const HELD_UP: &str = "its pod does not start: ";

/// The message of the condition that is `True`.
pub(crate) fn message(status: Option<&MachineOSBuildStatus>) -> Option<&str> {
    condition_in_force(status).map(|c| c.message.as_str())
}

/// What keeps the pods of a build from starting, as its message has kept it.
pub(crate) fn held_up(build: &MachineOSBuild) -> Option<&str> {
    message(build.status.as_ref())?.split_once(HELD_UP).map(|(_, why)| why)
}

/// What a state's condition says besides its fixed words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Another reason.
    pub(crate) reason: Option<BuildReason>,
    /// Why, for people.
    pub(crate) why: Option<String>,
}

impl Cause {
    /// Of a build whose pods do not start, if that is so.
    pub(crate) fn held_up(why: Option<&str>) -> Self {
        Self { reason: None, why: why.map(|why| format!("{HELD_UP}{why}")) }
    }
}

/// The status of a build in another state. `at`: when its Job began and ended, where that is known.
pub(crate) fn status(
    build: &MachineOSBuild,
    state: State,
    cause: &Cause,
    at: (Option<&Time>, Option<&Time>),
    now: &Time,
) -> MachineOSBuildStatus {
    let mut status = build.status.clone().unwrap_or_default();
    let old = status.conditions.take().unwrap_or_default();
    status.conditions = Some(
        CONDITIONS
            .iter()
            .map(|(of, type_, reason, message)| {
                let word = if *of == state { "True" } else { "False" };
                let before = old.iter().find(|c| c.type_ == *type_ && c.status == word);
                let mut condition = MetaCondition {
                    type_: (*type_).to_owned(),
                    status: word.to_owned(),
                    reason: (*reason).to_owned(),
                    message: (*message).to_owned(),
                    last_transition_time: before
                        .map_or_else(|| now.clone(), |c| c.last_transition_time.clone()),
                    observed_generation: None,
                };
                if *of == state {
                    if let Some(reason) = cause.reason {
                        condition.reason = reason.text().to_owned();
                    }
                    if let Some(why) = &cause.why {
                        let why = api::formats::text::cut(why, MAX_CAUSE);
                        condition.message = format!("{message}: {why}");
                    }
                }
                condition
            })
            .collect(),
    );
    let (began, ended) = at;
    if state != State::Initial && status.build_start.is_none() {
        status.build_start = Some(began.unwrap_or(now).clone());
    }
    if state.is_terminal() && status.build_end.is_none() {
        let end = ended.unwrap_or(now).clone();
        // The API knows seconds, and refuses an end that is not later than the start.
        status.build_end = Some(match &status.build_start {
            Some(start) if end.0.as_second() <= start.0.as_second() => after(start),
            _ => end,
        });
    }
    status
}

/// A second later.
fn after(time: &Time) -> Time {
    Time(time.0.saturating_add(SignedDuration::from_secs(1)).unwrap_or(time.0))
}

/// The status of a build that stands for an image from elsewhere.
pub(crate) fn seeded(image: &str, now: &Time) -> MachineOSBuildStatus {
    let mut status = status(
        &MachineOSBuild::default(),
        State::Succeeded,
        &Cause { reason: Some(BuildReason::Seeded), why: None },
        (None, None),
        now,
    );
    for condition in status.conditions.iter_mut().flatten() {
        condition.reason = BuildReason::Seeded.text().to_owned();
        condition.message = match condition.is_true() {
            true => format!("Pre-built image {image:?} successfully seeded"),
            false => "Skipped: using pre-built image".to_owned(),
        };
    }
    status.digested_image_push_spec = Some(image.to_owned());
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use State::{Building, Prepared, Succeeded};
    use serde_json::json;

    #[test]
    fn a_status_has_all_conditions_and_is_read_back() {
        let now: Time = serde_json::from_value(json!("2026-11-23T07:00:00Z")).unwrap();
        let mut build = MachineOSBuild::default();
        for state in [Prepared, Building, Succeeded] {
            build.status = Some(status(&build, state, &Cause::default(), (None, None), &now));
            assert_eq!(State::of(&build), state);
        }
        let status = build.status.unwrap();
        let words: Vec<_> =
            status.conditions.iter().flatten().map(|c| (&*c.type_, &*c.status, &*c.reason)).collect();
        assert_eq!(
            words,
            [
                ("Prepared", "False", "Prepared"),
                ("Building", "False", "Building"),
                ("Failed", "False", "Failed"),
                ("Interrupted", "False", "Interrupted"),
                ("Succeeded", "True", "Ready"),
            ]
        );
        assert_eq!(json!(status)["buildEnd"], "2026-11-23T07:00:01Z", "later than the start");
    }
}
