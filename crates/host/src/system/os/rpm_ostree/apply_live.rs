//! Packages in the running system: `rpm-ostree apply-live`. It adds a layer over `/usr` that ends with the boot, and new files to
//! `/etc`. By default it refuses whatever is more than an addition of packages.
//!
//! ```text
//! apply: apply-live (what is staged)                     undo: apply-live --reset, or --target of what was there before
//! status --json, booted deployment: live-replaced (done), live-inprogress (interrupted: only the same target goes on)
//! ```
//!
//! Not here: whether that is wanted (see `plan::live_extensions`), and what is staged again when a later change is undone (see
//! `restage`).
//!
//! Source: <https://coreos.github.io/rpm-ostree/apply-live/>.

use super::status::{RpmDeployment, Status};
use super::{RpmOstree, STAGE, staged};
use crate::system::os::OsError;
use crate::system::os::undo_token::{LiveBefore, UndoToken};

/// Without it rpm-ostree removes nothing.
const REPLACE: &str = "--allow-replacement";

impl RpmOstree {
    /// Applies the staged packages to the running system, and checks afterwards that they are there.
    pub(super) fn bring_live(&mut self) -> Result<(), OsError> {
        let status = self.status_without_foreign()?;
        let Some(commit) = status.pending().map(|pending| pending.checksum.clone()) else {
            return Err(OsError::new("nothing is staged that could be applied to the running system"));
        };
        self.run(&["apply-live".to_owned()], STAGE)?;
        match self.ask()?.booted() {
            Some(booted) if booted.has_live(&commit) => Ok(()),
            _ => Err(OsError::new(
                "rpm-ostree apply-live reported success, but rpm-ostree status --json does not show the staged packages in \
                 the running system (live-replaced)",
            )),
        }
    }

    /// Makes the running system what it was before: the booted deployment, or that with earlier packages. If these were staged again
    /// and are in the running system from there, an earlier process has undone that much already.
    pub(super) fn take_back_live(&mut self, before: &UndoToken) -> Result<(), OsError> {
        let again = before.live.as_ref().map(|_| self.staged_again_for(&before.id)).transpose()?.flatten();
        let of = |booted: &RpmDeployment| {
            let live = before.live.as_ref().filter(|live| live.booted == booted.id);
            live.and_then(|live| live.commit.clone())
        };
        let is_back = |status: &Status| {
            let has_again = status.live().is_some_and(|pending| Some(&pending.id) == again.as_ref());
            has_again
                || status.booted().is_some_and(|booted| match of(booted) {
                    Some(commit) => booted.has_live(&commit),
                    None => booted.is_bare(),
                })
        };
        let status = self.idle_status()?;
        let Some(booted) = status.booted().filter(|_| !is_back(&status)) else { return Ok(()) };
        let target = of(booted);
        let back = match &target {
            Some(commit) => format!("--target={commit}"),
            None => "--reset".to_owned(),
        };
        let wanted = target.as_ref().unwrap_or(&booted.checksum);
        // What was interrupted goes on to the same target only.
        if let Some(commit) = booted.live_inprogress.as_ref().filter(|commit| *commit != wanted) {
            let args = ["apply-live".to_owned(), format!("--target={commit}"), REPLACE.to_owned()];
            self.run(&args, STAGE)?;
        }
        self.run(&["apply-live".to_owned(), back, REPLACE.to_owned()], STAGE)?;
        if is_back(&self.ask()?) {
            return Ok(());
        }
        Err(OsError::new(
            "rpm-ostree apply-live reported success, but rpm-ostree status --json says that the running system is not as it was \
             before; reboot it",
        ))
    }

    /// What an undo needs to know of packages in the running system: whenever something of the agent's is staged before a change, it is
    /// gone once the change has staged something else.
    pub(super) fn live_before(&self, status: &Status) -> Result<Option<LiveBefore>, OsError> {
        let (Some(booted), Some(pending)) = (status.booted(), status.pending()) else { return Ok(None) };
        if status.live().is_none() && staged::arguments(&self.root, &pending.id)?.is_none() {
            return Ok(None);
        }
        Ok(Some(LiveBefore {
            booted: booted.id.clone(),
            commit: booted
                .live_replaced
                .clone()
                .filter(|_| !booted.is_bare() && booted.live_inprogress.is_none()),
            packages: pending.requested_packages.clone(),
        }))
    }
}
