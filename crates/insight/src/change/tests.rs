//! Tests of changes: when none of the nodes can apply one, and when a limit refuses it.

use super::*;
use crate::situation;
use serde_json::json;

#[test]
fn a_change_is_impossible_only_when_no_node_can_apply_it() {
    let never = || Outcome::Irreconcilable { irreconcilable: vec![] };
    let perhaps = || Outcome::Unknown { because: "it is not there".to_owned() };
    // Nodes in each config, whether the pool is empty, whether it is impossible, whether a plan refuses it.
    let rows = [
        (vec![(1, never())], false, true, true),
        (vec![(1, never()), (2, never())], false, true, true),
        (vec![(1, never()), (2, perhaps())], false, false, true),
        (vec![(0, never()), (2, perhaps())], false, false, false),
        (vec![(0, never())], false, false, false),
        (vec![(0, never())], true, false, true),
        (vec![], true, false, false),
    ];
    for (n, (costs, empty, impossible, refused)) in rows.into_iter().enumerate() {
        let cost = |(nodes, outcome)| Cost { from: String::new(), nodes, outcome };
        let change = PoolChange {
            pool: "worker".to_owned(),
            from: String::new(),
            to: String::new(),
            diff: String::new(),
            pulls: None,
            costs: costs.into_iter().map(cost).collect(),
            max_unavailable: 1,
            held: None,
            nodes: vec![],
            drains: vec![],
            policy: None,
            time: None,
            empty,
            warnings: vec![],
            on_trial: vec![],
        };
        assert_eq!((change.is_impossible(), change.is_refused(None)), (impossible, refused), "row {n}");
    }
}

#[test]
fn one_refusal_makes_an_unknown_outcome_refused() {
    let unknown = || Outcome::Unknown { because: "it is not there".to_owned() };
    let applied = |severity| Outcome::Applied { severity, disruption: Disruption::default() };
    let rows = [
        (unknown(), 1, Some(Severity::Reboot), true),
        (unknown(), 0, Some(Severity::Reboot), false),
        (applied(Severity::Drain), 1, Some(Severity::Reboot), false),
        (applied(Severity::Drain), 1, Some(Severity::Drain), true),
        (applied(Severity::Reboot), 1, None, false),
    ];
    for (n, (outcome, nodes, limit, refused)) in rows.into_iter().enumerate() {
        let change = PoolChange {
            pool: "worker".to_owned(),
            from: String::new(),
            to: String::new(),
            diff: String::new(),
            pulls: None,
            costs: vec![Cost { from: String::new(), nodes, outcome }],
            max_unavailable: 1,
            held: None,
            nodes: vec![],
            drains: vec![],
            policy: None,
            time: None,
            empty: false,
            warnings: vec![],
            on_trial: vec![],
        };
        assert_eq!(change.is_refused(limit), refused, "row {n}");
    }
}

#[test]
fn nodes_of_a_pool_whose_image_is_built_do_not_pull_the_base() {
    let config = |name: &str, image: &str| {
        let mut spec = api::v1::MachineConfigSpec { os_image_url: image.to_owned(), ..Default::default() };
        spec.config = Some(json!({"ignition": {"version": "3.5.0"}}));
        MachineConfig::new(name, spec)
    };
    let (from, to) = (config("rendered-worker-1", "q.io/os:1"), config("rendered-worker-2", "q.io/os:2"));
    let configs = BTreeMap::from([("rendered-worker-1".to_owned(), from)]);
    for (builds_for, pulls) in [(None, true), (Some("infra"), true), (Some("worker"), false)] {
        let pool = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker"}, "spec": {"configuration": {"name": "rendered-worker-1"}}});
        let os_config = |pool: &str| {
            json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
                "metadata": {"name": "os"}, "spec": {"machineConfigPool": {"name": pool}}})
        };
        let all = [pool].into_iter().chain(builds_for.map(os_config));
        let objects: Objects = all.map(|object| ("f".to_owned(), object)).collect();
        let then = situation(&objects).unwrap().with_target("worker", "rendered-worker-2");
        let (policy, now) = (disruption_policy(&objects).unwrap(), Time(jiff::Timestamp::UNIX_EPOCH));
        let view = ChangeView { configs: &configs, policy: &policy, now: &now, secrets: Secrets::Hide };
        let change = PoolChange::of(view, &then, "worker", "rendered-worker-1", &to).unwrap();
        assert_eq!(change.pulls.is_some(), pulls, "{builds_for:?}");
    }
}

#[test]
fn each_config_of_a_change_is_parsed_once_however_many_pools_start_from_it() {
    let config = |name: &str| {
        let file = json!({"path": format!("/etc/{name}"), "mode": 420, "contents": {"source": "data:,x"}});
        let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [file]}});
        let spec = api::v1::MachineConfigSpec { config: Some(config), ..Default::default() };
        MachineConfig::new(name, spec)
    };
    let pool = |name: &str| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": {"configuration": {"name": "old"}}})
    };
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1",
        "annotations": {"machineconfiguration.openshift.io/currentConfig": "old"}}});
    let objects: Objects =
        [pool("a"), pool("b"), node].into_iter().map(|object| ("f".to_owned(), object)).collect();
    let configs = BTreeMap::from([("old".to_owned(), config("old"))]);
    let after = ["a", "b"].map(|pool| (pool.to_owned(), config(&format!("new-{pool}"))));
    let (policy, now) = (disruption_policy(&objects).unwrap(), Time(jiff::Timestamp::UNIX_EPOCH));
    let view = ChangeView { configs: &configs, policy: &policy, now: &now, secrets: Secrets::Hide };
    let before = desired::parsed_entries();
    let plan = ChangePlan::of(view, &situation(&objects).unwrap(), &objects, &after.into(), vec![]).unwrap();
    assert_eq!((plan.pools.len(), desired::parsed_entries() - before), (2, 3));
}
