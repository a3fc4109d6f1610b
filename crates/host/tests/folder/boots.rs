//! What counts as a reboot. Services need not be notified of what was undone before they started. A new `/run` means
//! that the machine has rebooted, even if the same kernel goes on running.

use std::path::Path;
use std::sync::Arc;

use crate::common::{BySpec as _, mk_host, mk_host_tree, plan};
use crate::planning::{file, files, mk, planned};
use api::v1::MachineConfigSpec;
use host::fault::{Fault, Faults, NoFaults, Point};
use host::{
    DisruptionPolicy, FakeOs, FakeSystemd, FilePolicy, Host, Names, Options, OsBackend, PolicyAction, Pull,
    Rationale, RebootStatus, Recovery, Root, ServiceAction, Systemd, SystemdError, UnitFileState, UnitVerb,
};

/// The process ends while it restarts a service.
#[derive(Debug)]
struct KillAtRestart;

impl Faults for KillAtRestart {
    fn at(&self, p: Point<'_>) -> Result<(), Fault> {
        if p.call == "restart" && !p.before { Err(Fault::Killed) } else { Ok(()) }
    }
}

/// Interrupts a change while it restarts services.
fn cut_while_telling(at: &Path) {
    let actions = ["kubelet.service", "crio.service"].map(PolicyAction::restart).to_vec();
    let files_policy = vec![FilePolicy { path: "/etc/told.conf".to_owned(), actions }];
    let policy = DisruptionPolicy { files: files_policy, ..DisruptionPolicy::empty() };
    let mut host = mk_host(at, &FakeOs::default(), Arc::new(KillAtRestart));
    let plan = planned(&mut host, &files(&[file("/etc/told.conf")]), &policy).unwrap();
    assert!(host.apply(&plan).unwrap_err().killed());
    assert!(at.join("etc/told.conf").exists());
}

fn told(host: &Host) -> Vec<String> {
    let calls = FakeSystemd::new(host.root()).calls().unwrap();
    calls.into_iter().filter(|c| c.contains("kubelet") || c.contains("crio")).collect()
}

#[test]
fn recovery_after_a_reboot_waits_for_no_service() {
    let dir = mk_host_tree();
    cut_while_telling(dir.path());
    let mut host = mk(dir.path());
    let before = told(&host);
    assert_eq!(before, ["restart kubelet.service"]);
    FakeSystemd::new(host.root()).complete_reboot().unwrap();
    assert!(matches!(host.recover().unwrap(), Recovery::Undone { .. }));
    assert!(!dir.path().join("etc/told.conf").exists());
    // Both start after the recovery and read the restored files. Waiting for them here would be a deadlock.
    assert_eq!(told(&host), before);
}

#[test]
fn a_service_that_started_before_the_recovery_is_restarted_without_waiting() {
    let dir = mk_host_tree();
    cut_while_telling(dir.path());
    let mut host = mk(dir.path());
    let mut systemd = FakeSystemd::new(host.root());
    systemd.complete_reboot().unwrap();
    systemd.set_started("crio.service").unwrap();
    host.recover().unwrap();
    assert_eq!(told(&host), ["restart kubelet.service", "queue restart crio.service"]);
}

#[test]
fn a_second_recovery_in_the_same_boot_repeats_the_service_actions_without_waiting() {
    let dir = mk_host_tree();
    cut_while_telling(dir.path());
    let mut host = mk(dir.path());
    host.recover().unwrap();
    let queued = ["queue restart kubelet.service", "queue restart crio.service"];
    assert_eq!(told(&host)[1..], queued);
}

