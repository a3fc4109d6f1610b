//! An extension that takes effect in the running system: the process ends at any instruction, the host refuses it, the power
//! fails before the next shutdown, or a second one follows. The OS is the fake that behaves as rpm-ostree does: what is staged
//! is made bootable at shutdown only, and what is in the running system ends with the boot.
//!
//! Not here: a later change of the whole OS that is undone (see `live_undone`).

use std::io;
use std::sync::Arc;

use crate::common::BySpec as _;
use crate::common::{is_root, mk_host, mk_host_tree};
use crate::config_pairs::live_pair;
use crate::fault_points::{Injection, What};
use crate::prepared::{boot, copy, mk_os, names, policy_of, prepare, same, state, status_of};
use host::fault::NoFaults;
use host::{DisruptionPolicy, Error, FakeOs, Host, HostPlan, Recovery};

fn planned(host: &mut Host, old: &[&str], new: &[&str], desired: &str) -> HostPlan {
    let config = |extensions: &[&str]| api::v1::MachineConfigSpec {
        extensions: Some(extensions.iter().map(|e| (*e).to_owned()).collect()),
        ..api::v1::MachineConfigSpec::default()
    };
    let (old, new) = (config(old), config(new));
    let facts = host.probe(&old, &new).unwrap();
    let policy = DisruptionPolicy { live_extensions: true, ..crate::prepared::policy() };
    crate::common::plan(&old, &new, &names("old", desired), &policy, &facts).unwrap()
}

#[test]
fn an_extension_that_only_adds_takes_effect_without_a_reboot_and_is_taken_back_wherever_the_process_ends() {
    if !is_root() {
        return;
    }
    let p = prepare(&live_pair());
    let shown = p.plan.to_string();
    assert!(!p.plan.disruption.needs_reboot() && !p.plan.disruption.needs_drain(), "{shown}");
    for said in [
        "apply usbguard to the running system, without a reboot",
        "live, without a reboot (spec.extensions)",
        "as the annotation machineconfig.dev/live-extensions allows",
    ] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    assert_eq!(
        (&p.new.1.booted.extensions.join(" "), &p.new.1.staged),
        (&"sysstat usbguard".to_owned(), &None)
    );
    for at in 0..p.points() {
        let killed = p.killed(at);
        let passed = killed.recover(None);
        for again in (0..passed).skip(at % 7).step_by(7) {
            killed.recover(Some(again));
        }
        p.fail(at, What::Fail(io::ErrorKind::PermissionDenied));
        if at % 3 == 0 {
            p.fail(at, What::FailOn(io::ErrorKind::StorageFull));
            p.kill_before_reboot(at).reboot_in_order(None);
        }
    }
}

#[test]
fn a_power_cut_at_any_point_leaves_a_journal_that_the_next_boot_can_end() {
    if !is_root() {
        return;
    }
    let p = prepare(&live_pair());
    let mut ended = std::collections::BTreeMap::new();
    for at in 0..=p.points() {
        *ended.entry(p.kill_before_reboot(at).cut_the_power()).or_insert(0) += 1;
    }
    assert_eq!(ended.keys().collect::<Vec<_>>(), ["new", "old"], "{ended:?}");
}

