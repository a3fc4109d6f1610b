//! `bench dashboard`: how soon the dashboard shows a large fleet and the changes in it, and what that costs. The cluster is
//! [`lab::FleetApi`], an API server that holds its objects in memory, so that its own speed limits nothing. The dashboard is
//! the real program. Its viewers are HTTP clients, and one browser: Debian's Chromium, headless.
//!
//! Without a graphics card, the browser draws on the same processors that the fleet, the dashboard and this program use. So the
//! frame rate is also measured while nothing changes: it is the most that this computer can draw.
//!
//! What it is not: a test. Whether the page is right is tested in `crates/lab/tests/browser`.

use super::{Bench, Outcome, Samples, high_water_mark};
use anyhow::{Context, bail};
use lab::{Chromium, FleetApi, Folder, Reporter};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The numbers of nodes: of the large fleet, and of the fleet with many viewers.
const LARGE: usize = 5000;
const SMALL: usize = 1000;
/// The number of viewers at the same time.
const VIEWERS: usize = 50;
/// How long nodes keep changing.
const LOAD: Duration = Duration::from_secs(15);
/// The number of single changes that are followed to a viewer.
const CHANGES: usize = 200;
/// The time limit for any answer.
const LIMIT: Duration = Duration::from_secs(60);
/// The ticks of a second in `/proc`: 100 on every Linux, see `USER_HZ` in proc(5).
const TICKS: f64 = 100.0;
/// How long frames are counted while nothing changes.
const STILL: Duration = Duration::from_secs(3);
/// Imports the module that the page already runs: a browser loads each module address once.
const APP: &str = "import(new URL('app.js', document.baseURI).href)";
/// The index of the first node whose changes are followed in the browser: its group is the first on the map, so its cell is
/// visible. Each further one of the group is this many nodes later.
const SEEN: usize = 3;
const SEEN_EVERY: usize = 12;
/// The number of changes that are followed to a cell.
const CELLS: usize = 200;
/// The interval at which the load makes the changes that are due.
const TICK: Duration = Duration::from_millis(20);

