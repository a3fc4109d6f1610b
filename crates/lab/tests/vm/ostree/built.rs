//! A pool with its own OS image, without fakes: a MachineOSConfig → a Job whose pod runs on a kubelet and containerd → our
//! builder's image, rootless → a registry with a password that cuts connections → a signature → a machine that requires it, drains,
//! stages, and boots the image. Then comes an image whose kubelet cannot start: the machine boots it, returns by itself to the image
//! before, and the pool says why. Then the MachineOSConfig is deleted, and the machine returns to the stock image.
//!
//! The first two builds cannot succeed, and say why: they run while the machine boots. So does the third, whose layers the fourth
//! uses. Not here: the other failures of builds (beside the code of `build`), and builds that are reused, interrupted and pruned
//! (`cluster/image_builds.rs`).

use std::time::{Duration, Instant};

use base64::Engine;
use k8s_openapi::api::core::v1::{Node, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lab::{BuildRegistry, Kubelet, Lab, NodeHandle, OstreeMachine, Reporter, VirtualMachine};
use serde_json::{Value, json};

use super::cluster::{api, done, note, wait};
use super::{FILE, FIRST, config, settled};
use crate::product::program;
use crate::{PLACE, timed};

const MCO: &str = "machineconfiguration.openshift.io";
const NAMESPACE: &str = "openshift-machine-config-operator";
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
/// Pulls an image into the host's repository, which is read-only outside of a namespace of its own.
const PULL: &str = "mount -o remount,rw /sysroot && exec ostree container image pull /ostree/repo \"$1\"";
/// Keeps the logs of pods whose pods go.
const KEEP_LOGS: &str = "mkdir -p /var/tmp/kept; while sleep 0.3; do for log in /var/log/pods/*/*/*.log; do \
    ln \"$log\" \"/var/tmp/kept/$(stat -c %i \"$log\")\" 2>/dev/null; done; done";
/// What wrote the running deployment's origin.
const ORIGIN: &str =
    "cat \"$(readlink -f \"$(sed -n 's/.*\\bostree=\\([^ ]*\\).*/\\1/p' /proc/cmdline)\").origin\"";
/// The time limit for a build while a machine boots on an emulated processor.
const LIMIT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(300);

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
    let cluster = Ground { client, registry, node };
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

/// The cluster, its registry, and the node that runs the builds' pods.
struct Ground {
    client: Client,
    registry: BuildRegistry,
    node: NodeHandle,
}

impl Ground {
    async fn apply(&self, kind: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let params = PatchParams::apply("test").force();
        api(&self.client, kind).patch(&name, &params, &Patch::Apply(object)).await.unwrap();
    }

    async fn patch_node(&self, patch: Value) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Creates the pool with its nodes' config, and the account and the settings of builds. The Secret for pushes does not
    /// exist yet.
    async fn pool(&self) {
        let labels = |values: [&str; 2]| json!({"matchExpressions": [{"key": format!("{MCO}/role"), "operator": "In", "values": values}]});
        self.apply(
            "MachineConfigPool",
            json!({
                "apiVersion": format!("{MCO}/v1"), "kind": "MachineConfigPool", "metadata": {"name": POOL},
                "spec": {
                    "machineConfigSelector": labels(["worker", POOL]),
                    "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{POOL}"): ""}},
                },
            }),
        )
        .await;
        // Image A has neither jq nor Ignition.
        self.base(&format!("{}/lab/os:a", self.registry.host())).await;
        let namespaces = kube::discovery::ApiResource::erase::<k8s_openapi::api::core::v1::Namespace>(&());
        let namespaces: Api<kube::api::DynamicObject> = Api::all_with(self.client.clone(), &namespaces);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        namespaces.patch(NAMESPACE, &PatchParams::apply("test"), &Patch::Apply(namespace)).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "machine-os-builder"}});
        accounts
            .patch("machine-os-builder", &PatchParams::apply("test"), &Patch::Apply(account))
            .await
            .unwrap();
        let notes =
            json!({"metadata": {"annotations": {"machineconfig.dev/image-builder": lab::BUILDER_IMAGE}}});
        let configs = api(&self.client, "ControllerConfig");
        configs
            .patch("machine-config-controller", &PatchParams::default(), &Patch::Merge(notes))
            .await
            .unwrap();
    }

    /// Sets the pool's stock image. The controller must not inspect it: only the `registries.conf` of nodes allows plain HTTP
    /// for its registry.
    async fn base(&self, image: &str) {
        let unseen = json!({"metadata": {"annotations": {"machineconfig.dev/os-images": "as-they-are"}}});
        let pools = api(&self.client, "MachineConfigPool");
        pools.patch(POOL, &PatchParams::default(), &Patch::Merge(unseen)).await.unwrap();
        let file = |path: &str, text: &str| {
            let data = base64::engine::general_purpose::STANDARD.encode(text);
            json!({"path": path, "mode": 0o644, "overwrite": true, "contents": {"source": format!("data:;base64,{data}")}})
        };
        let insecure = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", self.registry.host());
        let files = [file(FILE, "of the pool\n"), file("/etc/containers/registries.conf", &insecure)];
        self.apply(
            "MachineConfig",
            json!({
                "apiVersion": format!("{MCO}/v1"), "kind": "MachineConfig",
                "metadata": {"name": "50-imaged", "labels": {format!("{MCO}/role"): POOL}},
                "spec": {
                    "osImageURL": image,
                    "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}},
                },
            }),
        )
        .await;
    }

    async fn secret(&self, name: &str) {
        let [user, password] = self.registry.credentials();
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let content = json!({"auths": {self.registry.host(): {"auth": auth}}}).to_string();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = json!({
            "metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": content},
        });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    /// The Secret as `cosign generate-key-pair k8s://` makes it.
    async fn signing_secret(&self) {
        let key = self.registry.key();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = json!({
            "metadata": {"name": "os-signing"},
            "stringData": {"cosign.key": key.private, "cosign.password": key.passphrase, "cosign.pub": key.public},
        });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    /// The machine takes no image of the builds' repository that the key has not signed.
    async fn asks_for_signatures(&self, machine: &VirtualMachine) {
        let repository = self.registry.repository();
        let signed = json!([{"type": "sigstoreSigned", "keyPath": "/etc/containers/os.pub"}]);
        let mut policy =
            json!({"default": [{"type": "insecureAcceptAnything"}], "transports": {"docker": {}}});
        policy["transports"]["docker"][&repository] = signed;
        machine.run(["mkdir", "-p", "/etc/containers/registries.d"]).await.unwrap();
        let attached = format!("docker:\n  {repository}:\n    use-sigstore-attachments: true\n");
        for (path, text) in [
            ("os.pub", self.registry.key().public.as_str()),
            ("policy.json", &policy.to_string()),
            ("registries.d/os.yaml", &attached),
        ] {
            machine.write(&format!("/etc/containers/{path}"), text).await.unwrap();
        }
        // As the agent pulls.
        let unsigned = format!("ostree-unverified-registry:{}", self.registry.unsigned());
        let pull = ["unshare", "--mount", "sh", "-c", PULL, "sh", &unsigned];
        let refused = machine.exec(pull).await.unwrap();
        assert!(refused.code != 0 && refused.stderr.contains("A signature was required"), "{refused:?}");
    }

    /// Layers of an image, by their digests, and their sizes.
    async fn layers(&self, image: &str) -> Vec<(String, u64)> {
        let here = self.registry.proxies()[0].address().to_string();
        let image = image.replace(&self.registry.host(), &here);
        let settings = registry::Settings { insecure: true, ..registry::Settings::default() };
        let image = registry::Reference::parse(&image).unwrap();
        let facts = registry::Registry::new(settings).inspect(&image, None).await.unwrap();
        facts.layers.iter().map(|layer| (layer.digest.clone(), layer.size)).collect()
    }

    /// The logs of all pods of builds.
    async fn logs(&self) -> String {
        self.node.run(["sh", "-c", "cat /var/tmp/kept/*"]).await.unwrap()
    }

    /// The key and its passphrase are in no log, and in no object but their Secret.
    async fn no_secret(&self, log: &str) {
        let key = self.registry.key();
        let body = key.private.lines().nth(1).unwrap();
        let mut all = vec![log.to_owned(), self.logs().await];
        for (kind, version) in [("Event", "v1"), ("Job", "batch/v1"), ("Pod", "v1"), ("ConfigMap", "v1")] {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
            let of_kind: Api<kube::api::DynamicObject> =
                Api::all_with(self.client.clone(), &kube::api::ApiResource::from_gvk(&kind));
            all.push(json!(of_kind.list(&ListParams::default()).await.unwrap().items).to_string());
        }
        for text in &all {
            assert!(!text.contains(key.passphrase) && !text.contains(body), "{text}");
        }
        assert!(all[1].contains("signed "), "{}", all[1]);
    }

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
        let without = self.ends("Failed").await;
        eprintln!("refused after {:.1} s", applied.elapsed().as_secs_f32());
        self.says(&without, &["push", "is not there", "annotation"]).await;

        self.secret("push").await;
        self.secret("pull").await;
        self.signing_secret().await;
        let again = json!({"metadata": {"annotations": {format!("{MCO}/rebuild"): ""}}});
        api(&self.client, "MachineOSConfig")
            .patch(POOL, &PatchParams::default(), &Patch::Merge(again))
            .await
            .unwrap();
        let no_os = self.next("Failed", &without).await;
        self.says(&no_os, &["is no OS image that a node can boot", "usr/bin/jq"]).await;

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

    /// Waits until the pool is degraded by a node, and says these words; or is not.
    async fn degraded(&self, status: &str, words: &[&str]) {
        let start = Instant::now();
        let mut seen = Value::Null;
        while start.elapsed() < LIMIT {
            let pool = api(&self.client, "MachineConfigPool").get(POOL).await.unwrap();
            seen = serde_json::to_value(pool).unwrap()["status"]["conditions"].clone();
            let of = |kind: &str| {
                let all = seen.as_array().into_iter().flatten();
                all.clone().find(|c| c["type"] == kind && c["status"] == status)
            };
            let says = of("NodeDegraded").map(|c| c["message"].as_str().unwrap_or_default().to_owned());
            let says_all = says.is_some_and(|text| words.iter().all(|word| text.contains(word)));
            if says_all && of("Degraded").is_some() {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("the pool is not degraded ({status}) with {words:?}: {seen}");
    }

    /// Waits until the pool's current build is in this state, and returns it.
    async fn ends(&self, state: &str) -> Value {
        self.next(state, &Value::Null).await
    }

    /// As `ends`, for a build other than this one.
    async fn next(&self, state: &str, last: &Value) -> Value {
        self.other(state, std::slice::from_ref(last)).await
    }

    async fn all_builds(&self) -> Vec<Value> {
        let all = api(&self.client, "MachineOSBuild").list(&ListParams::default()).await.unwrap();
        all.items.iter().map(|b| serde_json::to_value(b).unwrap()).collect()
    }

    /// As `ends`, for a build other than these.
    async fn other(&self, state: &str, last: &[Value]) -> Value {
        let start = Instant::now();
        let mut seen = vec![];
        while start.elapsed() < LIMIT {
            seen = self.all_builds().await;
            for build in &seen {
                let is = |c: &Value| c["status"] == "True" && c["type"] == state;
                let other = last.iter().all(|l| build["metadata"]["uid"] != l["metadata"]["uid"]);
                if other && build["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is)) {
                    return build.clone();
                }
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("no build is {state}: {seen:?}\n{}", self.pods().await);
    }

    /// Waits until the pool reports why its build failed.
    async fn says(&self, build: &Value, words: &[&str]) {
        let name = build["metadata"]["name"].as_str().unwrap();
        let start = Instant::now();
        let mut seen = String::new();
        while start.elapsed() < LIMIT {
            let pool = serde_json::to_value(api(&self.client, "MachineConfigPool").get(POOL).await.unwrap())
                .unwrap();
            let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let one = conditions.iter().find(|c| c["type"] == "ImageBuildDegraded" && c["status"] == "True");
            seen = one.map(|c| c["message"].as_str().unwrap_or_default().to_owned()).unwrap_or_default();
            if seen.contains(name) && words.iter().all(|word| seen.contains(word)) {
                eprintln!("{seen}");
                return;
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("not {words:?} of {name}: {seen}\n{}", self.pods().await);
    }

    /// The state of the pods and their logs, to explain a build that hangs.
    async fn pods(&self) -> String {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pods = pods.list(&ListParams::default()).await.map(|l| l.items).unwrap_or_default();
        let logs = self.node.exec(["sh", "-c", "tail -n 40 /var/log/pods/*/*/*.log"]).await;
        format!(
            "{}\n{}",
            json!(pods.iter().map(|p| &p.status).collect::<Vec<_>>()),
            logs.map(|o| o.stdout).unwrap_or_default()
        )
    }
}
