//! Packages in the running system: `rpm-ostree apply-live`. It adds a layer over `/usr` that ends with the boot, and new files to
//! `/etc`. By default it refuses whatever is more than an addition of packages.
//!
//! ```text
//! apply: apply-live (what is staged)                     undo: apply-live --reset, or --target of what was there before
//! status --json, booted deployment: live-replaced (done), live-inprogress (interrupted: only the same target goes on)
//! ```
//!
//! What is staged is made bootable at shutdown. Until then there is one staged deployment at most, so a later change that is undone
//! has to stage the packages of before again: only in the deployment that ran before it, after the boot into that one if the machine had
//! left it. What is staged again has another ID. It is recorded as what it stands for, on the disk, because it may boot before the
//! undo has ended.
//!
//! Not here: whether that is wanted (see `plan::live`).

use serde::{Deserialize, Serialize};

use super::status::{RpmDeployment, Status};
use super::{RpmOstree, STAGE, staged};
use crate::disk::found::PRIVATE;
use crate::paths::OS_STAGED_AGAIN;
use crate::system::os::OsError;
use crate::system::os::undo_token::{LiveBefore, UndoToken};

/// Without it rpm-ostree removes nothing.
const REPLACE: &str = "--allow-replacement";

/// The record of a deployment that stages again what another one had.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StagedAgain {
    /// The new one.
    id: String,
    /// The one of before the change that was undone.
    stands_for: String,
}

impl RpmOstree {
    /// Brings what is staged into the running system, and asks afterwards whether it is there.
    pub(super) fn bring_live(&mut self) -> Result<(), OsError> {
        let status = self.free()?;
        let Some(commit) = status.pending().map(|pending| pending.checksum.clone()) else {
            return Err(OsError::new("nothing is staged that could be applied to the running system"));
        };
        self.run(&["apply-live".to_owned()], STAGE)?;
        match self.ask()?.booted() {
            Some(booted) if booted.has_live(&commit) => Ok(()),
            _ => Err(OsError::new(
                "rpm-ostree apply-live reported success, but rpm-ostree status --json does not say that the running system has \
                 what is staged (live-replaced)",
            )),
        }
    }

    /// Makes the running system what it was before: the booted deployment, or that with earlier packages.
    pub(super) fn take_back_live(&mut self, before: Option<&LiveBefore>) -> Result<(), OsError> {
        let of = |booted: &RpmDeployment| {
            before.filter(|before| before.booted == booted.id).and_then(|before| before.commit.clone())
        };
        let is_back = |booted: &RpmDeployment| match of(booted) {
            Some(commit) => booted.has_live(&commit),
            None => booted.is_bare(),
        };
        let status = self.idle()?;
        let Some(booted) = status.booted().filter(|booted| !is_back(booted)) else { return Ok(()) };
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
        match self.ask()?.booted() {
            Some(booted) if is_back(booted) => Ok(()),
            _ => Err(OsError::new(
                "rpm-ostree apply-live reported success, but rpm-ostree status --json says that the running system is not as it \
                 was before; reboot it",
            )),
        }
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

    /// The deployments that a machine may boot to be back where it was before a change: the one that the next boot came up in then;
    /// the one that ran, if the former was only staged, and so is gone once another one was; and the one in which its packages were
    /// staged again. A record that cannot be read is as good as none: the packages are staged once more.
    pub(super) fn ways_back(&self, before: &UndoToken) -> Result<Vec<String>, OsError> {
        let mut ids = vec![before.id.clone()];
        let Some(live) = &before.live else { return Ok(ids) };
        ids.push(live.booted.clone());
        let Some(text) = self.root.text(OS_STAGED_AGAIN)? else { return Ok(ids) };
        match serde_json::from_str::<StagedAgain>(&text) {
            Ok(again) if again.stands_for == before.id => ids.push(again.id),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "{OS_STAGED_AGAIN} cannot be read; remove it"),
        }
        Ok(ids)
    }

    /// Stages the packages of before again, on the deployment that the next boot comes up in. `stands_for`: the deployment that had
    /// them. If that fails, the machine is safe without them: it is told as drift.
    pub(super) fn stage_again(
        &mut self,
        status: &Status,
        before: &LiveBefore,
        stands_for: &str,
    ) -> Result<(), OsError> {
        let Some(next) = status.next() else { return Ok(()) };
        let missing: Vec<String> =
            before.packages.iter().filter(|p| !next.requested_packages.contains(p)).cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let arguments = self.arguments()?;
        staged::begin(&self.root, &arguments)?;
        let mut command = ["install", "--idempotent", "--allow-inactive"].map(str::to_owned).to_vec();
        command.extend(missing);
        let done = match self.run(&command, STAGE) {
            Err(error) if error.killed => return Err(error),
            Err(error) => {
                tracing::error!(%error, "the packages of before, which were only in the running system, are not staged again");
                false
            }
            Ok(_) => true,
        };
        let Some(id) = self.ask()?.pending().map(|pending| pending.id.clone()) else { return Ok(()) };
        staged::record(&self.root, &id, &arguments)?;
        if done {
            let again = StagedAgain { id, stands_for: stands_for.to_owned() };
            let json = serde_json::to_vec(&again).map_err(|e| OsError::new(e.to_string()))?;
            self.root.write_bytes(OS_STAGED_AGAIN, &json, PRIVATE)?;
        }
        Ok(())
    }
}
