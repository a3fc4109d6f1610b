//! Conditions of pools and nodes: read, compared without timestamps, and merged so that `lastTransitionTime` moves only
//! when the status does. The clock is an argument.

use crate::k8s::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A condition of a MachineConfigPool, KubeletConfig or ContainerRuntimeConfig: all fields optional in the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about.
    #[serde(rename = "type", default)]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// When `status` last changed.
    #[serde(default)]
    pub last_transition_time: Option<Time>,
    /// One word for machines; often empty in this API.
    #[serde(default)]
    pub reason: String,
    /// The same for people.
    #[serde(default)]
    pub message: String,
}

impl Condition {
    /// A condition without a transition time; [`set`] fills it in.
    pub fn new(type_: &str, status: bool, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            type_: type_.to_owned(),
            status: if status { "True" } else { "False" }.to_owned(),
            last_transition_time: None,
            reason: reason.into(),
            message: message.into(),
        }
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.type_ == other.type_
            && self.status == other.status
            && self.reason == other.reason
            && self.message == other.message
    }
}

/// The condition of a type. If a list wrongly has several, the last one.
pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().rev().find(|c| c.type_ == type_)
}

/// Whether the condition exists with status `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|c| c.status == "True")
}

/// Puts a condition into the list. Nothing changes if it says what is there already, and the transition time is kept if
/// the status is the same. Returns whether anything changed.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition, now: &Time) -> bool {
    let old = get(conditions, &new.type_);
    if old.is_some_and(|o| o.says_the_same(&new)) {
        return false;
    }
    new.last_transition_time = old
        .filter(|o| o.status == new.status)
        .and_then(|o| o.last_transition_time.clone())
        .or_else(|| Some(now.clone()));
    conditions.retain(|c| c.type_ != new.type_);
    conditions.push(new);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: &str) -> Time {
        serde_json::from_value(serde_json::json!(s)).unwrap()
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let (one, two) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T00:00:00Z"));
        let mut list = vec![];
        assert!(set(&mut list, Condition::new("Updated", false, "", "a"), &one));
        assert!(!set(&mut list, Condition::new("Updated", false, "", "a"), &two));
        assert!(set(&mut list, Condition::new("Updated", false, "", "b"), &two));
        assert_eq!(get(&list, "Updated").unwrap().last_transition_time, Some(one));
        assert!(set(&mut list, Condition::new("Updated", true, "", "b"), &two));
        assert_eq!(get(&list, "Updated").unwrap().last_transition_time, Some(two));
        assert_eq!(list.len(), 1);
        assert!(is_true(&list, "Updated") && !is_true(&list, "Degraded"));
    }
}
