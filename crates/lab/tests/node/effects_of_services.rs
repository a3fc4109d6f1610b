//! The rows of the table that are about services and units, on a machine where each of them runs: after the change the service
//! itself says that it has taken up the new settings, and after the way back the old ones. Nothing drains or reboots. Real:
//! systemd's journal, logins, resolver and clock, the SSH server, containerd, the trust store, timers, sockets and drop-ins.
//! Stubs: CRI-O, which Debian does not have, and the kubelet, whose real one is in `trial`.
//!
//! Not here: parameters, files that are read at each use, and what is refused (see `effects`); a pool without the setting is at
//! the end of this test.

use crate::debs::install;
use crate::effects::{config, file, said, setting};
use crate::product::{Cluster, machine_config, note, with_controller};
use lab::NodeHandle;
use serde_json::{Value, json};

const NODE: &str = "worker-0";
/// A service that counts its starts.
fn stub(of: &str) -> String {
    format!(
        "[Unit]\nDescription=Stub of {of}\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/sh -c 'echo start >> /var/{of}.log'\n[Install]\nWantedBy=multi-user.target\n"
    )
}

/// What shows that each row has taken effect: a script on the machine, and what it says before and after. Empty: anything else
/// than what it says after.
fn checks(authority: &str) -> Vec<(&'static str, String, &'static str, &'static str)> {
    let count = |word: &str, file: &str| format!("grep -c '{word}' {file} || true");
    vec![
        ("journald", "journalctl -b -o cat -u systemd-journald | grep -c 'max 33.0M' || true".into(), "0", ""),
        (
            "logind",
            "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec".into(),
            "t 5000000",
            "t 77000000",
        ),
        ("resolved", "resolvectl dns | grep -c 192.0.2.53 || true".into(), "0", "1"),
        ("timesyncd", "timedatectl show-timesync -p SystemNTPServers".into(), "SystemNTPServers=", "SystemNTPServers=192.0.2.123"),
        ("SSH server", "ss -Hltn 'sport = :2222' | grep -c LISTEN || true".into(), "0", ""),
        ("timer", "systemctl is-active effect.timer || true".into(), "inactive", "active"),
        ("socket", "ss -Hxl | grep -c /run/effect.sock || true".into(), "0", "1"),
        (
            "drop-in of a unit of the host",
            "tr '\\0' '\\n' < /proc/$(systemctl show -p MainPID --value containerd)/environ | grep -c EFFECT=yes || true".into(),
            "0",
            "1",
        ),
        ("certificate authorities", count(authority, "/etc/ssl/certs/ca-certificates.crt"), "0", "1"),
        ("CRI-O", count("start", "/var/crio.log"), "0", "1"),
        ("kubelet", count("start", "/var/kubelet.log"), "0", "1"),
    ]
}

fn files(ca: &str) -> Vec<Value> {
    vec![
        file("/etc/systemd/journald.conf.d/50.conf", "[Journal]\nSystemMaxUse=33M\nRuntimeMaxUse=33M\n"),
        file("/etc/systemd/logind.conf.d/50.conf", "[Login]\nInhibitDelayMaxSec=77\n"),
        file("/etc/systemd/resolved.conf.d/50.conf", "[Resolve]\nDNS=192.0.2.53\n"),
        file("/etc/systemd/timesyncd.conf.d/50.conf", "[Time]\nNTP=192.0.2.123\n"),
        file("/etc/ssh/sshd_config.d/50.conf", "Port 22\nPort 2222\n"),
        file("/etc/containerd/conf.d/50.toml", "version = 2\n"),
        file("/etc/containerd/certs.d/mirror/hosts.toml", "server = \"https://mirror\"\n"),
        file("/etc/systemd/system/containerd.service.d/50.conf", "[Service]\nEnvironment=EFFECT=yes\n"),
        file("/usr/local/share/ca-certificates/own.crt", ca),
        file("/etc/crio/crio.conf.d/50", "[crio]\n"),
        file("/etc/kubernetes/kubelet.conf.d/50.conf", "maxPods: 99\n"),
    ]
}

