//! Watches the cluster's ControllerConfig and writes its certificates to the disk, independently of the agent's loop.
//!
//! A failure is retried, and reported by an event and in the log. If a person has to fix it, on this host or in the
//! cluster, the node is degraded until a retry succeeds. An API server that does not answer does not degrade the node.
//! An annotation says which version of the object the host has.

use super::files::{Wanted, put};
use super::kubeconfig_ca::{ca_of, rotation, with_ca};
use crate::cluster::calls::Cluster;
use crate::cluster::node_watch::{NodeUpdates, watch_anew};
use crate::node::Trouble;
use crate::protocol::clock::Moment;
use crate::protocol::{Note, backoff};
use api::events::AgentEvent;
use api::k8s::{ByteString, ConfigMap, Node};
use api::names::{CONTROLLER_CONFIG, NAMESPACE, annotation};
use api::v1::ControllerConfig;
use client::chain;
use client::jitter;
use futures::StreamExt;
use host::{Attributes, DbusSystemd, Root, Systemd};
use jiff::Timestamp;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The bootstrap kubeconfig with which a kubelet requests its credentials, and the kubeconfig that it then uses.
const KUBECONFIGS: [&str; 2] = ["/etc/kubernetes/kubeconfig", "/var/lib/kubelet/kubeconfig"];
/// The kubelet's unit.
const KUBELET: &str = "kubelet.service";
/// The ConfigMap with the API server's CA, and the key in it.
const KUBECONFIG_DATA: (&str, &str) = ("kubeconfig-data", "ca-bundle.crt");
/// Mode and owner of a new kubeconfig, which holds a token.
const SECRET: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };
/// The time limit for reading one object, once in a rotation.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the files are checked for changes by others. Contents are read only if a file changed.
const LOOK: Duration = Duration::from_secs(15);