#[test]
fn a_refusal_undoes_all_of_it_and_the_config_is_planned_again_with_a_reboot() {
    if !is_root() {
        return;
    }
    let pair = live_pair();
    let p = prepare(&pair);
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    os.allow_live();
    os.refuse_live("packages would be changed: 2");
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    let error = host.apply(&p.plan).unwrap_err();
    assert!(matches!(&error, Error::Undone { step, .. } if step.contains("usbguard")), "{error}");
    same(&state(dir.path(), &os), &p.old, "refused");
    let refusal = host.live_refusal().unwrap().unwrap();
    assert!(refusal.config == "new" && refusal.why.contains("would be changed: 2"), "{refusal:?}");
    let facts = host.probe(&pair.old, &pair.new).unwrap();
    let again =
        crate::common::plan(&pair.old, &pair.new, &names("old", "new"), &policy_of(&pair), &facts).unwrap();
    assert!(again.disruption.needs_reboot() && again.disruption.needs_drain(), "{again}");
    let why = again.not_live.clone().unwrap();
    assert!(why.contains("would be changed: 2") && again.warnings.contains(&why), "{again}");
    // Another config is tried.
    let other =
        crate::common::plan(&pair.old, &pair.new, &names("old", "newer"), &policy_of(&pair), &facts).unwrap();
    assert!(!other.disruption.needs_reboot(), "{other}");
    host.apply(&again).unwrap();
    boot(dir.path(), &os);
    assert!(matches!(host.recover().unwrap(), Recovery::Finished { .. }));
    assert_eq!(status_of(&os).booted.extensions.join(" "), "sysstat usbguard");
    assert_eq!(host.live_refusal().unwrap(), None);
    // Without the annotation nothing is tried.
    let policy = DisruptionPolicy { live_extensions: false, ..policy_of(&pair) };
    let plain = crate::common::plan(&pair.old, &pair.new, &names("old", "newer"), &policy, &facts).unwrap();
    assert!(plain.disruption.needs_reboot() && !plain.to_string().contains("running system"), "{plain}");
}

#[test]
fn a_refusal_is_not_replaced_by_that_of_an_earlier_config_when_the_change_is_undone() {
    if !is_root() {
        return;
    }
    let pair = live_pair();
    let p = prepare(&pair);
    let refused = |host: &mut Host, desired: &str| {
        let facts = host.probe(&pair.old, &pair.new).unwrap();
        crate::common::plan(&pair.old, &pair.new, &names("old", desired), &policy_of(&pair), &facts).unwrap()
    };
    let tried = |faults: Arc<Injection>| {
        let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
        os.allow_live();
        os.refuse_live("the first one");
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        host.apply(&p.plan).unwrap_err();
        // Before its plan with a reboot is applied, the pool moves on to another config that only adds extensions.
        os.refuse_live("the second one");
        let other = refused(&mut host, "newer");
        assert!(other.is_live(), "{other}");
        let done = mk_host(dir.path(), &os, faults).apply(&other);
        (dir, os, done.unwrap_err())
    };
    let count = Injection::at(0, What::Nothing);
    let (dir, os, error) = tried(count.clone());
    assert!(matches!(error, Error::Undone { .. }), "{error}");
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    let refusal = host.live_refusal().unwrap().unwrap();
    assert_eq!(refusal.config, "newer", "{refusal:?}");
    let again = refused(&mut host, "newer");
    assert!(!again.is_live() && again.disruption.needs_reboot(), "{again}");
    same(&state(dir.path(), &os), &p.old, "refused twice");
    // Whatever ends the process, one of the two records is there, and once the second one is, it stays.
    let mut newer = 0;
    for at in 0..count.count() {
        let (dir, os, _) = tried(Injection::at(at, What::Kill));
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let before = host.live_refusal().unwrap().map(|refusal| refusal.config);
        host.recover().unwrap();
        let after = host.live_refusal().unwrap().unwrap().config;
        assert!(before.as_deref() != Some("newer") || after == "newer", "killed at {at}: {after}");
        newer += usize::from(after == "newer");
    }
    assert!(newer > 3, "the record is written before the undo: {newer}");
}

#[test]
fn a_crash_after_a_refusal_leads_to_no_second_try() {
    if !is_root() {
        return;
    }
    let p = prepare(&live_pair());
    let refused = |faults: Arc<Injection>| {
        let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
        os.refuse_live("no");
        let error = mk_host(dir.path(), &os, faults).apply(&p.plan).unwrap_err();
        (dir, os, error)
    };
    let count = Injection::at(0, What::Nothing);
    refused(count.clone());
    let mut recorded = 0;
    for at in 0..count.count() {
        let (dir, os, error) = refused(Injection::at(at, What::Kill));
        assert!(error.killed(), "{at}: {error}");
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        host.recover().unwrap();
        same(&state(dir.path(), &os), &p.old, &format!("killed at {at}"));
        recorded += usize::from(host.live_refusal().unwrap().is_some());
    }
    assert!(recorded > 3, "the record is written before the undo: {recorded}");
}

