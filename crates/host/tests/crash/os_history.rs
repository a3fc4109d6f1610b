//! What a host remembers of its operating systems: a change that waits for its boot, one whose boot failed, what somebody changed by
//! hand, and the image that ran before any config named one.
//!
//! Not here: processes that end (`fault_points`, `boot_fault_points`).

use std::sync::Arc;

use crate::common::BySpec as _;
use crate::common::{is_root, mk_host};
use crate::prepared::{boot, copy, mk_os, prepare, same, state, status_of};
use host::fault::NoFaults;
use host::{Error, OsBackend, Recovery};

#[test]
fn a_change_that_waits_for_its_boot_can_be_replaced_and_a_failed_config_is_not_retried() {
    if !is_root() {
        return;
    }
    let pair = crate::config_pairs::os_pairs().remove(0);
    let p = prepare(&pair);
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    host.fetch(&p.plan, &host::Pull::default()).unwrap();
    host.fetch(&p.plan, &host::Pull::default()).unwrap();
    assert_eq!(os.fetches(), 1, "a fetched image is not fetched again");
    host.apply(&p.plan).unwrap();
    // Another change before the boot: the first one is undone, and the other one planned again.
    let back = |host: &mut host::Host| {
        let facts = host.probe(&pair.new, &pair.old).unwrap();
        crate::common::plan(
            &pair.new,
            &pair.old,
            &crate::prepared::names("new", "old"),
            &crate::prepared::policy(),
            &facts,
        )
        .unwrap()
    };
    let plan = back(&mut host);
    let error = host.apply(&plan).unwrap_err();
    assert!(matches!(&error, Error::Interrupted { desired } if desired == "new"), "{error}");
    same(&state(dir.path(), &os), &p.old, "given up before its boot");
    // The boot fails: the failed config is refused with the reason until somebody removes the record, or another config
    // is wanted.
    host.apply(&p.plan).unwrap();
    os.fall_back();
    crate::prepared::boot(dir.path(), &os);
    assert!(matches!(host.recover().unwrap(), Recovery::RolledBack { .. }));
    let again = |host: &mut host::Host, desired: &str| {
        let facts = host.probe(&pair.old, &pair.new).unwrap();
        crate::common::plan(
            &pair.old,
            &pair.new,
            &crate::prepared::names("old", desired),
            &crate::prepared::policy(),
            &facts,
        )
    };
    let bad = again(&mut host, "new").unwrap_err();
    let text = bad.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(bad.len() == 1 && text.contains("fake:1") && text.contains(host::paths::OS_FAILURE), "{text}");
    let other = again(&mut host, "newer").unwrap();
    host.apply(&other).unwrap();
    assert_eq!(host.os_failure().unwrap(), None);
}

/// Answers with what the unit said that finalises deployments, in the form of OSTree.s errors.
#[derive(Debug)]
struct FakeJournal;

impl host::Programs for FakeJournal {
    fn run(
        &mut self,
        program: &str,
        args: &[&str],
        _: std::time::Duration,
    ) -> Result<host::Output, host::ProgramError> {
        assert_eq!(program, "/usr/bin/journalctl");
        assert!(
            args.starts_with(&["-b", "-1"]) && args.ends_with(&["ostree-finalize-staged.service"]),
            "{args:?}"
        );
        let text =
            "Stopping OSTree Finalize Staged Deployment...\nerror: opendir(boot): No space left on device\n";
        Ok(host::Output { text: text.to_owned() })
    }
}

#[test]
fn a_machine_that_boots_the_old_system_tells_what_the_unit_said_that_should_have_finalised_the_new_one() {
    if !is_root() {
        return;
    }
    let p = prepare(&crate::config_pairs::os_pairs().remove(0));
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    mk_host(dir.path(), &os, Arc::new(NoFaults)).apply(&p.plan).unwrap();
    os.fall_back();
    boot(dir.path(), &os);
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults)).with_programs(Box::new(FakeJournal));
    let recovery = host.recover().unwrap();
    let Recovery::RolledBack { why, .. } = recovery else { panic!("{recovery:?}") };
    assert!(why.contains("ostree-finalize-staged.service said") && why.contains("No space left"), "{why}");
    assert_eq!(host.os_failure().unwrap().unwrap().why, why);
}

