//! Tells how far an update is, on the node's MachineConfigNode. Best effort: a report that cannot be written is
//! logged and holds nothing up.
//!
//! What it is not: state that anything decides on; nor the rules of that object, which are `rollout::mcn`'s.

use crate::cluster::{CallError, Cluster};
use crate::parts::Reporting;
use crate::protocol::{Cost, NodeFacts, View, cut_reason};
use api::k8s::Time;
use api::names::node_condition as c;
use api::v1::{MachineConfigNode, MachineConfigNodeStatus};
use jiff::{SignedDuration, Timestamp};
use rollout::mcn::{self, Progress, StepCondition};
use rollout::view::NodeView;
use serde_json::json;

/// Where a cluster has no MachineConfigNodes it is not asked again for this long.
const MISSING_PAUSE: SignedDuration = SignedDuration::from_mins(10);
/// The controller writes the object too: a report that comes too late is made again this often.
const TRIES: usize = 3;

/// A point of an update that is worth telling.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Milestone {
    /// The node is in the config that is wanted.
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
    /// It failed; the reason is on the Node.
    Degraded,
}

impl Milestone {
    fn says(&self, node: &NodeFacts) -> Vec<Progress> {
        let to = &node.desired;
        match self {
            // That ends what was said of the steps before it, and a failure.
            Self::Updated => {
                vec![Progress::of(c::UPDATED, "True", format!("Node is in config {}", node.current))]
            }
            Self::Wanted => vec![Progress::of(c::UPDATED, "False", format!("Node needs an update to {to}"))],
            Self::Refused(why) => vec![Progress::of(c::UPDATE_PREPARED, "Unknown", cut_reason(why))],
            Self::Prepared(Cost { drain, reboot }) => {
                let text = format!("Update to {to} is possible; drain: {drain}, reboot: {reboot}");
                let mut said = vec![Progress::of(c::UPDATE_PREPARED, "True", text)];
                if !drain {
                    let text = "Node needs no drain for this update";
                    said.push(Progress::part((c::UPDATE_EXECUTED, "Unknown"), (c::DRAINED, "False"), text));
                }
                said
            }
            Self::Applying => vec![applied("Unknown", format!("Applying {to}"))],
            Self::Applied { reboots } => {
                let mut said = vec![applied("True", format!("Applied {to}"))];
                if !reboots {
                    let step =
                        StepCondition::new(c::UPDATE_POST_ACTION_COMPLETE, "True", "Node needs no reboot");
                    said.push(Progress {
                        parent: StepCondition { reason: "None".to_owned(), ..step },
                        child: None,
                    });
                }
                said
            }
            Self::Rebooting => {
                vec![Progress::of(c::REBOOTED_NODE, "Unknown", format!("Rebooting into {to}"))]
            }
            Self::Rebooted => vec![
                Progress::of(c::REBOOTED_NODE, "True", "Node has rebooted"),
                Progress::of(c::UPDATE_POST_ACTION_COMPLETE, "True", "Node has rebooted"),
            ],
            Self::Degraded => vec![Progress::of(c::NODE_DEGRADED, "True", node.reason.clone())],
        }
    }
}

fn applied(status: &str, text: String) -> Progress {
    Progress::part((c::UPDATE_EXECUTED, status), (c::APPLIED_FILES_AND_OS, status), text)
}

/// The status after a milestone; `None`: nothing but times would change.
fn after(
    old: Option<&MachineConfigNodeStatus>,
    said: &[Progress],
    node: &NodeView,
    generation: i64,
    now: Timestamp,
) -> Option<MachineConfigNodeStatus> {
    // The API's times have whole seconds: with a fraction each report would look new.
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let mut new: Option<MachineConfigNodeStatus> = None;
    for progress in said {
        let base = new.as_ref().or(old);
        if let Some(next) = mcn::advance(base, progress, node, generation, &now) {
            new = Some(next);
        }
    }
    new
}

