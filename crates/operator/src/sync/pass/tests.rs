//! Tests of a pass: how long rollouts may take, when the controller counts as working, and whose machines may join.

use super::*;
use api::v1alpha1::MachineConfigOperator;

#[tokio::test(start_paused = true)]
async fn a_rollout_fails_after_its_time_and_another_one_has_a_time_of_its_own() {
    let mut waiting = Waiting::default();
    let mut look = |goal: &str| {
        let stop = Stop::Waiting("Deployment c: 0 of 2".to_owned());
        matches!(within_its_time(&mut waiting, Step::MachineConfigController, goal, stop), Stop::Failed(_))
    };
    assert!(!look("image 1"));
    tokio::time::advance(ROLLOUT + Duration::from_secs(1)).await;
    assert!(look("image 1"));
    assert!(!look("image 2"), "somebody has just corrected the image");
    tokio::time::advance(ROLLOUT + Duration::from_secs(1)).await;
    assert!(look("image 2"));
}

#[test]
fn each_pod_and_node_that_gets_there_begins_the_time_anew() {
    let of = |replicas: u64, set: u64, nodes: u64| {
        let pool = serde_json::json!({"metadata": {"name": "master",
                "labels": {api::names::label::REQUIRED_FOR_UPGRADE: ""}}, "status": {"updatedMachineCount": nodes}});
        let kept = vec![
            serde_json::json!({"kind": "Deployment", "status": {"updatedReplicas": replicas, "availableReplicas": set}}),
            serde_json::json!({"kind": "DaemonSet", "status": {"updatedNumberScheduled": set}}),
            serde_json::json!({"kind": "Role"}),
        ];
        let seen = ClusterState {
            pools: vec![serde_json::from_value(pool).unwrap()],
            kept,
            ..ClusterState::default()
        };
        goal(&PassResult { seen, ..PassResult::default() })
    };
    let before = of(1, 2, 3);
    assert_eq!(of(1, 2, 3), before);
    for (what, now) in [("replica", of(2, 2, 3)), ("agent", of(1, 3, 3)), ("node", of(1, 2, 4))] {
        assert_ne!(now, before, "{what}");
    }
}

#[test]
fn a_controller_works_where_a_pod_of_it_is_available() {
    let of = |name: &str, replicas: u64, available: Option<u64>| {
        let deployment = serde_json::json!({"kind": "Deployment", "metadata": {"name": name},
                "spec": {"replicas": replicas}, "status": {"availableReplicas": available}});
        controller(&ClusterState { kept: vec![deployment], ..ClusterState::default() })
    };
    assert!(of(CONTROLLER, 2, Some(1)));
    assert!(!of(CONTROLLER, 2, Some(0)));
    assert!(!of(CONTROLLER, 0, None), "somebody has scaled it to nothing");
    assert!(!of("other", 2, Some(2)), "somebody has deleted it");
}

#[test]
fn machines_join_unless_the_installation_is_somebody_elses() {
    let of = |spec: &str, outdated: bool| {
        let settings: MachineConfigOperator =
            api::yaml::from_str(&format!("spec: {{image: x, {spec}}}")).unwrap();
        let seen = ClusterState { settings: Some(settings), ..ClusterState::default() };
        // Wherever a pass has stopped.
        let stopped = Stopped { step: Step::Settings, stop: Stop::Failed("nonsense".to_owned()) };
        may_join(&PassResult { seen, outdated, stopped: Some(stopped), ..PassResult::default() })
    };
    assert!(of("pools: [Bad_Pool]", false));
    assert!(!of("pools: []", true), "a newer version keeps it");
    assert!(!of("managementState: Unmanaged", false));
    assert!(!of("configServer: {access: Everybody}", false), "there are no tokens");
    assert!(!may_join(&PassResult::default()));
}
