//! A pool with its own OS image: the real controller creates builds and their Jobs on a real API server.
//!
//! Fakes take the place of what a lab without machines lacks: the Job controller with its pods ([`Builder`]), and the
//! node's agent ([`play_agent`]), which applies every config and image at once. Not here: buildah, registries, reboots.

use crate::product::{Cluster, machine_config, note, one_file, with_controller};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use lab::LabBuilder;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

pub(crate) const NAMESPACE: &str = "openshift-machine-config-operator";
pub(crate) const POOL: &str = "imaged";
pub(crate) const NODE: &str = "worker-0";
pub(crate) const PREFIX: &str = "machineconfiguration.openshift.io/";
const REPOSITORY: &str = "registry.lab.test:5000/team/os";

/// Acts as an agent whose host needs neither drain nor reboot: reports what the controller wants as applied.
pub(crate) async fn play_agent(client: Client) {
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let Ok(node) = api.get(NODE).await else { continue };
        let node = json!(node);
        let (config, image) = (note(&node, "desiredConfig"), note(&node, "desiredImage"));
        let done = note(&node, "currentConfig") == config && note(&node, "currentImage") == image;
        if config.is_empty() || done && note(&node, "state") == "Done" {
            continue;
        }
        let key = |name: &str| format!("{PREFIX}{name}");
        let image = if image.is_empty() { Value::Null } else { json!(image) };
        let mut notes = json!({
            key("currentConfig"): config, key("currentImage"): image, key("state"): "Done", key("reason"): "",
        });
        let before = note(&node, "currentImage");
        if before != note(&node, "desiredImage") {
            notes["machineconfig.dev/previous-image"] =
                if before.is_empty() { Value::Null } else { json!(before) };
        }
        let patch = json!({"metadata": {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": notes}});
        // After a conflict, the loop tries again.
        let _ = api.patch(NODE, &PatchParams::default(), &Patch::Merge(patch)).await;
    }
}

/// Acts as the Job controller and as the pods of the Jobs.
pub(crate) struct Builder<'a> {
    cluster: &'a Cluster,
    jobs: Api<DynamicObject>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
        Self { cluster, jobs: Api::namespaced_with(cluster.client.clone(), NAMESPACE, &kind) }
    }

    /// The builds whose Jobs exist.
    async fn running(&self) -> Vec<String> {
        let all = self.jobs.list(&ListParams::default()).await.map(|l| l.items).unwrap_or_default();
        all.into_iter().filter_map(|j| j.metadata.name?.strip_prefix("build-").map(str::to_owned)).collect()
    }

    /// Waits until the only Job is not that of the build `before`; returns its build.
    pub(crate) async fn started(&self, before: &str) -> String {
        let what = format!("a Job other than that of {before:?}, alone");
        self.cluster
            .wait(&what, async || match self.running().await.as_slice() {
                [one] if one != before => Some(one.clone()),
                _ => None,
            })
            .await
    }

    async fn job(&self, build: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.jobs.patch_status(&format!("build-{build}"), &PatchParams::default(), &patch).await.unwrap();
    }

    /// The pod has pushed an image, and reports its digest in the way that the reference's pods do.
    pub(crate) async fn succeed(&self, build: &str, digest: &str) {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let map = json!({"metadata": {"name": format!("digest-{build}")}, "data": {"digest": digest}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        self.job(build, json!({"succeeded": 1})).await;
    }

    /// The Job of a build.
    pub(crate) async fn job_of(&self, build: &str) -> Value {
        json!(self.jobs.get(&format!("build-{build}")).await.unwrap())
    }

    /// All pods have failed; the last one has left this message.
    pub(crate) async fn fail(&self, build: &str, words: &str) {
        self.fail_after(build, words, 4).await;
    }

    /// So many pods have failed; the last one has left this message.
    pub(crate) async fn fail_after(&self, build: &str, words: &str, failed: u32) {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client.clone(), NAMESPACE);
        let name = format!("build-{build}-{failed}");
        let job = self.jobs.get(&format!("build-{build}")).await.unwrap();
        let mut spec = job.data["spec"]["template"]["spec"].clone();
        spec["nodeName"] = json!(NODE);
        let pod = json!({
            "metadata": {"name": name, "labels": job.data["spec"]["template"]["metadata"]["labels"]}, "spec": spec,
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let ended = json!({
            "name": "image-build", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "message": words}},
        });
        let status = json!({"status": {"phase": "Failed", "containerStatuses": [ended]}});
        pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        self.job(build, json!({"failed": failed})).await;
    }

    /// Waits until a condition of the build is True; returns its message.
    pub(crate) async fn state(&self, build: &str, condition: &str) -> String {
        self.cluster
            .wait(&format!("MachineOSBuild {build} is {condition}"), async || {
                let object = self.cluster.get("MachineOSBuild", build).await;
                crate::product::condition(&object, condition)
            })
            .await
    }
}

fn digest(digit: u8) -> String {
    format!("sha256:{}", format!("{digit}a").repeat(32))
}

pub(crate) fn os_config(push_spec: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineOSConfig",
        "metadata": {"name": POOL},
        "spec": {
            "machineConfigPool": {"name": POOL},
            "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": push_spec,
            "containerFile": [{"content": "FROM configs AS final\nRUN echo one > /etc/one\n"}],
        },
    })
}

