//! One host: looks at it, applies a plan to it as one transaction, recovers after a crash.

use std::hash::{BuildHasher, Hasher, RandomState};

use api::text::chain;
use desired::OsState;

use crate::disk::batch::{MANY, together};
use crate::disk::bounded::Bounded;
use crate::disk::found::{Attributes, Found, FsError};
use crate::disk::root::Root;
use crate::error::Error;
use crate::fault::{Fault, Point};
use crate::paths;
use crate::plan::HostPlan;
use crate::plan::step::{ServiceAction, Step, UnitAction};
use crate::plan::steps::PRIVATE_DIR_MODE;
use crate::record::{Boot, CurrentConfig, PendingReboot};
use crate::system::os::OsBackend;
use crate::system::programs::Programs;
use crate::system::systemd::{Rationale, Systemd, SystemdError};
use crate::transaction::journal::{Journal, Stage};
use crate::transaction::lock::Lock;

/// The token of a boot: for anybody to see.
const TOKEN: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };
/// The record of a reboot that is owed: our own state, for root only.
const RECORD: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };

/// How services hear of a change that is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tell {
    /// The process that made the change takes it back: those that it told are told again, each to its end.
    AndWait,
    /// Another process in the same boot: the same, but nobody waits. At boot a unit may be ordered after that process, and
    /// whoever waited for it would wait for itself.
    Marked,
    /// A later boot: what has not started yet will find everything as it was. What has started may have read the change,
    /// whether it was told or not.
    Started,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    pub(crate) root: Root,
    pub(crate) systemd: Box<dyn Systemd>,
    pub(crate) os: Box<dyn OsBackend>,
    pub(crate) programs: Option<Box<dyn Programs>>,
    pub(crate) bounded: Bounded,
}

/// What [`Host::apply`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// How many steps there were.
    pub steps: usize,
    /// The machine must reboot now, with [`Host::reboot`].
    pub reboot: bool,
}

/// What [`Host::recover`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// No change was under way.
    Nothing,
    /// A change was under way and has been undone: the host is in `config`.
    Undone {
        /// The config that it is in.
        config: String,
        /// The config that it was on its way to.
        desired: String,
    },
    /// A change was through and what it left behind has been cleared: the host is in `config`.
    Finished {
        /// The config that it is in.
        config: String,
    },
}

/// What has become of a reboot that was owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebootStatus {
    /// None is owed.
    None,
    /// It is still owed: this is still the same boot.
    Owed(PendingReboot),
    /// The machine has rebooted since. [`Host::reboot_done`] forgets it.
    Rebooted(PendingReboot),
}

impl Host {
    /// A host with its root folder, its systemd and its operating system.
    #[must_use]
    pub fn new(root: Root, systemd: Box<dyn Systemd>, os: Box<dyn OsBackend>) -> Self {
        Self { root, systemd, os, programs: None, bounded: Bounded::default() }
    }

    /// With a way to run the host's programs, where that is possible: the SSH server says itself then which keys it looks
    /// at.
    #[must_use]
    pub fn with_programs(self, programs: Box<dyn Programs>) -> Self {
        Self { programs: Some(programs), ..self }
    }

