//! What takes effect without a reboot, on a host in a folder: kernel parameters, units and plain files are applied,
//! checked, refused, undone, repaired and recovered.
//!
//! Not here: restarts of userspace alone (see `soft_reboots`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::common::{BySpec as _, mk_host, mk_host_tree, plan};
use crate::planning::mk;
use api::v1::MachineConfigSpec;
use api::v1alpha1::Reboots;
use host::fault::{Fault, Faults, Point};
use host::{
    CurrentConfig, DisruptionPolicy, Error, FakeOs, FakeSystemd, FilePolicy, Host, HostPlan, Names,
    PolicyAction, RebootStatus, Root, Rule,
};
use serde_json::{Value, json};

const SYSCTL: &str = "/etc/sysctl.d/50-x.conf";
const SWAPPINESS: &str = "proc/sys/vm/swappiness";
const UNIT: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

pub(crate) fn mk_machine() -> tempfile::TempDir {
    let dir = mk_host_tree();
    crate::common::mk_kernel(dir.path());
    dir
}

pub(crate) fn file(path: &str, text: &str) -> Value {
    let text = text.replace('%', "%25").replace('\n', "%0A").replace(' ', "%20");
    json!({"path": path, "contents": {"source": format!("data:,{text}")}})
}

pub(crate) fn config(files: &[Value], units: &[Value]) -> MachineConfigSpec {
    let config =
        json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}, "systemd": {"units": units}});
    MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() }
}

fn unit(name: &str) -> Value {
    json!({"name": name, "contents": UNIT, "enabled": true})
}

pub(crate) fn when_needed() -> DisruptionPolicy {
    DisruptionPolicy { reboots: Reboots::WhenNeeded, ..DisruptionPolicy::default() }
}

pub(crate) fn planned(host: &mut Host, old: &MachineConfigSpec, new: &MachineConfigSpec) -> HostPlan {
    let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
    let facts = host.probe(old, new).unwrap();
    plan(old, new, &names, &when_needed(), &facts).unwrap()
}

fn value(at: &Path) -> String {
    fs::read_to_string(at.join(SWAPPINESS)).unwrap().trim().to_owned()
}

pub(crate) fn systemd(at: &Path) -> FakeSystemd {
    FakeSystemd::new(&Root::open(at).unwrap())
}

pub(crate) fn calls(at: &Path) -> Vec<String> {
    let ours = |c: &String| !c.starts_with("enable") && !c.starts_with("disable") && !c.starts_with("preset");
    systemd(at).calls().unwrap().into_iter().filter(ours).collect()
}

#[test]
fn a_parameter_a_message_and_a_unit_take_effect_without_a_reboot_and_go_without_one() {
    let dir = mk_machine();
    let mut host = mk(dir.path());
    let none = config(&[], &[]);
    let all =
        config(&[file(SYSCTL, "vm.swappiness = 10"), file("/etc/motd", "hello")], &[unit("new.service")]);
    let plan = planned(&mut host, &none, &all);
    assert!(!plan.disruption.needs_reboot() && !plan.disruption.needs_drain(), "{plan}");
    host.apply(&plan).unwrap();
    assert_eq!(value(dir.path()), "10");
    assert_eq!(calls(dir.path()), ["daemon-reload", "start new.service", "check new.service"]);
    assert_eq!(host.reboot_status().unwrap(), RebootStatus::None);
    // On the way back the parameter gets the value that it had before, and the unit is stopped before its file is removed.
    let back = planned(&mut host, &all, &none);
    assert!(!back.disruption.needs_reboot(), "{back}");
    host.apply(&back).unwrap();
    assert_eq!(value(dir.path()), "60");
    assert!(!dir.path().join("etc/systemd/system/new.service").exists());
    assert_eq!(calls(dir.path())[3..], ["stop new.service", "daemon-reload"]);
    // The record of the earlier value is gone, so the same change can be made again.
    let again = planned(&mut host, &none, &all);
    assert!(!again.disruption.needs_reboot(), "{again}");
}

