//! One round: brings the runtime to what the sets want. It executes the plan, and what it cannot do it says.
//!
//! A round may be dropped at any point: the runtime then ends its pulls and keeps what it has fetched of them, and the next round
//! looks at what is there.
//!
//! Not here: when a round is made (see `manager`).

use super::auth::{Keyring, PULL_SECRET};
use super::grpc::GrpcError;
use super::plan::{Facts, Held, Plan, Reserve, Space, Wanted, drop_in, images, plan};
use super::report::{Failures, Outcome};
use super::runtime::{Kind, Runtime, RuntimeError, sockets, stored_name};
use crate::protocol::join::KUBELET_SETTINGS;
use api::k8s::Node;
use client::{Backoff, chain};
use futures::StreamExt;
use futures::future::BoxFuture;
use host::{Attributes, DbusSystemd, FsError, Root, Systemd};
use rollout::view::{Labels, Names};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// Whether this node has, or may have, pins of ours. The file is there before the first pin, and goes with the last one: an agent
/// without it asks the runtime nothing.
pub(super) const RECORD: &str = "/var/lib/machine-config-daemon/pinned-images";
/// CRI-O's list of pinned images. The name is that of OpenShift.
pub(super) const DROP_IN: &str = "/etc/crio/crio.conf.d/50-pinned-images";
/// CRI-O's unit.
const CRIO: &str = "crio.service";
/// Newer versions of kubeadm note the runtime's socket here.
const INSTANCE_SETTINGS: &str = "/var/lib/kubelet/instance-config.yaml";
/// Where kubeadm notes it on the Node.
const SOCKET_NOTE: &str = "kubeadm.alpha.kubernetes.io/cri-socket";
/// Mode and owner of a new file.
const FILE: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };

/// How often an image is tried before its set is reported. Later rounds try it again.
const ATTEMPTS: u32 = 4;
/// The waits between these attempts.
const BETWEEN: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_secs(10) };
/// How often room is looked for while images are pulled. A fast disk takes some gigabytes meanwhile, less than what stays free.
const GUARD: Duration = Duration::from_secs(2);

/// How often it is looked whether the runtime tells the kubelet of new pins, and the wait between two looks.
const LOOKS: u32 = 4;
const HEARD: Duration = Duration::from_millis(500);

/// How far a round is, as it goes on.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) done: AtomicUsize,
    pub(super) all: AtomicUsize,
}

/// Why a round ended early.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Disk(#[from] FsError),
    #[error("{0}")]
    PullSecret(String),
    #[error("CRI-O was not told of its pinned images: {0}")]
    Reload(String),
}

/// The host, as far as images are concerned.
#[derive(Clone)]
pub(super) struct Images {
    pub(super) root: Root,
    pub(super) root_mount: PathBuf,
    /// Has CRI-O read its configuration again.
    pub(super) reload: Reload,
    /// The waits between attempts at an image.
    pub(super) between: Backoff,
}

/// Has a service read its configuration again, on a thread that may wait.
pub(super) type Reload = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Images").field("root_mount", &self.root_mount).finish_non_exhaustive()
    }
}

impl Images {
    /// Those of a real host. Called within the runtime that serves systemd's bus.
    pub(super) fn new(root: Root, root_mount: PathBuf) -> Self {
        let (runtime, mount) = (Handle::current(), root_mount.clone());
        let reload = move || {
            let reloaded = DbusSystemd::new(runtime.clone(), &mount).reload_if_running(CRIO);
            reloaded.map_err(|e| chain(&e))
        };
        Self { root, root_mount, reload: Arc::new(reload), between: BETWEEN }
    }

    /// Whether there may be pins of ours.
    pub(super) fn has_pins(&self) -> bool {
        // What cannot be read may be there.
        !matches!(self.root.text(RECORD), Ok(None))
    }

