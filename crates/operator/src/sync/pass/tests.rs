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

/// A pod of the operator over an API server that answers each GET with this status. Also returns what it was asked to write.
fn pod_of(code: u16) -> (Syncer, Arc<std::sync::Mutex<Vec<String>>>) {
    let written = Arc::new(std::sync::Mutex::new(vec![]));
    let seen = written.clone();
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let seen = seen.clone();
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await.unwrap();
            let (code, answer) = match method == http::Method::GET {
                true => (code, serde_json::json!({"kind": "Status", "code": code, "metadata": {}})),
                false => {
                    seen.lock().unwrap().push(format!("{path} {}", String::from_utf8_lossy(&body)));
                    (200, serde_json::from_slice(&body).unwrap())
                }
            };
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    let options = Options { image: Some("mco:1".to_owned()), ..Options::default() };
    let metrics = Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default()));
    (Syncer::new(Client::new(serve, "default"), options, metrics), written)
}

/// An uninstall deletes the operator's Deployment first. Its pod sees that before the kubelet has ended it.
#[tokio::test]
async fn a_pod_whose_deployment_is_gone_does_not_make_it_again() {
    let wanted = CheckedSettings { image: "mco:1".to_owned(), ..Default::default() };
    let (gone, written) = pod_of(404);
    let mut passed = PassResult::default();
    match gone.own(plan::own, &wanted, &mut passed).await {
        Err(StepError::Stop(Stop::Failed(why))) => {
            assert!(why.contains("Deployment machine-config-operator is gone"), "{why}");
        }
        other => panic!("{:?}", other.map_err(|_| "another error")),
    }
    assert_eq!(*written.lock().unwrap(), [""; 0]);

    // It is there, without the label by which objects of an installation are found: it gets it.
    let (there, written) = pod_of(200);
    let ended = there.own(plan::own, &wanted, &mut PassResult::default()).await;
    assert!(ended.is_ok());
    let written = written.lock().unwrap();
    assert!(written.iter().any(|line| line.contains("/deployments/machine-config-operator ")), "{written:?}");
}

/// What was read is gone when it is written.
#[tokio::test]
async fn an_object_that_was_read_is_written_with_its_uid() {
    let wanted = CheckedSettings { image: "mco:1".to_owned(), ..Default::default() };
    let (syncer, written) = pod_of(404);
    let deployment = serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
        "name": "machine-config-operator", "namespace": api::names::NAMESPACE, "uid": "before"}});
    let seen = ClusterState { kept: vec![deployment], ..ClusterState::default() };
    let mut passed = PassResult { seen, ..PassResult::default() };
    let ended = syncer.own(plan::own, &wanted, &mut passed).await;
    assert!(ended.is_ok());
    let written = written.lock().unwrap();
    let bound = |line: &&String| line.contains("\"uid\":\"before\"");
    let all: Vec<&String> = written.iter().filter(bound).collect();
    assert!(all.len() == 1 && all[0].contains("/deployments/machine-config-operator "), "{written:?}");
}
