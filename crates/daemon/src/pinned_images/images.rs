//! The images of this host: what every part of a round works with, and why a round ends early.
//!
//! Not here: the round (see `sync`).

use super::runtime::RuntimeError;
use client::{Backoff, chain};
use host::{Attributes, DbusSystemd, FsError, Root, Systemd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::runtime::Handle;

/// Whether this node has, or may have, pins of ours. The file is there before the first pin, and goes with the last one: an agent
/// without it asks the runtime nothing.
pub(super) const RECORD: &str = "/var/lib/machine-config-daemon/pinned-images";
/// Mode and owner of a new file.
pub(super) const FILE: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };
/// CRI-O's unit.
pub(super) const CRIO: &str = "crio.service";
/// The waits between the attempts at one image.
pub(super) const BETWEEN: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_secs(10) };

/// How far a round is, as it goes on.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) done: AtomicUsize,
    pub(super) all: AtomicUsize,
}

/// Why a round ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum RoundError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Disk(#[from] FsError),
    #[error("{0}")]
    PullSecret(String),
    #[error("the list of pinned images could not be given to CRI-O: {0}")]
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
    /// What registries have said of images.
    pub(super) seen: registry::Cache,
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
        Self {
            root,
            root_mount,
            reload: Arc::new(reload),
            between: BETWEEN,
            seen: registry::Cache::default(),
        }
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
}
