//! A machine whose OS is replaced as a whole, with real deployments and a real registry: what the agent refuses for want of room, a
//! pull that is cut, and an image that is pulled and staged after that.
//!
//! Not here: boots into other images; what the back end says to the programs of other versions (recorded answers, beside the
//! code of the host).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use lab::{Environment, Folder, OstreeMachine, Output, Reporter, VirtualMachine};
use serde_json::json;

use crate::product::{CONFIG, enable_recovery, program};
use crate::{PLACE, timed};

/// A pull into an emulated machine takes a minute; ten times that beside a build.
const LIMIT: Duration = Duration::from_secs(900);
const APPLY: [&str; 6] = ["/usr/local/bin/mco", "daemon", "start", "--root-mount=/", "--once-from", CONFIG];
const VERSION: &str = "/usr/share/lab/version";
const STAGED: &str = "/run/ostree/staged-deployment";
const FILE: &str = "/etc/lab-file";
/// Leaves one megabyte of `/boot` to programs without rights of their own.
const FILL_BOOT: &str = "fallocate -l $(($(stat -f -c '%a * %S' /boot) - 1048576)) /boot/full";
/// Leaves a few megabytes of the disk to root too: ext4 keeps sixteen to itself.
const FILL_DISK: &str = "fallocate -l $(($(stat -f -c '%f * %S' /var) - 20971520)) /var/full";
/// Waits until a part of the image has arrived, which has 12 MB that cannot be compressed.
const PULLING: &str = "cd /sys/class/net; at() { cat en*/statistics/rx_bytes; }; begin=$(at); \
    until [ $(($(at) - begin)) -gt 3000000 ]; do sleep 0.2; done";

/// What a config asks for, and what a machine in it has.
#[derive(Clone, Copy)]
struct Asked<'a> {
    name: &'a str,
    image: &'a str,
    version: &'a str,
    arguments: &'a [&'a str],
    file: Option<&'a str>,
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_refused_without_room_a_pull_that_is_cut_changes_nothing_and_the_next_one_is_staged() {
    if !lab::require_root() {
        return;
    }
    let machine = OstreeMachine::ensure(&Reporter::stderr()).await.unwrap();
    let image = machine.image().clone().carrying(&program());
    let _place = PLACE.acquire().await.unwrap();
    let folder = Arc::new(Folder::create(&Environment::read()).unwrap());
    let mut registry = machine.registry(Arc::clone(&folder)).await.unwrap();
    let b = registry.reference("b");
    let vm = timed("first boot", VirtualMachine::start("ostree", &image, folder)).await.unwrap();
    let vm = &vm;
    let first = Asked { name: "", image: "", version: "A", arguments: &[], file: None };
    let in_b =
        Asked { name: "60-b", image: &b, version: "B", arguments: &["lab.one=1"], file: Some("of B\n") };
    timed("copying mco", vm.unload(APPLY[0], 0o755)).await.unwrap();
    enable_recovery(vm).await;
    is_running(vm, first).await;

    // No room for another kernel: refused before the image is pulled.
    write(vm, in_b).await;
    vm.run(["sh", "-c", FILL_BOOT]).await.unwrap();
    let refused = timed("refused: /boot is full", apply(vm, &["--skip-reboot"])).await;
    assert!(refused.code != 0 && refused.stderr.contains("/boot: "), "{refused:?}");
    assert!(!std::fs::read_to_string(registry.log()).unwrap().contains("/v2/lab/os/blobs"), "it was pulled");
    vm.run(["rm", "/boot/full"]).await.unwrap();

    // No room for the image.
    vm.run(["sh", "-c", FILL_DISK]).await.unwrap();
    let refused = timed("refused: the disk is full", apply(vm, &["--skip-reboot"])).await;
    assert!(refused.code != 0 && refused.stderr.contains("min-free-space-percent"), "{refused:?}");
    vm.run(["rm", "/var/full"]).await.unwrap();
    untouched(vm).await;

    // The registry goes away in the middle of the pull: nothing is staged, no file is written.
    let (cut, ()) = tokio::join!(timed("pull that is cut", apply(vm, &["--skip-reboot"])), async {
        vm.run_within(["sh", "-c", PULLING], LIMIT).await.unwrap();
        registry.stop();
    });
    assert!(cut.code != 0 && cut.stderr.contains("cannot change the operating system"), "{cut:?}");
    untouched(vm).await;
    registry.start().await.unwrap();

    staged(vm, "image B").await;
    is_running(vm, first).await;
}

/// Writes the config.
async fn write(vm: &VirtualMachine, asked: Asked<'_>) {
    let files: Vec<_> = asked.file.iter().map(|text| {
        let data = base64::engine::general_purpose::STANDARD.encode(text);
        json!({"path": FILE, "mode": 0o644, "overwrite": true, "contents": {"source": format!("data:;base64,{data}")}})
    }).collect();
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": asked.name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {
            "osImageURL": asked.image,
            "kernelArguments": asked.arguments,
            "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}},
        },
    });
    vm.write(CONFIG, &config.to_string()).await.unwrap();
}

async fn apply(vm: &VirtualMachine, more: &[&str]) -> Output {
    vm.exec_within(APPLY.iter().chain(more), LIMIT).await.unwrap()
}

/// Applies the config up to the reboot: it is staged, and the old OS still runs.
async fn staged(vm: &VirtualMachine, what: &str) {
    let done = timed(&format!("{what}: fetched and staged"), apply(vm, &["--skip-reboot"])).await;
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(vm.exec(["test", "-e", STAGED]).await.unwrap().code, 0, "nothing is staged: {done:?}");
}

/// Nothing of the config is on the machine.
async fn untouched(vm: &VirtualMachine) {
    for path in [STAGED, FILE, "/etc/machine-config-daemon/currentconfig"] {
        assert_eq!(vm.exec(["test", "-e", path]).await.unwrap().code, 1, "{path} exists");
    }
}

/// The running OS and its kernel arguments of the lab are those of this config.
async fn is_running(vm: &VirtualMachine, asked: Asked<'_>) {
    let booted = vm.read_file(VERSION).await.unwrap();
    let mut all = vm.kernel_arguments().await.unwrap();
    assert!(all.contains(&"root=LABEL=root".to_owned()), "{all:?}");
    all.retain(|argument| argument.starts_with("lab."));
    let arguments: Vec<String> = asked.arguments.iter().map(|a| (*a).to_owned()).collect();
    assert_eq!((booted.trim(), all), (asked.version, arguments));
}
