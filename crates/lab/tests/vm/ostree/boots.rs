//! The boots of an OS update, with power cuts before, during and after OSTree finalises it; kernel arguments alone; and the way
//! back.
//!
//! Each cut starts from a snapshot of the machine with the update staged.

use lab::VirtualMachine;

use super::{
    Asked, FINALISED, FINALISING, FIRST, Ground, RECOVERING, apply, ended, ground, is_running, settled,
    staged, write,
};
use crate::timed;

/// The snapshot of the machine with the update staged.
const SNAPSHOT: &str = "staged";

#[tokio::test(flavor = "multi_thread")]
async fn an_image_boots_or_does_not_as_a_whole_wherever_the_power_is_cut() {
    let Some(Ground { vm, registry, _place }) = ground().await else { return };
    let vm = &vm;
    let (a, b) = (registry.reference("a"), registry.reference("b"));
    let in_b =
        Asked { name: "60-b", image: &b, version: "B", arguments: &["lab.one=1"], file: Some("of B\n") };
    write(vm, in_b).await;
    staged(vm, "image B").await;
    vm.run(["sync"]).await.unwrap();
    timed("saving the snapshot", vm.save_snapshot(SNAPSHOT)).await.unwrap();

    // Before finalisation: the old OS boots, and the files are as they were.
    vm.power_cut().await.unwrap();
    timed("boot after a cut before finalisation", vm.power_on()).await.unwrap();
    went_back(vm).await;

    // During finalisation: either OS boots, with everything that belongs to it.
    timed("back to the snapshot", vm.restore_snapshot(SNAPSHOT)).await.unwrap();
    timed("shutdown, cut when finalisation begins", cut_in_shutdown(vm, FINALISING)).await;
    timed("boot after a cut during finalisation", vm.power_on()).await.unwrap();
    if vm.read_file(super::VERSION).await.unwrap().trim() == "A" {
        went_back(vm).await;
    } else {
        settled(vm).await;
        is_running(vm, in_b).await;
    }

    // After finalisation, with a second cut in the boot that checks the new OS.
    timed("back to the snapshot", vm.restore_snapshot(SNAPSHOT)).await.unwrap();
    timed("shutdown, cut after finalisation", cut_in_shutdown(vm, FINALISED)).await;
    timed("cut in the first boot", vm.power_cut_in_boot(RECOVERING)).await.unwrap();
    timed("boot after two cuts", vm.power_on()).await.unwrap();
    settled(vm).await;
    is_running(vm, in_b).await;
    ended(vm).await;

    // Kernel arguments alone; the power is cut when the kernel starts with them.
    let with_two = Asked { name: "60-two", arguments: &["lab.two=2"], ..in_b };
    write(vm, with_two).await;
    let mark = vm.serial_mark().unwrap();
    let applied = timed("kernel arguments", apply(vm, &[])).await;
    // ssh may end with the machine before it has the exit code: 255 is its own.
    assert!([0, 255].contains(&applied.code), "{applied:?}");
    timed("cut in the boot", vm.power_cut_at(mark, "lab.two=2")).await.unwrap();
    timed("boot with other arguments", vm.power_on()).await.unwrap();
    settled(vm).await;
    is_running(vm, with_two).await;
    ended(vm).await;

    // Back to the previous image, without arguments and without the file.
    let back = Asked { name: "60-back", image: &a, ..FIRST };
    write(vm, back).await;
    staged(vm, "image A").await;
    timed("shutdown, cut after finalisation", cut_in_shutdown(vm, FINALISED)).await;
    timed("boot into the image before", vm.power_on()).await.unwrap();
    settled(vm).await;
    is_running(vm, back).await;
    ended(vm).await;
}

/// The machine has booted the old OS, and the recovery has undone the rest and reported it.
async fn went_back(vm: &VirtualMachine) {
    let said = settled(vm).await;
    assert!(said.contains("undone: the host is back in config") && said.contains("60-b"), "{said}");
    is_running(vm, FIRST).await;
    ended(vm).await;
}

/// Reboots the machine, and cuts the power when it has written these words.
async fn cut_in_shutdown(vm: &VirtualMachine, words: &str) {
    let mark = vm.serial_mark().unwrap();
    let (_cut, done) = tokio::join!(vm.exec(["systemctl", "reboot"]), vm.power_cut_at(mark, words));
    done.unwrap();
}
