//! A change on trial: whichever process ends at whichever instruction, the change is either kept as a whole, undone as a
//! whole with a record of why, or still on trial with its undo kept. It is undone once.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{BySpec as _, is_root, mk_host, plan};
use crate::config_pairs::{Pair, os_pairs, pairs};
use crate::fault_points::{Injection, What};
use crate::prepared::{Prepared, boot, copy, mk_os, names, policy, prepare, same, state};
use api::v1::MachineConfigSpec;
use host::fault::NoFaults;
use host::{Check, FakeOs, FakeSystemd, Host, OsBackend, RebootStatus, Recovery};

const WITHIN: Duration = Duration::from_secs(600);

/// How a trial ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Kept,
    Undone,
}

impl End {
    fn call(self, host: &mut Host) -> Result<(), host::Error> {
        match self {
            Self::Kept => host.confirm_trial().map(drop),
            Self::Undone => host.fail_trial(Check::Api, "no answer").map(drop),
        }
    }
}

pub(crate) fn prepare_trial(pair: &Pair) -> Prepared {
    let mut p = prepare(pair);
    p.plan.on_trial(WITHIN, &[], "before".to_owned());
    p
}

pub(crate) fn host(dir: &std::path::Path, os: &FakeOs) -> Host {
    mk_host(dir, os, Arc::new(NoFaults))
}

/// The machine boots, if the change needs it.
fn boot_into(p: &Prepared, dir: &std::path::Path, os: &FakeOs) -> bool {
    let reboots = p.plan.disruption.needs_reboot() || p.plan.os_change().is_some();
    if reboots {
        boot(dir, os);
    }
    reboots
}

/// Ends the process at a point of the change, then lets the trial go on to its end.
fn kill_the_change(p: &Prepared, at: usize) {
    let about = format!("{}: killed at {at}", p.about);
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let done = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).apply(&p.plan);
    assert!(done.is_ok() || done.is_err_and(|e| e.killed()), "{about}");
    let mut now = host(dir.path(), &os);
    let recovery = now.recover().unwrap();
    match recovery {
        Recovery::OnTrial { .. } | Recovery::AwaitsBoot { .. } => {
            same(&state(dir.path(), &os), &p.new, &about);
            let open = now.trial().unwrap().unwrap();
            assert_eq!((open.trial.within, open.trial.before.as_str()), (600, "before"), "{about}");
            boot_into(p, dir.path(), &os);
            assert!(matches!(now.recover().unwrap(), Recovery::OnTrial { .. }), "{about}");
            assert!(now.trial().unwrap().unwrap().begun, "{about}");
            End::Kept.call(&mut now).unwrap();
            assert_eq!(now.trial().unwrap(), None, "{about}");
            assert_eq!(state(dir.path(), &os).0, p.new.0, "{about}");
        }
        Recovery::Undone { .. } | Recovery::Nothing => same(&state(dir.path(), &os), &p.old, &about),
        other => panic!("{about}: {other:?}"),
    }
    assert_eq!(now.trial_failure().unwrap(), None, "{about}");
    assert_eq!(now.recover().unwrap(), Recovery::Nothing, "{about}");
}

