//! Watches the cluster's ControllerConfig and writes its certificates to the disk, independently of the agent's loop.
//!
//! A failure is retried, and reported by an event and in the log. If a person has to fix it, on this host or in the
//! cluster, the node is degraded until a retry succeeds. An API server that does not answer does not degrade the node.
//! An annotation says which version of the object the host has.
//!
//! The API server's CA is read when the agent starts, and then whenever the object says that it was replaced (see
//! `rotation`).

mod rotation;

use super::files::CertificateFiles;
use crate::cluster::calls::Cluster;
use crate::cluster::own_node::{NodeUpdates, watch_anew};
use crate::node::HostTrouble;
use crate::protocol::clock::Moment;
use crate::protocol::{AgentNote, backoff};
use api::events::AgentEvent;
use api::k8s::Node;
use api::names::{CONTROLLER_CONFIG, annotation, own};
use api::v1::ControllerConfig;
use client::chain;
use client::jitter;
use futures::StreamExt;
use host::Root;
use jiff::Timestamp;
use kube::runtime::watcher;
use kube::{Api, Client};
use rotation::{CaRotation, FailedRestart};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often the files are checked for changes by others. Contents are read only if a file changed.
const CHECK_PERIOD: Duration = Duration::from_secs(15);

/// The host that a [`Writer`] writes to.
pub(crate) struct CertificateHost {
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
    place: CertificateHost,
    /// Signals a change of the node's config, which may have overwritten one of the files.
    updates: NodeUpdates,
    /// Whether the kubelet must be restarted before long to read a CA that is already on the disk. What cannot wait is on the disk,
    /// too ([`host::paths::KUBELET_RESTART`]).
    restart_owed: bool,
    /// The last restart for a CA that cannot wait, if it failed.
    restart_failed: Option<FailedRestart>,
    /// What the object said when the API server's CA was last read. Kept here and not on the Node, so that a write that
    /// fails hides no rotation. `None`: this process has not read it yet, and a rotation may have come and gone before.
    ca_read_for: Option<CaRotation>,
    /// A rotation was announced, and the CA is not in the kubeconfigs yet.
    rotation_owed: bool,
    /// The annotations on the Node, once they were read. They are read again from a Node that is registered again.
    reported: Option<NodeAnnotations>,
    /// The fingerprints of the files when they were last correct.
    written: Option<Vec<u64>>,
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
    /// The UID of the Node that has them.
    uid: String,
    version: String,
    rotation: String,
}

/// The parts of the object that are used.
struct Source {
    version: String,
    rotate: CaRotation,
    wanted: CertificateFiles,
}

impl Source {
    fn of(object: &ControllerConfig) -> Self {
        let meta = &object.metadata;
        let note =
            |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key)).cloned().unwrap_or_default();
        Self {
            version: meta.resource_version.clone().unwrap_or_default(),
            rotate: CaRotation {
                word: note(annotation::SERVICE_CA_ROTATE),
                at: note(own::SERVER_CA_ROTATED_AT),
            },
            wanted: CertificateFiles::of(&object.spec),
        }
    }
}

