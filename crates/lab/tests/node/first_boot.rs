//! A real first boot: a fresh machine, Debian's Ignition with a pointer config, our config server over TLS, the
//! firstboot unit, a kubelet that requests its certificate with the token that was served, and the agent.

use crate::product::{Cluster, LIMIT, is_done, machine_config, note, tail, with_controller};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lab::{BareMachine, FIRSTBOOT_UNIT, Kubelet, MachineState};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

const NODE: &str = "bare-0";
/// As in a cluster, the kubelet requests its certificate with the token from the config server. It records whether the
/// first boot was complete when it started.
const KUBELET: &str = "[Unit]\nDescription=kubelet\nAfter=containerd.service lab-images.service\nStartLimitIntervalSec=0\n\n\
    [Service]\nExecStartPre=/bin/sh -c 'ls /etc/ignition-machine-config-encapsulated.json* >> /var/kubelet.log'\n\
    ExecStart=/usr/local/bin/kubelet --config=/etc/kubernetes/kubelet.conf \
    --bootstrap-kubeconfig=/etc/kubernetes/kubeconfig --kubeconfig=/var/lib/kubelet/kubeconfig --v=1\n\
    Restart=always\nRestartSec=1\nKillMode=process\n\n[Install]\nWantedBy=multi-user.target\n";
const UNIT: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_new_machine_joins_in_its_pools_config_without_a_disruption() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let mut cluster = Cluster::start(builder.real().kubelet(Kubelet::Real).controller_manager(true)).await;
    let address = cluster.lab.control_plane().server().ip();
    let token = bootstrap_token(&cluster).await;

    // A kernel argument with which this kernel was booted, as if the machine's image had set it.
    let running = std::fs::read_to_string("/proc/cmdline").unwrap();
    let argument = running.split_whitespace().next().unwrap_or("quiet").to_owned();
    let config = json!({
        "ignition": {"version": "3.3.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA first@boot"]}]},
        "storage": {"files": [
            {"path": "/etc/first/boot.conf", "mode": 0o600, "contents": {"source": "data:,from%20the%20pool"}},
        ]},
        "systemd": {"units": [
            {"name": "kubelet.service", "enabled": true, "contents": KUBELET},
            {"name": "first.service", "enabled": true, "contents": UNIT},
        ]},
    });
    let mut object = machine_config("50-first", "worker", config);
    object["spec"]["kernelArguments"] = json!([argument]);
    cluster.create(object).await;
    cluster
        .wait("the pool's config is rendered, and served", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            let (wanted, last) = (&pool["spec"]["configuration"], &pool["status"]["configuration"]);
            // A pool without nodes serves the config that its status names.
            (wanted["source"].to_string().contains("50-first") && wanted["name"] == last["name"])
                .then_some(())
        })
        .await;
    let rendered = cluster.rendered("worker").await;

    let (port, mut server) = serve(&cluster, address, &token);
    let pointer = json!({"ignition": {
        "version": "3.3.0",
        "config": {"merge": [{"source": format!("https://{address}:{port}/config/worker")}]},
        "security": {"tls": {"certificateAuthorities": [{
            "source": format!("data:text/plain;base64,{}", STANDARD.encode(cluster.lab.control_plane().ca())),
        }]}},
    }});
    let machine =
        BareMachine { name: NODE.to_owned(), config: pointer.to_string(), files: vec![], enable: vec![] };
    let (node, said) = match cluster.lab.first_boot(machine).await {
        Ok(done) => done,
        Err(error) => {
            panic!("{}\n{}", lab::chain(&error), tail(&cluster.lab.folder().join("logs/server.log")))
        }
    };
    // The real Ignition asked over TLS, and in its own version.
    assert!(
        said.0.contains(&format!("GET https://{address}:{port}/config/worker: attempt #1")),
        "{}",
        said.0
    );

    let through = format!("the first boot is complete: the host is in config {rendered}");
    let start = Instant::now();
    while !node.logs(FIRSTBOOT_UNIT).await.unwrap().contains(&through) {
        assert!(start.elapsed() < LIMIT, "{}", units(&node).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    cluster
        .wait("the kubelet registers the Node", async || {
            (!cluster.get("Node", NODE).await.is_null()).then_some(())
        })
        .await;
    // The node gets no role label: a node without a role is a worker.
    assert_eq!(cluster.settled("worker", 1, &["50-first"], &[]).await, rendered);
    node.wait_ready(&cluster.client, LIMIT).await.unwrap();

    let object = cluster.get("Node", NODE).await;
    assert!(is_done(&object), "{object}");
    for key in ["currentConfig", "desiredConfig", "firstPivotConfig"] {
        assert_eq!(note(&object, key), rendered, "{key}");
    }
    // There is only one boot, no drain and no reboot.
    let machine = cluster.lab.real_node(0).unwrap().machine();
    assert!(matches!(machine.state(), MachineState::Running { boot: 1, .. }), "{:?}", machine.state());
    assert_eq!(object["spec"].get("unschedulable"), None);
    assert!(!note(&object, "desiredDrain").starts_with("drain-"), "{object}");
    let events = cluster.events(NODE).await;
    let bad = ["Drain:", "Reboot:", "OnDiskState", "ConfigDriftDetected"];
    assert!(!events.iter().any(|e| bad.iter().any(|b| e.starts_with(b))), "{events:?}");

    // The kubelet started after the first boot was complete.
    let order = node.read_file("/var/kubelet.log").await.unwrap();
    assert_eq!(order, "/etc/ignition-machine-config-encapsulated.json.bak\n");
    assert_eq!(node.read_file("/etc/first/boot.conf").await.unwrap(), "from the pool");
    assert_eq!(node.run(["systemctl", "is-active", "first.service"]).await.unwrap().trim(), "active");
    let keys = node.read_file("/home/core/.ssh/authorized_keys.d/ignition").await.unwrap();
    assert!(keys.contains("first@boot"), "{keys}");
    let files = "ls /etc/machine-config-daemon/";
    let left = node.run(["sh", "-c", files]).await.unwrap();
    assert!(left.contains("node-annotation.json.bak") && !left.contains("node-annotations.json\n"), "{left}");

    later(&cluster, &node).await;
    server.start_kill().unwrap();
    cluster.no_panic();
    cluster.stop().await;
}

/// The state of the first boot's units, for people.
async fn units(node: &lab::NodeHandle) -> String {
    let look = "systemctl --no-pager --full status kubelet.service machine-config-daemon*; cat /etc/machine-id; \
                ls /etc/systemd/system/*.wants /etc/systemd/system/*.requires; journalctl --no-pager -b | tail -n 60";
    node.exec(["sh", "-c", look]).await.map_or_else(|e| e.to_string(), |o| o.stdout + &o.stderr)
}

/// The next change of its pool is applied to it as to any other node.
async fn later(cluster: &Cluster, node: &lab::NodeHandle) {
    let keys = json!({
        "ignition": {"version": "3.4.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 BBBB later@on"]}]},
    });
    cluster.create(machine_config("60-later", "worker", keys)).await;
    cluster.settled("worker", 1, &["60-later"], &[]).await;
    let keys = node.read_file("/home/core/.ssh/authorized_keys.d/ignition").await.unwrap();
    assert!(keys.contains("later@on"), "{keys}");
}