/// Ends the process at a point of the end of the trial, and again at a point of the recovery; a boot may come between.
/// Returns the numbers of points of the end and of the recovery.
fn kill_the_end(p: &Prepared, end: End, at: usize, cut: bool, again: Option<usize>) -> (usize, usize) {
    let about = format!("{}: {end:?} killed at {at}, power cut {cut}, then at {again:?}", p.about);
    let (dir, mut os) = (copy(p.base.path()), mk_os(&p.base_os));
    host(dir.path(), &os).apply(&p.plan).unwrap();
    let booted = boot_into(p, dir.path(), &os) || cut;
    assert!(matches!(host(dir.path(), &os).recover().unwrap(), Recovery::OnTrial { .. }), "{about}");
    let faults = Injection::at(at, What::Kill);
    let done = end.call(&mut mk_host(dir.path(), &os, faults.clone()));
    assert!(done.is_ok() || done.is_err_and(|e| e.killed()), "{about}");
    if cut {
        boot(dir.path(), &os);
    }
    if let Some(at) = again {
        let killed = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).recover();
        assert!(killed.is_err_and(|e| e.killed()), "{about}: the recovery has no such point");
    }
    let counted = Injection::at(0, What::Nothing);
    let mut now = mk_host(dir.path(), &os, counted.clone());
    let mut recovery = now.recover().unwrap_or_else(|e| panic!("{about}: {e}"));
    let passed = counted.count();
    if let Recovery::OnTrial { .. } = recovery {
        // Not decided before the kill: the trial goes on, and can end either way.
        assert_eq!(state(dir.path(), &os).0, p.new.0, "{about}");
        assert_eq!(now.trial_failure().unwrap(), None, "{about}");
        end.call(&mut now).unwrap();
        recovery = now.recover().unwrap();
    }
    // Another deployment runs than before the change: the files are undone after the boot into the old one.
    let returns = matches!(recovery, Recovery::AwaitsReturn { .. });
    if returns {
        assert_eq!((end, p.plan.os_change().is_some()), (End::Undone, true), "{about}");
        assert!(owes(&mut now, "new"), "{about}");
        boot(dir.path(), &os);
        recovery = now.recover().unwrap();
        assert!(matches!(&recovery, Recovery::RolledBack { why, .. } if why == "no answer"), "{about}");
    }
    let (tree, os_now) = state(dir.path(), &os);
    assert_eq!(now.trial().unwrap(), None, "{about}");
    assert_eq!(now.recover().unwrap(), Recovery::Nothing, "{about}");
    match end {
        End::Kept => {
            assert_eq!(tree, p.new.0, "{about}: {recovery:?}");
            assert_eq!(os_now.next(), p.new.1.next(), "{about}");
            assert_eq!(now.trial_failure().unwrap(), None, "{about}");
        }
        End::Undone => {
            same(&(tree, p.old.1.clone()), &p.old, &format!("{about}: {recovery:?}"));
            assert_eq!(os_now.next(), p.old.1.next(), "{about}");
            let failure = now.trial_failure().unwrap().unwrap();
            assert_eq!((failure.config.as_str(), failure.check), ("new", Check::Api), "{about}");
            let owed = owes(&mut now, "old");
            let of_os = p.plan.os_change().is_some();
            let needed = if of_os { p.plan.trial.as_ref().unwrap().files } else { booted };
            // A power cut after the last step of the undo is the reboot that it needed.
            assert!(owed == needed || cut && !owed, "{about}: {recovery:?}");
            boot(dir.path(), &os);
            assert_eq!(host(dir.path(), &os).recover().unwrap(), Recovery::Nothing, "{about}");
            assert_eq!(&os.status().unwrap().booted, p.old.1.next(), "{about}");
            assert_eq!(now.current_config().unwrap().unwrap().name, "old", "{about}");
        }
    }
    (faults.count(), passed)
}

/// Whether a reboot is pending out of the change, which needs no permission.
pub(crate) fn owes(host: &mut Host, config: &str) -> bool {
    matches!(host.reboot_status().unwrap(), RebootStatus::Owed(o) if o.cleared && o.back && o.config == config)
}

fn some_pairs() -> Vec<Pair> {
    let os = os_pairs().into_iter().take(2).chain([os_only()]);
    pairs().into_iter().step_by(4).chain(os).collect()
}

/// A change of the operating system and of nothing else that can cut the node off.
pub(crate) fn os_only() -> Pair {
    let mut pair = os_pairs().remove(1);
    pair.about = "kernel arguments alone";
    pair.new = MachineConfigSpec { kernel_arguments: pair.new.kernel_arguments, ..pair.old.clone() };
    pair
}

#[test]
fn a_change_on_trial_survives_a_kill_at_any_point_of_itself() {
    if !is_root() {
        return;
    }
    for (i, pair) in some_pairs().iter().enumerate() {
        let p = prepare_trial(pair);
        let points = p.points();
        for at in (0..points).skip(i % 11).step_by(11).chain(points.saturating_sub(12)..=points) {
            kill_the_change(&p, at);
        }
    }
}

