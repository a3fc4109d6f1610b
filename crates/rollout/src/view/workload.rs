//! Pods and PodDisruptionBudgets as a drain sees them. What it is not: the choice of pods, see [`crate::drain`].
//!
//! Source: <https://kubernetes.io/docs/tasks/run-application/configure-pdb/>.

use super::NodeView;
use super::names::{Labels, Names};
use api::conditions::is_true;
use api::k8s::{LabelSelector, ObjectMeta, Pod, PodDisruptionBudget};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// On the kubelet's mirror of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The controller of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// For example `ReplicaSet`.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// A pod's phase, as far as a drain distinguishes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodPhase {
    /// Pending, Running or unknown.
    #[default]
    Alive,
    /// Succeeded or Failed: its containers will not run again.
    Finished,
}

/// A Pod as a drain sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodView {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its identity; evictions are bound to it.
    pub uid: Box<str>,
    /// The node that it is bound to; empty if none.
    pub node: Arc<str>,
    /// What budgets select by.
    pub labels: Labels,
    /// Its controller.
    pub owner: Option<Owner>,
    /// Whether it is the kubelet's mirror of a static pod.
    pub mirror: bool,
    /// Running, or finished.
    pub phase: PodPhase,
    /// Whether it is being deleted; its grace period runs.
    pub deleting: bool,
    /// Whether it has an emptyDir volume, whose contents are lost with the pod.
    pub empty_dir: bool,
    /// Its grace period, in seconds.
    pub grace: Option<i64>,
}

impl PodView {
    /// The view of one Pod.
    pub fn from_pod(pod: &Pod, names: &mut Names) -> Self {
        let ObjectMeta { namespace, name, uid, labels, annotations, owner_references, .. } = &pod.metadata;
        let owner = owner_references.iter().flatten().find(|o| o.controller == Some(true));
        let spec = pod.spec.as_ref();
        Self {
            namespace: names.get(namespace.as_deref().unwrap_or_default()),
            name: name.as_deref().unwrap_or_default().into(),
            uid: uid.as_deref().unwrap_or_default().into(),
            node: names.get(spec.and_then(|s| s.node_name.as_deref()).unwrap_or_default()),
            labels: Labels::new(labels.as_ref(), names),
            owner: owner.map(|o| Owner { kind: names.get(&o.kind), name: names.get(&o.name) }),
            mirror: annotations.as_ref().is_some_and(|a| a.contains_key(MIRROR)),
            phase: match pod.status.as_ref().and_then(|s| s.phase.as_deref()) {
                Some("Succeeded" | "Failed") => PodPhase::Finished,
                _ => PodPhase::Alive,
            },
            deleting: pod.metadata.deletion_timestamp.is_some(),
            empty_dir: spec
                .and_then(|s| s.volumes.as_deref())
                .unwrap_or_default()
                .iter()
                .any(|v| v.empty_dir.is_some()),
            grace: spec.and_then(|s| s.termination_grace_period_seconds),
        }
    }
}

impl fmt::Display for PodView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A member of etcd that runs as a static pod of a control-plane node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdMember {
    /// Its node.
    pub node: Arc<str>,
    /// Whether its kubelet says that it is Ready.
    pub ready: bool,
    /// The id of its container, as the kubelet reported it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Arc<str>>,
}

impl EtcdMember {
    /// Where the pods are, and the label that selects them: kubeadm's, and OpenShift's. Source: kubeadm's manifests, and
    /// those of OpenShift's etcd operator.
    pub const PLACES: [(&str, &str); 2] = [("kube-system", "component=etcd"), ("openshift-etcd", "app=etcd")];

    /// The name of the container, in kubeadm's pods and in OpenShift's.
    const CONTAINER: &str = "etcd";

