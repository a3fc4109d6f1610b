//! Tells how far an update is, on the node's MachineConfigNode. Best effort: a report that cannot be written is
//! logged and holds nothing up.
//!
//! What it is not: state that anything decides on. Cordoned, Drained, Uncordoned and UpdateComplete are the
//! controller's to say; server-side apply keeps the two apart.

use crate::Reporting;
use crate::agent::pool_name;
use crate::cluster::{CallError, Cluster};
use crate::protocol::{Cost, NodeFacts, View, cut_reason};
use api::k8s::Time;
use api::names::{NOT_YET_SET, node_condition as c};
use api::v1::{MachineConfigNode, NodeStepCondition};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Where a cluster has no MachineConfigNodes it is not asked again for this long.
const MISSING_PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// The conditions that the node agent says.
const OURS: [&str; 8] = [
    c::UPDATED,
    c::UPDATE_PREPARED,
    c::UPDATE_EXECUTED,
    c::APPLIED_FILES_AND_OS,
    c::UPDATE_POST_ACTION_COMPLETE,
    c::REBOOTED_NODE,
    c::RESUMED,
    c::NODE_DEGRADED,
];

/// A point of an update that is worth telling.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Milestone {
    /// Nothing to do.
    Updated,
    /// Another config is wanted.
    Wanted,
    /// It cannot be done.
    Refused(String),
    /// It was checked and planned.
    Prepared(Cost),
    /// The host is being changed.
    Applying,
    /// The host is changed.
    Applied {
        /// A reboot follows.
        reboots: bool,
    },
    /// The reboot was begun.
    Rebooting,
    /// The machine is back.
    Rebooted,
    /// The update is over.
    Resumed,
    /// It failed; the reason is on the Node.
    Degraded,
}

