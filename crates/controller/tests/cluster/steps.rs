//! Upgrades and rollbacks: controllers of several versions and with several template folders, one after the other, on a
//! cluster of their own with the real agents of this build; and an API server that denies what they write.
//!
//! Not here: the everyday work of one controller (see `main.rs`).

use crate::harness::{Harness, eventually};
use anyhow::{Context as _, Result, ensure};
use api::k8s::{Event, Node, ResourceExt};
use api::names::{CONTROLLER_CONFIG, NAMESPACE, annotation};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use lab::Lab;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A refusal is reported within this time.
const PROMISED: Duration = Duration::from_secs(10);
/// The extra time that a busy machine may need.
const BUSY: Duration = Duration::from_secs(10);

/// The API server, and nodes whose agents are of this build.
struct Cluster {
    lab: Lab,
    client: Client,
    /// The templates, which the tests change.
    templates: tempfile::TempDir,
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (entry, name) = entry.map(|e| (e.path(), e.file_name()))?;
        if entry.is_dir() {
            copy(&entry, &to.join(name))?;
        } else {
            std::fs::copy(&entry, to.join(name))?;
        }
    }
    Ok(())
}

impl Cluster {
    /// Starts the cluster; `None` if the test is skipped, which is reported.
    async fn start(nodes: usize) -> Result<Option<Self>> {
        let mco = lab::built_mco();
        if !lab::require(mco.is_none().then(|| "the mco program is not built: cargo build -p cli".to_owned()))
        {
            return Ok(None);
        }
        let builder = Lab::start().scheduler(false).controller_manager(false).nodes(nodes).simulated();
        let builder = builder.mco_binary(mco.context("built")?).reboot_time(Duration::from_millis(50));
        let lab = builder.start().await?;
        lab.mco(["install", "--kubeconfig", &lab.kubeconfig().display().to_string()]).await?;
        let client = lab.client();
        let templates = tempfile::tempdir()?;
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates");
        for role in ["common", "master", "worker"] {
            copy(&ours.join(role), &templates.path().join(role))?;
        }
        Ok(Some(Self { lab, client, templates }))
    }

    async fn stop(self) {
        drop(self.client);
        self.lab.stop().await;
    }

    fn template(&self, path: &str) -> PathBuf {
        self.templates.path().join(path)
    }

    fn harness(&self, name: &str) -> Harness {
        Harness { client: self.client.clone(), name: name.to_owned() }
    }

    fn configs(&self) -> Api<MachineConfig> {
        Api::all(self.client.clone())
    }

    /// A controller of this version; `None` for this build's.
    fn controller(&self, version: Option<&str>) -> Running {
        let mut options = controller::Options {
            kubeconfig: Some(self.lab.kubeconfig().to_owned()),
            ..controller::Options::new(self.templates.path())
        };
        if let Some(version) = version {
            (options.versions.raw, options.versions.hash) = (version.to_owned(), version.to_owned());
        }
        let stop = CancellationToken::new();
        Running { task: tokio::spawn(controller::start(options, stop.clone())), stop }
    }

    async fn pool(&self, name: &str) -> Result<MachineConfigPool> {
        Ok(Api::<MachineConfigPool>::all(self.client.clone()).get(name).await?)
    }

    /// Waits until the pool is rendered and healthy, made from all of `with` and none of `without`; returns the
    /// rendered config's name.
    async fn rendered(&self, pool: &str, with: &[&str], without: &[&str]) -> Result<String> {
        eventually(&format!("pool {pool} with {with:?} and without {without:?}"), || async {
            let pool = self.pool(pool).await.ok()?;
            let source = pool.spec.configuration.source?;
            let has = |one: &&str| source.iter().any(|s| s.name.as_deref() == Some(*one));
            let conditions = pool.status?.conditions?;
            let healthy = api::conditions::get(&conditions, "RenderDegraded")?.status == "False";
            (healthy && with.iter().all(has) && !without.iter().any(has))
                .then_some(pool.spec.configuration.name)
        })
        .await
    }

