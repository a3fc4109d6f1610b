//! The set-up of the cluster tests: one control plane, one controller behind a proxy, and a pool for each test with a
//! name of its own.

use anyhow::{Context as _, Result, bail};
use api::k8s::{Node, PodDisruptionBudget, ResourceExt};
use api::names::{NAMESPACE, annotation, label};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use lab::{Fault, FaultProxy};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard, OnceCell};
use tokio_util::sync::CancellationToken;

/// A busy two-core machine may be slow. What takes longer than this will not happen.
const LIMIT: Duration = Duration::from_secs(60);

static READY: OnceCell<()> = OnceCell::const_new();
static PROXY: OnceLock<FaultProxy> = OnceLock::new();
static ALONE: Mutex<()> = Mutex::const_new(());

/// Waits until `look` returns something.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if begin.elapsed() > LIMIT {
            bail!("waited {} s in vain for {what}", LIMIT.as_secs());
        }
        tokio::time::sleep(lab::pause_after(begin.elapsed())).await;
    }
}

/// A test's pool and its objects.
pub(crate) struct Harness {
    pub(crate) client: Client,
    /// The pool's name; everything else begins with it.
    pub(crate) name: String,
}

async fn prepare() -> Result<()> {
    let plane = lab::shared().await?;
    let client = plane.client().await?;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let crds = api::crds::all()?;
    for crd in crds.iter().filter(|c| c.ours) {
        let definition: CustomResourceDefinition = serde_json::from_value(crd.object.clone())?;
        definitions.create(&PostParams::default(), &definition).await.with_context(|| crd.name())?;
    }
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    let facts: ControllerConfig = serde_json::from_value(json!({
        "metadata": {"name": api::names::CONTROLLER_CONFIG},
        "spec": {"rootCAData": "QQ==", "kubeAPIServerServingCAData": "QQ==", "ipFamilies": "IPv4"},
    }))?;
    let facts_api = Api::<ControllerConfig>::all(client);
    // The API server serves a definition a moment after it was created.
    eventually("the ControllerConfig to be taken", || async {
        match facts_api.create(&PostParams::default(), &facts).await {
            Ok(_) => Some(Ok(())),
            Err(kube::Error::Api(s)) if s.code == 404 || s.code == 429 => None,
            Err(e) => Some(Err(e)),
        }
    })
    .await??;

    let (server, address) = (plane.server(), plane.server().ip());
    let (ready, proxied) = std::sync::mpsc::channel();
    // The controller outlives the runtime of the test that happened to start it.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let run = async move {
            let proxy = FaultProxy::start(address, server).await?;
            let kubeconfig = plane.identity_via("controller", &["system:masters"], &proxy.url())?;
            drop(PROXY.set(proxy));
            let templates = tempfile::tempdir()?;
            let files = templates.path().join("worker/00-worker/_base/files");
            std::fs::create_dir_all(&files)?;
            std::fs::write(
                files.join("a.yaml"),
                "path: /etc/from-template\nmode: 0644\ncontents: {inline: hello}\n",
            )?;
            ready.send(())?;
            let options = controller::Options {
                kubeconfig: Some(kubeconfig),
                ..controller::Options::new(templates.path())
            };
            anyhow::Ok(controller::start(options, CancellationToken::new()).await?)
        };
        match runtime.map(|r| r.block_on(run)) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => eprintln!("the controller ended: {e:#}"),
            Err(e) => eprintln!("no runtime for the controller: {e}"),
        }
    });
    proxied.recv().context("the controller's proxy did not start")
}

impl Harness {
    pub(crate) async fn new(stem: &str) -> Result<Self> {
        READY.get_or_try_init(prepare).await?;
        let client = lab::shared().await?.client().await?;
        Ok(Self { client, name: lab::unique_name(stem) })
    }

