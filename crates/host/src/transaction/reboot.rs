//! Boots of this machine, and the reboot that a change still needs.
//!
//! Not here: whether a reboot may happen now. The caller knows that.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::disk::found::{Attributes, FsError};
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::record::{Boot, PendingReboot};
use crate::system::systemd::Rationale;

/// The token of a boot: for anybody to see.
const TOKEN: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };
/// The record of a reboot that is owed: our own state, for root only.
const RECORD: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };

/// What has become of a reboot that was owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebootStatus {
    /// None is owed.
    None,
    /// It is still owed: this is still the same boot.
    Owed(PendingReboot),
    /// The machine has rebooted since. [`Host::reboot_done`] forgets it.
    Rebooted(PendingReboot),
}

impl Host {
    /// This boot.
    ///
    /// # Errors
    /// The boot id or the token cannot be read.
    pub fn boot(&mut self) -> Result<Boot, Error> {
        let token = self.root.text(paths::BOOT_TOKEN)?.unwrap_or_default();
        Ok(Boot { boot_id: self.systemd.boot_id()?, token: token.trim().to_owned() })
    }

    /// Gives this boot its token, if it has none yet.
    pub(crate) fn mark_boot(&self) -> Result<(), FsError> {
        if !self.root.found(paths::BOOT_TOKEN)?.is_absent() {
            return Ok(());
        }
        // Nothing needs more of it than to be another one each time: the hasher's random keys are the source.
        let part = || RandomState::new().build_hasher().finish();
        let token = format!("{:016x}{:016x}\n", part(), part());
        self.root.write_bytes(paths::BOOT_TOKEN, token.as_bytes(), TOKEN)
    }

    /// When this boot got its token, in seconds since 1970: soon after its beginning, and before the kubelet's where the
    /// recovery runs before that. `None`: it has none.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn boot_marked(&self) -> Result<Option<i64>, Error> {
        if self.root.found(paths::BOOT_TOKEN)?.is_absent() {
            return Ok(None);
        }
        Ok(self.root.like(paths::BOOT_TOKEN)?.modified.map(|(seconds, _)| seconds))
    }

    /// Whether a reboot is owed.
    ///
    /// # Errors
    /// The record of it cannot be read. That is neither taken as none, which would lose the reboot, nor as one, which
    /// would have no end.
    pub fn reboot_status(&mut self) -> Result<RebootStatus, Error> {
        let Some(bytes) = self.root.read_if_there(paths::REBOOT_PENDING)? else {
            return Ok(RebootStatus::None);
        };
        let path = paths::REBOOT_PENDING;
        let pending: PendingReboot =
            api::shape::read_bytes(&bytes).map_err(|e| Error::RebootRecord { path, why: e.to_string() })?;
        let same = pending.boot.lasts(&self.boot()?);
        Ok(if same { RebootStatus::Owed(pending) } else { RebootStatus::Rebooted(pending) })
    }

    /// Forgets a reboot that has happened, and the force file that may have asked for it.
    ///
    /// # Errors
    /// The files that say so cannot be removed.
    pub fn reboot_done(&mut self) -> Result<(), Error> {
        self.root.remove(paths::FORCE_FILE)?;
        self.root.remove(paths::REBOOT_PENDING)?;
        Ok(())
    }

    /// Writes down, with a reboot that is owed, whether anybody has to be asked before it (see
    /// [`PendingReboot::cleared`]). A disk that does not take it is told of in the log and no more.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn reboot_cleared(&mut self, cleared: bool) -> Result<(), Error> {
        match self.reboot_status()? {
            RebootStatus::Owed(owed) if owed.cleared != cleared => {
                self.record(&PendingReboot { cleared, ..owed })
            }
            _ => Ok(()),
        }
    }

    /// Starts a reboot, and counts it where one is owed.
    ///
    /// # Errors
    /// systemd refuses; that is not counted.
    pub fn reboot(&mut self, rationale: &str) -> Result<(), Error> {
        let owed = match self.reboot_status()? {
            RebootStatus::Owed(owed) => Some(owed),
            RebootStatus::None | RebootStatus::Rebooted(_) => None,
        };
        if let Some(owed) = &owed {
            self.record(&PendingReboot { tries: owed.tries.saturating_add(1), ..owed.clone() })?;
        }
        let rationale = Rationale(rationale.to_owned());
        match self.systemd("reboot", "", |s| s.reboot(&rationale)) {
            Err(e) if !e.killed => {
                if let Some(owed) = &owed {
                    self.record(owed)?;
                }
                Err(e.into())
            }
            done => Ok(done?),
        }
    }

    /// Writes down a reboot that is owed. A disk that does not take it is told of and no more: the reboot may be what
    /// mends it.
    fn record(&self, owed: &PendingReboot) -> Result<(), Error> {
        let path = paths::REBOOT_PENDING;
        let json = serde_json::to_vec(owed).map_err(|e| Error::RebootRecord { path, why: e.to_string() })?;
        match self.root.write_bytes(path, &json, RECORD) {
            Err(e) if !e.killed() => {
                tracing::warn!(error = %e, "the record of the reboot cannot be written anew");
                Ok(())
            }
            done => Ok(done?),
        }
    }
}
