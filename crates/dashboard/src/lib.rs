//! The dashboard: a page that shows a fleet live, the JSON and the stream of events that fill it, and who may see and do what.
//!
//! Flow: [`insight::ClusterWatch`] → `fleet::snapshot` (what is shown, masked) → `fleet::feed` (numbered differences) → one
//! `answers::stream` for each viewer. What is asked for seldom (a node's details, a comparison of configs) is read from the API server
//! when it is asked for (`answers`). Every request passes `access::local_access` first; where the dashboard runs in the cluster,
//! `access::cluster_access`. `serving` has connections and routes.
//!
//! What it is not: decisions, or words of its own about pools and nodes. Those are `rollout`'s and `insight`'s, so the page
//! says what `mco status` says.

mod access;
mod answers;
mod body;
mod fleet;
mod response;
mod serving;
mod shared;

use crate::access::cluster_access::{self, ClusterAccess};
use crate::access::local_access::LocalAccess;
use crate::answers::{details, page_actions};
use crate::fleet::feed::Feed;
use crate::fleet::node_events::NodeEvents;
use crate::fleet::timeline::Timeline;
use crate::fleet::{follow, node_events};
use crate::serving::{https, routes};
use crate::shared::{AccessMode, Shared};
use api::v1::ControllerConfig;
use ipnet::IpNet;
use kube::Client;
use listen::tls::{Tls, TlsProfile};
use std::future::IntoFuture as _;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long answers under way may take once the dashboard is to end. A browser keeps connections open on which it asks nothing.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Why there is no dashboard.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; is another program using the port? choose one with --port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The system gives no random numbers, so there is no token that nobody can guess.
    #[error("the system's random number generator failed")]
    Random,
    /// A name by which nobody can reach a server.
    #[error("--host {host:?} is not a host name, with or without a port; write one such as mco.example.com")]
    Host {
        /// What was given.
        host: String,
    },
    /// A trusted proxy that is everybody.
    #[error(
        "--trusted-proxy {net} covers every address, so every client could claim to be any user; name the proxy's own \
         address"
    )]
    Proxy {
        /// What was given.
        net: IpNet,
    },
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] listen::ListenError),
    /// The server ended.
    #[error("the dashboard's server ended")]
    Serve(#[source] std::io::Error),
}

/// The cluster that is shown.
#[derive(Clone)]
pub struct Cluster {
    /// With the rights of the person who looks.
    pub client: Client,
    /// What the page calls it.
    pub name: String,
    /// The ControllerConfig that counts where the cluster has none.
    pub controller_config: ControllerConfig,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A dashboard for one person on this computer, with that person's client and rights.
#[derive(Debug)]
pub struct Dashboard {
    listener: TcpListener,
    address: SocketAddr,
    access: Arc<LocalAccess>,
}

impl Dashboard {
    /// Listens on a loopback address; port 0 takes a free one. Nothing is served before [`Dashboard::serve`].
    ///
    /// # Errors
    /// An address that cannot be listened on; no random numbers.
    pub async fn listen(address: SocketAddr) -> Result<Self, DashboardError> {
        let bind = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = bind.await.map_err(|source| DashboardError::Listen { address, source })?;
        Ok(Self { listener, address, access: Arc::new(LocalAccess::new(address.port())?) })
    }

    /// An address that opens the page in one browser. Each is good for one use within ten minutes; older ones end.
    ///
    /// # Errors
    /// No random numbers.
    pub fn invite(&self) -> Result<String, DashboardError> {
        invite(&self.access, self.address)
    }

    /// Hands out further addresses while [`Dashboard::serve`] runs.
    pub fn inviter(&self) -> impl Fn() -> Result<String, DashboardError> + Send + Sync + use<> {
        let (access, address) = (Arc::clone(&self.access), self.address);
        move || invite(&access, address)
    }

    /// Serves until `stop`, and then for two seconds at most.
    ///
    /// # Errors
    /// The server ends before that.
    pub async fn serve(self, cluster: Cluster, stop: CancellationToken) -> Result<(), DashboardError> {
        let Cluster { client, name, controller_config } = cluster;
        let feed = Arc::new(Feed::new(&name));
        let (timeline, events) = (Arc::default(), Arc::default());
        let live = following(&client, &feed, &timeline, &events, &stop);
        let controller_config = Arc::new(controller_config);
        let access_mode = AccessMode::Local(self.access);
        let checks = Arc::new(Semaphore::new(page_actions::CHECKS));
        let pools = Arc::new(Semaphore::new(details::POOLS));
        let stop_of = stop.clone();
        let shared = Shared {
            access_mode,
            feed,
            timeline,
            events,
            client,
            controller_config,
            checks,
            pools,
            stop: stop_of,
        };
        let app = routes::router(shared);
        let served = axum::serve(self.listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
        let too_long = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_ANSWERS).await;
        };
        let ended = tokio::select! {
            ended = served.into_future() => ended.map_err(DashboardError::Serve),
            () = too_long => Ok(()),
        };
        stop.cancel();
        // It ends with `stop`; its failure would be a fault in the program, which the runtime has printed.
        let _ = live.await;
        ended
    }
}

