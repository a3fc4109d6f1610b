//! The objects of a simulated fleet: nodes in pools and zones, with the objects that a status shows. Pure, except for the time of
//! the pools' last change, which is a few minutes ago.
//!
//! What it is not: how they are served and changed (see `fleet_api`).

use api::names::own;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) const GROUP: &str = "machineconfiguration.openshift.io";
/// The pools among which nodes are distributed, and the zones.
pub(super) const POOLS: [&str; 4] = ["worker", "infra", "gpu", "edge"];
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// All objects of each resource, by name, as JSON with their resource versions.
pub(super) type Kinds = BTreeMap<&'static str, BTreeMap<String, Value>>;

/// The name of a rendered config of a pool.
pub(super) fn config_of(pool: &str, number: u8) -> String {
    format!("rendered-{pool}-{number:032x}")
}

fn node(name: &str, pool: &str, zone: &str, state: &str, configs: [&str; 2], why: &str) -> Value {
    let note = |key: &str| format!("{GROUP}/{key}");
    let role = format!("node-role.kubernetes.io/{pool}");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {role: "", "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": zone},
            "annotations": {
                note("currentConfig"): configs[0], note("desiredConfig"): configs[1],
                note("state"): state, note("reason"): why,
            },
        },
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Debian GNU/Linux 13 (trixie)", "kernelVersion": "6.12.0",
                "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "containerd://2.1", "kubeProxyVersion": "",
                "machineID": "", "operatingSystem": "linux", "systemUUID": ""},
        },
    })
}

/// The progress annotation of a node: it has its config, with the times of its last two updates.
fn progress(name: &str, number: usize, pool: &str, config: &str) -> Value {
    // The durations differ from node to node.
    let (drain, change, reboot) = (8 + number % 37, 5 + number % 11, 31 + number % 53);
    let update = |config: &str, began: &str| {
        let (applied, rebooted) = (drain + change, drain + change + reboot);
        json!({"config": config, "began": began, "drained": drain, "applied": applied, "rebooted": rebooted,
            "uncordoned": rebooted + 6, "done": rebooted + 7, "waited": ""})
    };
    let older = format!("2026-01-01T09:{:02}:00Z", number % 60);
    let newer = format!("2026-01-02T10:{:02}:00Z", number % 60);
    let updates = json!([update(&config_of(pool, 0), &older), update(config, &newer)]).to_string();
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigNode",
        "metadata": {"name": name, "uid": format!("{name}-progress"), "annotations": {own::UPDATES: updates}},
        "spec": {"node": {"name": name}, "pool": {"name": pool}, "configVersion": {"desired": config}},
        "status": {"configVersion": {"current": config, "desired": config}, "conditions": [
            {"type": "Updated", "status": "True", "reason": "Updated", "message": "", "lastTransitionTime": newer}]}})
}

/// Creates the objects of the fleet.
pub(super) fn fill(kinds: &mut Kinds, names: &[String], markup: &str) {
    let mut put = |resource: &'static str, mut object: Value| {
        object["metadata"]["resourceVersion"] = json!("1");
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        kinds.entry(resource).or_default().insert(name, object);
    };
    for (n, name) in names.iter().enumerate() {
        let (pool, zone) =
            (POOLS[n % POOLS.len()], format!("{}{markup}", ZONES[n / POOLS.len() % ZONES.len()]));
        let config = config_of(pool, 1);
        put("nodes", node(name, pool, &zone, "Done", [&config, &config], markup));
        put("machineconfignodes", progress(name, n, pool, &config));
    }
    let version = format!("{GROUP}/v1");
    let behind = (Timestamp::now() - SignedDuration::from_mins(3)).to_string();
    for pool in POOLS {
        let owner = json!([{"apiVersion": version, "kind": "MachineConfigPool", "name": pool, "uid": pool, "controller": true}]);
        for number in 1..=2_u8 {
            let source = format!("data:,{number}");
            put(
                "machineconfigs",
                json!({"apiVersion": version, "kind": "MachineConfig",
                "metadata": {"name": config_of(pool, number), "uid": config_of(pool, number), "ownerReferences": owner,
                    "creationTimestamp": format!("2026-01-0{number}T00:00:00Z")},
                "spec": {"osImageURL": "registry.example.com/os:1", "config": {"ignition": {"version": "3.4.0"}, "storage": {
                    "files": [{"path": "/etc/example", "mode": 420, "contents": {"source": source}}]}}}}),
            );
        }
        let (target, old) = (config_of(pool, 2), config_of(pool, 1));
        put(
            "machineconfigpools",
            json!({"apiVersion": version, "kind": "MachineConfigPool",
            "metadata": {"name": pool, "uid": pool, "generation": 1},
            "spec": {"configuration": {"name": target}, "maxUnavailable": "10%",
                "machineConfigSelector": {"matchLabels": {format!("{GROUP}/role"): pool}},
                "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{pool}"): ""}}},
            "status": {"observedGeneration": 1, "configuration": {"name": old}, "machineCount": names.len() / POOLS.len(),
                "conditions": [{"type": "Updating", "status": "True", "reason": "", "message": format!("all nodes {markup}"),
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}, {"type": "Updated", "status": "False", "reason": "", "message": "",
                    "lastTransitionTime": behind}]}}),
        );
    }
    put(
        "controllerconfigs",
        json!({"apiVersion": version, "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller", "uid": "c"}, "spec": {}, "status": {"observedGeneration": 1,
            "controllerCertificates": [{"subject": "CN=kube-apiserver", "signer": "CN=kubernetes",
                "bundleFile": "KubeAPIServerServingCAData", "notBefore": "2026-01-01T00:00:00Z", "notAfter": "2036-01-01T00:00:00Z"}]}}),
    );
    let said = |type_: &str, status: &str, message: &str| {
        json!({"type": type_, "status": status, "reason": "AsExpected", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    put(
        "machineconfigoperators",
        json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "cluster", "uid": "o"},
            "spec": {}, "status": {"conditions": [said("Available", "True", "everything runs"), said("Degraded", "False", "")]}}),
    );
    let pods = |kind: &str, name: &str, available: u32| {
        let counts = json!({"observedGeneration": 1, "availableReplicas": available, "updatedReplicas": 2,
            "desiredNumberScheduled": 2, "numberAvailable": available, "updatedNumberScheduled": 2});
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "uid": name, "generation": 1},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "mco", "image": format!("registry.example.com/mco:1{markup}")}]}}},
            "status": counts})
    };
    put("deployments", pods("Deployment", "machine-config-operator", 2));
    put("deployments", pods("Deployment", "machine-config-controller", 1));
    put("daemonsets", pods("DaemonSet", "machine-config-daemon", 2));
    let lease = |name: &str, renewed: &str| {
        let holder = format!("{name}-0{markup}");
        let counted = json!({"holder": holder, "since": "2026-01-01T00:00:00Z", "requests": 48_211, "refused": 0, "unanswered": 3,
            "passes": 9120, "failed": 2, "waiting": 4, "memory": 37 << 20});
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "uid": name, "annotations": {own::PROCESS_COUNTS: counted.to_string()}},
            "spec": {"holderIdentity": holder, "acquireTime": "2026-01-01T00:00:00.000000Z",
                "renewTime": renewed, "leaseDurationSeconds": 15}})
    };
    put("leases", lease("machine-config-operator", "2126-01-01T00:00:00.000000Z"));
    put("leases", lease("machine-config-controller", "2026-01-01T00:00:00.000000Z"));
    for empty in ["pods", "poddisruptionbudgets", "rolloutpolicies", "events", "secrets"] {
        kinds.entry(empty).or_default();
    }
}
