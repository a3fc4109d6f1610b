//! Nodes that really boot: up, entered, rebooted, cut off, switched on again, taken down without a trace.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lab::{Lab, MachineState, Reporter};

const LIMIT: Duration = Duration::from_secs(60);

/// What this computer has that a lab could leave behind.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    mounts: usize,
    interfaces: BTreeSet<String>,
    groups: usize,
}

fn traces() -> Traces {
    let list = |path: &str| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<BTreeSet<_>>()
    };
    Traces {
        mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
        interfaces: list("/sys/class/net"),
        groups: list("/sys/fs/cgroup/systemd").iter().filter(|name| name.starts_with("mco-lab-")).count(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_nodes_boot_reboot_lose_power_and_leave_no_trace() {
    if !lab::require_root() {
        return;
    }
    let before = traces();
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

    // A reboot: files stay, the boot id changes, the Node follows.
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

    // A power cut: off until it is switched on.
    machine.power_cut().await.unwrap();
    assert!(matches!(machine.state(), MachineState::Off { .. }));
    lab.kubelet(0).unwrap().settled().await.unwrap();
    assert!(node.wait_ready(&client, Duration::from_millis(500)).await.is_err());
    machine.power_on();
    node.wait_ready(&client, LIMIT).await.unwrap();
    assert_eq!(node.read_file("/etc/kept").await.unwrap(), "kept\n");

    let dir = lab.folder().path().to_owned();
    let down = Instant::now();
    lab.stop().await;
    eprintln!("down in {:?}", down.elapsed());
    assert!(!dir.exists());
    assert_eq!(traces(), before);
}

#[tokio::test]
async fn a_lab_that_contradicts_itself_says_what_to_change() {
    let error = Lab::start().nodes(1).kubelet(lab::Kubelet::Real).start().await.unwrap_err();
    assert!(error.to_string().contains(".real()"), "{error}");
    let error = Lab::start().controller(true).start().await.unwrap_err();
    assert!(error.to_string().contains(".mco_binary"), "{error}");
}