    /// While the returned guard is held, no other test needs the controller's connection to work, and none edits the MachineConfigs of
    /// templates, which all tests have in common.
    pub(crate) async fn alone(&self) -> MutexGuard<'static, ()> {
        ALONE.lock().await
    }

    pub(crate) fn fault(&self, fault: Fault) {
        if let Some(proxy) = PROXY.get() {
            proxy.set(fault);
        }
    }

    pub(crate) fn machine_configs(&self) -> Api<MachineConfig> {
        Api::all(self.client.clone())
    }

    fn pools(&self) -> Api<MachineConfigPool> {
        Api::all(self.client.clone())
    }

    /// Creates the pool; `spec` is merged over the fields that every test needs.
    pub(crate) async fn pool(&self, spec: Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "metadata": {"name": self.name},
            "spec": {
                "machineConfigSelector": {"matchLabels": {label::ROLE: self.name}},
                "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{}", self.name): ""}},
            },
        });
        if let (Some(all), Some(more)) = (object["spec"].as_object_mut(), spec.as_object()) {
            all.extend(more.clone());
        }
        self.raw().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    fn raw(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &ApiResource::erase::<MachineConfigPool>(&()))
    }

    pub(crate) async fn raw_pool(&self) -> Result<Value> {
        Ok(self.raw().get(&self.name).await?.data)
    }

    pub(crate) async fn patch_pool(&self, patch: Value) -> Result<()> {
        self.raw().patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub(crate) async fn get_pool(&self) -> Result<MachineConfigPool> {
        Ok(self.pools().get(&self.name).await?)
    }

    /// Creates or changes a MachineConfig with one file.
    pub(crate) async fn machine_config(&self, stem: &str, content: &str) -> Result<()> {
        let source = ignition::data_url::encode(content.as_bytes());
        let file = json!({"path": format!("/etc/{stem}"), "mode": 420, "contents": {"source": source}});
        self.raw_config(stem, json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}})).await
    }

    pub(crate) async fn raw_config(&self, stem: &str, config: Value) -> Result<()> {
        let name = format!("{}-{stem}", self.name);
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {label::ROLE: self.name}},
            "spec": {"config": config},
        });
        let params = PatchParams::apply("test").force();
        self.machine_configs().patch(&name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    /// Waits until the pool names a rendered config other than this one.
    pub(crate) async fn rendered_not(&self, old: &str) -> Result<String> {
        eventually(&format!("pool {} to name a new config", self.name), || async {
            let name = self.get_pool().await.ok()?.spec.configuration.name;
            (!name.is_empty() && name != old).then_some(name)
        })
        .await
    }

    /// The rendered configs of the pool.
    pub(crate) async fn rendered(&self) -> Result<Vec<String>> {
        let prefix = format!("rendered-{}-", self.name);
        let all = self.machine_configs().list(&ListParams::default()).await?;
        Ok(all.iter().map(|c| c.name_any()).filter(|n| n.starts_with(&prefix)).collect())
    }

    /// Waits for a condition's status; returns its message.
    pub(crate) async fn pool_condition(&self, type_: &str, status: &str) -> Result<String> {
        eventually(&format!("pool {} to be {type_}={status}", self.name), || async {
            let conditions = self.get_pool().await.ok()?.status?.conditions?;
            conditions.into_iter().find(|c| c.type_ == type_ && c.status == status).map(|c| c.message)
        })
        .await
    }

    /// Waits until the pool has this many nodes and the condition is true for its current config.
    pub(crate) async fn pool_is(&self, type_: &str, nodes: i32) -> Result<()> {
        eventually(&format!("pool {} to be {type_} with {nodes} nodes", self.name), || async {
            let pool = self.get_pool().await.ok()?;
            let status = pool.status?;
            let conditions = status.conditions.unwrap_or_default();
            (status.machine_count == nodes
                && Some(status.observed_generation) == pool.metadata.generation
                && status.configuration.name == pool.spec.configuration.name
                && api::conditions::is_true(&conditions, type_))
            .then_some(())
        })
        .await
    }

    pub(crate) fn node_name(&self, i: usize) -> String {
        format!("{}-{i}", self.name)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates a node that is Ready and has this config.
    pub(crate) async fn node(&self, i: usize, config: &str) -> Result<()> {
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": self.node_name(i),
                "labels": {format!("node-role.kubernetes.io/{}", self.name): ""},
                "annotations": {
                    annotation::CURRENT_CONFIG: config, annotation::DESIRED_CONFIG: config, annotation::STATE: "Done",
                },
            },
        }))?;
        self.nodes().create(&PostParams::default(), &node).await?;
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        self.nodes().patch_status(&self.node_name(i), &PatchParams::default(), &Patch::Merge(ready)).await?;
        Ok(())
    }

    pub(crate) async fn get_node(&self, i: usize) -> Result<Node> {
        Ok(self.nodes().get(&self.node_name(i)).await?)
    }

    pub(crate) async fn annotate(&self, i: usize, key: &str, value: &str) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        self.nodes().patch(&self.node_name(i), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Waits until a drain request was completed.
    pub(crate) async fn drained(&self, i: usize, request: &str) -> Result<()> {
        eventually(&format!("{request} on {}", self.node_name(i)), || async {
            let node = self.get_node(i).await.ok()?;
            (node.annotations().get(annotation::LAST_APPLIED_DRAIN)? == request).then_some(())
        })
        .await
    }

    /// Waits for a condition of the node's MachineConfigNode.
    pub(crate) async fn step_is(&self, i: usize, type_: &str, status: &str) -> Result<()> {
        let api = Api::<MachineConfigNode>::all(self.client.clone());
        eventually(&format!("{} to be {type_}={status}", self.node_name(i)), || async {
            let object = api.get_opt(&self.node_name(i)).await.ok()??;
            let conditions = object.status?.conditions?;
            conditions.iter().any(|c| c.type_ == type_ && c.status == status).then_some(())
        })
        .await
    }

    /// Creates running pods on a node whose PodDisruptionBudget allows no eviction; waits until the budget counts them.
    pub(crate) async fn guarded_pods(&self, i: usize, count: i32) -> Result<()> {
        let pods = Api::<Pod>::default_namespaced(self.client.clone());
        for n in 0..count {
            let name = format!("{}-pod-{n}", self.name);
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"app": self.name}},
                "spec": {
                    "nodeName": self.node_name(i),
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "a", "image": "none"}],
                },
            }))?;
            // The controller manager creates the default service account.
            eventually("a pod to be taken", || async {
                pods.create(&PostParams::default(), &pod).await.ok()
            })
            .await?;
            let running =
                json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(running)).await?;
        }
        let budgets = Api::<PodDisruptionBudget>::default_namespaced(self.client.clone());
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": self.name},
            "spec": {"minAvailable": count, "selector": {"matchLabels": {"app": self.name}}},
        }))?;
        budgets.create(&PostParams::default(), &budget).await?;
        eventually("the budget to count the pods", || async {
            let status = budgets.get(&self.name).await.ok()?.status?;
            (status.current_healthy == Some(count) && status.disruptions_allowed == Some(0)).then_some(())
        })
        .await
    }
}

