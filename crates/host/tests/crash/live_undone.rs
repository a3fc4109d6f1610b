//! A change of the whole OS that is undone on a host with an extension in the running system, which was only staged before: the
//! process ends at any instruction, the machine boots then, or the undo is that of a trial. The OS is the fake, as in
//! `live_extensions`: what an undo stages again is another commit than the one in the running system.
//!
//! Not here: extensions that come (see `live_extensions`).

use std::sync::Arc;

use crate::common::BySpec as _;
use crate::common::{is_root, mk_host, mk_host_tree};
use crate::fault_points::{Injection, What};
use crate::prepared::{boot, names, status_of};
use host::fault::NoFaults;
use host::{DisruptionPolicy, Error, FakeOs, Host, HostPlan, Recovery};

/// A host with an extension in the running system that no boot has made part of its deployment yet.
fn with_live_extension(image: &str) -> (tempfile::TempDir, FakeOs, api::v1::MachineConfigSpec) {
    let (dir, os) = (mk_host_tree(), FakeOs::default());
    os.allow_live();
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    let spec = api::v1::MachineConfigSpec {
        extensions: Some(vec!["sysstat".to_owned()]),
        base_os_extensions_container_image: image.to_owned(),
        ..api::v1::MachineConfigSpec::default()
    };
    let start = api::v1::MachineConfigSpec::default();
    let policy = DisruptionPolicy { live_extensions: true, ..crate::prepared::policy() };
    let facts = host.probe(&start, &spec).unwrap();
    let plan = crate::common::plan(&start, &spec, &names("zero", "old"), &policy, &facts).unwrap();
    assert!(plan.is_live(), "{plan}");
    host.apply(&plan).unwrap();
    (dir, os, spec)
}

/// The plan to another image, another kernel argument and another extensions image.
fn to_other_os(host: &mut Host, old: &api::v1::MachineConfigSpec) -> HostPlan {
    to_other_os_if(host, old, true)
}

/// The same. `allowed`: extensions may take effect in the running system.
fn to_other_os_if(host: &mut Host, old: &api::v1::MachineConfigSpec, allowed: bool) -> HostPlan {
    let new = api::v1::MachineConfigSpec {
        os_image_url: "fake:2".to_owned(),
        kernel_arguments: Some(vec!["nosmt".to_owned()]),
        base_os_extensions_container_image: "q.io/extensions:2".to_owned(),
        ..old.clone()
    };
    let facts = host.probe(old, &new).unwrap();
    let policy = DisruptionPolicy { live_extensions: allowed, ..crate::prepared::policy() };
    crate::common::plan(old, &new, &names("old", "new"), &policy, &facts).unwrap()
}

#[test]
fn an_undo_uses_the_extensions_image_of_the_config_from_before() {
    if !is_root() {
        return;
    }
    let (dir, os, old) = with_live_extension("q.io/extensions:1");
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    let plan = to_other_os(&mut host, &old);
    let count = Injection::at(0, What::Nothing);
    mk_host(dir.path(), &os, count.clone()).apply(&plan).unwrap();
    // Each crash is in another process: the image is in the journal.
    let mut undone = 0;
    for at in 0..count.count() {
        let (dir, os, old) = with_live_extension("q.io/extensions:1");
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let plan = to_other_os(&mut host, &old);
        let before = status_of(&os);
        if mk_host(dir.path(), &os, Injection::at(at, What::Kill)).apply(&plan).is_ok() {
            continue;
        }
        let staged = status_of(&os) != before;
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let recovery = host.recover().unwrap();
        if staged && matches!(recovery, Recovery::Undone { .. }) {
            assert_eq!((os.undone_with().as_str(), status_of(&os)), ("q.io/extensions:1", before), "{at}");
            undone += 1;
        }
    }
    assert!(undone > 3, "{undone}");
}

