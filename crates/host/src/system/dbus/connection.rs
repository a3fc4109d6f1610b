//! The connection of a [`DbusSystemd`]: the system bus or systemd's own socket, one exchange with a time limit, the end of a
//! job, and errors as text.
//!
//! Not here: what is asked (see `dbus`).
//!
//! Sources: org.freedesktop.systemd1(5), <https://dbus.freedesktop.org/doc/dbus-specification.html>.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::timeout;
use zbus::names::{BusName, InterfaceName};
use zbus::{Connection, OwnedObjectPath, Proxy};

use super::{DbusSystemd, Result};
use crate::system::own_socket;
use crate::system::systemd::SystemdError;

/// The socket of the system bus.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// systemd's own socket, for root alone. It is there in a rescue shell too, when the bus is stopped.
const SYSTEMD_SOCKET: &str = "/run/systemd/private";
/// Time limit of a call that systemd answers at once. `Reload` and the unit-file calls can take seconds on a busy
/// host.
pub(super) const CALL: Duration = Duration::from_secs(90);
/// How long the system bus may take to accept a connection. In emergency mode its socket is there, and nobody answers: then
/// systemd itself is asked.
const BUS: Duration = Duration::from_secs(10);
/// Time limit of a job. Units have their own limits, 90 s by default for start and for stop. This one is only for a
/// systemd that never reports the end.
const JOB: Duration = Duration::from_secs(600);
/// How often systemd is asked whether a job still exists whose end was not signalled.
const ASK: Duration = Duration::from_secs(5);

/// The name, the path and the interface of systemd on the bus.
pub(super) const SYSTEMD: (&str, &str, &str) =
    ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
/// The same of logind.
pub(super) const LOGIND: (&str, &str, &str) =
    ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager");

impl DbusSystemd {
    /// Runs one exchange on a working connection, with a time limit.
    pub(super) fn run<T, F>(
        &mut self,
        call: &'static str,
        on: &str,
        limit: Duration,
        f: impl FnOnce(Connection) -> F,
    ) -> Result<T>
    where
        F: Future<Output = zbus::Result<T>>,
    {
        self.exchange(call, on, limit, f)?.map_err(|e| SystemdError::new(call, on, text(&e)))
    }

    /// The same, with the answer as the library gives it. A connection that broke is not used again.
    pub(super) fn exchange<T, F>(
        &mut self,
        call: &'static str,
        on: &str,
        limit: Duration,
        f: impl FnOnce(Connection) -> F,
    ) -> Result<zbus::Result<T>>
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
        let broke = matches!(&answer, Ok(Err(error)) if is_broken(error));
        self.connection = (!broke).then_some(connection);
        let limit = limit.as_secs();
        answer.map_err(|_| SystemdError::new(call, on, format!("no answer within {limit} s")))
    }

    /// Queues a job with `begin` and waits for its result. Returns systemd's name of the result. `None`: the job has ended, and
    /// its end was not told.
    pub(super) fn wait_for_job<F>(
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

/// One of these on a connection.
pub(super) async fn proxy(
    c: &Connection,
    (name, path, interface): (&'static str, &'static str, &'static str),
) -> zbus::Result<Proxy<'static>> {
    Proxy::new(c, BusName::try_from(name)?, path, InterfaceName::try_from(interface)?).await
}

/// The text of an error, without the names of the library's variants.
pub(super) fn text(e: &zbus::Error) -> String {
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

/// Whether the connection broke: it is unknown whether the call arrived.
pub(super) fn is_broken(e: &zbus::Error) -> bool {
    matches!(e, zbus::Error::InputOutput(_))
}

/// Whether systemd reports that there is no such unit file.
pub(super) fn is_not_found(e: &zbus::Error) -> bool {
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
pub(super) fn is_there(e: &zbus::Error) -> bool {
    matches!(e, zbus::Error::MethodError(name, _, _) if name.as_str() == "org.freedesktop.systemd1.UnitExists")
}
