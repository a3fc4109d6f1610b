//! [`FakeSystemd`]: does to a folder what systemd does to a host's unit files, and records the calls it received.
//!
//! For tests and simulated nodes. It works on the root folder as `systemctl --root` does. The running state of
//! services, boots and reboots is kept in a file, so that it survives a restart of the daemon. It starts no services.

mod enablement;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::disk::attributes::Attributes;
use crate::disk::fs_error::FsError;
use crate::disk::root::Root;
use crate::system::systemd::ServiceAction;
use crate::system::systemd::{Rationale, Systemd, SystemdError, UnitFileState, UnitState, UnitVerb};
use crate::system::unit_file::{is_template, preset_enables, template_of};

/// The file that holds its state.
const STATE: &str = "/run/fake-systemd/state.json";
/// The log of starts and reloads, one line each, as the stub services of the recorded cases write it.
const SERVICE_LOG: &str = "/var/svc.log";
/// Mode and owner of the files that it writes.
const PLAIN: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };

/// The state that survives a restart of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct State {
    boot: u64,
    rebooting: Option<String>,
    failing: BTreeSet<String>,
    /// The units that were started in this boot.
    started: BTreeSet<String>,
    calls: Vec<String>,
    /// How often userspace was restarted alone in this boot; absent: it cannot be.
    soft_reboots: Option<u64>,
    /// How far its clock is ahead of the computer's, in seconds.
    #[serde(default)]
    ahead: u64,
}

/// The fake. Several fakes on one folder share the same state.
#[derive(Clone, Debug)]
pub struct FakeSystemd {
    root: Root,
}

type Result<T> = std::result::Result<T, SystemdError>;

impl FakeSystemd {
    /// A fake on a root folder.
    #[must_use]
    pub fn new(root: &Root) -> Self {
        Self { root: root.without_faults() }
    }

    /// The reason of the reboot that was requested and has not happened yet.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn reboot_requested(&self) -> Result<Option<String>> {
        Ok(self.load()?.rebooting)
    }

    /// Makes it a systemd that can restart userspace alone.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn allow_soft_reboots(&mut self) -> Result<()> {
        self.change(|s| s.soft_reboots = s.soft_reboots.or(Some(0)))
    }

    /// Completes the soft reboot: the kernel, its boot id and `/run` stay.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn complete_soft_reboot(&mut self) -> Result<()> {
        self.change(|s| {
            s.soft_reboots = s.soft_reboots.map(|n| n + 1);
            s.rebooting = None;
            s.started.clear();
        })
    }

    /// Completes the reboot: another boot begins.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn complete_reboot(&mut self) -> Result<()> {
        self.change(|s| {
            s.boot += 1;
            s.rebooting = None;
            s.started.clear();
            s.soft_reboots = s.soft_reboots.map(|_| 0);
        })
    }

    /// How often the machine has rebooted.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn boots(&self) -> Result<u64> {
        Ok(self.load()?.boot)
    }

    /// Makes starts and reloads of a unit fail from now on, or succeed again.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn set_failing(&mut self, unit: &str, failing: bool) -> Result<()> {
        self.change(|s| {
            if failing {
                s.failing.insert(unit.to_owned());
            } else {
                s.failing.remove(unit);
            }
        })
    }

    /// Marks a unit as started, as it would be at boot.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn set_started(&mut self, unit: &str) -> Result<()> {
        self.change(|s| {
            s.started.insert(unit.to_owned());
        })
    }

    /// Lets this time pass on the machine's clock.
    ///
    /// # Errors
    /// The state cannot be written.
    pub fn let_pass(&mut self, time: Duration) -> Result<()> {
        self.change(|s| s.ahead += time.as_secs())
    }

    /// Every call that it received, in order.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn calls(&self) -> Result<Vec<String>> {
        Ok(self.load()?.calls)
    }

    fn fs<T>(done: std::result::Result<T, FsError>) -> Result<T> {
        done.map_err(|e| SystemdError {
            killed: e.killed(),
            ..SystemdError::new("work on", &e.path, &e.source)
        })
    }

    fn load(&self) -> Result<State> {
        let text = Self::fs(self.root.read_if_there(STATE))?;
        Ok(text.and_then(|t| serde_json::from_slice(&t).ok()).unwrap_or_default())
    }

    fn change(&mut self, f: impl FnOnce(&mut State)) -> Result<()> {
        let mut state = self.load()?;
        f(&mut state);
        let text = serde_json::to_vec(&state).map_err(|e| SystemdError::new("write its state", STATE, e))?;
        Self::fs(self.root.write_bytes(STATE, &text, PLAIN))
    }

    fn record(&mut self, call: &str, on: &[String]) -> Result<()> {
        self.change(|s| s.calls.push(format!("{call} {}", on.join(" ")).trim_end().to_owned()))
    }

    fn service(&mut self, call: &'static str, verb: &str, unit: &str) -> Result<()> {
        self.record(call, &[unit.to_owned()])?;
        if self.fragment(unit)?.is_none() {
            return Err(SystemdError::new(call, unit, "the unit does not exist"));
        }
        if self.load()?.failing.contains(unit) {
            return Err(SystemdError::new(call, unit, "the job failed"));
        }
        self.set_started(unit)?;
        let mut log = Self::fs(self.root.read_if_there(SERVICE_LOG))?.unwrap_or_default();
        let name = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
        log.extend_from_slice(format!("{name} {verb}\n").as_bytes());
        Self::fs(self.root.write_bytes(SERVICE_LOG, &log, PLAIN))
    }
}

