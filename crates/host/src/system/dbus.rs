//! [`DbusSystemd`]: the real systemd, by D-Bus (org.freedesktop.systemd1(5)).
//!
//! It makes the few calls of [`Systemd`] on the system bus, each with a time limit. A lost connection is opened again.
//! There is no fallback to `systemctl`, and none of its output is parsed.
//!
//! It blocks: call it from a thread that may block (`spawn_blocking`), never from one that drives the async runtime.

mod connection;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::runtime::Handle;
use zbus::names::{BusName, InterfaceName};
use zbus::{Connection, OwnedObjectPath, OwnedVariant, Proxy, Variant};

use crate::paths::BOOT_ID;
use crate::system::systemd::ServiceAction;
use crate::system::systemd::{Rationale, Systemd, SystemdError, UnitFileState, UnitState, UnitVerb};
use crate::system::unit_file::is_template;
use connection::{CALL, LOGIND, SYSTEMD, is_broken, is_not_found, is_there, proxy, text};

/// How long after a job its unit is looked at again.
const SETTLED: Duration = Duration::from_secs(2);
/// How often a program runs whose end was not told.
const TRIES: usize = 2;

type Result<T> = std::result::Result<T, SystemdError>;

/// An entry of `ListUnits`: name, description, load, active and sub state, the unit that it follows, object path; id,
/// type and object path of its job (org.freedesktop.systemd1(5)).
type ListedUnit =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// The real systemd of a host.
#[derive(Debug)]
pub struct DbusSystemd {
    runtime: Handle,
    root: PathBuf,
    connection: Option<Connection>,
}

impl DbusSystemd {
    /// The systemd of the host whose root is at `root`. The connection is made at the first call.
    #[must_use]
    pub fn new(runtime: Handle, root: &Path) -> Self {
        Self { runtime, root: root.to_owned(), connection: None }
    }

    /// Queues a job and waits for its result.
    fn job(&mut self, call: &'static str, method: &'static str, unit: &str) -> Result<()> {
        let result = self.wait_for_job(call, unit, |manager| {
            let name = unit.to_owned();
            async move { manager.call(method, &(name.as_str(), "replace")).await }
        })?;
        let result = match result {
            Some(result) => result,
            // What it left tells it as well.
            None if self.listed(&[unit])?.iter().any(|(_, _, _, active, ..)| active == "failed") => {
                "failed".to_owned()
            }
            None => "done".to_owned(),
        };
        match result.as_str() {
            "done" | "skipped" => Ok(()),
            other => Err(SystemdError::new(
                call,
                unit,
                format!("the job ended as {other:?}; see journalctl -u {unit} on the host"),
            )),
        }
    }

    /// Asks for a reboot. `false`: the connection broke, and it is unknown whether anybody has heard it.
    fn ask_to_reboot(&mut self) -> Result<bool> {
        let (call, on) = ("reboot", "the machine");
        match self.exchange(call, on, CALL, |c| async move { begin_reboot(&c).await })? {
            Ok(()) => Ok(true),
            Err(e) if is_broken(&e) => {
                tracing::warn!(error = %text(&e), "the connection broke while the reboot was asked for");
                Ok(false)
            }
            Err(e) => Err(SystemdError::new(call, on, text(&e))),
        }
    }

    /// What systemd knows of units. Of a template it knows nothing: only an instance can run, and the name of a template in this call
    /// is refused as a whole.
    fn listed(&mut self, units: &[&str]) -> Result<Vec<ListedUnit>> {
        let units: Vec<&str> = units.iter().filter(|unit| !is_template(unit)).copied().collect();
        if units.is_empty() {
            return Ok(vec![]);
        }
        self.run("read the state of", &units.join(" "), CALL, |c| async move {
            proxy(&c, SYSTEMD).await?.call::<_, _, Vec<ListedUnit>>("ListUnitsByNames", &(units,)).await
        })
    }
}

