//! Tests of a pass: how long rollouts may take, when the controller counts as working, and whose machines may join.

use super::*;
use crate::sync::{progress, report, status};
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

/// Many may read the condition that says it.
#[test]
fn what_cannot_be_read_is_named_and_not_quoted() {
    let name = serde_json::json!({"name": CONTROLLER_CONFIG});
    let config = serde_json::json!({"metadata": name, "spec": {"releaseImage": {"hunter2": 1}}});
    let seen = ClusterState { config: Some(config), ..ClusterState::default() };
    let map = serde_json::json!({"metadata": {"name": "m"}, "data": {"ca": ["hunter2"]}});
    let misfit = api::formats::shape::read::<api::k8s::ConfigMap>(&map).unwrap_err();
    for (error, want) in [
        (
            config_of(&seen).unwrap_err(),
            "ControllerConfig machine-config-controller cannot be read: spec.releaseImage: expected a string, found an \
             object; correct it with kubectl edit controllerconfig machine-config-controller",
        ),
        (
            step_error::misshapen("ConfigMap m", &misfit),
            "ConfigMap m cannot be written: data.ca: expected a string, found a list; this is a bug, please report it",
        ),
    ] {
        let StepError::Stop(Stop::Failed(why)) = error else { panic!("{error:?}") };
        assert_eq!(why, want);
    }
}

#[test]
fn machines_join_unless_the_installation_is_somebody_elses() {
    let of = |spec: &str, outdated: bool| {
        let settings: MachineConfigOperator =
            api::formats::yaml::from_str(&format!("spec: {{image: x, {spec}}}")).unwrap();
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

/// What an API server answers to a request, by its method and path: a code and an object. `None`: the next one decides.
pub(in crate::sync) type Answers = Box<dyn Fn(&http::Method, &str) -> Option<(u16, Value)> + Send + Sync>;

/// A pod of the operator over an API server that answers as `answers` says, else each GET with this status, and everything else with
/// what was sent. Also returns what it was asked to write.
pub(in crate::sync) fn pod_with(code: u16, answers: Answers) -> (Syncer, Arc<std::sync::Mutex<Vec<String>>>) {
    let written = Arc::new(std::sync::Mutex::new(vec![]));
    let (seen, answers) = (written.clone(), Arc::new(answers));
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (seen, answers) = (seen.clone(), answers.clone());
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await.unwrap();
            let is_read = method == http::Method::GET;
            if !is_read {
                seen.lock().unwrap().push(format!("{path} {}", String::from_utf8_lossy(&body)));
            }
            let (code, answer) = match answers(&method, &path) {
                Some(answer) => answer,
                None if is_read => (
                    code,
                    serde_json::json!({"kind": "Status", "code": code, "reason": "NotFound", "metadata": {}}),
                ),
                None => (200, serde_json::from_slice(&body).unwrap()),
            };
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    let options = Options { image: Some("mco:1".to_owned()), ..Options::default() };
    let metrics = Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default()));
    (Syncer::new(Client::new(serve, "default"), options, metrics), written)
}

/// The same without other answers.
fn pod_of(code: u16) -> (Syncer, Arc<std::sync::Mutex<Vec<String>>>) {
    pod_with(code, Box::new(|_, _| None))
}