fn units() -> Vec<Value> {
    let idle = "[Service]\nType=oneshot\nExecStart=/bin/true\n";
    vec![
        json!({"name": "effect.service", "contents": idle}),
        json!({"name": "effect.timer", "enabled": true, "contents": "[Timer]\nOnCalendar=yearly\n[Install]\nWantedBy=timers.target\n"}),
        json!({"name": "effect.socket", "enabled": true,
            "contents": "[Socket]\nListenStream=/run/effect.sock\nService=effect.service\n[Install]\nWantedBy=sockets.target\n"}),
    ]
}

/// Starts what the lab's base root leaves out.
async fn services(cluster: &Cluster, node: &NodeHandle) -> bool {
    let packages = ["systemd-resolved", "systemd-timesyncd", "openssh-server"];
    said(node, "rm -f /etc/systemd/system/systemd-resolved.service; systemctl daemon-reload").await;
    if !install(cluster, node, &packages).await {
        return false;
    }
    let script = "mkdir -p /etc/systemd/system/systemd-timesyncd.service.d /etc/ssh/sshd_config.d && \
        printf '[Unit]\\nConditionVirtualization=\\n' > /etc/systemd/system/systemd-timesyncd.service.d/lab.conf && \
        truncate -s 0 /var/crio.log /var/kubelet.log && systemctl daemon-reload && systemctl restart systemd-resolved systemd-timesyncd ssh containerd systemd-logind && \
        systemctl is-active systemd-resolved systemd-timesyncd ssh containerd systemd-logind systemd-journald";
    let active = said(node, script).await;
    assert_eq!(active, ["active"; 6].join("\n"));
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn services_take_up_their_settings_without_a_reboot_and_give_them_back() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let mut builder = builder.nodes(1).real();
    for unit in ["crio", "kubelet"] {
        let file = format!("/etc/systemd/system/{unit}.service");
        builder = builder.node_file(&file, 0o644, stub(unit)).node_unit(format!("{unit}.service"));
    }
    let cluster = Cluster::start(builder).await;
    cluster.create(setting()).await;
    let node = cluster.lab.node(0);
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    if !services(&cluster, &node).await {
        return;
    }
    let ca = cluster.lab.control_plane().ca();
    let line = ca.lines().nth(1).unwrap().to_owned();
    let untouched =
        async || (node.boot_id().await.unwrap(), note(&cluster.get("Node", NODE).await, "desiredDrain"));
    let before = untouched().await;
    for (what, script, at_first, _) in checks(&line) {
        assert_eq!(said(&node, &script).await, at_first, "{what}: {script}");
    }
    cluster.create(machine_config("50-services", "worker", config(&files(&ca), &units()))).await;
    cluster.settled("worker", 1, &["50-services"], &[]).await;
    for (what, script, at_first, after) in checks(&line) {
        let is = said(&node, &script).await;
        assert!(if after.is_empty() { is != at_first } else { is == after }, "{what}: {script}: {is}");
    }
    assert_eq!(untouched().await, before, "nothing of this drained or rebooted the node");
    cluster.delete("MachineConfig", "50-services").await;
    cluster.settled("worker", 1, &["00-worker"], &["50-services"]).await;
    for (what, script, at_first, _) in checks(&line) {
        // These count for the whole boot: what they count has happened once more.
        if !["journald", "CRI-O", "kubelet"].contains(&what) {
            assert_eq!(said(&node, &script).await, at_first, "{what}: {script}");
        }
    }
    assert_eq!(untouched().await, before, "nor did the way back");
    // A pool may keep the reference's costs: there the same kind of change reboots.
    let own = json!({"metadata": {"annotations": {"machineconfig.dev/reboots": "AsReference"}}});
    cluster.patch("MachineConfigPool", "worker", own).await;
    cluster.create(machine_config("60-motd", "worker", config(&[file("/etc/motd", "hello\n")], &[]))).await;
    cluster.settled("worker", 1, &["60-motd"], &[]).await;
    assert_ne!(untouched().await.0, before.0, "the pool's own setting counts");
    cluster.no_panic();
    cluster.stop().await;
}
