//! A whole release on a cluster of one machine: two ConfigMaps name the operator's image and the OS, and the machine boots that
//! OS after everything before it has been rolled out.
//!
//! Operator, controller and agent are the real program. The pods of Deployments and DaemonSets are fakes that run as soon
//! as they are bound, so the test itself replaces the operator when its Deployment is rolled out.
//!
//! Not here: mixed or invalid release payloads (`serving/openshift.rs`).

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use lab::{Lab, OstreeMachine, Reporter};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::cluster::{api, done, note, wait};
use super::{Asked, FIRST, config, ended, settled};
use crate::product::program;
use crate::{PLACE, timed};

const MCO: &str = "machineconfiguration.openshift.io";
const NAMESPACE: &str = "openshift-machine-config-operator";
const NODE: &str = "virtual-0";
const POOL: &str = "master";
const OLD: &str = "registry.example.com/mco:1";
const NEW: &str = "registry.example.com/mco:2";
const RELEASE: &str = "4.22.2";
/// Kubernetes' own controllers bind, roll out and drain pods, beside a machine on an emulated processor.
const LIMIT: Duration = Duration::from_secs(600);
/// The steps of the rollout, in the required order.
const ORDER: [&str; 6] = ["operator", "controller", "config server", "ControllerConfig", "pool", "node"];

#[tokio::test(flavor = "multi_thread")]
async fn a_release_goes_from_the_operator_to_the_os_of_the_node() {
    if !lab::require_root() {
        return;
    }
    let machine = OstreeMachine::ensure(&Reporter::stderr()).await.unwrap();
    let _place = PLACE.acquire().await.unwrap();
    let mut lab = Lab::builder()
        .mco_binary(program())
        .scheduler(true)
        .controller_manager(true)
        .progress(Reporter::stderr())
        .start()
        .await
        .unwrap();
    let client = lab.client();
    let kubeconfig = lab.kubeconfig().display().to_string();
    let image = format!("--image={OLD}");
    lab.mco([
        "install",
        &image,
        "--api-server-url=https://api.lab.test:6443",
        "--no-wait",
        "--kubeconfig",
        &kubeconfig,
    ])
    .await
    .unwrap();
    let spec = json!({"spec": {"imageFrom": "ReleasePayload", "agents": {"runAs": "HostServices"}}});
    merge(&own(&client), "cluster", &spec).await;
    // The previous release has no OS image: the machine keeps its own.
    release(&client, "machine-config-operator-images", images("4.22.1", OLD)).await;

    let registry = machine.registry(lab.shared_folder()).await.unwrap();
    let node = timed("the node", lab.virtual_node(NODE, machine.image())).await.unwrap();
    let vm = node.machine();
    let nodes: Api<Node> = Api::all(client.clone());
    let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(role)).await.unwrap();

    let templates = tempfile::tempdir().unwrap();
    let logs = lab.shared_folder().join("logs");
    let alone = ["--leader-elect=false", "--metrics-listen=off"];
    let operator_of = |image: &str| {
        let image = format!("--image={image}");
        start(&logs, "operator", &kubeconfig, &["operator", "start", "--log=info", &image], &alone)
    };
    let mut operator = operator_of(OLD);
    until("the pools are there", async || {
        api(&client, "MachineConfigPool").get_opt(POOL).await.unwrap().map(drop)
    })
    .await;
    // The controller cannot resolve the machine's name for the registry.
    let unseen = json!({"metadata": {"annotations": {api::names::own::OS_IMAGES: "as-they-are"}}});
    merge(&api(&client, "MachineConfigPool"), POOL, &unseen).await;
    let mut base = config(Asked { name: "00-base", ..FIRST });
    base["metadata"]["labels"] = json!({format!("{MCO}/role"): POOL});
    let base: DynamicObject = serde_json::from_value(base).unwrap();
    api(&client, "MachineConfig").create(&PostParams::default(), &base).await.unwrap();
    let templates = format!("--templates={}", templates.path().display());
    let controller = start(&logs, "controller", &kubeconfig, &["controller", "start", &templates], &alone);
    let in_pool = |node: &Value| done(node) && note(node, "currentConfig").starts_with("rendered-master-");
    let before = wait(&client, "the machine is in the pool of the control plane", in_pool).await;
    until("the release before is rolled out", async || has_deployed(&client, "4.22.1").await).await;
    let first = vm.boot_id().await.unwrap();
    let was = note(&before, "currentConfig");

    // The release is applied one ConfigMap after the other.
    release(&client, "machine-config-operator-images", images(RELEASE, NEW)).await;
    let os = json!({"releaseVersion": RELEASE, "baseOSContainerImage": registry.reference("b"),
        "baseOSExtensionsContainerImage": "registry.example.com/extensions:2", "osImageURL": "registry.example.com/legacy:2"});
    release(&client, "machine-config-osimageurl", os).await;
    let start = Instant::now();
    let mut reached = 0;
    while reached < ORDER.len() {
        assert!(start.elapsed() < LIMIT, "no {}: {:#}", ORDER[reached], settings(&client).await["status"]);
        // Read in reverse order: when a step has been reached, all steps before it must have been reached by then.
        let mut seen = [false; ORDER.len()];
        for at in (0..ORDER.len()).rev() {
            seen[at] = has_reached(&client, at, &was).await;
        }
        let whole = seen.iter().take_while(|s| **s).count();
        assert!(!seen[whole..].contains(&true), "not in order: {ORDER:?} {seen:?}");
        for name in &ORDER[reached.min(whole)..whole] {
            eprintln!("{name}: {:.1} s", start.elapsed().as_secs_f32());
        }
        if reached == 0 && whole > 0 {
            // The Deployment's pods would be replaced now.
            operator.kill().await.unwrap();
            operator = operator_of(NEW);
        }
        reached = reached.max(whole);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    wait(&client, "the machine runs the release's OS", in_pool).await;
    assert_ne!(first, vm.boot_id().await.unwrap());
    settled(vm).await;
    assert_eq!(vm.read_file(super::VERSION).await.unwrap().trim(), "B");
    until("the release is rolled out", async || has_deployed(&client, RELEASE).await).await;
    ended(vm).await;

    drop((operator, controller));
    lab.check().unwrap();
    drop(node);
    lab.stop().await;
}