impl Systemd for FakeSystemd {
    fn daemon_reload(&mut self) -> Result<()> {
        self.record("daemon-reload", &[])
    }

    fn enable(&mut self, units: &[String]) -> Result<()> {
        self.record("enable", units)?;
        units.iter().try_for_each(|u| self.enable_one(u))
    }

    fn disable(&mut self, units: &[String]) -> Result<()> {
        self.record("disable", units)?;
        units.iter().try_for_each(|u| self.disable_one(u))
    }

    fn preset(&mut self, units: &[String]) -> Result<()> {
        self.record("preset", units)?;
        let presets = self.presets()?;
        for unit in units {
            if preset_enables(&presets, unit) {
                self.enable_one(unit)?;
            } else {
                self.disable_one(unit)?;
            }
        }
        Ok(())
    }

    fn restart(&mut self, unit: &str) -> Result<()> {
        self.service("restart", "start", unit)
    }

    fn reload(&mut self, unit: &str) -> Result<()> {
        self.service("reload", "reload", unit)
    }

    fn run_once(&mut self, program: &str) -> Result<()> {
        self.record("run", &[program.to_owned()])?;
        if self.load()?.failing.contains(program) {
            return Err(SystemdError::new("run", program, "it failed"));
        }
        Ok(())
    }

    fn queue(&mut self, action: ServiceAction, unit: &str) -> Result<()> {
        let call = match action {
            ServiceAction::Restart => "queue restart",
            ServiceAction::Reload => "queue reload",
            ServiceAction::Run => "queue run",
        };
        self.record(call, &[unit.to_owned()])?;
        self.set_started(unit)
    }

    fn was_started(&mut self, unit: &str) -> Result<bool> {
        Ok(self.load()?.started.contains(unit))
    }

    fn unit_state(&mut self, unit: &str) -> Result<UnitState> {
        let state = self.load()?;
        let active = match (state.failing.contains(unit), state.started.contains(unit)) {
            (true, _) => "failed",
            (false, true) => "active",
            (false, false) => "inactive",
        };
        Ok(UnitState { active: active.to_owned(), invocation: format!("{}", state.boot) })
    }

    fn start_watch(&mut self, unit: &str, _: &[String]) -> Result<()> {
        self.record("start watch", &[unit.to_owned()])
    }

    fn up_for(&mut self) -> Duration {
        let ahead = self.load().map(|s| s.ahead).unwrap_or_default();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.try_into().unwrap_or_default(), 0) + Duration::from_secs(ahead)
    }

    fn reload_if_running(&mut self, unit: &str) -> Result<()> {
        self.service("reload", "reload", unit)
    }

    fn act(&mut self, action: UnitVerb, unit: &str) -> Result<()> {
        match action {
            // A unit can be stopped after its file is gone.
            UnitVerb::Stop => {
                self.record("stop", &[unit.to_owned()])?;
                self.change(|s| {
                    s.started.remove(unit);
                })
            }
            UnitVerb::Start => self.service("start", "start", unit),
            UnitVerb::Restart => self.service("restart", "start", unit),
            UnitVerb::Reload => self.service("reload", "reload", unit),
        }
    }

    fn queue_act(&mut self, action: UnitVerb, unit: &str) -> Result<()> {
        self.record(&format!("queue {}", action.verb()), &[unit.to_owned()])?;
        self.change(|s| match action {
            UnitVerb::Start => drop(s.started.insert(unit.to_owned())),
            UnitVerb::Stop => drop(s.started.remove(unit)),
            UnitVerb::Restart | UnitVerb::Reload => {}
        })
    }

    fn is_running(&mut self, unit: &str) -> Result<bool> {
        Ok(self.load()?.started.contains(unit))
    }

    fn check(&mut self, units: &[String]) -> Result<()> {
        self.record("check", units)?;
        let failing = self.load()?.failing;
        match units.iter().find(|u| failing.contains(*u)) {
            Some(unit) => Err(SystemdError::new("keep running", unit, "it failed")),
            None => Ok(()),
        }
    }

    fn is_stopping(&mut self) -> Result<bool> {
        Ok(self.load()?.rebooting.is_some())
    }

    fn soft_reboots(&mut self) -> Result<Option<u64>> {
        Ok(self.load()?.soft_reboots)
    }

    fn soft_reboot(&mut self, rationale: &Rationale) -> Result<()> {
        let why = rationale.0.clone();
        self.change(|s| {
            s.calls.push("soft-reboot".to_owned());
            s.rebooting = Some(why);
        })
    }

    fn state(&mut self, unit: &str) -> Result<Option<UnitFileState>> {
        let state = |s: &str| Ok(Some(UnitFileState(s.to_owned())));
        let Some(path) = self.fragment(unit)? else { return Ok(None) };
        if self.is_masked(unit)? {
            return state("masked");
        }
        if self.all_links()?.iter().any(|(_, link, target)| {
            target != "/dev/null"
                && (link == unit || (is_template(unit) && template_of(link).as_deref() == Some(unit)))
        }) {
            return state("enabled");
        }
        let install = self.install(&path)?;
        state(if install.is_empty() { "static" } else { "disabled" })
    }

    fn reboot(&mut self, rationale: &Rationale) -> Result<()> {
        let why = rationale.0.clone();
        self.change(|s| {
            s.calls.push("reboot".to_owned());
            s.rebooting = Some(why);
        })
    }

    fn boot_id(&mut self) -> Result<String> {
        Ok(format!("boot-{}", self.load()?.boot))
    }
}
