//! A registry that serves what the lab's registry has, and lies about it.
//!
//! Not here: what the agent makes of it (see `refused`).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use lab::Registry;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// What is not true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// Each layer has one other byte, which changes nothing of what is unpacked from it.
    Layers,
    /// A digest names the manifest of another image.
    Manifest,
    /// The image is for another architecture only.
    Architecture,
}

/// The registry. Dropping it ends it.
pub(super) struct LyingRegistry {
    port: u16,
    task: AbortHandle,
}

impl Drop for LyingRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LyingRegistry {
    /// Serves the images of `registry`. `other`: the digest of the manifest that is served instead of others.
    pub(super) async fn start(registry: &Registry, other: &str, lie: Lie) -> Self {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let any = registry.blob("sha256:00");
        let blobs = any.ancestors().nth(3).unwrap().to_owned();
        let shop = Arc::new(Shop { blobs, other: other.to_owned(), lie });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&shop), stream));
            }
        });
        Self { port, task: task.abort_handle() }
    }

    /// The image as machines name it.
    pub(super) fn reference(&self, digest: &str) -> String {
        format!("10.0.2.2:{}/lab/os@{digest}", self.port)
    }
}

struct Shop {
    blobs: PathBuf,
    other: String,
    lie: Lie,
}

impl Shop {
    fn blob(&self, digest: &str) -> Option<Vec<u8>> {
        let sum = digest.strip_prefix("sha256:")?;
        std::fs::read(self.blobs.join(sum.get(..2)?).join(sum).join("data")).ok()
    }

    /// The kind and the bytes of an answer.
    fn answer(&self, path: &str) -> Option<(&'static str, Vec<u8>)> {
        if let Some((_, digest)) = path.split_once("/manifests/") {
            let of_image = "application/vnd.oci.image.manifest.v1+json";
            return match self.lie {
                Lie::Manifest => Some((of_image, self.blob(&self.other)?)),
                Lie::Layers => Some((of_image, self.blob(digest)?)),
                Lie::Architecture => Some((INDEX, index().into_bytes())),
            };
        }
        let Some((_, digest)) = path.split_once("/blobs/") else {
            return Some(("application/json", b"{}".to_vec()));
        };
        let mut bytes = self.blob(digest)?;
        // The tenth byte of gzip's header names the system that it was made on.
        if self.lie == Lie::Layers && bytes.starts_with(&[0x1f, 0x8b]) {
            bytes[9] ^= 1;
        }
        Some(("application/octet-stream", bytes))
    }
}

const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An index with an image of another architecture.
pub(super) fn index() -> String {
    let digest = format!("sha256:{}", "0".repeat(64));
    let image = json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "size": 2, "digest": digest,
        "platform": {"architecture": "s390x", "os": "linux"}});
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [image]}).to_string()
}

async fn serve(shop: Arc<Shop>, stream: TcpStream) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let mut first = String::new();
    stream.read_line(&mut first).await.ok()?;
    let mut line = String::new();
    while stream.read_line(&mut line).await.ok()? > 2 {
        line.clear();
    }
    let mut words = first.split_whitespace();
    let (verb, path) = (words.next()?, words.next()?);
    let (status, (kind, bytes)) = match shop.answer(path) {
        Some(answer) => ("200 OK", answer),
        None => ("404 Not Found", ("application/json", Vec::new())),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        bytes.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    if verb != "HEAD" {
        stream.write_all(&bytes).await.ok()?;
    }
    stream.shutdown().await.ok()
}
