//! The lab's virtual machines themselves: what is said of one that does not boot, and what stays over power cuts.

use std::time::Duration;

use lab::{Firmware, OrdinaryMachine, Reporter, VirtualMachine, VmImage};

use crate::{PLACE, boot, timed};

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_does_not_boot_shows_the_end_of_its_serial_log() {
    if !lab::require_root() {
        return;
    }
    let _place = PLACE.acquire().await.unwrap();
    let image = VmImage::blank(Firmware::Bios, &Reporter::stderr()).await.unwrap();
    let error = VirtualMachine::alone_within("blank", &image, Duration::from_secs(20)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("machine blank was not ready after 2"), "{text}");
    assert!(text.contains("No bootable device"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_flushed_stays_over_a_power_cut_and_everything_over_a_reboot() {
    let Some(booted) = boot(OrdinaryMachine::Grub).await else { return };
    let vm = &booted.vm;
    assert_eq!(vm.run(["cat", "/sys/class/dmi/id/sys_vendor"]).await.unwrap().trim(), "QEMU");
    assert_eq!(vm.exec(["sh", "-c", "echo \"it's $0\"; exit 3", "x"]).await.unwrap().code, 3);
    let error = vm.run(["sh", "-c", "echo why >&2; exit 4"]).await.unwrap_err().to_string();
    assert!(
        error.contains("why") && error.contains("(in ordinary)") && error.contains("status 4"),
        "{error}"
    );

    let first = vm.boot_id().await.unwrap();
    vm.write("/root/kept", "kept\n").await.unwrap();
    vm.power_cut().await.unwrap();
    assert!(vm.boot_id().await.unwrap_err().to_string().contains("no power"));
    let second = timed("boot after a power cut", vm.power_on()).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(vm.read_file("/root/kept").await.unwrap(), "kept\n");

    vm.run(["sh", "-c", "echo also >/root/not-flushed"]).await.unwrap();
    let third = timed("reboot", vm.reboot()).await.unwrap();
    assert_ne!(second, third);
    assert_eq!(vm.read_file("/root/not-flushed").await.unwrap(), "also\n");
    let serial = std::fs::read_to_string(vm.serial()).unwrap();
    assert!(serial.matches("GNU GRUB").count() + serial.matches("Booting").count() >= 3, "{serial}");

    let program = std::env::current_exe().unwrap();
    timed("copying the test program", vm.copy_in(&program, "/root/program", 0o755)).await.unwrap();
    let size = vm.run(["stat", "-c", "%s %a", "/root/program"]).await.unwrap();
    assert_eq!(size.trim(), format!("{} 755", std::fs::metadata(&program).unwrap().len()));
    timed("power off", vm.power_off()).await.unwrap();
}