/// An uninstall deletes the operator's Deployment first. Its pod sees that before the kubelet has ended it. A machine that boots
/// meanwhile is not let in, also where the pass cannot read everything, or the settings are not valid.
#[tokio::test]
async fn a_pod_whose_deployment_is_gone_writes_nothing_but_that() {
    let now = k8s_openapi::jiff::Timestamp::now();
    let (csr, token) =
        (serde_json::json!(joining::tests::named(1)), serde_json::json!(joining::tests::token(1, now)));
    let settings = |pools: &str| {
        serde_json::json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator",
            "metadata": {"name": "cluster", "generation": 1}, "spec": {"image": "mco:1", "pools": [pools]}})
    };
    for (there, definitions, pools) in [
        (true, 200, "worker"),
        (true, 403, "worker"),
        (true, 200, "Bad_Pool"),
        (false, 200, "worker"),
        (false, 403, "worker"),
        (false, 200, "Bad_Pool"),
    ] {
        let (csr, token, settings) = (csr.clone(), token.clone(), settings(pools));
        let answers = move |method: &http::Method, path: &str| {
            let list = |items: &[&Value]| Some((200, serde_json::json!({"metadata": {}, "items": items})));
            let (_, last) = path.rsplit_once('/').unwrap();
            match last {
                "cluster" if path.contains("machineconfigoperators") => Some((200, settings.clone())),
                "machine-config-operator"
                    if path.contains("/deployments/") && method == http::Method::GET =>
                {
                    there.then(|| (200, serde_json::json!({"metadata": {"name": last}})))
                }
                "customresourcedefinitions" if definitions == 200 => list(&[]),
                "customresourcedefinitions" => Some((
                    definitions,
                    serde_json::json!({"kind": "Status", "status": "Failure", "code": definitions}),
                )),
                "certificatesigningrequests" => list(&[&csr]),
                "secrets" => list(&[&token]),
                _ => None,
            }
        };
        let (mut syncer, written) = pod_with(404, Box::new(answers));
        let passed = syncer.pass(None).await.unwrap();
        report::report(&syncer.client, &syncer.metrics, &passed).await;
        let written = written.lock().unwrap();
        let about = format!("{there} {definitions} {pools}: {:?} {written:?}", passed.stopped);
        assert_eq!(passed.removed, !there, "{about}");
        assert_eq!(written.iter().any(|line| line.contains("/csr-1/approval ")), there, "{about}");
        let is_status = |line: &String| {
            line.starts_with("/apis/machineconfig.dev/v1alpha1/machineconfigoperators/cluster/status ")
        };
        assert!(written.iter().any(is_status), "{about}");
        assert_eq!(written.iter().all(is_status), !there, "{about}");
        match passed.stopped {
            Some(Stopped { step: Step::MachineConfigOperator, stop: Stop::Failed(why) }) if !there => {
                assert!(why.contains("Deployment machine-config-operator is gone"), "{why}");
            }
            Some(Stopped { step: Step::Read, .. }) => assert_eq!(definitions, 403, "{about}"),
            _ => assert!(there, "{about}"),
        }
    }
}

/// It is there, without the label by which objects of an installation are found: it gets it.
#[tokio::test]
async fn a_deployment_that_was_applied_by_hand_gets_its_label() {
    let wanted = CheckedSettings { image: "mco:1".to_owned(), ..Default::default() };
    let (there, written) = pod_of(200);
    let ended = there.own(plan::own, &wanted, &mut PassResult::default()).await;
    assert!(ended.is_ok());
    let written = written.lock().unwrap();
    assert!(written.iter().any(|line| line.contains("/deployments/machine-config-operator ")), "{written:?}");
}

