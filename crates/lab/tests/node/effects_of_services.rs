//! The rows about services and units of the table of effects, on a machine where each of them runs: after the change the
//! service itself reports the new settings, and after the way back the old ones. Nothing drains or reboots. Real: systemd's
//! journal, logins, resolver and clock, the SSH server, containerd, the trust store, timers, sockets and drop-ins. Stubs:
//! CRI-O, which Debian does not have, and the kubelet; a real kubelet is in `trial`.
//!
//! Not here: parameters, temporary files, users, and refused changes (`effects`); udev rules, because a container has no udev
//! (`ostree::cluster` of the program `vm`). The end of this test has a pool without the setting.

use crate::debs::install;
use crate::effects::{config, file, said, setting};
use crate::networkd;
use crate::product::{Cluster, machine_config, note, with_controller};
use lab::NodeHandle;
use serde_json::{Value, json};
use std::time::Duration;

const NODE: &str = "worker-0";
/// A service that counts its starts.
fn fake_service(of: &str) -> String {
    format!(
        "[Unit]\nDescription=Fake {of}\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/sh -c 'echo start >> /var/{of}.log'\n[Install]\nWantedBy=multi-user.target\n"
    )
}

/// A network file for an interface that the machine does not need.
const NETWORK: &str = "[Match]\nName=effect0\n[Network]\nAddress=192.0.2.1/24\n\
    [Route]\nDestination=192.0.2.64/26\nTable=effect\n";

/// How each row's effect is checked: a script on the machine, and its output before and after. An empty output after: anything
/// other than the output before.
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
        // networkd's own settings give the table its name.
        ("networkd", "ip -4 route show table 777 | grep -c 192.0.2.64/26 || true".into(), "0", "1"),
        ("networks of networkd", "ip -4 -o address show effect0 | grep -c 192.0.2.1/24 || true".into(), "0", "1"),
        ("kernel modules", count("effect_module", "/var/modprobe.log"), "0", "1"),
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
        ("chrony", count("start", "/var/chrony.log"), "0", "1"),
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
        file("/etc/chrony/sources.d/50.sources", "server 192.0.2.123\n"),
        file("/etc/systemd/networkd.conf.d/50.conf", "[Network]\nRouteTable=effect:777\n"),
        file("/etc/systemd/network/50-effect.network", NETWORK),
        file("/etc/modules-load.d/50.conf", "effect_module\n"),
        file("/etc/profile.d/50.sh", "true\n"),
        file("/etc/logrotate.d/50", "/var/log/none {\n}\n"),
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

/// Starts what the lab's base root leaves out: networkd with a network of its own, so that it leaves the machine's alone; a
/// clock that runs in a container; and a program that records which modules it was asked to load.
const SERVICES: &str = "set -e
mkdir -p /etc/systemd/system/systemd-timesyncd.service.d /etc/ssh/sshd_config.d /etc/systemd/network
printf '[Unit]\\nConditionVirtualization=\\n' > /etc/systemd/system/systemd-timesyncd.service.d/lab.conf
printf '[Match]\\nName=host0\\n[Link]\\nUnmanaged=yes\\n' > /etc/systemd/network/00-lab.network
ip link add effect0 type veth peer name effect1
ip link set effect1 up
printf '#!/bin/sh\\necho \"$@\" >> /var/modprobe.log\\n' > /root/modprobe
chmod 0755 /root/modprobe
mv /root/modprobe /usr/sbin/modprobe
truncate -s 0 /var/crio.log /var/kubelet.log /var/chrony.log /var/modprobe.log
systemctl daemon-reload
systemctl restart $UNITS
systemctl is-active $UNITS
systemctl is-active systemd-journald";

/// Starts what the lab's base root leaves out. `false`: it cannot be downloaded.
async fn services(cluster: &Cluster, node: &NodeHandle) -> bool {
    let packages = ["systemd-resolved", "systemd-timesyncd", "openssh-server"];
    said(node, "rm -f /etc/systemd/system/systemd-resolved.service; systemctl daemon-reload").await;
    if !install(cluster, node, &packages).await {
        return false;
    }
    let units = ["systemd-resolved", "systemd-timesyncd", "ssh", "containerd", "systemd-logind"];
    let active = said(node, &format!("UNITS='{}'\n{SERVICES}", units.join(" "))).await;
    assert_eq!(active, ["active"; 6].join("\n"));
    networkd::start(node).await;
    true
}

