//! The agent's other tasks on machines that boot: certificates, logins through a real SSH server, drift, folders and links, and
//! applying a config once from a file. Also that an agent cannot write to another agent's node.
//!
//! Not here: what is checked of certificates (see `certificates`).

mod certificates;

use crate::debs::install;
use crate::product;
use crate::product::{Cluster, MCO, condition, machine_config, note, with_controller};
use certificates::{authorities, certificates, rotation};
use lab::{DAEMON_UNIT, NodeHandle};
use serde_json::json;

const NODE: &str = "worker-0";
const OTHER: &str = "worker-1";
/// A kubelet that counts its starts.
const FAKE_KUBELET: &str = "[Unit]\nDescription=Fake kubelet\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c 'echo start >> /var/kubelet.log'\n[Install]\nWantedBy=multi-user.target\n";

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_maintains_certificates_and_logins_and_cannot_write_other_nodes() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(2).real().node_service("kubelet.service", FAKE_KUBELET);
    let cluster = Cluster::start(builder).await;
    let node = cluster.lab.node(0);
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    guards(&cluster).await;
    let before = (node.boot_id().await.unwrap(), asked(&cluster).await);
    certificates(&cluster, &node).await;
    rotation(&cluster, &node).await;
    authorities(&cluster, &node).await;
    // None of these changes required a drain or a reboot.
    assert_eq!((node.boot_id().await.unwrap(), asked(&cluster).await), before);
    once(&cluster.lab.node(1)).await;
    // The other node's agent has stopped, so it is not waited for.
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": 2}})).await;
    logins(&cluster, &node).await;
    drift(&cluster, &node).await;
    folders_and_links(&cluster, &node).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// The requests to the drain controller.
async fn asked(cluster: &Cluster) -> String {
    note(&cluster.get("Node", NODE).await, "desiredDrain")
}

