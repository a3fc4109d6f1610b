//! The load balancer in front of the API servers of several control-plane nodes. It forwards TCP and checks each
//! server's `/readyz`.
//!
//! Flow: one task per server polls `/readyz` → a connection goes to the next server that is ready → when a server is no
//! longer ready its connections are cut, so that clients reconnect to another one.
//!
//! Not here: TLS. Clients see the API server's own certificate, which names the balancer's address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::control_plane::{install_crypto_provider, probe};
use crate::error::{Error, Result};

/// The pause between two checks of a server: short enough that most clients do not notice an orderly shutdown.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// The time limit for one check: a busy server may be slow.
const ASK_LIMIT: Duration = Duration::from_secs(3);
/// A server is out after this many failed checks in a row: on a busy computer a single one may fail.
const OUT_AFTER: u32 = 2;
/// A server on the same computer accepts a connection at once, or is not running.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// A running balancer. Dropping it closes its port and every connection.
#[derive(Debug)]
pub(crate) struct Balancer {
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    ready: watch::Sender<bool>,
}

impl Balancer {
    /// Listens on `address` in front of these servers, none of which has to be running yet.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(crate) async fn start(address: SocketAddr, servers: &[SocketAddr]) -> Result<Self> {
        install_crypto_provider();
        let cannot = |source| Error::Spawn { program: format!("the balancer on {address}"), source };
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let servers: Vec<Arc<Server>> = servers
            .iter()
            .map(|&address| Arc::new(Server { address, ready: watch::Sender::new(false) }))
            .collect();
        let mut tasks = JoinSet::new();
        for server in &servers {
            tasks.spawn(Arc::clone(server).follow(client(server.address)?));
        }
        tasks.spawn(serve(listener, servers));
        Ok(Self { tasks })
    }

    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// A client for `/readyz` alone, which needs no credentials. The server's certificate is not verified: kubeadm creates
/// the CA only later.
fn client(address: SocketAddr) -> Result<Client> {
    let url = format!("https://{address}");
    let uri = url.parse().map_err(|error| Error::Options(format!("{url} is no URL: {error}")))?;
    let mut config = kube::Config::new(uri);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    Client::try_from(config).map_err(Error::kube(format!("make a client for {url}")))
}

impl Server {
    /// Keeps `ready` up to date.
    async fn follow(self: Arc<Self>, client: Client) {
        let mut missed = 0;
        loop {
            let good = matches!(tokio::time::timeout(ASK_LIMIT, probe(&client)).await, Ok(Ok(())));
            missed = if good { 0 } else { missed + 1 };
            let ready = good || (missed < OUT_AFTER && *self.ready.borrow());
            if self.ready.send_if_modified(|now| std::mem::replace(now, ready) != ready) {
                tracing::debug!(server = %self.address, ready, "balancer");
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Connects to the server; `None` if it does not accept the connection.
    async fn connect(&self) -> Option<TcpStream> {
        tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(self.address)).await.ok()?.ok()
    }
}

async fn serve(listener: TcpListener, servers: Vec<Arc<Server>>) {
    let (servers, next) = (Arc::new(servers), Arc::new(AtomicUsize::new(0)));
    // All connections are closed when this task ends.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((from, _)) => {
                connections.spawn(pass(from, Arc::clone(&servers), next.fetch_add(1, Ordering::Relaxed)));
            }
            Err(error) => {
                tracing::warn!(%error, "the balancer cannot take a connection");
                tokio::time::sleep(ASK_EVERY).await;
            }
        }
    }
}

/// Forwards one connection to the first ready server, counted from `first`. If none is ready, the connection is closed.
async fn pass(mut from: TcpStream, servers: Arc<Vec<Arc<Server>>>, first: usize) {
    for server in servers.iter().cycle().skip(first % servers.len().max(1)).take(servers.len()) {
        let mut ready = server.ready.subscribe();
        if !*ready.borrow_and_update() {
            continue;
        }
        let Some(mut to) = server.connect().await else { continue };
        tokio::select! {
            _done = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
            _out = ready.wait_for(|ready| !*ready) => {}
        }
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control_plane::certs::Authority;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

    /// A fake API server: it speaks TLS and answers `/readyz` with the code in `status`. A connection that does not
    /// begin with TLS gets the server's name and is held open.
    async fn server(name: &'static str, status: watch::Receiver<u16>) -> SocketAddr {
        install_crypto_provider();
        let pair = Authority::new().unwrap().server("x", &["127.0.0.1".parse().unwrap()], &[]).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (acceptor, status) = (acceptor.clone(), status.clone());
                tokio::spawn(async move {
                    let mut first = [0];
                    stream.peek(&mut first).await.unwrap();
                    if first[0] != 0x16 {
                        stream.write_all(name.as_bytes()).await.unwrap();
                        let _end = stream.read_to_end(&mut vec![]).await;
                        return;
                    }
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut request = [0; 4096];
                    while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                        let answer =
                            format!("HTTP/1.1 {} x\r\ncontent-length: 2\r\n\r\nok", *status.borrow());
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    /// Opens a connection; returns the name of the server that answered, and the connection.
    async fn ask(balancer: SocketAddr) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(balancer).await.unwrap();
        stream.write_all(b"?").await.unwrap();
        let mut name = [0];
        let read = stream.read(&mut name).await.unwrap_or_default();
        (String::from_utf8_lossy(&name[..read]).into_owned(), stream)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn connections_go_to_servers_that_are_ready_and_leave_those_that_are_not() {
        let (a_status, a_seen) = watch::channel(500);
        let (b_status, b_seen) = watch::channel(500);
        let servers = [server("a", a_seen).await, server("b", b_seen).await];
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let balancer = Balancer::start(address, &servers).await.unwrap();
        assert_eq!(ask(address).await.0, "", "nobody is ready");

        let until = async |want: &[&str]| {
            let start = std::time::Instant::now();
            loop {
                let names = [ask(address).await.0, ask(address).await.0];
                if want.iter().all(|name| names.iter().any(|found| found == name))
                    && names.iter().all(|name| want.contains(&name.as_str()))
                {
                    return;
                }
                assert!(start.elapsed() < Duration::from_secs(60), "{names:?}, not {want:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        a_status.send(200).unwrap();
        until(&["a"]).await;
        b_status.send(200).unwrap();
        until(&["a", "b"]).await;

        let held = loop {
            let (name, stream) = ask(address).await;
            if name == "a" {
                break stream;
            }
        };
        a_status.send(500).unwrap();
        let mut held = held;
        let mut rest = vec![];
        let cut = tokio::time::timeout(Duration::from_secs(60), held.read_to_end(&mut rest)).await;
        assert!(cut.is_ok(), "a connection to a server that ends is held");
        until(&["b"]).await;
        balancer.stop().await;
        assert!(TcpStream::connect(address).await.is_err());
    }
}