/// As [`Cluster::settled`], while the test reports the Node as Ready. A real kubelet does so when it has started, and the agent
/// waits for that report after it has restarted the kubelet.
async fn settled(cluster: &Cluster, with: &str, without: &[&str]) -> String {
    let reports = async {
        loop {
            let now = k8s_openapi::jiff::Timestamp::now();
            let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": now});
            let status = json!({"status": {"conditions": [ready]}}).to_string();
            cluster
                .kubectl(&["patch", "node", NODE, "--subresource=status", "--type=strategic", "-p", &status])
                .await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let with = [with];
    tokio::select! {
        name = cluster.settled("worker", 1, &with, without) => name,
        never = reports => never,
    }
}

/// The reasons of the agent's events that show a disturbance of the node.
async fn disturbances(cluster: &Cluster) -> Vec<String> {
    let reasons = |e: String| e.split(": ").next().map(str::to_owned);
    let reasons = cluster.events(NODE).await.into_iter().filter_map(reasons);
    reasons.filter(|reason| ["Cordon", "Drain", "Reboot"].contains(&reason.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn services_take_up_their_settings_without_a_reboot_and_give_them_back() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let mut builder = builder.nodes(1).real();
    for unit in ["crio", "kubelet", "chrony"] {
        let file = format!("/etc/systemd/system/{unit}.service");
        builder = builder.node_file(&file, 0o644, fake_service(unit)).node_unit(format!("{unit}.service"));
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
    let untouched = async || (node.boot_id().await.unwrap(), disturbances(&cluster).await);
    let before = untouched().await;
    for (what, script, at_first, _) in checks(&line) {
        assert_eq!(said(&node, &script).await, at_first, "{what}: {script}");
    }
    cluster.create(machine_config("50-services", "worker", config(&files(&ca), &units()))).await;
    let config_name = settled(&cluster, "50-services", &[]).await;
    for (what, script, at_first, after) in checks(&line) {
        // networkd answers before it has configured the interfaces.
        let is_taken_up = async || {
            let is = said(&node, &script).await;
            (if after.is_empty() { is != at_first } else { is == after }).then_some(())
        };
        cluster.wait(&format!("{what}: {script}"), is_taken_up).await;
    }
    assert_eq!(untouched().await, before, "nothing of this drained or rebooted the node");
    // Every update ends with this request, as the reference's do. If nothing was drained, the request and its answer are
    // written together.
    let object = cluster.get("Node", NODE).await;
    for key in ["desiredDrain", "lastAppliedDrain"] {
        assert_eq!(note(&object, key), format!("uncordon-{config_name}"), "{key}");
    }
    cluster.delete("MachineConfig", "50-services").await;
    settled(&cluster, "00-worker", &["50-services"]).await;
    for (what, script, at_first, _) in checks(&line) {
        // These counters cover the whole boot, and the way back has increased them once more.
        if !["journald", "CRI-O", "kubelet", "chrony", "kernel modules"].contains(&what) {
            let is_as_before = async || (said(&node, &script).await == at_first).then_some(());
            cluster.wait(&format!("{what} as before: {script}"), is_as_before).await;
        }
    }
    assert_eq!(untouched().await, before, "nor did the way back");
    // A pool may keep the reference's costs: there the same kind of change reboots.
    let own = json!({"metadata": {"annotations": {"machineconfig.dev/reboots": "AsReference"}}});
    cluster.patch("MachineConfigPool", "worker", own).await;
    cluster.create(machine_config("60-motd", "worker", config(&[file("/etc/motd", "hello\n")], &[]))).await;
    settled(&cluster, "60-motd", &[]).await;
    let after = untouched().await;
    assert_ne!(after.0, before.0, "the pool's own setting counts");
    for reason in ["Cordon", "Drain", "Reboot"] {
        let told = |reasons: &[String]| reasons.iter().filter(|r| *r == reason).count();
        assert!(told(&after.1) > told(&before.1), "no event {reason}: {:?}", after.1);
    }
    cluster.no_panic();
    cluster.stop().await;
}
