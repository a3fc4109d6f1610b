//! A TCP proxy in front of the API server, or of a registry. It can cut connections, delay data and swallow it, for tests of
//! our programs under network failures.
//!
//! It forwards bytes without parsing them, so TLS is end to end: give the programs a kubeconfig with
//! [`FaultProxy::url`] (`ControlPlane::identity_via`). The API server's certificate is valid for the loopback address
//! and for the lab's bridge, where the proxy listens.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::error::{Error, Result};

/// How long the proxy tries to reach the API server for one connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How many bytes are forwarded at a time.
const CHUNK: usize = 16 * 1024;

/// What the proxy does with open and new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Forwards everything.
    None,
    /// Forwards everything, each chunk after this time.
    Delay(Duration),
    /// Accepts and keeps connections open but forwards nothing, as in a network partition.
    Blackhole,
    /// Closes every connection at once, as if no server were running.
    Cut,
    /// Closes each connection after the server has sent this many bytes.
    CutAfter(u64),
}

/// A running proxy. Dropping it closes all connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

/// What has passed through a proxy.
#[derive(Debug, Default)]
struct Counts {
    /// Bytes that the server sent.
    bytes: AtomicU64,
    /// Connections that [`Fault::CutAfter`] has closed.
    cuts: AtomicU64,
}

impl FaultProxy {
    /// Listens on a free port of `address` and forwards to `server`.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(address: IpAddr, server: SocketAddr) -> Result<Self> {
        let failed = |source| Error::Io { step: "listen on", path: address.to_string().into(), source };
        let listener = TcpListener::bind((address, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (fault, receiver) = watch::channel(Fault::None);
        let counts = Arc::new(Counts::default());
        let task = tokio::spawn(accept(listener, server, receiver, Arc::clone(&counts)));
        Ok(Self { address, fault, counts, task })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server URL for a kubeconfig.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// How many bytes the server has sent through the proxy.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// How many connections [`Fault::CutAfter`] has closed.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.counts.cuts.load(Ordering::Relaxed)
    }

    /// Changes the fault, for open connections too.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Closes every open connection once; new ones work as before.
    pub fn cut_once(&self) {
        let before = *self.fault.borrow();
        self.fault.send_replace(Fault::Cut);
        // Connections see only the newest value, and that it changed. So `Cut` is sent and then replaced by the old
        // value.
        let fault = self.fault.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            fault.send_if_modified(|now| {
                let still = *now == Fault::Cut;
                if still {
                    *now = before;
                }
                still
            });
        });
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    fault: watch::Receiver<Fault>,
    counts: Arc<Counts>,
) {
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    connections.spawn(serve(client, server, fault.clone(), Arc::clone(&counts)));
                }
                Err(error) => {
                    tracing::debug!(%error, "fault proxy: accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(
    client: TcpStream,
    server: SocketAddr,
    mut fault: watch::Receiver<Fault>,
    counts: Arc<Counts>,
) {
    // Connects to the API server only when data may be forwarded.
    let Ok(now) = fault.wait_for(|fault| *fault != Fault::Blackhole).await.map(|fault| *fault) else {
        return;
    };
    if now == Fault::Cut {
        return;
    }
    let connected = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(server)).await;
    let Ok(Ok(upstream)) = connected else { return };
    let _latency_only = (client.set_nodelay(true), upstream.set_nodelay(true));
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = upstream.into_split();
    let mut cut = fault.clone();
    let fault = Arc::new(fault);
    tokio::select! {
        () = pump(client_read, server_write, (*fault).clone(), None) => {}
        () = pump(server_read, client_write, (*fault).clone(), Some(&counts)) => {}
        _ = cut.wait_for(|fault| *fault == Fault::Cut) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut fault: watch::Receiver<Fault>,
    counts: Option<&Counts>,
) {
    let mut buffer = vec![0; CHUNK];
    let mut passed = 0;
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        let now = fault.wait_for(|fault| *fault != Fault::Blackhole).await.map(|fault| *fault);
        match now {
            Ok(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
            Ok(Fault::CutAfter(bytes)) if passed >= bytes => {
                if let Some(counts) = counts {
                    counts.cuts.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
            Ok(Fault::None | Fault::CutAfter(_)) => {}
            Ok(Fault::Cut | Fault::Blackhole) | Err(_) => return,
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
        if let Some(counts) = counts {
            let read = u64::try_from(read).unwrap_or_default();
            passed += read;
            counts.bytes.fetch_add(read, Ordering::Relaxed);
        }
    }
}
