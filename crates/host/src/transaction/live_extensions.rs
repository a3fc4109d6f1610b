//! Extensions that take effect in the running system: the try, what is recorded if the host refuses, and the undo.
//!
//! ```text
//! stage ─► apply_live ─┬─► commit: the change waits for no boot
//!                      └─► live-refused.json ─► undo of the whole change; the config is planned again with a reboot
//! undo:  undo_live ─► what was staged is dropped ─► files, services, effects ─► stage_again ─► bring_back_live, or one more boot
//! ```
//!
//! Guarantees: the refusal is on the disk before the undo begins, so a crash in between leads to no second try. If what was brought
//! into the running system cannot be taken out, the machine has to reboot, which ends it.
//!
//! Not here: whether a change may take effect in this way (see `plan::live_extensions`).

use api::formats::text::chain;

use crate::disk::attributes::PRIVATE;
use crate::error::Error;
use crate::host::Host;
use crate::paths::LIVE_REFUSED;
use crate::record::LiveRefusal;
use crate::transaction::journal::Journal;

impl Host {
    /// Brings what is staged into the running system. A refusal is recorded for this config.
    pub(crate) fn apply_live(&mut self, config: &str) -> Result<(), Error> {
        let Err(refused) = self.os_call("apply live", |os| os.apply_live()) else { return Ok(()) };
        if refused.killed() {
            return Err(refused);
        }
        let refusal = LiveRefusal { config: config.to_owned(), why: chain(&refused) };
        let json = serde_json::to_vec(&refusal)
            .map_err(|e| Error::Config { name: LIVE_REFUSED.to_owned(), why: e.to_string() })?;
        self.root.write_bytes(LIVE_REFUSED, &json, PRIVATE)?;
        Err(refused)
    }

    /// Removes the packages that a change has added to the running system. Returns whether that worked; if not, a reboot
    /// removes them.
    pub(crate) fn undo_live(&mut self, journal: &Journal) -> Result<bool, Error> {
        let Some((before, _)) = journal.os_change().filter(|_| journal.live) else { return Ok(true) };
        match self.os_call("undo live", |os| os.undo_live(before)) {
            Err(error) if !error.killed() => {
                tracing::warn!(error = %chain(&error), "the packages that were added to the running system stay until the \
                    next boot");
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Stages again what was only staged before a change that is undone.
    pub(crate) fn stage_again(&mut self, journal: &Journal) -> Result<(), Error> {
        let Some((before, change)) = journal.os_change() else { return Ok(()) };
        self.os.use_extensions(&change.extensions_image_before);
        self.os_call("stage again", |os| os.stage_again(before))
    }

    /// Applies the packages that an undo had to stage again to the running system, if they were there before. Returns
    /// whether that worked; if not, they are there after the next boot.
    pub(crate) fn bring_back_live(&mut self, journal: &Journal) -> Result<bool, Error> {
        let Some((before, _)) = journal.os_change().filter(|_| self.os.can_apply_live()) else {
            return Ok(true);
        };
        let mut is_there = true;
        let done = self.os_call("bring back live", |os| {
            is_there = os.bring_back_live(before, journal.live_allowed)?;
            Ok(())
        });
        match done {
            Err(error) if !error.killed() => {
                tracing::warn!(error = %chain(&error), "the previous packages are in the running system again after the next \
                    boot");
                Ok(false)
            }
            done => done.map(|()| is_there),
        }
    }

    /// The config whose extensions this host refused to bring into the running system.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn live_refusal(&self) -> Result<Option<LiveRefusal>, Error> {
        let text = self.root.text(LIVE_REFUSED)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}