/// How a dashboard in the cluster is reached.
#[derive(Debug, Clone)]
pub struct Network {
    /// Where it listens, by HTTPS.
    pub listen: SocketAddr,
    /// Certificate and key: PEM, read again when they change. `None`, and while the files are not there: a self-signed one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Names by which people reach it besides the Service's, with or without a port.
    pub hosts: Vec<String>,
    /// Addresses of proxies that sign people in: their `X-Forwarded-User` and `X-Forwarded-Groups` count.
    pub proxies: Vec<IpNet>,
}

/// A dashboard for everybody who may look at the cluster. What is read and done for somebody is read and done with the
/// dashboard's own account, after the question whether that person may.
#[derive(Debug)]
pub struct ClusterDashboard {
    listener: TcpListener,
    address: SocketAddr,
    tls: Tls,
    network: Network,
}

impl ClusterDashboard {
    /// Listens. Nothing is served before [`ClusterDashboard::serve`].
    ///
    /// # Errors
    /// An address that cannot be listened on, a certificate that cannot be used, a host that is none.
    pub async fn listen(network: Network) -> Result<Self, DashboardError> {
        cluster_access::check_hosts(&network.hosts)?;
        if let Some(net) = network.proxies.iter().find(|net| api::formats::network::is_everybody(net)) {
            return Err(DashboardError::Proxy { net: *net });
        }
        let profile = TlsProfile::default();
        let tls = match &network.certificate {
            Some((cert, key)) => Tls::load_when_there(cert, key, &profile)?,
            None => Tls::self_signed(&profile)?,
        };
        let failed = |source| DashboardError::Listen { address: network.listen, source };
        let listener = match TcpListener::bind(network.listen).await {
            // A machine without IPv6.
            Err(e) if network.listen.ip() == Ipv6Addr::UNSPECIFIED && e.kind() != ErrorKind::AddrInUse => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, network.listen.port())).await
            }
            listener => listener,
        };
        let listener = listener.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, tls, network })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, and then for two seconds at most. `cluster` has the client of the dashboard's own account.
    pub async fn serve(self, cluster: Cluster, stop: CancellationToken) {
        let Cluster { client, name, controller_config } = cluster;
        let Network { hosts, proxies, .. } = self.network;
        let access = ClusterAccess::new(&client, hosts, proxies);
        let feed = Arc::new(Feed::new(&name));
        let (timeline, events) = (Arc::default(), Arc::default());
        let live = following(&client, &feed, &timeline, &events, &stop);
        let shared = Shared {
            // Nobody has a right to anything.
            client: access.client_of(Arc::default()),
            access_mode: AccessMode::Cluster(Arc::new(access)),
            feed,
            timeline,
            events,
            controller_config: Arc::new(controller_config),
            checks: Arc::new(Semaphore::new(page_actions::CHECKS)),
            pools: Arc::new(Semaphore::new(details::POOLS)),
            stop: stop.clone(),
        };
        https::serve(self.listener, &self.tls, routes::router(shared), &stop).await;
        // It ends with `stop`; its failure would be a fault in the program, which the runtime has printed.
        let _ = live.await;
    }
}

/// Follows the cluster, and reads its events, until `stop`.
fn following(
    client: &Client,
    feed: &Arc<Feed>,
    timeline: &Arc<Mutex<Timeline>>,
    events: &Arc<NodeEvents>,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let follower =
        follow::run(client.clone(), Arc::clone(feed), Arc::clone(timeline), Arc::clone(events), stop.clone());
    let event_reader = node_events::run(client.clone(), Arc::clone(events), stop.clone());
    tokio::spawn(async {
        tokio::join!(follower, event_reader);
    })
}

fn invite(access: &LocalAccess, address: SocketAddr) -> Result<String, DashboardError> {
    Ok(format!("http://{address}{}/?token={}", access.base(), access.invite(Instant::now())?))
}

#[cfg(test)]
mod fake_cluster;
#[cfg(test)]
mod tests;
