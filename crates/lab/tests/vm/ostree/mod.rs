//! Machines whose OS is replaced as a whole, with real deployments, a real registry and a real boot loader: what the tests share.
//!
//! Not here: the back end with other versions of the programs (recorded answers, beside the code in `host`).

mod boots;
mod built;
mod cluster;
mod fetch;
mod laptop;
mod lying_registry;
mod refused;
mod release;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use lab::{Environment, Folder, OstreeMachine, Output, RECOVER_UNIT, Registry, Reporter, VirtualMachine};
use serde_json::{Value, json};
use tokio::sync::SemaphorePermit;

use crate::product::{CONFIG, enable_recovery, program};
use crate::{PLACE, timed};

/// The time limit for a pull into an emulated machine: it takes a minute, and ten times as long while something is built.
const LIMIT: Duration = Duration::from_secs(900);
const MCO: &str = "/usr/local/bin/mco";
const APPLY: [&str; 6] = [MCO, "daemon", "start", "--root-mount=/", "--once-from", CONFIG];
const SKIP_REBOOT: &[&str] = &["--skip-reboot"];
const VERSION: &str = "/usr/share/lab/version";
const STAGED: &str = "/run/ostree/staged-deployment";
const FILE: &str = "/etc/lab-file";
const CURRENT: &str = "/etc/machine-config-daemon/currentconfig";
const JOURNAL: &str = "/var/lib/machine-config-daemon/journal";
/// Waits until all jobs of the boot have ended, then prints the result of the recovery and the time at which it ended.
const SETTLED: &str = "systemctl is-system-running --wait; \
    systemctl show -p Result -p ExecMainExitTimestampMonotonic machine-config-daemon-recover.service";
/// What systemd writes to the serial port before and after OSTree finalises what is staged.
const FINALISING: &str = "Stopping ostree-finalize-staged.service";
const FINALISED: &str = "Stopped ostree-finalize-staged.service";
/// What it writes when the recovery starts.
const RECOVERING: &str = "Starting machine-config-daemon-recover.service";

/// What a config asks for, and what a machine with this config has.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    name: &'a str,
    image: &'a str,
    version: &'a str,
    arguments: &'a [&'a str],
    file: Option<&'a str>,
}

/// The state of a machine before its first config.
const FIRST: Asked<'_> = Asked { name: "", image: "", version: "A", arguments: &[], file: None };

/// A booted machine with `mco`, its registry, and its permit to run.
struct BootedMachine {
    vm: VirtualMachine,
    registry: Registry,
    _place: SemaphorePermit<'static>,
}

/// Boots the machine. `None`: skipped, with a message.
async fn booted_machine() -> Option<BootedMachine> {
    if !lab::require_root() {
        return None;
    }
    let machine = OstreeMachine::ensure(&Reporter::stderr()).await.unwrap();
    let image = machine.image().clone().with_program(&program());
    let place = PLACE.acquire().await.unwrap();
    let folder = Arc::new(Folder::create(&Environment::read()).unwrap());
    let registry = machine.registry(Arc::clone(&folder)).await.unwrap();
    let vm = timed("first boot", VirtualMachine::start("ostree", &image, folder)).await.unwrap();
    timed("copying mco", vm.unload(MCO, 0o755)).await.unwrap();
    enable_recovery(&vm).await;
    vm.run(["sync"]).await.unwrap();
    is_running(&vm, FIRST).await;
    Some(BootedMachine { vm, registry, _place: place })
}

/// The MachineConfig that asks for this.
fn config(asked: Asked<'_>) -> Value {
    let files: Vec<_> = asked.file.iter().map(|text| {
        let data = base64::engine::general_purpose::STANDARD.encode(text);
        json!({"path": FILE, "mode": 0o644, "overwrite": true, "contents": {"source": format!("data:;base64,{data}")}})
    }).collect();
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": asked.name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {
            "osImageURL": asked.image,
            "kernelArguments": asked.arguments,
            "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}},
        },
    })
}

/// Writes the config into the machine.
async fn write(vm: &VirtualMachine, asked: Asked<'_>) {
    vm.write(CONFIG, &config(asked).to_string()).await.unwrap();
}

async fn apply(vm: &VirtualMachine, more: &[&str]) -> Output {
    vm.exec_within(APPLY.iter().chain(more), LIMIT).await.unwrap()
}

/// Applies the config up to the reboot: the new OS is staged, and the old one still runs.
async fn staged(vm: &VirtualMachine, what: &str) {
    let done = timed(&format!("{what}: fetched and staged"), apply(vm, SKIP_REBOOT)).await;
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(vm.exec(["test", "-e", STAGED]).await.unwrap().code, 0, "nothing is staged: {done:?}");
}

/// Checks that nothing of the config is on the machine.
async fn untouched(vm: &VirtualMachine) {
    for path in [STAGED, FILE, CURRENT] {
        assert_eq!(vm.exec(["test", "-e", path]).await.unwrap().code, 1, "{path} exists");
    }
}

/// Waits until the boot is over and the recovery unit has run. Returns the unit's log of this boot.
///
/// Logins are possible long before that.
async fn settled(vm: &VirtualMachine) -> String {
    let said = timed("the rest of the boot", vm.exec_within(["sh", "-c", SETTLED], LIMIT)).await.unwrap();
    let log = vm.run(["journalctl", "--no-pager", "-b", "-o", "cat", "-u", RECOVER_UNIT]).await.unwrap();
    let ran = said.stdout.contains("Result=success") && !said.stdout.contains("Monotonic=0\n");
    assert!(ran, "{}: {log}", said.stdout);
    if said.stdout.starts_with("degraded") {
        eprintln!("{}", vm.exec(["systemctl", "--no-pager", "--failed"]).await.unwrap().stdout);
    }
    log
}

/// Checks that the running OS, the lab's kernel arguments, the file and the recorded config are those of this config.
async fn is_running(vm: &VirtualMachine, asked: Asked<'_>) {
    let booted = vm.read_file(VERSION).await.unwrap();
    let mut all = vm.kernel_arguments().await.unwrap();
    assert!(all.contains(&"root=LABEL=root".to_owned()), "{all:?}");
    all.retain(|argument| argument.starts_with("lab."));
    let arguments: Vec<String> = asked.arguments.iter().map(|a| (*a).to_owned()).collect();
    assert_eq!((booted.trim(), all), (asked.version, arguments));
    let file = vm.exec(["cat", FILE]).await.unwrap();
    assert_eq!((file.code == 0).then_some(file.stdout.as_str()), asked.file, "{asked:?}");
    let current = vm.exec(["cat", CURRENT]).await.unwrap();
    assert!(current.stdout.contains(asked.name), "{}", current.stdout);
    assert_eq!(current.code == 0, !asked.name.is_empty(), "{current:?}");
    // The package that image B adds.
    let installed = vm.exec(["dpkg-query", "-W", "-f", "${Status}", "hello"]).await.unwrap();
    assert_eq!(installed.stdout == "install ok installed", asked.version != "A", "{installed:?}");
}

/// Checks that no change has left anything.
async fn ended(vm: &VirtualMachine) {
    let left = vm.run(["sh", "-c", &format!("ls {JOURNAL}; ls {STAGED} 2>/dev/null || :")]).await.unwrap();
    assert_eq!(left.trim(), "");
}