pub(super) fn run(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let program = a.program.clone().unwrap_or_else(|| root.join("target/release/mco"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(&program, a.runs))
}

/// A running dashboard, and a signed-in session.
struct Site {
    child: Child,
    /// Host and port.
    host: String,
    /// The base path of all its URLs.
    base: String,
    cookie: String,
}

impl Site {
    async fn start(program: &Path, kubeconfig: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .args(["dashboard", "--no-open", "--kubeconfig"])
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let mut lines = BufReader::new(child.stdout.take().context("it has no output")?).lines();
        let address = tokio::time::timeout(LIMIT, lines.next_line())
            .await??
            .context("mco dashboard printed no address")?;
        let rest = address.strip_prefix("http://").context("the address is not an http:// URL")?;
        let (host, path) = rest.split_once('/').context("the address has no path")?;
        let (base, token) = path.split_once("/?").context("the address has no token")?;
        let mut site = Self { child, host: host.to_owned(), base: format!("/{base}"), cookie: String::new() };
        let signed_in = site.get(&format!("/?{token}")).await?;
        let head = String::from_utf8_lossy(&signed_in).to_lowercase();
        let cookie = head
            .lines()
            .find_map(|line| line.strip_prefix("set-cookie: "))
            .context("the dashboard set no cookie")?;
        site.cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(site)
    }

    async fn ask(&self, path: &str, connection: &str) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.host).await?;
        let Self { host, base, cookie, .. } = self;
        let head = format!(
            "GET {base}{path} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\nConnection: {connection}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        Ok(stream)
    }

    /// The whole response, including its head.
    async fn get(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let mut answer = vec![];
        let mut stream = self.ask(path, "close").await?;
        tokio::time::timeout(LIMIT, stream.read_to_end(&mut answer)).await??;
        if !answer.starts_with(b"HTTP/1.1 200") {
            bail!("{path}: {}", String::from_utf8_lossy(&answer).lines().next().unwrap_or_default());
        }
        Ok(answer)
    }

    /// The snapshot, once it has all nodes, and the event id from which its stream continues.
    async fn snapshot(&self, nodes: usize) -> anyhow::Result<(Vec<u8>, String)> {
        let end = Instant::now() + LIMIT;
        loop {
            let answer = self.get("/api/snapshot").await?;
            let text = String::from_utf8_lossy(&answer);
            let count = text.matches("\"phase\":").count();
            if count >= nodes {
                let id = text.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next());
                let id = id.context("the snapshot has no event id")?.to_owned();
                return Ok((answer, id));
            }
            if Instant::now() > end {
                bail!("the dashboard shows {count} of {nodes} nodes");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The processor time that it has used, in seconds, and its peak memory in MiB.
    fn used(&self) -> anyhow::Result<(f64, f64)> {
        let pid = self.child.id().context("the dashboard has ended")?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name before `)` may contain any character, so fields are counted after it: utime and stime are fields 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: f64 = fields.iter().skip(11).take(2).filter_map(|f| f.parse::<f64>().ok()).sum();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok((ticks / TICKS, high_water_mark(&status)))
    }
}

async fn measure(program: &Path, runs: u32) -> anyhow::Result<Outcome> {
    let folder = Folder::create(&lab::Environment::read())?;
    let kubeconfig = |name: &str| -> PathBuf { folder.path().join(name) };
    let mut figures = Samples::default();

    let fleet = FleetApi::start(LARGE, "").await?;
    fleet.write_kubeconfig(&kubeconfig("large"))?;
    let site = Site::start(program, &kubeconfig("large")).await?;
    site.snapshot(LARGE).await?;
    for _ in 0..runs {
        let start = Instant::now();
        let (answer, _) = site.snapshot(LARGE).await?;
        figures.put("first view of 5,000 nodes (aim: 1000)", "ms", milliseconds(start));
        figures.put("its size", "KB", kilo(answer.len()));
    }
    let mut changes = one_by_one(&fleet, &site).await?;
    changes.sort_by(f64::total_cmp);
    for time in &changes {
        figures.put("a change of a node to a viewer", "ms", *time);
    }
    let p99 = changes.get(changes.len() * 99 / 100).copied().unwrap_or(f64::NAN);
    figures.put("a change of a node to a viewer, p99 (aim: 200)", "ms", p99);
    let bytes = Arc::new(AtomicU64::new(0));
    let (_, id) = site.snapshot(LARGE).await?;
    let viewer = tokio::spawn(count(
        site.ask(&format!("/api/events?after={id}"), "keep-alive").await?,
        Arc::clone(&bytes),
    ));
    let made = load(&fleet, 1000).await;
    #[expect(clippy::cast_precision_loss, reason = "some megabytes")]
    let sent = bytes.load(Ordering::Relaxed) as f64;
    figures.put("changes a second that were made", "1/s", made);
    figures.put("bytes a second to one viewer (aim: 1000)", "KB/s", sent / 1000.0 / LOAD.as_secs_f64());
    viewer.abort();
    drop((site, fleet));

    let fleet = FleetApi::start(LARGE, "").await?;
    fleet.write_kubeconfig(&kubeconfig("seen"))?;
    let site = Site::start(program, &kubeconfig("seen")).await?;
    site.snapshot(LARGE).await?;
    in_browser(&fleet, &site, runs, &mut figures).await?;
    drop((site, fleet));

    let fleet = FleetApi::start(SMALL, "").await?;
    fleet.write_kubeconfig(&kubeconfig("small"))?;
    let site = Site::start(program, &kubeconfig("small")).await?;
    let mut viewers = tokio::task::JoinSet::new();
    for _ in 0..VIEWERS {
        let (_, id) = site.snapshot(SMALL).await?;
        let stream = site.ask(&format!("/api/events?after={id}"), "keep-alive").await?;
        viewers.spawn(count(stream, Arc::default()));
    }
    let ((before, _), start) = (site.used()?, Instant::now());
    let made = load(&fleet, 200).await;
    let (after, memory) = site.used()?;
    figures.put("50 viewers, 1,000 nodes: changes a second", "1/s", made);
    let share = 100.0 * (after - before) / start.elapsed().as_secs_f64();
    figures.put("50 viewers, 1,000 nodes: time of one processor (aim: 100)", "%", share);
    figures.put("50 viewers, 1,000 nodes: memory (aim: 80)", "MiB", memory);
    if viewers.try_join_next().is_some() {
        bail!("a viewer lost its stream");
    }
    Ok(Outcome { versions: vec![], figures: figures.0 })
}

/// Measures the page in a browser.
async fn in_browser(fleet: &FleetApi, site: &Site, runs: u32, figures: &mut Samples) -> anyhow::Result<()> {
    lab::ensure_browser(&Reporter::stderr()).await?;
    let mut browser = Chromium::start()?;
    let address = format!("http://{}{}/", site.host, site.base);
    let (name, value) = site.cookie.split_once('=').context("a cookie")?;
    browser.ask("Network.setCookie", json!({"url": address, "name": name, "value": value}))?;
    // The first run also starts the browser's processes for the page, so it is not counted.
    for run in 0..=runs {
        browser.open("about:blank")?;
        let start = Instant::now();
        browser.open(&address)?;
        let drawn = format!(
            "{APP}.then((m) => m.store.nodes.size === {LARGE} && m.store.connection === 'live' && m.current.cell('node-{SEEN}'))"
        );
        browser.wait(&drawn).await?;
        if run > 0 {
            let what = "browser: from the address to 5,000 cells that are drawn (aim: 1000)";
            figures.put(what, "ms", milliseconds(start));
        }
    }
    let mut times = vec![];
    for n in 0..CELLS {
        times.push(to_cell(fleet, &mut browser, SEEN + SEEN_EVERY * n).await?);
    }
    times.sort_by(f64::total_cmp);
    for time in &times {
        figures.put("browser: a change of a node to its cell", "ms", *time);
    }
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN);
    figures.put("browser: a change of a node to its cell, p99 (aim: 200)", "ms", p99);
    for view in ["fleet", "pools", "pool/worker", "rollout"] {
        browser.value(&format!("location.hash = '#/{view}'"))?;
        browser.wait("!document.querySelector('main').innerText.includes('Reading…')").await?;
        count_frames(&mut browser)?;
        tokio::time::sleep(STILL).await;
        let (rate, _) = frames(&mut browser)?;
        figures.put(format!("browser, {view}: frames a second while nothing changes"), "1/s", rate);
        count_frames(&mut browser)?;
        let made = load(fleet, 1000).await;
        let (rate, longest) = frames(&mut browser)?;
        figures.put(format!("browser, {view}: changes a second that were made"), "1/s", made);
        figures.put(format!("browser, {view}: frames a second meanwhile (aim: 30)"), "1/s", rate);
        figures.put(format!("browser, {view}: the longest frame"), "ms", longest);
    }
    Ok(())
}

/// The time from a change of a node to the frame after the one that has drawn it, in milliseconds.
async fn to_cell(fleet: &FleetApi, browser: &mut Chromium, number: usize) -> anyhow::Result<f64> {
    let node = fleet.nodes().get(number).context("a node")?;
    // The map subscribed to the store's `change` event first, so it has drawn when this listener runs.
    browser.value(&format!(
        "{APP}.then((m) => {{ window.change_ = new Promise((done) => {{ \
         const look = () => {{ if (m.store.nodes.get('{node}').phase !== 'failing') return; \
         m.store.removeEventListener('change', look); \
         requestAnimationFrame(() => setTimeout(() => done(Date.now()))); }}; \
         m.store.addEventListener('change', look); }}); }})"
    ))?;
    let start = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64() * 1000.0;
    fleet.fail(node, "a change");
    let limit = LIMIT.as_millis();
    let end = browser.value(&format!(
        "Promise.race([window.change_, new Promise((done) => setTimeout(() => done(null), {limit}))])"
    ))?;
    let shown = browser.value(&format!("{APP}.then((m) => m.current.cell('{node}')?.phase ?? '')"))?;
    match (end.as_f64(), shown.as_str()) {
        (Some(end), Some("failing")) => Ok(end - start),
        _ => bail!("the cell of {node} did not show its change"),
    }
}

/// Starts to count the page's frames.
fn count_frames(browser: &mut Chromium) -> anyhow::Result<()> {
    browser.value(
        "window.stop_?.(); (() => { let [on, last] = [true, performance.now()]; \
         window.frames_ = { since: last, count: 0, longest: 0 }; window.stop_ = () => { on = false; }; \
         const next = (now) => { if (!on) return; window.frames_.count += 1; \
         window.frames_.longest = Math.max(window.frames_.longest, now - last); last = now; requestAnimationFrame(next); }; \
         requestAnimationFrame(next); })(); 0",
    )?;
    Ok(())
}

/// The frames per second since then, and the longest time between two of them in milliseconds.
fn frames(browser: &mut Chromium) -> anyhow::Result<(f64, f64)> {
    let said = browser.value(
        "[1000 * window.frames_.count / (performance.now() - window.frames_.since), window.frames_.longest]",
    )?;
    let number = |at: usize| said[at].as_f64().context("a number");
    Ok((number(0)?, number(1)?))
}

/// Makes changes one at a time; returns how long each took to reach the viewer's stream, in milliseconds.
async fn one_by_one(fleet: &FleetApi, site: &Site) -> anyhow::Result<Vec<f64>> {
    let (_, id) = site.snapshot(LARGE).await?;
    let mut stream = site.ask(&format!("/api/events?after={id}"), "keep-alive").await?;
    let mut times = vec![];
    let mut buffer = vec![0; 1 << 16];
    for (n, name) in fleet.nodes().iter().enumerate().take(CHANGES) {
        let mark = format!("change number {n} of many");
        let mut seen = vec![];
        let start = Instant::now();
        fleet.fail(name, &mark);
        while !String::from_utf8_lossy(&seen).contains(&mark) {
            let count = tokio::time::timeout(LIMIT, stream.read(&mut buffer)).await??;
            if count == 0 {
                bail!("the stream ended");
            }
            seen.extend_from_slice(buffer.get(..count).unwrap_or_default());
        }
        times.push(milliseconds(start));
    }
    Ok(times)
}

/// Counts the bytes that a stream delivers, until it ends.
async fn count(mut stream: TcpStream, bytes: Arc<AtomicU64>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Changes nodes at this rate for [`LOAD`]; each goes through the steps of an update. Returns the changes made per second.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "some thousands"
)]
async fn load(fleet: &FleetApi, a_second: u32) -> f64 {
    let (start, mut made) = (Instant::now(), 0_usize);
    while start.elapsed() < LOAD {
        let due = (start.elapsed().as_secs_f64() * f64::from(a_second)) as usize;
        while made < due {
            let nodes = fleet.nodes();
            fleet.step(&nodes[made % nodes.len()], made / nodes.len(), "");
            made += 1;
        }
        tokio::time::sleep(TICK).await;
    }
    made as f64 / start.elapsed().as_secs_f64()
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "some megabytes")]
fn kilo(bytes: usize) -> f64 {
    bytes as f64 / 1000.0
}
