//! Changes that cut their own node off, on machines that boot: the node itself undoes each, with a reboot where it needs one,
//! and reports what failed. Each change has its own machine, and all run at the same time.

use std::time::{Duration, Instant};

use crate::networkd;
use crate::product::{Cluster, disruption_policies, machine_config, note, with_controller};
use lab::{DAEMON_UNIT, Kubelet, NodeHandle, RECOVER_UNIT};
use serde_json::{Value, json};

/// The time in which a change must be confirmed, for changes that are: enough for the boot of a busy machine.
const CONFIRMED_WITHIN: &str = "within=5m";
/// The same for changes that fail in the last check of the trial.
const WITHIN: &str = "within=60s";
/// The same for changes that are never confirmed. The lab considers a machine broken if it is not up after a minute and a half,
/// and a machine in a rescue shell never is.
const NEVER_WITHIN: &str = "within=30s";
/// The time limit for a change, its trial, its undo, and the reboots between them, on a busy machine.
const LIMIT: Duration = Duration::from_secs(420);
/// The unit that watches a trial.
const TRIAL_UNIT: &str = "machine-config-daemon-trial.service";
/// A fake kubelet that refuses one of its settings.
const FAKE_KUBELET: &str = "[Unit]\nDescription=Fake kubelet\n\n[Service]\n\
    ExecStart=/bin/sh -c '! grep -qs refuse /etc/kubernetes/fake.yaml || exit 1; exec sleep infinity'\n\
    Restart=always\nRestartSec=1\n[Install]\nWantedBy=multi-user.target\n";
/// A firewall that is loaded when its unit starts.
const FIREWALL: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/usr/sbin/iptables-restore /etc/iptables/rules.v4\n[Install]\nWantedBy=multi-user.target\n";
/// At each boot, stops everything that a rescue shell does not need, including the agent, the kubelet and D-Bus.
const RESCUE: &str = "[Unit]\nAfter=kubelet.service machine-config-daemon.service machine-config-daemon-recover.service\n[Service]\nType=oneshot\n\
    ExecStart=/bin/systemctl --no-block isolate rescue.target\n[Install]\nWantedBy=multi-user.target\n";
/// Takes the network interface down as soon as the machine has brought it up.
const NO_NETWORK: &str = "[Service]\nExecStartPost=/bin/ip link set host0 down\n";

fn file(path: &str, text: &str) -> Value {
    use base64::Engine as _;
    let source = format!("data:;base64,{}", base64::engine::general_purpose::STANDARD.encode(text));
    json!({"path": path, "contents": {"source": source}})
}

/// A file for networkd about the machine's interface.
fn network_file(address: &str, more: &str) -> String {
    format!("[Match]\nName=host0\n[Network]\nLinkLocalAddressing=no\nAddress={address}\n{more}")
}

fn rules(drop: &str) -> String {
    format!("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{drop}COMMIT\n")
}

/// Creates a pool of this node alone, whose changes are on trial for this time.
async fn mk_pool(cluster: &Cluster, pool: &str, node: &str, within: &str) {
    cluster.add_pool(pool, &[node]).await;
    set_within(cluster, pool, node, within).await;
    cluster.settled(pool, 1, &["00-worker"], &[]).await;
}

/// Sets how long a pool's changes are on trial.
async fn set_within(cluster: &Cluster, pool: &str, node: &str, within: &str) {
    let trial = json!({"metadata": {"annotations": {"machineconfiguration.openshift.io/trial": within}}});
    cluster.patch("MachineConfigPool", pool, trial).await;
    cluster
        .wait("the node has its pool's settings", async || {
            (note(&cluster.get("Node", node).await, "trial") == within).then_some(())
        })
        .await;
}

