//! Polls the kubelet's health endpoint and counts consecutive failures.
//!
//! The agent never acts on the count. It is exported for an alert.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/health-checks/>.

use crate::metrics::Metrics;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How often the endpoint is polled.
const PERIOD: Duration = Duration::from_secs(30);
/// The time limit of one poll.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most that is read of an answer: a status line, headers and a word.
const MAX_ANSWER_BYTES: u64 = 4096;

/// Polls until the task is dropped.
pub(crate) async fn watch(kubelet: SocketAddr, path: String, metrics: Metrics) {
    let mut in_a_row = 0;
    loop {
        let problem = match tokio::time::timeout(TIMEOUT, ask(kubelet, &path)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} s", TIMEOUT.as_secs())),
        };
        if let Some(problem) = problem {
            in_a_row += 1;
            tracing::warn!(%kubelet, in_a_row, %problem, "the kubelet is not healthy");
        } else {
            in_a_row = 0;
        }
        metrics.kubelet_failures(in_a_row);
        tokio::time::sleep(PERIOD).await;
    }
}

async fn ask(kubelet: SocketAddr, path: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(kubelet).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await?;
    check_answer(&answer)
}

fn check_answer(answer: &[u8]) -> std::io::Result<()> {
    let text = String::from_utf8_lossy(answer);
    let line = text.lines().next().unwrap_or_default();
    match line.split_whitespace().nth(1) {
        Some("200") => Ok(()),
        _ => Err(std::io::Error::other(format!("it answers {line:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_is_healthy_only_when_it_answers_ok() {
        assert!(check_answer(b"HTTP/1.1 200 OK\r\n\r\nok").is_ok());
        for bad in [&b"HTTP/1.1 500 Internal Server Error\r\n\r\n"[..], b"", b"SSH-2.0-x\r\n"] {
            assert!(check_answer(bad).is_err());
        }
    }
}