#[test]
fn only_a_reboot_that_begins_is_counted() {
    let dir = mk_host_tree();
    let mut host = container(dir.path());
    let plan = planned(&mut host, &files(&[file("/etc/x")]), &DisruptionPolicy::default()).unwrap();
    host.apply(&plan).unwrap();
    let tries = |host: &mut Host| match host.reboot_status().unwrap() {
        RebootStatus::Owed(owed) => owed.tries,
        other => panic!("{other:?}"),
    };
    for n in 1..=3 {
        host.reboot("test").unwrap();
        FakeSystemd::new(host.root()).complete_reboot().unwrap();
        assert_eq!(tries(&mut host), n);
    }
    #[derive(Debug)]
    struct Refuses;
    impl Faults for Refuses {
        fn at(&self, p: Point<'_>) -> Result<(), Fault> {
            let refused = p.call == "reboot" && p.before;
            if refused { Err(Fault::Fail(std::io::ErrorKind::PermissionDenied.into())) } else { Ok(()) }
        }
    }
    let mut host = mk_host(dir.path(), &FakeOs::default(), Arc::new(Refuses));
    host.reboot("test").unwrap_err();
    assert_eq!(tries(&mut container(dir.path())), 3);
}

/// systemd in a container: the kernel is the computer's and keeps running.
#[derive(Debug)]
struct Container(FakeSystemd);

impl Systemd for Container {
    fn daemon_reload(&mut self) -> Result<(), SystemdError> {
        self.0.daemon_reload()
    }
    fn enable(&mut self, units: &[String]) -> Result<(), SystemdError> {
        self.0.enable(units)
    }
    fn disable(&mut self, units: &[String]) -> Result<(), SystemdError> {
        self.0.disable(units)
    }
    fn preset(&mut self, units: &[String]) -> Result<(), SystemdError> {
        self.0.preset(units)
    }
    fn restart(&mut self, unit: &str) -> Result<(), SystemdError> {
        self.0.restart(unit)
    }
    fn reload_if_running(&mut self, unit: &str) -> Result<(), SystemdError> {
        self.0.reload_if_running(unit)
    }
    fn act(&mut self, action: UnitVerb, unit: &str) -> Result<(), SystemdError> {
        self.0.act(action, unit)
    }
    fn queue_act(&mut self, action: UnitVerb, unit: &str) -> Result<(), SystemdError> {
        self.0.queue_act(action, unit)
    }
    fn is_running(&mut self, unit: &str) -> Result<bool, SystemdError> {
        self.0.is_running(unit)
    }
    fn check(&mut self, units: &[String]) -> Result<(), SystemdError> {
        self.0.check(units)
    }
    fn is_stopping(&mut self) -> Result<bool, SystemdError> {
        self.0.is_stopping()
    }
    fn soft_reboots(&mut self) -> Result<Option<u64>, SystemdError> {
        self.0.soft_reboots()
    }
    fn soft_reboot(&mut self, rationale: &Rationale) -> Result<(), SystemdError> {
        self.0.soft_reboot(rationale)
    }
    fn reload(&mut self, unit: &str) -> Result<(), SystemdError> {
        self.0.reload(unit)
    }
    fn run_once(&mut self, program: &str) -> Result<(), SystemdError> {
        self.0.run_once(program)
    }
    fn queue(&mut self, action: ServiceAction, unit: &str) -> Result<(), SystemdError> {
        self.0.queue(action, unit)
    }
    fn was_started(&mut self, unit: &str) -> Result<bool, SystemdError> {
        self.0.was_started(unit)
    }
    fn unit_state(&mut self, unit: &str) -> Result<host::UnitState, SystemdError> {
        self.0.unit_state(unit)
    }
    fn start_watch(&mut self, unit: &str, command: &[String]) -> Result<(), SystemdError> {
        self.0.start_watch(unit, command)
    }
    fn up_for(&mut self) -> std::time::Duration {
        self.0.up_for()
    }
    fn state(&mut self, unit: &str) -> Result<Option<UnitFileState>, SystemdError> {
        self.0.state(unit)
    }
    fn reboot(&mut self, rationale: &Rationale) -> Result<(), SystemdError> {
        self.0.reboot(rationale)
    }
    fn boot_id(&mut self) -> Result<String, SystemdError> {
        Ok("the computer's".to_owned())
    }
}

fn container(at: &Path) -> Host {
    let root = Root::open_with(at, Options { sync: false, owners: false }, Arc::new(NoFaults)).unwrap();
    let systemd = Container(FakeSystemd::new(&root));
    Host::new(root, Box::new(systemd), Box::new(FakeOs::default()))
}

