//! A real Prometheus, from Debian's package: unpacked, started, queried.

use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Unpacks it into a folder, with its `promtool`. `false`: it cannot be downloaded, and the test is skipped.
pub(crate) async fn unpacked(folder: &Path) -> bool {
    let failed = lab::unpack_package("prometheus", folder).await.err();
    lab::require(failed.map(|e| format!("Debian's prometheus cannot be had: {}", lab::chain(&e))))
}

/// Starts it in that folder. It ends when the returned process is dropped.
pub(crate) fn start(folder: &Path, listen: SocketAddr, config: &Value) -> Child {
    std::fs::write(folder.join("prometheus.yaml"), config.to_string()).unwrap();
    let log = std::fs::File::create(folder.join("prometheus.log")).unwrap();
    Command::new(folder.join("usr/bin/prometheus"))
        .args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address={listen}"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Runs an instant query; returns its series, or the reason why there are none.
pub(crate) async fn query(prometheus: SocketAddr, expr: &str) -> Result<Vec<Value>, String> {
    let encoded: String = expr
        .bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect();
    let mut stream = TcpStream::connect(prometheus).await.map_err(|e| e.to_string())?;
    let head = format!("GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: prometheus\r\n\r\n");
    stream.write_all(head.as_bytes()).await.map_err(|e| e.to_string())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.map_err(|e| e.to_string())?;
    let body = answer.split_once("\r\n\r\n").ok_or("no body")?.1;
    let body: Value = serde_json::from_str(body).map_err(|e| format!("{e}: {body}"))?;
    if body["status"] != "success" {
        return Err(body.to_string());
    }
    Ok(body["data"]["result"].as_array().cloned().unwrap_or_default())
}