/// Acts for the agents of a test's nodes: requests the drain, applies the new config at once, and requests the
/// uncordon.
pub(crate) struct FakeDaemon {
    most: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl FakeDaemon {
    pub(crate) fn start(harness: &Harness) -> Self {
        let most = Arc::new(AtomicUsize::new(0));
        let (api, prefix, seen) = (harness.nodes(), harness.name.clone(), most.clone());
        let task = tokio::spawn(async move {
            loop {
                let only = ListParams::default().labels(&format!("node-role.kubernetes.io/{prefix}"));
                let nodes = api.list(&only).await.map(|l| l.items).unwrap_or_default();
                let mut moving = 0;
                for node in &nodes {
                    let note = |key: &str| node.annotations().get(key).cloned().unwrap_or_default();
                    let (want, have) = (note(annotation::DESIRED_CONFIG), note(annotation::CURRENT_CONFIG));
                    let (asked, done) =
                        (note(annotation::DESIRED_DRAIN), note(annotation::LAST_APPLIED_DRAIN));
                    let (drain, uncordon) = (format!("drain-{want}"), format!("uncordon-{want}"));
                    let next = if have != want && asked != drain {
                        json!({annotation::STATE: "Working", annotation::DESIRED_DRAIN: drain})
                    } else if have != want && done == drain {
                        json!({annotation::CURRENT_CONFIG: want, annotation::DESIRED_DRAIN: uncordon})
                    } else if have == want && note(annotation::STATE) == "Working" && done == uncordon {
                        json!({annotation::STATE: "Done"})
                    } else {
                        moving += usize::from(have != want);
                        continue;
                    };
                    moving += 1;
                    let patch = Patch::Merge(json!({"metadata": {"annotations": next}}));
                    drop(api.patch(&node.name_any(), &PatchParams::default(), &patch).await);
                }
                seen.fetch_max(moving, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { most, task }
    }

    /// The largest number of nodes that were being updated at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.task.abort();
    }
}
