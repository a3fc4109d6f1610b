//! MachineConfigNodes: which ones should exist, what their spec says, and how a step of an update changes the status.
//!
//! What it is not: the steps themselves, which the daemon and the drain report. One step is one write: [`advance`]
//! returns `None` if only times would change.

use crate::view::NodeView;
use api::conditions::{self, StatusCondition};
use api::k8s::{ObjectMeta, OwnerReference, Time};
use api::names::{NOT_YET_SET, node_condition as c};
use api::v1::{
    ConfigVersionStatus, DesiredConfigVersion, MachineConfigNode, MachineConfigNodeSpec,
    MachineConfigNodeStatus, NamedRef, NodeStepCondition, PinnedImageSetState,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Every condition type of a MachineConfigNode, in the order in which a new status lists them.
const KNOWN: [&str; 14] = [
    c::UPDATE_PREPARED,
    c::UPDATE_EXECUTED,
    c::UPDATE_POST_ACTION_COMPLETE,
    c::UPDATE_COMPLETE,
    c::RESUMED,
    c::DRAINED,
    c::APPLIED_FILES_AND_OS,
    c::CORDONED,
    c::REBOOTED_NODE,
    c::UPDATED,
    c::UNCORDONED,
    c::NODE_DEGRADED,
    c::PINNED_DEGRADED,
    c::PINNED_PROGRESSING,
];

/// Conditions that are about no update: images are pulled and pinned whatever config the node is in.
const ASIDE: [&str; 2] = [c::PINNED_DEGRADED, c::PINNED_PROGRESSING];

/// The beginning of the message of a node that pulls its OS image.
const PULLING: &str = "Pulling the OS image: ";
/// In the message of a drain, this precedes the text that says what the drain waits for.
const WAITS: &str = "; it waits for ";
/// In the message of a drain that is over, this precedes the text that says what the drain waited for last.
pub(crate) const WAITED: &str = "; it waited for ";

/// How far the pull of the OS image is that goes on now. `None`: no pull goes on.
pub fn pull_progress(status: &MachineConfigNodeStatus) -> Option<&str> {
    let all = status.conditions.as_deref().unwrap_or_default();
    let pull = conditions::get(all, c::IMAGE_PULLED).filter(|have| have.is_unknown())?;
    pull.message.strip_prefix(PULLING)
}

/// One change to the set of MachineConfigNodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Action {
    /// A node has no MachineConfigNode.
    Create(Box<MachineConfigNode>),
    /// The spec is out of date.
    Spec {
        /// The object.
        name: String,
        /// The precondition. Not the version: that changes with every step in the status, which this write does not
        /// touch.
        uid: Option<String>,
        /// What the spec is to be.
        spec: MachineConfigNodeSpec,
    },
    /// Its node is gone, or another node has its name.
    Delete {
        /// The object.
        name: String,
        /// The precondition.
        uid: Option<String>,
    },
}

/// The MachineConfigNode spec of a node in a pool.
pub fn spec(node: &NodeView, pool: Option<&str>) -> MachineConfigNodeSpec {
    let or_unset = |text: Option<&str>| text.filter(|t| !t.is_empty()).unwrap_or(NOT_YET_SET).to_owned();
    MachineConfigNodeSpec {
        node: NamedRef { name: node.name.to_string() },
        pool: NamedRef { name: or_unset(pool) },
        config_version: DesiredConfigVersion { desired: or_unset(node.desired_config.as_deref()) },
    }
}

/// A new MachineConfigNode, owned by its node and deleted with it.
pub fn new(node: &NodeView, pool: Option<&str>) -> MachineConfigNode {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name.to_string(),
        uid: node.uid.to_string(),
        ..OwnerReference::default()
    };
    MachineConfigNode {
        metadata: ObjectMeta {
            name: Some(node.name.to_string()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: spec(node, pool),
        status: None,
    }
}

/// Which MachineConfigNodes to create, correct and delete. Nodes without a machine yet get none.
pub fn lifecycle<'a>(
    nodes: impl IntoIterator<Item = (&'a NodeView, Option<&'a str>)>,
    existing: &[&MachineConfigNode],
) -> Vec<Action> {
    let mut left: HashMap<&str, &MachineConfigNode> =
        existing.iter().filter_map(|m| Some((m.metadata.name.as_deref()?, *m))).collect();
    let mut actions = vec![];
    for (node, pool) in nodes {
        let have = left.remove(&*node.name);
        if node.pending || node.is_windows() || node.deleting {
            continue;
        }
        let Some(have) = have else {
            actions.push(Action::Create(Box::new(new(node, pool))));
            continue;
        };
        let another = |o: &OwnerReference| o.kind == "Node" && *o.uid != *node.uid;
        if have.metadata.owner_references.iter().flatten().any(another) {
            actions.push(delete(have));
            continue;
        }
        let mut want = spec(node, pool);
        if want.config_version.desired == NOT_YET_SET {
            want.config_version.desired.clone_from(&have.spec.config_version.desired);
        }
        if want != have.spec {
            actions.push(Action::Spec {
                name: node.name.to_string(),
                uid: have.metadata.uid.clone(),
                spec: want,
            });
        }
    }
    let mut gone: Vec<_> = left.into_values().map(delete).collect();
    gone.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    actions.extend(gone);
    actions
}