/// Waits until the node is Degraded because it went back, and returns the reason.
async fn went_back(cluster: &Cluster, node: &str, begun: Instant) -> String {
    loop {
        let object = cluster.get("Node", node).await;
        let reason = note(&object, "reason");
        if note(&object, "state") == "Degraded" && reason.contains("went back") {
            println!("{node}: back after {:?}: {reason}", begun.elapsed());
            assert_ne!(note(&object, "currentConfig"), note(&object, "desiredConfig"), "{node}");
            return reason;
        }
        assert!(
            begun.elapsed() < LIMIT,
            "{node} is not back: {}\n{}",
            object["metadata"]["annotations"],
            log(&handle(cluster, node)).await
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn handle(cluster: &Cluster, node: &str) -> NodeHandle {
    cluster.lab.nodes().into_iter().find(|n| n.name() == node).unwrap()
}

/// The end of the machine's log, and the agent's journal.
async fn log(node: &NodeHandle) -> String {
    let log = node.run(["journalctl", "--no-pager", "-n", "80"]).await.unwrap_or_else(|e| e.to_string());
    let journal = node
        .run([
            "sh",
            "-c",
            "head -c 2000 /var/lib/machine-config-daemon/journal/*.json; ls /var/lib/machine-config-daemon/",
        ])
        .await;
    format!("{log}\n{}", journal.unwrap_or_else(|e| e.to_string()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_cuts_its_node_off_is_undone_by_the_node_and_reported() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(6).real().node_service("kubelet.service", FAKE_KUBELET);
    let cluster = Cluster::start(builder).await;
    for (pool, node, within) in [
        ("net", "worker-0", NEVER_WITHIN),
        ("wall", "worker-1", CONFIRMED_WITHIN),
        ("rescue", "worker-2", NEVER_WITHIN),
        ("kubelet", "worker-3", WITHIN),
        ("networkd", "worker-5", WITHIN),
    ] {
        mk_pool(&cluster, pool, node, within).await;
    }
    // The node on which a person tries configs must have no update of its own under way.
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    // A change of the firewall takes effect at once, and so does its undo.
    let restart = json!({"type": "Restart", "restart": {"serviceName": "netfilter-persistent.service"}});
    cluster
        .create(disruption_policies(json!([
            {"path": "/etc/iptables/rules.v4", "actions": [restart]},
        ])))
        .await;
    // The first change of the firewall works, and is confirmed.
    let wall = |text: &str| {
        let unit = json!({"name": "netfilter-persistent.service", "contents": FIREWALL, "enabled": true});
        json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file("/etc/iptables/rules.v4", text)]}, "systemd": {"units": [unit]}})
    };
    cluster.create(machine_config("50-wall", "wall", wall(&rules("")))).await;
    cluster.settled("wall", 1, &["50-wall"], &[]).await;
    let (net, walled, kubelet) =
        (handle(&cluster, "worker-0"), handle(&cluster, "worker-1"), handle(&cluster, "worker-3"));
    assert!(journal_is_empty(&walled).await);
    set_within(&cluster, "wall", "worker-1", WITHIN).await;
    let wall_boot = walled.boot_id().await.unwrap();
    let networked = handle(&cluster, "worker-5");
    let (networkd_boot, addresses) = by_networkd(&cluster, &networked).await;
    let begun = Instant::now();
    let network = json!({
        "ignition": {"version": "3.4.0"},
        "systemd": {"units": [
            {"name": "lab-network.service", "enabled": true, "dropins": [{"name": "10-down.conf", "contents": NO_NETWORK}]},
        ]},
    });
    cluster.create(machine_config("60-net", "net", network)).await;
    let server = cluster.lab.control_plane().server();
    let dropped = format!("-A OUTPUT -p tcp -d {} --dport {} -j DROP\n", server.ip(), server.port());
    let patch = json!({"spec": {"config": wall(&rules(&dropped))}});
    cluster.patch("MachineConfig", "50-wall", patch).await;
    let rescue = json!({"ignition": {"version": "3.4.0"}, "systemd": {"units": [{"name": "quiet.service", "contents": RESCUE, "enabled": true}]}});
    cluster.create(machine_config("60-rescue", "rescue", rescue)).await;
    let refused = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file("/etc/kubernetes/fake.yaml", "refuse: true\n")]}});
    cluster.create(machine_config("60-kubelet", "kubelet", refused)).await;

    // A file that sorts before the host's own gives the interface an address of another network.
    let lost = file("/etc/systemd/network/10-lost.network", &network_file("192.0.2.1/24", ""));
    let lost = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [lost]}});
    cluster.create(machine_config("60-networkd", "networkd", lost)).await;

    // The power is cut during the kubelet's trial: the trial continues after the boot, with the rest of its time.
    let machine = cluster.lab.real_node(3).unwrap().machine();
    let clock =
        cluster.lab.folder().join("nodes/worker-3/upper/var/lib/machine-config-daemon/journal/trial.json");
    while !clock.exists() {
        assert!(begun.elapsed() < LIMIT, "no trial begins: {}", log(&kubelet).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    machine.power_cut().await.unwrap();
    let undo = clock.with_file_name("undo.data");
    assert!(undo.exists() && clock.with_file_name("done.json").exists(), "the undo is not kept");
    machine.power_on();

    let tried = handle(&cluster, "worker-4");
    let (net_says, wall_says, rescue_says, kubelet_says, networkd_says, ()) = tokio::join!(
        went_back(&cluster, "worker-0", begun),
        went_back(&cluster, "worker-1", begun),
        went_back(&cluster, "worker-2", begun),
        went_back(&cluster, "worker-3", begun),
        went_back(&cluster, "worker-5", begun),
        by_hand(&tried),
    );
    assert!(net_says.contains("no new connection to"), "{net_says}");
    assert!(wall_says.contains("no new connection to"), "{wall_says}");
    assert!(networkd_says.contains("no new connection to"), "{networkd_says}");
    // The agent was stopped with everything else, so the host's own trial unit decided.
    let by_the_watch = [
        "the agent did not confirm it within 30 s",
        "kubelet.service ran before the change and was inactive",
    ];
    assert!(by_the_watch.iter().any(|words| rescue_says.contains(words)), "{rescue_says}");
    assert!(kubelet_says.contains("kubelet.service ran before the change"), "{kubelet_says}");
    assert!(kubelet_says.contains("mco retry"), "{kubelet_says}");

    // Each host is as it was before, and the undo cost what the change did.
    assert!(net.read_file("/etc/systemd/system/lab-network.service.d/10-down.conf").await.is_err());
    assert_eq!(walled.read_file("/etc/iptables/rules.v4").await.unwrap(), rules(""));
    assert_eq!(walled.boot_id().await.unwrap(), wall_boot, "the firewall's undo needs no reboot");
    assert_eq!(networked.boot_id().await.unwrap(), networkd_boot, "nor does that of a network's file");
    assert_eq!(networked.run(ADDRESSES).await.unwrap(), addresses);
    assert!(handle(&cluster, "worker-2").read_file("/etc/systemd/system/quiet.service").await.is_err());
    assert!(kubelet.read_file("/etc/kubernetes/fake.yaml").await.is_err());
    assert_eq!(kubelet.run(["systemctl", "is-active", "kubelet.service"]).await.unwrap().trim(), "active");
    for node in [&net, &walled, &kubelet, &networked] {
        assert!(journal_is_empty(node).await, "{}", node.name());
    }
    let recovered = kubelet.logs(RECOVER_UNIT).await.unwrap();
    assert!(recovered.contains("on trial: "), "{recovered}");
    assert_eq!(recovered.matches("undone: ").count(), 0, "{recovered}");

    // The node stays as it is until its config changes, and then takes the new one.
    set_within(&cluster, "kubelet", "worker-3", CONFIRMED_WITHIN).await;
    let better = json!({"spec": {"config": {"storage": {"files": [file("/etc/kubernetes/fake.yaml", "accept: true\n")]}}}});
    cluster.patch("MachineConfigPool", "kubelet", json!({"spec": {"maxUnavailable": 2}})).await;
    cluster.patch("MachineConfig", "60-kubelet", better).await;
    cluster.settled("kubelet", 1, &["60-kubelet"], &[]).await;
    println!("all of it in {:?}", begun.elapsed());
    cluster.no_panic();
    cluster.stop().await;
}

/// The addresses of a machine's interface.
const ADDRESSES: [&str; 6] = ["ip", "-4", "-br", "address", "show", "host0"];

/// Lets networkd manage a machine's network, in a pool whose changes reboot only where necessary. Returns its boot id and
/// addresses.
async fn by_networkd(cluster: &Cluster, node: &NodeHandle) -> (String, String) {
    let when_needed = json!({"metadata": {"annotations": {"machineconfig.dev/reboots": "WhenNeeded"}}});
    cluster.patch("MachineConfigPool", "networkd", when_needed).await;
    let addresses = node.run(ADDRESSES).await.unwrap();
    let address = addresses.split_whitespace().find(|word| word.contains('/')).unwrap();
    let route = node.run(["ip", "route", "show", "default"]).await.unwrap();
    let gateway = route.split_whitespace().nth(2).unwrap();
    let text = network_file(address, &format!("Gateway={gateway}\n"));
    let script = format!(
        "mkdir -p /etc/systemd/network; cat > /etc/systemd/network/50-own.network <<'EOF'\n{text}EOF"
    );
    node.run(["sh", "-c", &script]).await.unwrap();
    networkd::start(node).await;
    cluster
        .wait("the node has its pool's settings, and networkd its network", async || {
            let configured =
                node.run(["networkctl", "status", "host0"]).await.is_ok_and(|s| s.contains("(configured)"));
            let node = cluster.get("Node", node.name()).await;
            let reboots = node["metadata"]["annotations"]["machineconfig.dev/reboots"].as_str();
            (configured && reboots == Some("WhenNeeded")).then_some(())
        })
        .await;
    (node.boot_id().await.unwrap(), addresses)
}

/// A real kubelet that does not start with its new settings: its Node stays Ready for most of a minute, and no pod on the node
/// could do anything about it.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_a_real_kubelet_refuses_are_undone() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(1).real().kubelet(Kubelet::Real).controller_manager(true);
    let cluster = Cluster::start(builder).await;
    let node = cluster.lab.node(0);
    mk_pool(&cluster, "kubelet", "worker-0", NEVER_WITHIN).await;
    let command = node.run(["systemctl", "show", "--property=ExecStart", lab::KUBELET_UNIT]).await.unwrap();
    let path = command.split_whitespace().find_map(|word| word.strip_prefix("--config=")).unwrap();
    let settings = node.read_file(path).await.unwrap();
    let config =
        |text: &str| json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file(path, text)]}});
    let begun = Instant::now();
    let with = |more: &str| {
        let new = settings.replacen("\"registerNode\": true", &format!("\"registerNode\": true, {more}"), 1);
        assert_ne!(new, settings);
        new
    };
    let refused = with("\"maxPods\": \"many\"");
    cluster.create(machine_config("60-kubelet", "kubelet", config(&refused))).await;
    let says = went_back(&cluster, "worker-0", begun).await;
    assert!(says.contains("kubelet.service"), "{says}");
    assert_eq!(node.read_file(path).await.unwrap(), settings);
    node.wait_ready(&cluster.client, LIMIT).await.unwrap();
    // Settings that the kubelet accepts are kept.
    set_within(&cluster, "kubelet", "worker-0", CONFIRMED_WITHIN).await;
    let accepted = json!({"spec": {"config": config(&with("\"maxPods\": 111"))}});
    cluster.patch("MachineConfigPool", "kubelet", json!({"spec": {"maxUnavailable": 2}})).await;
    cluster.patch("MachineConfig", "60-kubelet", accepted).await;
    cluster.settled("kubelet", 1, &["60-kubelet"], &[]).await;
    assert!(journal_is_empty(&node).await);
    println!("a real kubelet: all of it in {:?}", begun.elapsed());
    cluster.no_panic();
    cluster.stop().await;
}

