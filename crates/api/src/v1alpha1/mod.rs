//! Kinds of our own, group `machineconfig.dev`, version `v1alpha1`, and the pieces that they share.
//!
//! What it is not: the kinds of OpenShift's API (see `v1`), which are never extended.

mod installation;
mod rollout_policy;

pub use installation::*;
pub use rollout_policy::*;

use crate::k8s::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A length of time as hours, minutes and seconds: `90s`, `30m`, `1h30m`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duration(pub String);

impl Duration {
    /// The time; `None`: the text is not of that form. The API server has refused such a text.
    pub fn get(&self) -> Option<std::time::Duration> {
        let (mut seconds, mut number, mut units) = (0_u64, None::<u64>, "hms");
        for c in self.0.chars() {
            if let Some(digit) = c.to_digit(10) {
                number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit))?);
                continue;
            }
            let at = units.find(c)?;
            let each = match c {
                'h' => 3600,
                'm' => 60,
                _ => 1,
            };
            seconds = seconds.checked_add(number.take()?.checked_mul(each)?)?;
            units = units.get(at + 1..)?;
        }
        (number.is_none() && !self.0.is_empty()).then(|| std::time::Duration::from_secs(seconds))
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // At least one unit, and each unit at most once.
        json_schema!({
            "type": "string", "minLength": 2, "maxLength": 20, "pattern": "^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$",
        })
    }
}

/// A condition, as other kinds of Kubernetes have it (`metav1.Condition`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// The generation of the object that this condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// When `status` last changed.
    pub last_transition_time: Time,
    /// The reason, as one word for programs.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// Why, for people, with the remedy.
    #[schemars(length(max = 32768))]
    pub message: String,
}

/// The schema of a label selector in our own words and with limits, without which the cost of CEL rules has no bound. The
/// form is that of `metav1.LabelSelector`.
fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels that an object must have, each with this value.",
                "type": "object", "maxProperties": 16, "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": {
                "description": "Further requirements, all of which an object must meet.",
                "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object", "required": ["key", "operator"],
                    "properties": {
                        "key": {"description": "The label.", "type": "string", "maxLength": 317},
                        "operator": {
                            "description": "How the label's value is compared with `values`; the last two look only whether \
                                            the label is there.",
                            "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "Values for `In` and `NotIn`.",
                            "type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 63},
                            "x-kubernetes-list-type": "atomic",
                        },
                    },
                },
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// A number of nodes, or a percentage of them.
fn number_or_percentage(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true, "minimum": 1, "maxLength": 4, "pattern": "^(100|[1-9][0-9]?)%$",
    })
}

/// A point in time (RFC 3339).
fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}
