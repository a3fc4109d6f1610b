//! The boots of an OS update, with power cuts before, during and after OSTree finalises it; kernel arguments alone; and the way
//! back.
//!
//! Each cut starts from a snapshot of the machine with the update staged.

use lab::VirtualMachine;

use super::{
    Asked, BootedMachine, FINALISED, FINALISING, FIRST, LIMIT, RECOVERING, apply, booted_machine, ended,
    is_running, settled, staged, write,
};
use crate::timed;

/// The snapshot of the machine with the update staged.
const SNAPSHOT: &str = "staged";
/// The images that MachineConfigs brought.
const RECORD: &str = "/var/lib/machine-config-daemon/os-images.json";
/// What the machine ran before the first of them.
const BEFORE: &str = "/var/lib/machine-config-daemon/os-before.json";

#[tokio::test(flavor = "multi_thread")]
async fn an_image_boots_or_does_not_as_a_whole_wherever_the_power_is_cut() {
    let Some(BootedMachine { vm, registry, _place }) = booted_machine().await else { return };
    let vm = &vm;
    let b = registry.reference("b");
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

    // No config names an image any more, nor arguments, nor the file: back to what the machine ran before the first one. Nothing
    // answers where that came from, so it is the host's own store that has it.
    let before: serde_json::Value = serde_json::from_str(&vm.read_file(BEFORE).await.unwrap()).unwrap();
    let stock = before["reference"].as_str().unwrap().strip_prefix("ostree-unverified-registry:").unwrap();
    assert!(stock.contains("/lab/os@sha256:"), "{before}");
    let back = Asked { name: "60-back", ..FIRST };
    write(vm, back).await;
    let plan = vm.run([super::MCO, "daemon", "plan", "--root-mount=/", "-f", super::CONFIG]).await.unwrap();
    assert!(plan.contains("goes back to the image that it ran before") && plan.contains(stock), "{plan}");
    staged(vm, "the image of before").await;
    timed("shutdown, cut after finalisation", cut_in_shutdown(vm, FINALISED)).await;
    timed("boot into the image before", vm.power_on()).await.unwrap();
    settled(vm).await;
    is_running(vm, back).await;
    ended(vm).await;
    assert_eq!(vm.exec(["test", "-e", BEFORE]).await.unwrap().code, 1, "the record is still there");
    only_what_is_needed_stays(vm, [stock, &b], &registry.reference("c")).await;
}

/// Of the images that MachineConfigs brought, those stay that the machine boots and can go back to. `old`: one of an earlier
/// update, which is pulled for this and written into the record.
async fn only_what_is_needed_stays(vm: &VirtualMachine, needed: [&str; 2], old: &str) {
    let images = async || {
        let list = "ostree container image list --repo /ostree/repo | sed 's,^docker://,,' | sort";
        let list = vm.run(["sh", "-c", list]).await.unwrap();
        list.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let pull = format!(
        "unshare --mount sh -c 'mount -o remount,rw /sysroot && exec ostree container image pull --quiet /ostree/repo \
         ostree-unverified-registry:{old}' && sed -i 's,\"known\":\\[,&\"registry:{old}\"\\,,' {RECORD}"
    );
    timed("an image of an earlier update", vm.run_within(["sh", "-c", &pull], LIMIT)).await.unwrap();
    let deployments = vm.run(["ostree", "admin", "status"]).await.unwrap();
    let all = images().await;
    // The image of before has two names: the tag that it was made from, and its digest.
    assert!(all.len() == 4 && all.contains(&old.to_owned()), "{all:?}");
    let done = timed("images that nothing needs are removed", apply(vm, &[])).await;
    assert!(done.code == 0 && done.stderr.contains("removed OS images"), "{done:?}");
    let mut needed = needed.map(str::to_owned);
    needed.sort();
    assert_eq!(images().await, needed, "{done:?}");
    assert_eq!(vm.run(["ostree", "admin", "status"]).await.unwrap(), deployments);
    assert!(!vm.read_file(RECORD).await.unwrap().contains(old));
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
