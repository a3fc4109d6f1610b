//! Wakes the agent within a second when a managed path changes on a node that has completed its update. The agent
//! itself does not poll.
//!
//! Not here: the comparison (`drift_check`), nor the watch of the file system (`host::Watch`). There is no watch while
//! an update is under way, because the agent's own changes are not drift.

use crate::node::machine::{Machine, MachineError};
use host::{DiskEvent, Stop, Watch};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Whether the disk is watched.
#[derive(Debug)]
pub(crate) enum Watching {
    /// Not watched: the node is not done, or watching is not enabled.
    Off,
    /// Watched.
    Watched(DiskWatch),
    /// It cannot be watched: the disk is compared periodically.
    Polled,
}

/// A running watch. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct DiskWatch {
    /// The config.
    pub(crate) config: String,
    touched: watch::Receiver<()>,
    stop: Stop,
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

impl DiskWatch {
    /// Watches the paths that the disk's config manages. `None`: no config was ever applied.
    pub(crate) fn new(machine: &Machine) -> Result<Option<Self>, MachineError> {
        let Some((config, watch)) = machine.watch()? else { return Ok(None) };
        let (sender, touched) = watch::channel(());
        let stop = watch.stopper();
        std::thread::Builder::new()
            .name("drift".to_owned())
            .stack_size(STACK)
            .spawn(move || run(watch, &sender))
            .map_err(|e| MachineError::degraded(format!("cannot start a thread to watch the disk: {e}")))?;
        Ok(Some(Self { config, touched, stop }))
    }
}

/// The stack of the watching thread, which needs little besides one buffer of 16 KiB.
const STACK: usize = 256 * 1024;

fn run(mut watch: Watch, sender: &watch::Sender<()>) {
    loop {
        match watch.wait(None) {
            Ok(DiskEvent::Paths(paths)) => {
                tracing::debug!(?paths, "touched");
                if sender.send(()).is_err() {
                    return;
                }
            }
            Ok(DiskEvent::TimedOut) => {}
            Ok(DiskEvent::Stopped) => return,
            Err(error) => {
                tracing::warn!(%error, "the watch of the disk has ended; it is compared with its config at intervals instead");
                return;
            }
        }
    }
}

impl Watching {
    /// Starts to watch. Blocks for a moment.
    pub(crate) fn begin(machine: &Machine) -> Self {
        match DiskWatch::new(machine) {
            Ok(Some(guard)) => Self::Watched(guard),
            Ok(None) => Self::Polled,
            Err(error) => {
                tracing::warn!(%error, "the disk cannot be watched; it is compared with its config at intervals instead");
                Self::Polled
            }
        }
    }

    /// Discards pending events, because the disk is about to be compared.
    pub(crate) fn discard_events(&mut self) {
        if let Self::Watched(guard) = self {
            guard.touched.mark_unchanged();
        }
    }

    /// Waits until a managed path is touched. Never returns if nothing is watched.
    pub(crate) async fn touched(&mut self) {
        if let Self::Watched(guard) = self {
            if guard.touched.changed().await.is_ok() {
                return;
            }
            // The thread has ended by itself: from now on the disk is polled.
            *self = Self::Polled;
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// How many events lead to an immediate comparison: enough for a person who edits files, or a package installation.
const BURST: u32 = 30;
/// After the burst, one comparison is allowed in this time. A file that is written in a loop then costs the API server
/// and the node next to nothing.
const REFILL: Duration = Duration::from_secs(15);

/// Limits comparisons after events on managed paths: a token bucket of [`BURST`] that gains one token each [`REFILL`].
#[derive(Debug)]
pub(crate) struct CompareLimit {
    left: u32,
    /// When the current refill interval began.
    since: Instant,
}

impl CompareLimit {
    pub(crate) fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    /// Takes one token.
    ///
    /// # Errors
    /// There is none left. The value is the time of the next one.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        while self.left < BURST && now.saturating_duration_since(self.since) >= REFILL {
            self.left += 1;
            self.since += REFILL;
        }
        if self.left == BURST {
            self.since = now;
        }
        self.left = self.left.checked_sub(1).ok_or(self.since + REFILL)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::v1::{MachineConfig, MachineConfigSpec};
    use host::fault::NoFaults;
    use host::{DisruptionPolicy, FakeSystemd, Host, Options, Root, Unsupported};
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn a_few_changes_are_checked_at_once_and_a_loop_of_them_rarely() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut looks = CompareLimit::new(start);
        // Touched five times a second for an hour.
        let taken = (0..3600 * 5).filter(|n| looks.take(at(n * 200)).is_ok()).count();
        assert!((260..=280).contains(&taken), "{taken} comparisons in an hour");
        let mut looks = CompareLimit::new(start);
        for n in 0..u64::from(BURST) {
            assert_eq!(looks.take(at(n)), Ok(()));
        }
        assert_eq!(looks.take(at(40)), Err(at(15_000)), "the first was taken at 0");
        assert_eq!((looks.take(at(15_000)), looks.take(at(15_001))), (Ok(()), Err(at(30_000))));
        // After a quiet period the bucket is full, and not more than full.
        let again = (0..100).filter(|n| looks.take(at(10_000_000 + n)).is_ok()).count();
        assert_eq!(again, 30);
    }

    fn config(name: &str, text: &str) -> MachineConfig {
        let files = json!([{"path": "/etc/app.conf", "contents": {"source": format!("data:,{text}")}}]);
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
        MachineConfig::new(name, MachineConfigSpec { config: Some(config), ..Default::default() })
    }

    #[tokio::test]
    async fn a_watch_belongs_to_the_config_that_it_was_made_for() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
        let options = Options { sync: false, owners: false };
        let root = Root::open_with(dir.path(), options, Arc::new(NoFaults)).unwrap();
        let systemd = FakeSystemd::new(&root);
        let machine = Machine::new(Host::new(root, Box::new(systemd), Box::new(Unsupported::default())));
        assert!(matches!(Watching::begin(&machine), Watching::Polled), "there is no config yet");
        let (one, empty) = (config("one", "1"), MachineConfig::new("zero", Default::default()));
        let (_, work) = machine.prepare(&empty, &one, &DisruptionPolicy::default()).unwrap();
        machine.apply(work, &Default::default(), &Default::default()).unwrap();

        let mut drift = Watching::begin(&machine);
        let Watching::Watched(guard) = &drift else { panic!("{drift:?}") };
        assert_eq!(guard.config, "one");
        let file = dir.path().join("etc/app.conf");
        for (text, good) in [("by hand", false), ("1", true)] {
            std::fs::write(&file, text).unwrap();
            tokio::time::timeout(Duration::from_secs(30), drift.touched()).await.unwrap();
            // A file is truncated and then written: these may be two events.
            while tokio::time::timeout(Duration::from_millis(500), drift.touched()).await.is_ok() {}
            assert_eq!(machine.check(None).is_ok(), good, "{text}");
        }
        std::fs::write(dir.path().join("etc/other.conf"), "not ours").unwrap();
        let quiet = tokio::time::timeout(Duration::from_millis(200), drift.touched()).await;
        assert!(quiet.is_err(), "a file that no config names was reported");
    }
}
