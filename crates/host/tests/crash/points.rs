//! A process that ends at any instruction leaves the old state or the new one, never a mixture. The same holds if it
//! ends again during recovery. Every fault point of a change is tried: before and after each file-system and systemd
//! call.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::BySpec as _;
use crate::common::{is_root, mk_host};
use crate::pairs::pairs;
use crate::prepared::{Deployments, Prepared, boot, copy, mk_os, prepare, same, state, status_of};
use host::OsBackend;
use host::fault::{Fault, Faults, NoFaults, Point};
use host::{Error, Recovery};

/// What happens at the chosen point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum What {
    Nothing,
    Kill,
    /// This call fails, others do not.
    Fail(io::ErrorKind),
    /// This call and every later one that writes fails.
    FailOn(io::ErrorKind),
}

/// Calls that a full disk does not refuse.
const NO_DISK: [&str; 6] = ["remove", "set", "start", "stop", "restart", "check"];

/// Counts the fault points and injects a fault at one of them.
#[derive(Debug)]
pub(crate) struct Injection {
    at: usize,
    what: What,
    seen: AtomicUsize,
}

impl Injection {
    pub(crate) fn at(at: usize, what: What) -> Arc<Self> {
        Arc::new(Self { at, what, seen: AtomicUsize::new(0) })
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Faults for Injection {
    fn at(&self, point: Point<'_>) -> Result<(), Fault> {
        let n = self.seen.fetch_add(1, Ordering::Relaxed);
        match self.what {
            What::Kill if n >= self.at => Err(Fault::Killed),
            What::Fail(kind) if n == self.at && point.before => Err(Fault::Fail(kind.into())),
            What::FailOn(kind) if n >= self.at && point.before && !NO_DISK.contains(&point.call) => {
                Err(Fault::Fail(kind.into()))
            }
            _ => Ok(()),
        }
    }
}

impl Prepared {
    pub(crate) fn points(&self) -> usize {
        let (dir, os) = (copy(self.base.path()), mk_os(&self.base_os));
        let faults = Injection::at(0, What::Nothing);
        mk_host(dir.path(), &os, faults.clone()).apply(&self.plan).unwrap();
        faults.count()
    }

    /// Ends the process at a point of the change and, if requested, at one of the recovery; then recovers. Returns the
    /// number of points that the recovery passed.
    pub(crate) fn kill(&self, at: usize, during_recovery: Option<usize>) -> usize {
        let about = format!("{}: killed at {at}, then at {during_recovery:?}", self.about);
        let (dir, os) = (copy(self.base.path()), mk_os(&self.base_os));
        let error = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).apply(&self.plan).unwrap_err();
        assert!(error.killed(), "{about}: {error}");
        if let Some(at) = during_recovery {
            let again = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).recover();
            assert!(again.is_err_and(|e| e.killed()), "{about}: the recovery has no such point");
        }
        let faults = Injection::at(0, What::Nothing);
        let mut host = mk_host(dir.path(), &os, faults.clone());
        let recovery = host.recover().unwrap_or_else(|e| panic!("{about}: {e}"));
        let passed = faults.count();
        let now = state(dir.path(), &os);
        let want = match recovery {
            Recovery::Finished { .. }
            | Recovery::AwaitsBoot { .. }
            | Recovery::OnTrial { .. }
            | Recovery::AwaitsReturn { .. } => &self.new,
            Recovery::Undone { .. } | Recovery::RolledBack { .. } => &self.old,
            Recovery::Nothing if now == self.new => &self.new,
            Recovery::Nothing => &self.old,
        };
        same(&now, want, &format!("{about}: {recovery:?}"));
        let again = host.recover().unwrap();
        let waits = matches!(again, Recovery::AwaitsBoot { .. }) && again == recovery;
        assert!(
            waits || again == Recovery::Nothing,
            "{about}: a second recovery has something to do: {again:?}"
        );
        same(&state(dir.path(), &os), &now, &format!("{about}: a second recovery"));
        passed
    }

    /// Makes a call fail. Afterwards the change is either undone completely or committed.
    pub(crate) fn fail(&self, at: usize, what: What) {
        let about = format!("{}: {what:?} at {at}", self.about);
        let (dir, os) = (copy(self.base.path()), mk_os(&self.base_os));
        let mut host = mk_host(dir.path(), &os, Injection::at(at, what));
        let done = host.apply(&self.plan);
        if let Err(Error::UndoIncomplete { .. }) = &done {
            drop(host);
            host = mk_host(dir.path(), &os, Arc::new(NoFaults));
            host.recover().unwrap_or_else(|e| panic!("{about}: {e}"));
        }
        let now = state(dir.path(), &os);
        match done {
            Ok(_) => same(&now, &self.new, &about),
            Err(e) => same(&now, &self.old, &format!("{about}: {e}")),
        }
    }
}

