//! PinnedImageSets on real containerd, with Debian's registry: images are pulled before any pod asks for them, through a
//! registry that cuts its connections, and get containerd's label; a set with an image that does not exist is reported and
//! affects no other set; a deleted set's images lose the label.
//!
//! Not here: CRI-O, which Debian does not have (a fake one is in `daemon`, `pinned_images/`).

use crate::debs;
use crate::product::{Cluster, MCO, one_machine};
use lab::{Kubelet, NodeHandle};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const NODE: &str = "worker-0";
/// The registry's address for the node: containerd uses plain HTTP on the loopback address.
const REGISTRY: &str = "127.0.0.1:5000";
/// The port on which the registry itself listens.
const BEHIND: u16 = 5001;
/// The size of the image's layer, and the bytes after which a connection is cut.
const LAYER: usize = 24 << 20;
const CUT: usize = 5 << 20;

/// Makes and pushes an image with one layer of random bytes; the last line of the output is its digest.
const PUSH: &str = r#"set -e
cd /var/tmp; rm -rf oci layer; mkdir -p oci/blobs/sha256 layer
head -c SIZE /dev/urandom > layer/noise
tar -C layer -cf layer.tar noise
put() { digest=$(sha256sum "$1" | cut -d' ' -f1); size=$(stat -c %s "$1"); mv "$1" "oci/blobs/sha256/$digest"; }
put layer.tar; layer=$digest; layer_size=$size
printf '{"architecture":"%s","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$(dpkg --print-architecture)" "$layer" > config; put config; config=$digest; config_size=$size
oci=application/vnd.oci.image
printf '{"schemaVersion":2,"mediaType":"%s.manifest.v1+json","config":{"mediaType":"%s.config.v1+json","digest":"sha256:%s","size":%s},"layers":[{"mediaType":"%s.layer.v1.tar","digest":"sha256:%s","size":%s}]}' \
    $oci $oci "$config" "$config_size" $oci "$layer" "$layer_size" > manifest; cp manifest kept-manifest; put manifest
printf '{"schemaVersion":2,"manifests":[{"mediaType":"%s.manifest.v1+json","digest":"sha256:%s","size":%s,"annotations":{"io.containerd.image.name":"NAME:1"}}]}' \
    $oci "$digest" "$size" > oci/index.json
printf '{"imageLayoutVersion":"1.0.0"}' > oci/oci-layout
tar -C oci -cf image.tar .
ctr -n lab images import image.tar >&2
ctr -n lab images push --plain-http NAME:1 >&2
ctr -n lab images rm --sync NAME:1 >&2
rm -rf oci layer image.tar
echo "sha256:$digest"
"#;

/// A manifest of an image whose one layer has so many bytes that no disk has room for it. It would be elsewhere, so the registry does
/// not ask for it. The last line of the output is its digest.
const HUGE: &str = r#"set -e
cd /var/tmp
layer=$(printf '%064d' 0)
sed "s|\"layers\":.*|\"layers\":[{\"mediaType\":\"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip\",\"digest\":\"sha256:$layer\",\"size\":SIZE,\"urls\":[\"https://lab.invalid/layer\"]}]}|" kept-manifest > huge
digest=$(sha256sum huge | cut -d' ' -f1)
exec 3<>/dev/tcp/127.0.0.1/PORT
printf 'PUT /v2/lab/noise/manifests/sha256:%s HTTP/1.1\r\nHost: lab\r\nConnection: close\r\nContent-Type: application/vnd.oci.image.manifest.v1+json\r\nContent-Length: %s\r\n\r\n' "$digest" "$(stat -c %s huge)" >&3
cat huge >&3
answer=$(head -n 1 <&3)
case $answer in *' 201 '*) ;; *) echo "$answer $(cat <&3)" >&2; exit 1 ;; esac
echo "sha256:$digest"
"#;

/// Starts Debian's registry on the node.
const SERVE: &str = r#"set -e
systemctl disable --now docker-registry 2>/dev/null || true
printf 'version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: /var/lib/lab-registry\nhttp:\n  addr: 0.0.0.0:PORT\nvalidation:\n  manifests:\n    urls:\n      allow: [".*"]\n' > /etc/lab-registry.yml
systemd-run --quiet --unit=lab-registry docker-registry serve /etc/lab-registry.yml
for _ in $(seq 100); do if bash -c 'exec 3<>/dev/tcp/127.0.0.1/PORT' 2>/dev/null; then exit 0; fi; sleep 0.1; done
exit 1
"#;