/// Writes the reports of one node.
#[derive(Debug)]
pub(crate) struct Reporter {
    cluster: Cluster,
    on: bool,
    /// The object as it was last seen.
    seen: Option<MachineConfigNode>,
    /// What is to be told at the next pause.
    pending: Vec<Progress>,
    again_at: Option<Timestamp>,
}

impl Reporter {
    pub(crate) fn new(cluster: Cluster, reporting: Reporting) -> Self {
        Self { cluster, on: reporting.progress, seen: None, pending: vec![], again_at: None }
    }

    /// A milestone was reached. It is told at the next pause: steps that follow each other at once are one write.
    pub(crate) fn reach(&mut self, view: &View, milestone: &Milestone) {
        if self.on {
            self.pending.extend(milestone.says(&view.node));
        }
    }

    /// Tells what was reached, if it is news. For when the agent is about to wait, or to do what takes long.
    pub(crate) async fn tell(&mut self, view: &View) {
        if self.pending.is_empty() {
            return;
        }
        let said = std::mem::take(&mut self.pending);
        if self.again_at.is_some_and(|t| Timestamp::now() < t) {
            return;
        }
        self.again_at = None;
        for left in (0..TRIES).rev() {
            let Err(error) = self.try_tell(&view.node, &said).await else { return };
            self.seen = None;
            if error.is_conflict() && left > 0 {
                continue;
            }
            tracing::warn!(%error, "the node's progress could not be told");
            if error.is_not_found() {
                self.again_at = Some(Timestamp::now() + MISSING_PAUSE);
            }
            return;
        }
    }

    async fn try_tell(&mut self, node: &NodeFacts, said: &[Progress]) -> Result<(), CallError> {
        let view = node_view(self.cluster.node(), node);
        let seen = match self.seen.take() {
            Some(seen) => seen,
            None => match self.cluster.progress().await? {
                Some(seen) => seen,
                // Its pool is the controller's to say.
                None => self.cluster.create_progress(&mcn::new(&view, None)).await?,
            },
        };
        let generation = seen.metadata.generation.unwrap_or(1).max(1);
        let new = after(seen.status.as_ref(), said, &view, generation, Timestamp::now());
        let Some(new) = new else {
            self.seen = Some(seen);
            return Ok(());
        };
        let patch = json!({
            "metadata": { "resourceVersion": seen.metadata.resource_version },
            "status": {
                "observedGeneration": new.observed_generation,
                "configVersion": new.config_version,
                "conditions": new.conditions,
            },
        });
        let mut seen = self.cluster.patch_progress_status(&patch).await?;
        seen.metadata.managed_fields = None;
        self.seen = Some(seen);
        Ok(())
    }
}

fn node_view(name: &str, node: &NodeFacts) -> NodeView {
    let note = |text: &str| Some(text).filter(|t| !t.is_empty()).map(Into::into);
    NodeView {
        name: name.into(),
        uid: node.uid.as_str().into(),
        current_config: note(&node.current),
        desired_config: note(&node.desired),
        ..NodeView::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
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
            (Milestone::Updated, c::UPDATED, "True"),
            (Milestone::Wanted, c::UPDATE_PREPARED, "False"),
        ];
        let mut status = None;
        for (milestone, type_, want) in steps {
            let view = node_view("n", &node);
            status = after(status.as_ref(), &milestone.says(&node), &view, 1, at(1)).or(status);
            let list = status.as_ref().and_then(|s| s.conditions.clone()).unwrap();
            let got = list.iter().find(|c| c.type_ == type_).unwrap();
            assert_eq!(got.status, want, "{milestone:?}");
            // metav1.Condition: a reason is a word that is not empty.
            assert!(list.iter().all(|c| !c.reason.is_empty() && !c.reason.contains(' ')), "{list:?}");
            // Said twice, it is no news.
            assert_eq!(
                after(status.as_ref(), &milestone.says(&node), &view, 1, at(2)),
                None,
                "{milestone:?}"
            );
        }
    }
}
