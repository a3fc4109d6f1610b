//! Changes that take effect without a reboot, on machines that boot: a kernel parameter, a message, files of systemd, units;
//! what the kernel and systemd refuse; and the way back. On Debian 13 also a restart of userspace alone.

use crate::product::{Cluster, machine_config, note, one_machine, with_controller};
use lab::{Distribution, NodeHandle};
use serde_json::{Value, json};

const NODE: &str = "worker-0";
/// A parameter of a network namespace, which a machine in a container can set.
const TTL: &str = "/proc/sys/net/ipv4/ip_default_ttl";
const SYSCTL: &str = "/etc/sysctl.d/50-ttl.conf";

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}

pub(crate) fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "mode": 0o644, "overwrite": true, "contents": {"source": format!("data:,{}", encoded(text))}})
}

pub(crate) fn config(files: &[Value], units: &[Value]) -> Value {
    json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}, "systemd": {"units": units}})
}

fn service(command: &str, kind: &str) -> Value {
    let contents =
        format!("[Service]\nType={kind}\nExecStart={command}\n[Install]\nWantedBy=multi-user.target\n");
    json!({"name": "effect.service", "enabled": true, "contents": contents})
}

pub(crate) fn setting() -> Value {
    json!({
        "apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster", "annotations": {"machineconfig.dev/reboots": "WhenNeeded"}},
        "spec": {"managementState": "Managed"},
    })
}

pub(crate) async fn said(node: &NodeHandle, script: &str) -> String {
    node.exec(["sh", "-c", script]).await.unwrap().stdout.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_take_effect_without_a_reboot_does_and_what_fails_is_undone() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(1).real()).await;
    cluster.create(setting()).await;
    let node = cluster.lab.node(0);
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    let untouched =
        async || (node.boot_id().await.unwrap(), note(&cluster.get("Node", NODE).await, "desiredDrain"));
    let before = untouched().await;
    let ttl = said(&node, &format!("cat {TTL}")).await;
    assert_ne!(ttl, "77");
    let files = [
        file(SYSCTL, "net.ipv4.ip_default_ttl = 77\n"),
        file("/etc/motd", "hello\n"),
        file("/etc/tmpfiles.d/made.conf", "d /run/made 0755 root root -\n"),
        file("/etc/sysusers.d/made.conf", "u made - \"made by a config\"\n"),
    ];
    cluster
        .create(machine_config("50-now", "worker", config(&files, &[service("/bin/sleep 100001", "simple")])))
        .await;
    cluster.settled("worker", 1, &["50-now"], &[]).await;
    assert_eq!(said(&node, &format!("cat {TTL}")).await, "77");
    assert_eq!(
        said(&node, "stat -c %F /run/made; getent passwd made | cut -d: -f5").await,
        "directory\nmade by a config"
    );
    assert_eq!(said(&node, "systemctl is-active effect.service").await, "active");
    // The unit changes: it has a new process, with the new command.
    let spec = json!({"spec": {"config": config(&files, &[service("/bin/sleep 100002", "simple")])}});
    cluster.patch("MachineConfig", "50-now", spec).await;
    let command = "tr '\\0' ' ' < /proc/$(systemctl show -p MainPID --value effect.service)/cmdline";
    cluster
        .wait("the unit runs its new command", async || {
            (said(&node, command).await == "/bin/sleep 100002").then_some(())
        })
        .await;
    cluster.settled("worker", 1, &["50-now"], &[]).await;
    refused(&cluster, &node).await;
    // Back to the state before.
    cluster.delete("MachineConfig", "50-now").await;
    cluster
        .wait("the parameter has its value of before", async || {
            (said(&node, &format!("cat {TTL}")).await == ttl).then_some(())
        })
        .await;
    cluster.settled("worker", 1, &["00-worker"], &["50-now"]).await;
    assert_eq!(
        said(&node, "systemctl is-active effect.service; ls /etc/systemd/system/effect.service").await,
        "inactive"
    );
    assert_eq!(untouched().await, before, "nothing of this drained or rebooted the node");
    template(&cluster, &node).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// A template is left to a reboot, after which it has instances: systemd answers no question about a template itself.
