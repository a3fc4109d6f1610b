//! `bench images`: what image builds cost the controller: how soon a new MachineOSConfig gets its Job, and how much more memory
//! the controller uses with 20 MachineOSConfigs and 200 builds.
//!
//! Real: the controller and the API server. Simplified: there are no nodes, and nothing runs the Jobs. Nine of ten builds are
//! created as succeeded, with the status that the controller itself would write. They belong to no MachineOSConfig, so that
//! none is pruned for its age.
//!
//! Not here: a real build; `crates/lab/tests/vm` has one.

use super::{Bench, Outcome, Samples, mebibytes};
use anyhow::{Context, bail};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use lab::{Lab, Reporter};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const GROUP: &str = "machineconfiguration.openshift.io";
const NAMESPACE: &str = "openshift-machine-config-operator";
/// The numbers of MachineOSConfigs and builds that the memory figure is for.
const CONFIGS: usize = 20;
const BUILDS: usize = 200;
const LIMIT: Duration = Duration::from_secs(120);
/// The pause between two checks; the time until a Job appears is overstated by at most this.
const LOOK: Duration = Duration::from_millis(5);
/// How long after a change the controller counts as idle.
const CALM: Duration = Duration::from_secs(10);
const BASE: &str =
    "registry.lab.test/os@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

pub(super) fn run(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let mut samples = Samples::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let templates = root.join("target/bench/no-templates");
        std::fs::create_dir_all(&templates)?;
        let lab = Lab::builder()
            .controller(true)
            .controller_manager(false)
            .scheduler(false)
            .mco_binary(a.program.clone().unwrap_or_else(|| root.join("target/release/mco")))
            .templates(templates)
            .progress(Reporter::stderr())
            .start()
            .await?;
        let outcome = measure(&lab, &mut samples).await;
        lab.stop().await;
        outcome
    })?;
    let versions = vec![("Kubernetes".to_owned(), lab::KUBERNETES_VERSION.to_owned())];
    Ok(Outcome { versions, figures: samples.0 })
}

async fn measure(lab: &Lab, samples: &mut Samples) -> anyhow::Result<()> {
    let client = lab.client();
    let controller = lab.controller_pid().context("the lab runs no controller")?;
    let memory = |line: &str| -> anyhow::Result<f64> {
        Ok(mebibytes(&std::fs::read_to_string(format!("/proc/{controller}/status"))?, line))
    };
    apply(
        &api(&client, GROUP, "MachineConfig"),
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfig",
            "metadata": {"name": "10-image", "labels": {format!("{GROUP}/role"): "worker"}},
            "spec": {"osImageURL": BASE, "config": {"ignition": {"version": "3.4.0"}}},
        }),
    )
    .await?;
    let pools = api(&client, GROUP, "MachineConfigPool");
    for i in 0..CONFIGS {
        apply(&pools, pool(i)).await?;
    }
    let rendered = async |name: String| {
        let pool = pools.get(&name).await.ok()?;
        pool.data["spec"]["configuration"]["name"].as_str().map(str::to_owned).filter(|n| !n.is_empty())
    };
    let mut configs = vec![];
    for i in 0..CONFIGS {
        configs.push(until("a pool is rendered", async || rendered(name(i)).await).await?);
    }
    let annotation =
        json!({"metadata": {"annotations": {api::names::annotation::IMAGE_BUILDER: "lab.invalid/builder"}}});
    let settings = api(&client, GROUP, "ControllerConfig");
    settings.patch("machine-config-controller", &PatchParams::default(), &Patch::Merge(annotation)).await?;
    tokio::time::sleep(CALM).await;
    let before = memory("VmRSS:")?;

    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
    let jobs: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
    let os_configs = api(&client, GROUP, "MachineOSConfig");
    for i in 0..CONFIGS {
        let of_pool =
            ListParams::default().labels(&format!("{GROUP}/target-machine-config-pool={}", name(i)));
        let start = Instant::now();
        apply(&os_configs, os_config(i)).await?;
        until("a Job", async || {
            let found = jobs.list(&of_pool).await.ok()?;
            (!found.items.is_empty()).then_some(())
        })
        .await?;
        samples.put("MachineOSConfig applied to Job created", "ms", start.elapsed().as_secs_f64() * 1000.0);
    }
    let builds = api(&client, GROUP, "MachineOSBuild");
    for n in 0..BUILDS - CONFIGS {
        let object = build(n, configs.get(n % CONFIGS).map(String::as_str).unwrap_or_default());
        let status = object["status"].clone();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        apply(&builds, object).await?;
        let patch = Patch::Merge(json!({"status": status}));
        builds.patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    let count = builds.list(&ListParams::default()).await?.items.len();
    if count != BUILDS {
        bail!("there are {count} builds, not {BUILDS}");
    }
    tokio::time::sleep(CALM).await;
    samples.put("controller memory, more than without", "MiB", memory("VmRSS:")? - before);
    samples.put("controller memory", "MiB", memory("VmRSS:")?);
    Ok(())
}

fn name(i: usize) -> String {
    format!("pool-{i}")
}

fn api(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
}

async fn apply(api: &Api<DynamicObject>, object: Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let params = PatchParams::apply("bench").force();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("cannot apply {name}"))?;
    Ok(())
}

/// Polls until `look` returns a value.
async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> anyhow::Result<T> {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        if let Some(found) = look().await {
            return Ok(found);
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("waited {LIMIT:?} in vain: {what}")
}

fn pool(i: usize) -> Value {
    let name = name(i);
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool", "metadata": {"name": name},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [
                {"key": format!("{GROUP}/role"), "operator": "In", "values": ["worker", name]},
            ]},
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
        },
    })
}

fn os_config(i: usize) -> Value {
    let name = name(i);
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "MachineOSConfig", "metadata": {"name": name},
        "spec": {
            "machineConfigPool": {"name": name}, "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"}, "renderedImagePushSpec": "registry.lab.test/team/os:latest",
            "containerFile": [{"content": "FROM configs AS final\nRUN true\n"}],
        },
    })
}

/// A build that has succeeded and belongs to no MachineOSConfig.
fn build(n: usize, rendered: &str) -> Value {
    let of = name(n % CONFIGS);
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let digest = format!("registry.lab.test/team/os@sha256:{n:064x}");
    let name = format!("{of}-{n:032x}");
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "MachineOSBuild",
        "metadata": {"name": name, "labels": {
            format!("{GROUP}/target-machine-config-pool"): of, format!("{GROUP}/machine-os-config"): of,
            format!("{GROUP}/rendered-machine-config"): rendered,
        }},
        "spec": {
            "machineConfig": {"name": rendered}, "machineOSConfig": {"name": of},
            "renderedImagePushSpec": format!("registry.lab.test/team/os:{name}"),
        },
        "status": {
            "conditions": [
                condition("Prepared", "False", "Prepared", "Build Prepared and Pending"),
                condition("Building", "False", "Building", "Image Build In Progress"),
                condition("Failed", "False", "Failed", "Build Failed"),
                condition("Interrupted", "False", "Interrupted", "Build Interrupted"),
                condition("Succeeded", "True", "Ready", "Build Ready"),
            ],
            "buildStart": "2026-01-01T00:00:00Z", "buildEnd": "2026-01-01T00:05:00Z", "digestedImagePushSpec": digest,
            "builder": {"imageBuilderType": "Job", "job": {
                "group": "batch", "resource": "jobs", "namespace": NAMESPACE, "name": format!("build-{name}"),
            }},
        },
    })
}
