//! What goes, in which order, and what stays. Pure.

use super::UninstallError;
use super::others::{self, Lost};
use crate::accounts::{AGENT, OPERATOR};
use crate::objects::Key;
use crate::ownership::{is_applied_by_us, is_ours_alone};
use api::names::{NAMESPACE, annotation, own};
use api::node_state::NodeState;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "do")]
pub enum Action {
    /// Pause the pools, so that no other update begins; ask the agents of these Nodes to leave their hosts, and wait for their
    /// answers: a change on trial ends while somebody is there, and what was brought for trials goes.
    #[serde(rename_all = "camelCase")]
    Leave {
        /// The names of the Nodes.
        nodes: Vec<String>,
    },
    /// Delete this object.
    #[serde(rename_all = "camelCase")]
    Delete {
        /// The object, as it was found.
        #[serde(serialize_with = "by_name")]
        object: Value,
        /// Wait until it is gone, and with it what it owns.
        wait: bool,
    },
    /// Take the finalizers of the controller off this object, which nobody else would do any more.
    Release {
        /// The object.
        #[serde(serialize_with = "by_name")]
        object: Value,
    },
    /// List the objects that have finalizers again, and release those that got the controller's since the plan was made. By then the
    /// controller is gone.
    ReleaseLater,
    /// Take our annotations and taints off this Node.
    Clean {
        /// Its name.
        node: String,
        /// The keys of the annotations.
        annotations: Vec<String>,
        /// Whether it has one of our taints.
        tainted: bool,
    },
    /// List the Nodes again, and clean those that have registered, or were written to, since the plan was made. By then
    /// nothing runs that would write to them.
    CleanLater,
}

fn by_name<S: serde::Serializer>(object: &Value, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&Key::of(object).to_string())
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leave { nodes } => {
                write!(
                    f,
                    "pause the pools, and ask the agents of all nodes ({}) to end trials and to remove what they installed for \
                     them",
                    nodes.len()
                )
            }
            Self::Delete { object, .. } => write!(f, "delete {}", Key::of(object)),
            Self::Release { object } => write!(f, "remove our finalizers from {}", Key::of(object)),
            Self::ReleaseLater => {
                f.write_str("remove our finalizers from objects that got them in the meantime")
            }
            Self::Clean { node, .. } => write!(f, "remove our annotations from Node {node}"),
            Self::CleanLater => {
                f.write_str("remove our annotations and taints from Nodes that registered in the meantime")
            }
        }
    }
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Candidates for deletion, in their order; each with its kind. Those that somebody else made stay.
    pub objects: Vec<Value>,
    /// Objects of our kinds that have finalizers: their metadata and kind.
    pub held: Vec<Value>,
    /// Our definitions.
    pub definitions: Vec<Value>,
    /// All Nodes.
    pub nodes: Vec<Value>,
    /// User data and other Secrets in the namespace of machine providers: metadata.
    pub provider_secrets: Vec<Value>,
    /// Our namespaces, without that of machine providers.
    pub namespaces: Vec<Value>,
    /// The Secrets and ConfigMaps in them: metadata and kind.
    pub inside: Vec<Value>,
    /// The namespace of machine providers.
    pub provider: Option<Value>,
}

/// What is done, and what is not.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// What is done, in this order.
    pub actions: Vec<Action>,
    /// What somebody else made and goes nevertheless, with its namespace.
    pub lost: Vec<Lost>,
    /// What stays, and why.
    pub stays: Vec<String>,
    /// Nodes that are on their way to another config: it is not safe to begin.
    pub busy: Vec<String>,
}

impl Plan {
    /// Whether the removal may begin. `restores`: nodes go back to their own files first, and those that are on their way are waited
    /// for. `force`: it begins anyway, whatever nodes do. `delete_secrets`: somebody's Secrets may go with a namespace.
    ///
    /// # Errors
    /// Nodes are on their way, and would stay between two configs; or somebody's Secrets would go with a namespace.
    pub fn check_begin(
        &self,
        restores: bool,
        force: bool,
        delete_secrets: bool,
    ) -> Result<(), UninstallError> {
        if !self.busy.is_empty() && !restores && !force {
            return Err(UninstallError::Busy { nodes: self.busy.clone() });
        }
        if delete_secrets {
            return Ok(());
        }
        let secrets: Vec<Lost> = self.lost.iter().filter(|lost| lost.is_secret()).cloned().collect();
        if secrets.is_empty() { Ok(()) } else { Err(UninstallError::Secrets { secrets }) }
    }

    /// What goes besides the objects that were installed, for a question.
    pub fn also_deletes(&self) -> String {
        match &self.lost[..] {
            [] => "all MachineConfigs and pools, too".to_owned(),
            lost => format!(
                "all MachineConfigs and pools, too, and with their namespace what somebody else made: {}",
                others::listed(lost)
            ),
        }
    }
}

