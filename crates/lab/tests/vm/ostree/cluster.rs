//! A machine with OSTree as a node of a cluster: the agent updates its OS, and the node goes back by itself.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use lab::{Lab, OstreeMachine, Reporter, VirtualMachine};
use serde_json::{Value, json};

use super::{Asked, FINALISED, FIRST, config, ended, is_running, settled};
use crate::product::program;
use crate::{PLACE, timed};

const NODE: &str = "virtual-0";
const POOL: &str = "worker";
const MCO: &str = "machineconfiguration.openshift.io";
/// How long the new OS has to prove itself.
const WITHIN: &str = "within=45s";
/// The time limit for a pull and two boots while something is built.
const LIMIT: Duration = Duration::from_secs(600);
/// systemd writes it when it is about to reboot.
const DOWN: &str = "Reached target shutdown.target";

#[tokio::test(flavor = "multi_thread")]
async fn an_image_whose_kubelet_cannot_start_goes_back_by_itself_without_an_api_server() {
    if !lab::require_root() {
        return;
    }
    let machine = OstreeMachine::ensure(&Reporter::stderr()).await.unwrap();
    let _place = PLACE.acquire().await.unwrap();
    let templates = tempfile::tempdir().unwrap();
    let mut lab = Lab::builder()
        .mco_binary(program())
        .templates(templates.path())
        .controller(true)
        .scheduler(false)
        .controller_manager(false)
        .progress(Reporter::stderr())
        .start()
        .await
        .unwrap();
    let client = lab.client();
    // A pool is rendered only if it selects a MachineConfig.
    let base = Asked { name: "00-base", ..FIRST };
    let create = async |asked| {
        let object: DynamicObject = serde_json::from_value(config(asked)).unwrap();
        api(&client, "MachineConfig").create(&PostParams::default(), &object).await.unwrap();
    };
    create(base).await;
    let registry = machine.registry(lab.shared_folder()).await.unwrap();
    let node = timed("the node", lab.virtual_node(NODE, machine.image())).await.unwrap();
    let vm = node.machine();
    wait(&client, "the node is in its pool", done).await;
    // The controller cannot resolve the machine's name for the registry.
    let unseen = api::names::own::OS_IMAGES;
    let trial = json!({"metadata": {"annotations": {format!("{MCO}/trial"): WITHIN, unseen: "as-they-are"}}});
    let pools = api(&client, "MachineConfigPool");
    pools.patch(POOL, &PatchParams::default(), &Patch::Merge(trial)).await.unwrap();
    wait(&client, "the pool's settings are on the node", |node| note(node, "trial") == WITHIN).await;

    takes_a_udev_rule(&client, vm).await;

    let c = registry.reference("c");
    let in_c =
        Asked { name: "60-c", image: &c, version: "C", arguments: &["lab.one=1"], file: Some("of C\n") };
    let last = vm.boot_id().await.unwrap();
    let mark = vm.serial_mark().unwrap();
    create(in_c).await;
    timed("fetched, drained, staged and finalised", vm.wait_serial(mark, FINALISED)).await.unwrap();
    lab.control_plane().stop_api_server().await;
    let tried = timed("boot into C", vm.rebooted(&last)).await.unwrap();
    assert_eq!(vm.read_file(super::VERSION).await.unwrap().trim(), "C");

    // The node gives up on the new OS; the power is cut in place of its reboot.
    let mark = vm.serial_mark().unwrap();
    timed("the trial, and the shutdown after it, cut", vm.power_cut_at(mark, DOWN)).await.unwrap();
    timed("boot after that", vm.power_on()).await.unwrap();
    assert_ne!(tried, vm.boot_id().await.unwrap());
    settled(vm).await;
    is_running(vm, Asked { name: "rendered-worker-", ..FIRST }).await;
    lab.control_plane().start_api_server().await.unwrap();
    let says = wait(&client, "the node says why", |node| {
        note(node, "state") == "Degraded" && note(node, "reason").contains("went back")
    })
    .await;
    let reason = note(&says, "reason");
    eprintln!("{reason}");
    assert!(reason.contains("kubelet.service"), "{reason}");
    assert_ne!(note(&says, "currentConfig"), note(&says, "desiredConfig"));
    ended(vm).await;
    lab.check().unwrap();
    drop(node);
    lab.stop().await;
}

/// A udev rule acts on devices that are there already, without a reboot. A node that is a container has no udev.
async fn takes_a_udev_rule(client: &kube::Client, vm: &VirtualMachine) {
    let when_needed = json!({"metadata": {"annotations": {api::names::annotation::REBOOTS: "WhenNeeded"}}});
    let pools = api(client, "MachineConfigPool");
    pools.patch(POOL, &PatchParams::default(), &Patch::Merge(when_needed)).await.unwrap();
    let (boot, link) = (vm.boot_id().await.unwrap(), "/dev/lab-null");
    assert_ne!(vm.exec(["test", "-L", link]).await.unwrap().code, 0, "{link} is there before its rule");
    let file = json!({"path": "/etc/udev/rules.d/90-lab.rules", "mode": 0o644, "contents": {
        "source": "data:,KERNEL%3D%3D%22null%22%2C%20SUBSYSTEM%3D%3D%22mem%22%2C%20SYMLINK%2B%3D%22lab-null%22%0A"}});
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-udev", "labels": {format!("{MCO}/role"): POOL}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}}},
    });
    let before = wait(client, "the node rests", done).await;
    let object: DynamicObject = serde_json::from_value(config).unwrap();
    api(client, "MachineConfig").create(&PostParams::default(), &object).await.unwrap();
    wait(client, "the node has the rule", |node| {
        done(node) && note(node, "currentConfig") != note(&before, "currentConfig")
    })
    .await;
    vm.run(["test", "-L", link]).await.unwrap();
    assert_eq!(vm.boot_id().await.unwrap(), boot, "a udev rule needs no reboot");
}

pub(super) fn api(client: &kube::Client, kind: &str) -> Api<DynamicObject> {
    let group = kube::core::GroupVersionKind::gvk(MCO, "v1", kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk(&group))
}

pub(super) fn note(node: &Value, key: &str) -> String {
    node["metadata"]["annotations"][format!("{MCO}/{key}")].as_str().unwrap_or_default().to_owned()
}

pub(super) fn done(node: &Value) -> bool {
    note(node, "state") == "Done"
        && note(node, "currentConfig").starts_with("rendered-")
        && note(node, "currentConfig") == note(node, "desiredConfig")
}

/// Waits until the Node satisfies this, and returns it.
pub(super) async fn wait(client: &kube::Client, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let start = Instant::now();
    let mut seen = Value::Null;
    while start.elapsed() < LIMIT {
        if let Ok(node) = nodes.get(NODE).await {
            seen = serde_json::to_value(node).unwrap();
            if is(&seen) {
                eprintln!("{what}: {:.1} s", start.elapsed().as_secs_f32());
                return seen;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("not within {LIMIT:?}: {what}: {}", seen["metadata"]["annotations"]);
}
