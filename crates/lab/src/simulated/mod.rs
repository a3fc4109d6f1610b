//! A simulated node: our daemon on a folder that takes the place of a machine, with a fake systemd and a fake
//! kubelet. It needs no root, and thousands fit in one process.
//!
//! Flow: the daemon runs until it has begun a reboot → the Node goes NotReady → the fake systemd begins another boot →
//! the Node is Ready again under a new boot id → the daemon runs again. One watch of all Nodes serves all daemons, and
//! all followers.
//!
//! Not here: what the daemon does. It is the product's own crate, started through the same entry point as `mco daemon`.

pub(crate) mod fake_kubelet;
pub(crate) mod fake_pods;
pub(crate) mod fleet_api;
mod fleet_objects;
pub(crate) mod node_spec;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The config of a node that has joined and has not been sent to its pool's config yet.
pub use daemon::protocol::EMPTY_CONFIG;
use daemon::protocol::NodeFacts;
use daemon::{AgentOptions, Exit, NodeUpdates, run_with};
use futures::StreamExt;
use host::fault::NoFaults;
use host::{FakeSystemd, Host, Options, Root, Unsupported};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::simulated::fake_kubelet::{BACKOFF, FakeKubelet};
use crate::system::process::lock;

/// How long a daemon may take to finish its current step.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A change that a follower gets: the node's name, and its current facts; `None` if it was deleted.
pub type NodeNews = (String, Option<NodeFacts>);

/// One watch of all Nodes for all simulated nodes of a process: with one watch each, a benchmark would measure the
/// watches.
#[derive(Debug)]
pub(crate) struct NodeFeeds {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    feeds: Mutex<HashMap<String, watch::Sender<Option<NodeFacts>>>>,
    followers: Mutex<Vec<mpsc::UnboundedSender<NodeNews>>>,
}

impl Shared {
    /// Sends a change to all followers, and drops those that are gone.
    fn tell(&self, name: &str, facts: Option<&NodeFacts>) {
        lock(&self.followers).retain(|f| f.send((name.to_owned(), facts.cloned())).is_ok());
    }
}

impl NodeFeeds {
    pub(crate) fn start(client: Client) -> Self {
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn(pump(client, Arc::clone(&shared)));
        Self { shared, task }
    }

    /// The current state of each node, and then every change of any node.
    pub(crate) fn follow(&self) -> mpsc::UnboundedReceiver<NodeNews> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let feeds = lock(&self.shared.feeds);
        for (name, feed) in feeds.iter() {
            // Cannot fail: the receiver is still in scope.
            let _ = sender.send((name.clone(), feed.borrow().clone()));
        }
        lock(&self.shared.followers).push(sender);
        receiver
    }

    /// The feed of one node. Ask for it before the Node is created.
    pub(crate) fn feed(&self, name: &str) -> NodeUpdates {
        lock(&self.shared.feeds).entry(name.to_owned()).or_insert_with(|| watch::channel(None).0).subscribe()
    }
}

impl Drop for NodeFeeds {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pump(client: Client, shared: Arc<Shared>) {
    let events = watcher(Api::<Node>::all(client), watcher::Config::default()).backoff(BACKOFF.series());
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let (name, facts) = match event {
            Ok(watcher::Event::InitApply(node) | watcher::Event::Apply(node)) => {
                (node.name_any(), Some(NodeFacts::of(&node)))
            }
            Ok(watcher::Event::Delete(node)) => (node.name_any(), None),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => continue,
            Err(error) => {
                tracing::debug!(%error, "watching Nodes");
                continue;
            }
        };
        let feeds = lock(&shared.feeds);
        shared.tell(&name, facts.as_ref());
        if let Some(feed) = feeds.get(&name) {
            feed.send_if_modified(|old| {
                // Heartbeats change only the resource version.
                let news = match (old.as_ref(), facts.as_ref()) {
                    (Some(old), Some(new)) => {
                        NodeFacts { resource_version: new.resource_version.clone(), ..old.clone() } != *new
                    }
                    (None, None) => false,
                    _ => true,
                };
                *old = facts;
                news
            });
        }
    }
}

/// What all simulated nodes of a lab have in common.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedSetup {
    /// How long a reboot takes.
    pub(crate) down: Duration,
}

