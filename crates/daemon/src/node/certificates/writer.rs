//! Watches the cluster's ControllerConfig and writes its certificates to the disk, independently of the agent's loop.
//!
//! A failure is retried, and reported by an event and in the log. If a person has to fix it, on this host or in the
//! cluster, the node is degraded until a retry succeeds. An API server that does not answer does not degrade the node.
//! An annotation says which version of the object the host has.
//!
//! The API server's CA is read when the agent starts, and then whenever the object says that it was replaced ([`due`]).

use super::files::Wanted;
use super::kubeconfig_files::take_over;
use crate::cluster::calls::Cluster;
use crate::cluster::own_node::{NodeUpdates, watch_anew};
use crate::node::Trouble;
use crate::protocol::clock::Moment;
use crate::protocol::{Note, backoff};
use api::events::AgentEvent;
use api::k8s::{ByteString, ConfigMap, Node};
use api::names::{CONTROLLER_CONFIG, NAMESPACE, annotation, own};
use api::v1::ControllerConfig;
use client::chain;
use client::jitter;
use futures::StreamExt;
use host::{DbusSystemd, Root, Systemd};
use jiff::Timestamp;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The units that are a kubelet and no API server: a restart of the others would take that away too.
const KUBELETS: [&str; 4] =
    ["kubelet.service", "k3s-agent.service", "rke2-agent.service", "k0sworker.service"];
/// The ConfigMap with the API server's CA, and the key in it.
const KUBECONFIG_DATA: (&str, &str) = ("kubeconfig-data", "ca-bundle.crt");

/// How often the files are checked for changes by others. Contents are read only if a file changed.
const LOOK: Duration = Duration::from_secs(15);

/// The host that a [`Writer`] writes to.
pub(crate) struct Place {
    pub(crate) root: Root,
    /// Where `root` is mounted.
    pub(crate) root_mount: PathBuf,
    /// The kubeconfigs that must trust the API server, as far as they exist. Paths on the host.
    pub(crate) kubeconfigs: Vec<String>,
}

/// The task that keeps the certificates up to date.
pub(crate) struct Writer {
    client: Client,
    cluster: Cluster,
    node: String,
    place: Place,
    /// Signals a change of the node's config, which may have overwritten one of the files.
    updates: NodeUpdates,
    /// Whether the kubelet must be restarted to read a CA that is already on the disk.
    restart_owed: bool,
    /// What the object said when the API server's CA was last read. Kept here and not on the Node, so that a write that
    /// fails hides no rotation. `None`: this process has not read it yet, and a rotation may have come and gone before.
    looked: Option<Rotate>,
    /// A rotation was announced, and the CA is not in the kubeconfigs yet.
    rotation_owed: bool,
    /// The annotations on the Node, once they were read.
    told: Option<NodeAnnotations>,
    /// The fingerprints of the files when they were last correct.
    left: Option<Vec<u64>>,
    /// The problem that a person has to fix.
    trouble: watch::Sender<Option<String>>,
}

/// A task that was not completed.
#[derive(Debug, PartialEq, Eq)]
enum TaskError {
    /// Something on this host or in the cluster is wrong.
    Failed(String),
    /// The API server did not answer properly, which passes.
    NoAnswer(String),
}

impl TaskError {
    fn text(&self) -> &str {
        match self {
            Self::Failed(text) | Self::NoAnswer(text) => text,
        }
    }
}

/// The annotations that are kept up to date here.
#[derive(Clone, Default, PartialEq, Eq)]
struct NodeAnnotations {
    version: String,
    rotation: String,
}

/// What the object says about the API server's CA.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rotate {
    /// `service-ca-rotate`.
    word: String,
    /// When the CA was last replaced. Empty: never, or an administrator replaces it.
    at: String,
}

/// Whether the API server's CA is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// It was read since it was last replaced.
    Nothing,
    /// A rotation may have been missed. The CA need not exist.
    Look,
    /// It is being rotated, so it must exist.
    Rotation,
}