#[test]
fn the_end_of_a_trial_is_one_or_the_other_after_a_kill_at_any_point() {
    if !is_root() {
        return;
    }
    let mut kills = 0;
    for (i, pair) in some_pairs().iter().enumerate() {
        let p = prepare_trial(pair);
        for end in [End::Kept, End::Undone] {
            let (points, _) = kill_the_end(&p, end, usize::MAX, false, None);
            // The first points are those of the decision: each of them for every pair, every point over all pairs.
            let tail = (12..points).skip(i % 5).step_by(5);
            for at in (0..points.min(12)).chain(tail) {
                let cut = (at + i) % 2 == 0;
                let (_, passed) = kill_the_end(&p, end, at, cut, None);
                kills += 1;
                if passed > 0 {
                    kill_the_end(&p, end, at, cut, Some((at * 7 + i) % passed));
                    kills += 1;
                }
            }
        }
    }
    println!("{kills} kills");
    assert!(kills > 300, "{kills}");
}

#[test]
fn the_time_of_a_trial_goes_on_over_power_cuts_and_too_many_boots_end_it() {
    if !is_root() {
        return;
    }
    let p = prepare_trial(&pairs().into_iter().find(|p| prepare(p).plan.disruption.needs_reboot()).unwrap());
    let start = || {
        let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
        let mut first = host(dir.path(), &os);
        first.apply(&p.plan).unwrap();
        let open = first.trial().unwrap().unwrap();
        assert!(!open.begun && open.left == WITHIN, "the time does not run before the reboot: {open:?}");
        FakeSystemd::new(first.root()).let_pass(WITHIN).unwrap();
        first.tick_trial().unwrap();
        assert_eq!(first.confirm_trial().unwrap(), None, "what is not in effect cannot be confirmed");
        assert_eq!(first.trial().unwrap().unwrap().left, WITHIN);
        boot(dir.path(), &os);
        assert_eq!(first.recover().unwrap(), Recovery::OnTrial { config: "new".to_owned() });
        (dir, os)
    };
    let left = |host: &mut Host| host.trial().unwrap().unwrap().left.as_secs();
    let (dir, os) = start();
    let mut now = host(dir.path(), &os);
    let mut systemd = FakeSystemd::new(now.root());
    systemd.let_pass(Duration::from_secs(200)).unwrap();
    now.tick_trial().unwrap();
    assert!((395..=400).contains(&left(&mut now)), "{}", left(&mut now));
    // What had passed and was written down is not given back by a power cut, whatever the uptime is then.
    boot(dir.path(), &os);
    let mut now = host(dir.path(), &os);
    assert!(matches!(now.recover().unwrap(), Recovery::OnTrial { .. }));
    assert!((395..=400).contains(&left(&mut now)), "{}", left(&mut now));
    systemd.let_pass(Duration::from_secs(401)).unwrap();
    assert_eq!(left(&mut now), 0);
    // A boot whose time is up undoes it before anything else.
    let recovery = now.recover().unwrap();
    assert!(matches!(&recovery, Recovery::RolledBack { why, .. } if why.contains("600 s")), "{recovery:?}");

    let (dir, os) = start();
    for _ in 0..2 {
        boot(dir.path(), &os);
        assert!(matches!(host(dir.path(), &os).recover().unwrap(), Recovery::OnTrial { .. }));
    }
    boot(dir.path(), &os);
    let recovery = host(dir.path(), &os).recover().unwrap();
    assert!(
        matches!(&recovery, Recovery::RolledBack { why, .. } if why.contains("booted 3 times")),
        "{recovery:?}"
    );
    assert_eq!(host(dir.path(), &os).trial_failure().unwrap().unwrap().check, Check::Boot);
}

