//! The nodes that are down while a DaemonSet is rolled out: whose pods nobody waits for, and how many pods may be unavailable
//! because of them. Pure.
//!
//! The DaemonSet controller counts the pod of such a node against `maxUnavailable`, and never gets to replace it. As many nodes as
//! `maxUnavailable` allows would end the rollout on all others.
//!
//! What it is not: reading pods and Nodes (see `cluster`), and whether a workload is rolled out (see `objects`).
//!
//! Source: <https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/daemon/update.go>.

use api::conditions::{self, StatusCondition as _, is_true};
use api::formats::text::names;
use api::k8s::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// After the end of a pod's grace period, which its `deletionTimestamp` names.
const STRANDED: SignedDuration = SignedDuration::from_secs(60);
/// For so long a node may only be rebooting: its kubelet ends the pod when it is back, and the pod is replaced.
const REBOOT: SignedDuration = SignedDuration::from_mins(5);
/// A pod that is younger may only be starting: nobody asks for its node.
const STARTING: SignedDuration = SignedDuration::from_secs(60);
/// How many nodes are named. Of the others the number is said.
const SHOWN: usize = 5;

/// The nodes that are down, as far as a DaemonSet has pods there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DownNodes {
    /// The nodes whose pod counts as unavailable for as long as they are down.
    names: BTreeSet<String>,
    /// How many of their pods are to be replaced and are not yet: each should be gone, and a DaemonSet makes no other pod on that
    /// node meanwhile.
    ending: i64,
    /// How many of these are never replaced: the kubelet that would end them does not answer, and a reboot takes less time.
    stranded: i64,
    /// How many nodes the DaemonSet is to have a pod on.
    scheduled: i64,
    /// How many nodes have a pod of the new template.
    updated: i64,
}

impl DownNodes {
    /// Out of a DaemonSet, its pods, and which of the nodes of [`unclear`] are not ready, as [`not_ready`] returns them.
    pub(crate) fn of(set: &Value, pods: &[Pod], not_ready: &NotReady, now: Timestamp) -> Self {
        let status = |key: &str| set["status"][key].as_i64().unwrap_or_default();
        let mut found = Self {
            scheduled: status("desiredNumberScheduled"),
            updated: status("updatedNumberScheduled"),
            ..Self::default()
        };
        for pod in pods {
            let Some(node) = node_of(pod) else { continue };
            let end = pod.metadata.deletion_timestamp.as_ref();
            let is_late = end.is_some_and(|end| now.duration_since(end.0) > STRANDED);
            let since = not_ready.get(node).filter(|_| !works(pod));
            let is_lasting =
                since.copied().flatten().is_some_and(|since| now.duration_since(since) >= REBOOT);
            if is_late || since.is_some() {
                found.names.insert(node.to_owned());
                found.ending += i64::from(end.is_some());
                found.stranded += i64::from(end.is_some() && (is_late || is_lasting));
            }
        }
        found
    }

    /// How many pods are never replaced while their nodes are down.
    pub(crate) fn stranded(&self) -> i64 {
        self.stranded
    }

    /// How many pods may be unavailable, where usually so many may be: a number, or a share of all. `None`: as many as usual.
    ///
    /// As many as usual, too, once no other pod is left to be replaced: else each reboot of a node would have the DaemonSet
    /// written, and its rollout would count as one that goes on.
    pub(crate) fn max_unavailable(&self, usual: &Value) -> Option<i64> {
        let down = i64::try_from(self.names.len()).ok()?;
        if down == 0 || self.updated >= self.scheduled - self.ending {
            return None;
        }
        let usual = match usual.as_str() {
            Some(share) => {
                let percent: i64 = share.strip_suffix('%')?.parse().ok()?;
                // Kubernetes rounds up.
                (percent * self.scheduled + 99) / 100
            }
            None => usual.as_i64()?,
        };
        Some(usual + down)
    }

    /// The nodes, as the end of a sentence about the rollout; empty: none is down.
    pub(crate) fn words(&self) -> String {
        match self.names.is_empty() {
            true => String::new(),
            false => format!("; nodes that are down: {}", names(&self.names, SHOWN)),
        }
    }
}

/// The nodes that may be down: a pod there is not ready, and has had its time to start.
pub(crate) fn unclear(pods: &[Pod], now: Timestamp) -> BTreeSet<String> {
    let late = pods.iter().filter(|pod| !works(pod) && !is_starting(pod, now));
    late.filter_map(node_of).map(str::to_owned).collect()
}

/// The names of nodes that are not ready, each with the time since when; `None`: nobody has said it.
pub(crate) type NotReady = BTreeMap<String, Option<Timestamp>>;

/// Those of these nodes that are not ready.
pub(crate) fn not_ready<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> NotReady {
    let mut down = NotReady::new();
    for node in nodes {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        let ready = conditions::get(conditions.unwrap_or_default(), "Ready");
        let Some(name) = node.metadata.name.clone().filter(|_| ready.is_none_or(|c| !c.is_true())) else {
            continue;
        };
        down.insert(name, ready.and_then(|c| c.last_transition_time.as_ref()).map(|time| time.0));
    }
    down
}

fn works(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    is_true(conditions.unwrap_or_default(), "Ready")
}