/// Compares what the object says with what it said when the CA was last read. Two rotations within an hour differ in their
/// times, even if the `false` between them was never seen here.
fn due(looked: Option<&Rotate>, now: &Rotate, owed: bool) -> Due {
    let begins = |was: &Rotate| now.word == "true" && was.word != "true";
    match looked {
        // The operator leaves the time, so what is owed stays owed after the hour. An administrator takes back what he asked.
        _ if owed && (now.word == "true" || !now.at.is_empty()) => Due::Rotation,
        _ if owed => Due::Look,
        None if now.word == "true" => Due::Rotation,
        None => Due::Look,
        Some(was) if begins(was) || (now.at != was.at && !now.at.is_empty()) => Due::Rotation,
        Some(_) => Due::Nothing,
    }
}

/// The parts of the object that are used.
struct Source {
    version: String,
    rotate: Rotate,
    wanted: Wanted,
}

impl Source {
    fn of(object: &ControllerConfig) -> Self {
        let meta = &object.metadata;
        let note =
            |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key)).cloned().unwrap_or_default();
        Self {
            version: meta.resource_version.clone().unwrap_or_default(),
            rotate: Rotate { word: note(annotation::SERVICE_CA_ROTATE), at: note(own::SERVER_CA_ROTATED_AT) },
            wanted: Wanted::of(&object.spec),
        }
    }
}

impl Writer {
    pub(crate) fn new(client: Client, node: &str, place: Place, updates: NodeUpdates) -> Self {
        let cluster = Cluster::new(client.clone(), node);
        let node = node.to_owned();
        let trouble = watch::Sender::new(None);
        Self {
            client,
            cluster,
            node,
            place,
            updates,
            restart_owed: false,
            looked: None,
            rotation_owed: false,
            told: None,
            left: None,
            trouble,
        }
    }

    /// The problem that a person has to fix, as it comes and goes.
    pub(crate) fn trouble(&self) -> Trouble {
        self.trouble.subscribe()
    }

