//! What goes, in which order, and what stays. Pure.

use crate::manifests::rights::{AGENT, OPERATOR};
use crate::sync::objects::{FIELD_MANAGER, Key};
use api::names::{NAMESPACE, annotation, own, state};
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
                    "pause the pools, and ask the agents of all nodes ({}) to end trials and to leave their hosts",
                    nodes.len()
                )
            }
            Self::Delete { object, .. } => write!(f, "delete {}", Key::of(object)),
            Self::Release { object } => write!(f, "take our finalizers off {}", Key::of(object)),
            Self::Clean { node, .. } => write!(f, "take our annotations off Node {node}"),
            Self::CleanLater => {
                f.write_str("take our annotations and taints off Nodes that registered meanwhile")
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
    /// The namespace of machine providers.
    pub provider: Option<Value>,
}

/// What is done, and what is not.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// What is done, in this order.
    pub actions: Vec<Action>,
    /// What stays, and why.
    pub stays: Vec<String>,
    /// Nodes that are on their way to another config: it is not safe to begin.
    pub busy: Vec<String>,
}

/// Whether our field manager has applied this object. The reference's operator has the same name, but it updates where we apply.
fn is_ours(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array();
    managers.into_iter().flatten().any(|m| m["manager"] == FIELD_MANAGER && m["operation"] == "Apply")
}

impl Facts {
    /// Whether anything of an installation is left. The reference's cluster has the same namespaces, kinds, labels and
    /// annotations; the kinds of `machineconfig.dev` are ours alone, whoever applied them.
    pub(super) fn is_installed(&self) -> bool {
        let of_our_group =
            |d: &Value| d["metadata"]["name"].as_str().is_some_and(|name| name.ends_with(OUR_GROUP));
        let mut all =
            self.objects.iter().chain(&self.definitions).chain(&self.namespaces).chain(&self.provider);
        self.definitions.iter().any(of_our_group) || all.any(is_ours)
    }
}

/// How the names of definitions end whose kinds the reference does not have.
const OUR_GROUP: &str = ".machineconfig.dev";