#[test]
fn each_path_says_which_rule_decided_and_a_users_policy_wins() {
    let dir = mk_machine();
    let mut host = mk(dir.path());
    let none = config(&[], &[]);
    let paths =
        ["/etc/motd", "/etc/issue", "/etc/hostname", "/etc/chrony.conf", "/etc/containers/policy.json"];
    let files: Vec<Value> = paths.iter().map(|p| file(p, "x")).chain([file(SYSCTL, "vm.*=1")]).collect();
    let new = config(&files, &[unit("a.mount")]);
    let user = |path: &str, action| FilePolicy { path: path.to_owned(), actions: vec![action] };
    let policy = when_needed().merge(&DisruptionPolicy {
        files: vec![user("/etc/motd", PolicyAction::Reboot)],
        ..DisruptionPolicy::empty()
    });
    systemd(dir.path()).set_started("chronyd.service").unwrap();
    let facts = host.probe(&none, &new).unwrap();
    let rules = |policy: &DisruptionPolicy| {
        let plan = plan(&none, &new, &Names::default(), policy, &facts).unwrap();
        let text = plan.to_string();
        for decided in &plan.disruption.decided {
            assert!(text.contains(&format!("rule: {decided}\n")), "{text}");
        }
        plan.disruption.decided.into_iter().map(|d| (d.what, d.rule)).collect::<Vec<_>>()
    };
    let got = rules(&policy);
    let of = |what: &str| got.iter().find(|(w, _)| w == what).map(|(_, rule)| rule.clone()).unwrap();
    assert_eq!(of("/etc/motd"), Rule::Policy { policy: "/etc/motd".to_owned() });
    assert_eq!(of("/etc/issue"), Rule::Table { row: "messages at login".to_owned(), at_each_use: true });
    assert_eq!(of("/etc/hostname"), Rule::Default);
    assert_eq!(of("/etc/chrony.conf"), Rule::Table { row: "chrony".to_owned(), at_each_use: false });
    let built_in = Rule::BuiltIn { policy: "/etc/containers/policy.json".to_owned() };
    assert_eq!(of("/etc/containers/policy.json"), built_in);
    assert!(
        matches!(of(SYSCTL), Rule::NotHere { row, why } if row == "kernel parameters" && why.contains("pattern"))
    );
    assert!(matches!(of("a.mount"), Rule::NotHere { row, .. } if row == "units"));
    // Without the setting, no row of the table applies.
    let without = rules(&DisruptionPolicy::default());
    assert!(
        without.iter().all(|(_, rule)| matches!(rule, Rule::Default | Rule::BuiltIn { .. })),
        "{without:?}"
    );
}

/// The kernel refuses a value.
#[derive(Debug)]
struct Refuses;

impl Faults for Refuses {
    fn at(&self, p: Point<'_>) -> Result<(), Fault> {
        let is = p.call == "set" && p.before;
        if is { Err(Fault::Fail(std::io::ErrorKind::InvalidInput.into())) } else { Ok(()) }
    }
}

#[test]
fn a_value_that_the_kernel_refuses_or_alters_is_reported_with_its_file_and_everything_is_undone() {
    let none = config(&[], &[]);
    let new = config(&[file(SYSCTL, "vm.swappiness=900"), file("/etc/motd", "hello")], &[]);
    let dir = mk_machine();
    let plan = planned(&mut mk(dir.path()), &none, &new);
    let mut host = mk_host(dir.path(), &FakeOs::default(), Arc::new(Refuses));
    let error = host.apply(&plan).unwrap_err();
    assert!(error.disturbed_services());
    let text = api::formats::text::chain(&error);
    for word in [SYSCTL, "vm/swappiness", "900", "correct the value in the MachineConfig", "undone"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!dir.path().join("etc/motd").exists());
    assert_eq!(value(dir.path()), "60");
    // A parameter that keeps another value: here it is a device that swallows everything.
    let dir = mk_machine();
    let plan = planned(&mut mk(dir.path()), &none, &new);
    fs::remove_file(dir.path().join(SWAPPINESS)).unwrap();
    std::os::unix::fs::symlink("/swallows", dir.path().join(SWAPPINESS)).unwrap();
    let made =
        std::process::Command::new("mknod").arg(dir.path().join("swallows")).args(["c", "1", "3"]).status();
    if !made.is_ok_and(|s| s.success()) {
        eprintln!("skipped: a device cannot be made here");
        return;
    }
    let Err(error) = mk(dir.path()).apply(&plan) else { panic!("the kernel has another value") };
    assert!(
        api::formats::text::chain(&error).contains("afterwards"),
        "{}",
        api::formats::text::chain(&error)
    );
}

