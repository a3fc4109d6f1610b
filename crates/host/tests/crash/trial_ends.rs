//! How trials end when more goes wrong: on a full disk, in an undo that fails, with nobody to make the reboot that is owed; and
//! what is found of people's logins.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{BySpec as _, is_root, mk_host, plan};
use crate::config_pairs::pairs;
use crate::fault_points::{Injection, What};
use crate::prepared::{Prepared, boot, copy, mk_os, names, policy, prepare, same, state};
use crate::trial::{host, os_only, owes, prepare_trial};
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{Check, FakeOs, FakeSystemd, Host, RebootStatus, Recovery, Systemd as _};
use serde_json::{Value, json};

/// A change on trial that takes effect with a reboot.
fn with_reboot() -> Prepared {
    prepare_trial(&pairs().into_iter().find(|p| prepare(p).plan.disruption.needs_reboot()).unwrap())
}

/// A machine that has booted into a change, which is on trial now.
fn on_trial(p: &Prepared) -> (tempfile::TempDir, FakeOs) {
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    host(dir.path(), &os).apply(&p.plan).unwrap();
    boot(dir.path(), &os);
    assert!(matches!(host(dir.path(), &os).recover().unwrap(), Recovery::OnTrial { .. }));
    (dir, os)
}

#[test]
fn a_change_of_the_operating_system_alone_reboots_once_into_it_and_once_back() {
    if !is_root() {
        return;
    }
    let p = prepare_trial(&os_only());
    assert!(!p.plan.trial.as_ref().unwrap().files, "{:?}", p.plan.trial);
    let (dir, os) = on_trial(&p);
    let mut now = host(dir.path(), &os);
    assert!(matches!(now.fail_trial(Check::Boot, "x").unwrap(), Recovery::AwaitsReturn { .. }));
    boot(dir.path(), &os);
    let mut now = host(dir.path(), &os);
    assert!(matches!(now.recover().unwrap(), Recovery::RolledBack { .. }));
    assert!(!matches!(now.reboot_status().unwrap(), RebootStatus::Owed(_)), "it is back already");
}

/// The machine comes up in the new operating system each time, whatever it is told to boot.
#[test]
fn reboots_that_lead_back_into_the_new_operating_system_come_to_an_end() {
    if !is_root() {
        return;
    }
    let p = prepare_trial(&os_only());
    let (dir, os) = on_trial(&p);
    let mut now = host(dir.path(), &os);
    now.fail_trial(Check::Boot, "x").unwrap();
    let mut reboots = 0;
    loop {
        let RebootStatus::Owed(owed) = now.reboot_status().unwrap() else { panic!("it is not back") };
        assert!(owed.back, "{owed:?}");
        if owed.returns >= host::MOST_REBOOTS {
            break;
        }
        // A watch may ask more than once during one shutdown.
        for _ in 0..5 {
            now.reboot("back").unwrap();
        }
        reboots += 1;
        assert!(reboots <= host::MOST_REBOOTS, "for ever");
        os.fall_back();
        boot(dir.path(), &os);
        now = host(dir.path(), &os);
        assert!(matches!(now.recover().unwrap(), Recovery::AwaitsReturn { .. }));
    }
    assert_eq!(reboots, host::MOST_REBOOTS);
    // A person boots the old one.
    boot(dir.path(), &os);
    assert!(matches!(host(dir.path(), &os).recover().unwrap(), Recovery::RolledBack { .. }));
}

/// Each of them led back. Nobody forgets the record of such a reboot where there is no agent.
#[test]
fn any_number_of_changes_may_fail_one_after_the_other() {
    if !is_root() {
        return;
    }
    let p = with_reboot();
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    for n in 0..5 {
        host(dir.path(), &os).apply(&p.plan).unwrap();
        boot(dir.path(), &os);
        let mut now = host(dir.path(), &os);
        now.recover().unwrap();
        now.fail_trial(Check::Api, "no answer").unwrap();
        let RebootStatus::Owed(owed) = now.reboot_status().unwrap() else { panic!("{n}: it is not back") };
        assert_eq!((owed.tries, owed.returns), (0, 0), "{n}");
        now.reboot("back").unwrap();
        boot(dir.path(), &os);
        let mut now = host(dir.path(), &os);
        now.recover().unwrap();
        now.settle_trial_failure().unwrap();
        now.forget_trial_failure().unwrap();
    }
}

#[test]
fn a_change_that_has_proved_good_is_kept_on_a_full_disk() {
    if !is_root() {
        return;
    }
    let p = prepare_trial(&os_only());
    let (dir, os) = on_trial(&p);
    let mut full = mk_host(dir.path(), &os, Arc::new(Full { root: dir.path().to_owned() }));
    assert_eq!(full.confirm_trial().unwrap().as_deref(), Some("new"));
    assert_eq!(host(dir.path(), &os).recover().unwrap(), Recovery::Nothing);
}