    /// The root folder.
    #[must_use]
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// Applies a plan: all of it, or nothing. A reboot that it asks for is the caller's to start.
    ///
    /// # Errors
    /// [`Error::Undone`] with the host in its old state, [`Error::UndoIncomplete`], or another error before anything
    /// was changed.
    pub fn apply(&mut self, plan: &HostPlan) -> Result<Applied, Error> {
        let _lock = Lock::take(&self.root)?;
        if let Recovery::Undone { desired, .. } = self.recover_locked()? {
            return Err(Error::Interrupted { desired });
        }
        let applied = Applied { steps: plan.steps.len(), reboot: plan.disruption.needs_reboot() };
        if plan.steps.is_empty() {
            return Ok(applied);
        }
        let os = self.os.state()?;
        let boot = self.boot()?;
        let journal = match Journal::begin(&self.root, plan, &os, boot) {
            Ok(journal) => journal,
            Err(e) if e.killed() => return Err(e),
            Err(e) => {
                // Nothing was changed yet; what is left of the journal is cleared, now or at the next start.
                if let Err(also) = self.recover_locked() {
                    tracing::warn!(error = %also, "cannot clear a journal that was not begun");
                }
                return Err(e);
            }
        };
        if let Err((step, e)) = self.run_all(&plan.steps) {
            return Err(self.back_out(&journal, step, e));
        }
        if let Err(e) = Journal::commit(&self.root) {
            // A rename that happened and then could not be made durable counts: the journal says so itself.
            if e.killed() || !matches!(Journal::stage(&self.root), Ok(Stage::Done(_))) {
                return Err(self.back_out(&journal, "commit the change".to_owned(), e.into()));
            }
            tracing::warn!(error = %e, "the change is through; the disk may not know it yet");
        }
        if let Err(e) = Journal::clear(&self.root, Some(&journal)) {
            if e.killed() {
                return Err(e.into());
            }
            tracing::warn!(error = %e, "the change is through; its journal is cleared at the next start");
        }
        Ok(applied)
    }

    /// A step failed: takes everything back.
    fn back_out(&mut self, journal: &Journal, step: String, cause: Error) -> Error {
        if cause.killed() {
            return cause;
        }
        tracing::error!(%step, error = %cause, "a step failed, undoing the change");
        match self.undo(journal, Tell::AndWait) {
            Ok(()) => Error::Undone { step, source: Box::new(cause) },
            Err(e) if e.killed() => e,
            Err(e) => Error::UndoIncomplete { step, cause: chain(&cause), source: Box::new(e) },
        }
    }

    fn undo(&mut self, journal: &Journal, tell: Tell) -> Result<(), Error> {
        journal.undo(&self.root)?;
        if let Some((before, after)) = &journal.os
            && self.os.state()? != *before
        {
            self.stage_os(after, before)?;
        }
        if journal.daemon_reload {
            // The files are what counts; systemd reads them at the latest at the next boot.
            self.tolerate("daemon-reload", "", |s| s.daemon_reload())?;
        }
        if let Some(unit) = &journal.sshd {
            self.tolerate("reload", unit, |s| match tell {
                Tell::AndWait => s.reload_if_running(unit),
                Tell::Marked | Tell::Started if s.was_started(unit)? => s.queue(ServiceAction::Reload, unit),
                Tell::Marked | Tell::Started => Ok(()),
            })?;
        }
        let marked = Journal::services_marked(&self.root)?;
        for (action, unit) in &journal.services {
            let action = *action;
            self.tolerate(action.verb(), unit, |s| match (tell, action) {
                (Tell::AndWait | Tell::Marked, _) if !marked => Ok(()),
                (Tell::AndWait, ServiceAction::Reload) => s.reload(unit),
                (Tell::AndWait, ServiceAction::Restart) => s.restart(unit),
                (Tell::AndWait, ServiceAction::Run) => s.run_once(unit),
                // What a program made of the change is on the disk: a reboot does not take it back.
                (Tell::Started, ServiceAction::Run) => s.queue(action, unit),
                (Tell::Started, _) if !s.was_started(unit)? => Ok(()),
                (Tell::Marked | Tell::Started, _) => s.queue(action, unit),
            })?;
        }
        Journal::retract(&self.root)?;
        Journal::clear(&self.root, Some(journal))?;
        Ok(())
    }

    /// Whether the disk has room for a plan, with what its journal keeps.
    ///
    /// # Errors
    /// [`Error::NoSpace`] with the path that does not fit, or a file system cannot be asked.
    pub fn check_room(&self, plan: &HostPlan) -> Result<(), Error> {
        crate::transaction::journal::space(&self.root, plan)
    }