    /// Follows the object until it is stopped.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let config = watcher::Config::default().fields(&format!("metadata.name={CONTROLLER_CONFIG}"));
        let api: Api<ControllerConfig> = Api::all(self.client.clone());
        let mut events = std::pin::pin!(watch_anew(api, config));
        let mut source: Option<Source> = None;
        let mut retry: Option<Moment> = None;
        let mut tries = 0;
        let mut in_config = String::new();
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let sleep = async {
                match retry {
                    Some(t) => tokio::time::sleep(crate::protocol::clock::until(t)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                event = events.next() => match event {
                    Some(Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object))) => {
                        let new = Source::of(&object);
                        let same = source.as_ref().is_some_and(|s| s.wanted == new.wanted && s.rotate == new.rotate);
                        source = Some(new);
                        // Most updates of the object change only its status.
                        if same {
                            continue;
                        }
                    }
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => {
                        self.distrusted(&error).await;
                        continue;
                    }
                    None => break,
                },
                changed = self.updates.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let now = self.updates.borrow_and_update().as_ref().map(|n| n.current.clone()).unwrap_or_default();
                    if now == in_config {
                        continue;
                    }
                    in_config = now;
                }
                () = sleep => {}
                _ = look.tick(), if self.left.is_some() => {
                    let now = source.as_ref().map(|s| s.wanted.fingerprints(&self.place.root));
                    if now == self.left {
                        continue;
                    }
                    tracing::warn!("somebody has changed or removed a certificate or secret of the cluster");
                }
            }
            let Some(source) = &source else { continue };
            retry = match self.bring(source).await {
                Ok(()) => {
                    tries = 0;
                    self.trouble.send_if_modified(|t| t.take().is_some());
                    None
                }
                Err(why) => {
                    tries += 1;
                    self.complain(&why, tries).await;
                    Some(Moment::now() + backoff(tries, jitter()))
                }
            };
        }
        // A kubelet that has not read the new CA would reject the API server's certificate.
        if self.restart_owed
            && let Err(why) = self.restart_kubelet().await
        {
            tracing::warn!(%why, "the kubelet has not read the API server's new CA; restart it");
        }
    }

    /// Writes the object's certificates to the disk, and records that on the Node.
    async fn bring(&mut self, source: &Source) -> Result<(), TaskError> {
        for name in &source.wanted.refused {
            tracing::warn!(registry = %name, "ControllerConfig has a CA under a name that is not a \
                registry's; it is left out");
        }
        let (root, wanted) = (self.place.root.clone(), source.wanted.clone());
        let work = move || Ok(wanted.write_and_note(&root));
        let (changed, failed, left) = blocking(work).await.map_err(TaskError::Failed)?;
        // A failure is retried anyway.
        self.left = failed.is_empty().then_some(left);
        if !changed.is_empty() {
            tracing::info!(files = ?changed, version = %source.version, "certificates of the cluster written");
        }
        if !failed.is_empty() {
            let each: Vec<String> = failed.iter().map(|e| chain(e)).collect();
            return Err(TaskError::Failed(each.join("; ")));
        }
        if self.told.is_none() {
            self.told = Some(self.on_the_node().await.map_err(TaskError::NoAnswer)?);
        }
        let told = self.told.clone().unwrap_or_default();
        let looked = self.follow(&source.rotate).await?;
        let now = NodeAnnotations { version: source.version.clone(), rotation: source.rotate.word.clone() };
        if changed.is_empty() && !told.version.is_empty() && told.rotation == now.rotation {
            return looked;
        }
        let mut notes =
            BTreeMap::from([(annotation::LAST_SYNCED_CONTROLLER_CONFIG.to_owned(), now.version.clone())]);
        if now.rotation != told.rotation {
            notes.insert(annotation::LAST_OBSERVED_SERVER_CA.to_owned(), now.rotation.clone());
        }
        self.cluster.annotate_from_file(&notes).await.map_err(|e| TaskError::NoAnswer(e.chain()))?;
        self.told = Some(now);
        looked
    }

    /// Reads the API server's CA if that is due. The outer error: a rotation was not followed, and nothing may say that it
    /// was. The inner one: the look of a new process, which is repeated.
    async fn follow(&mut self, rotate: &Rotate) -> Result<Result<(), TaskError>, TaskError> {
        match due(self.looked.as_ref(), rotate, self.rotation_owed) {
            Due::Nothing => {}
            Due::Look => {
                if let Err(why) = self.rotate(false).await {
                    return Ok(Err(why));
                }
                self.rotation_owed = false;
            }
            Due::Rotation => {
                self.rotation_owed = true;
                self.rotate(true).await?;
                self.rotation_owed = false;
            }
        }
        self.looked = Some(rotate.clone());
        Ok(Ok(()))
    }

    /// The annotations on the Node. Read once per process.
    async fn on_the_node(&self) -> Result<NodeAnnotations, String> {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = ask("get the Node", api.get_metadata(&self.node)).await?;
        let note = |key: &str| {
            node.metadata.annotations.as_ref().and_then(|a| a.get(key)).cloned().unwrap_or_default()
        };
        Ok(NodeAnnotations {
            version: note(annotation::LAST_SYNCED_CONTROLLER_CONFIG),
            rotation: note(annotation::LAST_OBSERVED_SERVER_CA),
        })
    }

    /// Writes the API server's new CA to the kubeconfigs. `asked_for`: it is being rotated, so it must be there.
    async fn rotate(&mut self, asked_for: bool) -> Result<(), TaskError> {
        let (name, key) = KUBECONFIG_DATA;
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let found = ask(&format!("get ConfigMap {NAMESPACE}/{name}"), api.get_opt(name)).await;
        let found = found.map_err(TaskError::NoAnswer)?;
        let Some(map) = found else {
            if !asked_for {
                return Ok(());
            }
            return Err(TaskError::Failed(format!(
                "ConfigMap {NAMESPACE}/{name} does not exist, but the API server's CA is being rotated; \
                 create it with the new CA under {key}"
            )));
        };
        let Some(bundle) = bundle(&map, key) else {
            if !asked_for {
                return Ok(());
            }
            return Err(TaskError::Failed(format!(
                "ConfigMap {NAMESPACE}/{name} has no {key}; put the new CA there"
            )));
        };
        let (root, paths) = (self.place.root.clone(), self.place.kubeconfigs.clone());
        let taken = blocking(move || take_over(&root, &paths, &bundle)).await.map_err(TaskError::Failed)?;
        if asked_for && taken.found.is_empty() {
            return Err(TaskError::Failed(format!(
                "the API server's CA is being rotated, and this host has no kubeconfig at {}, so nothing was written; start \
                 the agent with --kubeconfig and the path of the kubelet's, or give the kubelet the new CA by hand and put a \
                 link at the first of these paths",
                self.place.kubeconfigs.join(", ")
            )));
        }
        for (path, file) in &taken.named {
            tracing::info!(%path, %file, "this kubeconfig names a file with the API server's CA, which its owner renews");
        }
        if taken.written.is_empty() {
            return Ok(());
        }
        tracing::info!(files = ?taken.written, at_once = taken.at_once, "the kubeconfig now has the API server's new CA");
        if taken.at_once {
            return self.restart_kubelet().await.map_err(TaskError::Failed);
        }
        self.restart_owed = true;
        Ok(())
    }

    /// Called when the API server's certificate is not trusted: a kubelet that has not read the new CA does not trust
    /// it either.
    async fn distrusted(&mut self, error: &watcher::Error) {
        let text = chain(error).to_lowercase();
        tracing::warn!(error = %text, "watching ControllerConfig; trying again");
        if self.restart_owed && ["certificate", "x509"].iter().any(|word| text.contains(word)) {
            match self.restart_kubelet().await {
                Ok(()) => {}
                Err(why) => tracing::warn!(%why, "the kubelet must read the API server's new CA; restart it"),
            }
        }
    }

    async fn restart_kubelet(&mut self) -> Result<(), String> {
        let mut systemd = DbusSystemd::new(tokio::runtime::Handle::current(), &self.place.root_mount);
        let known = blocking(move || {
            for unit in KUBELETS {
                if systemd.state(unit).map_err(|e| chain(&e))?.is_some() {
                    systemd.restart(unit).map_err(|e| chain(&e))?;
                    return Ok(Some(unit));
                }
            }
            Ok(None)
        })
        .await?;
        match known {
            Some(unit) => tracing::info!(%unit, "restarted: the kubelet has read the API server's new CA"),
            None => tracing::warn!(
                "this host has none of {}: restart the service that runs the kubelet, it must read the API server's new CA",
                KUBELETS.join(", ")
            ),
        }
        self.restart_owed = false;
        Ok(())
    }

    async fn complain(&self, error: &TaskError, tries: u32) {
        let why = error.text();
        tracing::error!(%why, tries, "not all of the cluster's certificates could be written to this host");
        let text = format!("Certificates could not be written: {why}");
        if matches!(error, TaskError::Failed(_)) {
            self.trouble.send_if_modified(|t| t.replace(text.clone()).as_ref() != Some(&text));
        }
        // One event for each problem: repeated events of the same kind would only be counted.
        if tries == 1 {
            let uid = self.updates.borrow().as_ref().map(|n| n.uid.clone()).unwrap_or_default();
            let note = Note::new(AgentEvent::CertificatesNotWritten, text);
            self.cluster.tell(&note, &uid, Timestamp::now()).await;
        }
    }
}

/// The CA bundle in a ConfigMap: from binary data, from base64 text, or from plain text.
fn bundle(map: &ConfigMap, key: &str) -> Option<Vec<u8>> {
    if let Some(bytes) = map.binary_data.as_ref().and_then(|d| d.get(key)) {
        return Some(bytes.0.clone());
    }
    let text = map.data.as_ref()?.get(key)?;
    let decoded = serde_json::from_value::<ByteString>(Value::String(text.trim().to_owned()));
    Some(decoded.map_or_else(|_| text.clone().into_bytes(), |b| b.0))
}

async fn ask<T>(what: &str, request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    client::call(|| what.to_owned(), request).await.map_err(|error| error.chain())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|e| format!("the work ended abnormally: {e}"))?
}

#[cfg(test)]
mod tests;