#[test]
fn a_second_extension_is_taken_back_to_the_first_one_which_was_only_staged() {
    if !is_root() {
        return;
    }
    let start = |faults| {
        let (dir, os) = (mk_host_tree(), FakeOs::default());
        os.allow_live();
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let first = planned(&mut host, &[], &["sysstat"], "one");
        host.apply(&first).unwrap();
        let second = planned(&mut host, &["sysstat"], &["sysstat", "usbguard"], "two");
        assert!(second.is_live() && !second.disruption.needs_reboot(), "{second}");
        let before = state(dir.path(), &os);
        let done = mk_host(dir.path(), &os, faults).apply(&second).map(drop);
        (dir, os, before, done)
    };
    let count = Injection::at(0, What::Nothing);
    let (dir, os, _, done) = start(count.clone());
    done.unwrap();
    assert_eq!(status_of(&os).booted.extensions.join(" "), "sysstat usbguard");
    // The next shutdown makes all of it bootable.
    boot(dir.path(), &os);
    let status = status_of(&os);
    assert_eq!((status.booted.extensions.join(" "), status.staged), ("sysstat usbguard".to_owned(), None));
    for at in 0..count.count() {
        let (dir, os, before, done) = start(Injection::at(at, What::Kill));
        assert!(done.unwrap_err().killed());
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let undone = matches!(host.recover().unwrap(), Recovery::Undone { .. });
        if undone || host.current_config().unwrap().unwrap().name == "one" {
            same(&state(dir.path(), &os), &before, &format!("killed at {at}"));
            boot(dir.path(), &os);
            assert_eq!(status_of(&os).booted.extensions, ["sysstat"], "{at}");
        }
    }
}

#[test]
fn a_power_cut_before_the_next_shutdown_undoes_a_change_on_trial_and_is_told_later() {
    if !is_root() {
        return;
    }
    let pair = live_pair();
    let p = prepare(&pair);
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let mut plan = p.plan.clone();
    plan.on_trial(std::time::Duration::from_secs(600), &[], String::new());
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    host.apply(&plan).unwrap();
    let trial = host.trial().unwrap().unwrap();
    assert!(trial.begun && !trial.trial.reboots, "it is in effect: {trial:?}");
    os.fall_back();
    boot(dir.path(), &os);
    assert!(matches!(host.recover().unwrap(), Recovery::Undone { .. }), "the config is not to blame");
    assert_eq!(status_of(&os), p.old.1);
    assert_eq!((host.os_failure().unwrap(), host.trial_failure().unwrap()), (None, None));
    assert_eq!(host.current_config().unwrap().unwrap().name, "old");
    // A trial that fails takes it out of the running system.
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    host.apply(&plan).unwrap();
    let recovery = host.fail_trial(host::Check::Unit, "the kubelet does not run").unwrap();
    assert!(matches!(recovery, Recovery::RolledBack { .. }), "{recovery:?}");
    assert_eq!(status_of(&os), p.old.1);
    // One that was kept is not bootable before the next shutdown.
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    host.apply(&plan).unwrap();
    assert_eq!(host.confirm_trial().unwrap().as_deref(), Some("new"));
    let told = |host: &mut Host| {
        let found = host.drifts(&pair.new).unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(told(&mut host), "");
    os.fall_back();
    boot(dir.path(), &os);
    assert_eq!(host.recover().unwrap(), Recovery::Nothing);
    let text = told(&mut host);
    assert!(text.contains("spec.extensions") && text.contains("usbguard"), "{text}");
}