#[test]
fn a_unit_that_fails_undoes_the_change_and_the_units_before_it_run_as_before() {
    let dir = mk_machine();
    let mut host = mk(dir.path());
    let old = config(&[file(SYSCTL, "vm.swappiness=10")], &[unit("gone.service")]);
    let first = planned(&mut host, &config(&[], &[]), &old);
    host.apply(&first).unwrap();
    let new = config(&[], &[unit("bad.service")]);
    let plan = planned(&mut host, &old, &new);
    systemd(dir.path()).set_failing("bad.service", true).unwrap();
    let before = calls(dir.path()).len();
    let error = host.apply(&plan).unwrap_err();
    assert!(matches!(error, Error::Undone { .. }) && error.disturbed_services(), "{error}");
    assert_eq!(value(dir.path()), "10", "the value of the old config is back");
    assert!(dir.path().join("etc/systemd/system/gone.service").exists());
    let after = calls(dir.path()).split_off(before);
    let want = [
        "stop gone.service",
        "daemon-reload",
        "start bad.service",
        "daemon-reload",
        "start gone.service",
        "stop bad.service",
    ];
    assert_eq!(after, want);
}

#[test]
fn a_change_that_needs_a_reboot_takes_what_would_take_effect_now_with_it() {
    let dir = mk_machine();
    let mut host = mk(dir.path());
    let new = config(&[file(SYSCTL, "vm.swappiness=10"), file("/etc/hostname", "x")], &[unit("new.service")]);
    let plan = planned(&mut host, &config(&[], &[]), &new);
    assert_eq!(plan.disruption.reboot, ["/etc/hostname"]);
    assert!(plan.disruption.effects.is_empty(), "{plan}");
    host.apply(&plan).unwrap();
    assert_eq!((value(dir.path()).as_str(), calls(dir.path())), ("60", vec!["daemon-reload".to_owned()]));
}

#[test]
fn a_repair_makes_the_restored_file_take_effect_again() {
    let dir = mk_machine();
    let mut host = mk(dir.path());
    let new = config(&[file(SYSCTL, "vm.swappiness=10")], &[]);
    let plan = planned(&mut host, &config(&[], &[]), &new);
    host.apply(&plan).unwrap();
    fs::write(dir.path().join("etc/sysctl.d/50-x.conf"), "vm.swappiness=99").unwrap();
    fs::write(dir.path().join(SWAPPINESS), "99\n").unwrap();
    let drifts = host.drifts(&new).unwrap();
    let current = CurrentConfig { name: "new".to_owned(), spec: new.clone() };
    let drifted = host.drifted(current, drifts).unwrap();
    let repair = host.plan_repair(&drifted, Some(&when_needed())).unwrap().unwrap();
    host.apply(&repair).unwrap();
    assert_eq!(value(dir.path()), "10");
    assert_eq!(fs::read_to_string(dir.path().join("etc/sysctl.d/50-x.conf")).unwrap(), "vm.swappiness=10");
}

#[test]
fn a_repaired_unit_runs_by_its_config_again_and_one_that_differs_otherwise_goes_on() {
    let dir = mk_machine();
    let mut host = mk(dir.path());
    let new = config(&[], &[unit("new.service")]);
    let plan = planned(&mut host, &config(&[], &[]), &new);
    host.apply(&plan).unwrap();
    let at = dir.path().join("etc/systemd/system/new.service");
    let text = fs::read_to_string(&at).unwrap();
    let repair = |host: &mut Host, policy: &DisruptionPolicy| {
        let drifts = host.drifts(&new).unwrap();
        let current = CurrentConfig { name: "new".to_owned(), spec: new.clone() };
        let drifted = host.drifted(current, drifts).unwrap();
        let plan = host.plan_repair(&drifted, Some(policy)).unwrap().unwrap();
        let before = calls(dir.path()).len();
        host.apply(&plan).unwrap();
        assert_eq!(fs::read_to_string(&at).unwrap(), text);
        (calls(dir.path()).split_off(before), plan)
    };
    fs::write(&at, "[Service]\nExecStart=/bin/other\n").unwrap();
    let (done, _) = repair(&mut host, &when_needed());
    assert_eq!(done, ["daemon-reload", "restart new.service", "check new.service"]);
    // What runs has the same text.
    fs::set_permissions(&at, fs::Permissions::from_mode(0o600)).unwrap();
    let (done, _) = repair(&mut host, &when_needed());
    assert!(!done.iter().any(|call| call.contains("restart")), "{done:?}");
    // Where an update would reboot, a repair says that it does not.
    fs::write(&at, "[Service]\nExecStart=/bin/other\n").unwrap();
    let (done, plan) = repair(&mut host, &DisruptionPolicy::default());
    assert_eq!(done, ["daemon-reload"]);
    assert!(
        plan.notes.iter().any(|note| note.contains("new.service") && note.contains("does not")),
        "{plan}"
    );
}
