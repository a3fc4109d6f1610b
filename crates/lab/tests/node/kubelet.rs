//! A node with a real kubelet and containerd: it is Ready, runs a pod, reboots, and runs the pod again.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use lab::{Kubelet, Lab, MachineState, Reporter};

const LIMIT: Duration = Duration::from_secs(120);

/// The pod's phase and how often its container was restarted, once both are known.
async fn wait_running(lab: &Lab, pods: &Api<Pod>, name: &str, restarts: i32) {
    let start = Instant::now();
    loop {
        let pod = pods.get(name).await.unwrap();
        let status = pod.status.unwrap_or_default();
        let container = status.container_statuses.iter().flatten().next();
        let ready = container.is_some_and(|one| one.ready && one.restart_count >= restarts);
        if ready && status.phase.as_deref() == Some("Running") {
            return;
        }
        if start.elapsed() > LIMIT {
            let log = lab.node(0).logs(lab::KUBELET_UNIT).await.unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(40).collect();
            panic!("{:?}\n{last:#?}", container.map(|one| &one.state));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_kubelet_runs_a_pod_before_and_after_a_reboot() {
    if !lab::require_root() {
        return;
    }
    let start = Instant::now();
    let lab = Lab::start()
        .nodes(1)
        .real()
        .kubelet(Kubelet::Real)
        .progress(Reporter::stderr())
        .start()
        .await
        .unwrap();
    eprintln!("Ready after {:?}", start.elapsed());
    let client = lab.client();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "sleeper"},
        "spec": {
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "c", "image": lab::PAUSE_IMAGE, "imagePullPolicy": "Never"}],
        },
    }))
    .unwrap();
    let limit = Instant::now() + LIMIT;
    // Creating a pod fails until the controller manager has created the service account.
    while let Err(error) = pods.create(&PostParams::default(), &pod).await {
        assert!(Instant::now() < limit, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    wait_running(&lab, &pods, "sleeper", 0).await;
    eprintln!("pod running after {:?}", start.elapsed());
    let node = lab.node(0);
    let processes = node.run(["ps", "-eo", "comm"]).await.unwrap();
    assert!(
        processes.contains("kubelet") && processes.contains("containerd-shim") && processes.contains("pause")
    );

    let machine = lab.real_node(0).unwrap().machine();
    let mut state = machine.watch();
    let reboot = Instant::now();
    node.run(["systemctl", "reboot"]).await.unwrap();
    let up = state.wait_for(|state| matches!(state, MachineState::Running { boot: 2, .. }));
    tokio::time::timeout(LIMIT, up).await.unwrap().unwrap();
    eprintln!("machine back after {:?}", reboot.elapsed());
    node.wait_ready(&client, LIMIT).await.unwrap();
    eprintln!("Ready again after {:?}", reboot.elapsed());
    wait_running(&lab, &pods, "sleeper", 1).await;
    eprintln!("pod running again after {:?}", reboot.elapsed());

    pods.delete("sleeper", &DeleteParams::default()).await.unwrap();
    let gone = Instant::now() + LIMIT;
    while pods.get_opt("sleeper").await.unwrap().is_some() {
        assert!(Instant::now() < gone, "the pod is not deleted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    lab.stop().await;
}
