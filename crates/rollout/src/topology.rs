//! The cluster's topology, derived from its nodes: whether control-plane nodes, and the nodes that run the workload,
//! have peers that their pods can move to.
//!
//! | nodes of a sort | topology |
//! | --- | --- |
//! | none | not known: the control plane may stand elsewhere, or its nodes have not joined yet |
//! | one | `SingleReplica` |
//! | more | `HighlyAvailable` |
//!
//! What it is not: the drain, or OpenShift's topology, which its installer decides and its Infrastructure object
//! records.
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/config/v1/types_infrastructure.go>.

use crate::view::NodeView;
use crate::view::roles::{Cluster, is_control_plane, is_etcd};
use api::detected::{CONTROL_PLANE_TOPOLOGY, Detected, INFRASTRUCTURE_TOPOLOGY};
use api::names::annotation::FOUND_OUT;
use api::names::topology::{HIGHLY_AVAILABLE, SINGLE_REPLICA};
use api::v1::ControllerConfig;
use serde_json::{Map, Value, json};

/// The topology according to the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The control plane's topology; `None` if no node belongs to it.
    pub control_plane: Option<&'static str>,
    /// The topology of the nodes that run the workload; if there are no others, the control plane's.
    pub infrastructure: Option<&'static str>,
}

impl Topology {
    /// Counts the nodes. A node that is not ready counts: it is expected to come back.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a NodeView>) -> Self {
        let (mut control_plane, mut workers) = (0_usize, 0_usize);
        for node in nodes.into_iter().filter(|n| !n.is_windows()) {
            if is_control_plane(&node.labels) {
                control_plane += 1;
            } else if !is_etcd(&node.labels) {
                workers += 1;
            }
        }
        let word = |count| match count {
            0 => None,
            1 => Some(SINGLE_REPLICA),
            _ => Some(HIGHLY_AVAILABLE),
        };
        Self { control_plane: word(control_plane), infrastructure: word(workers).or(word(control_plane)) }
    }

    fn fields(self) -> [(&'static str, Option<&'static str>); 2] {
        [(CONTROL_PLANE_TOPOLOGY, self.control_plane), (INFRASTRUCTURE_TOPOLOGY, self.infrastructure)]
    }
}

/// Whether nobody chose the value in the ControllerConfig: it is what was detected before, or the default of the kind
/// when nothing is given.
fn is_ours(record: &Detected, field: &str, value: &str) -> bool {
    match record.get(field) {
        Some(recorded) => recorded == value,
        None => matches!(value, "" | HIGHLY_AVAILABLE),
    }
}

/// The values of a plain cluster that must be updated, out of those that are ours.
fn stale(config: &ControllerConfig, found: Topology) -> impl Iterator<Item = (&'static str, &'static str)> {
    let record = Detected::of(&config.metadata);
    let plain = Cluster::of(Some(&config.spec)) == Cluster::Plain && !config.spec.copies_infrastructure();
    found.fields().into_iter().filter_map(move |(field, found)| {
        let value = config.spec.infra_status(&[field]).unwrap_or_default();
        let found = found.filter(|found| plain && *found != value)?;
        is_ours(&record, field, value).then_some((field, found))
    })
}

/// The control plane's topology in force: as the ControllerConfig says, unless that is out of date. Without a
/// ControllerConfig it is not known and not copied to any Node, because on OpenShift the number of nodes does not
/// decide it.
pub fn control_plane(config: Option<&ControllerConfig>, found: Topology) -> &str {
    let Some(config) = config else { return "" };
    let mut stale = stale(config, found);
    let current = stale.find(|(field, _)| *field == CONTROL_PLANE_TOPOLOGY);
    current.map_or_else(|| config.spec.control_plane_topology(), |(_, found)| found)
}

