//! A fake registry, for tests: HTTP/1.1 on loopback that says what a function says, also what no registry should say.
//! What a real registry does is tested against one (see the lab's tests of images).

use crate::reference::Digest;
use crate::requests::transport::{Limits, Settings};
use client::Backoff;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    /// Method, path and query.
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn authorization(&self) -> &str {
        self.headers.get("authorization").map_or("", String::as_str)
    }
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct CannedAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The connection ends after so many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// Nothing is ever answered.
    pub(crate) never: bool,
    /// The body goes on for ever.
    pub(crate) endless: bool,
}

impl CannedAnswer {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, body: body.into(), ..Self::default() }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running fake. It ends with the test's runtime.
pub(crate) struct FakeRegistry {
    /// `127.0.0.1:PORT`.
    pub(crate) server: String,
    pub(crate) asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl FakeRegistry {
    pub(crate) async fn start(
        says: impl Fn(&ReceivedRequest) -> CannedAnswer + Send + Sync + 'static,
    ) -> Self {
        Self::serve(None, says).await
    }

    pub(crate) async fn serve(
        tls: Option<TlsAcceptor>,
        says: impl Fn(&ReceivedRequest) -> CannedAnswer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let (asked, says) = (Arc::new(Mutex::new(vec![])), Arc::new(says));
        let log = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, says, tls) = (log.clone(), says.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                answer(stream, &log, says.as_ref()).await;
                            }
                        }
                        None => answer(stream, &log, says.as_ref()).await,
                    }
                });
            }
        });
        Self { server, asked }
    }

    /// The lines of all requests so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|a| a.line.clone()).collect()
    }
}

/// Answers one request. Who speaks TLS to a fake without it is cut off.
async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    log: &Mutex<Vec<ReceivedRequest>>,
    says: &(impl Fn(&ReceivedRequest) -> CannedAnswer + ?Sized),
) {
    let mut read = vec![];
    let head = loop {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.unwrap_or_default();
        read.extend_from_slice(&piece[..count]);
        if count == 0 || read[0] == 0x16 {
            return;
        }
        if let Some(at) = read.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
    };
    let text = String::from_utf8_lossy(&read[..head]).into_owned();
    let mut lines = text.lines();
    let line = lines.next().unwrap().rsplit_once(' ').unwrap().0.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|l| l.split_once(':'))
        .map(|(k, v)| (k.to_lowercase(), v.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |l| l.parse().unwrap());
    let mut body = read[head + 4..].to_vec();
    while body.len() < length {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.unwrap();
        body.extend_from_slice(&piece[..count]);
    }
    let asked = ReceivedRequest { line, headers, body: String::from_utf8_lossy(&body).into_owned() };
    log.lock().unwrap().push(asked.clone());
    let says = says(&asked);
    if says.never {
        std::future::pending::<()>().await;
    }
    let mut text = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", says.status);
    if !says.endless {
        text.push_str(&format!("content-length: {}\r\n", says.body.len()));
    }
    says.headers.iter().for_each(|(k, v)| text.push_str(&format!("{k}: {v}\r\n")));
    text.push_str("\r\n");
    let body = &says.body[..says.cut.unwrap_or(says.body.len())];
    let _ = stream.write_all(&[text.as_bytes(), body].concat()).await;
    while says.endless && stream.write_all(&[b' '; 4096]).await.is_ok() {}
    let _ = stream.shutdown().await;
}

/// What a registry holds: answers by path below `/v2/lab/os/`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Images(pub(crate) BTreeMap<String, Vec<u8>>);

impl Images {
    fn put(&mut self, kind: &str, bytes: Vec<u8>) -> Value {
        let digest = Digest::of(&bytes);
        let part =
            json!({"digest": digest.as_str(), "size": bytes.len(), "mediaType": "application/octet-stream"});
        self.0.insert(format!("{kind}/{digest}"), bytes);
        part
    }

    /// An image: its labels and layers. Returns the digest of its manifest.
    pub(crate) fn image(&mut self, architecture: &str, labels: &Value, layers: &[Vec<u8>]) -> Digest {
        let config = json!({"architecture": architecture, "os": "linux", "created": "2026-11-24T00:00:00Z", "config": {"Labels": labels}});
        let config = self.put("blobs", config.to_string().into_bytes());
        let layers: Vec<Value> = layers.iter().map(|l| self.put("blobs", l.clone())).collect();
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        let part = self.put("manifests", manifest.to_string().into_bytes());
        Digest::parse(part["digest"].as_str().unwrap()).unwrap()
    }

    /// An index of images.
    pub(crate) fn index(&mut self, images: &[(&str, &Digest)]) -> Digest {
        let listed = |(architecture, digest): &(&str, &Digest)| json!({"digest": digest.as_str(), "size": 1, "platform": {"os": "linux", "architecture": architecture}});
        let all: Vec<Value> = images.iter().map(listed).collect();
        let part =
            self.put("manifests", json!({"schemaVersion": 2, "manifests": all}).to_string().into_bytes());
        Digest::parse(part["digest"].as_str().unwrap()).unwrap()
    }

    pub(crate) fn tag(&mut self, tag: &str, digest: &Digest) {
        let bytes = self.0[&format!("manifests/{digest}")].clone();
        self.0.insert(format!("manifests/{tag}"), bytes);
    }

    /// What a registry says that holds these.
    pub(crate) fn says(&self, asked: &ReceivedRequest) -> CannedAnswer {
        let path = asked.line.strip_prefix("GET /v2/lab/os/");
        let bytes = path.and_then(|path| self.0.get(path));
        bytes.map_or_else(
            || CannedAnswer::status(404),
            |b| CannedAnswer::ok(b.clone()).with("Docker-Content-Digest", Digest::of(b).as_str()),
        )
    }
}

/// Settings for fakes: no TLS, quick attempts, and a patience that a stalled machine does not use up.
pub(crate) fn settings() -> Settings {
    let pause = Backoff { first: Duration::from_millis(1), last: Duration::from_millis(5) };
    let long = Duration::from_secs(120);
    let limits =
        Limits { pause, connect: long, silence: long, request: long, whole: long, ..Limits::default() };
    Settings { insecure: true, limits, ..Settings::default() }
}