    /// Notes that there may be pins of ours.
    pub(super) fn note_pins(&self) -> Result<(), FsError> {
        match self.has_pins() {
            true => Ok(()),
            false => {
                self.root.make_parents(RECORD)?;
                self.root.write_bytes(RECORD, b"images of PinnedImageSets are pinned on this node\n", FILE)
            }
        }
    }

    /// Notes that there are none any more.
    pub(super) fn forget_pins(&self) -> Result<(), FsError> {
        self.root.remove(RECORD)
    }

    /// One round.
    pub(super) fn round<'a>(
        &'a self,
        sets: &'a [Wanted],
        node: &'a Node,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Outcome> {
        let missing = images(sets);
        progress.all.store(missing.len(), Ordering::Relaxed);
        progress.done.store(0, Ordering::Relaxed);
        Box::pin(async move {
            match self.try_round(sets, node, progress).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    let is_lost = matches!(error, RoundError::Runtime(RuntimeError::Call(_)));
                    let failures = Failures::All { missing, why: chain(&error) };
                    if is_lost { Outcome::Lost(failures) } else { Outcome::Failed(failures) }
                }
            }
        })
    }

    async fn try_round(
        &self,
        sets: &[Wanted],
        node: &Node,
        progress: &Progress,
    ) -> Result<Outcome, RoundError> {
        let runtime = Runtime::connect(&self.sockets(node)?).await?;
        if runtime.kind == Kind::CriO {
            self.tell_crio(drop_in(sets)).await?;
        }
        let folder = runtime.images_folder().await?;
        let facts = self.facts(&runtime, sets, node, folder.as_deref()).await?;
        let plan = plan(sets, &facts, stored_name);
        let Plan { unpin, pin, pull, held, at_once } = &plan;
        if !plan.is_empty() {
            tracing::info!(
                unpin = unpin.len(),
                pin = pin.len(),
                pull = pull.len(),
                held = held.as_ref().map(tracing::field::display),
                "images of PinnedImageSets"
            );
        }
        let mut failed = BTreeMap::new();
        if runtime.kind == Kind::Containerd {
            for image in unpin {
                runtime.label(image, false).await?;
            }
            for image in pin {
                match runtime.label(image, true).await {
                    Ok(()) => {}
                    // It keeps no other image from being there.
                    Err(error @ RuntimeError::Call(GrpcError::Refused { .. })) => {
                        failed.insert(image.clone(), chain(&error));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        progress.done.store(facts.present.len(), Ordering::Relaxed);
        match held {
            Some(Held::NotReady) => {
                let (done, all) = (facts.present.len(), facts.present.len() + pull.len());
                return Ok(Outcome::Working { done, all, waits: Some(Held::NotReady.to_string()) });
            }
            Some(held) => {
                return Ok(Outcome::Failed(Failures::All { missing: pull.clone(), why: held.to_string() }));
            }
            None => {}
        }
        if !pull.is_empty() {
            match self.pull(&runtime, pull, *at_once, folder.as_deref(), progress).await? {
                Pulled::All => {}
                Pulled::Without(more) => failed.extend(more),
                Pulled::NoSpace(why) => {
                    // What came in before the end is there.
                    let mut missing = vec![];
                    for image in pull {
                        if runtime.held(image).await?.is_none() {
                            missing.push(image.clone());
                        }
                    }
                    return Ok(Outcome::Failed(Failures::All { missing, why }));
                }
            }
        }
        if !failed.is_empty() {
            return Ok(Outcome::Failed(Failures::Images(failed)));
        }
        self.checked(&runtime, sets).await
    }

    /// What is there after a round without a failure.
    async fn checked(&self, runtime: &Runtime, sets: &[Wanted]) -> Result<Outcome, RoundError> {
        let mut untold = images(sets);
        for look in 0..LOOKS {
            let (mut gone, mut left) = (BTreeMap::new(), vec![]);
            for image in untold {
                match runtime.held(&image).await? {
                    None => drop(gone.insert(image, "image removed during sync".to_owned())),
                    Some(held) if held.pinned => {}
                    Some(_) => left.push(image),
                }
            }
            if !gone.is_empty() {
                return Ok(Outcome::Failed(Failures::Images(gone)));
            }
            untold = left;
            if untold.is_empty() {
                break;
            }
            // An agent that ended between the list and the reload told it nothing.
            if look == 0 && runtime.kind == Kind::CriO {
                self.reload_crio().await.map_err(RoundError::Reload)?;
            }
            // containerd's CRI part hears of a label by an event of its other part.
            if look + 1 < LOOKS {
                tokio::time::sleep(HEARD).await;
            }
        }
        let remark = (!untold.is_empty()).then(|| {
            format!(
                "{} does not tell the kubelet that they are pinned, so its garbage collection may remove them, and they are pulled \
                 again; containerd tells it from 1.7.10 and 1.6.25 on",
                runtime.version
            )
        });
        Ok(Outcome::Done { remark })
    }

    fn sockets(&self, node: &Node) -> Result<Vec<PathBuf>, FsError> {
        let mut settings = vec![];
        for path in [INSTANCE_SETTINGS, KUBELET_SETTINGS] {
            settings.extend(self.root.text(path)?);
        }
        let note = node.metadata.annotations.as_ref().and_then(|a| a.get(SOCKET_NOTE));
        let info = node.status.as_ref().and_then(|s| s.node_info.as_ref());
        let runtime = info.map(|i| i.container_runtime_version.as_str()).unwrap_or_default();
        Ok(sockets(&self.root_mount, note.map(String::as_str), &settings, runtime))
    }

    async fn facts(
        &self,
        runtime: &Runtime,
        sets: &[Wanted],
        node: &Node,
        folder: Option<&str>,
    ) -> Result<Facts, RoundError> {
        let mut present = BTreeMap::new();
        for image in images(sets) {
            match runtime.held(&image).await {
                Ok(Some(held)) => drop(present.insert(image, held.pinned)),
                // An image that is refused by its name is missing, and its pull says why.
                Ok(None) | Err(RuntimeError::Call(GrpcError::Refused { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ours = match runtime.kind {
            Kind::Containerd => runtime.ours().await?.into_iter().collect(),
            // Its list is all that there is.
            Kind::CriO => images(sets).iter().map(|image| stored_name(image)).collect(),
        };
        let conditions = || node.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let is_true = |type_: &str| conditions().any(|c| c.type_ == type_ && c.status == "True");
        let labels = Labels::new(node.metadata.labels.as_ref(), &mut Names::default());
        Ok(Facts {
            present,
            ours,
            space: self.space(folder),
            ready: is_true("Ready"),
            disk_pressure: is_true("DiskPressure"),
            control_plane: rollout::is_control_plane(&labels),
        })
    }

    /// Room in the folder of images.
    fn space(&self, folder: Option<&str>) -> Option<Space> {
        let path = self.root_mount.join(folder?.trim_start_matches('/'));
        match rustix::fs::statvfs(&path) {
            Ok(found) => {
                let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
                let settings = self.root.text(KUBELET_SETTINGS).ok().flatten();
                let reserve = Reserve::of(settings.as_deref());
                Some(Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks), reserve })
            }
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "the room for images is not known");
                None
            }
        }
    }

    async fn pull(
        &self,
        runtime: &Runtime,
        wanted: &[String],
        at_once: usize,
        folder: Option<&str>,
        progress: &Progress,
    ) -> Result<Pulled, RoundError> {
        let read = |path: &str| self.root.text(path);
        let ring = Keyring::read(read(PULL_SECRET)?.as_deref()).map_err(RoundError::PullSecret)?;
        // Not a closure over references: the compiler cannot tell that its futures may go to another thread.
        let mut queue = Vec::with_capacity(wanted.len());
        for image in wanted {
            queue.push(self.named(runtime, &ring, image));
        }
        let mut pulls = futures::stream::iter(queue).buffer_unordered(at_once);
        let mut guard = tokio::time::interval(GUARD);
        let mut failed = BTreeMap::new();
        loop {
            tokio::select! {
                pulled = pulls.next() => match pulled {
                    None => break,
                    Some((image, Ok(()))) => {
                        progress.done.fetch_add(1, Ordering::Relaxed);
                        tracing::info!(%image, "pulled and pinned");
                    }
                    Some((_, Err(OneError::Runtime(error)))) if error.is_no_space() => {
                        return Ok(Pulled::NoSpace(error.to_string()));
                    }
                    // Without its connection no other image can be pulled either.
                    Some((_, Err(OneError::Runtime(error)))) if error.is_lost() => return Err(error.into()),
                    Some((image, Err(error))) => {
                        let why = chain(&error);
                        tracing::warn!(%image, %why, "an image of a PinnedImageSet cannot be pulled");
                        failed.insert(image, why);
                    }
                },
                // Pulls that are dropped end.
                _ = guard.tick() => if let Some(space) = self.space(folder).filter(|space| space.is_short()) {
                    return Ok(Pulled::NoSpace(space.to_string()));
                },
            }
        }
        Ok(if failed.is_empty() { Pulled::All } else { Pulled::Without(failed) })
    }

    /// One pull, with the image's name.
    fn named<'a>(
        &'a self,
        runtime: &'a Runtime,
        ring: &'a Keyring,
        image: &'a str,
    ) -> BoxFuture<'a, (String, Result<(), OneError>)> {
        Box::pin(async move { (image.to_owned(), self.pull_one(runtime, ring, image).await) })
    }

    async fn pull_one(&self, runtime: &Runtime, ring: &Keyring, image: &str) -> Result<(), OneError> {
        // The runtime gives these to the image's own registry only; with mirrors it logs in by its own file.
        let credentials = ring.of(image).map_err(OneError::Credentials)?;
        let mut attempt = 0;
        loop {
            match runtime.pull(image, credentials.as_ref()).await {
                Ok(()) => break,
                Err(error) => {
                    attempt += 1;
                    if attempt >= ATTEMPTS || error.is_no_space() || error.is_lost() {
                        return Err(OneError::Runtime(error));
                    }
                    tracing::debug!(%image, error = chain(&error), attempt, "a pull failed and is tried again");
                    tokio::time::sleep(self.between.delay(attempt - 1)).await;
                }
            }
        }
        match runtime.kind {
            Kind::Containerd => runtime.label(image, true).await.map_err(OneError::Runtime),
            Kind::CriO => Ok(()),
        }
    }

    /// Has CRI-O read its list.
    async fn reload_crio(&self) -> Result<(), String> {
        let reload = self.reload.clone();
        tokio::task::spawn_blocking(move || reload()).await.map_err(|e| e.to_string()).and_then(|r| r)
    }

    /// Writes CRI-O's list of pinned images if it differs, and has CRI-O read it.
    async fn tell_crio(&self, wanted: Option<String>) -> Result<(), RoundError> {
        let old = self.root.text(DROP_IN)?;
        if old.as_deref().map(str::trim) == wanted.as_deref().map(str::trim) {
            return Ok(());
        }
        match &wanted {
            Some(text) => {
                self.root.make_parents(DROP_IN)?;
                self.root.write_bytes(DROP_IN, text.as_bytes(), FILE)?;
            }
            None => self.root.remove(DROP_IN)?,
        }
        if let Err(why) = self.reload_crio().await {
            // Otherwise the next round would take it for told.
            match old {
                Some(text) => self.root.write_bytes(DROP_IN, text.as_bytes(), FILE)?,
                None => self.root.remove(DROP_IN)?,
            }
            return Err(RoundError::Reload(why));
        }
        Ok(())
    }
}

/// What came of the pulls.
enum Pulled {
    All,
    Without(BTreeMap<String, String>),
    NoSpace(String),
}

/// Why one image is not there.
#[derive(Debug, thiserror::Error)]
enum OneError {
    #[error(transparent)]
    Runtime(RuntimeError),
    #[error("{0}")]
    Credentials(String),
}