fn delete(have: &MachineConfigNode) -> Action {
    Action::Delete { name: have.metadata.name.clone().unwrap_or_default(), uid: have.metadata.uid.clone() }
}

impl Action {
    /// The object's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Create(object) => object.metadata.name.as_deref().unwrap_or_default(),
            Self::Spec { name, .. } | Self::Delete { name, .. } => name,
        }
    }
}

/// One condition of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCondition {
    /// The type.
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

impl StepCondition {
    /// A condition whose reason equals its type.
    pub fn new(type_: &str, status: &str, message: impl Into<String>) -> Self {
        let text = |t: &str| t.to_owned();
        Self { type_: text(type_), status: text(status), reason: text(type_), message: message.into() }
    }
}

impl StatusCondition for StepCondition {
    fn kind(&self) -> &str {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }
}

/// A step of an update: a phase and, if the step has one, the part of the phase that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The phase.
    pub parent: StepCondition,
    /// The part.
    pub child: Option<StepCondition>,
}

impl Progress {
    /// A step that is a whole phase.
    pub fn of(type_: &str, status: &str, message: impl Into<String>) -> Self {
        Self { parent: StepCondition::new(type_, status, message), child: None }
    }

    /// A part of a phase. The phase's reason is the part; the part's type and reason are both the part.
    pub fn part(
        (parent, status): (&str, &str),
        (child, child_status): (&str, &str),
        message: impl Into<String>,
    ) -> Self {
        let message = message.into();
        let mut outer = StepCondition::new(parent, status, message.clone());
        child.clone_into(&mut outer.reason);
        let mut inner = StepCondition::new(child, child_status, message);
        inner.reason = format!("{parent}{child}");
        Self { parent: outer, child: Some(inner) }
    }

    /// The node pulls the image of its operating system; `progress`: bytes, rate and time left, as far as they are known.
    pub fn pulling(progress: &str) -> Self {
        Self::of(c::IMAGE_PULLED, "Unknown", format!("{PULLING}{progress}"))
    }

    /// The node was cordoned for its update.
    pub fn cordoned(node: &str) -> Self {
        let message = format!("Node {node} is cordoned for its update");
        Self::part((c::UPDATE_EXECUTED, "Unknown"), (c::CORDONED, "True"), message)
    }

    /// The node should be cordoned, and that fails.
    pub fn not_cordoned(node: &str, why: &str) -> Self {
        let message = format!("Node {node} cannot be cordoned; this is retried: {why}");
        Self::part((c::UPDATE_EXECUTED, "Unknown"), (c::CORDONED, "Unknown"), message)
    }

    /// The node should be uncordoned, and that fails.
    pub fn not_uncordoned(node: &str, why: &str) -> Self {
        let message = format!("Node {node} cannot be uncordoned; this is retried: {why}");
        Self::part((c::UPDATE_COMPLETE, "Unknown"), (c::UNCORDONED, "Unknown"), message)
    }

    /// Its pods leave; with what they wait for, if that is known.
    pub fn draining(node: &str, waits_for: Option<&str>) -> Self {
        let mut message = format!("Node {node} is being drained");
        if let Some(text) = waits_for {
            message.push_str(WAITS);
            message.push_str(text);
        }
        Self::part((c::UPDATE_EXECUTED, "Unknown"), (c::DRAINED, "Unknown"), message)
    }

    /// They have left.
    pub fn drained(node: &str) -> Self {
        let message = format!("Node {node} is drained");
        Self::part((c::UPDATE_EXECUTED, "Unknown"), (c::DRAINED, "True"), message)
    }

    /// The node was uncordoned; `kept` means that it stays cordoned, because a person had cordoned it.
    pub fn uncordoned(node: &str, kept: bool) -> Self {
        let message = match kept {
            false => format!("Node {node} is uncordoned"),
            true => format!("Node {node} was cordoned before its update and stays so"),
        };
        Self::part((c::UPDATE_COMPLETE, "True"), (c::UNCORDONED, "True"), message)
    }
}