fn is_starting(pod: &Pod, now: Timestamp) -> bool {
    let begin = pod.metadata.creation_timestamp.as_ref();
    begin.is_some_and(|begin| now.duration_since(begin.0) < STARTING)
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LONG_AGO: &str = "2026-07-01T11:00:00Z";

    fn now() -> Timestamp {
        "2026-07-01T12:00:00Z".parse().unwrap()
    }

    fn pod(node: &str, ready: &str, begin: &str, end: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": format!("p-{node}"), "creationTimestamp": begin, "deletionTimestamp": end},
            "spec": {"nodeName": node},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn set(scheduled: i64, updated: i64) -> Value {
        json!({"kind": "DaemonSet", "status": {"desiredNumberScheduled": scheduled, "updatedNumberScheduled": updated}})
    }

    /// This many nodes are down, and keep their old pod.
    fn stranded(scheduled: i64, updated: i64, nodes: &[&str]) -> DownNodes {
        let pods: Vec<Pod> =
            nodes.iter().map(|node| pod(node, "False", LONG_AGO, Some("2026-07-01T11:58:00Z"))).collect();
        DownNodes::of(&set(scheduled, updated), &pods, &NotReady::new(), now())
    }

    #[test]
    fn a_pod_counts_as_stranded_when_nobody_ends_it() {
        let (just_now, long_ago) = (Some("2026-07-01T11:56:00Z"), Some("2026-07-01T11:55:00Z"));
        // Columns: whether the pod is ready, when it should be gone, since when its node is not ready; whether the node is down, and
        // how many pods are stranded.
        for (ready, end, not_ready, down, stranded) in [
            ("True", None, None, false, 0),
            ("False", None, None, false, 0),
            // A pod of the new template on a node that is down: it counts as unavailable.
            ("False", None, long_ago, true, 0),
            // Its node has just gone, and the pod still works for all that is known.
            ("True", None, long_ago, false, 0),
            ("False", Some("2026-07-01T12:05:00Z"), None, false, 0),
            ("False", Some("2026-07-01T11:59:30Z"), None, false, 0),
            // The kubelet does not answer: its grace period, minutes for an agent, is not waited for.
            ("False", Some("2026-07-01T12:05:00Z"), long_ago, true, 1),
            // The node may only be rebooting.
            ("False", Some("2026-07-01T12:05:00Z"), just_now, true, 0),
            ("False", Some("2026-07-01T11:58:00Z"), just_now, true, 1),
            // It answers, and does not end the pod.
            ("False", Some("2026-07-01T11:58:00Z"), None, true, 1),
        ] {
            let pods = [pod("a", ready, LONG_AGO, end)];
            let since = not_ready.map(|since| ("a".to_owned(), Some(since.parse().unwrap())));
            let found = DownNodes::of(&set(3, 1), &pods, &since.into_iter().collect(), now());
            let about = format!("{ready} {end:?} {not_ready:?}: {found:?}");
            assert_eq!((found.names.contains("a"), found.stranded()), (down, stranded), "{about}");
            // The others get their budget at once.
            assert_eq!(found.max_unavailable(&json!(1)), down.then_some(2), "{about}");
        }
    }

    #[test]
    fn a_node_of_which_nobody_says_since_when_it_is_not_ready_may_be_rebooting() {
        let pods = [pod("a", "False", LONG_AGO, Some("2026-07-01T12:05:00Z"))];
        let not_ready = NotReady::from([("a".to_owned(), None)]);
        let found = DownNodes::of(&set(3, 2), &pods, &not_ready, now());
        assert_eq!((found.words().as_str(), found.stranded()), ("; nodes that are down: a", 0));
        assert_eq!(found.max_unavailable(&json!(1)), None, "no other pod is left to be replaced");
    }

    #[test]
    fn only_nodes_with_a_pod_that_should_work_by_now_are_asked_for() {
        let pods = [
            pod("works", "True", LONG_AGO, None),
            pod("starts", "False", "2026-07-01T11:59:30Z", None),
            pod("a", "False", LONG_AGO, None),
            pod("b", "False", LONG_AGO, Some("2026-07-01T12:05:00Z")),
        ];
        assert_eq!(unclear(&pods, now()), BTreeSet::from(["a", "b"].map(str::to_owned)));
        let node = |name: &str, ready: &str, since: Option<&str>| -> Node {
            let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
            let node = json!({"metadata": {"name": name}, "status": {"conditions": [condition]}});
            serde_json::from_value(node).unwrap()
        };
        let nodes = [
            node("a", "Unknown", Some(LONG_AGO)),
            node("b", "True", Some(LONG_AGO)),
            node("c", "False", None),
        ];
        let want = [("a".to_owned(), Some(LONG_AGO.parse().unwrap())), ("c".to_owned(), None)];
        assert_eq!(not_ready(&nodes), NotReady::from(want));
    }

    #[test]
    fn nodes_that_are_down_leave_the_others_their_budget() {
        // Columns: the usual budget, nodes with a pod, nodes with a new one, nodes that are down; the budget.
        for (usual, scheduled, updated, nodes, want) in [
            (json!(1), 3, 1, &["c"][..], Some(2)),
            (json!(1), 3, 1, &[], None),
            (json!(1), 5, 1, &["c", "d"], Some(3)),
            // Kubernetes rounds up: this is one and two.
            (json!("10%"), 4, 1, &["c"], Some(2)),
            (json!("10%"), 11, 1, &["c"], Some(3)),
            (json!("10%"), 5000, 1, &["c"], Some(501)),
            // What is left is on nodes that are down. Whichever else goes down, nothing is written.
            (json!(1), 3, 2, &["c"], None),
            (json!(1), 3, 3, &["c"], None),
            (json!("many"), 3, 1, &["c"], None),
        ] {
            let found = stranded(scheduled, updated, nodes);
            assert_eq!(found.max_unavailable(&usual), want, "{usual} {scheduled} {updated} {nodes:?}");
        }
        assert_eq!(DownNodes::default().words(), "");
        assert_eq!(stranded(3, 1, &["d", "c"]).words(), "; nodes that are down: c, d");
    }
}
