//! `bench server`: compares `mco server start` with nginx. Both serve the same bytes on the same machine, with the same
//! certificate and access logs, under the same load, in turns.
//!
//! The cluster behind the server is real (etcd, API server) and has [`POOLS`] pools. Each has its own config, and has
//! been requested once before the load starts. Load: `wrk` for requests on kept connections; [`tls`] for new
//! connections that resume their session. Server, load and cluster share the machine's cores, in the same way for both.

mod cluster;
mod nginx;
pub(crate) mod tls;

use super::{Bench, Outcome, Samples, high_water_mark};
use anyhow::{Context, bail};
use lab::{ControlPlane, ControlPlaneOptions, Environment, Folder, Programs, Reporter};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of pools, each with a config of its own.
const POOLS: usize = 20;
/// The numbers of connections that the load uses.
const CONNECTIONS: [usize; 2] = [64, 1000];
/// How long each load lasts.
const LOAD: Duration = Duration::from_secs(8);
/// The `Accept` header of newer Ignition.
const ACCEPT: &str = "application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1";
/// The time limit for a server's start.
const START: Duration = Duration::from_secs(60);

pub(super) fn run(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(root, a))
}

/// One of the two servers that are compared.
struct Side {
    name: &'static str,
    port: u16,
    /// The server's main process.
    child: Child,
}

impl Drop for Side {
    fn drop(&mut self) {
        // SIGTERM, on which nginx ends its workers itself.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

async fn measure(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    for (program, package) in [("wrk", "wrk"), (nginx::PROGRAM, "nginx-light")] {
        if Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            bail!("{program} is not installed: apt-get install {package}");
        }
    }
    let environment = Environment::read();
    let folder = Arc::new(Folder::create(&environment)?);
    let options = ControlPlaneOptions { controller_manager: false, scheduler: false, ..Default::default() };
    let programs = Programs::new(&environment)?;
    let plane = ControlPlane::start(folder, &programs, &options, &Reporter::stderr()).await?;
    let outcome = beside(root, a, &plane).await;
    plane.stop().await;
    outcome
}

async fn beside(root: &Path, a: &Bench, plane: &ControlPlane) -> anyhow::Result<Outcome> {
    cluster::fill(&plane.client().await?, POOLS).await?;
    let dir = Dir::create()?;
    let certificate = certify(&dir.0)?;
    let mco = mco(root, &dir.0, plane.kubeconfig())?;
    let clients = tls::Clients::new(&certificate)?;
    let body = served(&clients, &mco).await?;
    std::fs::write(dir.0.join("body"), &body)?;
    let nginx = nginx::start(&dir.0, free_port()?)?;
    until_up(&clients, &nginx).await?;
    if clients.get(nginx.port, "/config/pool-0").await? != body {
        bail!("nginx does not serve the same bytes");
    }
    println!("body: {} KB; RSS of mco with {POOLS} pools served: {:.1} MiB", body.len() / 1024, rss(&mco)?);

    let mut figures = Samples::default();
    figures.put("RSS, 20 pools: mco", "MiB", rss(&mco)?);
    for run in 0..a.runs {
        for connections in CONNECTIONS {
            let (mut rates, mut tails) = (BTreeMap::new(), BTreeMap::new());
            for side in in_turn(run, &nginx, &mco) {
                let load = wrk(side, connections).await?;
                let what = |what: &str| format!("{what}, {connections} connections: {}", side.name);
                figures.put(what("requests a second"), "1/s", load.rate);
                figures.put(what("p99"), "ms", load.p99);
                figures.put(what("RSS under load"), "MiB", load.rss);
                rates.insert(side.name, load.rate);
                tails.insert(side.name, load.p99);
            }
            figures.put(
                format!("requests a second, {connections} connections: mco/nginx"),
                "%",
                100.0 * rates["mco"] / rates["nginx"],
            );
            figures.put(
                format!("p99, {connections} connections: mco/nginx"),
                "%",
                100.0 * tails["mco"] / tails["nginx"],
            );
        }
        let mut rates = BTreeMap::new();
        for side in in_turn(run, &nginx, &mco) {
            let load = clients.storm(side.port, LOAD).await?;
            figures.put(format!("new TLS connections a second: {}", side.name), "1/s", load.rate);
            figures.put(format!("of them resumed: {}", side.name), "%", load.resumed * 100.0);
            rates.insert(side.name, load.rate);
        }
        figures.put("new TLS connections a second: mco/nginx", "%", 100.0 * rates["mco"] / rates["nginx"]);
        figures.put("RSS after load: mco", "MiB", rss(&mco)?);
        println!("run {} of {}", run + 1, a.runs);
    }
    let peak = std::fs::read_to_string(format!("/proc/{}/status", mco.child.id()))?;
    figures.put("peak memory: mco", "MiB", high_water_mark(&peak));
    let versions = vec![
        ("nginx".to_owned(), nginx::version()?),
        ("Kubernetes".to_owned(), lab::KUBERNETES_VERSION.to_owned()),
        ("body".to_owned(), format!("{} bytes", body.len())),
    ];
    Ok(Outcome { versions, figures: figures.0 })
}

/// The order alternates from run to run.
fn in_turn<'a>(run: u32, nginx: &'a Side, mco: &'a Side) -> [&'a Side; 2] {
    if run.is_multiple_of(2) { [nginx, mco] } else { [mco, nginx] }
}

/// A temporary folder, removed on drop.
struct Dir(std::path::PathBuf);

