//! nginx, the server for comparison. It runs in the foreground with a configuration of its own in the benchmark's
//! folder, and is stopped with the benchmark.

use super::Side;
use anyhow::Context;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program's full path: it is not in every user's PATH.
pub(super) const PROGRAM: &str = "/usr/sbin/nginx";

/// nginx as an administrator would set it up for this: one worker per core, sessions resumed by ticket and by cache, an
/// access log, files kept open. A connection is kept for as many requests as the load sends.
fn config(dir: &Path, port: u16) -> String {
    let dir = dir.display();
    format!(
        "daemon off;
user root;
worker_processes auto;
worker_rlimit_nofile 8192;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log;
events {{ worker_connections 4096; }}
http {{
  access_log {dir}/nginx-access.log;
  client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3; uwsgi_temp_path {dir}/t4;
  scgi_temp_path {dir}/t5;
  sendfile on; tcp_nopush on; tcp_nodelay on;
  open_file_cache max=100; open_file_cache_valid 60s;
  keepalive_requests 100000000;
  default_type application/json;
  server {{
    listen 127.0.0.1:{port} ssl backlog=4096;
    ssl_certificate {dir}/cert; ssl_certificate_key {dir}/key;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_session_cache shared:s:10m; ssl_session_tickets on;
    location = /config/pool-0 {{ alias {dir}/body; }}
    location = /healthz {{ return 200; }}
  }}
}}
"
    )
}

pub(super) fn start(dir: &Path, port: u16) -> anyhow::Result<Side> {
    let file = dir.join("nginx.conf");
    std::fs::write(&file, config(dir, port))?;
    let child = Command::new(PROGRAM)
        .arg("-p")
        .arg(dir)
        .arg("-c")
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run nginx")?;
    Ok(Side { name: "nginx", port, child })
}

pub(super) fn version() -> anyhow::Result<String> {
    let output = Command::new(PROGRAM).arg("-v").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    Ok(text.trim().rsplit('/').next().unwrap_or_default().to_owned())
}