/// systemd's method for an action.
fn method(action: UnitVerb) -> &'static str {
    match action {
        UnitVerb::Start => "StartUnit",
        UnitVerb::Stop => "StopUnit",
        UnitVerb::Restart => "RestartUnit",
        UnitVerb::Reload => "ReloadOrTryRestartUnit",
    }
}

/// The name of the transient unit in which a program runs.
fn transient_name(program: &str) -> String {
    format!("mco-{}.service", program.rsplit('/').next().unwrap_or(program))
}

/// Starts a program as a transient unit, which is removed when the program ends, even if it fails (systemd-run(1),
/// `--collect`).
async fn start_transient(manager: &Proxy<'_>, unit: &str, program: &str) -> zbus::Result<OwnedObjectPath> {
    let command = vec![(program, vec![program], false)];
    let properties: Vec<(&str, Variant<'_>)> = vec![
        ("Description", Variant::from(format!("{program} for a MachineConfig"))),
        ("Type", Variant::from("oneshot")),
        ("CollectMode", Variant::from("inactive-or-failed")),
        ("ExecStart", Variant::from(command)),
    ];
    let others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
    manager.call("StartTransientUnit", &(unit, "replace", properties, others)).await
}

/// Asks logind to reboot, and systemd if logind does not.
async fn begin_reboot(c: &Connection) -> zbus::Result<()> {
    let logind = async { proxy(c, LOGIND).await?.call::<_, _, ()>("Reboot", &(false,)).await };
    match logind.await {
        Err(e) if !is_broken(&e) => {
            tracing::warn!(error = %text(&e), "logind does not reboot; asking systemd");
            let how = ("reboot.target", "replace-irreversibly");
            proxy(c, SYSTEMD).await?.call::<_, _, OwnedObjectPath>("StartUnit", &how).await.map(drop)
        }
        done => done,
    }
}

impl Systemd for DbusSystemd {
    fn daemon_reload(&mut self) -> Result<()> {
        self.run("reload its units", "", CALL, |c| async move {
            proxy(&c, SYSTEMD).await?.call("Reload", &()).await
        })
    }

    fn enable(&mut self, units: &[String]) -> Result<()> {
        self.run("enable", &units.join(" "), CALL, |c| async move {
            let manager = proxy(&c, SYSTEMD).await?;
            manager.call_method("EnableUnitFiles", &(units, false, false)).await.map(drop)
        })
    }

    fn disable(&mut self, units: &[String]) -> Result<()> {
        self.run("disable", &units.join(" "), CALL, |c| async move {
            proxy(&c, SYSTEMD).await?.call_method("DisableUnitFiles", &(units, false)).await.map(drop)
        })
    }

    fn preset(&mut self, units: &[String]) -> Result<()> {
        self.run("preset", &units.join(" "), CALL, |c| async move {
            let manager = proxy(&c, SYSTEMD).await?;
            manager.call_method("PresetUnitFiles", &(units, false, false)).await.map(drop)
        })
    }

    fn restart(&mut self, unit: &str) -> Result<()> {
        self.job("restart", "RestartUnit", unit)
    }

    fn reload(&mut self, unit: &str) -> Result<()> {
        self.job("reload", "ReloadUnit", unit)
    }

    fn run_once(&mut self, program: &str) -> Result<()> {
        let unit = transient_name(program);
        for _ in 0..TRIES {
            let result = self.wait_for_job("run", program, |manager| {
                let (unit, program) = (unit.clone(), program.to_owned());
                async move { start_transient(&manager, &unit, &program).await }
            })?;
            match result.as_deref() {
                Some("done") => return Ok(()),
                Some(result) => {
                    let why = format!("it ended as {result:?}; see journalctl -u {unit} on the host");
                    return Err(SystemdError::new("run", program, why));
                }
                // Its unit is gone, and with it how it ended. It may run as often as one likes.
                None => {}
            }
        }
        let why = format!(
            "its result is unknown, because systemd no longer has the unit; see journalctl -u {unit} on the host"
        );
        Err(SystemdError::new("run", program, why))
    }

