//! A bootstrap server on a free port, and a client that sends exactly the bytes it is given.
#![allow(dead_code, reason = "each test uses its part")]

use anyhow::{Context as _, Result};
use rustls::pki_types::ServerName;
use server::{BootstrapOptions, BootstrapServer};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// The time limit for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Running {
    pub(crate) dir: TempDir,
    pub(crate) addr: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<()>,
    pub(crate) der: Vec<u8>,
}

/// Writes a new key and certificate for `localhost`; returns the certificate.
pub(crate) fn certify(dir: &Path) -> Result<Vec<u8>> {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(dir.join("key"), pair.signing_key.serialize_pem())?;
    std::fs::write(dir.join("cert"), pair.cert.pem())?;
    Ok(pair.cert.der().to_vec())
}

impl Running {
    /// Starts a server for these files (path below the base directory, text).
    pub(crate) async fn start<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
        kubeconfig: &str,
        adjust: impl FnOnce(&mut BootstrapOptions),
    ) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        for (path, text) in files {
            let path = dir.path().join("base").join(path);
            std::fs::create_dir_all(path.parent().context("a file has a folder")?)?;
            std::fs::write(path, text)?;
        }
        std::fs::write(dir.path().join("kubeconfig"), kubeconfig)?;
        let der = certify(dir.path())?;
        let mut options = BootstrapOptions {
            server_basedir: dir.path().join("base"),
            bootstrap_kubeconfig: dir.path().join("kubeconfig"),
            ..BootstrapOptions::default()
        };
        options.listen.cert = dir.path().join("cert");
        options.listen.key = dir.path().join("key");
        options.listen.secure_port = 0;
        options.listen.insecure_port = 0;
        options.listen.bind_address = Some(std::net::Ipv4Addr::LOCALHOST.into());
        adjust(&mut options);
        let server = BootstrapServer::open(options).await?;
        let addr = server.secure_addr()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.run(stop.clone()));
        Ok(Self { dir, addr, stop, task, der })
    }

    /// Connects with a client that trusts only this certificate.
    pub(crate) async fn connect(
        &self,
        adjust: impl FnOnce(&mut rustls::ClientConfig),
    ) -> Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.der.clone().into())?;
        connect(self.addr, client(rustls::DEFAULT_VERSIONS, roots)?, adjust).await
    }

    /// One request on a new connection.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Answer> {
        let stream = self.connect(|_| {}).await?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Answer::to(stream, &head).await
    }

    /// Stops the server and waits for its end.
    pub(crate) async fn finish(self) -> Result<()> {
        self.stop.cancel();
        Ok(tokio::time::timeout(PATIENCE, self.task).await??)
    }
}

pub(crate) fn client(
    versions: &[&'static rustls::SupportedProtocolVersion],
    roots: rustls::RootCertStore,
) -> Result<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

pub(crate) async fn connect(
    addr: SocketAddr,
    config: rustls::ClientConfig,
    adjust: impl FnOnce(&mut rustls::ClientConfig),
) -> Result<TlsStream<TcpStream>> {
    connect_from(std::net::Ipv4Addr::LOCALHOST.into(), addr, config, adjust).await
}

/// Connects from this address, as a machine would.
pub(crate) async fn connect_from(
    from: std::net::IpAddr,
    addr: SocketAddr,
    mut config: rustls::ClientConfig,
    adjust: impl FnOnce(&mut rustls::ClientConfig),
) -> Result<TlsStream<TcpStream>> {
    adjust(&mut config);
    connect_as("localhost", from, addr, config).await
}

/// Connects to a server whose certificate is for this name.
pub(crate) async fn connect_as(
    name: &'static str,
    from: std::net::IpAddr,
    addr: SocketAddr,
    config: rustls::ClientConfig,
) -> Result<TlsStream<TcpStream>> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(from, 0))?;
    let stream = socket.connect(addr).await?;
    let name = ServerName::try_from(name)?;
    Ok(tokio::time::timeout(PATIENCE, TlsConnector::from(Arc::new(config)).connect(name, stream)).await??)
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Sends a request that asks the server to close the connection, and reads the response.
    pub(crate) async fn to(mut stream: TlsStream<TcpStream>, head: &str) -> Result<Self> {
        stream.write_all(head.as_bytes()).await?;
        // Without it the bytes may stay in the TLS layer's buffer when the socket is not ready.
        stream.flush().await?;
        let mut all = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await??;
        Self::read(&all)
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self> {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").context("no end of the head")?;
        let (head, body) = bytes.split_at(end + 4);
        let head = String::from_utf8_lossy(head);
        let mut lines = head.lines();
        let status = lines.next().and_then(|l| l.split(' ').nth(1)).context("no status")?.parse()?;
        let headers =
            lines.filter_map(|l| l.split_once(": ")).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        Ok(Self { status, headers, body: body.to_vec() })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}
