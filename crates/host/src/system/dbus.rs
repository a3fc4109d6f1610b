//! [`DbusSystemd`]: the real systemd, by D-Bus (org.freedesktop.systemd1(5)).
//!
//! It makes the few calls of [`Systemd`] on the system bus, each with a time limit. A lost connection is opened again.
//! There is no fallback to `systemctl`, and none of its output is parsed.
//!
//! It blocks: call it from a thread that may block (`spawn_blocking`), never from one that drives the async runtime.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::runtime::Handle;
use tokio::time::timeout;
use zbus::names::{BusName, InterfaceName};
use zbus::{Connection, OwnedObjectPath, OwnedVariant, Proxy, Variant};

use crate::paths::BOOT_ID;
use crate::system::own_socket;
use crate::system::systemd::ServiceAction;
use crate::system::systemd::{Rationale, Systemd, SystemdError, UnitFileState, UnitState, UnitVerb};

/// The socket of the system bus.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// systemd's own socket, for root alone. It is there in a rescue shell too, when the bus is stopped.
const SYSTEMD_SOCKET: &str = "/run/systemd/private";
/// Time limit of a call that systemd answers at once. `Reload` and the unit-file calls can take seconds on a busy
/// host.
const CALL: Duration = Duration::from_secs(90);
/// How long the system bus may take to accept a connection. In emergency mode its socket is there, and nobody answers: then
/// systemd itself is asked.
const BUS: Duration = Duration::from_secs(10);
/// How long after a job its unit is looked at again.
const SETTLED: Duration = Duration::from_secs(2);
/// Time limit of a job. Units have their own limits, 90 s by default for start and for stop. This one is only for a
/// systemd that never reports the end.
const JOB: Duration = Duration::from_secs(600);
/// How often a program runs whose end was not told.
const TRIES: usize = 2;
/// How often it is asked whether a job still exists whose end was not told.
const ASK: Duration = Duration::from_secs(5);

const SYSTEMD: (&str, &str, &str) =
    ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