async fn template(cluster: &Cluster, node: &NodeHandle) {
    let boot = node.boot_id().await.unwrap();
    let text = "[Service]\nExecStart=/bin/sleep 100004\n[Install]\nWantedBy=multi-user.target\n";
    let units = [json!({"name": "made@.service", "contents": text})];
    cluster.create(machine_config("70-template", "worker", config(&[], &units))).await;
    cluster.settled("worker", 1, &["70-template"], &[]).await;
    assert_ne!(node.boot_id().await.unwrap(), boot, "{}", said(node, "systemctl status 'made@*'").await);
    assert_eq!(said(node, "systemctl start made@one && systemctl is-active made@one").await, "active");
}

/// A change that the kernel or systemd refuses makes the node Degraded, with the path and their message, and is undone.
async fn refused(cluster: &Cluster, node: &NodeHandle) {
    let running = "tr '\\0' ' ' < /proc/$(systemctl show -p MainPID --value effect.service)/cmdline";
    let bad = [
        (
            "60-value",
            config(&[file(SYSCTL, "net.ipv4.ip_default_ttl = 900\n")], &[]),
            vec![SYSCTL, "900", "Invalid argument"],
        ),
        ("60-oneshot", config(&[], &[service("/bin/false", "oneshot")]), vec!["effect.service"]),
        ("60-simple", config(&[], &[service("/bin/false", "simple")]), vec!["effect.service", "afterwards"]),
    ];
    for (name, config, words) in bad {
        cluster.create(machine_config(name, "worker", config)).await;
        let reason = cluster
            .wait(&format!("{name} is refused"), async || {
                let reason = note(&cluster.get("Node", NODE).await, "reason");
                words.iter().all(|word| reason.contains(word)).then_some(reason)
            })
            .await;
        assert!(reason.contains("undone"), "{name}: {reason}");
        cluster.delete("MachineConfig", name).await;
        cluster.settled("worker", 1, &["50-now"], &[name]).await;
        assert_eq!(said(node, &format!("cat {TTL}")).await, "77", "{name}");
        assert_eq!(said(node, running).await, "/bin/sleep 100002", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn userspace_alone_is_restarted_where_systemd_can() {
    let Some(cluster) = one_machine(|lab| lab.distribution(Distribution::Trixie)).await else { return };
    let node = cluster.lab.node(0);
    // The lab mounts the program into the machine, and a restart of userspace removes mounts. So a copy is put below the mount,
    // where it stays.
    let copy = "mkdir /run/below && mount --bind / /run/below && cat /usr/local/bin/mco > /run/below/usr/local/bin/mco && \
                chmod 0755 /run/below/usr/local/bin/mco && umount /run/below";
    said(&node, copy).await;
    cluster.create(setting()).await;
    let count = "systemctl show -p SoftRebootsCount --value";
    assert_eq!(said(&node, count).await, "0");
    let text = encoded("EFFECT=yes\n");
    let files = json!([{"path": "/etc/environment", "mode": 0o644, "overwrite": true, "contents": {"source": format!("data:,{text}")}}]);
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    cluster.create(machine_config("50-environment", "worker", config)).await;
    let restarted = async || {
        let found = node.exec(["sh", "-c", count]).await.ok()?;
        (found.stdout.trim() == "1").then_some(())
    };
    cluster.wait("userspace to be restarted", restarted).await;
    // The machine has no kubelet, so the test reports in its place, again and again as a kubelet does: the agent waits for a
    // report that is later than the start of userspace, and reports have a precision of one second.
    let reported = async || {
        let now = k8s_openapi::jiff::Timestamp::now();
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": now}]}});
        let patch =
            ["patch", "node", NODE, "--subresource=status", "--type=strategic", "-p", &ready.to_string()];
        let patched = cluster.kubectl(&patch).await;
        assert_eq!(patched.code, 0, "{patched:?}");
        (note(&cluster.get("Node", NODE).await, "state") == "Done").then_some(())
    };
    cluster.wait("the agent to hear of the kubelet", reported).await;
    cluster.settled("worker", 1, &["50-environment"], &[]).await;
    assert_eq!(said(&node, count).await, "1", "userspace was restarted again");
    assert!(node.read_file("/etc/environment").await.unwrap().contains("EFFECT=yes"));
    cluster.no_panic();
    cluster.stop().await;
}