#[test]
fn a_failed_boot_is_recorded_over_that_of_an_earlier_config() {
    if !is_root() {
        return;
    }
    let pair = crate::config_pairs::os_pairs().remove(0);
    let p = prepare(&pair);
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    for desired in ["new", "newer"] {
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let facts = host.probe(&pair.old, &pair.new).unwrap();
        let names = crate::prepared::names("old", desired);
        let policy = crate::prepared::policy_of(&pair);
        let plan = crate::common::plan(&pair.old, &pair.new, &names, &policy, &facts).unwrap();
        host.apply(&plan).unwrap();
        os.fall_back();
        boot(dir.path(), &os);
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let recovery = host.recover().unwrap();
        assert!(matches!(recovery, Recovery::RolledBack { .. }), "{recovery:?}");
        assert_eq!(host.os_failure().unwrap().unwrap().config, desired);
    }
}

#[test]
fn a_boot_into_the_new_system_that_is_not_as_wanted_is_undone_by_another_boot() {
    if !is_root() {
        return;
    }
    let pair = crate::config_pairs::os_pairs()
        .into_iter()
        .find(|p| p.new.kernel_arguments.as_ref().is_some_and(|a| !a.is_empty()))
        .unwrap();
    let p = prepare(&pair);
    let arguments = pair.new.kernel_arguments.as_deref().unwrap();
    let argument = arguments[0].split(' ').next().unwrap();
    let (dir, mut os) = (copy(p.base.path()), mk_os(&p.base_os));
    mk_host(dir.path(), &os, Arc::new(NoFaults)).apply(&p.plan).unwrap();
    boot(dir.path(), &os);
    os.lose_argument(argument);
    for _ in 0..2 {
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        let recovery = host.recover().unwrap();
        assert!(
            matches!(&recovery, Recovery::AwaitsReturn { why, .. } if why.contains(argument)),
            "{recovery:?}"
        );
        assert_eq!(host.current_config().unwrap().unwrap().name, "new", "the files fit the system that runs");
        assert!(matches!(host.reboot_status().unwrap(), host::RebootStatus::Owed(_)));
        let error = host.apply(&p.plan).unwrap_err();
        assert!(matches!(&error, Error::Interrupted { desired } if desired == "new"), "{error}");
    }
    boot(dir.path(), &os);
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    let recovery = host.recover().unwrap();
    assert!(matches!(&recovery, Recovery::RolledBack { why, .. } if why.contains(argument)), "{recovery:?}");
    same(&(state(dir.path(), &os).0, p.old.1.clone()), &p.old, "back");
    assert_eq!(&os.status().unwrap().booted, p.old.1.next());
    assert!(host.os_failure().unwrap().is_some());
    assert_eq!(host.recover().unwrap(), Recovery::Nothing);
}

