//! Conditions in an object's status. Of every type: the one of a name, and whether it is `True`. Of pools and settings:
//! compared without timestamps, and merged so that `lastTransitionTime` moves only when the status does. The clock is an
//! argument.
//!
//! What it is not: which conditions there are (see `names`), or what follows from one.
//!
//! Source: <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#typical-status-properties>.

use crate::k8s::{MetaCondition, NodeCondition, Time};
use crate::pod::PodCondition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// A condition of any kind: what it is about, and its status.
pub trait StatusCondition {
    /// What it is about.
    fn kind(&self) -> &str;
    /// `True`, `False` or `Unknown`.
    fn status(&self) -> &str;

    /// Whether its status is `True`.
    fn is_true(&self) -> bool {
        self.status() == "True"
    }

    /// Whether its status is `False`. `Unknown` is neither.
    fn is_false(&self) -> bool {
        self.status() == "False"
    }

    /// Whether its status is `Unknown`.
    fn is_unknown(&self) -> bool {
        self.status() == "Unknown"
    }
}

/// For types that have the two fields under the same names.
macro_rules! status_condition {
    ($($type:ty),*) => {$(
        impl $crate::conditions::StatusCondition for $type {
            fn kind(&self) -> &str {
                &self.type_
            }

            fn status(&self) -> &str {
                &self.status
            }
        }
    )*};
}

pub(crate) use status_condition;

status_condition!(
    Condition,
    MetaCondition,
    NodeCondition,
    PodCondition,
    k8s_openapi::api::core::v1::PodCondition,
    crate::v1alpha1::Condition
);

/// Of an object that is read as JSON.
impl StatusCondition for Value {
    fn kind(&self) -> &str {
        self.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    fn status(&self) -> &str {
        self.get("status").and_then(Value::as_str).unwrap_or_default()
    }
}

/// The conditions of an object that is read as JSON.
pub fn of_object(object: &Value) -> &[Value] {
    let list = object.pointer("/status/conditions").and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// The condition of a type. If a list wrongly has several, the last one.
pub fn get<'a, C: StatusCondition>(conditions: &'a [C], type_: &str) -> Option<&'a C> {
    conditions.iter().rev().find(|c| c.kind() == type_)
}

/// The condition of a type, if its status is `True`.
pub fn get_true<'a, C: StatusCondition>(conditions: &'a [C], type_: &str) -> Option<&'a C> {
    get(conditions, type_).filter(|c| c.is_true())
}

/// Whether the condition exists with status `True`.
pub fn is_true<C: StatusCondition>(conditions: &[C], type_: &str) -> bool {
    get_true(conditions, type_).is_some()
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

    #[test]
    fn conditions_of_every_type_are_found_by_name_and_unknown_is_neither_true_nor_false() {
        let object = serde_json::json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "old"}, {"type": "Ready", "status": "True"},
            {"type": "Pressure", "status": "Unknown"},
        ]}});
        let list = of_object(&object);
        assert!(is_true(list, "Ready"), "the last one of a type counts");
        let pressure = get(list, "Pressure").unwrap();
        assert!(!pressure.is_true() && !pressure.is_false() && pressure.is_unknown());
        assert_eq!((get_true(list, "Pressure"), get(list, "Other")), (None, None));
        assert!(of_object(&serde_json::json!({})).is_empty());
        let typed: Vec<PodCondition> =
            serde_json::from_value(object["status"]["conditions"].clone()).unwrap();
        assert!(is_true(&typed, "Ready") && !is_true(&typed, "Pressure"));
    }
}