const LOGIND: (&str, &str, &str) =
    ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager");

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

    /// Runs one exchange on a working connection, with a time limit.
    fn run<T, F>(
        &mut self,
        call: &'static str,
        on: &str,
        limit: Duration,
        f: impl FnOnce(Connection) -> F,
    ) -> Result<T>
    where
        F: Future<Output = zbus::Result<T>>,
    {
        let fail = |e: zbus::Error| SystemdError::new(call, on, text(&e));
        let socket = self.root.join(SYSTEM_BUS.trim_start_matches('/'));
        let own = self.root.join(SYSTEMD_SOCKET.trim_start_matches('/'));
        let old = self.connection.take().filter(|c| !c.is_closed());
        let runtime = self.runtime.clone();
        let (connection, answer) = runtime.block_on(async {
            let connection = match old {
                Some(c) => c,
                None => match connect(&socket).await {
                    Ok(connection) => connection,
                    Err(error) => {
                        tracing::debug!(%error, "the system bus is not there; asking systemd itself");
                        connect_to_systemd(&own).await.map_err(|_| fail(error))?
                    }
                },
            };
            let answer = timeout(limit, f(connection.clone())).await;
            Ok::<_, SystemdError>((connection, answer))
        })?;
        self.connection = Some(connection);
        let limit = limit.as_secs();
        answer.map_err(|_| SystemdError::new(call, on, format!("no answer within {limit} s")))?.map_err(fail)
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

    /// What systemd knows of units.
    fn listed(&mut self, units: &[&str]) -> Result<Vec<ListedUnit>> {
        self.run("tell the state of", &units.join(" "), CALL, |c| async move {
            proxy(&c, SYSTEMD).await?.call::<_, _, Vec<ListedUnit>>("ListUnitsByNames", &(units,)).await
        })
    }

    /// Queues a job with `begin` and waits for its result. Returns systemd's name of the result. `None`: the job has ended, and
    /// its end was not told.
    fn wait_for_job<F>(
        &mut self,
        call: &'static str,
        on: &str,
        begin: impl FnOnce(Proxy<'static>) -> F,
    ) -> Result<Option<String>>
    where
        F: Future<Output = zbus::Result<OwnedObjectPath>>,
    {
        let about = on.to_owned();
        self.run(call, on, JOB, |c| async move {
            let manager = proxy(&c, SYSTEMD).await?;
            let mut removed = manager.receive_signal("JobRemoved").await?;
            // Signals are sent only to subscribers. A second subscription on a connection is refused, which is
            // harmless.
            let _ = manager.call::<_, _, ()>("Subscribe", &()).await;
            let job = begin(manager.clone()).await?;
            let mut is_gone = false;
            loop {
                match timeout(ASK, removed.next()).await {
                    Ok(None) => {
                        return Err(zbus::Error::Failure("the connection to systemd was lost".to_owned()));
                    }
                    Ok(Some(signal)) => {
                        let body = signal.body();
                        let (_, path, _, result): (u32, OwnedObjectPath, String, String) =
                            body.deserialize()?;
                        if path == job {
                            return Ok(Some(result));
                        }
                    }
                    // A signal that was on its way when the job was gone has come since.
                    Err(_) if is_gone => {
                        tracing::warn!(job = %*job, on = %about, "systemd did not report the end of a job");
                        return Ok(None);
                    }
                    Err(_) => is_gone = !has_job(&manager, &job).await,
                }
            }
        })
    }
}

/// Whether a job still exists. An answer that says something else counts as yes.
async fn has_job(manager: &Proxy<'_>, job: &OwnedObjectPath) -> bool {
    let Some(number) = job.rsplit('/').next().and_then(|number| number.parse::<u32>().ok()) else {
        return true;
    };
    match manager.call::<_, _, OwnedObjectPath>("GetJob", &(number,)).await {
        Err(zbus::Error::MethodError(name, ..)) => name.as_str() != "org.freedesktop.systemd1.NoSuchJob",
        _ => true,
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

async fn connect(socket: &Path) -> zbus::Result<Connection> {
    let address = format!("unix:path={}", socket.display());
    let connecting = zbus::connection::Builder::address(address.as_str()).build();
    timeout(BUS, connecting)
        .await
        .map_err(|_| zbus::Error::Failure("no answer from the system bus".to_owned()))?
}

async fn connect_to_systemd(socket: &Path) -> zbus::Result<Connection> {
    let stream = own_socket::connect(socket).await.and_then(tokio::net::UnixStream::into_std);
    let stream = stream.map_err(|e| zbus::Error::Failure(e.to_string()))?;
    let connecting = zbus::connection::Builder::unix_stream(stream).p2p().build();
    timeout(CALL, connecting).await.map_err(|_| zbus::Error::Failure("no answer from systemd".to_owned()))?
}

async fn proxy(
    c: &Connection,
    (name, path, interface): (&'static str, &'static str, &'static str),
) -> zbus::Result<Proxy<'static>> {
    Proxy::new(c, BusName::try_from(name)?, path, InterfaceName::try_from(interface)?).await
}

/// The text of an error, without the names of the library's variants.
fn text(e: &zbus::Error) -> String {
    match e {
        zbus::Error::MethodError(name, ..) if name.as_str() == "org.freedesktop.systemd1.NoSuchUnit" => {
            "this host has no such unit; create it, or correct the node disruption policy that names it"
                .to_owned()
        }
        zbus::Error::MethodError(name, detail, _) => match detail {
            Some(d) => format!("{d} ({name})"),
            None => name.to_string(),
        },
        other => other.to_string(),
    }
}

/// Whether systemd reports that there is no such unit file.
fn is_not_found(e: &zbus::Error) -> bool {
    match e {
        zbus::Error::FDO(e) => matches!(**e, zbus::fdo::Error::FileNotFound(_)),
        zbus::Error::MethodError(name, _, _) => {
            ["org.freedesktop.DBus.Error.FileNotFound", "org.freedesktop.systemd1.NoSuchUnit"]
                .contains(&name.as_str())
        }
        _ => false,
    }
}

/// Whether systemd reports that it has such a unit already.
fn is_there(e: &zbus::Error) -> bool {
    matches!(e, zbus::Error::MethodError(name, _, _) if name.as_str() == "org.freedesktop.systemd1.UnitExists")
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
        let why = format!("systemd does not tell how it ended; see journalctl -u {unit} on the host");
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
        let state = self.run("tell the state of", "the system", CALL, |c| async move {
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
        self.run("tell the state of", unit, CALL, |c| async move {
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
                // One that watched an earlier change may be about to end.
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
        self.run("tell the state of", unit, CALL, |c| async move {
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
        self.run("reboot", "the machine", CALL, |c| async move {
            let logind = async { proxy(&c, LOGIND).await?.call::<_, _, ()>("Reboot", &(false,)).await };
            match logind.await {
                Ok(()) => Ok(()),
                Err(e) => {
                    tracing::warn!(error = %text(&e), "logind does not reboot; asking systemd");
                    let manager = proxy(&c, SYSTEMD).await?;
                    let how = ("reboot.target", "replace-irreversibly");
                    manager.call::<_, _, OwnedObjectPath>("StartUnit", &how).await.map(drop)
                }
            }
        })
    }

    fn boot_id(&mut self) -> Result<String> {
        std::fs::read_to_string(self.root.join(BOOT_ID.trim_start_matches('/')))
            .map(|id| id.trim().to_owned())
            .map_err(|e| SystemdError::new("tell the boot id from", BOOT_ID, e))
    }
}