#[tokio::test(flavor = "multi_thread")]
async fn containerd_pulls_and_pins_what_a_set_names_and_nothing_else() {
    let Some(cluster) = one_machine(|lab| lab.kubelet(Kubelet::Real)).await else { return };
    let node = cluster.lab.node(0);
    if !debs::install(&cluster, &node, &["docker-registry"]).await {
        return cluster.stop().await;
    }
    node.run(["sh", "-c", &SERVE.replace("PORT", &BEHIND.to_string())]).await.unwrap();
    let behind = SocketAddr::new(cluster.lab.real_node(0).unwrap().address(), BEHIND);
    let host = cluster.lab.bridge().unwrap().gateway();
    let cuts = Arc::new(AtomicU32::new(0));
    let proxy = cutting(SocketAddr::new(host, 0), behind, cuts.clone()).await;
    let near = format!("ListenStream={REGISTRY}");
    let far = proxy.to_string();
    node.run([
        "systemd-run",
        "--quiet",
        "--unit=near-registry",
        "--socket-property",
        &near,
        "/lib/systemd/systemd-socket-proxyd",
        &far,
    ])
    .await
    .unwrap();

    // The node's disk is this computer's, of which less may be free than a node wants by default.
    let little = "mkdir -p /var/lib/kubelet && echo 'evictionHard: {imagefs.available: 1Gi}' > /var/lib/kubelet/config.yaml";
    node.run(["sh", "-c", little]).await.unwrap();

    // Pushed past the proxy, which would cut the connection.
    let name = format!("127.0.0.1:{BEHIND}/lab/noise");
    let push = PUSH.replace("SIZE", &LAYER.to_string()).replace("NAME", &name);
    let said = node.run(["sh", "-c", &push]).await.unwrap();
    let digest = said.trim().lines().last().unwrap().to_owned();
    let image = format!("{REGISTRY}/lab/noise@{digest}");
    let missing = format!("{REGISTRY}/lab/none@sha256:{}", "0".repeat(64));

    let by_tag = set("tagged", &[&format!("{REGISTRY}/lab/noise:1")]);
    let refused = cluster
        .api("PinnedImageSet")
        .create(&Default::default(), &serde_json::from_value(by_tag).unwrap())
        .await;
    assert!(refused.unwrap_err().to_string().contains("with its digest"));

    cluster.create(set("noise", &[&image])).await;
    let progressing = cluster
        .wait("the image is pulled and pinned", async || {
            let node = cluster.get("MachineConfigNode", NODE).await;
            let state = &node["status"]["pinnedImageSets"][0];
            let done = state["currentGeneration"] == 1 && state["desiredGeneration"] == 1;
            said_of(&node, "PinnedImageSetsProgressing").filter(|(status, _)| done && status == "False")
        })
        .await;
    assert!(progressing.1.starts_with("All pinned image sets complete"), "{progressing:?}");
    assert!(cuts.load(Ordering::Relaxed) >= 3, "the registry has cut nothing");
    let labels = labels(&node, &image).await;
    assert!(labels.contains("io.cri-containerd.pinned=pinned"), "{labels}");
    cluster.wait("the pool counts its node", async || counted(&cluster, 1).await).await;
    let pool = cluster.get("MachineConfigPool", "worker").await;
    assert_eq!(pool["spec"]["pinnedImageSets"], json!([{"name": "noise"}]));
    let status = cluster.mco(&["status"]).await;
    assert!(status.out.contains("1 of 1 nodes have the images of noise"), "{status:?}");

    // A second set, with an image that does not exist: the first one stays complete.
    cluster.create(set("none", &[&missing])).await;
    let why = cluster
        .wait("the failure is reported", async || {
            let node = cluster.get("MachineConfigNode", NODE).await;
            said_of(&node, "PinnedImageSetsDegraded").filter(|(status, _)| status == "True")?;
            let sets = node["status"]["pinnedImageSets"].as_array()?.clone();
            assert_eq!(sets.iter().find(|s| s["name"] == "noise")?["currentGeneration"], 1, "{sets:?}");
            let none = sets.into_iter().find(|s| s["name"] == "none")?;
            assert_eq!(
                (&none["currentGeneration"], &none["lastFailedGeneration"]),
                (&Value::Null, &json!(1))
            );
            Some(none["lastFailedGenerationError"].as_str()?.to_owned())
        })
        .await;
    assert!(why.contains(&missing), "{why}");
    cluster.wait("the pool no longer counts its node", async || counted(&cluster, 0).await).await;
    let node_done = cluster.get("Node", NODE).await;
    assert!(crate::product::is_done(&node_done), "a rollout has nothing to do with it");

    // Of an image that does not fit nothing is pulled, and its set says why: its size is known before.
    cluster.delete("PinnedImageSet", "none").await;
    let put = HUGE.replace("PORT", &BEHIND.to_string()).replace("SIZE", &(64_u64 << 40).to_string());
    let said = node.run(["bash", "-c", &put]).await.unwrap();
    let huge = format!("{REGISTRY}/lab/noise@{}", said.trim().lines().last().unwrap());
    cluster.create(set("huge", &[&huge])).await;
    let why = cluster
        .wait("the image does not fit", async || {
            let node = cluster.get("MachineConfigNode", NODE).await;
            let sets = node["status"]["pinnedImageSets"].as_array()?.clone();
            let huge = sets.into_iter().find(|s| s["name"] == "huge")?;
            Some(huge["lastFailedGenerationError"].as_str()?.to_owned())
        })
        .await;
    for words in
        ["storage available is less than minimum required", "1 missing images take about 131072.0 GiB"]
    {
        assert!(why.contains(words), "{why}");
    }
    assert!(pulls(&node, &image).await > 0, "containerd notes its pulls");
    assert_eq!(pulls(&node, &huge).await, 0);
    cluster.delete("PinnedImageSet", "huge").await;

    // Without its sets the node keeps the image, and no pin.
    cluster.delete("PinnedImageSet", "noise").await;
    cluster
        .wait("nothing is pinned any more", async || {
            let object = cluster.get("MachineConfigNode", NODE).await;
            let degraded = said_of(&object, "PinnedImageSetsDegraded")?.0;
            let none = object["status"]["pinnedImageSets"].as_array().is_none_or(Vec::is_empty);
            (degraded == "False" && none).then_some(())
        })
        .await;
    let labels = self::labels(&node, &image).await;
    assert!(labels.contains("io.cri-containerd.image=managed") && !labels.contains("pinned"), "{labels}");
    assert!(node.read_file("/var/lib/machine-config-daemon/pinned-images").await.is_err());
    cluster
        .wait("the pool has no set", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            pool["spec"]["pinnedImageSets"].is_null().then_some(())
        })
        .await;
    cluster.no_panic();
    cluster.stop().await;
}

