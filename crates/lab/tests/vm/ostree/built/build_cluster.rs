//! The cluster in which images are built: its pool, Secrets, registry and the node that runs the builds' pods; what is asked of it and
//! waited for.
//!
//! Not here: the course of the test (the module above).

use std::time::{Duration, Instant};

use base64::Engine;
use k8s_openapi::api::core::v1::{Node, Pod, Secret, ServiceAccount};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use lab::{BuildRegistry, NodeHandle, VirtualMachine};
use serde_json::{Value, json};

use super::{MCO, NODE, POOL};
use crate::ostree::FILE;
use crate::ostree::cluster::api;

const NAMESPACE: &str = "openshift-machine-config-operator";
/// Pulls an image into the host's repository, which is read-only outside of a namespace of its own.
const PULL: &str = "mount -o remount,rw /sysroot && exec ostree container image pull /ostree/repo \"$1\"";
/// The time limit for a build while a machine boots on an emulated processor.
const LIMIT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(300);

/// The cluster, its registry, and the node that runs the builds' pods.
pub(super) struct BuildCluster {
    pub(super) client: Client,
    pub(super) registry: BuildRegistry,
    pub(super) node: NodeHandle,
}

impl BuildCluster {
    pub(super) async fn apply(&self, kind: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let params = PatchParams::apply("test").force();
        api(&self.client, kind).patch(&name, &params, &Patch::Apply(object)).await.unwrap();
    }

    pub(super) async fn patch_node(&self, patch: Value) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Creates the pool with its nodes' config, and the account and the settings of builds. The Secret for pushes does not
    /// exist yet.
    pub(super) async fn pool(&self) {
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
    pub(super) async fn base(&self, image: &str) {
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

    pub(super) async fn secret(&self, name: &str) {
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
    pub(super) async fn signing_secret(&self) {
        let key = self.registry.key();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = json!({
            "metadata": {"name": "os-signing"},
            "stringData": {"cosign.key": key.private, "cosign.password": key.passphrase, "cosign.pub": key.public},
        });
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    /// The machine takes no image of the builds' repository that the key has not signed.
    pub(super) async fn asks_for_signatures(&self, machine: &VirtualMachine) {
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
    pub(super) async fn layers(&self, image: &str) -> Vec<(String, u64)> {
        let here = self.registry.proxies()[0].address().to_string();
        let image = image.replace(&self.registry.host(), &here);
        let settings = registry::Settings { insecure: true, ..registry::Settings::default() };
        let image = registry::Reference::parse(&image).unwrap();
        let facts = registry::Registry::new(settings).inspect(&image, None).await.unwrap();
        facts.layers.iter().map(|layer| (layer.digest.clone(), layer.size)).collect()
    }

    /// The logs of all pods of builds.
    pub(super) async fn logs(&self) -> String {
        self.node.run(["sh", "-c", "cat /var/tmp/kept/*"]).await.unwrap()
    }

    /// The key and its passphrase are in no log, and in no object but their Secret.
    pub(super) async fn no_secret(&self, log: &str) {
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

    /// Waits until the pool is degraded by a node, and says these words; or is not.
    pub(super) async fn degraded(&self, status: &str, words: &[&str]) {
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

    /// Waits until a build other than this one is in this state, and returns it.
    pub(super) async fn next(&self, state: &str, last: &Value) -> Value {
        self.other(state, std::slice::from_ref(last)).await
    }

    pub(super) async fn all_builds(&self) -> Vec<Value> {
        let all = api(&self.client, "MachineOSBuild").list(&ListParams::default()).await.unwrap();
        all.items.iter().map(|b| serde_json::to_value(b).unwrap()).collect()
    }

    /// As `next`, for a build other than these.
    pub(super) async fn other(&self, state: &str, last: &[Value]) -> Value {
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

    /// Waits until the pool reports with these words why a build other than this one failed, and returns that build. An earlier one
    /// may have failed because the pool's config changed meanwhile.
    pub(super) async fn fails(&self, last: &Value, words: &[&str]) -> Value {
        let start = Instant::now();
        let mut seen = String::new();
        while start.elapsed() < LIMIT {
            let pool = serde_json::to_value(api(&self.client, "MachineConfigPool").get(POOL).await.unwrap())
                .unwrap();
            let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let one = conditions.iter().find(|c| c["type"] == "ImageBuildDegraded" && c["status"] == "True");
            seen = one.map(|c| c["message"].as_str().unwrap_or_default().to_owned()).unwrap_or_default();
            if words.iter().all(|word| seen.contains(word)) {
                let named = |build: &Value| {
                    let name = build["metadata"]["name"].as_str().unwrap();
                    seen.contains(name) && build["metadata"]["uid"] != last["metadata"]["uid"]
                };
                if let Some(build) = self.all_builds().await.into_iter().find(named) {
                    eprintln!("{seen}");
                    return build;
                }
            }
            tokio::time::sleep(POLL).await;
        }
        panic!("no build fails with {words:?}: {seen}\n{}", self.pods().await);
    }

    /// The state of the pods and their logs, to explain a build that hangs.
    pub(super) async fn pods(&self) -> String {
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
