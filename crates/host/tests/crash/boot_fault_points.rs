//! A process that ends at any instruction of a change of the operating system, and the boots after it: the machine comes up in the new
//! deployment or falls back, somebody reboots it in order, and the recovery after the boot ends at any instruction too. Disk and operating
//! system agree in the end.
//!
//! Not here: changes without a boot (`fault_points`).

use std::sync::Arc;

use crate::common::{is_root, mk_host};
use crate::fault_points::{Injection, What};
use crate::prepared::{Deployments, Prepared, boot, copy, mk_os, prepare, same, state};
use host::fault::NoFaults;
use host::{FakeOs, OsBackend, Recovery};

/// A machine whose process ended at a point of the change, and which has recovered from that: it boots next. Each boot works on a
/// copy, so that a change runs once for all of them.
struct BeforeBoot<'p> {
    prepared: &'p Prepared,
    at: usize,
    dir: tempfile::TempDir,
    os: FakeOs,
    /// Something is staged.
    waits: bool,
}

impl Prepared {
    /// Ends the process at a point of the change, and recovers.
    fn kill_and_recover(&self, at: usize) -> BeforeBoot<'_> {
        let about = format!("{}: killed at {at}", self.about);
        let (dir, os) = (copy(self.base.path()), mk_os(&self.base_os));
        let done = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).apply(&self.plan);
        assert!(done.is_ok() || done.is_err_and(|e| e.killed()), "{about}");
        let before = mk_host(dir.path(), &os, Arc::new(NoFaults)).recover().unwrap();
        let waits = matches!(before, Recovery::AwaitsBoot { .. });
        assert_eq!(os.clone().status().unwrap().staged.is_some(), waits, "{about}: {before:?}");
        BeforeBoot { prepared: self, at, dir, os, waits }
    }
}

impl BeforeBoot<'_> {
    /// Lets the machine boot into what is staged or fall back, and ends the process again at a point of the recovery after the boot.
    /// Disk and operating system agree afterwards. Returns the number of points that the recovery after the boot passed.
    fn boot(&self, falls_back: bool, after_boot: Option<usize>) -> usize {
        let Self { prepared, at, waits, .. } = self;
        let waits = *waits;
        let about = format!("{}: killed at {at}, falls back {falls_back}, {after_boot:?}", prepared.about);
        let (dir, os) = (copy(self.dir.path()), self.os.fork());
        if falls_back {
            os.fall_back();
        }
        boot(dir.path(), &os);
        if let Some(point) = after_boot {
            let killed = mk_host(dir.path(), &os, Injection::at(point, What::Kill)).recover();
            assert!(killed.is_err_and(|e| e.killed()), "{about}: the recovery has no such point");
        }
        let faults = Injection::at(0, What::Nothing);
        let mut host = mk_host(dir.path(), &os, faults.clone());
        let recovery = host.recover().unwrap_or_else(|e| panic!("{about}: {e}"));
        let passed = faults.count();
        let status = os.clone().status().unwrap();
        let is_new = waits && !falls_back;
        let want = if is_new { &prepared.new } else { &prepared.old };
        assert_eq!((&status.booted, &status.staged), (want.1.next(), &None), "{about}: {recovery:?}");
        same(&(state(dir.path(), &os).0, want.1.clone()), want, &format!("{about}: {recovery:?}"));
        let name = host.current_config().unwrap().unwrap().name;
        assert_eq!(name, if is_new { "new" } else { "old" }, "{about}: {recovery:?}");
        let rolled_back = waits && falls_back;
        assert_eq!(host.os_failure().unwrap().is_some(), rolled_back, "{about}: {recovery:?}");
        if after_boot.is_none() {
            let fits = match recovery {
                Recovery::Finished { .. } => is_new,
                Recovery::RolledBack { .. } => rolled_back,
                Recovery::Nothing => !waits,
                Recovery::Undone { .. }
                | Recovery::AwaitsBoot { .. }
                | Recovery::OnTrial { .. }
                | Recovery::AwaitsReturn { .. } => false,
            };
            assert!(fits, "{about}: {recovery:?}");
        }
        assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{about}");
        passed
    }
}

/// Every `nth` point of a change of the OS, each with a boot that comes up either way, and of the recovery after it.
fn kill_and_boot_everywhere(nth: usize, nth_of_recovery: usize) -> usize {
    let mut kills = 0;
    for pair in crate::config_pairs::os_pairs() {
        let prepared = prepare(&pair);
        // One more than there are: then the change completes.
        for at in (0..=prepared.points()).rev().step_by(nth) {
            let machine = prepared.kill_and_recover(at);
            for falls_back in [false, true] {
                let passed = machine.boot(falls_back, None);
                kills += 1;
                for again in (0..passed).skip(at % nth_of_recovery).step_by(nth_of_recovery) {
                    machine.boot(falls_back, Some(again));
                    kills += 1;
                }
            }
        }
    }
    println!("{kills} kills");
    kills
}

#[test]
fn disk_and_operating_system_agree_after_a_kill_at_any_point_and_a_boot_that_comes_up_either_way() {
    if is_root() {
        let kills = kill_and_boot_everywhere(5, 7);
        assert!(kills > 200, "{kills}");
    }
}

#[test]
#[ignore = "takes minutes; run it with: cargo xtask crash-test"]
fn disk_and_operating_system_agree_after_a_kill_at_every_point_and_a_boot_that_comes_up_either_way() {
    if !is_root() {
        return;
    }
    let (nth, nth_of_recovery) =
        if std::env::var_os("MCO_CRASH_POINTS").is_some() { (9, 11) } else { (1, 3) };
    kill_and_boot_everywhere(nth, nth_of_recovery);
    reboot_in_order_everywhere(nth, nth_of_recovery);
}