impl Prepared {
    /// Ends the process at a point of the change, recovers, lets the machine boot into what is staged or fall back, and
    /// ends the process again at a point of the recovery after the boot. Disk and operating system agree afterwards.
    /// Returns the number of points that the recovery after the boot passed.
    fn kill_and_boot(&self, at: usize, falls_back: bool, after_boot: Option<usize>) -> usize {
        let about = format!("{}: killed at {at}, falls back {falls_back}, {after_boot:?}", self.about);
        let (dir, os) = (copy(self.base.path()), mk_os(&self.base_os));
        let done = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).apply(&self.plan);
        assert!(done.is_ok() || done.is_err_and(|e| e.killed()), "{about}");
        let before = mk_host(dir.path(), &os, Arc::new(NoFaults)).recover().unwrap();
        let waits = matches!(before, Recovery::AwaitsBoot { .. });
        assert_eq!(os.clone().status().unwrap().staged.is_some(), waits, "{about}: {before:?}");
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
        let want = if is_new { &self.new } else { &self.old };
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
    for pair in crate::pairs::os_pairs() {
        let prepared = prepare(&pair);
        // One more than there are: then the change completes.
        for at in (0..=prepared.points()).rev().step_by(nth) {
            for falls_back in [false, true] {
                let passed = prepared.kill_and_boot(at, falls_back, None);
                kills += 1;
                for again in (0..passed).skip(at % nth_of_recovery).step_by(nth_of_recovery) {
                    prepared.kill_and_boot(at, falls_back, Some(again));
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

#[test]
fn a_change_that_waits_for_its_boot_can_be_replaced_and_a_failed_config_is_not_retried() {
    if !is_root() {
        return;
    }
    let pair = crate::pairs::os_pairs().remove(0);
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
    let p = prepare(&crate::pairs::os_pairs().remove(0));
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
    let pair = crate::pairs::os_pairs().remove(0);
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
    let pair = crate::pairs::os_pairs()
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

impl Prepared {
    /// Ends the process at a point of the change; then somebody reboots the machine in order, which boots what was staged.
    /// The recovery ends at a point of its own, in the new deployment or in the old one. Whatever happens, the old
    /// deployment has its old `/etc`, or the new one runs as it was wanted. Returns whether the machine had to go back,
    /// and how many points both recoveries passed.
    pub(crate) fn kill_and_reboot_in_order(
        &self,
        at: usize,
        again: Option<(bool, usize)>,
    ) -> (bool, [usize; 2]) {
        let about = format!("{}: killed at {at}, then at {again:?}", self.about);
        let (dir, os) = (copy(self.base.path()), mk_os(&self.base_os));
        let mut machine = Deployments::new();
        let done = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).apply(&self.plan);
        let journal =
            |file: &str| dir.path().join("var/lib/machine-config-daemon/journal").join(file).exists();
        // One that waits for no boot may be over already.
        let is_new = || {
            let host = mk_host(dir.path(), &os, Arc::new(NoFaults));
            host.current_config().unwrap().is_some_and(|config| config.name == "new")
        };
        let committed = done.is_ok() || journal("done.json") || !journal("begin.json") && is_new();
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
        let want = if committed { &self.new } else { &self.old };
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
    for pair in crate::pairs::os_pairs() {
        let prepared = prepare(&pair);
        for at in (0..=prepared.points()).rev().step_by(nth) {
            let (went_back, passed) = prepared.kill_and_reboot_in_order(at, None);
            back += usize::from(went_back);
            kills += 1;
            for (in_old, points) in [(false, passed[0]), (true, passed[1])] {
                for point in (0..points).skip(at % nth_of_recovery).step_by(nth_of_recovery) {
                    prepared.kill_and_reboot_in_order(at, Some((in_old, point)));
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

#[test]
fn an_os_that_somebody_changed_since_its_update_is_drift_and_the_force_file_brings_back_what_the_config_names()
 {
    if !is_root() {
        return;
    }
    let pair = crate::pairs::os_pairs().remove(0);
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
    os.clone().stage(&by_hand).unwrap();
    let text = told(&mut host);
    assert!(text.contains("has in addition debug") && text.contains("no config names: vim"), "{text}");
    assert!(text.contains(host::paths::OS_KEPT) && text.lines().count() == 2, "{text}");
    // Who wants it so removes the record.
    std::fs::remove_file(dir.path().join(host::paths::OS_KEPT.trim_start_matches('/'))).unwrap();
    assert_eq!(told(&mut host), "");
    by_hand.image = "fake:1".to_owned();
    by_hand.kernel_arguments.retain(|a| a != "quiet");
    os.clone().stage(&by_hand).unwrap();
    let text = told(&mut host);
    assert!(text.contains("fake:1") && text.contains("lacks the kernel argument quiet"), "{text}");
    std::fs::write(dir.path().join("run/machine-config-daemon-force"), "").unwrap();
    let facts = host.probe(&pair.new, &pair.new).unwrap();
    let names = crate::prepared::names("new", "new");
    let plan = crate::common::plan(&pair.new, &pair.new, &names, &crate::prepared::policy(), &facts).unwrap();
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
    let pair = crate::pairs::os_pairs().remove(2);
    let p = prepare(&pair);
    let record = host::paths::OS_BEFORE;
    let recorded =
        |at: &std::path::Path| std::fs::read_to_string(at.join(record.trim_start_matches('/'))).ok();
    assert!(recorded(p.base.path()).unwrap().contains("fake:1"));
    let shown = p.plan.to_string();
    for said in
        ["image \"fake:2\" -> \"fake:1\"", "goes back to what it ran before", "reboot (spec.osImageURL"]
    {
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

/// Every `nth` point of every pair, and of the recovery after it.
fn kill_everywhere(nth: usize, nth_of_recovery: usize) -> usize {
    let mut kills = 0;
    for (i, pair) in pairs().iter().enumerate() {
        let prepared = prepare(pair);
        for at in (0..prepared.points()).skip(i % nth).step_by(nth) {
            let passed = prepared.kill(at, None);
            kills += 1;
            for again in (0..passed).skip(at % nth_of_recovery).step_by(nth_of_recovery) {
                prepared.kill(at, Some(again));
                kills += 1;
            }
        }
    }
    println!("{kills} kill points over {} pairs", pairs().len());
    kills
}

#[test]
fn a_kill_at_a_sample_of_all_points_leaves_the_old_state_or_the_new() {
    if is_root() {
        assert!(kill_everywhere(7, 11) > 100);
    }
}

/// About `wanted` kills: at points that are spread evenly over all pairs, the first of them chosen by `from`, each once
/// in the change and once more in the recovery after it.
fn kill_at_some(wanted: usize, from: usize) -> usize {
    let prepared: Vec<Prepared> = pairs().iter().map(prepare).collect();
    let all: Vec<(&Prepared, usize)> =
        prepared.iter().flat_map(|p| (0..p.points()).map(move |at| (p, at))).collect();
    let nth = (all.len() * 2 / wanted.max(1)).max(1);
    let mut kills = 0;
    for (p, at) in all.iter().skip(from % nth).step_by(nth) {
        let passed = p.kill(*at, None);
        kills += 1;
        if passed > 0 {
            p.kill(*at, Some((from + at) % passed));
            kills += 1;
        }
    }
    println!("{kills} kill points of {} over {} pairs, from {from}", all.len(), prepared.len());
    kills
}

#[test]
#[ignore = "takes minutes; run it with: cargo xtask crash-test"]
fn a_kill_at_every_point_leaves_the_old_state_or_the_new() {
    if !is_root() {
        return;
    }
    #[expect(clippy::disallowed_methods, reason = "a test has no arguments of its own")]
    let told = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    match told("MCO_CRASH_POINTS") {
        None => assert!(kill_everywhere(1, 5) > 2000),
        Some(wanted) => assert!(kill_at_some(wanted, told("MCO_CRASH_FROM").unwrap_or(0)) > 0),
    }
}

#[test]
fn a_call_that_fails_ends_in_the_old_state() {
    if !is_root() {
        return;
    }
    for (i, pair) in pairs().iter().enumerate() {
        let prepared = prepare(pair);
        for at in (0..prepared.points()).skip(i % 9).step_by(9) {
            prepared.fail(at, What::Fail(io::ErrorKind::PermissionDenied));
            prepared.fail(at, What::FailOn(io::ErrorKind::StorageFull));
            prepared.fail(at, What::FailOn(io::ErrorKind::ReadOnlyFilesystem));
        }
    }
}

#[test]
fn what_took_effect_is_taken_back_wherever_the_process_ends_or_a_call_fails() {
    if !is_root() {
        return;
    }
    let mut kills = 0;
    for pair in crate::pairs::effect_pairs() {
        let prepared = prepare(&pair);
        assert!(!prepared.plan.disruption.needs_reboot(), "{}", prepared.plan);
        assert!(prepared.plan.disruption.effects.len() > 1, "{}", prepared.plan);
        for at in 0..prepared.points() {
            let passed = prepared.kill(at, None);
            kills += 1;
            for again in (0..passed).skip(at % 13).step_by(13) {
                prepared.kill(at, Some(again));
                kills += 1;
            }
            prepared.fail(at, What::Fail(io::ErrorKind::PermissionDenied));
            if at % 5 == 0 {
                prepared.fail(at, What::FailOn(io::ErrorKind::StorageFull));
            }
        }
    }
    assert!(kills > 100, "{kills}");
}