#[test]
fn what_is_staged_again_is_brought_into_the_running_system_only_where_the_plan_found_that_allowed() {
    if !is_root() {
        return;
    }
    for allowed in [true, false] {
        let start = |faults: Arc<Injection>| {
            let (dir, os, old) = with_live_extension("");
            let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
            let plan = to_other_os_if(&mut host, &old, allowed);
            let before = status_of(&os);
            let done = mk_host(dir.path(), &os, faults).apply(&plan).map(drop);
            (dir, os, before, done)
        };
        let count = Injection::at(0, What::Nothing);
        start(count.clone()).3.unwrap();
        let mut undone = 0;
        for at in 0..count.count() {
            let (dir, os, before, done) = start(Injection::at(at, What::Kill));
            if done.is_ok() || status_of(&os) == before {
                continue;
            }
            // Another process reads in the journal whether it is allowed.
            let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
            if !matches!(host.recover().unwrap(), Recovery::Undone { .. }) {
                continue;
            }
            undone += 1;
            let (now, reboot) = (status_of(&os), host.reboot_status().unwrap());
            assert_eq!(now.next().extensions, ["sysstat"], "{at}");
            match (allowed, &reboot) {
                (true, host::RebootStatus::None) => assert_eq!(now, before, "{at}"),
                (false, host::RebootStatus::Owed(owed)) => {
                    assert!(
                        now.booted.extensions.is_empty() && !owed.cleared && !owed.back,
                        "{at}: {owed:?}"
                    );
                    assert!(owed.because[0].contains("need a boot to run"), "{owed:?}");
                }
                _ => panic!("allowed: {allowed}, killed at {at}: {reboot:?}"),
            }
        }
        assert!(undone > 3, "{undone}");
    }
}

/// The machine boots after a kill in the undo: in order, into what is staged by then, or after a power cut, which loses that. In the
/// end it has what it had before the change, with one more reboot at most.
fn boots_after_the_kill(
    (dir, os, done): (tempfile::TempDir, FakeOs, Result<Recovery, Error>),
    orderly: bool,
    at: usize,
) {
    let about = format!("killed at {at}, orderly: {orderly}");
    assert!(done.unwrap_err().killed(), "{about}");
    if !orderly {
        os.fall_back();
    }
    boot(dir.path(), &os);
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    let recovery = host.recover().unwrap();
    assert_eq!(host.current_config().unwrap().unwrap().name, "old", "{about}");
    if recovery == Recovery::Nothing && !orderly {
        // The undo had ended. Until the next shutdown in order, a power cut loses what is staged, and that is told as drift.
        let spec = api::v1::MachineConfigSpec {
            extensions: Some(vec!["sysstat".to_owned()]),
            ..api::v1::MachineConfigSpec::default()
        };
        host.reboot_done().unwrap();
        let found = host.drifts(&spec).unwrap();
        assert!(
            found.iter().any(|drift| drift.to_string().contains("lacks the extension sysstat")),
            "{about}"
        );
        return;
    }
    if status_of(&os).booted.extensions.is_empty() {
        let owed = host.reboot_status().unwrap();
        assert!(matches!(&owed, host::RebootStatus::Owed(owed) if owed.config == "old"), "{about}: {owed:?}");
        boot(dir.path(), &os);
        assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{about}");
    }
    assert!(!matches!(host.reboot_status().unwrap(), host::RebootStatus::Owed(_)), "{about}");
    let status = status_of(&os);
    assert_eq!((status.booted.extensions, status.staged), (vec!["sysstat".to_owned()], None), "{about}");
}

#[test]
fn a_machine_that_comes_back_with_an_extension_that_is_only_staged_reboots_once_more_and_says_why() {
    if !is_root() {
        return;
    }
    // It comes up without the argument, goes back, and is where it was before the extension.
    let fail = |faults: Arc<Injection>| {
        let (dir, os, old) = with_live_extension("");
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let plan = to_other_os(&mut host, &old);
        host.apply(&plan).unwrap();
        boot(dir.path(), &os);
        os.lose_argument("nosmt");
        let recovery = host.recover().unwrap();
        assert!(matches!(recovery, Recovery::AwaitsReturn { .. }), "{recovery:?}");
        boot(dir.path(), &os);
        let done = mk_host(dir.path(), &os, faults).recover();
        (dir, os, done)
    };
    let count = Injection::at(0, What::Nothing);
    let (_, _, done) = fail(count.clone());
    assert!(matches!(done.unwrap(), Recovery::RolledBack { .. }));
    for at in 0..count.count() {
        for orderly in [false, true] {
            boots_after_the_kill(fail(Injection::at(at, What::Kill)), orderly, at);
        }
        let (dir, os, done) = fail(Injection::at(at, What::Kill));
        assert!(done.unwrap_err().killed(), "{at}");
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        host.recover().unwrap();
        let status = status_of(&os);
        assert!(status.booted.extensions.is_empty() && status.next().extensions == ["sysstat"], "{at}");
        let host::RebootStatus::Owed(owed) = host.reboot_status().unwrap() else {
            panic!("{at}: no reboot is owed")
        };
        assert!(owed.config == "old" && owed.because[0].contains("staged again"), "{at}: {owed:?}");
        assert!(!owed.cleared, "the pods leave first");
        boot(dir.path(), &os);
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        host.recover().unwrap();
        assert!(matches!(host.reboot_status().unwrap(), host::RebootStatus::Rebooted(_)), "{at}");
        host.reboot_done().unwrap();
        assert_eq!(status_of(&os).booted.extensions, ["sysstat"], "{at}");
        assert_eq!(host.current_config().unwrap().unwrap().name, "old");
    }
}