/// The status after a step; `None` if nothing but times would change.
pub fn advance(
    old: Option<&MachineConfigNodeStatus>,
    progress: &Progress,
    node: &NodeView,
    generation: i64,
    now: &Time,
) -> Option<MachineConfigNodeStatus> {
    let mut new = old.cloned().unwrap_or_default();
    let mut list = new.conditions.take().unwrap_or_default();
    let parent = &progress.parent;
    put(&mut list, parent, now);
    if let Some(child) = &progress.child {
        put(&mut list, child, now);
    }
    for type_ in KNOWN {
        if !list.iter().any(|have| have.type_ == type_) {
            let message = format!("This node has not yet entered the {type_} phase");
            let step = StepCondition {
                reason: "NotYetOccurred".to_owned(),
                ..StepCondition::new(type_, "False", message)
            };
            put(&mut list, &step, now);
        }
    }
    let desired = node.desired_config.as_deref().filter(|d| !d.is_empty());
    if parent.type_ == c::UPDATED {
        let target = desired.unwrap_or(NOT_YET_SET);
        let ends = |h: &&mut NodeStepCondition| {
            h.type_ != c::UPDATED && !h.is_false() && !ASIDE.contains(&&*h.type_)
        };
        let prefix = format!("Action during update to {target}: ");
        // What has the prefix is `False`, and so has ended. A step that begins again writes a new message.
        for have in list.iter_mut().filter(ends) {
            "False".clone_into(&mut have.status);
            have.last_transition_time = now.clone();
            have.message.insert_str(0, &prefix);
        }
    } else if [c::UPDATE_PREPARED, c::UPDATE_EXECUTED].contains(&parent.type_.as_str()) {
        // An update began that was not announced: the node is no longer in its config.
        for have in list.iter_mut().filter(|h| h.type_ == c::UPDATED && h.is_true()) {
            "False".clone_into(&mut have.status);
            have.last_transition_time = now.clone();
        }
    }
    let rejected = parent.type_ == c::UPDATE_PREPARED && !parent.is_true();
    let current = node.current_config.as_deref().filter(|x| !x.is_empty());
    let version = new.config_version.get_or_insert_with(ConfigVersionStatus::default);
    version.desired = desired.filter(|_| !rejected).unwrap_or(NOT_YET_SET).to_owned();
    if let Some(current) = current {
        current.clone_into(&mut version.current);
    }
    new.conditions = Some(list);
    let same = old.is_some_and(|o| {
        MachineConfigNodeStatus { observed_generation: None, ..o.clone() } == new_without_generation(&new)
    });
    if same && old.and_then(|o| o.observed_generation) >= Some(generation) {
        return None;
    }
    new.observed_generation = Some(generation);
    Some(new)
}

/// The status with what is said of PinnedImageSets; `None` if nothing but times would change.
pub fn with_pins(
    old: Option<&MachineConfigNodeStatus>,
    said: &[StepCondition],
    sets: &[PinnedImageSetState],
    generation: i64,
    now: &Time,
) -> Option<MachineConfigNodeStatus> {
    let mut new = old.cloned().unwrap_or_default();
    let mut list = new.conditions.take().unwrap_or_default();
    for step in said {
        put(&mut list, step, now);
    }
    new.conditions = Some(list);
    if !sets.is_empty() || new.pinned_image_sets.is_some() {
        new.pinned_image_sets = Some(sets.to_vec());
    }
    let changed = old != Some(&new);
    new.observed_generation = new.observed_generation.or(Some(generation));
    changed.then_some(new)
}

fn new_without_generation(status: &MachineConfigNodeStatus) -> MachineConfigNodeStatus {
    MachineConfigNodeStatus { observed_generation: None, ..status.clone() }
}

/// Updates the list in place; the transition time moves only with the status.
fn put(list: &mut Vec<NodeStepCondition>, step: &StepCondition, now: &Time) {
    let StepCondition { type_, status, reason, message } = step.clone();
    match list.iter_mut().find(|have| have.type_ == type_) {
        Some(have) => {
            let waited = have.message.split_once(WAITS).map(|(_, what)| what.to_owned());
            let is_over = have.type_ == c::DRAINED && have.is_unknown() && step.is_true();
            if have.status != status {
                have.last_transition_time = now.clone();
            }
            (have.status, have.reason, have.message) = (status, reason, message);
            // This record is the only later source for why an update took long: events are deleted after an hour.
            if let Some(what) = waited.filter(|_| is_over) {
                have.message.push_str(WAITED);
                have.message.push_str(&what);
            }
        }
        None => {
            let last_transition_time = now.clone();
            list.push(NodeStepCondition { type_, status, last_transition_time, reason, message });
        }
    }
}
