//! A process that ends at any instruction leaves the old state or the new one, never a mixture. The same holds if it
//! ends again during recovery. Every fault point of a change is tried: before and after each file-system and systemd
//! call.
//!
//! Not here: the boots after a change of the operating system (`boot_fault_points`).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{is_root, mk_host};
use crate::config_pairs::pairs;
use crate::prepared::{Prepared, copy, mk_os, prepare, same, state};
use host::fault::{Fault, Faults, NoFaults, Point};
use host::{Error, FakeOs, Recovery};

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

    /// Ends the process at a point of the change.
    pub(crate) fn killed(&self, at: usize) -> Killed<'_> {
        let (dir, os) = (copy(self.base.path()), mk_os(&self.base_os));
        let error = mk_host(dir.path(), &os, Injection::at(at, What::Kill)).apply(&self.plan).unwrap_err();
        assert!(error.killed(), "{}: killed at {at}: {error}", self.about);
        Killed { prepared: self, at, dir, os }
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

/// A host as a process left it that ended at a point of a change. Each recovery works on a copy, so that a change runs once for
/// all of them.
pub(crate) struct Killed<'p> {
    prepared: &'p Prepared,
    at: usize,
    dir: tempfile::TempDir,
    os: FakeOs,
}

impl Killed<'_> {
    /// Ends the process once more at a point of the recovery, if requested; then recovers. Returns the number of points that the
    /// recovery passed.
    pub(crate) fn recover(&self, killed_again: Option<usize>) -> usize {
        let Self { prepared, at, .. } = self;
        let about = format!("{}: killed at {at}, then at {killed_again:?}", prepared.about);
        let (dir, os) = (copy(self.dir.path()), self.os.fork());
        if let Some(at) = killed_again {
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
            | Recovery::AwaitsReturn { .. } => &prepared.new,
            Recovery::Undone { .. } | Recovery::RolledBack { .. } => &prepared.old,
            Recovery::Nothing if now == prepared.new => &prepared.new,
            Recovery::Nothing => &prepared.old,
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
}

/// Every `nth` point of every pair, and of the recovery after it.
fn kill_everywhere(nth: usize, nth_of_recovery: usize) -> usize {
    let mut kills = 0;
    for (i, pair) in pairs().iter().enumerate() {
        let prepared = prepare(pair);
        for at in (0..prepared.points()).skip(i % nth).step_by(nth) {
            let killed = prepared.killed(at);
            let passed = killed.recover(None);
            kills += 1;
            for again in (0..passed).skip(at % nth_of_recovery).step_by(nth_of_recovery) {
                killed.recover(Some(again));
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
        let killed = p.killed(*at);
        let passed = killed.recover(None);
        kills += 1;
        if passed > 0 {
            killed.recover(Some((from + at) % passed));
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
    for pair in crate::config_pairs::effect_pairs() {
        let prepared = prepare(&pair);
        assert!(!prepared.plan.disruption.needs_reboot(), "{}", prepared.plan);
        assert!(prepared.plan.disruption.effects.len() > 1, "{}", prepared.plan);
        for at in 0..prepared.points() {
            let killed = prepared.killed(at);
            let passed = killed.recover(None);
            kills += 1;
            for again in (0..passed).skip(at % 13).step_by(13) {
                killed.recover(Some(again));
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