    /// Waits until every node has this config and is done.
    async fn nodes_in(&self, config: &str) -> Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        eventually(&format!("all nodes to be done in {config}"), || async {
            let all = nodes.list(&ListParams::default()).await.ok()?;
            let done = |node: &Node| {
                let is = |key: &str, want: &str| node.annotations().get(key).is_some_and(|v| v == want);
                is(annotation::CURRENT_CONFIG, config)
                    && is(annotation::DESIRED_CONFIG, config)
                    && is(annotation::STATE, "Done")
            };
            (!all.items.is_empty() && all.iter().all(done)).then_some(())
        })
        .await
    }

    fn facts(&self) -> Api<ControllerConfig> {
        Api::all(self.client.clone())
    }

    async fn version(&self) -> Option<String> {
        let facts = self.facts().get(CONTROLLER_CONFIG).await.ok()?;
        facts.annotations().get(annotation::GENERATED_BY_VERSION).cloned()
    }

    async fn write_version(&self, manager: &str, version: &str) -> Result<()> {
        let note = json!({"metadata": {"annotations": {annotation::GENERATED_BY_VERSION: version}}});
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        self.facts().patch(CONTROLLER_CONFIG, &params, &Patch::Merge(note)).await?;
        Ok(())
    }

    /// Waits until the pool's rendered config, and the MachineConfigs from templates, carry this version.
    async fn marked(&self, rendered: &str, version: &str) -> Result<()> {
        for name in ["00-worker", "00-master", rendered] {
            eventually(&format!("{name} to be marked with {version}"), || async {
                let config = self.configs().get(name).await.ok()?;
                (config.annotations().get(annotation::GENERATED_BY_CONTROLLER)? == version).then_some(())
            })
            .await?;
        }
        Ok(())
    }

    fn admission(&self, kind: &str) -> Api<DynamicObject> {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
        Api::all_with(self.client.clone(), &resource)
    }

    /// Denies writes of MachineConfigs for which this expression is false. Returns once the policy is in force.
    async fn deny(&self, unless: &str) -> Result<()> {
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "deny-writes"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [api::names::GROUP], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["machineconfigs"],
                }]},
                "validations": [{
                    "expression": format!("object.metadata.name != 'probe' && ({unless})"),
                    "message": "denied by the policy of this test", "reason": "Forbidden",
                }],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "deny-writes"},
            "spec": {"policyName": "deny-writes", "validationActions": ["Deny"]},
        });
        for object in [policy, binding] {
            let object: DynamicObject = serde_json::from_value(object)?;
            let kind = object.types.as_ref().map(|t| t.kind.clone()).unwrap_or_default();
            self.admission(&kind).create(&PostParams::default(), &object).await?;
        }
        let probe = MachineConfig::new("probe", api::v1::MachineConfigSpec::default());
        eventually("the policy to be in force", || async {
            let params = PostParams { dry_run: true, ..PostParams::default() };
            self.configs().create(&params, &probe).await.is_err().then_some(())
        })
        .await
    }

    async fn allow(&self) -> Result<()> {
        for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
            self.admission(kind).delete("deny-writes", &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

struct Running {
    task: JoinHandle<Result<(), controller::ControllerError>>,
    stop: CancellationToken,
}

impl Running {
    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.task.await??)
    }
}

