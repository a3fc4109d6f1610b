//! Boots of this machine, and the reboot that a change still needs.
//!
//! Not here: whether a reboot may happen now. The caller knows that.
//!
//! Source: <https://docs.kernel.org/admin-guide/sysctl/kernel.html#random> (`boot_id`).

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::disk::attributes::{Attributes, PRIVATE};
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::record::{Boot, PendingReboot, RebootStatus};
use crate::system::systemd::Rationale;

/// Mode and owner of the boot token, which everybody may read.
const TOKEN: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };

impl Host {
    /// This boot.
    ///
    /// # Errors
    /// The boot id or the token cannot be read.
    pub fn boot(&mut self) -> Result<Boot, Error> {
        let token = self.root.text(paths::BOOT_TOKEN)?.unwrap_or_default();
        Ok(Boot { boot_id: self.systemd.boot_id()?, token: token.trim().to_owned() })
    }

    /// Writes the token of this boot, if it has none yet. A restart of userspace alone keeps the kernel's boot ID and
    /// `/run`: the token stays, and ends with the number of such restarts.
    pub(crate) fn mark_boot(&mut self) -> Result<(), Error> {
        let mut end = String::new();
        if !self.root.found(paths::SOFT_REBOOT)?.is_absent()
            && let Some(times) = self.systemd.soft_reboots()?.filter(|times| *times > 0)
        {
            end = format!("+{times}");
        }
        let there = self.root.text(paths::BOOT_TOKEN)?.unwrap_or_default();
        let (kept, counted) = there.trim().split_once('+').unwrap_or((there.trim(), ""));
        let token = match kept {
            // The token only has to be different each time, so the hasher's random keys are good enough.
            "" => {
                let part = || RandomState::new().build_hasher().finish();
                format!("{:016x}{:016x}{end}\n", part(), part())
            }
            _ if counted == end.trim_start_matches('+') => return Ok(()),
            kept => format!("{kept}{end}\n"),
        };
        Ok(self.root.write_bytes(paths::BOOT_TOKEN, token.as_bytes(), TOKEN)?)
    }

    /// When this boot got its token, in seconds since 1970: soon after the boot began, and before the kubelet's start
    /// if the recovery runs before the kubelet. `None`: there is no token.
    ///
    /// # Errors
    /// The token cannot be read.
    pub fn boot_marked(&self) -> Result<Option<i64>, Error> {
        if self.root.found(paths::BOOT_TOKEN)?.is_absent() {
            return Ok(None);
        }
        Ok(self.root.metadata_of_file(paths::BOOT_TOKEN)?.modified.map(|(seconds, _)| seconds))
    }

    /// Whether a reboot is pending.
    ///
    /// # Errors
    /// The record cannot be read. It is not taken as "none", which would lose the reboot, nor as "pending", which
    /// would never end.
    pub fn reboot_status(&mut self) -> Result<RebootStatus, Error> {
        let Some(bytes) = self.root.read_if_there(paths::REBOOT_PENDING)? else {
            return Ok(RebootStatus::None);
        };
        let path = paths::REBOOT_PENDING;
        let pending: PendingReboot = api::formats::shape::read_bytes(&bytes)
            .map_err(|e| Error::RebootRecord { path, why: e.to_string() })?;
        let now = self.boot()?;
        let same = match pending.soft {
            true => pending.boot.is_same_userspace(&now),
            false => pending.boot.is_same_boot(&now),
        };
        Ok(if same { RebootStatus::Owed(pending) } else { RebootStatus::Rebooted(pending) })
    }

    /// Removes the record of a reboot that has happened, and the force file that may have asked for it.
    ///
    /// # Errors
    /// These files cannot be removed.
    pub fn reboot_done(&mut self) -> Result<(), Error> {
        self.root.remove(paths::FORCE_FILE)?;
        self.root.remove(paths::REBOOT_PENDING)?;
        Ok(())
    }

    /// Records with a pending reboot whether it needs further permission (see [`PendingReboot::cleared`]). A failure
    /// to write is only logged.
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

    /// Starts a reboot, and counts it if one is pending.
    ///
    /// # Errors
    /// systemd refuses. A refused reboot is not counted.
    pub fn reboot(&mut self, rationale: &str) -> Result<(), Error> {
        let owed = match self.reboot_status()? {
            RebootStatus::Owed(owed) => Some(owed),
            RebootStatus::None | RebootStatus::Rebooted(_) => None,
        };
        if let Some(owed) = &owed {
            self.record(&PendingReboot { tries: owed.tries.saturating_add(1), ..owed.clone() })?;
        }
        let rationale = Rationale(rationale.to_owned());
        if let Some(owed) = owed.as_ref().filter(|owed| owed.soft && owed.tries == 0)
            && self.soft_reboot(owed, &rationale)?
        {
            return Ok(());
        }
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

    /// Restarts userspace alone. `false`: systemd refuses, or cannot do it any more; then the machine reboots.
    fn soft_reboot(&mut self, owed: &PendingReboot, rationale: &Rationale) -> Result<bool, Error> {
        if self.systemd.soft_reboots()?.is_none() {
            return Ok(false);
        }
        self.root.write_bytes(paths::SOFT_REBOOT, b"", TOKEN)?;
        match self.systemd("restart userspace", "", |s| s.soft_reboot(rationale)) {
            Err(e) if !e.killed => {
                tracing::warn!(config = %owed.config, error = %e, "userspace cannot be restarted alone; rebooting");
                Ok(false)
            }
            done => Ok(done.map(|()| true)?),
        }
    }

    /// Records a pending reboot. A failure to write is only logged, because the reboot may be what repairs the disk.
    fn record(&self, owed: &PendingReboot) -> Result<(), Error> {
        let path = paths::REBOOT_PENDING;
        let json = serde_json::to_vec(owed).map_err(|e| Error::RebootRecord { path, why: e.to_string() })?;
        match self.root.write_bytes(path, &json, PRIVATE) {
            Err(e) if !e.killed() => {
                tracing::warn!(error = %e, "the record of the reboot cannot be rewritten");
                Ok(())
            }
            done => Ok(done?),
        }
    }
}
