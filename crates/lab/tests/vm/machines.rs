//! The lab's virtual machines themselves: the error for one that does not boot, and what survives power cuts and reboots.
//!
//! Each boot takes an emulated processor half a minute, so most of this is checked in the boots of another test
//! (`product::grub…`).

use std::time::Duration;

use lab::{Firmware, Reporter, VirtualMachine, VmImage};

use crate::{PLACE, timed};

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

/// Commands, and a file of any bytes with its mode.
pub(crate) async fn runs_commands_and_takes_files(vm: &VirtualMachine) {
    assert_eq!(vm.run(["cat", "/sys/class/dmi/id/sys_vendor"]).await.unwrap().trim(), "QEMU");
    assert_eq!(vm.exec(["sh", "-c", "echo \"it's $0\"; exit 3", "x"]).await.unwrap().code, 3);
    let error = vm.run(["sh", "-c", "echo why >&2; exit 4"]).await.unwrap_err().to_string();
    assert!(
        error.contains("why") && error.contains("(in ordinary)") && error.contains("status 4"),
        "{error}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), (0..=u8::MAX).cycle().take(3_000_001).collect::<Vec<_>>()).unwrap();
    timed("copying three megabytes", vm.copy_in(file.path(), "/root/bytes", 0o755)).await.unwrap();
    let said = vm.run(["sh", "-c", "stat -c '%s %a' /root/bytes; sha256sum </root/bytes"]).await.unwrap();
    let sum = std::process::Command::new("sha256sum").stdin(file.reopen().unwrap()).output().unwrap();
    assert_eq!(said, format!("3000001 755\n{}", String::from_utf8_lossy(&sum.stdout)));
}

/// A file that the machine has flushed.
pub(crate) async fn writes(vm: &VirtualMachine) {
    vm.write("/root/kept", "kept\n").await.unwrap();
}

/// Cuts the power at once.
pub(crate) async fn is_cut(vm: &VirtualMachine) {
    vm.power_cut().await.unwrap();
    assert!(vm.boot_id().await.unwrap_err().to_string().contains("no power"));
}

/// What was flushed survives the power cut.
pub(crate) async fn has_kept(vm: &VirtualMachine) {
    assert_eq!(vm.read_file("/root/kept").await.unwrap(), "kept\n");
}

/// Everything survives a reboot.
pub(crate) async fn reboots(vm: &VirtualMachine) {
    let last = vm.boot_id().await.unwrap();
    vm.run(["sh", "-c", "echo also >/root/not-flushed"]).await.unwrap();
    let next = timed("reboot", vm.reboot()).await.unwrap();
    assert_ne!(last, next);
    assert_eq!(vm.read_file("/root/not-flushed").await.unwrap(), "also\n");
}

/// The serial log covers all boots, and the machine shuts down in order.
pub(crate) async fn ends(vm: &VirtualMachine) {
    let serial = std::fs::read_to_string(vm.serial()).unwrap();
    assert!(serial.matches("GRUB loading").count() >= 3, "{serial}");
    timed("power off", vm.power_off()).await.unwrap();
}