/// Checks that the pool reports RenderDegraded in time, with a message that contains these words.
async fn told(harness: &Harness, since: Instant, words: &[&str]) -> Result<()> {
    let message = harness.pool_condition("RenderDegraded", "True").await?;
    let took = since.elapsed();
    for word in words {
        ensure!(message.contains(word), "{word:?} is not in {message}");
    }
    ensure!(took < PROMISED + BUSY, "told after {took:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_and_a_downgrade_keep_rendered_names() -> Result<()> {
    let Some(cluster) = Cluster::start(2).await? else { return Ok(()) };
    let (own, next) = (api::names::VERSION_RAW, "v9.0.0");
    let worker = cluster.harness("worker");
    let this = cluster.controller(None);
    let first = cluster.rendered("worker", &["00-worker"], &[]).await?;
    cluster.nodes_in(&first).await?;
    this.stop().await?;

    // Upgrade: the names stay the same, no node is touched, and a change reaches agents of the previous version.
    let newer = cluster.controller(Some(next));
    cluster.marked(&first, next).await?;
    ensure!(cluster.version().await.as_deref() == Some(next));
    ensure!(cluster.rendered("worker", &["00-worker"], &[]).await? == first, "another name");
    let events = Api::<Event>::namespaced(cluster.client.clone(), NAMESPACE);
    eventually("the event about it", || async {
        let all = events.list(&ListParams::default()).await.ok()?;
        let fits = |e: &&Event| {
            let message = e.message.as_deref().unwrap_or_default();
            e.reason.as_deref() == Some("VersionTakenOver") && message.contains(own) && message.contains(next)
        };
        all.iter().find(fits).map(|_| ())
    })
    .await?;
    worker.machine_config("a", "one").await?;
    let second = cluster.rendered("worker", &["00-worker", "worker-a"], &[]).await?;
    cluster.nodes_in(&second).await?;
    newer.stop().await?;

    // Rollback.
    let this = cluster.controller(None);
    cluster.marked(&second, own).await?;
    ensure!(cluster.version().await.as_deref() == Some(own));
    ensure!(cluster.rendered("worker", &["worker-a"], &[]).await? == second, "another name");
    worker.machine_config("a", "two").await?;
    let third = worker.rendered_not(&second).await?;
    cluster.nodes_in(&third).await?;

    // Another program that writes the annotation once, like an administrator who applies an old file, has no effect.
    cluster.write_version("somebody", "v0.0.1").await?;
    eventually("it to be taken over", || async { cluster.version().await.filter(|v| v == own) }).await?;
    // A program that keeps writing it is named in the message.
    let stop = CancellationToken::new();
    let (facts, token) = (cluster.facts(), stop.clone());
    let writer = tokio::spawn(async move {
        let note = json!({"metadata": {"annotations": {annotation::GENERATED_BY_VERSION: "v0.0.2"}}});
        let params =
            PatchParams { field_manager: Some("other-operator".to_owned()), ..PatchParams::default() };
        while !token.is_cancelled() {
            drop(facts.patch(CONTROLLER_CONFIG, &params, &Patch::Merge(note.clone())).await);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    told(&worker, Instant::now(), &["other-operator", "v0.0.2", own, annotation::GENERATED_BY_VERSION])
        .await?;
    ensure!(worker.rendered_not("").await? == third, "rendered all the same");
    stop.cancel();
    writer.await?;
    cluster.write_version("somebody", own).await?;
    ensure!(cluster.rendered("worker", &["worker-a"], &[]).await? == third);
    this.stop().await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_configs_of_removed_templates_are_deleted_and_do_not_block_an_upgrade() -> Result<()> {
    let Some(cluster) = Cluster::start(0).await? else { return Ok(()) };
    let extra = cluster.template("worker/02-worker-extra/_base/files");
    std::fs::create_dir_all(&extra)?;
    std::fs::write(extra.join("a.yaml"), "path: /etc/extra\nmode: 0644\ncontents: {inline: hello}\n")?;
    let this = cluster.controller(None);
    let with = cluster.rendered("worker", &["00-worker", "02-worker-extra"], &[]).await?;
    this.stop().await?;
    // The next version does not ship this folder.
    std::fs::remove_dir_all(cluster.template("worker/02-worker-extra"))?;
    let next = cluster.controller(Some("v9.0.0"));
    let without = cluster.rendered("worker", &["00-worker"], &["02-worker-extra"]).await?;
    ensure!(without != with);
    let gone = || async { cluster.configs().get_opt("02-worker-extra").await.ok()?.is_none().then_some(()) };
    eventually("02-worker-extra to go", gone).await?;
    // The folder is restored and deleted again, while the controller runs.
    std::fs::create_dir_all(&extra)?;
    std::fs::write(extra.join("a.yaml"), "path: /etc/extra\nmode: 0644\ncontents: {inline: hello}\n")?;
    ensure!(cluster.rendered("worker", &["02-worker-extra"], &[]).await? == with, "the same makes the same");
    // MachineConfigs that users created stay.
    let own = cluster.harness("worker");
    own.machine_config("own", "mine").await?;
    cluster.rendered("worker", &["02-worker-extra", "worker-own"], &[]).await?;
    std::fs::remove_dir_all(cluster.template("worker/02-worker-extra"))?;
    cluster.rendered("worker", &["00-worker", "worker-own"], &["02-worker-extra"]).await?;

    // A folder that is empty by mistake, for example because a volume was not mounted: nothing is deleted.
    let rendered = own.rendered_not("").await?;
    next.stop().await?;
    for role in ["common", "master", "worker"] {
        std::fs::remove_dir_all(cluster.template(role))?;
    }
    let next = cluster.controller(Some("v9.0.0"));
    let message = own.pool_condition("RenderDegraded", "True").await?;
    ensure!(message.contains("holds no templates") && message.contains("00-worker"), "{message}");
    ensure!(cluster.configs().get_opt("00-worker").await?.is_some());
    ensure!(own.rendered_not("").await? == rendered);
    next.stop().await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_api_server_is_reported_and_blocks_no_other_pool() -> Result<()> {
    let Some(cluster) = Cluster::start(0).await? else { return Ok(()) };
    let (worker, infra) = (cluster.harness("worker"), cluster.harness("infra"));
    let this = cluster.controller(None);
    let first = cluster.rendered("worker", &["00-worker"], &[]).await?;
    infra.machine_config("a", "one").await?;
    let labels = json!({"metadata": {"labels": {"settings": "infra"}}});
    infra.pool(json!({})).await?;
    infra.patch_pool(labels).await?;
    let limits: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ContainerRuntimeConfig",
        "metadata": {"name": "limits"},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels": {"settings": "infra"}},
            "containerRuntimeConfig": {"pidsLimit": 2048},
        },
    }))?;
    let kind =
        ApiResource::from_gvk(&GroupVersionKind::gvk(api::names::GROUP, "v1", "ContainerRuntimeConfig"));
    let settings: Api<DynamicObject> = Api::all_with(cluster.client.clone(), &kind);
    settings.create(&PostParams::default(), &limits).await?;
    let generated = "99-infra-generated-containerruntime";
    cluster.rendered("infra", &["infra-a", generated], &[]).await?;

    // Only the rendered configs of one pool are denied.
    cluster.deny("!object.metadata.name.startsWith('rendered-worker-')").await?;
    let since = Instant::now();
    worker.machine_config("a", "one").await?;
    told(&worker, since, &["denied by the policy of this test", "machineconfig rendered-worker-"]).await?;
    worker.pool_condition("Degraded", "True").await?;
    ensure!(worker.rendered_not("").await? == first);
    let before = infra.rendered_not("").await?;
    infra.machine_config("a", "two").await?;
    let second = infra.rendered_not(&before).await?;
    // No watched object changes when the policy is removed. The writes are retried anyway.
    cluster.allow().await?;
    cluster.rendered("worker", &["worker-a"], &[]).await?;
    this.stop().await?;

    // One generated MachineConfig and one from a template are denied during an upgrade, which writes all of them.
    cluster.deny(&format!("!(object.metadata.name in ['{generated}', '00-master'])")).await?;
    let (since, next) = (Instant::now(), cluster.controller(Some("v9.0.0")));
    told(&infra, since, &["denied by the policy of this test", generated]).await?;
    told(&cluster.harness("master"), since, &["denied by the policy of this test", "00-master"]).await?;
    let worker_before = worker.rendered_not("").await?;
    worker.machine_config("a", "three").await?;
    worker.rendered_not(&worker_before).await?;
    worker.pool_condition("RenderDegraded", "False").await?;
    ensure!(infra.rendered_not("").await? == second);
    let facts = cluster.facts().get(CONTROLLER_CONFIG).await?;
    let conditions = facts.status.and_then(|s| s.conditions).unwrap_or_default();
    let failing = api::conditions::get(&conditions, "TemplateControllerFailing").context("no condition")?;
    ensure!(failing.status == "True" && failing.message.contains("00-master"), "{failing:?}");
    cluster.allow().await?;
    for pool in [&infra, &cluster.harness("master")] {
        pool.pool_condition("RenderDegraded", "False").await?;
    }
    next.stop().await?;
    cluster.stop().await;
    Ok(())
}
