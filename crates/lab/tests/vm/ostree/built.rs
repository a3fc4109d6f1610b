//! A pool with its own OS image, without fakes: a MachineOSConfig → a Job whose pod runs on a kubelet and containerd → our
//! builder's image, rootless → a registry with a password that cuts connections → a signature → a machine that requires it, drains,
//! stages, and boots the image. Then comes an image whose kubelet cannot start: the machine boots it, returns by itself to the image
//! before, and the pool says why. Then the MachineOSConfig is deleted, and the machine returns to the stock image.
//!
//! The first two builds cannot succeed, and say why: they run while the machine boots. So does the third, whose layers the fourth
//! uses. Not here: the other failures of builds (beside the code of `build`), and builds that are reused, interrupted and pruned
//! (`cluster/image_builds.rs`).

mod build_cluster;

use std::time::Instant;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use lab::{Kubelet, Lab, OstreeMachine, Reporter, VirtualMachine};
use serde_json::{Value, json};

use self::build_cluster::BuildCluster;
use super::cluster::{api, done, note, wait};
use super::{FILE, FIRST, config, settled};
use crate::product::program;
use crate::{PLACE, timed};

const MCO: &str = "machineconfiguration.openshift.io";
const POOL: &str = "imaged";
const NODE: &str = "virtual-0";
/// A file that the Containerfile adds, in addition to a package that is in the base image.
const BUILT: &str = "/usr/share/lab/built";
const CONTAINERFILE: &str = "FROM configs AS final\n\
    RUN echo 'built in the cluster' > /usr/share/lab/built && head -c 12000000 /dev/urandom > /usr/share/lab/large\n\
    RUN dpkg --admindir=/usr/lib/sysimage/dpkg -i /usr/src/hello.deb && ostree container commit\n";
/// What the second image has beside that.
const AGAIN: &str = "/usr/share/lab/again";
const MORE: &str = "RUN echo again > /usr/share/lab/again && ostree container commit\n";
/// What an image has whose kubelet cannot start.
const BROKEN: &str = "RUN printf '#!/bin/sh\\necho this kubelet does not run >&2\\nexit 1\\n' > /usr/bin/kubelet && ostree container commit\n";
/// How long a new image has to prove itself.
const WITHIN: &str = "within=30s";
/// Keeps the logs of pods whose pods go.
const KEEP_LOGS: &str = "mkdir -p /var/tmp/kept; while sleep 0.3; do for log in /var/log/pods/*/*/*.log; do \
    ln \"$log\" \"/var/tmp/kept/$(stat -c %i \"$log\")\" 2>/dev/null; done; done";