/// Whether nobody else has written to it: what we found and only labelled is not ours to delete.
fn is_ours_alone(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array();
    let mut of_spec = managers.into_iter().flatten().filter(|m| m.get("subresource").is_none_or(|s| s == ""));
    is_ours(object) && of_spec.all(|m| m["manager"] == FIELD_MANAGER)
}

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
        if note(annotation::STATE) == state::WORKING || (!current.is_empty() && current != desired) {
            plan.busy.push(format!("Node {name} is on its way from {current} to {desired}"));
        }
    }
    let mut wrote_nodes = false;
    for object in &facts.objects {
        if is_ours(object) {
            let kind = object["kind"].as_str().unwrap_or_default();
            let wait = ["Deployment", "DaemonSet"].contains(&kind);
            wrote_nodes |= wait || kind == "MutatingAdmissionPolicyBinding";
            plan.actions.push(Action::Delete { object: object.clone(), wait });
        } else {
            plan.stays.push(format!("{}: somebody else made it", Key::of(object)));
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
    let released = facts.held.iter().filter(|object| is_installed && kept_finalizers(object).is_some());
    plan.actions.extend(released.map(|object| Action::Release { object: object.clone() }));
    let user_data = |s: &&Value| s["metadata"]["labels"].get(api::user_data::MANAGED).is_some();
    for secret in facts.provider_secrets.iter().filter(user_data).filter(|_| is_installed) {
        plan.actions.push(Action::Delete { object: secret.clone(), wait: false });
    }
    // With them go all objects of their kinds.
    for definition in &facts.definitions {
        if is_ours(definition) {
            plan.actions.push(Action::Delete { object: definition.clone(), wait: true });
        } else {
            plan.stays.push(format!("{} and its objects: somebody else made it", Key::of(definition)));
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
            plan.stays.push(format!("{}: somebody else made it", Key::of(namespace)));
            continue;
        }
        plan.actions.push(Action::Delete { object: namespace.clone(), wait: true });
    }
    if let Some(provider) = &facts.provider {
        let others = facts.provider_secrets.iter().filter(|s| !user_data(s)).count();
        if others > 0 || !is_ours_alone(provider) {
            let why = if others > 0 { "it holds Secrets of others" } else { "somebody else made it" };
            plan.stays.push(format!("{}: {why}", Key::of(provider)));
        } else {
            plan.actions.push(Action::Delete { object: provider.clone(), wait: true });
        }
    }
    plan
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
        let works = note(annotation::STATE) == Some(state::WORKING);
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
mod tests {
    use super::*;
    use serde_json::json;

    fn object(kind: &str, name: &str, manager: &str) -> Value {
        json!({"kind": kind, "metadata": {"name": name, "managedFields": [{"manager": manager, "operation": "Apply"}]}})
    }

    #[test]
    fn what_would_make_things_again_goes_first_and_what_others_made_stays() {
        let node = json!({"kind": "Node", "metadata": {"name": "n", "annotations": {
            annotation::CURRENT_CONFIG: "a", annotation::DESIRED_CONFIG: "a", annotation::STATE: "Done", "other": "x"}},
            "spec": {"taints": [{"key": "UpdateInProgress", "effect": "PreferNoSchedule"}, {"key": "machineconfig.dev/joining", "effect": "NoSchedule"}]}});
        let secret = |name: &str, managed: bool| {
            let labels = if managed { json!({api::user_data::MANAGED: ""}) } else { json!({}) };
            json!({"kind": "Secret", "metadata": {"name": name, "labels": labels}})
        };
        let facts = Facts {
            objects: vec![
                object("Deployment", "machine-config-operator", FIELD_MANAGER),
                object("DaemonSet", "machine-config-daemon", FIELD_MANAGER),
                object("ClusterRole", "machine-config-server", "kubectl"),
                object("ClusterRole", "machine-config-controller", FIELD_MANAGER),
            ],
            held: vec![
                json!({"kind": "KubeletConfig", "metadata": {"name": "k", "finalizers": ["99-worker-generated-kubelet"]}}),
                json!({"kind": "MachineConfig", "metadata": {"name": "m", "finalizers": ["gitops.example.com/finalizer"]}}),
            ],
            definitions: vec![
                object("CustomResourceDefinition", "x", FIELD_MANAGER),
                object("CustomResourceDefinition", "y", "cvo"),
            ],
            nodes: vec![node],
            provider_secrets: vec![secret("worker-user-data-managed", true), secret("theirs", false)],
            namespaces: vec![object("Namespace", "n", FIELD_MANAGER)],
            provider: Some(object("Namespace", "openshift-machine-api", FIELD_MANAGER)),
        };
        let found = plan(&facts);
        let lines: Vec<String> = found.actions.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "delete Deployment machine-config-operator",
                "pause the pools, and ask the agents of all nodes (1) to end trials and to leave their hosts",
                "delete DaemonSet machine-config-daemon",
                "delete ClusterRole machine-config-controller",
                "take our finalizers off KubeletConfig k",
                "delete Secret worker-user-data-managed",
                "delete CustomResourceDefinition x",
                "take our annotations off Node n",
                "take our annotations and taints off Nodes that registered meanwhile",
                "delete Namespace n",
            ]
        );
        assert_eq!(found.busy, Vec::<String>::new());
        assert_eq!(
            found.stays,
            [
                "ClusterRole machine-config-server: somebody else made it",
                "CustomResourceDefinition y and its objects: somebody else made it",
                "Namespace openshift-machine-api: it holds Secrets of others",
            ]
        );
        let Action::Clean { annotations, tainted, .. } = &found.actions[7] else {
            panic!("{:?}", found.actions[7])
        };
        assert!(annotations.len() == 3 && !annotations.contains(&"other".to_owned()) && *tainted);
    }

    type Change = fn(&mut Facts);

    #[test]
    fn a_cluster_of_another_operator_is_left_as_it_is() {
        let theirs = |kind: &str, name: &str, manager: &str| json!({"kind": kind, "metadata": {"name": name, "managedFields": [{"manager": manager, "operation": "Update"}]}});
        let theirs = Facts {
            // The reference's operator has the name of our field manager.
            objects: vec![theirs("Deployment", "machine-config-controller", FIELD_MANAGER)],
            held: vec![
                json!({"kind": "KubeletConfig", "metadata": {"name": "k", "finalizers": ["99-worker-generated-kubelet"]}}),
            ],
            definitions: vec![theirs(
                "CustomResourceDefinition",
                "kubeletconfigs.machineconfiguration.openshift.io",
                "cvo",
            )],
            nodes: vec![json!({"metadata": {"name": "n", "annotations": {annotation::STATE: "Done"}},
                "spec": {"taints": [{"key": "UpdateInProgress"}]}})],
            provider_secrets: vec![json!({"kind": "Secret",
                "metadata": {"name": "worker-user-data-managed", "labels": {api::user_data::MANAGED: ""}}})],
            namespaces: vec![theirs("Namespace", NAMESPACE, "cvo")],
            provider: Some(theirs("Namespace", "openshift-machine-api", "cvo")),
        };
        let rows: [(&str, Change, bool); 4] = [
            ("nothing of ours", |_| {}, false),
            ("our object", |f| f.objects.push(object("ClusterRole", "c", FIELD_MANAGER)), true),
            (
                "our kind",
                |f| f.definitions.push(object("C", "rolloutpolicies.machineconfig.dev", "helm")),
                true,
            ),
            // A run that was cut off at the end.
            ("our namespace", |f| f.namespaces = vec![object("Namespace", NAMESPACE, FIELD_MANAGER)], true),
        ];
        for (what, change, goes) in rows {
            let mut facts = theirs.clone();
            change(&mut facts);
            let plan = plan(&facts);
            assert_eq!(!plan.actions.is_empty(), goes, "{what}: {:?}", plan.actions);
            assert!(
                plan.stays
                    .contains(&"Deployment machine-config-controller: somebody else made it".to_owned())
            );
        }
    }

    #[test]
    fn finalizers_of_others_are_left_to_them() {
        let kept = |finalizers: Value| {
            let object = json!({"metadata": {"finalizers": finalizers}});
            kept_finalizers(&object).map(|kept| kept.join(" "))
        };
        for (finalizers, want) in [
            (json!(null), None),
            (json!(["a.example.com/x", "foregroundDeletion"]), None),
            (json!(["99-worker-generated-kubelet"]), Some("")),
            (json!(["0a1b2c3d-0000-4000-8000-000000000000", "orphan", "a/b"]), Some("orphan a/b")),
        ] {
            assert_eq!(kept(finalizers.clone()).as_deref(), want, "{finalizers}");
        }
    }

    #[test]
    fn agents_are_waited_for_as_long_as_a_trial_may_take_and_dead_ones_for_a_moment() {
        let node = |name: &str, state: &str, left: &str| {
            json!({"metadata": {"name": name, "annotations": {
                annotation::STATE: state, own::LEAVE: "r", own::LEFT: left}}})
        };
        let gone = json!({"metadata": {"name": "unasked", "annotations": {annotation::STATE: "Done"}}});
        let nodes = [
            node("done", "Done", "r"),
            node("idle", "Done", "earlier"),
            node("trial", "Working", ""),
            node("other", "Done", ""),
            gone,
            // It has somewhere to go and has not begun: its agent does not run.
            json!({"metadata": {"name": "sent", "annotations": {annotation::STATE: "Done", own::LEAVE: "r",
                annotation::CURRENT_CONFIG: "a", annotation::DESIRED_CONFIG: "b"}}}),
        ];
        let asked = ["done", "idle", "trial", "unasked", "sent"].map(str::to_owned);
        for (seconds, open, late) in [
            (0, vec!["idle", "trial", "sent"], vec![]),
            (30, vec!["trial"], vec!["idle", "sent"]),
            (720, vec![], vec!["idle", "trial", "sent"]),
        ] {
            let found = waited_for(&nodes, &asked, "r", Duration::from_secs(seconds));
            assert_eq!(found, (open, late), "after {seconds} s");
        }
        let bare = Facts { nodes: vec![json!({"metadata": {"name": "n"}})], ..Facts::default() };
        assert!(plan(&bare).actions.is_empty(), "no agent has ever run there");
    }

    #[test]
    fn nodes_are_looked_at_again_where_something_wrote_to_them() {
        let later = |kind: &str, manager: &str| {
            let facts = Facts { objects: vec![object(kind, "n", manager)], ..Facts::default() };
            plan(&facts).actions.contains(&Action::CleanLater)
        };
        assert!(later("DaemonSet", FIELD_MANAGER) && later("MutatingAdmissionPolicyBinding", FIELD_MANAGER));
        assert!(!later("ClusterRole", FIELD_MANAGER) && !later("DaemonSet", "kubectl"));
        assert!(plan(&Facts::default()).actions.is_empty(), "nothing is installed");
        let registered = json!({"metadata": {"name": "new"},
            "spec": {"taints": [{"key": "machineconfig.dev/joining", "effect": "NoSchedule"}]}});
        let found = cleaning(&[json!({"metadata": {"name": "bare"}}), registered]);
        assert_eq!(found, [Action::Clean { node: "new".to_owned(), annotations: vec![], tainted: true }]);
    }

    #[test]
    fn the_namespace_of_machine_providers_goes_only_where_it_is_ours_alone() {
        let shared = json!({"kind": "Namespace", "metadata": {"name": "n", "managedFields": [
            {"manager": FIELD_MANAGER, "operation": "Apply"}, {"manager": "installer", "operation": "Update"}]}});
        let with =
            |provider: Value| plan(&Facts { provider: Some(provider), ..Facts::default() }).actions.len();
        assert_eq!((with(object("Namespace", "n", FIELD_MANAGER)), with(shared)), (1, 0));
    }

    #[test]
    fn a_node_on_its_way_holds_it_up() {
        let node = |current: &str, desired: &str, state: &str| {
            json!({"metadata": {"name": "n", "annotations": {annotation::CURRENT_CONFIG: current,
                annotation::DESIRED_CONFIG: desired, annotation::STATE: state}}})
        };
        for (node, busy) in [
            (node("a", "a", "Done"), false),
            (node("a", "b", "Done"), true),
            (node("a", "a", "Working"), true),
            (node("a", "a", "Degraded"), false),
            (json!({"metadata": {"name": "n"}}), false),
        ] {
            assert_eq!(
                !plan(&Facts { nodes: vec![node.clone()], ..Facts::default() }).busy.is_empty(),
                busy,
                "{node}"
            );
        }
    }
}