/// Whether this part of the release is rolled out. `was`: the node's config before.
async fn has_reached(client: &Client, at: usize, was: &str) -> bool {
    let deployment = async |name: &str| {
        let all: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
        let object = serde_json::to_value(all.get_opt(name).await.unwrap()).unwrap();
        is_of(&object) && object["status"]["updatedReplicas"] == object["spec"]["replicas"]
    };
    match at {
        0 => deployment("machine-config-operator").await,
        1 => deployment("machine-config-controller").await,
        2 => {
            let all: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
            let object = serde_json::to_value(all.get_opt("machine-config-server").await.unwrap()).unwrap();
            let status = &object["status"];
            is_of(&object) && status["updatedNumberScheduled"] == status["desiredNumberScheduled"]
        }
        3 => {
            let config = api(client, "ControllerConfig").get_opt("machine-config-controller").await.unwrap();
            let notes = config.and_then(|c| c.metadata.annotations).unwrap_or_default();
            notes.get(&format!("{MCO}/release-image-version")).map(String::as_str) == Some(RELEASE)
        }
        4 => {
            let pool =
                serde_json::to_value(api(client, "MachineConfigPool").get(POOL).await.unwrap()).unwrap();
            pool["spec"]["configuration"]["name"] != was
        }
        _ => {
            let node = Api::<Node>::all(client.clone()).get(NODE).await.unwrap();
            note(&serde_json::to_value(node).unwrap(), "desiredConfig") != was
        }
    }
}

/// Whether its pods have the new image, and its controller has observed that.
fn is_of(object: &Value) -> bool {
    object.pointer("/spec/template/spec/containers/0/image") == Some(&json!(NEW))
        && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// Whether the operator reports that everything is of this release.
async fn has_deployed(client: &Client, release: &str) -> Option<()> {
    let status = settings(client).await["status"].take();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is = |kind: &str, value: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == value);
    let of_release = status["versions"].as_array().into_iter().flatten().any(|v| v["version"] == release);
    (of_release && is("Available", "True") && is("Progressing", "False") && is("Degraded", "False"))
        .then_some(())
}

fn own(client: &Client) -> Api<DynamicObject> {
    let group = kube::core::GroupVersionKind::gvk("machineconfig.dev", "v1alpha1", "MachineConfigOperator");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&group))
}

async fn settings(client: &Client) -> Value {
    serde_json::to_value(own(client).get("cluster").await.unwrap()).unwrap()
}

async fn merge(objects: &Api<DynamicObject>, name: &str, patch: &Value) {
    objects.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

fn images(release: &str, operator: &str) -> Value {
    json!({"images.json": json!({"releaseVersion": release, "machineConfigOperator": operator}).to_string()})
}

/// One ConfigMap of the release.
async fn release(client: &Client, name: &str, data: Value) {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    maps.patch(name, &PatchParams::apply("release").force(), &Patch::Apply(map)).await.unwrap();
}

/// Starts a part of the product. The kernel kills it when this process ends.
fn start(logs: &Path, name: &str, kubeconfig: &str, command: &[&str], more: &[&str]) -> Child {
    let log =
        std::fs::File::options().create(true).append(true).open(logs.join(format!("{name}.log"))).unwrap();
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program())
        .args(command)
        .args(more)
        .args(["--kubeconfig", kubeconfig])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(log))
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn until(what: &str, is: impl AsyncFn() -> Option<()>) {
    let start = Instant::now();
    while is().await.is_none() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    eprintln!("{what}: {:.1} s", start.elapsed().as_secs_f32());
}
