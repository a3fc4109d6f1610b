//! Which changes cause a pool to be rendered again, and how many changes they count as.

use super::super::*;
use crate::fake_server::{answer, shared};
use api::v1::PoolConfiguration;
use serde_json::{Value, json};

fn pool(version: u32, configuration: &str) -> MachineConfigPool {
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker", "uid": "u", "resourceVersion": version.to_string()},
        "spec": {
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
            "configuration": {"name": configuration},
        },
    });
    serde_json::from_value(pool).unwrap()
}

fn config(name: &str, version: u32, owners: &Value) -> MachineConfig {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {
            "name": name, "uid": name, "resourceVersion": version.to_string(), "ownerReferences": owners,
            "labels": {"machineconfiguration.openshift.io/role": "worker"},
        },
        "spec": {},
    });
    serde_json::from_value(config).unwrap()
}

fn rendered(name: &str) -> MachineConfig {
    let owner = json!({"apiVersion": "v1", "kind": "MachineConfigPool", "name": "worker", "uid": "u", "controller": true});
    config(name, 1, &json!([owner]))
}

#[tokio::test]
async fn a_change_is_one_change_and_what_rendering_itself_writes_is_none() {
    let shared = shared(|_| answer(500, &json!({})));
    let marks = || shared.queues.of(Pass::Render).take_times().into_iter().collect::<Vec<_>>();
    let worker = |times| vec![("worker".to_owned(), times)];
    let store = &shared.stores.pools;
    let change = store.apply("worker".to_owned(), untrimmed(pool(1, "rendered-worker-a"))).unwrap();
    shared.changed(&Changed::Pool(&change));
    assert_eq!(marks(), worker(1), "a new pool");
    shared.config_answer(config("50-one", 1, &json!(null)));
    assert_eq!(marks(), worker(1), "a new MachineConfig");
    shared.config_answer(config("50-one", 2, &json!(null)));
    assert_eq!(marks(), worker(1), "a changed MachineConfig, selected before and after");

    shared.config_answer(rendered("rendered-worker-b"));
    assert_eq!(marks(), [], "the result is made");
    let named = PoolConfiguration { name: "rendered-worker-b".to_owned(), ..PoolConfiguration::default() };
    shared.own_writes.expect("worker", named);
    shared.pool_answer(pool(2, "rendered-worker-b"));
    assert_eq!(marks(), [], "and named");

    shared.pool_answer(pool(3, "rendered-worker-x"));
    assert_eq!(marks(), worker(1), "somebody else has it name another");
    shared.pool_answer(pool(4, "rendered-worker-b"));
    assert_eq!(marks(), [], "and is put back");
    shared.config_answer(rendered("rendered-worker-old"));
    for (name, want) in [("rendered-worker-old", vec![]), ("rendered-worker-b", worker(1))] {
        let change = shared.stores.configs.remove(name).unwrap();
        shared.changed(&Changed::Config(&change));
        assert_eq!(marks(), want, "{name} is gone");
    }
}

#[tokio::test]
async fn nothing_of_an_earlier_term_is_left_when_another_begins() {
    let shared = shared(|_| answer(500, &json!({})));
    let named = PoolConfiguration { name: "rendered-worker-b".to_owned(), ..PoolConfiguration::default() };
    shared.own_writes.expect("worker", named);
    let missed = client::CallError::Timeout { what: "node n".to_owned(), after: client::REQUEST_TIMEOUT };
    assert_eq!(shared.troubles.due_message("node n", &missed), None);
    assert!(shared.troubles.knows("node n"));
    for failures in [&shared.node_troubles, &shared.pool_troubles] {
        failures.due_message("n", &missed);
    }
    shared.changed(&Changed::TermBegins);
    assert!(shared.own_writes.is_empty(), "another leader may have named it something else");
    assert!(!shared.troubles.knows("node n"), "it has not failed for the time between");
    assert!(!shared.node_troubles.knows("n") && !shared.pool_troubles.knows("n"), "nor has this");
    assert!(matches!(
        shared.prerequisites.settings.check("worker"),
        crate::render_prerequisites::Prerequisite::Wait(_)
    ));
}

#[tokio::test]
async fn what_is_remembered_of_a_pool_goes_with_it() {
    let shared = shared(|_| answer(500, &json!({})));
    let named = PoolConfiguration { name: "rendered-worker-b".to_owned(), ..PoolConfiguration::default() };
    shared.own_writes.expect("worker", named);
    let missed = client::CallError::Timeout { what: "pool".to_owned(), after: client::REQUEST_TIMEOUT };
    shared.pool_troubles.due_message("worker", &missed);
    let there =
        shared.stores.pools.apply("worker".to_owned(), untrimmed(pool(1, "rendered-worker-a"))).unwrap();
    shared.changed(&Changed::Pool(&there));
    assert!(!shared.own_writes.is_empty() && shared.pool_troubles.knows("worker"));
    let gone = shared.stores.pools.remove("worker").unwrap();
    shared.changed(&Changed::Pool(&gone));
    assert!(shared.own_writes.is_empty() && !shared.pool_troubles.knows("worker"));
}

#[tokio::test]
async fn a_setting_closes_the_gate_and_another_change_leaves_it_open() {
    use crate::cache::settings::{IMAGE, STREAMS};
    let shared = shared(|_| answer(500, &json!({})));
    for (setting, closes) in [(IMAGE, true), (STREAMS, false)] {
        shared.prerequisites.settings.settle(shared.prerequisites.settings.count(), Default::default());
        shared.changed(&Changed::Setting(setting));
        let closed = matches!(
            shared.prerequisites.settings.check("worker"),
            crate::render_prerequisites::Prerequisite::Wait(_)
        );
        assert_eq!(closed, closes, "{}", setting.kind.name);
    }
}

#[tokio::test]
async fn only_the_last_node_of_a_wave_is_planned_at_once_and_only_when_it_is_done() {
    let shared = shared(|_| answer(500, &json!({})));
    shared.last_of_waves.lock().unwrap().insert("last".into());
    for (name, state, urgent) in
        [("last", "Done", true), ("last", "Working", false), ("other", "Done", false)]
    {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {
                "machineconfiguration.openshift.io/state": state,
                "machineconfiguration.openshift.io/currentConfig": "a",
                "machineconfiguration.openshift.io/desiredConfig": "a",
            }},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        let change = Change { name: name.to_owned(), old: None, new: Some(Arc::new(shared.view(&node))) };
        shared.changed(&Changed::Node(&change));
        assert_eq!(shared.queues.of(Pass::Node).take_urgent().len(), usize::from(urgent), "{name} {state}");
    }
}