/// The service account whose token new machines get, with the permissions to request a certificate and to have it
/// approved.
async fn bootstrap_token(cluster: &Cluster) -> String {
    let namespace = "openshift-machine-config-operator";
    let bind = |name: &str, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "node-bootstrapper", "namespace": namespace}],
        })
    };
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "node-bootstrapper", "namespace": namespace}},
        {
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": "node-bootstrapper-token", "namespace": namespace,
                "annotations": {"kubernetes.io/service-account.name": "node-bootstrapper"},
            },
        },
        bind("first-boot-ask", "system:node-bootstrapper"),
        bind("first-boot-approve", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
    ]});
    let file = cluster.lab.folder().join("bootstrapper.json");
    std::fs::write(&file, objects.to_string()).unwrap();
    let said = cluster.kubectl(&["apply", "-f", &file.to_string_lossy()]).await;
    assert_eq!(said.code, 0, "{said:?}");
    cluster
        .wait("the token is made", async || {
            let name = "node-bootstrapper-token";
            let said = cluster.kubectl(&["-n", namespace, "get", "secret", name, "-o", "json"]).await;
            let secret: Value = serde_json::from_str(&said.out).ok()?;
            let token = STANDARD.decode(secret["data"]["token"].as_str()?).ok()?;
            String::from_utf8(token).ok()
        })
        .await
}

/// Starts our config server with a certificate of the cluster's CA, as it runs beside the API server.
fn serve(cluster: &Cluster, address: IpAddr, token: &str) -> (u16, tokio::process::Child) {
    let plane = cluster.lab.control_plane();
    let dir = cluster.lab.folder().make("server").unwrap();
    let put = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let pair = plane.serving_certificate(&[address], &[]).unwrap();
    let (cert, key) = (put("tls.crt", &pair.cert), put("tls.key", &pair.key));
    put("token", token);
    put("ca.crt", &plane.ca());
    let port = free_port(address);
    let log = std::fs::File::create(cluster.lab.folder().join("logs/server.log")).unwrap();
    let mut command = tokio::process::Command::new(lab::built_mco().unwrap());
    command
        .args(["server", "start", "--insecure-port", "0", "--secure-port", &port.to_string()])
        .arg("--kubeconfig")
        .arg(cluster.lab.kubeconfig())
        .args(["--apiserver-url", &format!("https://{}", plane.server())])
        .args(["--bind-address", &address.to_string()])
        .arg("--cert")
        .arg(cert)
        .arg("--key")
        .arg(key)
        .arg("--bootstrap-token-dir")
        .arg(&dir as &Path)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(log)
        .kill_on_drop(true);
    (port, command.spawn().unwrap())
}

fn free_port(address: IpAddr) -> u16 {
    std::net::TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}
