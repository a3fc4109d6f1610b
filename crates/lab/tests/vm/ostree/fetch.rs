//! Everything before the reboot: updates that the agent refuses for lack of space, an interrupted pull, an image that is pulled
//! and staged afterwards, and power cuts in between.

use lab::VirtualMachine;

use super::{
    APPLY, Asked, BootedMachine, JOURNAL, LIMIT, RECOVERING, SKIP_REBOOT, VERSION, apply, booted_machine,
    refused, settled, staged, untouched, write,
};
use crate::timed;

/// Leaves one megabyte of `/boot` for unprivileged programs.
const FILL_BOOT: &str = "fallocate -l $(($(stat -f -c '%a * %S' /boot) - 1048576)) /boot/full";
/// Leaves a few megabytes of the disk, even for root: ext4 reserves sixteen for itself.
const FILL_DISK: &str = "fallocate -l $(($(stat -f -c '%f * %S' /var) - 20971520)) /var/full";
/// Waits until a part of the image has arrived. 12 MB of the image cannot be compressed.
const PULLING: &str = "cd /sys/class/net; at() { cat en*/statistics/rx_bytes; }; begin=$(at); \
    until [ $(($(at) - begin)) -gt 3000000 ]; do sleep 0.2; done";

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_refused_without_room_and_a_pull_and_a_staging_that_are_cut_change_nothing() {
    let Some(BootedMachine { vm, mut registry, _place }) = booted_machine().await else { return };
    let vm = &vm;
    let b = registry.reference_by_digest("b").unwrap();
    let in_b =
        Asked { name: "60-b", image: &b, version: "B", arguments: &["lab.one=1"], file: Some("of B\n") };

    // No space for another kernel: refused before the image is pulled.
    write(vm, in_b).await;
    vm.run(["sh", "-c", FILL_BOOT]).await.unwrap();
    let refused = timed("refused: /boot is full", apply(vm, SKIP_REBOOT)).await;
    assert!(refused.code != 0 && refused.stderr.contains("/boot: "), "{refused:?}");
    assert!(!std::fs::read_to_string(registry.log()).unwrap().contains("/v2/lab/os/blobs"), "it was pulled");
    vm.run(["rm", "/boot/full"]).await.unwrap();

    // No space for the image.
    vm.run(["sh", "-c", FILL_DISK]).await.unwrap();
    let refused = timed("refused: the disk is full", apply(vm, SKIP_REBOOT)).await;
    assert!(refused.code != 0 && refused.stderr.contains("min-free-space-percent"), "{refused:?}");
    vm.run(["rm", "/var/full"]).await.unwrap();
    untouched(vm).await;

    // A registry that lies, a signature that is not there, another architecture.
    refused::lies(vm, &registry).await;
    refused::unsigned(vm, &registry).await;
    write(vm, in_b).await;

    // The registry stops in the middle of the pull: nothing is staged, and no file is written.
    let (cut, ()) = tokio::join!(timed("pull that is cut", apply(vm, SKIP_REBOOT)), async {
        vm.run_within(["sh", "-c", PULLING], LIMIT).await.unwrap();
        registry.stop();
    });
    assert!(cut.code != 0 && cut.stderr.contains("cannot change the operating system"), "{cut:?}");
    untouched(vm).await;
    registry.start().await.unwrap();

    // The power is cut in the middle of the pull.
    cut_while(vm, PULLING).await;
    timed("boot after a cut in the pull", vm.power_on()).await.unwrap();
    settled(vm).await;
    untouched(vm).await;

    // The power is cut while the image is being staged, and again while that is being undone.
    cut_while(vm, &format!("until [ -e {JOURNAL}/begin.json ]; do sleep 0.05; done; sleep 2")).await;
    timed("cut in the undo", vm.power_cut_in_boot(RECOVERING)).await.unwrap();
    timed("boot after a cut while staging", vm.power_on()).await.unwrap();
    let said = settled(vm).await;
    assert!(said.contains("undone: a change to config 60-b was interrupted"), "{said}");
    untouched(vm).await;

    // The image is on the machine, so the registry is no longer needed. The staged OS is not visible before the reboot.
    registry.stop();
    staged(vm, "image B").await;
    assert_eq!(vm.read_file(VERSION).await.unwrap().trim(), "A");
    assert_eq!(vm.exec(["test", "-e", "/usr/share/lab/b"]).await.unwrap().code, 1);
}

/// Applies the config, and cuts the power when this script has ended.
async fn cut_while(vm: &VirtualMachine, script: &str) {
    let (_cut, ()) = tokio::join!(vm.exec_within(APPLY.iter().chain(SKIP_REBOOT), LIMIT), async {
        vm.run_within(["sh", "-c", script], LIMIT).await.unwrap();
        vm.power_cut().await.unwrap();
    });
}
