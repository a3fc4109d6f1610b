//! Nodes that really boot: started, entered, rebooted, disconnected, switched on again, and removed without a trace.

use crate::common;
use std::time::{Duration, Instant};

use lab::{Lab, MachineState, Reporter};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn real_nodes_boot_reboot_lose_power_and_leave_no_trace() {
    if !lab::require_root() {
        return;
    }
    let start = Instant::now();
    let lab = Lab::start()
        .nodes(2)
        .real()
        .controller_manager(false)
        .scheduler(false)
        .progress(Reporter::stderr())
        .start()
        .await
        .unwrap();
    eprintln!("two nodes after {:?}", start.elapsed());
    let client = lab.client();
    for node in lab.nodes() {
        node.wait_ready(&client, LIMIT).await.unwrap();
        assert_eq!(node.run(["hostname"]).await.unwrap().trim(), node.name());
        assert!(node.run(["id", "core"]).await.unwrap().contains("uid=1000"));
    }
    // The API server is reachable from a node, and the nodes from each other.
    let node = lab.node(0);
    let server = lab.control_plane().server();
    let probe = format!("exec 3<>/dev/tcp/{}/{}", server.ip(), server.port());
    assert_eq!(node.exec(["bash", "-c", &probe]).await.unwrap().code, 0);
    let first = node.boot_id().await.unwrap();

    // A reboot: files stay, the boot id changes, and the Node shows the new one.
    node.run(["sh", "-c", "echo kept > /etc/kept"]).await.unwrap();
    let rebooted = Instant::now();
    let machine = lab.real_node(0).unwrap().machine();
    let mut state = machine.watch();
    node.run(["systemctl", "reboot"]).await.unwrap();
    state.wait_for(|state| matches!(state, MachineState::Running { boot: 2, .. })).await.unwrap();
    node.wait_ready(&client, LIMIT).await.unwrap();
    eprintln!("rebooted in {:?}", rebooted.elapsed());
    let second = node.boot_id().await.unwrap();
    assert_ne!(first, second);
    assert_eq!(node.read_file("/etc/kept").await.unwrap(), "kept\n");

    // A power cut: the machine stays off until it is switched on.
    machine.power_cut().await.unwrap();
    assert!(matches!(machine.state(), MachineState::Off { .. }));
    lab.kubelet(0).unwrap().settled().await.unwrap();
    assert!(node.wait_ready(&client, Duration::from_millis(500)).await.is_err());
    machine.power_on();
    node.wait_ready(&client, LIMIT).await.unwrap();
    assert_eq!(node.read_file("/etc/kept").await.unwrap(), "kept\n");

    let dir = lab.folder().path().to_owned();
    let numbers = lab.bridge().unwrap().name().trim_start_matches("mcl").to_owned();
    let (link, mark) = (format!("mcl{numbers}"), format!("m{numbers}-"));
    let ours = |name: &str| name == link || name.contains(&mark);
    let up = common::traces(&dir, &ours);
    assert_eq!(up.interfaces.len(), 3);
    assert!(up.mounts.is_empty(), "a machine's mounts are to be in a namespace of its own: {up:?}");
    let down = Instant::now();
    lab.stop().await;
    eprintln!("down in {:?}", down.elapsed());
    assert!(!dir.exists());
    let after = common::traces(&dir, &ours);
    assert!(after.interfaces.is_empty() && after.groups.is_empty() && after.machines.is_empty(), "{after:?}");
    assert!(after.mounts.is_empty(), "{after:?}");
    assert_eq!(common::users(&dir), Vec::<String>::new());
}

#[tokio::test]
async fn a_lab_that_contradicts_itself_says_what_to_change() {
    let error = Lab::start().nodes(1).kubelet(lab::Kubelet::Real).start().await.unwrap_err();
    assert!(error.to_string().contains(".real()"), "{error}");
    let error = Lab::start().controller(true).start().await.unwrap_err();
    assert!(error.to_string().contains(".mco_binary"), "{error}");
}