/// A node's credentials allow writes to its own objects but not to those of another node.
async fn guards(cluster: &Cluster) {
    cluster
        .wait("both nodes have told their progress", async || {
            let all = cluster.list("MachineConfigNode").await;
            let told = all.iter().filter(|n| condition(n, "Updated").is_some()).count();
            (told == 2).then_some(())
        })
        .await;
    let config = cluster.lab.node(1).root_of_boot().unwrap().join("etc/mco-lab/daemon.kubeconfig");
    let config = config.to_string_lossy().into_owned();
    let degraded = json!({"status": {"conditions": [{
        "type": "NodeDegraded", "status": "True", "reason": "Forged", "message": "forged",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}})
    .to_string();
    let spec = json!({"metadata": {"labels": {"forged": "yes"}}}).to_string();
    let state = json!({"metadata": {"annotations": {format!("{MCO}state"): "Degraded"}}}).to_string();
    let note_own = json!({"metadata": {"annotations": {"example.com/by": "itself"}}}).to_string();
    for (about, name, args, allowed) in [
        ("another's status", NODE, vec!["machineconfignode", "--subresource=status", "-p", &degraded], false),
        ("another's object", NODE, vec!["machineconfignode", "-p", &spec], false),
        ("another's Node", NODE, vec!["node", "-p", &state], false),
        ("its own object", OTHER, vec!["machineconfignode", "-p", &note_own], true),
        ("its own Node", OTHER, vec!["node", "-p", &note_own], true),
    ] {
        let (kind, rest) = args.split_first().unwrap();
        let mut all = vec!["--kubeconfig", &config, "patch", kind, name, "--type=merge"];
        all.extend(rest);
        let said = cluster.kubectl(&all).await;
        assert_eq!(said.code == 0, allowed, "{about}: {said:?}");
        let by_the_guard = said.err.contains("an agent writes the object of its own node only");
        assert_eq!(by_the_guard, *kind == "machineconfignode" && !allowed, "{about}: {said:?}");
    }
    let forged = cluster.get("MachineConfigNode", NODE).await.to_string();
    assert!(!forged.contains("orged"), "{forged}");
}

/// Applies a config once from a file: on a host that belongs to a cluster, and on one that no longer does.
async fn once(node: &NodeHandle) {
    node.run(["systemctl", "stop", DAEMON_UNIT]).await.unwrap();
    let file = node.root_of_boot().unwrap().join("root/once.json");
    let config = product::one_file("/etc/once", "yes");
    std::fs::write(file, config.to_string()).unwrap();
    let command =
        ["mco", "daemon", "start", "--root-mount", "/", "--once-from", "/root/once.json", "--skip-reboot"];
    let refused = node.exec(command).await.unwrap();
    assert_ne!(refused.code, 0, "{refused:?}");
    let recorded = "/etc/machine-config-daemon/currentconfig";
    assert!(refused.stderr.contains("rendered-worker-") && refused.stderr.contains(recorded), "{refused:?}");
    assert!(node.read_file("/etc/once").await.is_err());
    // The remedy that the message names.
    node.run(["rm", recorded]).await.unwrap();
    node.run(command).await.unwrap();
    assert_eq!(node.read_file("/etc/once").await.unwrap(), "yes");
}

/// A changed file whose folder is not touched is detected as drift within half a minute, and so is its restoration.
async fn drift(cluster: &Cluster, node: &NodeHandle) {
    const FILE: &str = "/var/lib/kubelet/config.json";
    let config = product::one_file(FILE, "mine");
    cluster.create(machine_config("60-watched", "worker", config)).await;
    let says = async |about: &str, state: &str| {
        cluster
            .wait(about, async || {
                let found = cluster.get("Node", NODE).await;
                let named = state == "Done" || note(&found, "reason").contains(FILE);
                (note(&found, "state") == state && named).then_some(())
            })
            .await;
    };
    cluster
        .wait("the file is there", async || {
            let found = cluster.get("Node", NODE).await;
            let current = note(&found, "currentConfig") == cluster.rendered("worker").await;
            let there = node.read_file(FILE).await.ok().as_deref() == Some("mine");
            (there && current && product::is_done(&found)).then_some(())
        })
        .await;
    node.run(["ln", FILE, "/var/lib/other-name"]).await.unwrap();
    for (about, harm, mend) in [
        (
            "another file is mounted over it",
            format!("mount --bind /etc/hostname {FILE}"),
            format!("umount {FILE}"),
        ),
        (
            "it is written by another name",
            "echo other > /var/lib/other-name".to_owned(),
            "printf mine > /var/lib/other-name".to_owned(),
        ),
        (
            "its folder is moved away, and another is in its place",
            "mv /var/lib/kubelet /var/lib/moved && mkdir /var/lib/kubelet".to_owned(),
            "rmdir /var/lib/kubelet && mv /var/lib/moved /var/lib/kubelet".to_owned(),
        ),
    ] {
        node.run(["sh", "-c", &harm]).await.unwrap();
        says(about, "Degraded").await;
        node.run(["sh", "-c", &mend]).await.unwrap();
        says(&format!("not any more: {about}"), "Done").await;
    }
}

/// A person logs in by SSH, with a key from a MachineConfig.
async fn logins(cluster: &Cluster, node: &NodeHandle) {
    if !install(cluster, node, &["openssh-server", "openssh-client", "libpam-systemd"]).await {
        return;
    }
    node.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/key"]).await.unwrap();
    let key = node.read_file("/root/key.pub").await.unwrap();
    let config = |keys: &[&str]| {
        json!({
            "ignition": {"version": "3.4.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": keys}]},
        })
    };
    let boot = node.boot_id().await.unwrap();
    cluster.create(machine_config("50-keys", "worker", config(&[key.trim()]))).await;
    cluster
        .wait("the node has the keys", async || {
            node.read_file("/home/core/.ssh/authorized_keys.d/ignition").await.ok()
        })
        .await;
    let with_key = updated(cluster, "the node is done", "").await;
    assert_eq!(note(&cluster.get("Node", NODE).await, "ssh"), "", "nobody has logged in yet");
    // A server that reloads its configuration does not listen for a moment.
    let ssh = "ssh -i /root/key -o StrictHostKeyChecking=no -o BatchMode=yes -o ConnectionAttempts=3 core@127.0.0.1";
    cluster
        .wait("somebody can log in", async || node.run(["sh", "-c", &format!("{ssh} true")]).await.ok())
        .await;
    node.run(["sh", "-c", &format!("{ssh} sleep 3")]).await.unwrap();
    cluster
        .wait("the Node says that somebody came by SSH", async || {
            (note(&cluster.get("Node", NODE).await, "ssh") == "accessed").then_some(())
        })
        .await;
    // With another key in its place, the first key no longer works. The same holds when all keys are removed.
    let refused = async || {
        let said = node.exec(["sh", "-c", &format!("{ssh} true")]).await.unwrap();
        assert!(said.code != 0 && said.stderr.contains("Permission denied"), "{said:?}");
    };
    node.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/other"]).await.unwrap();
    let other = node.read_file("/root/other.pub").await.unwrap();
    let spec = json!({"spec": {"config": config(&[other.trim()])}});
    cluster.patch("MachineConfig", "50-keys", spec).await;
    let with_other = updated(cluster, "the node has the other key", &with_key).await;
    refused().await;
    let ssh_other = ssh.replace("/root/key", "/root/other");
    node.run(["sh", "-c", &format!("{ssh_other} true")]).await.unwrap();
    let dropins = async || node.run(["ls", "/etc/ssh/sshd_config.d"]).await.unwrap();
    assert!(dropins().await.contains("machine-config-keys"), "{}", dropins().await);
    cluster.delete("MachineConfig", "50-keys").await;
    let without = updated(cluster, "the node has no keys", &with_other).await;
    refused().await;
    let said = node.exec(["sh", "-c", &format!("{ssh_other} true")]).await.unwrap();
    assert!(said.code != 0 && said.stderr.contains("Permission denied"), "{said:?}");
    assert!(!dropins().await.contains("machine-config-keys"), "{}", dropins().await);
    // A `Match` block for a group that core belongs to only in the group database: the server reports that the block
    // applies.
    let block = "usermod -aG staff core && systemctl reload ssh && \
        printf 'Match Group staff\\n    AuthorizedKeysFile /etc/nothing/%%u\\n' > /etc/ssh/sshd_config.d/50-group.conf";
    node.run(["sh", "-c", block]).await.unwrap();
    cluster.create(machine_config("50-keys", "worker", config(&[key.trim()]))).await;
    updated(cluster, "the node has the keys again", &without).await;
    // Until the server has reloaded, it refuses the key.
    let soon = format!("for i in $(seq 50); do {ssh} true && exit; sleep 0.2; done; exit 1");
    node.run(["sh", "-c", &soon]).await.unwrap();
    assert_eq!(node.boot_id().await.unwrap(), boot, "keys need no reboot");
}