/// What a change moved aside goes with it, also if the process ends in between.
#[test]
fn nothing_that_was_moved_aside_stays_when_a_kept_change_is_cut_short_at_its_end() {
    if !is_root() {
        return;
    }
    let keys = MachineConfigSpec {
        config: Some(json!({
            "ignition": {"version": "3.5.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA core"]}]},
        })),
        ..MachineConfigSpec::default()
    };
    let tried = |faults: Arc<Injection>| {
        let dir = crate::common::mk_host_tree();
        let home = dir.path().join("home/core");
        std::fs::write(home.join(".ssh"), "a file of core's").unwrap();
        let os = FakeOs::default();
        let mut now = host(dir.path(), &os);
        let none = MachineConfigSpec::default();
        let facts = now.probe(&none, &keys).unwrap();
        let mut plan = plan(&none, &keys, &names("old", "new"), &policy(), &facts).unwrap();
        assert!(plan.steps.iter().any(|step| matches!(step, host::Step::MoveAside { .. })), "{plan}");
        plan.on_trial(Duration::from_secs(600), &[], "before".to_owned());
        now.apply(&plan).unwrap();
        now.recover().unwrap();
        let done = mk_host(dir.path(), &os, faults).confirm_trial();
        assert!(done.is_ok() || done.is_err_and(|e| e.killed()));
        let mut now = host(dir.path(), &os);
        if now.trial().unwrap().is_some() {
            now.confirm_trial().unwrap();
        }
        now.recover().unwrap();
        let names = std::fs::read_dir(&home).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let left: Vec<String> = names.filter(|name| name != ".ssh").collect();
        assert_eq!(left, Vec::<String>::new());
    };
    let counted = Injection::at(0, What::Nothing);
    tried(counted.clone());
    for at in 0..counted.count() {
        tried(Injection::at(at, What::Kill));
    }
}

/// A disk on which nothing more fits, until the room that is kept for the end of a trial is given back.
#[derive(Debug)]
struct Full {
    root: std::path::PathBuf,
}

impl host::fault::Faults for Full {
    fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
        let reserve = self.root.join(host::paths::TRIAL_RESERVE.trim_start_matches('/'));
        match p.before && p.call == "write" && reserve.exists() {
            true => Err(host::fault::Fault::Fail(std::io::ErrorKind::StorageFull.into())),
            false => Ok(()),
        }
    }
}

#[test]
fn a_trial_ends_on_a_full_disk_and_its_time_passes() {
    if !is_root() {
        return;
    }
    for pair in [pairs().into_iter().find(|p| prepare(p).plan.disruption.needs_reboot()).unwrap(), os_only()]
    {
        let p = prepare_trial(&pair);
        let (dir, os) = on_trial(&p);
        let reserve = dir.path().join(host::paths::TRIAL_RESERVE.trim_start_matches('/'));
        assert!(std::fs::metadata(&reserve).unwrap().len() >= 64 * 1024);

        let mut full = mk_host(dir.path(), &os, Arc::new(Full { root: dir.path().to_owned() }));
        FakeSystemd::new(full.root()).let_pass(Duration::from_secs(200)).unwrap();
        full.tick_trial().unwrap();
        assert!((395..=400).contains(&full.trial().unwrap().unwrap().left.as_secs()));
        assert!(reserve.exists(), "the clock is not worth it");
        full.fail_trial(Check::Api, "no answer").unwrap();
        boot(dir.path(), &os);
        let mut now = host(dir.path(), &os);
        now.recover().unwrap();
        assert_eq!(now.trial_failure().unwrap().unwrap().why, "no answer", "{}", p.about);
        assert_eq!(now.current_config().unwrap().unwrap().name, "old", "{}", p.about);
        assert!(!reserve.exists());
    }
}