/// A mount that every boot needs and that fails: no kernel has this file system.
const NO_MOUNT: &str = "[Unit]\nBefore=local-fs.target\n[Mount]\nWhat=none\nWhere=/srv/data\nType=nosuchfs\n\
    [Install]\nRequiredBy=local-fs.target\n";
/// The same mount, as a line of `/etc/fstab`.
const NO_MOUNT_IN_FSTAB: &str = "none /srv/data nosuchfs defaults 0 0\n";

/// The boot into a change ends in emergency mode, without network, D-Bus, agent and kubelet: the host undoes the change there
/// and boots again, and the node reports it. One machine has a failing unit, the other one a line in `/etc/fstab`.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_with_which_the_boot_ends_in_emergency_mode_is_undone_there() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(2).real().node_service("kubelet.service", FAKE_KUBELET);
    let cluster = Cluster::start(builder).await;
    let mounts = json!({"ignition": {"version": "3.4.0"}, "systemd": {"units": [
        {"name": "srv-data.mount", "contents": NO_MOUNT, "enabled": true},
    ]}});
    let fstab = file("/etc/fstab", NO_MOUNT_IN_FSTAB);
    let fstab = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [fstab]}});
    let all = [("mounts", "worker-0", mounts), ("fstab", "worker-1", fstab)];
    for (pool, node, _) in &all {
        mk_pool(&cluster, pool, node, CONFIRMED_WITHIN).await;
    }
    let begun = Instant::now();
    for (pool, _, config) in &all {
        cluster.create(machine_config(&format!("60-{pool}"), pool, config.clone())).await;
    }
    let says = tokio::join!(went_back(&cluster, "worker-0", begun), went_back(&cluster, "worker-1", begun));
    for (node, says) in [("worker-0", says.0), ("worker-1", says.1)] {
        assert!(says.contains("the machine stopped in emergency mode with it"), "{node}: {says}");
        let node = handle(&cluster, node);
        assert!(node.read_file("/etc/systemd/system/srv-data.mount").await.is_err());
        let fstab = node.read_file("/etc/fstab").await.unwrap_or_default();
        assert!(!fstab.contains("/srv/data"), "{fstab}");
        assert!(journal_is_empty(&node).await, "{}", node.name());
        // The undo did not wait for the end of the trial, and emergency mode was really reached.
        let log = node.run(["journalctl", "--no-pager", "-o", "cat", "_PID=1"]).await.unwrap();
        assert!(log.contains("emergency"), "{log}");
        assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", begun.elapsed());
    }
    cluster.no_panic();
    cluster.stop().await;
}

