//! Settings in a cluster: KubeletConfigs, ContainerRuntimeConfigs and registries become MachineConfigs of their pools,
//! report the result, and are removed completely when they are deleted.

use crate::product::{Cluster, MCO, condition, machine_config, one_file, text, with_controller};
use serde_json::{Value, json};
use std::time::Duration;

const LAYERS: &str = "machineconfiguration.openshift.io/template-layers";
const SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";
/// The path of the kubelet's settings on hosts that kubeadm has set up.
const DROP_IN: &str = "/etc/kubernetes/kubelet.conf.d/50-mco.conf";

fn setting(kind: &str, name: &str, pool: &str, mut spec: Value) -> Value {
    spec["machineConfigPoolSelector"] = json!({"matchLabels": {"settings": pool}});
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

fn kubelet_config(name: &str, pool: &str, max_pods: u32) -> Value {
    setting("KubeletConfig", name, pool, json!({"kubeletConfig": {"maxPods": max_pods}}))
}

/// A lab with one node in pool worker and one in pool infra, both labelled for settings.
async fn lab() -> Option<Cluster> {
    let builder = with_controller()?.nodes(2).simulated().reboot_time(Duration::from_millis(50));
    let cluster = Cluster::start(builder).await;
    cluster.add_pool("infra", &["worker-1"]).await;
    for pool in ["worker", "infra"] {
        cluster.patch("MachineConfigPool", pool, json!({"metadata": {"labels": {"settings": pool}}})).await;
    }
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    cluster.settled("infra", 1, &["00-worker"], &[]).await;
    Some(cluster)
}

/// Waits until the object's last condition contains these words.
async fn verdict(cluster: &Cluster, kind: &str, name: &str, last: &str, words: &[&str]) -> Value {
    cluster
        .wait(&format!("{kind} {name}: {last} with {words:?}"), async || {
            let object = cluster.get(kind, name).await;
            let condition = object["status"]["conditions"].as_array()?.last()?.clone();
            let observed = object["status"]["observedGeneration"] == object["metadata"]["generation"];
            let says = words.iter().all(|w| text(&condition["message"]).contains(w));
            (observed && condition["type"] == last && condition["status"] == "True" && says).then_some(object)
        })
        .await
}

async fn healthy(cluster: &Cluster, pool: &str) {
    cluster
        .wait(&format!("pool {pool} is healthy"), async || {
            let found = cluster.get("MachineConfigPool", pool).await;
            ["RenderDegraded", "Degraded"].iter().all(|c| condition(&found, c).is_none()).then_some(())
        })
        .await;
}

async fn gone(cluster: &Cluster, kind: &str, name: &str) {
    cluster
        .wait(&format!("{kind} {name} is gone"), async || {
            cluster.get(kind, name).await.is_null().then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_configs_reach_their_nodes_and_are_removed_completely() {
    let Some(cluster) = lab().await else { return };

    // Without the template layer, other tools manage the kubelet's files: nothing is generated, and the message says how
    // to change that.
    assert!(cluster.get("MachineConfig", "98-worker-generated-kubelet").await.is_null());
    cluster.create(kubelet_config("first", "worker", 111)).await;
    verdict(
        &cluster,
        "KubeletConfig",
        "first",
        "Failure",
        &["KubeletConfig first", "template-layers=kubeadm"],
    )
    .await;
    cluster.complains("worker", "RenderDegraded", &["KubeletConfig first", "template-layers"]).await;
    cluster.create(machine_config("50-infra", "infra", one_file("/etc/infra", "x"))).await;
    cluster.settled("infra", 1, &["50-infra"], &[]).await;

    let layers = json!({"metadata": {"annotations": {LAYERS: "kubeadm"}}});
    cluster.patch("ControllerConfig", "machine-config-controller", layers).await;
    let all = ["97-worker-generated-kubelet", "98-worker-generated-kubelet", "99-worker-generated-kubelet"];
    cluster.settled("worker", 1, &all, &[]).await;
    healthy(&cluster, "worker").await;
    let first = verdict(&cluster, "KubeletConfig", "first", "Success", &["Success"]).await;
    assert_eq!(first["metadata"]["annotations"][SUFFIX], "");
    assert_eq!(first["metadata"]["finalizers"], json!(["99-worker-generated-kubelet"]));
    let made = cluster.get("MachineConfig", "99-worker-generated-kubelet").await;
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], first["metadata"]["uid"]);
    assert_eq!(made["metadata"]["labels"][format!("{MCO}role")], "worker");
    let on_host = async |node: usize| cluster.lab.node(node).read_file(DROP_IN).await.unwrap();
    assert!(on_host(0).await.contains("maxPods: 111"), "{}", on_host(0).await);
    // The other pool has the template layer, but not the setting.
    cluster.settled("infra", 1, &["98-infra-generated-kubelet"], &["99-infra-generated-kubelet"]).await;
    assert!(!on_host(1).await.contains("maxPods"), "{}", on_host(1).await);

    // The second object gets a number as suffix, and takes precedence.
    cluster.create(kubelet_config("second", "worker", 222)).await;
    cluster
        .settled("worker", 1, &["99-worker-generated-kubelet", "99-worker-generated-kubelet-1"], &[])
        .await;
    let second = verdict(&cluster, "KubeletConfig", "second", "Success", &[]).await;
    assert_eq!(second["metadata"]["annotations"][SUFFIX], "1");
    assert!(on_host(0).await.contains("maxPods: 222"));

    refused_and_put_back(&cluster).await;

    // The object now selects another pool: the first pool's MachineConfig is removed, and the name stays the same.
    let other = json!({"spec": {"machineConfigPoolSelector": {"matchLabels": {"settings": "infra"}}}});
    cluster.patch("KubeletConfig", "second", other).await;
    cluster.settled("infra", 1, &["99-infra-generated-kubelet-1"], &[]).await;
    cluster.settled("worker", 1, &["99-worker-generated-kubelet"], &["99-worker-generated-kubelet-1"]).await;
    gone(&cluster, "MachineConfig", "99-worker-generated-kubelet-1").await;
    assert!(on_host(0).await.contains("maxPods: 111") && on_host(1).await.contains("maxPods: 222"));

    // Nothing remains of them.
    for name in ["first", "second"] {
        cluster.delete("KubeletConfig", name).await;
    }
    for name in ["first", "second"] {
        gone(&cluster, "KubeletConfig", name).await;
    }
    cluster.settled("worker", 1, &["98-worker-generated-kubelet"], &["99-worker-generated-kubelet"]).await;
    cluster.settled("infra", 1, &[], &["99-infra-generated-kubelet-1"]).await;
    assert!(!on_host(0).await.contains("maxPods"));

    // Then the layer is removed. Its file goes too, since there was none at its path before.
    let layers = json!({"metadata": {"annotations": {LAYERS: null}}});
    cluster.patch("ControllerConfig", "machine-config-controller", layers).await;
    cluster
        .settled("worker", 1, &["00-worker"], &["97-worker-generated-kubelet", "98-worker-generated-kubelet"])
        .await;
    assert!(!cluster.lab.node(0).root().join(DROP_IN.trim_start_matches('/')).exists());
    cluster.no_panic();
    cluster.stop().await;
}

/// An invalid setting keeps the last good state and names the field; an edit of a generated MachineConfig is reverted.
async fn refused_and_put_back(cluster: &Cluster) {
    let before = cluster.get("MachineConfig", "99-worker-generated-kubelet").await;
    let node = cluster.get("Node", "worker-0").await;
    let bad = json!({"spec": {"kubeletConfig": {"clusterDomain": "example.org"}}});
    cluster.patch("KubeletConfig", "first", bad).await;
    let words = ["KubeletConfig first", "spec.kubeletConfig.clusterDomain", "remove it"];
    verdict(cluster, "KubeletConfig", "first", "Failure", &words).await;
    cluster.complains("worker", "RenderDegraded", &words).await;
    let after = cluster.get("MachineConfig", "99-worker-generated-kubelet").await;
    assert_eq!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(
        cluster.get("Node", "worker-0").await["metadata"]["annotations"][format!("{MCO}desiredConfig")],
        node["metadata"]["annotations"][format!("{MCO}desiredConfig")]
    );
    healthy(cluster, "infra").await;
    let good = json!({"spec": {"kubeletConfig": {"clusterDomain": null}}});
    cluster.patch("KubeletConfig", "first", good).await;
    verdict(cluster, "KubeletConfig", "first", "Success", &[]).await;
    healthy(cluster, "worker").await;

    let edit = json!({"spec": {"kernelArguments": ["quiet"]}});
    cluster.patch("MachineConfig", "99-worker-generated-kubelet", edit).await;
    cluster
        .wait("an event that names the KubeletConfig", async || {
            let events = cluster.events("99-worker-generated-kubelet").await;
            let ours = events.into_iter().find(|e| e.starts_with("PutBack"))?;
            (ours.contains("spec.kernelArguments") && ours.contains("KubeletConfig first")).then_some(())
        })
        .await;
    cluster
        .wait("the edit is put back", async || {
            let now = cluster.get("MachineConfig", "99-worker-generated-kubelet").await;
            (now["spec"] == before["spec"]).then_some(())
        })
        .await;
    // The invalid setting never reached a node.
    assert_eq!(
        cluster.get("Node", "worker-0").await["metadata"]["annotations"][format!("{MCO}desiredConfig")],
        node["metadata"]["annotations"][format!("{MCO}desiredConfig")]
    );
}

fn mirrors(kind: &str, name: &str, policy: &str) -> Value {
    let field = if kind == "ImageDigestMirrorSet" { "imageDigestMirrors" } else { "imageTagMirrors" };
    json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {field: [{
            "source": "registry.example.org/app", "mirrors": ["mirror.example.org/app"], "mirrorSourcePolicy": policy,
        }]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn registries_and_runtimes_are_followed_once_their_kinds_are_installed() {
    let Some(cluster) = lab().await else { return };
    let registries = "99-worker-generated-registries";
    assert!(cluster.get("MachineConfig", registries).await.is_null());

    // The OpenShift kinds are installed while the controller runs.
    let said = cluster.kubectl(&["apply", "-f", "deploy/crds/openshift"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said =
        cluster.kubectl(&["wait", "--for", "condition=Established", "--timeout=60s", "crd", "--all"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    cluster.create(mirrors("ImageDigestMirrorSet", "good", "AllowContactingSource")).await;
    cluster.settled("worker", 1, &[registries], &[]).await;
    let conf = async || cluster.lab.node(0).read_file("/etc/containers/registries.conf").await.unwrap();
    assert!(conf().await.contains("mirror.example.org/app"), "{}", conf().await);
    // Custom pools inherit it from worker.
    cluster.settled("infra", 1, &[registries], &[]).await;
    cluster
        .create(json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "Image",
            "metadata": {"name": "cluster"},
            "spec": {"registrySources": {"insecureRegistries": ["insecure.example.org"]}},
        }))
        .await;
    cluster
        .wait("an insecure registry on the node", async || {
            conf().await.contains("insecure.example.org").then_some(())
        })
        .await;
    let made = cluster.get("MachineConfig", registries).await;
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "Image");

    // Two objects that contradict each other: the last good state stays, and the pools name both.
    cluster.create(mirrors("ImageTagMirrorSet", "bad", "NeverContactSource")).await;
    let words = ["ImageTagMirrorSet bad", "spec.imageTagMirrors[0].mirrorSourcePolicy", "make them agree"];
    cluster.complains("worker", "RenderDegraded", &words).await;
    let now = cluster.get("MachineConfig", registries).await;
    assert_eq!(now["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    cluster.delete("ImageTagMirrorSet", "bad").await;
    healthy(&cluster, "worker").await;

    signatures(&cluster).await;
    container_runtime(&cluster).await;

    // A deprecated field for feature gates, for clusters where no operator writes the status.
    let layers = json!({"metadata": {"annotations": {LAYERS: "kubeadm"}}});
    cluster.patch("ControllerConfig", "machine-config-controller", layers).await;
    cluster.create(json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "FeatureGate",
        "metadata": {"name": "cluster"},
        "spec": {"featureSet": "CustomNoUpgrade", "customNoUpgrade": {"enabled": ["NodeSwap"], "disabled": []}},
    })).await;
    cluster
        .wait("a feature gate on the node", async || {
            let said = cluster.lab.node(0).read_file(DROP_IN).await.ok()?;
            said.contains("NodeSwap: true").then_some(())
        })
        .await;

    cluster.delete("ImageDigestMirrorSet", "good").await;
    cluster.delete("Image", "cluster").await;
    gone(&cluster, "MachineConfig", registries).await;
    cluster.settled("worker", 1, &["00-worker"], &[registries]).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// Signature policies, for the whole cluster and for one namespace.
async fn signatures(cluster: &Cluster) {
    let policy = |kind: &str, name: &str, scopes: &[&str]| {
        json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"scopes": scopes, "policy": {"rootOfTrust": {
                // The beginning and end that a PEM key must have, in base64.
                "policyType": "PublicKey", "publicKey": {"keyData":
                    "LS0tLS1CRUdJTiBQVUJMSUMgS0VZLS0tLS0KeAotLS0tLUVORCBQVUJMSUMgS0VZLS0tLS0K"},
            }}},
        })
    };
    cluster.create(policy("ClusterImagePolicy", "all", &["registry.example.org/app"])).await;
    let file =
        folder("own.json", &policy("ImagePolicy", "own", &["registry.example.org/app/x", "own.example.org"]));
    let said = cluster.kubectl(&["apply", "-n", "default", "-f", &file]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let read = async |path: &str| -> Option<Value> {
        serde_json::from_str(&cluster.lab.node(0).read_file(path).await.ok()?).ok()
    };
    cluster
        .wait("policies on the node", async || {
            let all = read("/etc/containers/policy.json").await?;
            let own = read("/etc/crio/policies/default.json").await?;
            assert!(all["transports"]["docker"].get("own.example.org").is_none(), "{all}");
            let signed =
                |v: &Value, scope: &str| v["transports"]["docker"][scope][0]["type"] == "sigstoreSigned";
            (signed(&all, "registry.example.org/app") && signed(&own, "own.example.org")).then_some(())
        })
        .await;
    // The signatures of mirrored images are looked up beside the mirror's.
    let beside = cluster.lab.node(0).read_file("/etc/containers/registries.d/sigstore-registries.yaml").await;
    assert!(beside.unwrap().contains("mirror.example.org/app"));
    let said = cluster
        .wait("the policy of the namespace says what has no effect", async || {
            let said = cluster.kubectl(&["get", "-n", "default", "imagepolicy", "own", "-o", "json"]).await;
            let object: Value = serde_json::from_str(&said.out).ok()?;
            object["status"]["conditions"].as_array().cloned()
        })
        .await;
    assert_eq!(
        (said.len(), &said[0]["type"], &said[0]["reason"]),
        (1, &json!("Pending"), &json!("ConflictScopes"))
    );
    assert!(text(&said[0]["message"]).contains("registry.example.org/app/x"), "{said:?}");
    cluster.delete("ClusterImagePolicy", "all").await;
    cluster
        .wait("the conflict is over", async || {
            let said = cluster.kubectl(&["get", "-n", "default", "imagepolicy", "own", "-o", "json"]).await;
            let object: Value = serde_json::from_str(&said.out).ok()?;
            object.pointer("/status/conditions").is_none_or(Value::is_null).then_some(())
        })
        .await;
    let said = cluster.kubectl(&["delete", "-n", "default", "imagepolicy", "own"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    cluster
        .wait("nothing need be signed", async || {
            (!cluster.lab.node(0).root().join("etc/crio/policies/default.json").exists()).then_some(())
        })
        .await;
}

/// A file for `kubectl`, which sets namespaces.
fn folder(name: &str, object: &Value) -> String {
    let path = std::env::temp_dir().join(format!("mco-test-{}-{name}", std::process::id()));
    std::fs::write(&path, object.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

async fn container_runtime(cluster: &Cluster) {
    let spec = |pids: i64| json!({"containerRuntimeConfig": {"pidsLimit": pids}});
    cluster.create(setting("ContainerRuntimeConfig", "limits", "worker", spec(2048))).await;
    let name = "99-worker-generated-containerruntime";
    cluster.settled("worker", 1, &[name], &[]).await;
    verdict(cluster, "ContainerRuntimeConfig", "limits", "Success", &["Success"]).await;
    let path = "/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit";
    let on_host = cluster.lab.node(0).read_file(path).await.unwrap();
    assert!(on_host.contains("pids_limit = 2048"), "{on_host}");
    cluster.patch("ContainerRuntimeConfig", "limits", json!({ "spec": spec(5) })).await;
    let words = ["ContainerRuntimeConfig limits", "spec.containerRuntimeConfig.pidsLimit", "at least 20"];
    verdict(cluster, "ContainerRuntimeConfig", "limits", "Failure", &words).await;
    cluster.complains("worker", "RenderDegraded", &words).await;
    assert!(cluster.lab.node(0).read_file(path).await.unwrap().contains("2048"));
    // The setting applies to no pool: this is reported, and blocks nothing.
    let nobody = json!({"spec": {"machineConfigPoolSelector": {"matchLabels": {"settings": "nobody"}}, "containerRuntimeConfig": {"pidsLimit": 64}}});
    cluster.patch("ContainerRuntimeConfig", "limits", nobody).await;
    verdict(
        cluster,
        "ContainerRuntimeConfig",
        "limits",
        "Failure",
        &["could not find any MachineConfigPool"],
    )
    .await;
    cluster.settled("worker", 1, &["00-worker"], &[name]).await;
    healthy(cluster, "worker").await;
    cluster.delete("ContainerRuntimeConfig", "limits").await;
    gone(cluster, "ContainerRuntimeConfig", "limits").await;
}