impl Dir {
    fn create() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("mco-bench-server-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a key and a certificate that both servers use; returns the certificate.
fn certify(dir: &Path) -> anyhow::Result<Vec<u8>> {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(dir.join("key"), pair.signing_key.serialize_pem())?;
    std::fs::write(dir.join("cert"), pair.cert.pem())?;
    Ok(pair.cert.der().to_vec())
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// `mco server start` on a port of its own, with the `cert` and `key` of that folder and a token that is written into
/// it.
pub(crate) fn start(program: &Path, dir: &Path, kubeconfig: &Path) -> anyhow::Result<(Command, u16)> {
    let token = dir.join("token");
    std::fs::create_dir_all(&token)?;
    std::fs::write(token.join("token"), "bench")?;
    std::fs::write(token.join("ca.crt"), std::fs::read(dir.join("cert"))?)?;
    let port = free_port()?;
    let mut command = Command::new(program);
    command
        .args(["server", "start", "--apiserver-url", "https://api-int.example.com:6443"])
        .args(["--insecure-port", "0", "--metrics-listen", "off", "--bind-address", "127.0.0.1"])
        .args(["--secure-port", &port.to_string()])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--cert")
        .arg(dir.join("cert"))
        .arg("--key")
        .arg(dir.join("key"))
        .arg("--bootstrap-token-dir")
        .arg(&token);
    Ok((command, port))
}

fn mco(root: &Path, dir: &Path, kubeconfig: &Path) -> anyhow::Result<Side> {
    let program = root.join("target/release/mco");
    let (mut command, port) = start(&program, dir, kubeconfig)?;
    let child = command
        .envs(environment_of_its_pod(&program)?)
        .stderr(std::fs::File::create(dir.join("mco.log"))?)
        .spawn()
        .context("cannot run target/release/mco")?;
    Ok(Side { name: "mco", port, child })
}

/// The environment variables that `mco install` sets in the server's pods: some tune the allocator, which the benchmark
/// measures too.
fn environment_of_its_pod(program: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let said = Command::new(program)
        .args(["install", "--dry-run", "-o", "json", "--image", "x", "--api-server-url", "https://x"])
        .output()
        .context("cannot run target/release/mco")?;
    let list: serde_json::Value = serde_json::from_slice(&said.stdout).context("mco install says no JSON")?;
    let objects = list["items"].as_array().context("mco install says no list")?;
    let pods = objects
        .iter()
        .find(|o| o["kind"] == "DaemonSet" && o["metadata"]["name"] == "machine-config-server")
        .context("mco install has no pods of the server")?;
    let env = pods["spec"]["template"]["spec"]["containers"][0]["env"].as_array().into_iter().flatten();
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    Ok(env.map(|e| (text(&e["name"]), text(&e["value"]))).collect())
}

async fn until_up(clients: &tls::Clients, side: &Side) -> anyhow::Result<()> {
    let begun = Instant::now();
    while let Err(error) = clients.get(side.port, "/healthz").await {
        if begun.elapsed() > START {
            return Err(error.context(format!("{} does not come up", side.name)));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Waits until every pool is served, asks for each once, and returns the first one's config.
async fn served(clients: &tls::Clients, mco: &Side) -> anyhow::Result<Vec<u8>> {
    until_up(clients, mco).await?;
    let begun = Instant::now();
    for pool in 0..POOLS {
        while let Err(error) = clients.get(mco.port, &format!("/config/pool-{pool}")).await {
            if begun.elapsed() > START {
                return Err(error.context(format!("pool-{pool} is not served")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    clients.get(mco.port, "/config/pool-0").await
}

/// The current memory of a server and of the processes that it started.
fn rss(side: &Side) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    let own = side.child.id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    for pid in [own.to_string().as_str()].into_iter().chain(children.split_whitespace()) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
        let kib: f64 = line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0.0);
        sum += kib / 1024.0;
    }
    Ok(sum)
}

/// The result of one load.
struct Load {
    rate: f64,
    p99: f64,
    rss: f64,
}

async fn wrk(side: &Side, connections: usize) -> anyhow::Result<Load> {
    let child = tokio::process::Command::new("wrk")
        .args(["-t2", "--latency", "--timeout", "20s", "-H", &format!("Accept: {ACCEPT}")])
        .args(["-c", &connections.to_string(), "-d", &LOAD.as_secs().to_string()])
        .arg(format!("https://localhost:{}/config/pool-0", side.port))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut peak = 0.0_f64;
    let output = child.wait_with_output();
    tokio::pin!(output);
    let output = loop {
        tokio::select! {
            output = &mut output => break output?,
            () = tokio::time::sleep(Duration::from_millis(500)) => peak = peak.max(rss(side)?),
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |name: &str| {
        text.lines()
            .find_map(|l| l.trim().strip_prefix(name))
            .map(str::trim)
            .with_context(|| format!("wrk said:\n{text}"))
    };
    if let Some(line) = text.lines().find(|l| l.contains("Non-2xx") || l.contains("Socket errors")) {
        println!("{}, {connections} connections: {}", side.name, line.trim());
    }
    Ok(Load { rate: field("Requests/sec:")?.parse()?, p99: milliseconds(field("99%")?)?, rss: peak })
}

/// Parses a duration as `wrk` prints it: `12.3us`, `4.56ms`, `1.20s`.
fn milliseconds(text: &str) -> anyhow::Result<f64> {
    let (number, factor) = match (text.strip_suffix("us"), text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(n), _, _) => (n, 0.001),
        (_, Some(n), _) => (n, 1.0),
        (_, _, Some(n)) => (n, 1000.0),
        _ => bail!("{text:?} is not a time of wrk"),
    };
    Ok(number.trim().parse::<f64>()? * factor)
}