/// A running simulated node.
#[derive(Debug)]
pub(crate) struct SimulatedNode {
    kubelet: Arc<FakeKubelet>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl SimulatedNode {
    /// Creates the folder and runs the daemon on it.
    pub(crate) fn start(
        client: Client,
        root: &Path,
        kubelet: Arc<FakeKubelet>,
        feed: NodeUpdates,
        setup: SimulatedSetup,
    ) -> Result<Self> {
        make_tree(root)?;
        let stop = CancellationToken::new();
        let life = Life {
            client,
            root: root.to_owned(),
            kubelet: Arc::clone(&kubelet),
            feed,
            setup,
            stop: stop.clone(),
        };
        let task = tokio::spawn(life.run());
        Ok(Self { kubelet, stop, task: Mutex::new(Some(task)) })
    }

    pub(crate) fn kubelet(&self) -> &FakeKubelet {
        &self.kubelet
    }

    /// Stops the daemon after its current step.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        let task = lock(&self.task).take();
        if let Some(mut task) = task
            && tokio::time::timeout(STOP_LIMIT, &mut task).await.is_err()
        {
            tracing::warn!(node = self.kubelet.name(), "the daemon does not stop");
            task.abort();
        }
    }
}

impl Drop for SimulatedNode {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

struct Life {
    client: Client,
    root: std::path::PathBuf,
    kubelet: Arc<FakeKubelet>,
    feed: NodeUpdates,
    setup: SimulatedSetup,
    stop: CancellationToken,
}

impl Life {
    async fn run(self) {
        let mut failures = 0_u32;
        while !self.stop.is_cancelled() {
            match self.boot().await {
                Ok(Exit::Stopped) => return,
                Ok(Exit::Rebooting) => failures = 0,
                Err(error) => {
                    failures += 1;
                    tracing::warn!(node = self.kubelet.name(), %error, "simulated node");
                    let waited = self
                        .stop
                        .run_until_cancelled(tokio::time::sleep(BACKOFF.delay(failures.saturating_sub(1))));
                    if waited.await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// One boot, until the daemon is stopped, or has begun a reboot that is then completed.
    async fn boot(&self) -> std::result::Result<Exit, String> {
        let text = |error: &(dyn std::error::Error + 'static)| client::chain(error);
        let options = Options { sync: false, owners: false };
        let root = Root::open_with(&self.root, options, Arc::new(NoFaults)).map_err(|error| text(&error))?;
        let mut systemd = FakeSystemd::new(&root);
        let host = Host::new(root, Box::new(systemd.clone()), Box::new(Unsupported::default()));
        let parts =
            AgentOptions { updates: Some(self.feed.clone()), ..AgentOptions::new(self.kubelet.name(), host) };
        let exit =
            run_with(self.client.clone(), parts, self.stop.clone()).await.map_err(|error| text(&error))?;
        if exit == Exit::Rebooting {
            // If the Node was deleted, its state can never be reported. So the end of the lab does not wait for the
            // reboot.
            let Some(done) = self.stop.run_until_cancelled(self.reboot(&mut systemd)).await else {
                return Ok(Exit::Stopped);
            };
            done.map_err(|error| text(&*error))?;
        }
        Ok(exit)
    }

    /// Takes the Node down, completes the reboot in the fake systemd, and brings the Node up again.
    async fn reboot(
        &self,
        systemd: &mut FakeSystemd,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.kubelet.set_down("the node is shutting down");
        self.kubelet.settled().await?;
        tokio::time::sleep(self.setup.down).await;
        systemd.complete_reboot()?;
        self.kubelet.set_up(&boot_id(systemd.boots()?));
        self.kubelet.settled().await?;
        Ok(())
    }
}

/// The boot id of boot number `boots`, for both the kubelet and the fake systemd: the daemon waits until its Node shows
/// the id of the current boot.
pub(crate) fn boot_id(boots: u64) -> String {
    format!("boot-{boots}")
}

/// The minimum that our daemon expects of a machine: users, an OS, a folder for units.
fn make_tree(root: &Path) -> Result<()> {
    for dir in [
        "etc/systemd/system",
        "home/core",
        "opt",
        "run",
        "srv",
        "tmp",
        "usr/lib/systemd/system",
        "usr/local/bin",
        "var/lib",
        "var/home",
        "var/roothome",
    ] {
        let path = root.join(dir);
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
    }
    for (file, content) in [
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n"),
        ("etc/group", "root:x:0:\ncore:x:1000:\n"),
        ("etc/shadow", "root:*:20000:0:99999:7:::\ncore:!:20000:0:99999:7:::\n"),
        ("etc/os-release", "ID=debian\nVERSION_ID=12\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
    ] {
        let path = root.join(file);
        fs::write(&path, content).map_err(Error::io("write", &path))?;
    }
    Ok(())
}
