//! What the disk of a host says of where it stands.
//!
//! What it is not: what follows (see `protocol`).

use super::{ANNOTATIONS_FILE, Machine, MachineError};
use crate::protocol::{DiskFacts, RebootFact, TrialFacts, TriedFacts};
use host::RebootStatus;
use jiff::{SignedDuration, Timestamp};

/// A change on trial, as the protocol sees it. What was noted before it is unreadable only if another program wrote it:
/// then nothing but its units is asked for.
fn trial_facts(open: host::OpenTrial) -> TrialFacts {
    let within = SignedDuration::from_secs(open.trial.within.try_into().unwrap_or(i64::MAX));
    TrialFacts {
        config: open.names.desired,
        begun: open.begun,
        reboots: open.trial.reboots,
        within,
        left: SignedDuration::try_from(open.left).unwrap_or(within),
        units: open.trial.units,
        before: serde_json::from_str(&open.trial.before).unwrap_or_default(),
    }
}

impl Machine {
    pub(crate) fn facts(&self) -> Result<DiskFacts, MachineError> {
        let mut host = self.host();
        let trial = host.trial()?.map(trial_facts);
        let status = host.reboot_status()?;
        let back = matches!(&status, RebootStatus::Owed(r) if r.back);
        let reboot = match status {
            RebootStatus::None => RebootFact::None,
            RebootStatus::Owed(r) => {
                RebootFact::Owed { config: r.config, tries: r.tries, cleared: r.cleared }
            }
            RebootStatus::Rebooted(r) => {
                let boot_id = r.boot.boot_id;
                let began = match host.boot()?.boot_id == boot_id {
                    true => Timestamp::from_second(host.boot_marked()?.unwrap_or_default()).ok(),
                    false => None,
                };
                RebootFact::Rebooted { config: r.config, boot_id, began }
            }
        };
        let tried = match host.trial_failure()? {
            Some(failed) => {
                let now = host.boot()?;
                let here = |aftermath: &host::Aftermath| {
                    aftermath.undone_in.as_ref().is_some_and(|boot| boot.is_same_boot(&now))
                };
                let in_doubt = failed.aftermath.as_ref().is_some_and(|aftermath| !here(aftermath));
                Some(TriedFacts { config: failed.config, check: failed.check, retry: false, in_doubt })
            }
            None => None,
        };
        Ok(DiskFacts {
            // The undo of a trial that waits for nothing but its reboot goes on by itself.
            open: host.has_unfinished_change()? || host.has_failed_trial()? && !back,
            current: host.current_config()?.map(|c| c.name),
            annotations_file: !self.root.found(ANNOTATIONS_FILE)?.is_absent(),
            force: !self.root.found(host::paths::FORCE_FILE)?.is_absent(),
            reboot,
            reboot_of_trial: back,
            trial,
            tried,
            takes_images: host.takes_node_image(),
        })
    }
}