/// A machine whose process ended at a point of the change, and which somebody reboots in order next. Each reboot works on a copy.
pub(crate) struct BeforeReboot<'p> {
    prepared: &'p Prepared,
    at: usize,
    dir: tempfile::TempDir,
    os: FakeOs,
    /// The change was complete.
    committed: bool,
}

impl Prepared {
    /// Ends the process at a point of the change.
    pub(crate) fn kill_before_reboot(&self, at: usize) -> BeforeReboot<'_> {
        let (dir, os) = (copy(self.base.path()), mk_os(&self.base_os));
        let done = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).apply(&self.plan);
        let journal =
            |file: &str| dir.path().join("var/lib/machine-config-daemon/journal").join(file).exists();
        // One that waits for no boot may be over already.
        let is_new = || {
            let host = mk_host(dir.path(), &os, Arc::new(NoFaults));
            host.current_config().unwrap().is_some_and(|config| config.name == "new")
        };
        let committed = done.is_ok() || journal("done.json") || !journal("begin.json") && is_new();
        BeforeReboot { prepared: self, at, dir, os, committed }
    }
}

impl BeforeReboot<'_> {
    /// The power is cut, so what was staged is lost. The recovery after the boot ends. Returns the config that the host is in then.
    pub(crate) fn cut_the_power(&self) -> String {
        let about = format!("{}: killed at {}, and the power is cut", self.prepared.about, self.at);
        let (dir, os) = (copy(self.dir.path()), self.os.fork());
        os.fall_back();
        boot(dir.path(), &os);
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        host.recover().unwrap_or_else(|e| panic!("{about}: {e}"));
        assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{about}");
        host.current_config().unwrap().unwrap().name
    }

    /// Somebody reboots the machine in order, which boots what was staged. The recovery ends at a point of its own, in the new
    /// deployment or in the old one. Whatever happens, the old deployment has its old `/etc`, or the new one runs as it was wanted.
    /// Returns whether the machine had to go back, and how many points both recoveries passed.
    pub(crate) fn reboot_in_order(&self, again: Option<(bool, usize)>) -> (bool, [usize; 2]) {
        let Self { prepared, at, committed, .. } = self;
        let about = format!("{}: killed at {at}, then at {again:?}", prepared.about);
        let (dir, os) = (copy(self.dir.path()), self.os.fork());
        let mut machine = Deployments::new();
        let mut passed = [0, 0];
        let mut recover = |in_old: bool| {
            if let Some((_, at)) = again.filter(|(old, _)| *old == in_old) {
                let killed = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).recover();
                assert!(killed.is_err_and(|e| e.killed()), "{about}: the recovery has no such point");
            }
            let faults = Injection::at(0, What::Nothing);
            let recovery = mk_host(dir.path(), &os, faults.clone()).recover();
            passed[usize::from(in_old)] = faults.count();
            recovery.unwrap_or_else(|e| panic!("{about}: {e}"))
        };
        machine.boot(dir.path(), &os);
        let first = recover(false);
        let goes_back = matches!(first, Recovery::AwaitsReturn { .. });
        if goes_back {
            let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
            assert!(
                !host.has_unfinished_change().unwrap(),
                "{about}: the agent would recover and never reboot"
            );
            assert!(matches!(host.reboot_status().unwrap(), host::RebootStatus::Owed(_)), "{about}");
            machine.boot(dir.path(), &os);
            let second = recover(true);
            assert!(matches!(second, Recovery::Undone { .. } | Recovery::Nothing), "{about}: {second:?}");
        }
        let want = if *committed { &prepared.new } else { &prepared.old };
        let status = os.clone().status().unwrap();
        assert_eq!((&status.booted, &status.staged), (want.1.next(), &None), "{about}: {first:?}");
        // What ran before a boot does not tell what runs after it.
        let settled = |mut tree: crate::prepared::Tree| {
            tree.retain(|_, what| what != "runs");
            (tree, want.1.clone())
        };
        let (now, want) = (settled(state(dir.path(), &os).0), settled(want.0.clone()));
        same(&now, &want, &format!("{about}: {first:?}"));
        let mut host = mk_host(dir.path(), &os, Arc::new(NoFaults));
        assert_eq!(host.os_failure().unwrap(), None, "{about}: the config was not at fault");
        assert_eq!(host.recover().unwrap(), Recovery::Nothing, "{about}");
        (goes_back, passed)
    }
}

/// Every `nth` point of a change of the OS, each with an orderly reboot, and of the recoveries after it: how many machines
/// had to go back, and how many kills there were.
fn reboot_in_order_everywhere(nth: usize, nth_of_recovery: usize) -> (usize, usize) {
    let (mut back, mut kills) = (0, 0);
    for pair in crate::config_pairs::os_pairs() {
        let prepared = prepare(&pair);
        for at in (0..=prepared.points()).rev().step_by(nth) {
            let machine = prepared.kill_before_reboot(at);
            let (went_back, passed) = machine.reboot_in_order(None);
            back += usize::from(went_back);
            kills += 1;
            for (in_old, points) in [(false, passed[0]), (true, passed[1])] {
                for point in (0..points).skip(at % nth_of_recovery).step_by(nth_of_recovery) {
                    machine.reboot_in_order(Some((in_old, point)));
                    kills += 1;
                }
            }
        }
    }
    println!("{kills} kills, {back} machines went back");
    (back, kills)
}

#[test]
fn the_old_deployment_gets_its_own_files_back_if_the_new_one_was_booted_before_the_change_was_complete() {
    if is_root() {
        let (back, kills) = reboot_in_order_everywhere(3, 5);
        assert!(back > 3 && kills > 100, "{back} {kills}");
    }
}
