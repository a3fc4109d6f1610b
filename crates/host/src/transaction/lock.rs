//! The lock that one process holds while it changes or recovers the host: a file that only root can open, in the
//! agent's own folder, which also only root can open. A lock that anybody can open, such as one on the root folder,
//! would let any local user block every change with `flock`.
//!
//! Not here: the lock of the user database (see `shadow`).

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::disk::attributes::PRIVATE_DIR;
use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::Root;
use crate::error::Error;
use crate::paths::{AGENT_LOCK, LOCK, STATE_DIR};

/// How long [`Lock::take_soon`] tries, and how often.
const SOON: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(10));

/// Held while the host is changed or recovered. The kernel releases it when the process ends, in whatever way.
pub(crate) struct Lock(OwnedFd);

impl Drop for Lock {
    /// Unlocks explicitly: closing alone would leave the lock with a child that another thread is about to start.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.0, FlockOperation::Unlock) {
            tracing::warn!(%error, "the lock of the host is let go of when its handle closes");
        }
    }
}

impl Lock {
    /// As [`Lock::take`], but waits a moment for a process that only writes down the time of a trial.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub(crate) fn take_soon(root: &Root) -> Result<Self, Error> {
        let start = Instant::now();
        loop {
            match Self::take(root) {
                Err(Error::Busy { .. }) if start.elapsed() < SOON.0 => std::thread::sleep(SOON.1),
                done => return done,
            }
        }
    }

    /// Takes the lock, which keeps other processes from changing or recovering this host. Without it, a change in
    /// progress would look like an interrupted one.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process has it; or the lock file cannot be made.
    pub(crate) fn take(root: &Root) -> Result<Self, Error> {
        Self::of_file(root, LOCK)
    }

    fn of_file(root: &Root, path: &'static str) -> Result<Self, Error> {
        let own = match root.found(STATE_DIR)? {
            PathState::Dir { mode, uid, gid } => {
                mode == PRIVATE_DIR.mode
                    && (!root.options().owners || (uid, gid) == (PRIVATE_DIR.uid, PRIVATE_DIR.gid))
            }
            _ => false,
        };
        if !own {
            root.make_parents(STATE_DIR)?;
            root.make_dir(STATE_DIR, PRIVATE_DIR)?;
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
        let file = root.handle(path, flags, 0o600)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(Errno::WOULDBLOCK) => Err(Error::Busy { path }),
            Err(e) => Err(FsError::new("lock", path, e).into()),
        }
    }
}

/// Held by the agent of a host while it runs. A host can have two by mistake: a service from a package, and the pod of a
/// DaemonSet. Both would write the same Node.
pub struct AgentLock {
    _lock: Lock,
}

impl std::fmt::Debug for AgentLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgentLock")
    }
}

impl AgentLock {
    /// Takes the lock; `None`: another agent runs on this host.
    ///
    /// # Errors
    /// The lock file cannot be made.
    pub fn take(root: &Root) -> Result<Option<Self>, Error> {
        match Lock::of_file(root, AGENT_LOCK) {
            Ok(lock) => Ok(Some(Self { _lock: lock })),
            Err(Error::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn a_host_has_one_agent_which_changes_it_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { sync: false, owners: false };
        let root =
            || Root::open_with(dir.path(), options, std::sync::Arc::new(crate::fault::NoFaults)).unwrap();
        let first = AgentLock::take(&root()).unwrap().expect("nobody has it");
        assert!(AgentLock::take(&root()).unwrap().is_none(), "a second agent waits");
        drop(Lock::take(&root()).expect("the lock of changes is another one"));
        drop(first);
        assert!(AgentLock::take(&root()).unwrap().is_some(), "the first one has ended");
    }
}
