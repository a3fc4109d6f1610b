//! The agent on ordinary machines: kernel arguments from MachineConfigs beside those that an administrator sets with the
//! distribution's own tools, over real reboots and power cuts. Each machine goes through all of it in one test, because a boot
//! of an emulated machine takes 40 s.
//!
//! Not here: what the agent writes for each boot loader (unit tests in `host`).

use lab::{OrdinaryMachine, VirtualMachine};
use serde_json::json;

use crate::{boot, machines, timed};

/// The file into which `grub-mkconfig` collects the configuration. It loses the suffix `.new` when it is complete, which
/// happens too quickly to wait for.
const GENERATED: &str = "/run/machine-config-daemon-grub.cfg.new";
/// The path of the config in the machine.
pub(crate) const CONFIG: &str = "/root/config.json";
const APPLY: [&str; 6] = ["mco", "daemon", "start", "--root-mount=/", "--once-from", CONFIG];
/// The time limit for the rest of a boot on an emulated processor while something is built.
const RECOVERY_LIMIT: std::time::Duration = std::time::Duration::from_secs(600);
const RECOVER: &str = "machine-config-daemon-recover.service";

#[tokio::test(flavor = "multi_thread")]
async fn grub_boots_with_the_arguments_of_machine_configs_after_those_of_the_host() {
    let Some(booted) = boot(OrdinaryMachine::Grub).await else { return };
    let vm = &booted.vm;
    assert_eq!(vm.exec(["test", "-d", "/sys/firmware/efi"]).await.unwrap().code, 1);
    machines::runs_commands_and_takes_files(vm).await;
    let edit = "sed -i 's/^GRUB_CMDLINE_LINUX_DEFAULT=.*/GRUB_CMDLINE_LINUX_DEFAULT=\"quiet by.hand\"/' /etc/default/grub";
    set_changed_and_edited(vm, edit).await;

    // The power is cut while the configuration is being generated.
    write(vm, &["lab.four"]).await;
    machines::writes(vm).await;
    let before = vm.kernel_arguments().await.unwrap();
    let (_cut, ()) = tokio::join!(vm.exec(APPLY), async {
        vm.run(["sh", "-c", &format!("until [ -e {GENERATED} ]; do sleep 0.1; done")]).await.unwrap();
        machines::is_cut(vm).await;
    });
    timed("boot after the power cut", vm.power_on()).await.unwrap();
    assert_eq!(vm.kernel_arguments().await.unwrap(), before, "half of a change was booted");
    recovered(vm).await;
    machines::has_kept(vm).await;
    let host = before.iter().filter(|argument| *argument != "lab.three=3").cloned().collect::<Vec<_>>();
    timed("applied, with a reboot by hand", apply_only(vm)).await;
    machines::reboots(vm).await;
    assert_eq!(vm.kernel_arguments().await.unwrap(), with(&host, &["lab.four"]));

    apply(vm, &[]).await;
    assert_eq!(vm.kernel_arguments().await.unwrap(), host);
    assert!(host.contains(&"by.hand".to_owned()), "{host:?}");
    machines::ends(vm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn systemd_boot_boots_with_the_arguments_of_machine_configs_after_those_of_the_host() {
    let Some(booted) = boot(OrdinaryMachine::SystemdBoot).await else { return };
    let vm = &booted.vm;
    let status = vm.run(["bootctl", "--no-pager", "status"]).await.unwrap();
    assert!(status.contains("systemd-boot"), "{status}");
    let edit = "sed -i 's/$/ by.hand/' /etc/kernel/cmdline && v=$(uname -r) && \
                kernel-install add $v /boot/vmlinuz-$v /boot/initrd.img-$v";
    set_changed_and_edited(vm, edit).await;
    no_kernel_comes_up(vm).await;
    apply(vm, &[]).await;
    let left = vm.kernel_arguments().await.unwrap();
    assert!(left.contains(&"by.hand".to_owned()) && !left.iter().any(|a| a.starts_with("lab.")), "{left:?}");
}

/// Arguments with which no kernel comes up: systemd-boot tries them twice, and goes back by itself. The agent undoes the change, and
/// says why.
async fn no_kernel_comes_up(vm: &VirtualMachine) {
    let before = vm.kernel_arguments().await.unwrap();
    recovered(vm).await;
    assert_eq!(entries(vm).await.len(), 1, "{:?}", entries(vm).await);
    write(vm, &["init=/nonexistent", "panic=1"]).await;
    apply_only(vm).await;
    let tried = entries(vm).await;
    assert!(
        tried.len() == 2 && tried[0].ends_with("+2.conf") && tried[1].ends_with("~before.conf"),
        "{tried:?}"
    );
    let (last, mark) = (vm.boot_id().await.unwrap(), vm.serial_mark().unwrap());
    let _cut = vm.exec(["systemctl", "reboot"]).await.unwrap();
    timed("two panics and a boot", vm.rebooted(&last)).await.unwrap();
    let serial = vm.serial_since(mark).unwrap();
    assert_eq!(serial.matches("Kernel panic - not syncing").count(), 2, "{serial}");
    recovered(vm).await;
    assert_eq!(vm.kernel_arguments().await.unwrap(), before);
    assert_eq!(entries(vm).await.len(), 1, "{:?}", entries(vm).await);
    let said = vm.run(["journalctl", "--no-pager", "-b", "-o", "cat", "-u", RECOVER]).await.unwrap();
    assert!(said.contains("did not boot in any of its tries") && said.contains("boot counting"), "{said}");
    let again = vm.exec(APPLY).await.unwrap();
    assert!(again.code != 0 && again.stderr.contains("came up without it"), "it is tried again: {again:?}");
    // As the refusal says.
    vm.run(["rm", "/var/lib/machine-config-daemon/os-failure.json"]).await.unwrap();
}

/// The names of the boot loader's entries.
async fn entries(vm: &VirtualMachine) -> Vec<String> {
    let list = vm.run(["ls", "/boot/efi/loader/entries"]).await.unwrap();
    list.lines().map(str::to_owned).collect()
}

/// Sets arguments, edits the host's own by hand, and changes ours.
async fn set_changed_and_edited(vm: &VirtualMachine, edit: &str) {
    install(vm).await;
    let host = vm.kernel_arguments().await.unwrap();
    apply(vm, &["lab.one=1", "lab.two"]).await;
    assert_eq!(vm.kernel_arguments().await.unwrap(), with(&host, &["lab.one=1", "lab.two"]));

    vm.run(["sh", "-c", edit]).await.unwrap();
    apply(vm, &["lab.three=3"]).await;
    let now = vm.kernel_arguments().await.unwrap();
    assert!(now.contains(&"by.hand".to_owned()), "{now:?}");
    let without: Vec<String> = now.into_iter().filter(|argument| argument != "by.hand").collect();
    assert_eq!(without, with(&host, &["lab.three=3"]));
}

fn with(host: &[String], own: &[&str]) -> Vec<String> {
    host.iter().cloned().chain(own.iter().map(|argument| (*argument).to_owned())).collect()
}

/// The program under test.
pub(crate) fn program() -> std::path::PathBuf {
    lab::built_mco().expect("cargo build -p cli")
}

/// Installs the program and the recovery unit.
async fn install(vm: &VirtualMachine) {
    timed("copying mco", vm.unload("/usr/local/bin/mco", 0o755)).await.unwrap();
    enable_recovery(vm).await;
}

/// Enables the recovery unit, which finishes or undoes an interrupted change.
pub(crate) async fn enable_recovery(vm: &VirtualMachine) {
    let unit = include_str!("../../../../deploy/systemd/machine-config-daemon-recover.service");
    vm.write(&format!("/etc/systemd/system/{RECOVER}"), unit).await.unwrap();
    vm.run(["systemctl", "enable", RECOVER]).await.unwrap();
}

async fn write(vm: &VirtualMachine, arguments: &[&str]) {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "60-arguments", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"kernelArguments": arguments},
    });
    vm.write(CONFIG, &config.to_string()).await.unwrap();
}

/// Applies the config; the agent reboots the machine.
async fn apply(vm: &VirtualMachine, arguments: &[&str]) {
    write(vm, arguments).await;
    let last = vm.boot_id().await.unwrap();
    timed(&format!("applied {arguments:?}"), vm.run(APPLY)).await.unwrap();
    timed("the agent's reboot", vm.rebooted(&last)).await.unwrap();
}

/// Applies the present config, up to the reboot.
async fn apply_only(vm: &VirtualMachine) {
    vm.run(APPLY.iter().chain(&["--skip-reboot"])).await.unwrap();
}

/// Waits until the recovery unit has finished or undone what the power cut interrupted. Logins are possible before that, and
/// the result of a unit that has not run yet is `success` too.
async fn recovered(vm: &VirtualMachine) {
    let script = format!(
        "systemctl is-system-running --wait; systemctl show -p Result -p ExecMainExitTimestampMonotonic {RECOVER}"
    );
    let said = vm.exec_within(["sh", "-c", &script], RECOVERY_LIMIT).await.unwrap().stdout;
    let ran = said.contains("Result=success") && !said.contains("Monotonic=0\n");
    assert!(ran, "{said}{}", vm.run(["journalctl", "-b", "-u", RECOVER]).await.unwrap());
}
