//! OSImageStream `cluster` filled by the real controller from the labels of images in Debian's registry, on a real API server: from the
//! list of its annotation, and from the release of a cluster with a ClusterVersion; pools that name a stream get its images.
//!
//! Not here: an OSImageStream that somebody else fills (`render`), and what registries should not say (beside the code of `registry`).

use crate::product::{Cluster, machine_config, text, with_controller};
use crate::real_registry::Registry;
use serde_json::{Value, json};
use std::path::Path;

const IMAGES: &str = "machineconfig.dev/stream-images";
const FROM: &str = "machineconfig.dev/streams-from";

/// Waits until the OSImageStream lists these, and nothing else.
async fn lists(cluster: &Cluster, default: &str, streams: &[(&str, &[String; 2])]) {
    let want: Vec<Value> = streams
        .iter()
        .map(|(name, [os, extensions])| json!({"name": name, "osImage": os, "osExtensionsImage": extensions}))
        .collect();
    cluster
        .wait(&format!("the streams are {want:?}"), async || {
            let status = cluster.get("OSImageStream", "cluster").await["status"].clone();
            (status["availableStreams"] == json!(want) && status["defaultStream"] == default).then_some(())
        })
        .await;
}

/// Waits until the pool's config has this pair of images.
async fn runs(cluster: &Cluster, pool: &str, [os, extensions]: &[String; 2]) {
    cluster
        .wait(&format!("pool {pool} is on {os}"), async || {
            let spec = cluster.get("MachineConfig", &cluster.rendered(pool).await).await["spec"].clone();
            (text(&spec["osImageURL"]) == *os && text(&spec["baseOSExtensionsContainerImage"]) == *extensions)
                .then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_filled_from_a_registry_and_from_a_release() {
    let Some(builder) = with_controller() else { return };
    if !lab::require_root() {
        return;
    }
    lab::ensure_test_packages(&lab::Reporter::stderr()).await.unwrap();
    let registry = Registry::start(false).await;
    let nine = registry.pair("rhel-9", "nine");
    let ten = registry.pair("rhel-10", "ten");
    let cluster = Cluster::start(builder.nodes(0)).await;
    let file = registry.insecure();
    cluster.create(machine_config("50-registry", "worker", file)).await;
    cluster.add_pool("infra", &[]).await;
    cluster.settled("worker", 0, &["50-registry"], &[]).await;

    let tags = |streams: &[&str]| -> String {
        let of = |stream: &&str| {
            ["os", "ext"].map(|what| format!("{}/lab/{what}:{stream}", registry.name)).join(" ")
        };
        streams.iter().map(of).collect::<Vec<_>>().join(" ")
    };
    let both = tags(&["rhel-9", "rhel-10"]);
    cluster
        .create(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
            "metadata": {"name": "cluster", "annotations": {IMAGES: both}}, "spec": {"defaultStream": "rhel-9"},
        }))
        .await;
    lists(&cluster, "rhel-9", &[("rhel-10", &ten), ("rhel-9", &nine)]).await;
    for pool in ["worker", "infra", "master"] {
        runs(&cluster, pool, &nine).await;
    }
    cluster
        .patch("MachineConfigPool", "infra", json!({"spec": {"osImageStream": {"name": "rhel-10"}}}))
        .await;
    runs(&cluster, "infra", &ten).await;
    runs(&cluster, "worker", &nine).await;

    // An image that is not there: what was filled stays, and pools say why.
    let annotate = async |value: Value| {
        cluster
            .patch("OSImageStream", "cluster", json!({"metadata": {"annotations": {IMAGES: value}}}))
            .await;
    };
    let missing = format!("{both} {}/lab/none:1", registry.name);
    annotate(json!(missing)).await;
    cluster
        .wait("a pool names the image that is not there", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            let said = pool["status"]["conditions"].to_string();
            (said.contains("OSImageStream cluster is not filled") && said.contains("lab/none:1"))
                .then_some(())
        })
        .await;
    lists(&cluster, "rhel-9", &[("rhel-10", &ten), ("rhel-9", &nine)]).await;
    annotate(json!(both)).await;
    cluster
        .wait("the pool has no more to say", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            (!pool["status"]["conditions"].to_string().contains("is not filled")).then_some(())
        })
        .await;

    // Without the list, a release: the images of its ConfigMap, which the operator has put into the ControllerConfig, and over
    // them what its image lists.
    let newer = registry.pair("rhel-10", "ten of the release");
    assert_ne!(newer, ten);
    let tag = |name: &str, image: &str| json!({"name": name, "from": {"kind": "DockerImage", "name": image}});
    let references = json!({"kind": "ImageStream", "spec": {"tags": [
        tag("rhel-coreos-10", &newer[0]), tag("rhel-coreos-10-extensions", &newer[1]), tag("etcd", "q.invalid/etcd:1"),
    ]}});
    let release = registry.push(
        "lab/release:1",
        &[("io.openshift.release", "4.22.1")],
        ("/release-manifests/image-references", &references.to_string()),
    );
    annotate(Value::Null).await;
    let bases = json!({"spec": {"baseOSContainerImage": nine[0], "baseOSExtensionsContainerImage": nine[1]}});
    cluster.patch("ControllerConfig", "machine-config-controller", bases).await;
    let crd =
        Path::new("deploy/crds/openshift/clusterversions.config.openshift.io.yaml").display().to_string();
    let said = cluster.kubectl(&["apply", "-f", &crd]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said =
        cluster.kubectl(&["wait", "--for", "condition=Established", "--timeout=60s", "crd", "--all"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let version = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
        "spec": {"clusterID": "5d2c1f1e-0000-4000-8000-000000000000"},
    });
    let file = cluster.lab.folder().join("version.json");
    std::fs::write(&file, version.to_string()).unwrap();
    let said = cluster.kubectl(&["create", "-f", &file.display().to_string()]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let status = json!({"status": {
        "desired": {"image": release, "version": "4.22.1"},
        "availableUpdates": [], "observedGeneration": 1, "versionHash": "lab",
    }})
    .to_string();
    let patch = ["patch", "clusterversion", "version", "--subresource=status", "--type=merge", "-p", &status];
    let said = cluster.kubectl(&patch).await;
    assert_eq!(said.code, 0, "{said:?}");
    lists(&cluster, "rhel-9", &[("rhel-10", &newer), ("rhel-9", &nine)]).await;
    runs(&cluster, "infra", &newer).await;
    let object = cluster.get("OSImageStream", "cluster").await;
    assert!(text(&object["metadata"]["annotations"][FROM]).ends_with(&release), "{object}");
    // As after a controller that ended between its two writes: the status is known for our own, and filled again.
    cluster
        .patch("OSImageStream", "cluster", json!({"metadata": {"annotations": {FROM: Value::Null}}}))
        .await;
    cluster
        .wait("the fill that was cut off is done again", async || {
            let object = cluster.get("OSImageStream", "cluster").await;
            text(&object["metadata"]["annotations"][FROM]).ends_with(&release).then_some(())
        })
        .await;
    lists(&cluster, "rhel-9", &[("rhel-10", &newer), ("rhel-9", &nine)]).await;
    cluster.no_panic();
    cluster.stop().await;
}
