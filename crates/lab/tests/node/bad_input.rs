//! Errors on a machine that boots: its node reports them with the path and the remedy, as do its MachineConfigNode and
//! the agent's log. The host stays in its old state, and the update continues when the fault, or the config, is
//! removed.

use crate::product::{
    Cluster, condition, disruption_policies, is_done, machine_config, note, one_file, one_machine,
};
use lab::{DAEMON_UNIT, NodeHandle};
use serde_json::{Value, json};

const NODE: &str = "worker-0";
const JOURNAL: &str = "/var/lib/machine-config-daemon/journal";

/// A fault of the host, and a file of the config that it affects.
struct Bad {
    about: &'static str,
    /// The command that causes the fault, and the one that removes it.
    harm: &'static str,
    heal: &'static str,
    file: Value,
    /// What the node must report.
    words: &'static [&'static str],
    /// A command that must succeed afterwards, because the host was not harmed.
    unharmed: &'static str,
}

fn file(path: &str) -> Value {
    json!({"path": path, "mode": 420, "contents": {"source": "data:,ours"}})
}

fn bad() -> [Bad; 8] {
    let of = |mut file: Value, key: &str, value: Value| {
        file[key] = value;
        file
    };
    let service = "printf '[Service]\\nType=oneshot\\nExecStart=/bin/false\\n' > /etc/systemd/system/bad.service; systemctl daemon-reload";
    [
        Bad {
            about: "a folder where a file must be",
            harm: "mkdir -p /etc/bad/folder/x",
            heal: "rm -r /etc/bad/folder",
            file: file("/etc/bad/folder"),
            words: &["/etc/bad/folder", "there is a folder at this path", "move the folder away"],
            unharmed: "test -d /etc/bad/folder/x",
        },
        Bad {
            about: "a file where a folder must be",
            harm: "mkdir -p /etc/bad; echo theirs > /etc/bad/file",
            heal: "rm /etc/bad/file",
            file: file("/etc/bad/file/below"),
            words: &["/etc/bad/file/below", "/etc/bad/file is not a folder", "move that away"],
            unharmed: "grep -qx theirs /etc/bad/file",
        },
        Bad {
            about: "a link of another user on the way",
            harm: "ln -s /etc /home/core/away; chown -h core:core /home/core/away",
            heal: "rm /home/core/away",
            file: file("/home/core/away/led-out"),
            words: &["/home/core/away/led-out", "chown -h"],
            unharmed: "test ! -e /etc/led-out",
        },
        Bad {
            about: "an immutable file",
            harm: "mkdir -p /etc/bad; echo theirs > /etc/bad/fixed; chattr +i /etc/bad/fixed",
            heal: "chattr -i /etc/bad/fixed; rm /etc/bad/fixed",
            file: file("/etc/bad/fixed"),
            words: &["/etc/bad/fixed", "immutable", "chattr -i"],
            unharmed: "grep -qx theirs /etc/bad/fixed",
        },
        Bad {
            about: "a full disk",
            harm: "mkdir -p /etc/full; mount -t tmpfs -o size=64k none /etc/full; head -c 64k /dev/zero > /etc/full/theirs || true",
            heal: "umount /etc/full",
            file: file("/etc/full/more"),
            words: &["/etc/full", "free"],
            unharmed: "test -s /etc/full/theirs && test ! -e /etc/full/more",
        },
        Bad {
            about: "an owner that does not exist",
            harm: "true",
            heal: "true",
            file: of(file("/etc/bad/owner"), "user", json!({"name": "ghost"})),
            words: &["/etc/bad/owner", "\"ghost\" does not exist", "create it on the host first"],
            unharmed: "test ! -e /etc/bad/owner",
        },
        Bad {
            about: "a service that does not restart",
            harm: service,
            heal: "rm /etc/systemd/system/bad.service; systemctl daemon-reload",
            file: file("/etc/restarts.conf"),
            words: &["bad.service", "journalctl -u bad.service"],
            unharmed: "test ! -e /etc/restarts.conf",
        },
        Bad {
            about: "a service that the host does not have",
            harm: "true",
            heal: "true",
            file: file("/etc/nobody.conf"),
            words: &["nobody.service", "no such unit", "correct the policy's serviceName"],
            unharmed: "test ! -e /etc/nobody.conf",
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn problems_of_a_host_are_reported_with_path_and_remedy_and_change_nothing() {
    let Some(cluster) = one_machine(|lab| lab).await else { return };
    let node = cluster.lab.node(0);
    let restart = |path: &str, unit: &str| {
        let action = json!({"type": "Restart", "restart": {"serviceName": unit}});
        json!({"path": path, "actions": [action]})
    };
    cluster
        .create(disruption_policies(json!([
            restart("/etc/restarts.conf", "bad.service"),
            restart("/etc/nobody.conf", "nobody.service"),
        ])))
        .await;
    for case in bad() {
        meets(&cluster, &node, &case).await;
    }
    goes_well(&cluster, &node).await;
    damaged_journal(&cluster, &node).await;
    cluster.no_panic();
    cluster.stop().await;
}

async fn sh(node: &NodeHandle, command: &str) {
    node.run(["sh", "-c", command]).await.unwrap();
}

/// Waits until the Node, its MachineConfigNode and the log contain all of these words.
async fn says(cluster: &Cluster, node: &NodeHandle, about: &str, words: &[&str]) {
    let has_all = |text: &str| words.iter().all(|w| text.contains(w));
    cluster
        .wait(&format!("{about}: the node says {words:?}"), async || {
            let found = cluster.get("Node", NODE).await;
            let failed = ["Degraded", "Unreconcilable"].contains(&note(&found, "state").as_str());
            (failed && has_all(&note(&found, "reason"))).then_some(())
        })
        .await;
    cluster
        .wait(&format!("{about}: the MachineConfigNode says {words:?}"), async || {
            let found = cluster.get("MachineConfigNode", NODE).await;
            condition(&found, "NodeDegraded").filter(|m| has_all(m))
        })
        .await;
    // The journal takes lines a moment later than the API server takes a status.
    cluster
        .wait(&format!("{about}: the log says {words:?}"), async || {
            let log = node.logs(DAEMON_UNIT).await.ok()?;
            log.lines().any(has_all).then_some(())
        })
        .await;
}

async fn done(cluster: &Cluster, about: &str) {
    cluster
        .wait(&format!("{about}: the node is done"), async || {
            let found = cluster.get("Node", NODE).await;
            let rendered = cluster.rendered("worker").await;
            let there = note(&found, "currentConfig") == rendered && note(&found, "reason").is_empty();
            (is_done(&found) && there).then_some(())
        })
        .await;
}

async fn meets(cluster: &Cluster, node: &NodeHandle, case: &Bad) {
    let Bad { about, harm, heal, file, words, unharmed } = case;
    let boot = node.boot_id().await.unwrap();
    let before = note(&cluster.get("Node", NODE).await, "currentConfig");
    sh(node, harm).await;
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}});
    cluster.create(machine_config("50-bad", "worker", config)).await;
    says(cluster, node, about, words).await;
    sh(node, unharmed).await;
    let left = node.run(["sh", "-c", &format!("ls -A {JOURNAL} 2>/dev/null | grep -v damaged; true")]).await;
    assert_eq!(left.unwrap().trim(), "", "{about}: a change is unfinished");
    // The config is deleted: the node has kept its old one.
    cluster.delete("MachineConfig", "50-bad").await;
    cluster
        .wait(&format!("{about}: the pool is updated again"), async || {
            (cluster.rendered("worker").await == before).then_some(())
        })
        .await;
    done(cluster, about).await;
    sh(node, heal).await;
    assert_eq!(node.boot_id().await.unwrap(), boot, "{about}: the machine rebooted for nothing");
}