/// One thing said: type, status, reason, message.
type Said = (&'static str, &'static str, &'static str, String);

impl Milestone {
    fn says(&self, node: &NodeFacts) -> Vec<Said> {
        let to = &node.desired;
        match self {
            Self::Updated => vec![
                (c::UPDATED, "True", c::UPDATED, format!("Node is in config {}", node.current)),
                (c::NODE_DEGRADED, "False", "AsExpected", "All good".to_owned()),
            ],
            Self::Wanted => {
                let mut said =
                    vec![(c::UPDATED, "False", c::UPDATED, format!("Node needs an update to config {to}"))];
                // What was said of the last update is over.
                let over = OURS.into_iter().filter(|t| ![c::UPDATED, c::NODE_DEGRADED].contains(t));
                said.extend(
                    over.map(|t| (t, "False", "NotYetOccurred", format!("Not yet in the update to {to}"))),
                );
                said
            }
            Self::Refused(why) => {
                vec![(c::UPDATE_PREPARED, "Unknown", c::UPDATE_PREPARED, cut_reason(why))]
            }
            Self::Prepared(cost) => {
                let Cost { drain, reboot } = cost;
                let text = format!("Update to {to} is possible; drain: {drain}, reboot: {reboot}");
                vec![(c::UPDATE_PREPARED, "True", c::UPDATE_PREPARED, text)]
            }
            Self::Applying => {
                let text = format!("Applying {to}");
                vec![
                    (c::UPDATE_EXECUTED, "Unknown", c::APPLIED_FILES_AND_OS, text.clone()),
                    (c::APPLIED_FILES_AND_OS, "Unknown", "UpdateExecutedAppliedFilesAndOS", text),
                ]
            }
            Self::Applied { reboots } => {
                let text = format!("Applied {to}");
                let mut said = vec![
                    (c::UPDATE_EXECUTED, "True", c::APPLIED_FILES_AND_OS, text.clone()),
                    (c::APPLIED_FILES_AND_OS, "True", "UpdateExecutedAppliedFilesAndOS", text),
                ];
                if !reboots {
                    let text = "No reboot was needed".to_owned();
                    said.push((c::UPDATE_POST_ACTION_COMPLETE, "True", "None", text));
                }
                said
            }
            Self::Rebooting => {
                vec![(c::REBOOTED_NODE, "Unknown", c::REBOOTED_NODE, format!("Rebooting into {to}"))]
            }
            Self::Rebooted => {
                vec![
                    (c::REBOOTED_NODE, "True", c::REBOOTED_NODE, "Node has rebooted".to_owned()),
                    (
                        c::UPDATE_POST_ACTION_COMPLETE,
                        "True",
                        c::REBOOTED_NODE,
                        "Node has rebooted".to_owned(),
                    ),
                ]
            }
            Self::Resumed => {
                let text = format!("Node is in config {} and back in operation", node.current);
                vec![
                    (c::RESUMED, "True", c::RESUMED, text.clone()),
                    (c::UPDATED, "True", c::UPDATED, text),
                    (c::NODE_DEGRADED, "False", "AsExpected", "All good".to_owned()),
                ]
            }
            Self::Degraded => vec![(c::NODE_DEGRADED, "True", c::NODE_DEGRADED, node.reason.clone())],
        }
    }
}

/// Our conditions after something was said; the time of a condition moves only with its status.
fn after(old: &[NodeStepCondition], said: &[Said], now: Timestamp) -> Vec<NodeStepCondition> {
    let get = |type_: &str| old.iter().find(|c| c.type_ == type_);
    OURS.into_iter()
        .map(|type_| {
            let Some((_, status, reason, message)) = said.iter().find(|(t, ..)| *t == type_) else {
                let untold = || condition(type_, "False", "NotYetOccurred", "This has not happened yet", now);
                return get(type_).cloned().unwrap_or_else(untold);
            };
            let mut new = condition(type_, status, reason, message, now);
            if let Some(old) = get(type_).filter(|o| o.status == new.status) {
                new.last_transition_time = old.last_transition_time.clone();
            }
            new
        })
        .collect()
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> NodeStepCondition {
    NodeStepCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        // The API's times have whole seconds: with a fraction each report would look new.
        last_transition_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// What stands in the object, as far as it is ours.
#[derive(Debug, Clone, Default, PartialEq)]
struct Told {
    conditions: Vec<NodeStepCondition>,
    current: String,
    desired: String,
    spec_desired: String,
    pool: String,
    generation: i64,
}

/// Writes the reports of one node.
#[derive(Debug)]
pub(crate) struct Reporter {
    cluster: Cluster,
    on: bool,
    told: Option<Told>,
    again_at: Option<Timestamp>,
}

impl Reporter {
    pub(crate) fn new(cluster: Cluster, reporting: Reporting) -> Self {
        Self { cluster, on: reporting.progress, told: None, again_at: None }
    }

    /// Tells of a milestone, if it is news.
    pub(crate) async fn reach(&mut self, view: &View, milestone: Milestone) {
        if !self.on || self.again_at.is_some_and(|t| Timestamp::now() < t) {
            return;
        }
        self.again_at = None;
        if let Err(error) = self.try_reach(&view.node, &milestone).await {
            tracing::warn!(%error, ?milestone, "the node's progress could not be told");
            self.told = None;
            if error.is_not_found() {
                self.again_at = Some(Timestamp::now() + MISSING_PAUSE);
            }
        }
    }

    async fn try_reach(&mut self, node: &NodeFacts, milestone: &Milestone) -> Result<(), CallError> {
        let told = match self.told.take() {
            Some(told) => told,
            None => self.load(node).await?,
        };
        let conditions = after(&told.conditions, &milestone.says(node), Timestamp::now());
        let mut new =
            Told { conditions, current: node.current.clone(), desired: wanted(node), ..told.clone() };
        (new.spec_desired, new.pool) = (wanted(node), pool_name(node));
        if (&new.spec_desired, &new.pool) != (&told.spec_desired, &told.pool) {
            let object = self.cluster.apply_progress(&json!({ "spec": spec(&self.cluster, &new) })).await?;
            new.generation = object.metadata.generation.unwrap_or(1);
        }
        if new != told {
            self.cluster.apply_progress_status(&json!({ "status": status(&new) })).await?;
        }
        self.told = Some(new);
        Ok(())
    }

    async fn load(&self, node: &NodeFacts) -> Result<Told, CallError> {
        let found = match self.cluster.progress().await? {
            Some(found) => found,
            None => {
                let new = Told { spec_desired: wanted(node), pool: pool_name(node), ..Told::default() };
                let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": self.cluster.node(), "uid": node.uid }]);
                let body =
                    json!({ "metadata": { "ownerReferences": owner }, "spec": spec(&self.cluster, &new) });
                self.cluster.apply_progress(&body).await?
            }
        };
        Ok(told(found))
    }
}

fn told(object: MachineConfigNode) -> Told {
    let MachineConfigNode { metadata, spec, status } = object;
    let status = status.unwrap_or_default();
    let versions = status.config_version.unwrap_or_default();
    let mut conditions = status.conditions.unwrap_or_default();
    conditions.retain(|c| OURS.contains(&c.type_.as_str()));
    Told {
        conditions,
        current: versions.current,
        desired: versions.desired,
        spec_desired: spec.config_version.desired,
        pool: spec.pool.name,
        generation: metadata.generation.unwrap_or(1),
    }
}

fn wanted(node: &NodeFacts) -> String {
    if node.desired.is_empty() { NOT_YET_SET.to_owned() } else { node.desired.clone() }
}

fn spec(cluster: &Cluster, told: &Told) -> Value {
    json!({
        "node": { "name": cluster.node() },
        "pool": { "name": told.pool },
        "configVersion": { "desired": told.spec_desired },
    })
}

fn status(told: &Told) -> Value {
    let mut versions = json!({ "desired": told.desired });
    if !told.current.is_empty() {
        versions["current"] = told.current.clone().into();
    }
    json!({
        "observedGeneration": told.generation.max(1),
        "configVersion": versions,
        "conditions": told.conditions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status_of<'a>(list: &'a [NodeStepCondition], type_: &str) -> &'a str {
        &list.iter().find(|c| c.type_ == type_).unwrap().status
    }

    #[test]
    fn an_update_walks_through_its_conditions_and_starts_them_anew() {
        let node = NodeFacts { desired: "rendered-worker-2".into(), ..NodeFacts::default() };
        let steps = [
            (Milestone::Wanted, c::UPDATED, "False"),
            (Milestone::Prepared(Cost::default()), c::UPDATE_PREPARED, "True"),
            (Milestone::Applying, c::APPLIED_FILES_AND_OS, "Unknown"),
            (Milestone::Applied { reboots: true }, c::APPLIED_FILES_AND_OS, "True"),
            (Milestone::Rebooting, c::REBOOTED_NODE, "Unknown"),
            (Milestone::Rebooted, c::REBOOTED_NODE, "True"),
            (Milestone::Resumed, c::UPDATED, "True"),
            (Milestone::Wanted, c::UPDATE_PREPARED, "False"),
        ];
        let mut list = vec![];
        for (milestone, type_, want) in steps {
            list = after(&list, &milestone.says(&node), at(1));
            assert_eq!(status_of(&list, type_), want, "{milestone:?}");
            assert_eq!(list.len(), OURS.len());
            // metav1.Condition: a reason is a word that is not empty.
            assert!(list.iter().all(|c| !c.reason.is_empty() && !c.reason.contains(' ')), "{list:?}");
        }
    }

    #[test]
    fn the_time_of_a_condition_moves_only_with_its_status() {
        let node = NodeFacts { reason: "one".into(), ..NodeFacts::default() };
        let first = after(&[], &Milestone::Degraded.says(&node), at(1));
        let other = NodeFacts { reason: "two".into(), ..NodeFacts::default() };
        let second = after(&first, &Milestone::Degraded.says(&other), at(2));
        let degraded =
            |l: &[NodeStepCondition]| l.iter().find(|c| c.type_ == c::NODE_DEGRADED).cloned().unwrap();
        assert_eq!(degraded(&second).last_transition_time, Time(at(1)));
        assert_eq!(degraded(&second).message, "two");
        let third = after(&second, &Milestone::Resumed.says(&other), at(3));
        assert_eq!(degraded(&third).last_transition_time, Time(at(3)));
    }
}