#[test]
fn the_reboot_that_brings_packages_back_after_a_trial_that_failed_needs_no_permission() {
    if !is_root() {
        return;
    }
    let (dir, os, old) = with_live_extension("");
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    let mut plan = to_other_os(&mut host, &old);
    plan.on_trial(std::time::Duration::from_secs(600), &[], String::new());
    host.apply(&plan).unwrap();
    boot(dir.path(), &os);
    assert!(matches!(host.recover().unwrap(), Recovery::OnTrial { .. }));
    let recovery = host.fail_trial(host::Check::Api, "no answer").unwrap();
    assert!(matches!(recovery, Recovery::AwaitsReturn { .. }), "{recovery:?}");
    boot(dir.path(), &os);
    let recovery = host.recover().unwrap();
    assert!(matches!(recovery, Recovery::RolledBack { .. }), "{recovery:?}");
    let host::RebootStatus::Owed(owed) = host.reboot_status().unwrap() else { panic!("no reboot is owed") };
    assert!(owed.because[0].contains("staged again"), "{owed:?}");
    assert!(owed.cleared && owed.back, "the node may be cut off: {owed:?}");
}

#[test]
fn what_an_undo_could_not_bring_back_is_told_as_drift_and_with_each_plan_that_changes_the_os() {
    if !is_root() {
        return;
    }
    let (dir, os, old) = with_live_extension("");
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    let told = |host: &mut Host| {
        let found = host.drifts(&old).unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(told(&mut host), "");
    os.lose_live("sysstat could not be staged again: no network; correct the cause");
    let text = told(&mut host);
    assert!(
        text.contains("spec.extensions: the next boot lacks the extension sysstat; sysstat could"),
        "{text}"
    );
    // The next update of the OS brings it, and warns.
    let plan = to_other_os(&mut host, &old);
    assert!(plan.warnings.iter().any(|warning| warning.contains("no network; correct the cause")), "{plan}");
    assert_eq!(plan.os_change().unwrap().to.extensions, ["sysstat"]);
    // A change of files alone asks the OS nothing.
    let files = api::v1::MachineConfigSpec {
        config: Some(serde_json::json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/motd", "contents": {"source": "data:,hi"}}]}})),
        ..old.clone()
    };
    let facts = host.probe(&old, &files).unwrap();
    let plan = crate::common::plan(&old, &files, &names("old", "new"), &crate::prepared::policy(), &facts);
    let plan = plan.unwrap();
    assert!(plan.warnings.iter().all(|warning| !warning.contains("no network")), "{plan}");
    // A node that stays out of a config says both.
    let new = api::v1::MachineConfigSpec { kernel_arguments: Some(vec!["nosmt".to_owned()]), ..old.clone() };
    let failed = host::OsFailure { config: "new".to_owned(), why: "no kernel".to_owned() };
    let tried = host::TrialFailure::new("new", host::Check::Unit, "no kubelet");
    for (os_failure, trial_failure) in [(Some(failed), None), (None, Some(tried))] {
        let facts = host::Facts { os_failure, trial_failure, ..host.probe(&old, &new).unwrap() };
        let bad = crate::common::plan(&old, &new, &names("old", "new"), &crate::prepared::policy(), &facts)
            .unwrap_err();
        let text = bad[0].to_string();
        assert!(text.contains("no kubelet") || text.contains("no kernel"), "{text}");
        assert!(
            text.contains("; sysstat could not be staged again: no network; correct the cause"),
            "{text}"
        );
    }
}