/// The task that keeps the certificates up to date.
pub(crate) struct Writer {
    client: Client,
    cluster: Cluster,
    node: String,
    root: Root,
    root_mount: PathBuf,
    /// Signals a change of the node's config, which may have overwritten one of the files.
    updates: NodeUpdates,
    /// Whether the kubelet must be restarted to read a CA that is already on the disk.
    restart_owed: bool,
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

/// The parts of the object that are used.
struct Source {
    version: String,
    /// `service-ca-rotate`.
    rotate: String,
    wanted: Wanted,
}

impl Source {
    fn of(object: &ControllerConfig) -> Self {
        let meta = &object.metadata;
        let notes = meta.annotations.as_ref();
        Self {
            version: meta.resource_version.clone().unwrap_or_default(),
            rotate: notes.and_then(|a| a.get(annotation::SERVICE_CA_ROTATE)).cloned().unwrap_or_default(),
            wanted: Wanted::of(&object.spec),
        }
    }
}

impl Writer {
    pub(crate) fn new(
        client: Client,
        node: &str,
        root: Root,
        root_mount: PathBuf,
        updates: NodeUpdates,
    ) -> Self {
        let cluster = Cluster::new(client.clone(), node);
        let node = node.to_owned();
        let trouble = watch::Sender::new(None);
        Self {
            client,
            cluster,
            node,
            root,
            root_mount,
            updates,
            restart_owed: false,
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
                    let now = source.as_ref().map(|s| s.wanted.fingerprints(&self.root));
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
        let (root, wanted) = (self.root.clone(), source.wanted.clone());
        let work = move || {
            let (changed, failed) = wanted.write(&root);
            Ok((changed, failed, wanted.fingerprints(&root)))
        };
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
        if source.rotate == "true" && told.rotation != "true" {
            self.rotate().await?;
        }
        let now = NodeAnnotations { version: source.version.clone(), rotation: source.rotate.clone() };
        if changed.is_empty() && !told.version.is_empty() && told.rotation == now.rotation {
            return Ok(());
        }
        let mut notes =
            BTreeMap::from([(annotation::LAST_SYNCED_CONTROLLER_CONFIG.to_owned(), now.version.clone())]);
        if now.rotation != told.rotation {
            notes.insert(annotation::LAST_OBSERVED_SERVER_CA.to_owned(), now.rotation.clone());
        }
        self.cluster.annotate_from_file(&notes).await.map_err(|e| TaskError::NoAnswer(e.chain()))?;
        self.told = Some(now);
        Ok(())
    }

    /// The annotations on the Node. Read once per process.
    async fn on_the_node(&self) -> Result<NodeAnnotations, String> {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = timeout(api.get_metadata(&self.node)).await?;
        let note = |key: &str| {
            node.metadata.annotations.as_ref().and_then(|a| a.get(key)).cloned().unwrap_or_default()
        };
        Ok(NodeAnnotations {
            version: note(annotation::LAST_SYNCED_CONTROLLER_CONFIG),
            rotation: note(annotation::LAST_OBSERVED_SERVER_CA),
        })
    }

    /// Writes the API server's new CA to the kubeconfigs.
    async fn rotate(&mut self) -> Result<(), TaskError> {
        let (name, key) = KUBECONFIG_DATA;
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let Some(map) = timeout(api.get_opt(name)).await.map_err(TaskError::NoAnswer)? else {
            return Err(TaskError::Failed(format!(
                "ConfigMap {NAMESPACE}/{name} does not exist, but the API server's CA is being rotated; \
                 create it with the new CA under {key}"
            )));
        };
        let Some(bundle) = bundle(&map, key) else {
            return Err(TaskError::Failed(format!(
                "ConfigMap {NAMESPACE}/{name} has no {key}; put the new CA there"
            )));
        };
        let root = self.root.clone();
        let (written, at_once) =
            blocking(move || take_over(&root, &bundle)).await.map_err(TaskError::Failed)?;
        if written.is_empty() {
            return Ok(());
        }
        tracing::info!(files = ?written, at_once, "the kubeconfig now has the API server's new CA");
        if at_once {
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
        let mut systemd = DbusSystemd::new(tokio::runtime::Handle::current(), &self.root_mount);
        blocking(move || {
            let known = systemd.state(KUBELET).map_err(|e| chain(&e))?.is_some();
            if known { systemd.restart(KUBELET).map_err(|e| chain(&e)) } else { Ok(()) }
        })
        .await?;
        tracing::info!("the kubelet was restarted: it has read the API server's new CA");
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
            let note = Note { kind: AgentEvent::CertificatesNotWritten, text };
            self.cluster.tell(&note, &uid, Timestamp::now()).await;
        }
    }
}

/// Writes the CA to the kubeconfigs that lack a part of it. Returns which ones, and whether the kubelet must read it
/// now.
fn take_over(root: &Root, bundle: &[u8]) -> Result<(Vec<String>, bool), String> {
    let read = |path: &str| -> Result<Option<Value>, String> {
        let text = root.text(path).map_err(|e| chain(&e))?;
        // Do not show the parser's message: it could quote a token.
        text.map(|t| api::yaml::from_str(&t).map_err(|_| format!("{path} is not a kubeconfig; repair it")))
            .transpose()
    };
    let (mut written, mut at_once) = (Vec::new(), false);
    for path in KUBECONFIGS {
        let Some(kubeconfig) = read(path)? else { continue };
        // A kubeconfig without CA data names a file, and the kubelet reads the CA from there.
        if ca_of(&kubeconfig).is_empty() {
            continue;
        }
        let Some(rotation) = rotation(bundle, &kubeconfig) else { continue };
        let Some(new) = with_ca(kubeconfig, &rotation.ca) else { continue };
        let text = api::yaml::to_string(&new).map_err(|_| format!("{path} cannot be rewritten"))?;
        tracing::info!(path, certificates = ?rotation.new, "new signers of the API server");
        if put(root, path, text.as_bytes(), SECRET).map_err(|e| chain(&e))? {
            written.push(path.to_owned());
            at_once |= rotation.at_once;
        }
    }
    Ok((written, at_once))
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

async fn timeout<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|e| chain(&e)),
        Err(_) => Err(format!("no answer within {} s", CALL_TIMEOUT.as_secs())),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|e| format!("the work ended abnormally: {e}"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_pem(name: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn both_kubeconfigs_get_the_new_ca_and_a_file_that_is_named_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let options = host::Options { sync: false, owners: false };
        let root = Root::open_with(dir.path(), options, std::sync::Arc::new(host::fault::NoFaults)).unwrap();
        let (old, new) = (mk_pem("old"), mk_pem("service-signer"));
        let data = serde_json::json!(ByteString(old.clone().into_bytes()));
        let text = format!(
            "clusters:\n- name: local\n  cluster:\n    server: https://api\n    certificate-authority-data: {}\n",
            data.as_str().unwrap()
        );
        for path in ["etc/kubernetes", "var/lib/kubelet"] {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
            std::fs::write(dir.path().join(path).join("kubeconfig"), &text).unwrap();
        }
        let both = format!("{old}{new}");
        let (written, at_once) = take_over(&root, both.as_bytes()).unwrap();
        assert_eq!((written, at_once), (KUBECONFIGS.map(str::to_owned).to_vec(), true));
        assert_eq!(take_over(&root, both.as_bytes()).unwrap(), (vec![], false));
        let named = "clusters: [{name: c, cluster: {server: 'https://api', certificate-authority: /ca}}]";
        std::fs::write(dir.path().join("etc/kubernetes/kubeconfig"), named).unwrap();
        assert_eq!(take_over(&root, mk_pem("third").as_bytes()).unwrap().0, [KUBECONFIGS[1]]);
        assert_eq!(std::fs::read_to_string(dir.path().join("etc/kubernetes/kubeconfig")).unwrap(), named);
        std::fs::write(dir.path().join("etc/kubernetes/kubeconfig"), "token: [hush").unwrap();
        let why = take_over(&root, both.as_bytes()).unwrap_err();
        assert!(why.contains(KUBECONFIGS[0]) && !why.contains("hush"), "{why}");
    }

    #[test]
    fn a_bundle_may_be_bytes_base64_or_text() {
        let map = |value: Value| serde_json::from_value::<ConfigMap>(value).unwrap();
        for value in [
            serde_json::json!({"binaryData": {"ca-bundle.crt": "UEVN"}, "data": {"ca-bundle.crt": "other"}}),
            serde_json::json!({"data": {"ca-bundle.crt": "UEVN\n"}}),
        ] {
            assert_eq!(bundle(&map(value), "ca-bundle.crt").unwrap(), b"PEM");
        }
        let text = serde_json::json!({"data": {"ca-bundle.crt": "-----BEGIN"}});
        assert_eq!(bundle(&map(text), "ca-bundle.crt").unwrap(), b"-----BEGIN");
        assert_eq!(bundle(&map(serde_json::json!({})), "ca-bundle.crt"), None);
    }
}