    fn queue(&mut self, action: ServiceAction, unit: &str) -> Result<()> {
        let method = match action {
            ServiceAction::Run => {
                return self.run(action.verb(), unit, CALL, |c| async move {
                    let manager = proxy(&c, SYSTEMD).await?;
                    start_transient(&manager, &transient_name(unit), unit).await.map(drop)
                });
            }
            ServiceAction::Restart => "RestartUnit",
            ServiceAction::Reload => "ReloadOrRestartUnit",
        };
        self.run(action.verb(), unit, CALL, |c| async move {
            proxy(&c, SYSTEMD)
                .await?
                .call::<_, _, OwnedObjectPath>(method, &(unit, "replace"))
                .await
                .map(drop)
        })
    }

    fn was_started(&mut self, unit: &str) -> Result<bool> {
        let units = self.listed(&[unit])?;
        Ok(units.iter().any(|(_, _, _, active, ..)| active != "inactive"))
    }

    fn act(&mut self, action: UnitVerb, unit: &str) -> Result<()> {
        self.job(action.verb(), method(action), unit)
    }

    fn queue_act(&mut self, action: UnitVerb, unit: &str) -> Result<()> {
        self.run(action.verb(), unit, CALL, |c| async move {
            let manager = proxy(&c, SYSTEMD).await?;
            manager.call::<_, _, OwnedObjectPath>(method(action), &(unit, "replace")).await.map(drop)
        })
    }

    fn is_running(&mut self, unit: &str) -> Result<bool> {
        let runs = |active: &str| !matches!(active, "inactive" | "failed" | "deactivating");
        Ok(self.listed(&[unit])?.iter().any(|(_, _, _, active, ..)| runs(active)))
    }

    fn check(&mut self, units: &[String]) -> Result<()> {
        self.runtime.block_on(tokio::time::sleep(SETTLED));
        let names: Vec<&str> = units.iter().map(String::as_str).collect();
        for (name, _, _, active, sub, ..) in self.listed(&names)? {
            if active == "failed" || sub.starts_with("auto-restart") {
                let why = format!("it is {active} ({sub}) afterwards; see journalctl -u {name} on the host");
                return Err(SystemdError::new("keep running", name, why));
            }
        }
        Ok(())
    }

    fn soft_reboots(&mut self) -> Result<Option<u64>> {
        self.run("report the number of", "soft reboots", CALL, |c| async move {
            let (name, path, interface) = SYSTEMD;
            let properties = proxy(&c, (name, path, "org.freedesktop.DBus.Properties")).await?;
            let what = (interface, "SoftRebootsCount");
            match properties.call::<_, _, OwnedVariant>("Get", &what).await {
                Ok(value) => Ok(u32::try_from(value).map(u64::from).ok()),
                Err(zbus::Error::MethodError(..) | zbus::Error::FDO(_)) => Ok(None),
                Err(e) => Err(e),
            }
        })
    }

    fn is_stopping(&mut self) -> Result<bool> {
        let state = self.run("read the state of", "the system", CALL, |c| async move {
            proxy(&c, SYSTEMD).await?.get_property::<String>("SystemState").await
        })?;
        if state != "stopping" {
            return Ok(false);
        }
        // After a restart of userspace alone the kernel is the same, and a machine that is switched off may be off for days.
        let whole = self.listed(&["reboot.target", "kexec.target"])?;
        Ok(whole.iter().any(|(.., job, _, _)| *job != 0))
    }

    fn unit_state(&mut self, unit: &str) -> Result<UnitState> {
        self.run("read the state of", unit, CALL, |c| async move {
            let manager = proxy(&c, SYSTEMD).await?;
            let path: OwnedObjectPath = manager.call("LoadUnit", &(unit,)).await?;
            let properties = Proxy::new(
                &c,
                BusName::try_from(SYSTEMD.0)?,
                path,
                InterfaceName::try_from("org.freedesktop.systemd1.Unit")?,
            )
            .await?;
            let active: String = properties.get_property("ActiveState").await?;
            let invocation: Vec<u8> = properties.get_property("InvocationID").await?;
            let invocation = invocation.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(UnitState { active, invocation })
        })
    }

