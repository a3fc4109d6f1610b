//! Packages that were only in the running system, and staged, before a change that is undone. What is staged is made bootable at
//! shutdown. Until then there is one staged deployment at most, so the change has dropped it, and its undo stages the packages again.
//!
//! ```text
//! undo ─► cleanup, rollback ─► (boot into the deployment that ran before) ─► files, services, effects
//!      ─► install ─┬─► apply-live, or one more boot
//!                  └─► not installed: told, with the remedy
//! ```
//!
//! They are installed last, because that may need the network, which the change may have cut.
//!
//! They are staged in the deployment that ran before the change, and in no other: what is staged in the deployment of the change would
//! boot in place of the one of before. What is staged again has another ID. It is recorded as what it stands for, on the disk, because
//! it may boot before the undo has ended. The record goes when no undo can need it any more. If it says that the packages could not be
//! staged, it stays until an update of the OS is kept: that has what its config names.
//!
//! Not here: what is brought into the running system for a config (see `apply_live`).

use serde::{Deserialize, Serialize};

use super::{RpmOstree, STAGE, staged};
use crate::disk::attributes::PRIVATE;
use crate::paths::{FORCE_FILE, RESTAGED_PACKAGES};
use crate::system::os::undo_token::{LiveBefore, UndoToken};
use crate::system::os::{OsError, Token};
use crate::system::pull::Pull;

/// The record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StagedAgain {
    /// The deployment from before the change that was undone.
    stands_for: String,
    #[serde(flatten)]
    outcome: Outcome,
}

/// What became of its packages.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Outcome {
    /// They are staged in the deployment with this ID.
    Staged { id: String },
    /// They are not: why.
    Failed { packages: Vec<String>, why: String },
}

/// The commands that install packages again. Each is for the case that the one before fails. What came from the host's repositories is
/// mostly on the host still, in the same versions, and the undo at boot runs before there is a network.
fn install(packages: &[String], from_repositories: bool) -> Vec<Vec<String>> {
    let with = |option: &[&str]| {
        let words = [&["install"], option, &["--idempotent", "--allow-inactive"]].concat();
        words.into_iter().map(str::to_owned).chain(packages.iter().cloned()).collect()
    };
    match from_repositories {
        true => vec![with(&["--cache-only"]), with(&[])],
        false => vec![with(&[])],
    }
}

impl RpmOstree {
    /// Runs these commands until one succeeds. The error: that of the last one.
    fn first_that_works(&mut self, commands: &[Vec<String>]) -> Result<(), OsError> {
        let mut done = Ok(());
        for command in commands {
            done = self.run(command, STAGE).map(drop);
            match &done {
                Err(error) if !error.killed => {
                    tracing::info!(?command, why = %error.why, "the packages could not be staged with this command; trying the next one");
                }
                _ => break,
            }
        }
        done
    }

    /// The record. One that cannot be read is as good as none: the packages are staged once more.
    fn staged_again(&self) -> Result<Option<StagedAgain>, OsError> {
        let Some(text) = self.root.text(RESTAGED_PACKAGES)? else { return Ok(None) };
        Ok(serde_json::from_str(&text)
            .inspect_err(|error| tracing::warn!(%error, "{RESTAGED_PACKAGES} cannot be read"))
            .ok())
    }

    /// The deployment in which the packages of this one were staged again.
    pub(super) fn staged_again_for(&self, id: &str) -> Result<Option<String>, OsError> {
        Ok(match self.staged_again()?.filter(|again| again.stands_for == id) {
            Some(StagedAgain { outcome: Outcome::Staged { id }, .. }) => Some(id),
            Some(StagedAgain { outcome: Outcome::Failed { .. }, .. }) | None => None,
        })
    }

    /// The deployments that a machine may boot to be back where it was before a change: the one that the next boot came up in then;
    /// the one that ran, if the former was only staged, and so is gone once another one was; and the one in which its packages were
    /// staged again.
    pub(super) fn deployments_to_return_to(&self, before: &UndoToken) -> Result<Vec<String>, OsError> {
        let mut ids = vec![before.id.clone()];
        if let Some(live) = &before.live {
            ids.push(live.booted.clone());
            ids.extend(self.staged_again_for(&before.id)?);
        }
        Ok(ids)
    }