#[test]
fn a_container_with_the_hosts_boot_id_has_rebooted_when_run_is_empty() {
    let dir = mk_host_tree();
    let mut host = container(dir.path());
    host.recover().unwrap();
    let plan = planned(&mut host, &files(&[file("/etc/x")]), &DisruptionPolicy::default()).unwrap();
    assert!(host.apply(&plan).unwrap().reboot);
    assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Owed(_)));
    // Another process of the same boot.
    let mut host = container(dir.path());
    host.recover().unwrap();
    assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Owed(_)));
    std::fs::remove_dir_all(dir.path().join("run")).unwrap();
    std::fs::create_dir(dir.path().join("run")).unwrap();
    for _ in 0..2 {
        let mut host = container(dir.path());
        assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Rebooted(_)));
        host.recover().unwrap();
        assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Rebooted(_)));
    }
}

/// OSTree keeps every image that was pulled. The host boots, goes back, and has one fetched ahead of its update.
#[test]
fn images_that_nothing_needs_go_when_a_change_is_over_and_a_config_that_is_taken_back_brings_its_image() {
    let dir = mk_host_tree();
    let at = dir.path();
    let os = FakeOs::default();
    let config =
        |image: &str| MachineConfigSpec { os_image_url: image.to_owned(), ..MachineConfigSpec::default() };
    let planned = |from: &str, to: &str| {
        let (old, new) = (config(from), config(to));
        let facts = mk_host(at, &os, Arc::new(NoFaults)).probe(&old, &new).unwrap();
        let names = Names { current: from.to_owned(), desired: to.to_owned() };
        plan(&old, &new, &names, &DisruptionPolicy::default(), &facts).unwrap()
    };
    let booted = || {
        os.boot();
        let _ = std::fs::remove_file(at.join("run/machine-config-daemon-boot"));
        FakeSystemd::new(&Root::open(at).unwrap()).complete_reboot().unwrap();
    };
    // The last one takes the host back to the config before.
    for (from, to, left) in [
        ("", "fake:2", &["fake:1", "fake:2"][..]),
        ("fake:2", "fake:3", &["fake:2", "fake:3"]),
        ("fake:3", "fake:2", &["fake:2", "fake:3"]),
    ] {
        let before = os.images();
        mk_host(at, &os, Arc::new(NoFaults)).apply(&planned(from, to)).unwrap();
        assert!(mk_host(at, &os, Arc::new(NoFaults)).tidy_os().unwrap().is_empty(), "{to} is not booted yet");
        booted();
        let mut host = mk_host(at, &os, Arc::new(NoFaults));
        assert_eq!(host.recover().unwrap(), Recovery::Finished { config: to.to_owned() });
        assert_eq!(os.clone().status().unwrap().booted.image, to);
        let gone = host.tidy_os().unwrap();
        assert_eq!(os.images(), left, "{to}");
        assert!(gone.iter().all(|image| before.contains(image)), "{gone:?}");
    }
    // A plan tells how much is to be pulled.
    let noted = |from: &str, to: &str| {
        let mut plan = planned(from, to);
        mk_host(at, &os, Arc::new(NoFaults)).note_image_size(&mut plan).unwrap();
        plan.to_string()
    };
    assert!(noted("fake:2", "fake:4").contains("note: pulls the OS image fake:4: 1.2 GB, less the layers"));
    assert!(
        noted("fake:2", "fake:3")
            .contains("note: pulls the OS image fake:3, unless the host has it; its size is not known")
    );
    assert!(!noted("fake:2", "fake:2").contains("pulls"));
    // One that waits for its update stays until that is over.
    mk_host(at, &os, Arc::new(NoFaults)).fetch(&planned("fake:2", "fake:4"), &Pull::default()).unwrap();
    assert!(mk_host(at, &os, Arc::new(NoFaults)).tidy_os().unwrap().is_empty());
    assert_eq!(os.images(), ["fake:2", "fake:3", "fake:4"]);
}