/// What wrote the running deployment's origin.
const ORIGIN: &str =
    "cat \"$(readlink -f \"$(sed -n 's/.*\\bostree=\\([^ ]*\\).*/\\1/p' /proc/cmdline)\").origin\"";

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_built_in_the_cluster_is_booted() {
    if !lab::require_root() {
        return;
    }
    let progress = Reporter::stderr();
    let machine = OstreeMachine::ensure(&progress).await.unwrap();
    lab::ensure_test_packages(&progress).await.unwrap();
    let builder = lab::builder_archive(&progress).await.unwrap();
    let _place = PLACE.acquire().await.unwrap();
    let start = Instant::now();
    let templates = tempfile::tempdir().unwrap();
    let mut lab = Lab::builder()
        .nodes(1)
        .real()
        .kubelet(Kubelet::Real)
        .mco_binary(program())
        .templates(templates.path())
        .controller(true)
        .progress(progress.clone())
        .start()
        .await
        .unwrap();
    let client = lab.client();
    let bridge = lab.bridge().unwrap().gateway();
    let registry = machine.build_registry(bridge, lab.shared_folder(), &progress).await.unwrap();
    let node = lab.node(0);
    let cluster = BuildCluster { client, registry, node };
    cluster.apply("MachineConfig", config(super::Asked { name: "00-base", ..FIRST })).await;
    timed("the builder's image on the node", cluster.node.load_image(&builder)).await.unwrap();
    cluster.registry.let_in(&cluster.node).await.unwrap();
    let keep = ["systemd-run", "--quiet", "--unit=keep-logs", "sh", "-c", KEEP_LOGS];
    cluster.node.run(keep).await.unwrap();
    cluster.pool().await;

    // While the machine boots for the first time: two builds that cannot succeed, and the one that does.
    let (vm, build) =
        tokio::join!(timed("the machine", lab.virtual_node(NODE, machine.image())), cluster.builds());
    let vm = vm.unwrap();
    let image = build["status"]["digestedImagePushSpec"].as_str().unwrap().to_owned();
    eprintln!("built and booted after {:.0} s: {image}", start.elapsed().as_secs_f32());

    let machine = vm.machine();
    wait(&cluster.client, "the machine is in the pool worker", done).await;
    cluster.asks_for_signatures(machine).await;
    let first = machine.boot_id().await.unwrap();
    cluster
        .patch_node(json!({"metadata": {"labels": {format!("node-role.kubernetes.io/{POOL}"): ""}}}))
        .await;
    let of_pool = |node: &Value| done(node) && note(node, "currentConfig").starts_with("rendered-imaged-");
    let is_image = |node: &Value, image: &str| {
        note(node, "currentImage") == image && note(node, "desiredImage") == image
    };
    let arrived =
        wait(&cluster.client, "the machine runs the image", |n| of_pool(n) && is_image(n, &image)).await;
    eprintln!("in the image after {:.0} s", start.elapsed().as_secs_f32());
    assert_ne!(first, machine.boot_id().await.unwrap());
    assert!(note(&arrived, "lastAppliedDrain").starts_with("uncordon"), "{arrived}");
    settled(machine).await;
    assert_eq!(machine.read_file(BUILT).await.unwrap(), "built in the cluster\n");
    assert_eq!(installed(machine).await, "install ok installed");
    assert_eq!(machine.read_file(AGAIN).await.unwrap(), "again\n");
    assert_eq!(machine.read_file(FILE).await.unwrap(), "of the pool\n");
    runs(machine, &image).await;
    let [of_machines, of_builds] = cluster.registry.proxies();
    eprintln!(
        "the registry gave builds {} bytes over {} cuts, the machine {} over {}",
        of_builds.bytes(),
        of_builds.cuts(),
        of_machines.bytes(),
        of_machines.cuts()
    );
    assert!(of_builds.cuts() > 0 && of_machines.cuts() > 0);

    cluster.goes_back(machine, &image).await;

    // The way back, by the same steps. It also ends what the pool says of the image that did not come up.
    let in_image = machine.boot_id().await.unwrap();
    let (cordoned, back) = (std::cell::Cell::new(false), Instant::now());
    api(&cluster.client, "MachineOSConfig").delete(POOL, &DeleteParams::default()).await.unwrap();
    let returned = wait(&cluster.client, "the machine is back", |node| {
        cordoned.set(cordoned.get() || node["spec"]["unschedulable"] == true);
        of_pool(node) && is_image(node, "")
    })
    .await;
    eprintln!("on the stock image {:.0} s after that", back.elapsed().as_secs_f32());
    assert!(cordoned.get() && returned["spec"]["unschedulable"] != true, "{returned}");
    assert!(note(&returned, "lastAppliedDrain").starts_with("uncordon"), "{returned}");
    assert_ne!(in_image, machine.boot_id().await.unwrap());
    settled(machine).await;
    runs(machine, &cluster.registry.base()).await;
    for path in [BUILT, AGAIN] {
        assert_eq!(machine.exec(["test", "-e", path]).await.unwrap().code, 1, "{path} is still there");
    }
    assert_ne!(installed(machine).await, "install ok installed");
    assert_eq!(
        machine.read_file(FILE).await.unwrap(),
        "of the pool\n",
        "it is of the config, not of the image"
    );
    let builds = api(&cluster.client, "MachineOSBuild").list(&ListParams::default()).await.unwrap();
    assert_eq!(builds.items.len(), 0, "{:?}", builds.items);
    assert!(note(&wait(&cluster.client, "and stays so", of_pool).await, "reason").is_empty());
    cluster.degraded("False", &[]).await;

    cluster.no_secret(&std::fs::read_to_string(lab.controller_log()).unwrap()).await;
    super::ended(machine).await;
    lab.check().unwrap();
    eprintln!("all of it: {:.0} s", start.elapsed().as_secs_f32());
    drop((vm, cluster));
    lab.stop().await;
}

/// Checks which image the machine runs.
async fn runs(machine: &VirtualMachine, image: &str) {
    let digest = image.rsplit('@').next().unwrap();
    let origin = machine.run(["sh", "-c", ORIGIN]).await.unwrap();
    assert!(origin.contains(digest), "the machine does not run {digest}: {origin}");
}

/// The package that the image adds.
async fn installed(vm: &VirtualMachine) -> String {
    vm.exec(["dpkg-query", "-W", "-f", "${Status}", "hello"]).await.unwrap().stdout
}

