//! Which sets are a node's own.

use super::*;
use serde_json::{Value, json};

fn pool(name: &str, selects: &Value, configs: &[&str]) -> MachineConfigPool {
    let selector = json!({"matchExpressions": [{"key": "role", "operator": "In", "values": configs}]});
    let spec = json!({"nodeSelector": selects, "machineConfigSelector": selector});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn set(name: &str, role: &str) -> PinnedImageSet {
    let metadata = json!({"name": name, "generation": 3, "labels": {"role": role}});
    let image = json!({"name": format!("registry.example.com/{name}@sha256:1")});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"pinnedImages": [image]}})).unwrap()
}

fn node(labels: &Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap()
}

#[test]
fn a_node_has_the_sets_of_all_its_pools_once() {
    let role = |name: &str| json!({"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}});
    let pools = [
        pool("infra", &role("infra"), &["worker", "infra"]),
        pool("master", &role("master"), &["master"]),
        pool("worker", &role("worker"), &["worker"]),
    ];
    let sets = [set("a", "worker"), set("b", "infra"), set("c", "master")];
    let infra = json!({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/infra": ""});
    for (labels, want) in [
        (json!({"node-role.kubernetes.io/worker": ""}), &["a"][..]),
        (infra.clone(), &["a", "b"]),
        (json!({"node-role.kubernetes.io/master": ""}), &["c"]),
        (json!({"kubernetes.io/os": "windows", "node-role.kubernetes.io/worker": ""}), &[]),
    ] {
        let found = wanted(&node(&labels), &pools, rollout::Cluster::OpenShift, &sets).unwrap();
        let names: Vec<&str> = found.iter().map(|set| set.name.as_str()).collect();
        assert_eq!(names, want, "{labels}");
        assert!(found.iter().all(|set| set.generation == 3 && set.images.len() == 1));
    }
    // What cannot be told unpins nothing.
    let two = [pools[0].clone(), pool("other", &role("infra"), &["other"])];
    assert!(wanted(&node(&infra), &two, rollout::Cluster::OpenShift, &sets).is_err());
    let mut broken = pools;
    let operator = json!({"matchExpressions": [{"key": "role", "operator": "Like"}]});
    broken[2].spec.machine_config_selector = serde_json::from_value(operator).unwrap();
    let why = wanted(&node(&infra), &broken, rollout::Cluster::OpenShift, &sets).unwrap_err();
    assert!(why.contains("pool worker: spec.machineConfigSelector."), "{why}");
}

#[test]
fn only_what_is_read_wakes_the_node() {
    let (sender, mut seen) = watch::channel(None);
    let mut sets = BTreeMap::from([("a".to_owned(), set("a", "worker"))]);
    publish(&sender, &sets);
    assert!(seen.has_changed().unwrap());
    seen.borrow_and_update();
    sets.get_mut("a").unwrap().metadata.resource_version = Some("9".to_owned());
    publish(&sender, &sets);
    assert!(!seen.has_changed().unwrap());
    sets.insert("b".to_owned(), set("b", "worker"));
    publish(&sender, &sets);
    assert!(seen.has_changed().unwrap());
}