    fn start_watch(&mut self, unit: &str, command: &[String]) -> Result<()> {
        let Some(program) = command.first() else { return Ok(()) };
        self.run("start", unit, CALL, |c| async move {
            let exec =
                vec![(program.as_str(), command.iter().map(String::as_str).collect::<Vec<_>>(), false)];
            let properties: Vec<(&str, Variant<'_>)> = vec![
                ("Description", Variant::from("Undo a change of this host that nobody confirms")),
                ("Type", Variant::from("exec")),
                ("CollectMode", Variant::from("inactive-or-failed")),
                ("Restart", Variant::from("on-failure")),
                // What it watches may isolate another target.
                ("IgnoreOnIsolate", Variant::from(true)),
                ("DefaultDependencies", Variant::from(false)),
                ("ExecStart", Variant::from(exec)),
            ];
            let others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
            let manager = proxy(&c, SYSTEMD).await?;
            let body = (unit, "fail", properties, others);
            match manager.call::<_, _, OwnedObjectPath>("StartTransientUnit", &body).await {
                Ok(_) => Ok(()),
                // The watch of an earlier change may be about to end.
                Err(e) if is_there(&e) => {
                    let again = (unit, "replace");
                    manager.call::<_, _, OwnedObjectPath>("RestartUnit", &again).await.map(drop)
                }
                Err(e) => Err(e),
            }
        })
    }

    fn soft_reboot(&mut self, rationale: &Rationale) -> Result<()> {
        tracing::info!(rationale = %rationale.0, "restarting userspace");
        self.run("restart", "userspace", CALL, |c| async move {
            let manager = proxy(&c, SYSTEMD).await?;
            let how = ("soft-reboot.target", "replace-irreversibly");
            manager.call::<_, _, OwnedObjectPath>("StartUnit", &how).await.map(drop)
        })
    }

    fn up_for(&mut self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(now.tv_sec.try_into().unwrap_or_default(), now.tv_nsec.try_into().unwrap_or_default())
    }

    fn reload_if_running(&mut self, unit: &str) -> Result<()> {
        self.job("reload", "ReloadOrTryRestartUnit", unit)
    }

    fn state(&mut self, unit: &str) -> Result<Option<UnitFileState>> {
        self.run("read the state of", unit, CALL, |c| async move {
            match proxy(&c, SYSTEMD).await?.call::<_, _, String>("GetUnitFileState", &(unit,)).await {
                // systemd answers with an empty text for a unit without a file.
                Ok(state) if state.is_empty() => Ok(None),
                Ok(state) => Ok(Some(UnitFileState(state))),
                Err(e) if is_not_found(&e) => Ok(None),
                Err(e) => Err(e),
            }
        })
    }

    /// Reboots through logind, which gives the kubelet time to end pods (the kubelet holds an inhibitor lock). Without
    /// logind it starts systemd's reboot target.
    fn reboot(&mut self, rationale: &Rationale) -> Result<()> {
        tracing::info!(rationale = %rationale.0, "rebooting");
        // The bus ends early in a shutdown. What was asked may be on its way then, and asking twice does no harm: without a bus,
        // systemd itself is asked.
        if self.ask_to_reboot()? || self.ask_to_reboot()? {
            return Ok(());
        }
        Err(SystemdError::new("reboot", "the machine", "the connection to systemd broke twice"))
    }

    fn boot_id(&mut self) -> Result<String> {
        std::fs::read_to_string(self.root.join(BOOT_ID.trim_start_matches('/')))
            .map(|id| id.trim().to_owned())
            .map_err(|e| SystemdError::new("read the boot ID from", BOOT_ID, e))
    }
}

#[cfg(test)]
mod tests;