    /// Stages the previous packages again, on the deployment that ran then. If that fails, the machine works without them;
    /// the failure is recorded, and reported as long as they are missing.
    pub(super) fn stage_packages_again(&mut self, before: &UndoToken) -> Result<(), OsError> {
        let Some(live) = &before.live else { return Ok(()) };
        let status = self.idle_status()?;
        // Not in the deployment of the change: what is staged there boots instead of the one that ran. Nor if anything is staged.
        let Some(next) = status.next().filter(|next| next.booted && next.id == live.booted) else {
            return Ok(());
        };
        let missing: Vec<String> =
            live.packages.iter().filter(|p| !next.requested_packages.contains(p)).cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let arguments = self.arguments()?;
        let tries = install(&missing, self.extensions_image.is_empty());
        let done = self.with_packages(true, &Pull::default(), |os| {
            staged::begin(&os.root, &arguments)?;
            os.first_that_works(&tries)
        });
        if let Err(error) = &done {
            if error.killed {
                return done;
            }
            tracing::error!(why = %error.why, "the previous packages, which were only in the running system, are not staged \
                again");
        }
        let after = self.ask()?;
        let pending = after.pending();
        match pending {
            None => staged::forget(&self.root)?,
            Some(pending) if staged::arguments(&self.root, &pending.id)?.is_some() => {
                staged::record(&self.root, &pending.id, &arguments)?;
            }
            Some(_) => {}
        }
        let whole = pending.filter(|d| missing.iter().all(|p| d.requested_packages.contains(p)));
        let outcome = match (whole, done) {
            (Some(whole), _) => Outcome::Staged { id: whole.id.clone() },
            (None, done) => Outcome::Failed {
                packages: missing,
                why: match done {
                    Err(error) => error.why,
                    Ok(()) => "rpm-ostree reported success, but no deployment with these packages is staged"
                        .to_owned(),
                },
            },
        };
        let again = StagedAgain { stands_for: before.id.clone(), outcome };
        let json = serde_json::to_vec(&again).map_err(|e| OsError::new(e.to_string()))?;
        Ok(self.root.write_bytes(RESTAGED_PACKAGES, &json, PRIVATE)?)
    }

    /// See [`crate::system::os::OsBackend::bring_back_live`]. In a later boot it is not tried: the services of these packages did not
    /// start in it, so one more boot is needed anyway.
    pub(super) fn bring_staged_again_live(&mut self, before: &Token, allowed: bool) -> Result<bool, OsError> {
        let before = UndoToken::read(before, "rpm-ostree")?;
        let Some(LiveBefore { booted: ran, commit: Some(commit), .. }) = &before.live else {
            return Ok(true);
        };
        let Some(again) = self.staged_again_for(&before.id)? else { return Ok(true) };
        let status = self.idle_status()?;
        let (Some(booted), Some(pending)) = (status.booted(), status.pending()) else { return Ok(true) };
        if booted.id != *ran || pending.id != again || booted.has_live(&pending.checksum) {
            return Ok(true);
        }
        if !allowed || !booted.has_live(commit) {
            return Ok(false);
        }
        self.bring_live().map(|()| true)
    }

    /// Why the previous packages are not staged, and the remedy. `None`: they are staged.
    pub(super) fn not_staged_again(&mut self) -> Result<Option<String>, OsError> {
        let Some(StagedAgain { outcome: Outcome::Failed { packages, why }, .. }) = self.staged_again()?
        else {
            return Ok(None);
        };
        let status = self.ask()?;
        let lacks = status.next().is_some_and(|d| packages.iter().any(|p| !d.requested_packages.contains(p)));
        Ok(lacks.then(|| {
            format!(
                "an update was undone, and packages that were in the running system before it could not be staged again for the \
                 next boot ({}): {why}; correct the cause. Then the next OS update installs them. If the node is already in its \
                 pool's config, run `touch {FORCE_FILE}` on it: the config is applied again, with a reboot",
                packages.join(" ")
            )
        }))
    }

    /// Whether there is a record that goes when no undo is under way: one of packages that are staged, or one that cannot be read. No
    /// program is started.
    pub(super) fn has_needless_record(&self) -> Result<bool, OsError> {
        let failed =
            matches!(self.staged_again()?, Some(StagedAgain { outcome: Outcome::Failed { .. }, .. }));
        Ok(!failed && !self.root.found(RESTAGED_PACKAGES)?.is_absent())
    }
}
