//! OSImageStream `cluster` filled by the real controller from the labels of images in Debian's registry, on a real API server: from the
//! list of its annotation, and from the release of a cluster with a ClusterVersion; pools that name a stream get its images.
//!
//! Not here: an OSImageStream that somebody else fills (`render`), and what registries should not say (beside the code of `registry`).

use crate::product::{Cluster, machine_config, text, with_controller};
use base64::Engine as _;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

const CLASS: &str = "io.openshift.os.streamclass";
const IMAGES: &str = "machineconfig.dev/stream-images";
const FROM: &str = "machineconfig.dev/streams-from";

/// Debian's registry without TLS, and a store of buildah's to push from. Dropping it ends the registry.
struct Registry {
    child: Child,
    name: String,
    dir: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Registry {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = dir.path().display();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: '{at}/data'}}}}\n\
             http: {{addr: '127.0.0.1:{port}'}}\n"
        );
        std::fs::write(dir.path().join("config.yml"), config).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut command = Command::new("docker-registry");
        let child = command
            .arg("serve")
            .arg(dir.path().join("config.yml"))
            .stdout(std::process::Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Self { child, name: format!("127.0.0.1:{port}"), dir }
    }

    fn buildah(&self, args: &[&str]) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let output = Command::new("buildah")
            .args(["--root", &path("store"), "--runroot", &path("run"), "--storage-driver", "vfs"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Pushes an image with these labels and one file. Returns it by its digest.
    fn push(&self, name: &str, labels: &[(&str, &str)], (path, file): (&str, &str)) -> String {
        let context = tempfile::tempdir().unwrap();
        let at = |name: &str| context.path().join(name).display().to_string();
        std::fs::write(context.path().join("file"), file).unwrap();
        let labels: String = labels.iter().map(|(key, value)| format!("LABEL {key}={value}\n")).collect();
        std::fs::write(
            context.path().join("Containerfile"),
            format!("FROM scratch\nADD file {path}\n{labels}"),
        )
        .unwrap();
        let image = format!("{}/{name}", self.name);
        self.buildah(&["build", "--quiet", "--tag", &image, "--file", &at("Containerfile"), &at("")]);
        self.buildah(&["push", "--quiet", "--tls-verify=false", "--digestfile", &at("digest"), &image]);
        let digest = std::fs::read_to_string(context.path().join("digest")).unwrap();
        format!("{}@{}", image.rsplit_once(':').unwrap().0, digest.trim())
    }

    /// An OS image and its image of extensions.
    fn pair(&self, stream: &str, content: &str) -> [String; 2] {
        let name = |what: &str| format!("lab/{what}:{stream}");
        let os = [(CLASS, stream), ("containers.bootc", "1")];
        let extensions = [(CLASS, stream), ("io.openshift.os.extensions", "true")];
        [
            self.push(&name("os"), &os, ("/usr/lib/content", content)),
            self.push(&name("ext"), &extensions, ("/usr/lib/content", content)),
        ]
    }
}

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
    let registry = Registry::start().await;
    let nine = registry.pair("rhel-9", "nine");
    let ten = registry.pair("rhel-10", "ten");
    let cluster = Cluster::start(builder.nodes(0)).await;
    let conf = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.name);
    let data = base64::engine::general_purpose::STANDARD.encode(conf);
    let file = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [{
        "path": "/etc/containers/registries.conf", "overwrite": true, "contents": {"source": format!("data:;base64,{data}")}}]}});
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
    cluster.no_panic();
    cluster.stop().await;
}