#[test]
fn the_watch_is_started_at_boot_whenever_something_is_left_to_do() {
    if !is_root() {
        return;
    }
    let p = with_reboot();
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let watched = |host: Host| host.with_trial_watch(vec!["/usr/local/bin/mco".to_owned()]);
    let starts = |host: &Host| {
        let calls = FakeSystemd::new(host.root()).calls().unwrap();
        calls.iter().filter(|call| call.starts_with("start watch")).count()
    };
    watched(host(dir.path(), &os)).apply(&p.plan).unwrap();
    boot(dir.path(), &os);
    let mut now = watched(host(dir.path(), &os));
    now.recover().unwrap();
    assert_eq!(starts(&now), 1, "on trial");
    // The power is cut in the undo. The boot after it owes a reboot, and nobody but the watch may be there to make it.
    for at in 0.. {
        let killed =
            mk_host(dir.path(), &os, Injection::at(at, What::Kill)).fail_trial(Check::Api, "no answer");
        assert!(killed.is_err_and(|e| e.killed()), "{at}");
        if now.has_failed_trial().unwrap() {
            break;
        }
    }
    boot(dir.path(), &os);
    let mut now = watched(host(dir.path(), &os));
    assert!(matches!(now.recover().unwrap(), Recovery::RolledBack { .. }));
    assert!(owes(&mut now, "old"));
    assert_eq!(starts(&now), 2, "a reboot back is owed");
    boot(dir.path(), &os);
    let mut now = watched(host(dir.path(), &os));
    now.recover().unwrap();
    assert_eq!(starts(&now), 3, "what failed is looked at in the old config");
    now.settle_trial_failure().unwrap();
    assert!(now.trial_failure().unwrap().is_some(), "it stays refused");
    now.recover().unwrap();
    assert_eq!(starts(&now), 3, "nothing is left to do");
}

#[test]
fn a_reboot_that_waits_for_permission_waits_no_longer_when_it_is_also_to_end_what_a_change_has_left() {
    for (soft, cleared) in [(false, false), (true, false), (false, true)] {
        let dir = crate::common::mk_host_tree();
        let mut now = host(dir.path(), &FakeOs::default());
        now.recover().unwrap();
        let because = vec!["the packages are staged again".to_owned()];
        let boot = now.boot().unwrap();
        let config = "old".to_owned();
        let owed =
            host::PendingReboot { config, boot, because, tries: 2, cleared, soft, back: false, returns: 0 };
        let path = host::paths::REBOOT_PENDING;
        let json = serde_json::to_vec(&owed).unwrap();
        now.root().write_bytes(path, &json, host::Attributes { mode: 0o600, uid: 0, gid: 0 }).unwrap();
        assert_eq!(now.reboot_status().unwrap(), RebootStatus::Owed(owed.clone()));
        now.reboot_after_undo().unwrap();
        let RebootStatus::Owed(after) = now.reboot_status().unwrap() else { panic!("no reboot is owed") };
        assert!(after.cleared && after.back && !after.soft, "{after:?}");
        assert_eq!((&after.because, after.tries), (&owed.because, 2));
        now.reboot_after_undo().unwrap();
        assert_eq!(now.reboot_status().unwrap(), RebootStatus::Owed(after), "once");
    }
}

#[test]
fn units_that_the_agent_has_written_are_taken_away_when_nothing_is_left_to_do_and_others_stay() {
    if !is_root() {
        return;
    }
    let p = with_reboot();
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let program = "/usr/local/bin/mco";
    let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
    let file = |unit: &str| at("/etc/systemd/system").join(unit);
    let text = format!("[Service]\nExecStart={program} x\n[Install]\nWantedBy=multi-user.target\n");
    std::fs::create_dir_all(at("/usr/local/bin")).unwrap();
    std::fs::write(at(program), "").unwrap();
    std::fs::write(file("theirs.service"), &text).unwrap();
    let units = [("ours.service", text.clone()), ("theirs.service", text)];
    let mut now = host(dir.path(), &os).with_trial_watch(vec![program.to_owned()]);
    assert!(!now.remove_own_units().unwrap(), "there are none yet");
    now.ensure_units(&units).unwrap();
    let is_enabled = |unit: &str| file("multi-user.target.wants").join(unit).symlink_metadata().is_ok();
    assert!(is_enabled("ours.service") && is_enabled("theirs.service"));
    now.apply(&p.plan).unwrap();
    assert!(!now.remove_own_units().unwrap(), "a change is on trial");
    boot(dir.path(), &os);
    let mut now = host(dir.path(), &os);
    now.recover().unwrap();
    now.confirm_trial().unwrap().unwrap();
    assert!(file("ours.service").exists());
    assert!(now.remove_own_units().unwrap());
    assert!(!file("ours.service").exists() && !is_enabled("ours.service"));
    assert!(file("theirs.service").exists() && is_enabled("theirs.service"));
    assert!(!now.remove_own_units().unwrap());
    // The next change on trial brings them again.
    now.with_trial_watch(vec![program.to_owned()]).ensure_units(&units).unwrap();
    assert!(file("ours.service").exists());
}

