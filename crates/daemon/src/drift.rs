//! Tells the agent when a managed path of a node that is done is touched, within a second, without looking around.
//!
//! What it is not: the comparison (the agent's check), nor the watch itself (`host::Watch`). While an update is under way
//! there is no watch: what the agent changes itself is not drift.

use crate::machine::{Machine, MachineError};
use host::{Stop, Touched, Watch};
use tokio::sync::watch;

/// What an agent has of it.
#[derive(Debug)]
pub(crate) enum Drift {
    /// Nothing: the node is not done, or watching is not asked for.
    Off,
    /// Watched against this config.
    Watched(Guard),
    /// It cannot be watched: the disk is looked at now and then.
    Polled,
}

/// A watch that runs. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The config.
    pub(crate) config: String,
    touched: watch::Receiver<()>,
    stop: Stop,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl Guard {
    /// Watches what the disk's config manages. `None`: no config was ever applied to it.
    pub(crate) fn new(machine: &Machine) -> Result<Option<Self>, MachineError> {
        let Some((config, watch)) = machine.watch()? else { return Ok(None) };
        let (sender, touched) = watch::channel(());
        let stop = watch.stopper();
        std::thread::Builder::new()
            .name("drift".to_owned())
            .stack_size(STACK)
            .spawn(move || run(watch, &sender))
            .map_err(|e| MachineError::broken(format!("no thread to watch the disk with: {e}")))?;
        Ok(Some(Self { config, touched, stop }))
    }
}

/// Reading events needs one buffer of 16 KiB and little else.
const STACK: usize = 256 * 1024;

fn run(mut watch: Watch, sender: &watch::Sender<()>) {
    loop {
        match watch.wait(None) {
            Ok(Touched::Paths(paths)) => {
                tracing::debug!(?paths, "touched");
                if sender.send(()).is_err() {
                    return;
                }
            }
            Ok(Touched::TimedOut) => {}
            Ok(Touched::Stopped) => return,
            Err(error) => {
                tracing::warn!(%error, "the disk cannot be watched any more");
                return;
            }
        }
    }
}

impl Drift {
    /// Begins to watch. Blocks, for a moment.
    pub(crate) fn begin(machine: &Machine) -> Self {
        match Guard::new(machine) {
            Ok(Some(guard)) => Self::Watched(guard),
            Ok(None) => Self::Polled,
            Err(error) => {
                tracing::warn!(%error, "the disk cannot be watched; it is looked at now and then");
                Self::Polled
            }
        }
    }

    /// Waits until a managed path is touched; for ever where nothing is watched.
    pub(crate) async fn touched(&mut self) {
        if let Self::Watched(guard) = self {
            if guard.touched.changed().await.is_ok() {
                return;
            }
            // The thread has ended by itself: from now on the disk is looked at.
            *self = Self::Polled;
            return;
        }
        std::future::pending().await
    }
}