impl Facts {
    /// Whether anything of an installation is left. The reference's cluster has the same namespaces, kinds, labels and
    /// annotations; the kinds of `machineconfig.dev` are ours alone, whoever applied them.
    pub(super) fn is_installed(&self) -> bool {
        let of_our_group =
            |d: &Value| d["metadata"]["name"].as_str().is_some_and(|name| name.ends_with(OUR_GROUP));
        let mut all =
            self.objects.iter().chain(&self.definitions).chain(&self.namespaces).chain(&self.provider);
        self.definitions.iter().any(of_our_group) || all.any(is_applied_by_us)
    }
}

/// How the names of definitions end whose kinds the reference does not have.
const OUR_GROUP: &str = ".machineconfig.dev";

/// The prefixes of our annotations on Nodes.
const ON_NODES: [&str; 2] = ["machineconfiguration.openshift.io/", "machineconfig.dev/"];

/// The keys of our taints.
pub(super) const TAINTS: [&str; 2] = [api::names::UPDATE_TAINT, api::names::JOINING_TAINT];

/// Plans the removal.
pub fn plan(facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    let is_installed = facts.is_installed();
    for node in &facts.nodes {
        let notes = node["metadata"]["annotations"].as_object();
        let note = |key: &str| notes.and_then(|n| n.get(key)).and_then(Value::as_str).unwrap_or_default();
        let name = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let (current, desired) = (note(annotation::CURRENT_CONFIG), note(annotation::DESIRED_CONFIG));
        let works = NodeState::parse(note(annotation::STATE)) == Some(NodeState::Working);
        if works || (!current.is_empty() && current != desired) {
            plan.busy.push(format!("Node {name} is on its way from {current} to {desired}"));
        }
    }
    let mut wrote_nodes = false;
    for object in &facts.objects {
        if is_applied_by_us(object) {
            let kind = object["kind"].as_str().unwrap_or_default();
            let wait = ["Deployment", "DaemonSet"].contains(&kind);
            wrote_nodes |= wait || kind == "MutatingAdmissionPolicyBinding";
            plan.actions.push(Action::Delete { object: object.clone(), wait });
        } else {
            plan.stays.push(format!("{}: somebody else created it", Key::of(object)));
        }
    }
    // An earlier run that was cut off has asked, and agents in pods are gone since.
    let has_agents = plan.actions.iter().any(|action| deletes(action, "DaemonSet", AGENT));
    let managed = facts.nodes.iter().filter(|node| is_managed(node) && (has_agents || !has_left(node)));
    let nodes: Vec<String> =
        managed.map(|n| n["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect();
    if is_installed && !nodes.is_empty() {
        // The request and its answer.
        wrote_nodes = true;
        // While the agents run, and after who would make things again. Agents that are services of their hosts run anyway.
        let found = |kind, name| plan.actions.iter().position(|action| deletes(action, kind, name));
        let after_operator = found("Deployment", OPERATOR).map_or(0, |at| at + 1);
        let at = found("DaemonSet", AGENT).unwrap_or(after_operator);
        plan.actions.insert(at, Action::Leave { nodes });
    }
    if is_installed {
        plan.actions.extend(releasing(&facts.held));
        // Without a definition there are no objects.
        if !facts.definitions.is_empty() {
            plan.actions.push(Action::ReleaseLater);
        }
    }
    let user_data = |s: &&Value| s["metadata"]["labels"].get(api::first_boot::user_data::MANAGED).is_some();
    for secret in facts.provider_secrets.iter().filter(user_data).filter(|_| is_installed) {
        plan.actions.push(Action::Delete { object: secret.clone(), wait: false });
    }
    // With them go all objects of their kinds.
    for definition in &facts.definitions {
        if is_applied_by_us(definition) {
            plan.actions.push(Action::Delete { object: definition.clone(), wait: true });
        } else {
            plan.stays.push(format!("{} and its objects: somebody else created it", Key::of(definition)));
        }
    }
    if is_installed {
        plan.actions.extend(cleaning(&facts.nodes));
    }
    if wrote_nodes {
        plan.actions.push(Action::CleanLater);
    }
    for namespace in &facts.namespaces {
        if !is_installed {
            plan.stays.push(format!("{}: somebody else created it", Key::of(namespace)));
            continue;
        }
        let name = &namespace["metadata"]["name"];
        let within = |object: &&Value| object["metadata"]["namespace"] == *name;
        // A chart or GitOps creates our namespace, too, and then it goes. Another Machine Config Operator's has its parts in it.
        let of_others = facts.objects.iter().filter(within).find(|object| !is_applied_by_us(object));
        if let Some(part) = of_others.filter(|_| !is_applied_by_us(namespace)) {
            plan.stays.push(format!(
                "{}: somebody else created it, and {} is in it; what is ours in it stays with it",
                Key::of(namespace),
                Key::of(part)
            ));
            continue;
        }
        let inside = facts.inside.iter().filter(within);
        plan.lost.extend(inside.filter(|object| others::is_others(object)).map(Lost::of));
        plan.actions.push(Action::Delete { object: namespace.clone(), wait: true });
    }
    if let Some(provider) = &facts.provider {
        let others = facts.provider_secrets.iter().filter(|s| !user_data(s)).count();
        if others > 0 || !is_ours_alone(provider) {
            let why = if others > 0 { "it contains Secrets of others" } else { "somebody else created it" };
            plan.stays.push(format!("{}: {why}", Key::of(provider)));
        } else {
            plan.actions.push(Action::Delete { object: provider.clone(), wait: true });
        }
    }
    plan
}

/// Takes the controller's finalizers off these objects.
pub(super) fn releasing(held: &[Value]) -> Vec<Action> {
    let ours = held.iter().filter(|object| kept_finalizers(object).is_some());
    ours.map(|object| Action::Release { object: object.clone() }).collect()
}

/// The finalizers that stay when the controller's go, and which somebody else ends. `None`: it has none of the controller's, whose
/// names have no domain, as the reference's. Kubernetes' own two have none either.
pub(super) fn kept_finalizers(object: &Value) -> Option<Vec<&str>> {
    let all = object["metadata"]["finalizers"].as_array();
    let all: Vec<&str> = all.into_iter().flatten().filter_map(Value::as_str).collect();
    let is_theirs = |f: &&str| f.contains('/') || ["foregroundDeletion", "orphan"].contains(f);
    let kept: Vec<&str> = all.iter().copied().filter(is_theirs).collect();
    (kept.len() < all.len()).then_some(kept)
}

/// Whether this takes that object away.
fn deletes(action: &Action, kind: &str, name: &str) -> bool {
    let Action::Delete { object, .. } = action else { return false };
    object["kind"] == kind && object["metadata"]["name"] == name
}

/// Whether an agent has reported on this Node.
fn is_managed(node: &Value) -> bool {
    node["metadata"]["annotations"][annotation::STATE].as_str().is_some_and(|state| !state.is_empty())
}

/// Whether the agent of this Node has answered the last request to leave its host.
fn has_left(node: &Value) -> bool {
    let notes = &node["metadata"]["annotations"];
    notes[own::LEFT].is_string() && notes[own::LEFT] == notes[own::LEAVE]
}

/// How long the agent of a node may take to answer that does nothing else: it looks at its Node all the time.
const ANSWERS: Duration = Duration::from_secs(30);
/// The same for one whose change is under way: it may be on trial for ten minutes.
const ENDS: Duration = Duration::from_mins(12);

/// Which of the nodes that were asked are still waited for, and which are not any more, because their agents do not answer.
pub(super) fn waited_for<'n>(
    nodes: &'n [Value],
    asked: &[String],
    request: &str,
    waited: Duration,
) -> (Vec<&'n str>, Vec<&'n str>) {
    let (mut open, mut silent) = (vec![], vec![]);
    for node in nodes {
        let note = |key: &str| node["metadata"]["annotations"][key].as_str();
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        // Where the request is gone, nobody asks any more.
        let is_asked = note(own::LEAVE) == Some(request) && asked.iter().any(|asked| asked == name);
        let works = note(annotation::STATE).and_then(NodeState::parse) == Some(NodeState::Working);
        // An answer from before an update that has begun since is none.
        if !is_asked || note(own::LEFT) == Some(request) && !works {
            continue;
        }
        // One that only has somewhere to go begins or answers at once if its agent runs.
        let limit = if works { ENDS } else { ANSWERS };
        if waited >= limit { silent.push(name) } else { open.push(name) }
    }
    (open, silent)
}

/// Takes our annotations and taints off these Nodes.
pub(super) fn cleaning(nodes: &[Value]) -> Vec<Action> {
    let mut all = vec![];
    for node in nodes {
        let notes = node["metadata"]["annotations"].as_object();
        let ours = |key: &&String| ON_NODES.iter().any(|p| key.starts_with(p));
        let annotations: Vec<String> =
            notes.into_iter().flatten().map(|(k, _)| k).filter(ours).cloned().collect();
        let taints = node["spec"]["taints"].as_array();
        let tainted = taints.into_iter().flatten().any(|t| TAINTS.iter().any(|key| t["key"] == *key));
        if !annotations.is_empty() || tainted {
            let node = node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            all.push(Action::Clean { node, annotations, tainted });
        }
    }
    all
}

/// The labels by which pods of the namespace's workloads are found.
pub(super) fn pods_of(object: &Value) -> Option<String> {
    (object["metadata"]["namespace"] == NAMESPACE).then(|| crate::sync::objects::selector(object))
}

#[cfg(test)]
mod tests;