/// The merge patch that updates the ControllerConfig to what the nodes say; `None` if it is up to date, or if somebody
/// chose another value. The patch is bound to the version that it was decided on.
pub fn patch(config: &ControllerConfig, found: Topology) -> Option<Value> {
    let mut record = Detected::of(&config.metadata);
    let mut status = Map::new();
    for (field, value) in stale(config, found) {
        record.set(field, value);
        status.insert(field.to_owned(), json!(value));
    }
    if status.is_empty() {
        return None;
    }
    let mut infra = json!({ "status": status });
    if config.spec.infra.is_none() {
        // The kind requires these of the embedded object.
        infra["apiVersion"] = json!("config.openshift.io/v1");
        infra["kind"] = json!("Infrastructure");
        infra["spec"] = json!({});
    }
    Some(json!({
        "metadata": {
            "resourceVersion": config.metadata.resource_version,
            "annotations": { FOUND_OUT: record.text() },
        },
        "spec": { "infra": infra },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Labels;
    use api::names::label;
    use api::v1::ControllerConfigSpec;

    fn node(labels: &[(&str, &str)]) -> NodeView {
        NodeView { labels: labels.iter().copied().collect::<Labels>(), ..NodeView::default() }
    }

    fn nodes(control_plane: usize, workers: usize) -> Vec<NodeView> {
        let mut all = vec![node(&[(label::CONTROL_PLANE_ROLE, "true")]); control_plane];
        all.extend(vec![node(&[]); workers]);
        all
    }

    const ONE: Option<&str> = Some(SINGLE_REPLICA);
    const MORE: Option<&str> = Some(HIGHLY_AVAILABLE);

    #[test]
    fn the_topology_counts_control_plane_nodes_and_workers() {
        let rows = [
            ((0, 0), None, None),
            ((0, 3), None, MORE),
            ((1, 0), ONE, ONE),
            ((1, 1), ONE, ONE),
            ((1, 2), ONE, MORE),
            ((3, 0), MORE, MORE),
            ((3, 1), MORE, ONE),
        ];
        for ((masters, workers), control_plane, infrastructure) in rows {
            let want = Topology { control_plane, infrastructure };
            assert_eq!(Topology::of(&nodes(masters, workers)), want, "{masters} and {workers}");
        }
        let others = [node(&[(label::ETCD_ROLE, "true")]), node(&[(label::OS, "windows")])];
        assert_eq!(Topology::of(&others), Topology::default());
        let old = [node(&[(label::MASTER_ROLE, "")]), node(&[(label::CONTROL_PLANE_ROLE, "")])];
        assert_eq!(Topology::of(&old).control_plane, MORE);
    }

    fn config(topology: &str, record: Option<&str>) -> ControllerConfig {
        let infra = json!({"status": {
            CONTROL_PLANE_TOPOLOGY: topology, INFRASTRUCTURE_TOPOLOGY: HIGHLY_AVAILABLE,
        }});
        let spec = ControllerConfigSpec { infra: Some(infra), ..ControllerConfigSpec::default() };
        let mut config = ControllerConfig::new("machine-config-controller", spec);
        config.metadata.resource_version = Some("7".to_owned());
        let record = record.map(|r| json!({ CONTROL_PLANE_TOPOLOGY: r }).to_string());
        config.metadata.annotations = record.map(|r| [(FOUND_OUT.to_owned(), r)].into());
        config
    }

    #[test]
    fn a_counted_topology_follows_the_nodes_and_an_administrators_value_stays() {
        let (single, three) = (Topology::of(&nodes(1, 2)), Topology::of(&nodes(3, 2)));
        // Value, record, what the nodes say, the value in force, and whether it is written.
        let rows = [
            // Written by the kind's default, or by earlier installations.
            (HIGHLY_AVAILABLE, None, single, SINGLE_REPLICA, true),
            ("", None, single, SINGLE_REPLICA, true),
            (HIGHLY_AVAILABLE, None, three, HIGHLY_AVAILABLE, false),
            // Kept up to date, in both directions.
            (SINGLE_REPLICA, ONE, three, HIGHLY_AVAILABLE, true),
            (SINGLE_REPLICA, ONE, single, SINGLE_REPLICA, false),
            (HIGHLY_AVAILABLE, MORE, single, SINGLE_REPLICA, true),
            // The administrator's own value.
            (HIGHLY_AVAILABLE, ONE, single, HIGHLY_AVAILABLE, false),
            (SINGLE_REPLICA, None, three, SINGLE_REPLICA, false),
            (SINGLE_REPLICA, MORE, three, SINGLE_REPLICA, false),
            ("DualReplica", None, three, "DualReplica", false),
            ("External", ONE, single, "External", false),
            // The nodes do not show it: the value stays.
            (SINGLE_REPLICA, ONE, Topology::default(), SINGLE_REPLICA, false),
        ];
        for (value, record, found, counts, written) in rows {
            let config = config(value, record);
            let about = format!("{value}, recorded {record:?}, {found:?}");
            assert_eq!(control_plane(Some(&config), found), counts, "{about}");
            let patch = patch(&config, found);
            assert_eq!(patch.is_some(), written, "{about}: {patch:?}");
            let Some(patch) = patch else { continue };
            assert_eq!(patch["spec"]["infra"]["status"][CONTROL_PLANE_TOPOLOGY], counts, "{about}");
            assert_eq!(patch["metadata"]["resourceVersion"], "7");
            // After one write, everything is in order.
            let mut after = config;
            let text = patch["metadata"]["annotations"][FOUND_OUT].as_str().unwrap().to_owned();
            after.metadata.annotations = Some([(FOUND_OUT.to_owned(), text)].into());
            after.spec.infra.as_mut().unwrap()["status"][CONTROL_PLANE_TOPOLOGY] = json!(counts);
            assert_eq!(super::patch(&after, found), None, "{about}");
        }
    }

    #[test]
    fn on_openshift_the_topology_is_left_alone_and_a_missing_infrastructure_is_added() {
        let single = Topology::of(&nodes(1, 0));
        let mut theirs = config(HIGHLY_AVAILABLE, None);
        theirs.spec.release_image = "quay.io/release".to_owned();
        assert_eq!((patch(&theirs, single), control_plane(Some(&theirs), single)), (None, HIGHLY_AVAILABLE));
        // A copy of the cluster's own Infrastructure says what that one says.
        let mut copy = config(HIGHLY_AVAILABLE, None);
        copy.spec.infra.as_mut().unwrap()["metadata"] = json!({"name": "cluster", "uid": "u"});
        assert_eq!((patch(&copy, single), control_plane(Some(&copy), single)), (None, HIGHLY_AVAILABLE));
        let mut bare = config("", None);
        bare.spec.infra = None;
        let infra = patch(&bare, single).unwrap()["spec"]["infra"].clone();
        assert_eq!(
            (&infra["kind"], &infra["status"][INFRASTRUCTURE_TOPOLOGY]),
            (&json!("Infrastructure"), &json!(SINGLE_REPLICA))
        );
        assert_eq!(control_plane(None, single), "", "nobody knows whose cluster it is");
    }
}