#[test]
fn an_os_that_somebody_changed_since_its_update_is_drift_and_the_force_file_brings_back_what_the_config_names()
 {
    if !is_root() {
        return;
    }
    let pair = crate::config_pairs::os_pairs().remove(0);
    let p = prepare(&pair);
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    host.apply(&p.plan).unwrap();
    boot(dir.path(), &os);
    assert!(matches!(host.recover().unwrap(), Recovery::Finished { .. }));
    host.reboot_done().unwrap();
    let told = |host: &mut host::Host| {
        let found = host.drifts(&pair.new).unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(told(&mut host), "");
    let mut by_hand = os.clone().status().unwrap().booted;
    by_hand.kernel_arguments.push("debug".to_owned());
    by_hand.extensions.push("vim".to_owned());
    os.stage_by_hand(&by_hand);
    let text = told(&mut host);
    assert!(text.contains("has in addition debug") && text.contains("no config names: vim"), "{text}");
    assert!(text.contains(host::paths::OS_KEPT) && text.lines().count() == 2, "{text}");
    // Who wants it so removes the record.
    std::fs::remove_file(dir.path().join(host::paths::OS_KEPT.trim_start_matches('/'))).unwrap();
    assert_eq!(told(&mut host), "");
    by_hand.image = "fake:1".to_owned();
    by_hand.kernel_arguments.retain(|a| a != "quiet");
    os.stage_by_hand(&by_hand);
    let text = told(&mut host);
    assert!(text.contains("fake:1") && text.contains("lacks the kernel argument quiet"), "{text}");
    std::fs::write(dir.path().join("run/machine-config-daemon-force"), "").unwrap();
    let again = |host: &mut host::Host| {
        let facts = host.probe(&pair.new, &pair.new).unwrap();
        let (names, policy) = (crate::prepared::names("new", "new"), crate::prepared::policy());
        crate::common::plan(&pair.new, &pair.new, &names, &policy, &facts).unwrap()
    };
    let plan = again(&mut host);
    let error = host.apply(&plan).unwrap_err().to_string();
    assert!(error.contains("not by a MachineConfig"), "what somebody staged is not replaced: {error}");
    boot(dir.path(), &os);
    assert_eq!(host.recover().unwrap(), Recovery::Nothing);
    let plan = again(&mut host);
    host.apply(&plan).unwrap();
    let mut os = os;
    let next = os.status().unwrap().next().clone();
    assert_eq!(next.image, "fake:2");
    assert!(["debug", "quiet"].iter().all(|a| next.kernel_arguments.iter().any(|b| a == b)), "{next:?}");
}

#[test]
fn a_config_that_gives_up_the_first_image_brings_back_what_the_host_ran_before_it() {
    if !is_root() {
        return;
    }
    let pair = crate::config_pairs::os_pairs().remove(2);
    let p = prepare(&pair);
    let record = host::paths::OS_BEFORE;
    let recorded =
        |at: &std::path::Path| std::fs::read_to_string(at.join(record.trim_start_matches('/'))).ok();
    assert!(recorded(p.base.path()).unwrap().contains("fake:1"));
    let shown = p.plan.to_string();
    for said in [
        "image \"fake:2\" -> \"fake:1\"",
        "goes back to the image that it ran before",
        "reboot (spec.osImageURL",
    ] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    assert!(shown.contains(&format!("remove {record}")), "{shown}");
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    // The image of before may be gone from the host meanwhile.
    host.fetch(&p.plan, &host::Pull::default()).unwrap();
    host.apply(&p.plan).unwrap();
    boot(dir.path(), &os);
    host.recover().unwrap();
    assert_eq!(status_of(&os).booted.image, "fake:1");
    assert_eq!(recorded(dir.path()), None);
    // A host that an agent without records moved keeps what it runs.
    std::fs::remove_file(p.base.path().join(record.trim_start_matches('/'))).unwrap();
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
    let new = api::v1::MachineConfigSpec { os_image_url: String::new(), ..pair.old.clone() };
    let facts = host.probe(&pair.old, &new).unwrap();
    let names = crate::prepared::names("old", "new");
    let plan = crate::common::plan(&pair.old, &new, &names, &crate::prepared::policy(), &facts).unwrap();
    assert!(plan.disruption.is_none() && plan.os_change().is_none(), "{plan}");
    assert!(plan.notes.iter().any(|n| n.contains("keeps the image")), "{plan}");
}

#[test]
fn the_image_of_before_is_the_first_one_whatever_images_configs_name_in_between() {
    if !is_root() {
        return;
    }
    let image = |image: &str| api::v1::MachineConfigSpec {
        os_image_url: image.to_owned(),
        ..api::v1::MachineConfigSpec::default()
    };
    let (at, os) = (crate::common::mk_host_tree(), host::FakeOs::default());
    let mut host = mk_host(at.path(), &os, Arc::new(NoFaults));
    let record = at.path().join(host::paths::OS_BEFORE.trim_start_matches('/'));
    for (from, to, runs, recorded) in [
        ("", "fake:2", "fake:2", true),
        ("fake:2", "fake:3", "fake:3", true),
        ("fake:3", "", "fake:1", false),
        // One that the host runs already is named, and given up again: nothing moves.
        ("", "fake:1", "fake:1", true),
        ("fake:1", "", "fake:1", false),
        ("", "fake:4", "fake:4", true),
        ("fake:4", "", "fake:1", false),
    ] {
        let (old, new) = (image(from), image(to));
        let facts = host.probe(&old, &new).unwrap();
        let names = crate::prepared::names("old", "new");
        let plan = crate::common::plan(&old, &new, &names, &crate::prepared::policy(), &facts).unwrap();
        host.fetch(&plan, &host::Pull::default()).unwrap();
        host.apply(&plan).unwrap();
        boot(at.path(), &os);
        host.recover().unwrap();
        assert_eq!(status_of(&os).booted.image, runs, "{from} -> {to}: {plan}");
        assert_eq!(record.exists(), recorded, "{from} -> {to}: {plan}");
        host.reboot_done().unwrap();
    }
}