#[test]
fn a_config_that_failed_its_trial_is_refused_until_the_record_goes_and_another_one_removes_it() {
    if !is_root() {
        return;
    }
    let pair = pairs().remove(0);
    let p = prepare_trial(&pair);
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    let mut now = host(dir.path(), &os);
    now.apply(&p.plan).unwrap();
    boot_into(&p, dir.path(), &os);
    now.recover().unwrap();
    now.fail_trial(Check::Unit, "kubelet.service is failed").unwrap();
    boot(dir.path(), &os);
    now.recover().unwrap();
    now.reboot_done().unwrap();
    let to = |host: &mut Host, desired: &str| {
        let facts = host.probe(&pair.old, &pair.new).unwrap();
        plan(&pair.old, &pair.new, &names("old", desired), &policy(), &facts)
    };
    let bad = to(&mut now, "new").unwrap_err();
    let text = bad.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for word in ["kubelet.service is failed", "mco retry", host::paths::TRIAL_FAILURE] {
        assert!(bad.len() == 1 && text.contains(word), "{text}");
    }
    // Another config is tried, and fails as well: the record is of that one, not of the one before.
    let mut other = to(&mut now, "newer").unwrap();
    other.on_trial(WITHIN, &[], String::new());
    now.apply(&other).unwrap();
    assert_eq!(now.trial_failure().unwrap(), None);
    boot_into(&p, dir.path(), &os);
    now.recover().unwrap();
    now.fail_trial(Check::Api, "no answer").unwrap();
    assert_eq!(now.trial_failure().unwrap().unwrap().config, "newer");
    now.forget_trial_failure().unwrap();
    to(&mut now, "newer").unwrap();
}

/// A machine with a change of the OS, booted into it, and the `/etc` of its old deployment, which OSTree keeps as it was at
/// shutdown: with the files of the change.
fn booted_on_trial() -> (Prepared, tempfile::TempDir, FakeOs, tempfile::TempDir) {
    let p = prepare_trial(&os_pairs().remove(0));
    let (dir, os) = (copy(p.base.path()), mk_os(&p.base_os));
    host(dir.path(), &os).apply(&p.plan).unwrap();
    let kept = copy(&dir.path().join("etc"));
    boot(dir.path(), &os);
    assert!(matches!(host(dir.path(), &os).recover().unwrap(), Recovery::OnTrial { .. }));
    (p, dir, os, kept)
}

#[test]
fn a_trial_of_another_deployment_that_fails_gives_the_old_one_its_own_files_back() {
    if !is_root() {
        return;
    }
    for replaced in [false, true] {
        let (p, dir, os, kept) = booted_on_trial();
        let mut now = host(dir.path(), &os);
        let why = if replaced {
            let pair = os_pairs().remove(0);
            let facts = now.probe(&pair.new, &pair.old).unwrap();
            let other = plan(&pair.new, &pair.old, &names("new", "old"), &policy(), &facts).unwrap();
            let error = now.apply(&other).unwrap_err();
            assert!(matches!(&error, host::Error::Interrupted { desired } if desired == "new"), "{error}");
            "another config"
        } else {
            let recovery = now.fail_trial(Check::Unit, "kubelet.service is failed").unwrap();
            assert!(matches!(&recovery, Recovery::AwaitsReturn { .. }), "{recovery:?}");
            "kubelet.service is failed"
        };
        // The files fit the system that runs, until it is left.
        assert_eq!(state(dir.path(), &os).0, p.new.0);
        assert_eq!(now.current_config().unwrap().unwrap().name, "new");
        assert!(owes(&mut now, "new") && now.trial().unwrap().is_none());
        assert_eq!(now.confirm_trial().unwrap(), None, "what failed cannot be confirmed");

        let etc = dir.path().join("etc");
        std::fs::remove_dir_all(&etc).unwrap();
        std::fs::rename(copy(kept.path()).keep(), &etc).unwrap();
        boot(dir.path(), &os);
        let recovery = host(dir.path(), &os).recover().unwrap();
        assert!(matches!(&recovery, Recovery::RolledBack { why: w, .. } if w.contains(why)), "{recovery:?}");
        same(&(state(dir.path(), &os).0, p.old.1.clone()), &p.old, "back");
        assert_eq!(&os.clone().status().unwrap().booted, p.old.1.next());
        let mut now = host(dir.path(), &os);
        assert_eq!(now.current_config().unwrap().unwrap().name, "old");
        assert_eq!(now.trial_failure().unwrap().unwrap().config, "new");
        assert_eq!(now.os_failure().unwrap(), None, "it booted as asked");
        assert_eq!(now.recover().unwrap(), Recovery::Nothing);
    }
}