/// A webhook chooses the code of its denial itself. It is not taken for a race, about which nobody is told.
#[tokio::test]
async fn a_webhook_that_denies_with_a_conflict_is_reported() {
    let wanted = CheckedSettings { image: "mco:1".to_owned(), ..Default::default() };
    let denied = "admission webhook \"w\" denied the request: not today";
    for (said, want) in [(denied, Some(denied)), ("the object has been modified", None)] {
        let answers = move |method: &http::Method, _: &str| {
            let status = serde_json::json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": said});
            (method != http::Method::GET).then_some((409, status))
        };
        let (syncer, _) = pod_with(404, Box::new(answers));
        match (syncer.objects(plan::own, &wanted, &mut PassResult::default()).await, want) {
            (Err(StepError::Conflict), None) => {}
            (Err(StepError::Stop(Stop::Failed(why))), Some(want)) => {
                assert!(why.contains(want) && why.contains("remove what refuses it"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Whatever else has failed comes first, and gives the reason.
#[tokio::test]
async fn a_watch_that_does_not_work_is_reported() {
    const WATCH: &str = "the watch of x does not work: no";
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let settings = |spec: &str| {
        serde_json::json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator",
            "metadata": {"name": "cluster"}, "spec": json(spec)})
    };
    let (invalid, unmanaged) = (
        r#"{"image": "mco:1", "pools": ["Bad_Pool"]}"#,
        r#"{"image": "mco:1", "managementState": "Unmanaged"}"#,
    );
    // Columns: whether the pod has got an image; the settings; whether the operator's Deployment is there; the step that is
    // reported; whether the watch is.
    for (image, spec, there, step, is_told) in [
        // There is no ControllerConfig.
        (false, None, true, Some(Step::Certificates), true),
        (true, None, true, Some(Step::Settings), true),
        (true, Some(invalid), true, Some(Step::Settings), true),
        // Nothing is changed, so nothing is late.
        (true, Some(unmanaged), true, None, false),
        (true, Some(invalid), false, Some(Step::MachineConfigOperator), false),
    ] {
        let spec = spec.map(settings);
        let answers = move |_: &http::Method, path: &str| match path.rsplit_once('/').unwrap().1 {
            "customresourcedefinitions" => Some((200, serde_json::json!({"metadata": {}, "items": []}))),
            "cluster" if path.contains("machineconfigoperators") => spec.clone().map(|spec| (200, spec)),
            "machine-config-operator" if there => {
                Some((200, serde_json::json!({"metadata": {"name": "machine-config-operator"}})))
            }
            _ => None,
        };
        let (mut syncer, _) = pod_with(404, Box::new(answers));
        if !image {
            syncer.options.image = None;
        }
        let stopped = syncer.pass(Some(WATCH.to_owned())).await.unwrap().stopped;
        assert_eq!(stopped.as_ref().map(|stopped| stopped.step), step, "{stopped:?}");
        let why = match &stopped {
            Some(Stopped { stop: Stop::Failed(why), .. }) => why.as_str(),
            _ => "",
        };
        assert_eq!(why.contains(WATCH), is_told, "{stopped:?}");
        assert!(!why.starts_with(WATCH), "{stopped:?}");
    }
}

/// What refuses a certificate is in the condition, with the remedy, whatever else has failed. Anything else is only tried again.
#[tokio::test]
async fn machines_that_join_and_wait_are_reported() {
    let now = k8s_openapi::jiff::Timestamp::now();
    let (csr, token) =
        (serde_json::json!(joining::tests::named(1)), serde_json::json!(joining::tests::token(1, now)));
    let right = "certificatesigningrequests.certificates.k8s.io \"csr-1\" is forbidden: User \"u\" cannot patch resource \
                 \"certificatesigningrequests/approval\" in API group \"certificates.k8s.io\" at the cluster scope";
    let denied = "admission webhook \"w\" denied the request: not today";
    for (code, said, want) in [
        (403, right, Some("mco install")),
        (403, denied, Some("remove what refuses it")),
        // It is tried again, or there is nothing to do any more.
        (409, "the object has been modified", None),
        (429, "too many requests", None),
        (503, "busy", None),
        (404, "gone", None),
    ] {
        let (csr, token) = (csr.clone(), token.clone());
        let answers = move |_: &http::Method, path: &str| {
            let list = |items: &[&Value]| Some((200, serde_json::json!({"metadata": {}, "items": items})));
            match path.rsplit_once('/').unwrap().1 {
                "cluster" if path.contains("machineconfigoperators") => Some((
                    200,
                    serde_json::json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator",
                        "metadata": {"name": "cluster"}, "spec": {"image": "mco:1", "pools": ["Bad_Pool"]}}),
                )),
                "machine-config-operator" => {
                    Some((200, serde_json::json!({"metadata": {"name": "machine-config-operator"}})))
                }
                "customresourcedefinitions" => list(&[]),
                "certificatesigningrequests" => list(&[&csr]),
                "secrets" => list(&[&token]),
                "approval" => Some((
                    code,
                    serde_json::json!({"kind": "Status", "status": "Failure", "code": code, "message": said}),
                )),
                _ => None,
            }
        };
        let (mut syncer, _) = pod_with(404, Box::new(answers));
        for round in 0..2 {
            let passed = syncer.pass(None).await.unwrap();
            let Some(Stopped { step: Step::Settings, stop: Stop::Failed(why) }) = &passed.stopped else {
                panic!("{said}: {:?}", passed.stopped)
            };
            assert_eq!(passed.joining_failed, code != 404, "{said}, {round}: it is tried again");
            let about = "; also: machines that join wait: approve CertificateSigningRequest csr-1: ";
            assert_eq!(why.contains(about), want.is_some(), "{said}, {round}: {why}");
            assert!(why.contains(want.unwrap_or_default()), "{said}, {round}: {why}");
            // What the log has said, so that it is not said again.
            assert_eq!(syncer.joining.is_some(), ![404, 409].contains(&code), "{said}, {round}");
        }
    }
}

/// Of three nodes, one has a new pod, one an old one, and one is off: its pod takes the whole budget of the DaemonSet.
#[tokio::test]
async fn a_node_that_is_down_ends_no_rollout_and_is_named() {
    let pod = |node: &str, ready: &str, end: Option<&str>| {
        serde_json::json!({"metadata": {"name": node, "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": end},
            "spec": {"nodeName": node}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    };
    // Its grace period is not over.
    let end = Some("2999-01-01T00:00:00Z");
    let pods = [pod("a", "True", None), pod("b", "True", None), pod("c", "False", end)];
    let set = serde_json::json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "machine-config-server", "namespace": api::names::NAMESPACE, "generation": 2},
        "spec": {"selector": {"matchLabels": {"k8s-app": "machine-config-server"}}},
        "status": {"observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 1, "numberAvailable": 2}});
    let kept = vec![set.clone()];
    let answers = move |method: &http::Method, path: &str| match path.rsplit_once('/').unwrap().1 {
        "pods" => Some((200, serde_json::json!({"metadata": {}, "items": pods}))),
        "c" => Some((
            200,
            serde_json::json!({"metadata": {"name": "c"}, "status": {"conditions": [
                {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
        )),
        "machine-config-server" if path.contains("/daemonsets/") && method != http::Method::GET => {
            Some((200, set.clone()))
        }
        _ => None,
    };
    let (syncer, written) = pod_with(404, Box::new(answers));
    let mut config = crate::controller_config_values::unknown();
    config.spec.infra.as_mut().unwrap()["status"]["apiServerInternalURI"] = "https://api:6443".into();
    let down = cluster::down_nodes(&syncer.client, &kept).await.unwrap();
    let seen =
        ClusterState { kept, down, config: Some(serde_json::json!(config)), ..ClusterState::default() };
    let mut passed = PassResult { seen, ..PassResult::default() };
    let wanted = CheckedSettings { image: "mco:1".to_owned(), ..Default::default() };
    let ended = syncer.objects(plan::server, &wanted, &mut passed).await;
    let Err(StepError::Stop(Stop::Waiting(what))) = ended else { panic!("{ended:?}") };
    assert!(what.contains("1 of 2 pods are of this version"), "{what}");
    assert!(what.ends_with("; nodes that are down: c"), "{what}");
    let written = written.lock().unwrap();
    let to_set = written.iter().find(|line| line.contains("/daemonsets/machine-config-server ")).unwrap();
    assert!(to_set.contains("\"maxUnavailable\":2"), "{to_set}");
}

/// Somebody's CA ends in ten days: everything is installed nevertheless, and it is said.
#[tokio::test]
async fn a_ca_of_somebody_else_that_ends_soon_holds_up_nothing() {
    let days = k8s_openapi::jiff::SignedDuration::from_hours(24 * 10);
    let ca = crate::certificates::tests::theirs_until(k8s_openapi::jiff::Timestamp::now() + days);
    let answers = move |method: &http::Method, path: &str| match path.rsplit_once('/').unwrap() {
        (before, "machine-config-server-ca")
            if before.ends_with("/secrets") && method == http::Method::GET =>
        {
            Some((200, serde_json::json!(ca)))
        }
        _ => None,
    };
    let (mut syncer, _) = pod_with(404, Box::new(answers));
    let mut config = crate::controller_config_values::unknown();
    config.spec.infra.as_mut().unwrap()["status"]["apiServerInternalURI"] = "https://api:6443".into();
    let seen = ClusterState { config: Some(serde_json::json!(config)), ..ClusterState::default() };
    let mut passed = PassResult { seen, ..PassResult::default() };
    let descriptor = STEPS.iter().find(|d| d.step == Step::Certificates).unwrap();
    let ended = syncer.step(descriptor, None, &mut passed).await;
    let Err(StepError::Noted(step, why)) = ended else { panic!("{ended:?}") };
    assert!(why.contains("machine-config-server-ca is not the operator's, and ends at"), "{why}");
    let mut failures = PassFailures::default();
    failures.remember(step, why);
    let complete = failures.is_empty();
    let stopped = failures.reported();
    let facts = status::Facts {
        version: VERSION_RAW,
        image: "mco:1",
        release: None,
        generation: None,
        unmanaged: false,
        stopped: stopped.as_ref(),
        complete,
        controller: Some(true),
        pools: &[],
        interrupted: &[],
        kubelets: None,
        stored: &[],
        boot_images: None,
        evaluation: &[],
        not_looked_for: &[],
    };
    let now = api::k8s::Time(k8s_openapi::jiff::Timestamp::now());
    // It is a new installation.
    let after = status::after(&api::v1alpha1::MachineConfigOperatorStatus::default(), &facts, &now);
    let operator = after.versions.iter().find(|v| v.name == status::OPERATOR);
    assert_eq!(operator.map(|v| v.version.as_str()), Some(VERSION_RAW));
    let mut settings =
        MachineConfigOperator::new("cluster", api::v1alpha1::MachineConfigOperatorSpec::default());
    settings.status = Some(after);
    let found = progress::progress_of(Some(&settings), &[]);
    assert!(
        matches!(&found, progress::Progress::Done(words) if words.contains("; CaLifetimeFailed: the CA in Secret ")),
        "{found:?}"
    );
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
