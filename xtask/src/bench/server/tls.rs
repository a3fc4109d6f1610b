//! The clients: one request on a connection of its own, or a storm of requests, each on a new TCP connection whose TLS
//! session resumes an earlier one. Machines that ask again behave like this.

use anyhow::{Context, bail};
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The number of machines that ask at the same time.
const AT_ONCE: usize = 32;
/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Clients that trust one certificate.
pub(crate) struct Clients(Arc<rustls::ClientConfig>);

/// The result of a storm.
pub(crate) struct Storm {
    /// Connections per second.
    pub(crate) rate: f64,
    /// The share of them that resumed a session.
    pub(crate) resumed: f64,
}

impl Clients {
    pub(crate) fn new(certificate: &[u8]) -> anyhow::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.to_vec().into())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Self(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
    }

    /// Returns the body at a path; any status other than 200 is an error.
    pub(crate) async fn get(&self, port: u16, path: &str) -> anyhow::Result<Vec<u8>> {
        Ok(tokio::time::timeout(PATIENCE, self.ask(port, path)).await??.0)
    }

    async fn ask(&self, port: u16, path: &str) -> anyhow::Result<(Vec<u8>, bool)> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let mut stream = TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await?;
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {}\r\nConnection: close\r\n\r\n",
            super::ACCEPT
        );
        stream.write_all(head.as_bytes()).await?;
        stream.flush().await?;
        let mut answer = vec![];
        // nginx closes the connection without a TLS close_notify alert after the client's last request.
        if let Err(error) = stream.read_to_end(&mut answer).await
            && error.kind() != std::io::ErrorKind::UnexpectedEof
        {
            return Err(error.into());
        }
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").context("no answer")?;
        if !answer.starts_with(b"HTTP/1.1 200") {
            bail!("{}", String::from_utf8_lossy(answer.get(..end).unwrap_or_default()));
        }
        let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        Ok((answer.split_off(end + 4), resumed))
    }

    /// Opens new connections for a while, one after the other on each of [`AT_ONCE`] machines.
    pub(crate) async fn storm(&self, port: u16, during: Duration) -> anyhow::Result<Storm> {
        let begun = Instant::now();
        let machine = async || {
            let (mut count, mut resumed) = (0_u32, 0_u32);
            while begun.elapsed() < during {
                let (_, r) = self.ask(port, "/healthz").await?;
                count += 1;
                resumed += u32::from(r);
            }
            anyhow::Ok((count, resumed))
        };
        let all = futures::future::try_join_all((0..AT_ONCE).map(|_| machine())).await?;
        let count: u32 = all.iter().map(|(c, _)| c).sum();
        let resumed: u32 = all.iter().map(|(_, r)| r).sum();
        Ok(Storm {
            rate: f64::from(count) / begun.elapsed().as_secs_f64(),
            resumed: f64::from(resumed) / f64::from(count.max(1)),
        })
    }
}