    /// Finishes or undoes what a crash interrupted. To be called at start-up, before anything else. A call after it
    /// finds nothing to do.
    ///
    /// # Errors
    /// Another process is at it, the journal is damaged, or the undo fails; the next call goes on.
    pub fn recover(&mut self) -> Result<Recovery, Error> {
        let _lock = Lock::take(&self.root)?;
        let recovery = self.recover_locked()?;
        // Housekeeping: what it cannot do must not keep a half-made change from being undone.
        let chores = [self.close_originals(), Journal::forget_damaged(&self.root).map_err(Error::from)];
        for chore in chores {
            match chore {
                Err(e) if !e.killed() => {
                    tracing::warn!(error = %chain(&e), "tidying up after earlier changes");
                }
                done => done?,
            }
        }
        match self.mark_boot() {
            Err(e) if !e.killed() => {
                tracing::warn!(error = %e, "this boot has no token: the kernel's boot id alone says whether the machine has rebooted");
            }
            done => done?,
        }
        Ok(recovery)
    }

    /// Whether a change of this host is neither through nor taken back: [`Host::recover`] has to come first.
    ///
    /// # Errors
    /// The journal's folder cannot be read.
    pub fn is_between(&self) -> Result<bool, Error> {
        Ok(Journal::is_open(&self.root)?)
    }

    /// This boot.
    ///
    /// # Errors
    /// The boot id or the token cannot be read.
    pub fn boot(&mut self) -> Result<Boot, Error> {
        let token = self.root.text(paths::BOOT_TOKEN)?.unwrap_or_default();
        Ok(Boot { boot_id: self.systemd.boot_id()?, token: token.trim().to_owned() })
    }

    /// Gives this boot its token, if it has none yet.
    fn mark_boot(&self) -> Result<(), FsError> {
        if !self.root.found(paths::BOOT_TOKEN)?.is_absent() {
            return Ok(());
        }
        // Nothing needs more of it than to be another one each time: the hasher's random keys are the source.
        let part = || RandomState::new().build_hasher().finish();
        let token = format!("{:016x}{:016x}\n", part(), part());
        self.root.write_bytes(paths::BOOT_TOKEN, token.as_bytes(), TOKEN)
    }

