//! Records on the Node that a user has logged in by SSH: the host may then differ from what its configs say.
//!
//! It reads the sessions of systemd-logind by D-Bus. Sessions that are already open when the agent starts count too.
//! On a host without logind, or with an SSH server that does not register its sessions (`UsePAM no`), logins are not
//! seen.
//!
//! Not here: who logged in. The system journal has that.
//!
//! Source: org.freedesktop.login1(5).

use crate::cluster::calls::Cluster;
use api::names::annotation;
use client::spread;
use futures::StreamExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use zbus::names::{BusName, InterfaceName};
use zbus::{Connection, OwnedObjectPath, Proxy};

/// The socket of the system bus, relative to the root.
const SYSTEM_BUS: &str = "run/dbus/system_bus_socket";
const LOGIND: &str = "org.freedesktop.login1";
const MANAGER: (&str, &str) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
const SESSION: &str = "org.freedesktop.login1.Session";
/// The PAM service name of sessions from SSH servers.
const SSHD: &str = "sshd";
/// The time limit of one call. logind may have to be started for it.
const CALL: Duration = Duration::from_secs(30);
/// The pause before logind is asked again, if it was not there or has ended.
const AGAIN: Duration = Duration::from_secs(60);

/// One session of `ListSessions`: id, user id, user name, seat, object path (org.freedesktop.login1(5)).
type Listed = (String, u32, String, String, OwnedObjectPath);

/// Follows the sessions until it is stopped.
pub(crate) async fn watch(root_mount: PathBuf, cluster: Cluster, shutdown: CancellationToken) {
    let mut said = false;
    loop {
        let ended = shutdown.run_until_cancelled(follow(&root_mount, &cluster)).await;
        let Some(ended) = ended else { return };
        if let Err(error) = ended
            && !said
        {
            said = true;
            tracing::info!(%error, "logins by SSH are not recorded: systemd-logind does not answer");
        }
        let wait = spread(AGAIN);
        if shutdown.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
    }
}

async fn follow(root_mount: &Path, cluster: &Cluster) -> zbus::Result<()> {
    let address = format!("unix:path={}", root_mount.join(SYSTEM_BUS).display());
    let bus = limited(zbus::connection::Builder::address(address.as_str()).build()).await?;
    let manager = proxy(&bus, MANAGER.0.to_owned(), MANAGER.1).await?;
    // Subscribe before listing, so that no session is missed in between.
    let mut new = limited(manager.receive_signal("SessionNew")).await?;
    let open: Vec<Listed> = limited(manager.call("ListSessions", &())).await?;
    for (.., session) in open {
        report_if_ssh(&bus, session, cluster).await;
    }
    while let Some(signal) = new.next().await {
        let (_, session): (String, OwnedObjectPath) = signal.body().deserialize()?;
        report_if_ssh(&bus, session, cluster).await;
    }
    Err(zbus::Error::Failure("the connection to the system bus was lost".to_owned()))
}

/// Reports a session if it came by SSH. If the session has ended already, this cannot be told, and only the next one
/// is reported.
async fn report_if_ssh(bus: &Connection, session: OwnedObjectPath, cluster: &Cluster) {
    let service = async {
        let session = proxy(bus, session.to_string(), SESSION).await?;
        limited(session.get_property::<String>("Service")).await
    };
    match service.await {
        Ok(service) if service == SSHD => {
            tracing::info!("a user has logged in by SSH");
            let notes = [(annotation::SSH.to_owned(), annotation::SSH_ACCESSED.to_owned())].into();
            if let Err(error) = cluster.describe_host(&notes).await {
                tracing::warn!(error = error.chain(), "a login by SSH could not be recorded on the Node");
            }
        }
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "a session that is gone"),
    }
}

async fn proxy(bus: &Connection, path: String, interface: &'static str) -> zbus::Result<Proxy<'static>> {
    limited(Proxy::new(bus, BusName::try_from(LOGIND)?, path, InterfaceName::try_from(interface)?)).await
}

async fn limited<T>(call: impl Future<Output = zbus::Result<T>>) -> zbus::Result<T> {
    match tokio::time::timeout(CALL, call).await {
        Ok(answer) => answer,
        Err(_) => Err(zbus::Error::Failure(format!("no answer within {} s", CALL.as_secs()))),
    }
}
