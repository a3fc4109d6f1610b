//! Restarts of userspace alone (soft reboots): where one is enough, how it is recognised, and when a whole reboot follows.
//!
//! Not here: what takes effect without any reboot (see `effects`).

use crate::common::BySpec as _;
use crate::effects::{calls, config, file, mk_machine, planned, systemd, when_needed};
use crate::planning::mk;
use host::{Check, DisruptionPolicy, Host, Names, RebootStatus, Recovery};

#[test]
fn userspace_is_restarted_alone_where_that_is_enough_and_each_soft_reboot_is_recognised() {
    let dir = mk_machine();
    let mut host = mk(dir.path());
    let none = config(&[], &[]);
    let new = config(&[file("/etc/environment", "A=b")], &[]);
    // This systemd cannot restart userspace alone.
    let plan = planned(&mut host, &none, &new);
    assert!(plan.disruption.needs_reboot() && !plan.disruption.soft, "{plan}");
    systemd(dir.path()).allow_soft_reboots().unwrap();
    let both = config(&[file("/etc/environment", "A=b"), file("/etc/hostname", "x")], &[]);
    let plan = planned(&mut host, &none, &both);
    assert!(
        plan.disruption.needs_reboot() && !plan.disruption.soft,
        "the other file needs a whole reboot: {plan}"
    );
    let plan = planned(&mut host, &none, &new);
    assert!(plan.disruption.soft && plan.disruption.needs_drain(), "{plan}");
    assert!(plan.to_string().contains("soft reboot (/etc/environment)"), "{plan}");
    let names = Names { current: "old".to_owned(), desired: "new".to_owned() };
    let whole = DisruptionPolicy { only_whole_reboots: true, ..when_needed() };
    let facts = host.probe(&none, &new).unwrap();
    let plan = crate::common::plan(&none, &new, &names, &whole, &facts).unwrap();
    assert!(
        plan.disruption.needs_reboot() && !plan.disruption.soft,
        "this node takes whole reboots only: {plan}"
    );
    assert_eq!(host.recover().unwrap(), Recovery::Nothing);
    // That call recorded this boot; plans made before it are outdated.
    let plan = planned(&mut host, &none, &new);
    host.apply(&plan).unwrap();
    assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Owed(owed) if owed.soft));
    host.reboot("test").unwrap();
    assert_eq!(calls(dir.path()).last().unwrap(), "soft-reboot");
    // The agent starts again before userspace has ended: it is still the same boot.
    host.recover().unwrap();
    assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Owed(_)));
    systemd(dir.path()).complete_soft_reboot().unwrap();
    let mut host = mk(dir.path());
    host.recover().unwrap();
    assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Rebooted(_)));
    host.reboot_done().unwrap();
    // A second soft reboot is recognised as a new one.
    let plan = planned(&mut host, &new, &none);
    assert!(plan.disruption.soft, "{plan}");
    host.apply(&plan).unwrap();
    assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Owed(_)));
    systemd(dir.path()).complete_soft_reboot().unwrap();
    host.recover().unwrap();
    assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Rebooted(_)));
}

#[test]
fn a_trial_begins_with_the_restart_of_userspace_that_it_needs_and_its_undo_reboots() {
    let none = config(&[], &[]);
    let environment = file("/etc/environment", "A=b");
    let needs_whole = [environment.clone(), file("/etc/hostname", "x")];
    for (new, soft) in [(config(&[environment], &[]), true), (config(&needs_whole, &[]), false)] {
        let dir = mk_machine();
        let mut host = mk(dir.path());
        systemd(dir.path()).allow_soft_reboots().unwrap();
        host.recover().unwrap();
        let mut plan = planned(&mut host, &none, &new);
        assert_eq!(plan.disruption.soft, soft, "{plan}");
        plan.on_trial(std::time::Duration::from_secs(600), &[], String::new());
        host.apply(&plan).unwrap();
        host.reboot("test").unwrap();
        let begun = |host: &mut Host| {
            let on_trial = Recovery::OnTrial { config: "new".to_owned() };
            assert_eq!(host.recover().unwrap(), on_trial, "soft: {soft}");
            host.trial().unwrap().unwrap().begun
        };
        // The agent starts again before userspace has ended.
        assert!(!begun(&mut host));
        systemd(dir.path()).complete_soft_reboot().unwrap();
        let mut host = mk(dir.path());
        assert_eq!(begun(&mut host), soft);
        if !soft {
            systemd(dir.path()).complete_reboot().unwrap();
            assert!(begun(&mut host));
        }
        host.reboot_done().unwrap();
        host.fail_trial(Check::Unit, "kubelet.service is failed").unwrap();
        assert!(!dir.path().join("etc/environment").exists());
        let status = host.reboot_status().unwrap();
        assert!(
            matches!(&status, RebootStatus::Owed(owed) if !owed.soft && owed.back && owed.cleared),
            "{status:?}"
        );
        systemd(dir.path()).complete_soft_reboot().unwrap();
        host.recover().unwrap();
        assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Owed(_)), "it may not end what runs");
    }
}

#[test]
fn a_soft_reboot_by_hand_is_not_the_whole_one_that_is_pending() {
    let dir = mk_machine();
    let mut host = mk(dir.path());
    systemd(dir.path()).allow_soft_reboots().unwrap();
    host.recover().unwrap();
    let (none, one) = (config(&[], &[]), config(&[file("/etc/environment", "A=b")], &[]));
    let plan = planned(&mut host, &none, &one);
    host.apply(&plan).unwrap();
    host.reboot("test").unwrap();
    systemd(dir.path()).complete_soft_reboot().unwrap();
    host.recover().unwrap();
    assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Rebooted(owed) if owed.soft));
    host.reboot_done().unwrap();
    let two = config(&[file("/etc/environment", "A=b"), file("/etc/hostname", "x")], &[]);
    let plan = planned(&mut host, &one, &two);
    host.apply(&plan).unwrap();
    systemd(dir.path()).complete_soft_reboot().unwrap();
    host.recover().unwrap();
    assert!(matches!(host.reboot_status().unwrap(), RebootStatus::Owed(owed) if !owed.soft));
}

#[test]
fn a_soft_reboot_that_did_not_help_or_came_after_a_pending_reboot_is_a_whole_one() {
    let dir = mk_machine();
    let mut host = mk(dir.path());
    systemd(dir.path()).allow_soft_reboots().unwrap();
    let none = config(&[], &[]);
    let plan = planned(&mut host, &none, &config(&[file("/etc/environment", "A=b")], &[]));
    host.apply(&plan).unwrap();
    host.reboot("test").unwrap();
    host.reboot("test").unwrap();
    assert_eq!(calls(dir.path())[calls(dir.path()).len() - 2..], ["soft-reboot", "reboot"]);
    let dir = mk_machine();
    let mut host = mk(dir.path());
    systemd(dir.path()).allow_soft_reboots().unwrap();
    let one = config(&[file("/etc/hostname", "x")], &[]);
    let plan = planned(&mut host, &none, &one);
    host.apply(&plan).unwrap();
    let two = config(&[file("/etc/hostname", "x"), file("/etc/environment", "A=b")], &[]);
    let plan = planned(&mut host, &one, &two);
    assert!(plan.disruption.needs_reboot() && !plan.disruption.soft, "{plan}");
}
