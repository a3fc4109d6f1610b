//! A pool with its own OS image, without stand-ins: a MachineOSConfig → a Job whose pod runs on a kubelet and containerd → our
//! builder's image, rootless → a registry with a password that cuts connections → a machine that drains, stages, and boots the
//! image.
//!
//! The first two builds cannot succeed, and say why: they run while the machine boots. Not here: the way back to the stock image (see
//! docs/image-mode.md for what is wrong with it), the other failures of builds (beside
//! the code of `build`), and builds that are reused, interrupted and pruned (`cluster/image_builds.rs`).

use std::time::{Duration, Instant};

use base64::Engine;
use k8s_openapi::api::core::v1::{Node, Pod, Secret, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
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
    cluster.pool().await;

    // While the machine boots for the first time: two builds that cannot succeed, and the one that does.
    let (vm, build) =
        tokio::join!(timed("the machine", lab.virtual_node(NODE, machine.image())), cluster.builds());
    let vm = vm.unwrap();
    let image = build["status"]["digestedImagePushSpec"].as_str().unwrap().to_owned();
    eprintln!("built and booted after {:.0} s: {image}", start.elapsed().as_secs_f32());

    let machine = vm.machine();
    wait(&cluster.client, "the machine is in the pool worker", done).await;
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
    assert_eq!(machine.read_file(FILE).await.unwrap(), "of the pool\n");
    let digest = image.rsplit('@').next().unwrap();
    let origin = machine.run(["sh", "-c", "cat /ostree/deploy/debian/deploy/*.origin"]).await.unwrap();
    assert!(origin.contains(digest), "no deployment is of {digest}: {origin}");
    let [of_machines, of_builds] = cluster.registry.proxies();
    eprintln!(
        "the registry gave builds {} bytes over {} cuts, the machine {} over {}",
        of_builds.bytes(),
        of_builds.cuts(),
        of_machines.bytes(),
        of_machines.cuts()
    );
    assert!(of_builds.cuts() > 0 && of_machines.cuts() > 0);

    super::ended(machine).await;
    lab.check().unwrap();
    eprintln!("all of it: {:.0} s", start.elapsed().as_secs_f32());
    drop((vm, cluster));
    lab.stop().await;
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

    /// Follows the builds up to the one that succeeds, and returns it.
    async fn builds(&self) -> Value {
        let applied = Instant::now();
        self.apply(
            "MachineOSConfig",
            json!({
                "apiVersion": format!("{MCO}/v1"), "kind": "MachineOSConfig", "metadata": {"name": POOL},
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
        let again = json!({"metadata": {"annotations": {format!("{MCO}/rebuild"): ""}}});
        api(&self.client, "MachineOSConfig")
            .patch(POOL, &PatchParams::default(), &Patch::Merge(again))
            .await
            .unwrap();
        let no_os = self.next("Failed", &without).await;
        self.says(&no_os, &["is no OS image that a node can boot", "usr/bin/jq"]).await;

        self.base(&self.registry.base()).await;
        let build = self.next("Succeeded", &no_os).await;
        eprintln!("built after {:.0} s", applied.elapsed().as_secs_f32());
        build
    }

    /// Waits until the pool's current build is in this state, and returns it.
    async fn ends(&self, state: &str) -> Value {
        self.next(state, &Value::Null).await
    }

    /// As `ends`, for a build other than this one.
    async fn next(&self, state: &str, last: &Value) -> Value {
        let start = Instant::now();
        let mut seen = vec![];
        while start.elapsed() < LIMIT {
            let all = api(&self.client, "MachineOSBuild").list(&ListParams::default()).await.unwrap();
            seen = all.items.iter().map(|b| serde_json::to_value(b).unwrap()).collect();
            for build in &seen {
                let is = |c: &Value| c["status"] == "True" && c["type"] == state;
                let other = build["metadata"]["uid"] != last["metadata"]["uid"];
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