/// Inputs that look invalid but are valid: a link that leads outside, unusual neighbouring files, and a large file of
/// the host's own.
async fn goes_well(cluster: &Cluster, node: &NodeHandle) {
    let folder = "/etc/nmstate/openshift";
    sh(
        node,
        &format!(
            "mkdir -p {folder}; cd {folder}; ln -s ../../../../../../../var/out link; touch \"$(printf 'new\\nline')\" \"$(printf '\\377')\"; \
             head -c 100M /dev/urandom > big; sha256sum big > /root/sum"
        ),
    )
    .await;
    let files: Vec<Value> = ["link", "big"].iter().map(|name| file(&format!("{folder}/{name}"))).collect();
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    cluster.create(machine_config("50-odd", "worker", config)).await;
    cluster.settled("worker", 1, &["50-odd"], &[]).await;
    sh(
        node,
        &format!(
            "cd {folder}; test ! -L link && grep -q ours link && test ! -e /var/out && grep -q ours big"
        ),
    )
    .await;
    cluster.delete("MachineConfig", "50-odd").await;
    cluster.settled("worker", 1, &["00-worker"], &["50-odd"]).await;
    sh(node, &format!("cd {folder}; test -L link && sha256sum -c /root/sum && test \"$(ls | wc -l)\" -ge 4"))
        .await;
}

/// An unreadable journal is kept under another name and reported; the host is compared with its config, and the agent
/// continues.
async fn damaged_journal(cluster: &Cluster, node: &NodeHandle) {
    cluster
        .create(machine_config("50-before", "worker", one_file("/etc/nmstate/openshift/before", "x")))
        .await;
    cluster.settled("worker", 1, &["50-before"], &[]).await;
    for (i, text) in ["{\"format\": 1, \"sha", "nonsense"].iter().enumerate() {
        node.run(["systemctl", "stop", DAEMON_UNIT]).await.unwrap();
        let harm = format!(
            "mkdir -p -m 700 {JOURNAL}; printf '%s' '{text}' > {JOURNAL}/begin.json; systemctl start {DAEMON_UNIT}"
        );
        sh(node, &harm).await;
        cluster
            .wait("an event about the journal", async || {
                let events = cluster.events(NODE).await;
                let told = events.iter().filter(|e| {
                    e.contains(&format!("{JOURNAL}/begin.json")) && e.contains(&format!("{JOURNAL}/damaged-"))
                });
                (told.count() > i).then_some(())
            })
            .await;
        let log = node.logs(DAEMON_UNIT).await.unwrap();
        assert!(log.lines().any(|l| l.contains("begin.json") && l.contains("damaged-")), "{log}");
        let kept = node.run(["sh", "-c", &format!("cat {JOURNAL}/damaged-*.json")]).await.unwrap();
        assert!(kept.contains(text), "{kept}");
        done(cluster, "a damaged journal").await;
        assert_eq!(node.read_file("/etc/nmstate/openshift/before").await.unwrap(), "x");
    }
}