impl Writer {
    pub(crate) fn new(client: Client, node: &str, place: CertificateHost, updates: NodeUpdates) -> Self {
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
            restart_failed: None,
            ca_read_for: None,
            rotation_owed: false,
            reported: None,
            written: None,
            trouble,
        }
    }

    /// The problem that a person has to fix, as it comes and goes.
    pub(crate) fn trouble(&self) -> HostTrouble {
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
        let mut seen = (String::new(), String::new());
        let mut check = tokio::time::interval(CHECK_PERIOD);
        check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
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
                        self.watch_failed(&error).await;
                        continue;
                    }
                    None => break,
                },
                changed = self.updates.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let now = self.updates.borrow_and_update().as_ref().map(|n| (n.uid.clone(), n.current.clone()));
                    let Some(now) = now.filter(|now| *now != seen) else { continue };
                    seen = now;
                }
                () = sleep => {}
                _ = check.tick(), if self.written.is_some() => {
                    let now = source.as_ref().map(|s| s.wanted.fingerprints(&self.place.root));
                    if now == self.written {
                        continue;
                    }
                    tracing::warn!("somebody has changed or removed a certificate or secret of the cluster");
                }
            }
            let Some(source) = &source else { continue };
            retry = match self.write_changed(source).await {
                Ok(()) => {
                    tries = 0;
                    self.trouble.send_if_modified(|t| t.take().is_some());
                    None
                }
                Err(why) => {
                    tries += 1;
                    self.report_failure(&why, tries).await;
                    Some(Moment::now() + backoff(tries, jitter()))
                }
            };
        }
        // A kubelet that has not read the new CA would reject the API server's certificate.
        if (self.restart_owed || self.must_restart_kubelet().unwrap_or_default())
            && let Err(why) = self.restart_kubelet().await
        {
            tracing::warn!(%why, "the kubelet has not read the API server's new CA; restart it");
        }
    }

    /// Writes the object's certificates to the disk, and records that on the Node.
    async fn write_changed(&mut self, source: &Source) -> Result<(), TaskError> {
        for name in &source.wanted.refused {
            tracing::warn!(registry = %name, "ControllerConfig has a CA under a name that is not a \
                registry's; it is left out");
        }
        let (root, wanted) = (self.place.root.clone(), source.wanted.clone());
        let work = move || Ok(wanted.write_and_note(&root));
        let (changed, failed, left) = blocking(work).await.map_err(TaskError::Failed)?;
        // A failure is retried anyway.
        self.written = failed.is_empty().then_some(left);
        if !changed.is_empty() {
            tracing::info!(files = ?changed, version = %source.version, "certificates of the cluster written");
        }
        if !failed.is_empty() {
            let each: Vec<String> = failed.iter().map(|e| chain(e)).collect();
            return Err(TaskError::Failed(each.join("; ")));
        }
        let uid = self.node_uid();
        let reported = match self.reported.clone().filter(|reported| uid.is_empty() || reported.uid == uid) {
            Some(reported) => reported,
            None => self.on_the_node().await.map_err(TaskError::NoAnswer)?,
        };
        self.reported = Some(reported.clone());
        let looked = self.follow(&source.rotate).await?;
        let now = NodeAnnotations {
            uid: reported.uid.clone(),
            version: source.version.clone(),
            rotation: source.rotate.word.clone(),
        };
        if changed.is_empty() && !reported.version.is_empty() && reported.rotation == now.rotation {
            return looked;
        }
        let mut notes =
            BTreeMap::from([(annotation::LAST_SYNCED_CONTROLLER_CONFIG.to_owned(), now.version.clone())]);
        if now.rotation != reported.rotation {
            notes.insert(annotation::LAST_OBSERVED_SERVER_CA.to_owned(), now.rotation.clone());
        }
        self.cluster.describe_host(&notes).await.map_err(|e| TaskError::NoAnswer(e.chain()))?;
        self.reported = Some(now);
        looked
    }

    /// The UID of the Node as the watch shows it. Empty: it shows none.
    fn node_uid(&self) -> String {
        self.updates.borrow().as_ref().map(|n| n.uid.clone()).unwrap_or_default()
    }

    /// The annotations on the Node. Read once per process and Node.
    async fn on_the_node(&self) -> Result<NodeAnnotations, String> {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = ask("get the Node", api.get_metadata(&self.node)).await?;
        let note = |key: &str| {
            node.metadata.annotations.as_ref().and_then(|a| a.get(key)).cloned().unwrap_or_default()
        };
        Ok(NodeAnnotations {
            uid: node.metadata.uid.clone().unwrap_or_default(),
            version: note(annotation::LAST_SYNCED_CONTROLLER_CONFIG),
            rotation: note(annotation::LAST_OBSERVED_SERVER_CA),
        })
    }

    async fn report_failure(&self, error: &TaskError, tries: u32) {
        let why = error.text();
        tracing::error!(%why, tries, "not all of the cluster's certificates could be written to this host");
        let text = format!("Certificates could not be written: {why}");
        if matches!(error, TaskError::Failed(_)) {
            self.trouble.send_if_modified(|t| t.replace(text.clone()).as_ref() != Some(&text));
        }
        // One event for each problem: repeated events of the same kind would only be counted.
        if tries == 1 {
            let uid = self.node_uid();
            let note = AgentNote::new(AgentEvent::CertificatesNotWritten, text);
            self.cluster.create_event(&note, &uid, Timestamp::now()).await;
        }
    }
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