/// Waits until the node is Done with the pool's config and this image. Empty: with the image in the config itself.
pub(crate) async fn runs(cluster: &Cluster, image: &str) {
    cluster
        .wait(&format!("the node is Done with image {image:?}"), async || {
            let node = cluster.get("Node", NODE).await;
            let config = cluster.rendered(POOL).await;
            let at = |key: &str| note(&node, key);
            let done =
                at("currentConfig") == config && at("desiredConfig") == config && at("state") == "Done";
            (done && at("desiredImage") == image && at("currentImage") == image).then_some(())
        })
        .await;
}

/// A cluster with one node, for which [`play_agent`] runs, in a pool of its own whose MachineConfig `10-base` has this base image and
/// this config.
pub(crate) async fn imaged(builder: LabBuilder, base: &str, config: Value) -> (Cluster, JoinHandle<()>) {
    let cluster = Cluster::start(builder.nodes(1).fake()).await;
    let rendered = cluster
        .wait("pool worker is rendered", async || {
            Some(cluster.rendered("worker").await).filter(|name| !name.is_empty())
        })
        .await;
    let key = |name: &str| format!("{PREFIX}{name}");
    let notes = json!({key("currentConfig"): rendered, key("desiredConfig"): rendered, key("state"): "Done"});
    cluster.patch("Node", NODE, json!({"metadata": {"annotations": notes}})).await;
    let agent = tokio::spawn(play_agent(cluster.client.clone()));
    let mut config = machine_config("10-base", POOL, config);
    config["spec"]["osImageURL"] = json!(base);
    cluster.create(config).await;
    cluster.add_pool(POOL, &[NODE]).await;
    cluster.settled(POOL, 1, &["10-base"], &[]).await;
    (cluster, agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_image_is_built_and_rolled_out_and_taken_back() {
    let Some(builder) = with_controller() else { return };
    let base = format!("registry.lab.test:5000/base@{}", digest(0));
    let (cluster, agent) = imaged(builder, &base, json!({"ignition": {"version": "3.4.0"}})).await;
    let key = |name: &str| format!("{PREFIX}{name}");

    // The API server refuses a push location without a tag.
    let wrong: DynamicObject = serde_json::from_value(os_config("registry.lab.test:5000/team/os")).unwrap();
    let refused = cluster.api("MachineOSConfig").create(&PostParams::default(), &wrong).await.unwrap_err();
    assert!(refused.to_string().contains("an image with a tag"), "{refused}");

    // Without a builder nothing is built, and the pool says what to do.
    cluster.create(os_config(&format!("{REPOSITORY}:latest"))).await;
    cluster
        .wait("the pool names the annotation for a builder", async || {
            let pool = cluster.get("MachineConfigPool", POOL).await;
            pool["status"]["conditions"].to_string().contains("machineconfig.dev/image-builder").then_some(())
        })
        .await;
    assert_eq!(cluster.list("MachineOSBuild").await.len(), 0);
    let jobs = Builder::new(&cluster);
    let image = json!({"metadata": {"annotations": {"machineconfig.dev/image-builder": "registry.lab.test:5000/buildah"}}});
    let begin = Instant::now();
    cluster.patch("ControllerConfig", "machine-config-controller", image).await;
    let first = jobs.started("").await;
    eprintln!("the Job was there after {:?}", begin.elapsed());
    jobs.state(&first, "Prepared").await;
    jobs.job(&first, json!({"active": 1})).await;
    jobs.state(&first, "Building").await;
    assert_eq!(
        note(&cluster.get("Node", NODE).await, "desiredImage"),
        "",
        "no node moves before there is an image"
    );

    // A newer config interrupts the build.
    cluster.patch("MachineConfig", "10-base", json!({"spec": {"kernelArguments": ["nosmt"]}})).await;
    let second = jobs.started(&first).await;
    let why = jobs.state(&first, "Interrupted").await;
    assert!(why.contains(&second), "{why}");
    jobs.succeed(&second, &digest(1)).await;
    jobs.state(&second, "Succeeded").await;
    let one = format!("{REPOSITORY}@{}", digest(1));
    runs(&cluster, &one).await;
    let config = cluster.get("MachineOSConfig", POOL).await;
    assert_eq!(config["status"]["currentImagePullSpec"], json!(one));
    assert_eq!(config["status"]["machineOSBuild"]["name"], json!(second));
    assert_eq!(config["metadata"]["annotations"][key("current-machine-os-build")], json!(second));
    cluster
        .wait("the Job, its ConfigMaps and the interrupted build are gone", async || {
            let builds = cluster.list("MachineOSBuild").await;
            (jobs.running().await.is_empty() && builds.len() == 1).then_some(())
        })
        .await;

    // A changed file needs no new image: the node gets only the config.
    cluster.create(machine_config("50-file", POOL, one_file("/etc/two", "two"))).await;
    cluster.settled(POOL, 1, &["50-file"], &[]).await;
    runs(&cluster, &one).await;
    assert_eq!(jobs.running().await, Vec::<String>::new());

    // A failed build degrades the pool, with the cause and without the secret. Its nodes stay as they are.
    let containerfile =
        json!([{"containerfileArch": "NoArch", "content": "FROM configs AS final\nRUN false\n"}]);
    cluster.patch("MachineOSConfig", POOL, json!({"spec": {"containerFile": containerfile}})).await;
    let third = jobs.started(&second).await;
    jobs.fail(
        &third,
        "STEP 12/12: RUN false\npassword=hunter2hunter2\nError: building at STEP \"RUN false\"\n",
    )
    .await;
    let said = cluster.complains(POOL, "ImageBuildDegraded", &[&third, "RUN false", "4 attempts"]).await;
    assert!(!said.contains("hunter2"), "{said}");
    cluster.told(&third, "BuildFailed", &["RUN false"]).await;
    cluster.complains(POOL, "Degraded", &["ImageBuildDegraded"]).await;
    runs(&cluster, &one).await;

    // After a correction it is built, and the pool recovers.
    let containerfile =
        json!([{"containerfileArch": "NoArch", "content": "FROM configs AS final\nRUN true\n"}]);
    cluster.patch("MachineOSConfig", POOL, json!({"spec": {"containerFile": containerfile}})).await;
    let fourth = cluster
        .wait("a Job of the corrected Containerfile", async || {
            jobs.running().await.into_iter().find(|b| *b != third)
        })
        .await;
    jobs.succeed(&fourth, &digest(2)).await;
    runs(&cluster, &format!("{REPOSITORY}@{}", digest(2))).await;
    cluster.settled(POOL, 1, &["50-file"], &[]).await;

    // Without its MachineOSConfig, the pool returns to the image in its config.
    cluster.delete("MachineOSConfig", POOL).await;
    runs(&cluster, "").await;
    cluster
        .wait("no build is left", async || {
            let left = cluster.list("MachineOSBuild").await;
            (left.is_empty() && jobs.running().await.is_empty()).then_some(())
        })
        .await;
    agent.abort();
    cluster.no_panic();
    cluster.stop().await;
}
