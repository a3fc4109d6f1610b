//! The MachineConfigs made from templates: they are restored when somebody changes them, with an event that says where
//! to make the change instead, and made again when the templates, the pull secret or the ControllerConfig change.

use crate::product;
use crate::product::controllers::Controller;
use crate::product::{Cluster, condition, lab, one_file, repository, text};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// The files that a MachineConfig has.
async fn files(cluster: &Cluster, name: &str) -> Vec<Value> {
    let config = cluster.get("MachineConfig", name).await;
    config.pointer("/spec/config/storage/files").and_then(Value::as_array).cloned().unwrap_or_default()
}

async fn has(cluster: &Cluster, name: &str, path: &str, words: &str) {
    cluster
        .wait(&format!("{name} has {path} with {words:?}"), async || {
            let files = files(cluster, name).await;
            let file = files.iter().find(|f| f["path"] == path)?;
            text(&file["contents"]["source"]).contains(words).then_some(())
        })
        .await;
}

/// Waits until the file on the node contains these words.
async fn on_node(cluster: &Cluster, path: &str, words: &str) {
    cluster
        .wait(&format!("{path} on the node has {words:?}"), async || {
            cluster.lab.node(0).read_file(path).await.ok()?.contains(words).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_are_reverted_with_a_hint_and_template_inputs_are_followed() {
    let Some(builder) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let templates = folder.path().join("templates");
    copy(&repository().join("templates"), &templates);
    let builder = builder.templates(&templates).controller(true).nodes(1).simulated();
    let cluster = Cluster::start(builder.reboot_time(Duration::from_millis(50))).await;
    cluster.settled("worker", 1, &["00-worker", "01-worker-kubelet"], &[]).await;
    let rendered = cluster.rendered("worker").await;

    put_back(&cluster).await;
    // No edit reached a node.
    let node = cluster.get("Node", "worker-0").await;
    assert_eq!(product::note(&node, "desiredConfig"), rendered);

    // A template that is added while the controller runs, and a broken one.
    let place = templates.join("common/_base/files/added.yaml");
    std::fs::write(&place, "# why\npath: /etc/added\nmode: 0644\ncontents: {inline: first}\n").unwrap();
    has(&cluster, "00-worker", "/etc/added", "first").await;
    on_node(&cluster, "/etc/added", "first").await;
    std::fs::write(&place, "path: /etc/added\nmode: 0644\ncontents: {inline: {{ nonsense }}}\n").unwrap();
    cluster.complains("worker", "RenderDegraded", &["common/_base/files/added.yaml", "undefined"]).await;
    assert_eq!(cluster.lab.node(0).read_file("/etc/added").await.unwrap(), "first");
    std::fs::write(&place, "path: /etc/added\nmode: 0644\ncontents: {inline: second}\n").unwrap();
    has(&cluster, "00-worker", "/etc/added", "second").await;
    std::fs::remove_file(&place).unwrap();
    cluster
        .wait("the file is gone with its template", async || {
            let files = files(&cluster, "00-worker").await;
            (!files.is_empty() && files.iter().all(|f| f["path"] != "/etc/added")).then_some(())
        })
        .await;

    pull_secret(&cluster).await;
    layers(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}

async fn put_back(cluster: &Cluster) {
    for (name, instead) in [
        ("00-worker", "50-worker-mine"),
        ("01-worker-kubelet", "50-worker-mine"),
        ("01-worker-container-runtime", "50-worker-mine"),
        ("00-master", "50-master-mine"),
    ] {
        let before = cluster.get("MachineConfig", name).await;
        cluster
            .patch("MachineConfig", name, json!({"spec": {"config": one_file("/etc/edited", "secret-text")}}))
            .await;
        cluster
            .wait(&format!("{name} is put back"), async || {
                let now = cluster.get("MachineConfig", name).await;
                (now["spec"] == before["spec"]).then_some(())
            })
            .await;
        let event = cluster
            .wait(&format!("an event about {name}"), async || {
                let events = cluster.events(name).await;
                events.into_iter().find(|e| e.starts_with("PutBack") && e.contains(instead))
            })
            .await;
        assert!(event.contains("spec.config") && event.contains("templates"), "{event}");
        assert!(!event.contains("secret-text"), "{event}");
    }
    // Deleted, it is created again.
    let before = cluster.get("MachineConfig", "01-master-kubelet").await;
    cluster.delete("MachineConfig", "01-master-kubelet").await;
    cluster
        .wait("01-master-kubelet is made again", async || {
            let now = cluster.get("MachineConfig", "01-master-kubelet").await;
            (now["spec"] == before["spec"] && now["metadata"]["uid"] != before["metadata"]["uid"])
                .then_some(())
        })
        .await;
    cluster
        .wait("an event about it", async || {
            let events = cluster.events("01-master-kubelet").await;
            events.into_iter().find(|e| e.starts_with("PutBack") && e.contains("deleted")).map(drop)
        })
        .await;
}

async fn pull_secret(cluster: &Cluster) {
    let path = "/var/lib/kubelet/config.json";
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "default");
    let secret = |user: &str| {
        json!({"metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": json!({"auths": {"r.example": {"username": user}}}).to_string()}})
    };
    let at = json!({"spec": {"pullSecret": {"namespace": "default", "name": "pull"}}});
    cluster.patch("ControllerConfig", "machine-config-controller", at).await;
    // A pull secret that does not exist yet is reported, and used when it is created.
    cluster.complains("worker", "RenderDegraded", &["default/pull", "does not exist"]).await;
    secrets.create(&PostParams::default(), &serde_json::from_value(secret("one")).unwrap()).await.unwrap();
    has(cluster, "00-worker", path, "one").await;
    cluster
        .wait("pool worker is healthy", async || {
            condition(&cluster.get("MachineConfigPool", "worker").await, "RenderDegraded")
                .is_none()
                .then_some(())
        })
        .await;
    secrets.patch("pull", &PatchParams::default(), &Patch::Merge(secret("two"))).await.unwrap();
    has(cluster, "00-worker", path, "two").await;
    let log = std::fs::read_to_string(cluster.lab.controller_log()).unwrap();
    assert!(!log.contains("r.example"), "the pull secret is in the log");
}

async fn layers(cluster: &Cluster) {
    let set = async |layers: &str| {
        let note = json!({"metadata": {"annotations": {"machineconfiguration.openshift.io/template-layers": layers}}});
        cluster.patch("ControllerConfig", "machine-config-controller", note).await;
    };
    set("containerd,nonsense").await;
    cluster.complains("worker", "RenderDegraded", &["template-layers", "nonsense", "kubeadm"]).await;
    set("containerd,core-user").await;
    has(cluster, "01-worker-container-runtime", "/etc/containerd/config.toml", "SystemdCgroup").await;
    on_node(cluster, "/etc/systemd/system/containerd.service.d/10-mco-proxy.conf", "/etc/mco/proxy.env")
        .await;
}

/// While no controller runs, somebody edits one of its MachineConfigs, and the settings of another one change. The next
/// controller reverts the edit and reports it; the changed settings are not reported as an edit.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_made_while_no_controller_ran_is_reverted_and_a_changed_setting_is_no_edit() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder.nodes(0)).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let kubeconfig = cluster.lab.kubeconfig().to_owned();
    let controller = Controller::alone(&cluster, &kubeconfig);
    cluster.settled("worker", 0, &["00-worker", "01-worker-kubelet"], &[]).await;
    controller.stop().await;
    let before = cluster.get("MachineConfig", "01-worker-kubelet").await;
    cluster
        .patch(
            "MachineConfig",
            "01-worker-kubelet",
            json!({"spec": {"config": one_file("/etc/edited", "secret-text")}}),
        )
        .await;
    let layers = json!({"metadata": {"annotations": {"machineconfiguration.openshift.io/template-layers": "containerd"}}});
    cluster.patch("ControllerConfig", "machine-config-controller", layers).await;

    let controller = Controller::alone(&cluster, &kubeconfig);
    let about = |name: &'static str| {
        let cluster = &cluster;
        async move {
            let events = cluster.events(name).await;
            events.into_iter().find(|e| e.starts_with("PutBack"))
        }
    };
    let event = cluster.wait("an event about the edit", async || about("01-worker-kubelet").await).await;
    assert!(event.contains("50-worker-mine") && !event.contains("secret-text"), "{event}");
    assert_eq!(cluster.get("MachineConfig", "01-worker-kubelet").await["spec"], before["spec"]);
    has(&cluster, "01-worker-container-runtime", "/etc/containerd/config.toml", "SystemdCgroup").await;
    assert_eq!(about("01-worker-container-runtime").await, None, "a setting has changed, which is no edit");
    controller.stop().await;
    cluster.no_panic();
    cluster.stop().await;
}