impl BuildCluster {
    /// Follows the builds up to the second one that succeeds, and returns it.
    async fn builds(&self) -> Value {
        let applied = Instant::now();
        self.apply(
            "MachineOSConfig",
            json!({
                "apiVersion": format!("{MCO}/v1"), "kind": "MachineOSConfig",
                "metadata": {"name": POOL, "annotations": {"machineconfig.dev/signing-secret": "os-signing"}},
                "spec": {
                    "machineConfigPool": {"name": POOL}, "imageBuilder": {"imageBuilderType": "Job"},
                    "baseImagePullSecret": {"name": "pull"}, "renderedImagePushSecret": {"name": "push"},
                    "renderedImagePushSpec": format!("{}/team/os:latest", self.registry.host()),
                    "containerFile": [{"content": CONTAINERFILE}],
                },
            }),
        )
        .await;
        let without = self.fails(&Value::Null, &["push", "is not there", "annotation"]).await;
        eprintln!("refused after {:.1} s", applied.elapsed().as_secs_f32());

        self.secret("push").await;
        self.secret("pull").await;
        self.signing_secret().await;
        let again = json!({"metadata": {"annotations": {format!("{MCO}/rebuild"): ""}}});
        api(&self.client, "MachineOSConfig")
            .patch(POOL, &PatchParams::default(), &Patch::Merge(again))
            .await
            .unwrap();
        let no_os = self.fails(&without, &["is no OS image that a node can boot", "usr/bin/jq"]).await;

        self.base(&self.registry.base()).await;
        let first = self.next("Succeeded", &no_os).await;
        eprintln!("built after {:.0} s", applied.elapsed().as_secs_f32());
        // Another pod, with another disk: what the first one has made is in the registry.
        let begun = Instant::now();
        let more = json!({"spec": {"containerFile": [{"content": format!("{CONTAINERFILE}{MORE}")}]}});
        api(&self.client, "MachineOSConfig")
            .patch(POOL, &PatchParams::default(), &Patch::Merge(more))
            .await
            .unwrap();
        let second = self.next("Succeeded", &first).await;
        eprintln!("built with layers of before in {:.0} s", begun.elapsed().as_secs_f32());
        let image = |build: &Value| build["status"]["digestedImagePushSpec"].as_str().unwrap().to_owned();
        let (one, two) = (self.layers(&image(&first)).await, self.layers(&image(&second)).await);
        let is_noise = |layer: &&(String, u64)| layer.1 > 11_000_000 && layer.1 < 14_000_000;
        let noise = one.iter().find(is_noise).unwrap_or_else(|| panic!("no layer of noise: {one:?}"));
        assert!(two.contains(noise) && two.len() == one.len() + 1, "{one:?} {two:?}");
        let log = self.logs().await;
        assert!(log.contains("Using cache") && log.contains("Cache pulled from remote"), "{log}");
        second
    }

    /// Builds an image whose kubelet cannot start: the machine boots it, and is back in the image before without anybody's help.
    async fn goes_back(&self, machine: &VirtualMachine, image: &str) {
        let start = Instant::now();
        let trial = json!({"metadata": {"annotations": {format!("{MCO}/trial"): WITHIN}}});
        let merge = PatchParams::default();
        api(&self.client, "MachineConfigPool").patch(POOL, &merge, &Patch::Merge(trial)).await.unwrap();
        wait(&self.client, "the pool's settings are on the node", |node| note(node, "trial") == WITHIN).await;
        let before = machine.boot_id().await.unwrap();
        let earlier = self.all_builds().await;
        let broken =
            json!({"spec": {"containerFile": [{"content": format!("{CONTAINERFILE}{MORE}{BROKEN}")}]}});
        api(&self.client, "MachineOSConfig").patch(POOL, &merge, &Patch::Merge(broken)).await.unwrap();
        let build = self.other("Succeeded", &earlier).await;
        let bad = build["status"]["digestedImagePushSpec"].as_str().unwrap().to_owned();
        eprintln!("an image that cannot come up is there after {:.0} s", start.elapsed().as_secs_f32());
        assert_ne!(bad, image);
        let tried = timed("boot into it", machine.rebooted(&before)).await.unwrap();
        runs(machine, &bad).await;
        let node = wait(&self.client, "the node says why it went back", |node| {
            note(node, "state") == "Degraded" && note(node, "reason").contains("went back")
        })
        .await;
        eprintln!("back by itself after {:.0} s: {}", start.elapsed().as_secs_f32(), note(&node, "reason"));
        assert!(note(&node, "reason").contains("kubelet.service"), "{node}");
        assert_eq!((note(&node, "currentImage"), note(&node, "desiredImage")), (image.to_owned(), bad));
        assert_ne!(tried, machine.boot_id().await.unwrap());
        runs(machine, image).await;
        settled(machine).await;
        assert_eq!(
            machine.run(["systemctl", "is-active", "kubelet.service"]).await.unwrap().trim(),
            "active"
        );
        self.degraded("True", &[NODE, "kubelet.service"]).await;
    }
}
