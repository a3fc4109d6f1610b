//! One call to a program on this host by gRPC (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>): HTTP/2 on a
//! Unix socket, one message there and one back. A connection serves many calls at once.
//!
//! Not here: what is said (see `runtime`), when a call is made again, streams of messages, TLS, or other hosts.

use client::chain;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Request};
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;

/// How long a connection may take: the program is on this host.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest answer that is read. It is what other clients of container runtimes read at most.
const LONGEST: usize = 16 * 1024 * 1024;
/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The codes of gRPC that are told apart here.
mod code {
    pub(super) const NOT_FOUND: u32 = 5;
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum GrpcError {
    /// Nobody listens, or the connection broke.
    #[error("the container runtime does not answer: {0}")]
    Connection(String),
    /// No answer in time.
    #[error("the container runtime did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The program refused the call.
    #[error("{message}")]
    Refused {
        /// The code of gRPC.
        code: u32,
        /// The program's words.
        message: String,
    },
    /// The answer cannot be read.
    #[error("the container runtime's answer cannot be read: {0}")]
    Answer(String),
}

impl GrpcError {
    /// There is no such object.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: code::NOT_FOUND, .. })
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Channel {
    send: SendRequest<Cursor<Vec<u8>>>,
    connection: AbortHandle,
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn broken(error: &(impl std::error::Error + 'static)) -> GrpcError {
    GrpcError::Connection(chain(error))
}

impl Channel {
    /// Connects to the socket.
    pub(super) async fn connect(socket: &Path) -> Result<Self, GrpcError> {
        let connecting = async {
            let stream = UnixStream::connect(socket).await.map_err(|e| broken(&e))?;
            let mut settings = h2::client::Builder::new();
            settings.enable_push(false).max_header_list_size(64 * 1024);
            settings.handshake(stream).await.map_err(|e| broken(&e))
        };
        let connected = tokio::time::timeout(CONNECT, connecting).await;
        let (send, connection) = connected.map_err(|_| GrpcError::Timeout(CONNECT))??;
        // It ends with the program's end of the connection, or is aborted with this value.
        let connection = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { send, connection })
    }

    /// Makes a call. Dropping it, and so the end of `limit`, cancels it on the other side.
    pub(super) async fn call(
        &self,
        path: &'static str,
        headers: &[(&'static str, &'static str)],
        message: Vec<u8>,
        limit: Duration,
    ) -> Result<Vec<u8>, GrpcError> {
        let answer = tokio::time::timeout(limit, self.unary(path, headers, message)).await;
        answer.map_err(|_| GrpcError::Timeout(limit))?
    }

    async fn unary(
        &self,
        path: &'static str,
        headers: &[(&'static str, &'static str)],
        message: Vec<u8>,
    ) -> Result<Vec<u8>, GrpcError> {
        let mut request = Request::post(format!("http://localhost{path}"))
            .header("te", "trailers")
            .header("content-type", "application/grpc");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).map_err(|e| GrpcError::Answer(chain(&e)))?;
        let mut send = self.send.clone().ready().await.map_err(|e| broken(&e))?;
        let (answer, mut body) = send.send_request(request, false).map_err(|e| broken(&e))?;
        body.send_data(Cursor::new(framed(&message)), true).map_err(|e| broken(&e))?;
        let (head, mut body) = answer.await.map_err(|e| broken(&e))?.into_parts();
        if !head.status.is_success() {
            return Err(GrpcError::Answer(format!("HTTP status {}", head.status)));
        }
        let mut bytes = vec![];
        while let Some(part) = body.data().await {
            let part = part.map_err(|e| broken(&e))?;
            bytes.extend_from_slice(&part);
            if bytes.len() > LONGEST {
                return Err(GrpcError::Answer(format!("it is longer than {LONGEST} bytes")));
            }
            body.flow_control().release_capacity(part.len()).map_err(|e| broken(&e))?;
        }
        // A refusal without any message has its status in the head.
        let trailers = body.trailers().await.map_err(|e| broken(&e))?.unwrap_or(head.headers);
        refusal(&trailers)?;
        Ok(unframed(&bytes)?.to_vec())
    }
}

/// A message with the bytes that stand before it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut framed = vec![0];
    framed.extend(length.to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// The one message of an answer.
fn unframed(bytes: &[u8]) -> Result<&[u8], GrpcError> {
    let cut = || GrpcError::Answer("it is cut off".to_owned());
    let (prefix, message) = bytes.split_at_checked(PREFIX).ok_or_else(cut)?;
    let [compressed, length @ ..] = prefix else { return Err(cut()) };
    if *compressed != 0 {
        return Err(GrpcError::Answer("it is compressed, which was not asked for".to_owned()));
    }
    let length = length.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    message.get(..length).ok_or_else(cut)
}

/// The refusal that the trailers tell of.
fn refusal(trailers: &HeaderMap<HeaderValue>) -> Result<(), GrpcError> {
    let text = |name: &str| trailers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let Some(status) = text("grpc-status") else {
        return Err(GrpcError::Connection("the connection ended before the answer did".to_owned()));
    };
    match status.parse() {
        Ok(0) => Ok(()),
        Ok(code) => {
            let message = text("grpc-message").map(|m| without_queries(&percent_decoded(&m)));
            let message = message.filter(|m| !m.is_empty());
            Err(GrpcError::Refused { code, message: message.unwrap_or_else(|| format!("gRPC code {code}")) })
        }
        Err(_) => Err(GrpcError::Answer(format!("its status is {status:?}"))),
    }
}

/// A text without the queries of its URLs: those of storage behind registries can be as good as a password.
fn without_queries(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once("://").and_then(|_| rest.split_once('?')) {
        out.push_str(before);
        out.push_str("?…");
        rest = from
            .find(|c: char| c.is_whitespace() || c == '"')
            .and_then(|end| from.get(end..))
            .unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// A text in which other bytes than printable ASCII are written as `%` and two digits.
fn percent_decoded(text: &str) -> String {
    let mut rest = text.as_bytes();
    let mut out = vec![];
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| *first == b'%').and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_framed_and_found_again() {
        assert_eq!(framed(b"ab"), [0, 0, 0, 0, 2, b'a', b'b']);
        assert_eq!(unframed(&framed(b"ab")).unwrap(), b"ab");
        for (bytes, why) in
            [(&[0, 0, 0][..], "cut off"), (&[0, 0, 0, 0, 2, 1], "cut off"), (&[1, 0, 0, 0, 0], "compressed")]
        {
            assert!(unframed(bytes).unwrap_err().to_string().contains(why), "{bytes:?}");
        }
    }

    #[test]
    fn a_signed_address_is_not_shown() {
        let text = "Get \"https://s3.example.com/x?X-Amz-Signature=secret\": EOF; https://a/b?c=d e";
        assert_eq!(without_queries(text), "Get \"https://s3.example.com/x?…\": EOF; https://a/b?… e");
        assert_eq!(without_queries("is it there? no"), "is it there? no");
    }

    #[test]
    fn a_refusal_is_told_in_the_programs_words() {
        let trailers = |all: &[(&'static str, &'static str)]| {
            all.iter().map(|(k, v)| (http::HeaderName::from_static(k), HeaderValue::from_static(v))).collect()
        };
        assert_eq!(refusal(&trailers(&[("grpc-status", "0")])), Ok(()));
        let refused =
            refusal(&trailers(&[("grpc-status", "5"), ("grpc-message", "no %C3%A4 100% here")])).unwrap_err();
        assert!(refused.is_not_found());
        assert_eq!(refused.to_string(), "no ä 100% here");
        assert!(matches!(refusal(&trailers(&[])), Err(GrpcError::Connection(_))));
        assert!(matches!(refusal(&trailers(&[("grpc-status", "x")])), Err(GrpcError::Answer(_))));
    }
}