#[test]
fn an_undo_that_fails_is_tried_again_after_a_reboot_a_few_times() {
    if !is_root() {
        return;
    }
    let p = with_reboot();
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    host(dir.path(), &os).apply(&p.plan).unwrap();
    boot(dir.path(), &os);
    host(dir.path(), &os).recover().unwrap();
    // Nothing can be changed, but what the agent keeps for itself.
    let fails = || mk_host(dir.path(), &os, Arc::new(ReadOnly));
    assert!(fails().fail_trial(Check::Api, "no answer").is_err());
    for may in [true, true, false] {
        let mut now = fails();
        assert!(now.has_failed_trial().unwrap());
        assert_eq!(now.may_reboot_to_undo().unwrap(), may);
        assert!(now.recover().is_err());
        boot(dir.path(), &os);
    }
    let mut now = host(dir.path(), &os);
    assert!(matches!(now.recover().unwrap(), Recovery::RolledBack { why, .. } if why == "no answer"));
    same(&(state(dir.path(), &os).0, p.old.1.clone()), &p.old, "undone in the end");
    assert!(!now.has_failed_trial().unwrap());
}

/// A disk whose files outside of the agent's own folder cannot be changed.
#[derive(Debug)]
struct ReadOnly;

impl host::fault::Faults for ReadOnly {
    fn at(&self, p: host::fault::Point<'_>) -> Result<(), host::fault::Fault> {
        match p.before && p.on.starts_with("/etc") {
            true => Err(host::fault::Fault::Fail(std::io::ErrorKind::ReadOnlyFilesystem.into())),
            false => Ok(()),
        }
    }
}

/// A host whose SSH server runs and starts at boot, and what a change of its units leaves of people's logins.
fn lost(units: &Value, started: &[&str], stopped: &[&str]) -> Option<String> {
    let unit = |wanted: &str| format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={wanted}\n");
    let base = crate::common::mk_host_tree();
    for (name, wanted) in [("ssh.service", "multi-user.target"), ("ssh.socket", "sockets.target")] {
        std::fs::write(base.path().join("usr/lib/systemd/system").join(name), unit(wanted)).unwrap();
    }
    let os = FakeOs::default();
    let mut now = mk_host(base.path(), &os, Arc::new(NoFaults));
    let mut systemd = FakeSystemd::new(now.root());
    systemd.enable(&["ssh.service".to_owned()]).unwrap();
    systemd.set_started("ssh.service").unwrap();
    let old = MachineConfigSpec::default();
    let config = json!({"ignition": {"version": "3.4.0"}, "systemd": {"units": units}});
    let new = MachineConfigSpec { config: Some(config), ..MachineConfigSpec::default() };
    let facts = crate::common::BySpec::probe(&mut now, &old, &new).unwrap();
    let mut change = plan(&old, &new, &names("old", "new"), &policy(), &facts).unwrap();
    change.on_trial(Duration::from_secs(600), &[], String::new());
    now.apply(&change).unwrap();
    for unit in stopped {
        systemd.act(host::UnitVerb::Stop, unit).unwrap();
    }
    for unit in started {
        systemd.set_started(unit).unwrap();
    }
    let open = now.trial().unwrap().unwrap();
    assert_eq!(open.trial.logins.len(), 1, "{:?}", open.trial);
    let lost = now.lost_logins(&open.trial);
    if !open.begun {
        boot(base.path(), &os);
    }
    now.recover().unwrap();
    now.fail_trial(Check::Unit, "no login").unwrap();
    assert!(systemd.state("ssh.service").unwrap().is_some_and(|state| state.is_enabled()), "it is restored");
    lost
}

#[test]
fn a_login_server_that_is_masked_disabled_or_replaced_is_judged_by_what_is_left_to_log_in_by() {
    if !is_root() {
        return;
    }
    let unit = |name: &str, field: &str, value: bool| {
        let mut unit = json!({"name": name});
        unit[field] = json!(value);
        unit
    };
    let (off, on) =
        (|field: &str, value| unit("ssh.service", field, value), unit("ssh.socket", "enabled", true));
    // It still runs until the next boot.
    for field in [off("mask", true), off("enabled", false)] {
        let why = lost(&json!([field]), &[], &[]).unwrap();
        assert!(why.contains("ssh.service started at boot") && why.contains("masked or disabled"), "{why}");
    }
    let why = lost(&json!([off("enabled", false)]), &[], &["ssh.service"]).unwrap();
    assert!(why.contains("no SSH server runs now"), "{why}");
    assert_eq!(
        lost(&json!([off("enabled", false), on]), &["ssh.socket"], &["ssh.service"]),
        None,
        "by its socket"
    );
    let drop_in =
        json!({"name": "ssh.service", "dropins": [{"name": "10-a.conf", "contents": "[Service]\nNice=1\n"}]});
    assert_eq!(lost(&json!([drop_in]), &[], &[]), None);
}
