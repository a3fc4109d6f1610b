//! `cargo xtask demo --keep --dashboard`: it prints an address that answers. Ctrl-C ends the dashboard and leaves the cluster
//! running, until `cargo xtask lab down` takes it down.
//!
//! Not here: what the page shows (`crates/lab/tests/browser`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time limit of each wait.
const LIMIT: Duration = Duration::from_secs(180);

/// This tool, with a data folder of its own.
fn xtask(data: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(args).env("MCO_LAB_DATA", data).stdin(Stdio::null());
    command
}

/// Waits for a line with this text.
fn line(lines: &Receiver<String>, with: &str) -> String {
    let end = Instant::now() + LIMIT;
    loop {
        let line = lines.recv_timeout(end.saturating_duration_since(Instant::now()));
        let line = line.unwrap_or_else(|error| panic!("no line with {with:?}: {error}"));
        println!("{line}");
        if line.contains(with) {
            return line;
        }
    }
}

/// What the server at an address answers to a browser that opens it; `None` if nobody listens there.
fn opened(address: &str) -> Option<String> {
    let (host, path) = address.strip_prefix("http://")?.split_once('/')?;
    let mut stream = TcpStream::connect(host).ok()?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn the_demo_says_where_its_dashboard_is_and_leaves_nothing_of_it() {
    if !lab::require(
        lab::built_mco().is_none().then(|| "the mco program is not built: cargo build -p cli".to_owned()),
    ) {
        return;
    }
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{}", std::process::id()));
    std::fs::create_dir_all(&data).unwrap();
    let mut demo = xtask(&data, &["demo", "--simulated", "--nodes", "1", "--keep", "--dashboard"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (tell, lines) = channel();
    let output = demo.stdout.take().unwrap();
    std::thread::spawn(move || {
        // It ends when the receiver is gone.
        BufReader::new(output).lines().map_while(Result::ok).all(|line| tell.send(line).is_ok())
    });
    let said = line(&lines, "the dashboard: http://");
    let address = said.trim_start_matches("the dashboard: ").to_owned();
    let answer = opened(&address).expect("somebody listens there");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("set-cookie"), "{answer}");
    let said = line(&lines, "the dashboard, until Ctrl-C: ");
    assert!(said.ends_with(&address), "{said}");
    assert!(opened(&address).is_some(), "it goes on after the rollout");

    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = demo.wait().unwrap();
    assert!(ended.success(), "{ended}");
    assert_eq!(opened(&address), None, "the dashboard ends with the demo");

    let down = xtask(&data, &["lab", "down"]).output().unwrap();
    assert!(String::from_utf8_lossy(&down.stdout).contains("clusters taken down: 1"), "{down:?}");
    let left: Vec<_> = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    std::fs::remove_dir(&data).unwrap();
}
