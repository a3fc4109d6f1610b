//! What the answers are made from, and how people are let in: one value that every route has.
//!
//! What it is not: the routes (see `routes`), or who may pass (see `local_access` and `cluster_access`).

use crate::access::cluster_access::{ClusterAccess, Visitor};
use crate::access::local_access::LocalAccess;
use crate::body;
use crate::fleet::feed::Feed;
use crate::fleet::node_events::NodeEvents;
use crate::fleet::timeline::Timeline;
use api::v1::ControllerConfig;
use axum::extract::FromRequestParts;
use http::request::Parts;
use kube::Client;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Who lets people in.
#[derive(Clone)]
pub(crate) enum AccessMode {
    /// One person on this computer.
    Local(Arc<LocalAccess>),
    /// Whoever the cluster knows.
    Cluster(Arc<ClusterAccess>),
}

impl AccessMode {
    /// The path below which everything lies, without a slash at its end.
    pub(crate) fn base(&self) -> &str {
        match self {
            Self::Local(access) => access.base(),
            Self::Cluster(_) => "",
        }
    }

    /// A request's path below that; `None`: it lies elsewhere.
    pub(crate) fn path_below_prefix<'a>(&self, request: &'a Parts) -> Option<&'a str> {
        request.uri.path().strip_prefix(self.base())
    }
}

/// From where a request came, where it came over the network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// What the answers are made from.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) access_mode: AccessMode,
    pub(crate) feed: Arc<Feed>,
    pub(crate) timeline: Arc<Mutex<Timeline>>,
    pub(crate) events: Arc<NodeEvents>,
    /// Of the person on this computer; in the cluster one with which nothing may be asked, see [`ForPerson`].
    pub(crate) client: Client,
    pub(crate) controller_config: Arc<ControllerConfig>,
    /// Places for plans of any sort, `page_actions::CHECKS` of them.
    pub(crate) checks: Arc<Semaphore>,
    /// Places for the configs of a pool, `details::POOLS` of them.
    pub(crate) pools: Arc<Semaphore>,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// The largest pasted text that is looked at, in bytes.
    pub(crate) fn largest_check(&self) -> usize {
        match &self.access_mode {
            AccessMode::Local(_) => body::LARGEST,
            AccessMode::Cluster(_) => body::LARGEST_IN_CLUSTER,
        }
    }
}

/// [`Shared`] with the client of the person who asks.
pub(crate) struct ForPerson(pub(crate) Shared);

impl FromRequestParts<Shared> for ForPerson {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Infallible> {
        let mut shared = shared.clone();
        if let (Some(visitor), AccessMode::Cluster(access)) =
            (parts.extensions.get::<Visitor>(), &shared.access_mode)
        {
            shared.client = access.client_of(Arc::clone(&visitor.person));
        }
        Ok(Self(shared))
    }
}
