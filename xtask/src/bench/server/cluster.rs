//! What the server serves in the benchmark: pools with a rendered config each, written to a real cluster just as a
//! controller would leave them.

use api::names::{CONTROLLER_CONFIG, NAMESPACE};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The number of files in each config, and of lines in each file: together they make an answer of about 400 KB.
const FILES: usize = 40;
const LINES: usize = 62;

/// Puts CRDs, ControllerConfig, and `pools` pools named `pool-N` into the cluster.
pub(super) async fn fill(client: &Client, pools: usize) -> anyhow::Result<()> {
    let params = PatchParams::apply("bench").force();
    let dynamic = |group: &str, kind: &str| -> Api<DynamicObject> {
        Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
    };
    let crds = dynamic("apiextensions.k8s.io", "CustomResourceDefinition");
    for crd in api::crds::all()?.into_iter().filter(|c| c.ours) {
        crds.patch(&crd.name(), &params, &Patch::Apply(&crd.object)).await?;
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    dynamic("", "Namespace").patch(NAMESPACE, &params, &Patch::Apply(&namespace)).await?;
    let (all, configs) =
        (Api::<MachineConfigPool>::all(client.clone()), Api::<MachineConfig>::all(client.clone()));
    let settings = Api::<ControllerConfig>::all(client.clone());
    let one = ListParams::default().limit(1);
    while all.list(&one).await.is_err()
        || configs.list(&one).await.is_err()
        || settings.list(&one).await.is_err()
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    settings.patch(CONTROLLER_CONFIG, &params, &Patch::Apply(&controller_config()?)).await?;
    for n in 0..pools {
        let (pool, name) = (format!("pool-{n}"), format!("rendered-pool-{n}"));
        configs.patch(&name, &params, &Patch::Apply(&rendered(&name, n))).await?;
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": pool}, "spec": {"configuration": {"name": name}},
        });
        let put = all.patch(&pool, &params, &Patch::Apply(&object)).await?;
        let status = json!({"status": {
            "observedGeneration": put.metadata.generation, "machineCount": 3, "updatedMachineCount": 3,
            "readyMachineCount": 3, "unavailableMachineCount": 0, "degradedMachineCount": 0,
            "configuration": {"name": name},
        }});
        all.patch_status(&pool, &PatchParams::default(), &Patch::Merge(&status)).await?;
    }
    Ok(())
}

fn controller_config() -> anyhow::Result<Value> {
    let object = |kind: &str| json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {}, "spec": {}});
    let config: ControllerConfig = serde_json::from_value(json!({
        "metadata": {"name": CONTROLLER_CONFIG},
        "spec": {
            "clusterDNSIP": "10.96.0.10", "kubeAPIServerServingCAData": "Q0E=", "rootCAData": "Q0E=",
            "dns": object("DNS"), "infra": object("Infrastructure"),
        },
    }))?;
    Ok(serde_json::to_value(&config)?)
}

/// A config with files like those of real pools: settings and scripts.
fn rendered(name: &str, seed: usize) -> Value {
    let files: Vec<Value> = (0..FILES)
        .map(|f| {
            let mut text = String::new();
            for line in 0..LINES {
                let mixed = (seed * 7919 + f * 104_729 + line * 1_299_709) % 1_000_003;
                let _ = write!(text, "net.ipv4.conf.interface_{mixed}.setting_{line}%20%3D%20value%20{mixed}%0A");
            }
            json!({
                "path": format!("/etc/sysctl.d/{f}-settings-of-the-pool.conf"), "mode": 420, "overwrite": true,
                "contents": {"source": format!("data:,{text}")},
            })
        })
        .collect();
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": name},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}},
    })
}