/// Folders and links of a config are created on a running machine, survive its reboot, count as drift when they differ,
/// and are removed again; what was there before is restored.
async fn folders_and_links(cluster: &Cluster, node: &NodeHandle) {
    let boot = node.boot_id().await.unwrap();
    let issue = node.read_file("/etc/issue.net").await.unwrap();
    let storage = json!({
        "directories": [
            {"path": "/srv/app", "mode": 0o750, "user": {"name": "core"}},
            {"path": "/etc/issue.net", "overwrite": true},
        ],
        "files": [{"path": "/srv/app/settings", "contents": {"source": "data:,on"}}],
        "links": [
            {"path": "/etc/app", "target": "/srv/app"},
            {"path": "/srv/same", "target": "/srv/app/settings", "hard": true},
        ],
    });
    let config = json!({"ignition": {"version": "3.5.0"}, "storage": storage});
    let stat = async |path: &str| node.run(["stat", "-c", "%F %a %U %h %N", path]).await.unwrap();
    let before = cluster.rendered("worker").await;
    cluster.create(machine_config("70-folders", "worker", config)).await;
    let with = updated(cluster, "the node has folders and links", &before).await;
    assert_ne!(node.boot_id().await.unwrap(), boot, "paths without a policy need a reboot");
    assert!(stat("/srv/app").await.starts_with("directory 750 core "), "{}", stat("/srv/app").await);
    assert!(stat("/etc/issue.net").await.starts_with("directory 755 root "));
    assert!(stat("/etc/app").await.contains("'/etc/app' -> '/srv/app'"), "{}", stat("/etc/app").await);
    assert!(stat("/srv/same").await.starts_with("regular file 644 root 2 "), "{}", stat("/srv/same").await);
    assert_eq!(node.read_file("/etc/app/settings").await.unwrap(), "on");
    for (harm, mend) in
        [("chmod 777 /srv/app", "chmod 750 /srv/app"), ("ln -sfn /tmp /etc/app", "ln -sfn /srv/app /etc/app")]
    {
        node.run(["sh", "-c", harm]).await.unwrap();
        let path = if harm.contains("chmod") { "/srv/app" } else { "/etc/app" };
        for (state, named) in [("Degraded", true), ("Done", false)] {
            cluster
                .wait(&format!("after {harm}: {state}"), async || {
                    let found = cluster.get("Node", NODE).await;
                    let says = note(&found, "reason").contains(path) == named;
                    (note(&found, "state") == state && says).then_some(())
                })
                .await;
            node.run(["sh", "-c", mend]).await.unwrap();
        }
    }
    cluster.delete("MachineConfig", "70-folders").await;
    updated(cluster, "folders and links are gone", &with).await;
    for path in ["/srv/app", "/etc/app", "/srv/same"] {
        assert!(node.run(["stat", path]).await.is_err(), "{path} is left");
    }
    assert_eq!(node.read_file("/etc/issue.net").await.unwrap(), issue);
}

/// Waits until the node is done with another rendered config than `before`, and returns its name.
async fn updated(cluster: &Cluster, about: &str, before: &str) -> String {
    cluster
        .wait(about, async || {
            let found = cluster.get("Node", NODE).await;
            let rendered = cluster.rendered("worker").await;
            let has = note(&found, "currentConfig") == rendered && product::is_done(&found);
            (has && rendered != before).then_some(rendered)
        })
        .await
}