fn set(name: &str, images: &[&str]) -> Value {
    let images: Vec<Value> = images.iter().map(|image| json!({"name": image})).collect();
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "PinnedImageSet",
        "metadata": {"name": name, "labels": {format!("{MCO}role"): "worker"}},
        "spec": {"pinnedImages": images},
    })
}

/// Status and message of a condition.
fn said_of(node: &Value, type_: &str) -> Option<(String, String)> {
    let all = node["status"]["conditions"].as_array()?;
    let found = all.iter().find(|c| c["type"] == type_)?;
    Some((found["status"].as_str()?.to_owned(), found["message"].as_str()?.to_owned()))
}

/// containerd's line about an image, with its labels.
async fn labels(node: &NodeHandle, image: &str) -> String {
    let all = node.run(["ctr", "-n", "k8s.io", "images", "ls"]).await.unwrap();
    all.lines().find(|line| line.starts_with(image)).unwrap_or_default().to_owned()
}

/// How often containerd was asked to pull an image.
async fn pulls(node: &NodeHandle, image: &str) -> usize {
    let log = node.run(["journalctl", "--no-pager", "-u", "containerd"]).await.unwrap();
    log.lines().filter(|line| line.contains("PullImage") && line.contains(image)).count()
}

/// Whether the pool's status counts this many of its nodes as having the images.
async fn counted(cluster: &Cluster, updated: u64) -> Option<()> {
    let pool = cluster.get("MachineConfigPool", "worker").await;
    let all = &pool["status"]["poolSynchronizersStatus"][0];
    (all["machineCount"] == 1 && all["updatedMachineCount"] == updated).then_some(())
}

/// A proxy that cuts each connection after some megabytes, and counts the cuts.
async fn cutting(listen: SocketAddr, server: SocketAddr, cuts: Arc<AtomicU32>) -> SocketAddr {
    let listener = TcpListener::bind(listen).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let cuts = cuts.clone();
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(server).await else { return };
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let up = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let (mut sent, mut buffer) = (0, vec![0; 64 << 10]);
                while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                    sent += read;
                    if sent > CUT {
                        cuts.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    if to_client.write_all(&buffer[..read]).await.is_err() {
                        break;
                    }
                }
                up.abort();
            });
        }
    });
    address
}