    /// The member of a mirror pod. `None`: the pod is not a member, is not bound to a node, or is being deleted.
    pub fn from_pod(pod: &Pod) -> Option<Self> {
        let ObjectMeta { namespace, labels, annotations, deletion_timestamp, .. } = &pod.metadata;
        let (namespace, labels) = (namespace.as_deref()?, labels.as_ref()?);
        let is_member = Self::PLACES.iter().any(|(place, label)| {
            let (key, value) = label.split_once('=').unwrap_or((label, ""));
            *place == namespace && labels.get(key).is_some_and(|v| v == value)
        });
        let mirror = annotations.as_ref().is_some_and(|a| a.contains_key(MIRROR));
        let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).filter(|n| !n.is_empty())?;
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref());
        let ready = is_true(conditions.unwrap_or_default(), "Ready");
        let mut containers = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
        let container =
            containers.find(|c| c.name == Self::CONTAINER).and_then(|c| c.container_id.as_deref());
        (is_member && mirror && deletion_timestamp.is_none()).then(|| Self {
            node: node.into(),
            ready,
            container: container.filter(|id| !id.is_empty()).map(Arc::from),
        })
    }

    /// What is to be noted on its node, as [`api::names::own::ETCD_BEFORE`], when that is sent to another config: the boot and the container
    /// that it leaves. `None`: one of them is not known.
    pub fn leaving(&self, node: &NodeView) -> Option<String> {
        let (boot, container) = node.boot.as_deref().zip(self.container.as_deref())?;
        Some(format!("{boot} {container}"))
    }

    /// Whether it is Ready, and that is said of the present boot of its node.
    pub fn is_ready_since_boot(&self, node: &NodeView) -> bool {
        self.ready && !self.is_of_earlier_boot(node)
    }

    /// Whether its pod still says what was true before its node booted: no container outlives a boot. After a short reboot the
    /// node may be Ready and Done before its kubelet has reported the new container, and the pod's condition `Ready` is true
    /// all the time. Times are not compared: clocks are set during a boot.
    fn is_of_earlier_boot(&self, node: &NodeView) -> bool {
        let before = node.etcd_before.as_deref().and_then(|note| note.split_once(' '));
        let now = node.boot.as_deref().zip(self.container.as_deref());
        before.zip(now).is_some_and(|((then, left), (boot, container))| then != boot && left == container)
    }
}

/// A PodDisruptionBudget as a drain sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetView {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The pods that it guards. Unlike in pools, an empty selector selects every pod of the namespace.
    pub selector: Option<LabelSelector>,
    /// How many of them may be evicted now.
    pub disruptions_allowed: i32,
    /// How many are healthy.
    pub current_healthy: i32,
    /// How many must be healthy.
    pub desired_healthy: i32,
    /// How many there should be.
    pub expected_pods: i32,
}

impl BudgetView {
    /// The view of one budget.
    pub fn from_budget(budget: &PodDisruptionBudget, names: &mut Names) -> Self {
        let status = budget.status.as_ref();
        let count = |f: fn(&api::k8s::PodDisruptionBudgetStatus) -> Option<i32>| {
            status.and_then(f).unwrap_or_default()
        };
        Self {
            namespace: names.get(budget.metadata.namespace.as_deref().unwrap_or_default()),
            name: names.get(budget.metadata.name.as_deref().unwrap_or_default()),
            selector: budget.spec.as_ref().and_then(|s| s.selector.clone()),
            disruptions_allowed: count(|s| s.disruptions_allowed),
            current_healthy: count(|s| s.current_healthy),
            desired_healthy: count(|s| s.desired_healthy),
            expected_pods: count(|s| s.expected_pods),
        }
    }

    /// Whether it guards the pod. A selector that cannot be evaluated guards nothing, as in the API server.
    pub fn guards(&self, pod: &PodView) -> bool {
        let Some(selector) = self.selector.as_ref() else { return false };
        self.namespace == pod.namespace
            && (api::formats::selector::is_empty(selector)
                || api::formats::selector::matches_by(Some(selector), &|key| pod.labels.get(key))
                    .unwrap_or(false))
    }
}