/// A person tries configs on a host that belongs to no cluster: one that is kept at once, one that is confirmed from
/// another session, and one whose session is killed.
async fn by_hand(node: &NodeHandle) {
    node.run(["systemctl", "disable", "--now", DAEMON_UNIT]).await.unwrap();
    node.run(["rm", "-f", "/etc/machine-config-daemon/currentconfig"]).await.unwrap();
    let path = "/etc/nmstate/openshift/a.yml";
    let put = async |text: &str| {
        let config =
            json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file(path, text)]}}).to_string();
        node.run(["sh", "-c", &format!("cat > /root/{text}.ign <<'EOF'\n{config}\nEOF")]).await.unwrap();
    };
    for text in ["one", "two", "three"] {
        put(text).await;
    }
    let said = node.run(["sh", "-c", "echo | mco daemon try -f /root/one.ign"]).await.unwrap();
    assert!(said.contains("it can cut this host off: /etc/nmstate") && said.contains("kept: "), "{said}");
    let begin = async |text: &str| {
        let unit = format!("--unit=try-{text}");
        let command = format!("sleep 300 | mco daemon try -f /root/{text}.ign --confirm-within 30s");
        node.run(["systemd-run", &unit, "sh", "-c", &command]).await.unwrap();
        let start = Instant::now();
        while node.read_file(path).await.unwrap() != text {
            assert!(start.elapsed() < LIMIT, "{text} is not applied: {}", log(node).await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    begin("two").await;
    let said = node.run(["mco", "daemon", "confirm"]).await.unwrap();
    assert!(said.starts_with("kept: "), "{said}");
    assert_eq!(
        node.exec(["mco", "daemon", "confirm"]).await.unwrap().code,
        3,
        "nothing is on trial any more"
    );
    begin("three").await;
    // The watch begins when the change is committed, which is after its last file.
    let start = Instant::now();
    while node.exec(["systemctl", "is-active", TRIAL_UNIT]).await.unwrap().code != 0 {
        assert!(start.elapsed() < LIMIT, "nothing watches the change: {}", log(node).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    node.run(["systemctl", "kill", "--signal=KILL", "try-three.service"]).await.unwrap();
    let start = Instant::now();
    while node.read_file(path).await.unwrap() != "two" {
        assert!(start.elapsed() < LIMIT, "the try is not undone: {}", log(node).await);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("by hand: undone {:?} after its session was killed", start.elapsed());
    assert!(start.elapsed() > Duration::from_secs(10), "it had thirty seconds");
}

/// Whether no change has left anything in the journal.
async fn journal_is_empty(node: &NodeHandle) -> bool {
    let left = node.run(["sh", "-c", "ls /var/lib/machine-config-daemon/journal"]).await.unwrap();
    println!("{}: {left:?}", node.name());
    left.trim().is_empty()
}
