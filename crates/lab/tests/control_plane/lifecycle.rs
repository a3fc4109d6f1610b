//! The real control plane: started, used, stopped, restarted and removed, with nothing left behind.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use lab::{ControlPlane, ControlPlaneOptions, Environment, Folder, Programs, Reporter};

async fn start(options: &ControlPlaneOptions) -> ControlPlane {
    let environment = Environment::read();
    let folder = Arc::new(Folder::create(&environment).unwrap());
    let programs = Programs::new(&environment).unwrap();
    ControlPlane::start(folder, &programs, options, &Reporter::stderr()).await.unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn a_control_plane_serves_survives_an_outage_and_leaves_nothing_behind() {
    let before = Instant::now();
    let plane = start(&ControlPlaneOptions::default()).await;
    eprintln!("ready after {:?}", before.elapsed());
    let client = plane.client().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();

    // The controller manager works: it creates the default service account.
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let deadline = Instant::now() + std::time::Duration::from_secs(30);
    while accounts.get_opt("default").await.unwrap().is_none() {
        plane.check().unwrap();
        assert!(Instant::now() < deadline, "no default service account");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }

    plane.stop_api_server().await;
    assert!(maps.get("kept").await.is_err());
    plane.start_api_server().await.unwrap();
    assert_eq!(maps.get("kept").await.unwrap().metadata.name.as_deref(), Some("kept"));

    let (pids, dir) = (plane.pids(), plane.folder().path().to_owned());
    assert_eq!(pids.len(), 4);
    plane.stop().await;
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} still runs");
    }
    assert!(!dir.exists());
}

#[tokio::test]
async fn two_control_planes_run_side_by_side_and_a_small_one_has_two_programs() {
    let options =
        ControlPlaneOptions { controller_manager: false, scheduler: false, ..ControlPlaneOptions::default() };
    let (one, two) = tokio::join!(start(&options), start(&options));
    assert_eq!(one.pids().len(), 2);
    assert_ne!(one.server(), two.server());
    let namespaces: Api<Namespace> = Api::all(one.client().await.unwrap());
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some("only-here".to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let there: Api<Namespace> = Api::all(two.client().await.unwrap());
    assert!(there.get_opt("only-here").await.unwrap().is_none());

    // Another user has only the permissions of its groups.
    let nobody = one.identity("nobody", &[]).unwrap();
    let forbidden: Api<Namespace> = Api::all(lab::client(&nobody).await.unwrap());
    match forbidden.get_opt("only-here").await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 403),
        other => panic!("{other:?}"),
    }
    // Dropping a control plane without `stop` must work as well.
    let pids = [one.pids(), two.pids()].concat();
    drop((one, two));
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} still runs");
    }
}

#[tokio::test]
async fn fake_nodes_become_ready_reboot_and_run_pods() {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::api::DeleteParams;
    use lab::{FakeKubelet, FakePods, NodeSpec};

    let plane = lab::shared().await.unwrap();
    let client = plane.client().await.unwrap();
    let name = lab::unique_name("worker");
    let kubelet = Arc::new(FakeKubelet::start(client.clone(), NodeSpec::worker(&name)).await.unwrap());
    let nodes: Api<Node> = Api::all(client.clone());
    let boot = |node: &Node| node.status.clone().unwrap().node_info.unwrap().boot_id;
    let first = boot(&nodes.get(&name).await.unwrap());
    let second = kubelet.reboot(std::time::Duration::ZERO).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(boot(&nodes.get(&name).await.unwrap()), second);

    let pods = FakePods::start(client.clone());
    pods.add(Arc::clone(&kubelet));
    let api: Api<Pod> = Api::namespaced(client, "default");
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": name},
        "spec": {"nodeName": name, "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "x"}]},
    }))
    .unwrap();
    let deadline = Instant::now() + std::time::Duration::from_secs(30);
    // Creating a pod fails until the controller manager has created the service account.
    while let Err(error) = api.create(&PostParams::default(), &pod).await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    while api.get(&name).await.unwrap().status.unwrap().phase.as_deref() != Some("Running") {
        assert!(Instant::now() < deadline, "the pod does not run");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    while api.get_opt(&name).await.unwrap().is_some() {
        assert!(Instant::now() < deadline, "the pod is not deleted");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