    /// When this boot got its token, in seconds since 1970: soon after its beginning, and before the kubelet's where the
    /// recovery runs before that. `None`: it has none.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn boot_marked(&self) -> Result<Option<i64>, Error> {
        if self.root.found(paths::BOOT_TOKEN)?.is_absent() {
            return Ok(None);
        }
        Ok(self.root.like(paths::BOOT_TOKEN)?.modified.map(|(seconds, _)| seconds))
    }

    /// Versions before this one made the folder of the originals readable by everybody, and with it what was kept from
    /// folders that are not.
    fn close_originals(&self) -> Result<(), Error> {
        let path = paths::ORIGINALS;
        if let Found::Dir { mode, uid, gid } = self.root.found(path)?
            && mode & 0o077 != 0
        {
            self.root.make_dir(path, Attributes { mode: PRIVATE_DIR_MODE, uid, gid })?;
        }
        Ok(())
    }

    fn recover_locked(&mut self) -> Result<Recovery, Error> {
        match Journal::stage(&self.root)? {
            Stage::Nothing => Ok(Recovery::Nothing),
            Stage::Undone => {
                Journal::clear(&self.root, None)?;
                Ok(Recovery::Nothing)
            }
            Stage::Done(journal) => {
                Journal::clear(&self.root, Some(&journal))?;
                Ok(Recovery::Finished { config: journal.names.desired })
            }
            Stage::Begun(journal) => {
                tracing::warn!(desired = %journal.names.desired, "a change was interrupted, undoing it");
                let tell = if journal.boot.lasts(&self.boot()?) { Tell::Marked } else { Tell::Started };
                self.undo(&journal, tell)?;
                let names = journal.names;
                Ok(Recovery::Undone { config: names.current, desired: names.desired })
            }
        }
    }

    /// One systemd call, with the fault points around it.
    fn systemd(
        &mut self,
        call: &'static str,
        on: &str,
        f: impl FnOnce(&mut dyn Systemd) -> Result<(), SystemdError>,
    ) -> Result<(), SystemdError> {
        let fault = |before: bool| {
            self.root.faults().at(Point { call, on, before }).map_err(|f| match f {
                Fault::Killed => {
                    SystemdError { killed: true, ..SystemdError::new(call, on, "killed by a fault point") }
                }
                Fault::Fail(e) => SystemdError::new(call, on, e),
            })
        };
        fault(true)?;
        f(self.systemd.as_mut())?;
        fault(false)
    }

    /// As [`Host::systemd`]; a failure is told and no more, unless it is the end of the process.
    fn tolerate(
        &mut self,
        call: &'static str,
        on: &str,
        f: impl FnOnce(&mut dyn Systemd) -> Result<(), SystemdError>,
    ) -> Result<(), SystemdError> {
        match self.systemd(call, on, f) {
            Err(e) if !e.killed => {
                tracing::warn!(error = %e, "systemd refused; going on");
                Ok(())
            }
            other => other,
        }
    }

    fn stage_os(&mut self, from: &OsState, to: &OsState) -> Result<(), Error> {
        let (call, on) = ("stage the operating system", to.image.as_str());
        let fault = |root: &Root, before| {
            root.faults()
                .at(Point { call, on, before })
                .map_err(|f| FsError::new(call, on, crate::fault::as_io(f)))
        };
        fault(&self.root, true)?;
        self.os.stage(from, to)?;
        fault(&self.root, false)?;
        Ok(())
    }

    /// Runs the steps in order. An error comes with its step.
    fn run_all(&mut self, steps: &[Step]) -> Result<(), (String, Error)> {
        let mut told = false;
        let mut rest = steps;
        while let Some(step) = rest.first() {
            let changes = together(rest.iter());
            let many = if changes.len() < MANY { 1 } else { changes.len() };
            let (now, later) = rest.split_at(many);
            for step in now {
                tracing::info!(%step, "applying");
            }
            if many == 1 {
                self.run(step, &mut told).map_err(|e| (step.to_string(), e))?;
            } else {
                self.root
                    .change_many(&changes)
                    .map_err(|(i, e)| (now.get(i).map(ToString::to_string).unwrap_or_default(), e.into()))?;
            }
            rest = later;
        }
        if let Some(last) = steps.iter().rfind(|s| matches!(s, Step::Units { .. })) {
            // systemd does not wait for the disk when it makes links: they must not be newer than the commit.
            self.root.sync_file_system(paths::UNITS_DIR).map_err(|e| (last.to_string(), e.into()))?;
        }
        Ok(())
    }

    fn run(&mut self, step: &Step, told: &mut bool) -> Result<(), Error> {
        let root = &self.root;
        match step {
            Step::Copy { from, to, .. } => root.copy(from, to)?,
            Step::Write { path, content, attributes, .. } => {
                root.write_bytes(path, content.bytes(), *attributes)?;
            }
            Step::Link { path, target, owner, .. } => root.link(path, target, Some(*owner))?,
            Step::HardLink { path, target } => root.hard_link(path, target)?,
            Step::Remove { path, .. } => root.remove(path)?,
            Step::MakeDir { path, attributes } => {
                root.make_parents(path)?;
                root.make_dir(path, *attributes)?;
            }
            Step::RemoveDir { path, .. } => root.remove_empty_dir(path)?,
            Step::MoveAside { path, to, .. } => root.rename(path, to)?,
            Step::Units { action, units } => {
                let on = units.join(" ");
                match action {
                    UnitAction::Enable => self.systemd("enable", &on, |s| s.enable(units))?,
                    UnitAction::Disable => self.systemd("disable", &on, |s| s.disable(units))?,
                    UnitAction::Preset => {
                        for unit in units {
                            self.tolerate("preset", unit, |s| s.preset(std::slice::from_ref(unit)))?;
                        }
                    }
                }
            }
            Step::Password { user, hash, day } => crate::transaction::shadow::set(root, user, &hash.0, *day)?,
            Step::Os { from, to } => self.stage_os(from, to)?,
            Step::DaemonReload => self.systemd("daemon-reload", "", |s| s.daemon_reload())?,
            Step::TellSshd { unit } => {
                // Its file counts at the latest when it starts again: no reason to take the change back.
                self.tolerate("reload, if it runs,", unit, |s| s.reload_if_running(unit))?;
            }
            Step::Service { action, unit } => {
                if !*told {
                    Journal::mark_services(root)?;
                    *told = true;
                }
                match action {
                    ServiceAction::Reload => self.systemd("reload", unit, |s| s.reload(unit))?,
                    ServiceAction::Restart => self.systemd("restart", unit, |s| s.restart(unit))?,
                    ServiceAction::Run => self.systemd("run", unit, |s| s.run_once(unit))?,
                }
            }
        }
        Ok(())
    }

    /// The config that was applied last; `None` on a host that was never changed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn current_config(&self) -> Result<Option<CurrentConfig>, Error> {
        let config = |why| Error::Config { name: paths::CURRENT_CONFIG.to_owned(), why };
        let bytes = self.root.read_if_there(paths::CURRENT_CONFIG)?;
        bytes.map(|b| CurrentConfig::from_json(&b).map_err(config)).transpose()
    }

    /// Whether a reboot is owed.
    ///
    /// # Errors
    /// The record of it cannot be read. That is neither taken as none, which would lose the reboot, nor as one, which
    /// would have no end.
    pub fn reboot_status(&mut self) -> Result<RebootStatus, Error> {
        let Some(bytes) = self.root.read_if_there(paths::REBOOT_PENDING)? else {
            return Ok(RebootStatus::None);
        };
        let path = paths::REBOOT_PENDING;
        let pending: PendingReboot =
            api::shape::read_bytes(&bytes).map_err(|e| Error::RebootRecord { path, why: e.to_string() })?;
        let same = pending.boot.lasts(&self.boot()?);
        Ok(if same { RebootStatus::Owed(pending) } else { RebootStatus::Rebooted(pending) })
    }

    /// Forgets a reboot that has happened, and the force file that may have asked for it.
    ///
    /// # Errors
    /// The files that say so cannot be removed.
    pub fn reboot_done(&mut self) -> Result<(), Error> {
        self.root.remove(paths::FORCE_FILE)?;
        self.root.remove(paths::REBOOT_PENDING)?;
        Ok(())
    }

    /// Writes down, with a reboot that is owed, whether anybody has to be asked before it (see
    /// [`PendingReboot::cleared`]). A disk that does not take it is told of in the log and no more.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn reboot_cleared(&mut self, cleared: bool) -> Result<(), Error> {
        match self.reboot_status()? {
            RebootStatus::Owed(owed) if owed.cleared != cleared => {
                self.record(&PendingReboot { cleared, ..owed })
            }
            _ => Ok(()),
        }
    }

    /// Starts a reboot, and counts it where one is owed.
    ///
    /// # Errors
    /// systemd refuses; that is not counted.
    pub fn reboot(&mut self, rationale: &str) -> Result<(), Error> {
        let owed = match self.reboot_status()? {
            RebootStatus::Owed(owed) => Some(owed),
            RebootStatus::None | RebootStatus::Rebooted(_) => None,
        };
        if let Some(owed) = &owed {
            self.record(&PendingReboot { tries: owed.tries.saturating_add(1), ..owed.clone() })?;
        }
        let rationale = Rationale(rationale.to_owned());
        match self.systemd("reboot", "", |s| s.reboot(&rationale)) {
            Err(e) if !e.killed => {
                if let Some(owed) = &owed {
                    self.record(owed)?;
                }
                Err(e.into())
            }
            done => Ok(done?),
        }
    }

    /// Writes down a reboot that is owed. A disk that does not take it is told of and no more: the reboot may be what
    /// mends it.
    fn record(&self, owed: &PendingReboot) -> Result<(), Error> {
        let path = paths::REBOOT_PENDING;
        let json = serde_json::to_vec(owed).map_err(|e| Error::RebootRecord { path, why: e.to_string() })?;
        match self.root.write_bytes(path, &json, RECORD) {
            Err(e) if !e.killed() => {
                tracing::warn!(error = %e, "the record of the reboot cannot be written anew");
                Ok(())
            }
            done => Ok(done?),
        }
    }
}
