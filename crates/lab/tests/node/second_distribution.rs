//! A node with another distribution and another version of systemd (Debian 13): updates, configs that the host cannot
//! apply, certificates of the cluster, logins by SSH, a plan on the host, and a stop in the middle of an update.

use crate::product::{Cluster, LIMIT, machine_config, note, one_file, with_controller};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lab::{DAEMON_UNIT, Distribution, NodeHandle};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NODE: &str = "worker-0";
const FILES: usize = 2000;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_works_on_debian_13() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(1).real().distribution(Distribution::Trixie)).await;
    let node = cluster.lab.node(0);
    assert!(node.read_file("/etc/os-release").await.unwrap().contains("Debian GNU/Linux 13"));
    node.run(["mkdir", "-p", "/etc/docker/certs.d"]).await.unwrap();
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    plans(&cluster, &node).await;
    certificates(&cluster, &node).await;
    logins(&cluster, &node).await;
    refused(&cluster).await;
    stopped(&cluster, &node).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// The plan of what a config would do on this host, shown before it is applied.
async fn plans(cluster: &Cluster, node: &NodeHandle) {
    let rendered = cluster.rendered("worker").await;
    let object = cluster.get("MachineConfig", &rendered).await;
    let plan = async |object: &Value, args: &str| {
        let root = node.root_of_boot().unwrap();
        std::fs::write(root.join("root/plan.json"), object.to_string()).unwrap();
        node.exec(["sh", "-c", &format!("mco daemon plan -f /root/plan.json {args}")]).await.unwrap()
    };
    let same = plan(&object, "--refuse reload").await;
    assert_eq!(same.code, 0, "{same:?}");
    assert!(same.stdout.contains("nothing to do"), "{same:?}");
    let mut more = object.clone();
    let file = json!({"path": "/etc/planned", "mode": 420, "contents": {"source": "data:,x"}});
    more["spec"]["config"]["storage"]["files"].as_array_mut().unwrap().push(file);
    assert_eq!(plan(&more, "").await.code, 0);
    let dear = plan(&more, "--refuse reboot -o json").await;
    assert_eq!(dear.code, 3, "{dear:?}");
    let said: Value = serde_json::from_str(&dear.stdout).unwrap();
    assert_eq!(said["severity"], "reboot");
    assert!(said["plan"]["disruption"]["reboot"].to_string().contains("/etc/planned"), "{said}");
    more["spec"]["kernelArguments"] = json!(["nosmt"]);
    let never = plan(&more, "").await;
    assert_eq!(never.code, 3, "{never:?}");
    assert!(never.stdout.contains("Debian GNU/Linux 13"), "{never:?}");
    assert_ne!(node.exec(["ls", "/etc/planned"]).await.unwrap().code, 0, "a plan has changed the host");
}

async fn certificates(cluster: &Cluster, node: &NodeHandle) {
    let encoded = |text: &str| STANDARD.encode(text);
    let spec = json!({
        "cloudProviderCAData": encoded("CLOUD"),
        "internalRegistryPullSecret": encoded("{\"auths\":{}}"),
        "imageRegistryBundleUserData": [{"file": "registry.example.com..5000", "data": encoded("REGISTRY")}],
    });
    // Certificates reach a paused pool too.
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"paused": true}})).await;
    cluster.patch("ControllerConfig", "machine-config-controller", json!({"spec": spec})).await;
    let read = async |path: &str| node.read_file(path).await.ok();
    cluster
        .wait("the certificates are on the node", async || {
            let registry = read("/etc/docker/certs.d/registry.example.com:5000/ca.crt").await;
            (registry.as_deref() == Some("REGISTRY")).then_some(())
        })
        .await;
    let cloud = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
    assert_eq!(read(cloud).await.as_deref(), Some("CLOUD\n"));
    assert_eq!(
        read("/etc/mco/internal-registry-pull-secret.json").await.as_deref(),
        Some("{\"auths\":{}}\n")
    );
    let ca = read("/etc/kubernetes/kubelet-ca.crt").await.unwrap();
    assert!(ca.starts_with("-----BEGIN CERTIFICATE-----"), "{ca}");
    cluster
        .wait("the Node says which version it has", async || {
            let key = "lastSyncedControllerConfigResourceVersion";
            (!note(&cluster.get("Node", NODE).await, key).is_empty()).then_some(())
        })
        .await;
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"paused": false}})).await;
}

/// Registers a session as PAM does for the SSH server.
async fn logins(cluster: &Cluster, node: &NodeHandle) {
    assert_eq!(note(&cluster.get("Node", NODE).await, "ssh"), "");
    let session = "systemd-run --quiet --unit=login sleep 300 && pid=$(systemctl show --value --property=MainPID login) && \
                   busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager \
                   CreateSession 'uusssssussbssa(sv)' 1000 $pid sshd tty background '' '' 0 '' '' true '' 192.0.2.7 0";
    let said = node.run(["sh", "-c", session]).await.unwrap();
    assert!(said.contains("/org/freedesktop/login1/session"), "{said}");
    cluster
        .wait("the Node says that somebody came by SSH", async || {
            (note(&cluster.get("Node", NODE).await, "ssh") == "accessed").then_some(())
        })
        .await;
}

/// A config that this host cannot apply is refused before anything changes, with a message that names the host.
async fn refused(cluster: &Cluster) {
    let mut arguments = machine_config("70-arguments", "worker", json!({"ignition": {"version": "3.4.0"}}));
    arguments["spec"]["kernelArguments"] = json!(["nosmt"]);
    cluster.create(arguments).await;
    cluster
        .wait("the node refuses kernel arguments", async || {
            let node = cluster.get("Node", NODE).await;
            let why = note(&node, "reason");
            (note(&node, "state") == "Unreconcilable" && why.contains("Debian GNU/Linux 13")).then_some(())
        })
        .await;
    cluster.delete("MachineConfig", "70-arguments").await;
    cluster.settled("worker", 1, &["00-worker"], &["70-arguments"]).await;
}

/// SIGTERM in the middle of a change: the change is finished and recorded before the agent exits.
async fn stopped(cluster: &Cluster, node: &NodeHandle) {
    let files: Vec<Value> = (0..FILES)
        .map(|i| json!({"path": format!("/etc/many/{i}"), "contents": {"source": format!("data:,{i}")}}))
        .collect();
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    cluster.create(machine_config("80-many", "worker", config)).await;
    let folder = cluster.lab.folder().join("nodes").join(NODE).join("upper");
    let start = Instant::now();
    while !folder.join("etc/many").exists() {
        assert!(start.elapsed() < LIMIT, "it is never applied\n{}", cluster.state().await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    node.run(["systemctl", "stop", DAEMON_UNIT]).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.join("etc/many")).unwrap().count(), FILES, "it ended early");
    assert!(
        !folder.join("var/lib/machine-config-daemon/journal/begin.json").exists(),
        "the change is not complete"
    );
    let current = node.read_file("/etc/machine-config-daemon/currentconfig").await.unwrap();
    let current: Value = serde_json::from_str(&current).unwrap();
    assert_eq!(current["metadata"]["name"], json!(cluster.rendered("worker").await));
    cluster.told(NODE, "GotSigtermDuringUpdate", &[]).await;
    node.run(["systemctl", "start", DAEMON_UNIT]).await.unwrap();
    cluster.settled("worker", 1, &["80-many"], &[]).await;
    // The last update reboots, into a config that is quick to apply.
    cluster.create(machine_config("90-last", "worker", one_file("/etc/last", "yes"))).await;
    cluster.settled("worker", 1, &["90-last"], &[]).await;
}
