//! Compares the operating system with what the config asks for: what runs, and what the next boot comes up in. A person or
//! another program may have staged or booted another deployment, or changed kernel arguments.
//!
//! What the config names is compared with the config. What else the host had when a change of its OS was last kept belongs to
//! the host; what was added to that, or taken from it, since is drift too, on hosts whose OS is an image. A config that names
//! nothing costs no question. It is here, and not in `drift`, because what counts depends on the change that is under way and
//! on the reboot that is due. Not here: the commands that ask the host (see `system::os`).

use desired::mask::argument;
use desired::{DEFAULT_KERNEL, DesiredOs, OsField, arguments};
use serde::{Deserialize, Serialize};

use crate::baseline::Baseline;
use crate::disk::attributes::PRIVATE;
use crate::drift::difference::Drift;
use crate::error::Error;
use crate::host::Host;
use crate::paths::OS_KEPT;
use crate::record::RebootStatus;
use crate::system::os::extensions::is_within;
use crate::system::os::reference::same_image;
use crate::system::os::{Deployment, OsStatus, without};
use crate::transaction::journal::{Journal, Stage};
use crate::transaction::lock::Lock;

impl Host {
    /// How the operating system differs from the config. While a reboot is due, what runs is not compared.
    pub(crate) fn os_drifts(&mut self, wanted: &DesiredOs) -> Result<Vec<Drift>, Error> {
        let managed = self.os.managed(wanted)?;
        let fields = self.os_fields(&managed);
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let status = self.os.status()?;
        let settled = matches!(self.reboot_status()?, RebootStatus::None) && !self.has_unfinished_change()?;
        let mut found = os_drifts(&managed, &fields, &status, settled);
        if settled && let Some(kept) = self.kept_os()?.filter(|kept| kept.wanted == *wanted) {
            found.extend(changed_since(&kept, &status));
        }
        let of_packages = |drift: &&mut Drift| matches!(drift, Drift::Os { field: OsField::Extensions, .. });
        if let Some(Drift::Os { why, .. }) = found.iter_mut().find(of_packages)
            && let Some(not_back) = self.os.not_brought_back()?
        {
            *why = format!("{why}; {not_back}");
        }
        Ok(found)
    }

    /// Removes the boot loader's previous entries of a change that was kept, if that was not possible at the time, for
    /// example because the boot partition was mounted read-only. As long as they exist, this is reported as drift, because
    /// the machine may go back by itself. Nothing is done while a change is under way, or another process is at work.
    pub(crate) fn retry_discarding_undo_data(&mut self) -> Result<Option<Drift>, Error> {
        if !self.os.has_undo_data()? {
            return Ok(None);
        }
        let _lock = match Lock::take(&self.root) {
            Err(Error::Busy { .. }) => return Ok(None),
            taken => taken?,
        };
        if !matches!(Journal::stage(&self.root)?, Stage::Nothing) {
            return Ok(None);
        }
        match self.os_call("discard undo data", |os| os.discard_undo_data()) {
            Err(error) if !error.killed() => Ok(Some(Drift::Os {
                field: OsField::KernelArguments,
                why: api::formats::text::chain(&error),
            })),
            done => done.map(|()| None),
        }
    }

    /// Records how the OS is, now that a change of it is kept. Not on hosts without images: there the settings of the boot
    /// loader are the administrator's as much as ours. A failure is only logged: the change has proved to be good, and the record
    /// is for comparisons alone.
    pub(crate) fn note_kept_os(&mut self, journal: &Journal) -> Result<(), Error> {
        let Some((_, change)) = journal.os_change() else { return Ok(()) };
        match self.os_call("discard undo data", |os| os.discard_undo_data()) {
            // The change has proved to be good. The comparison with the config tries it again, and tells it.
            Err(error) if !error.killed() => {
                tracing::warn!(error = %api::formats::text::chain(&error), "the boot loader cannot be told that the update is kept");
            }
            done => done?,
        }
        if self.os.refuses(OsField::Image).is_some() {
            return Ok(());
        }
        match self.write_kept_os(&change.wanted) {
            Err(error) if !error.killed() => {
                tracing::warn!(error = %api::formats::text::chain(&error), "the OS that is kept now is not recorded");
                // The record of an earlier change would say that this one is drift.
                match self.root.remove(OS_KEPT) {
                    Err(error) if !error.killed() => {
                        tracing::warn!(%error, "the record of the OS that was kept before cannot be removed");
                        Ok(())
                    }
                    done => Ok(done?),
                }
            }
            done => done,
        }
    }

    fn write_kept_os(&mut self, wanted: &DesiredOs) -> Result<(), Error> {
        let kept = Kept { wanted: wanted.clone(), booted: self.os.status()?.booted };
        let unreadable =
            |e: serde_json::Error| Error::Config { name: OS_KEPT.to_owned(), why: e.to_string() };
        let json = serde_json::to_vec(&kept).map_err(unreadable)?;
        Ok(self.root.write_bytes(OS_KEPT, &json, PRIVATE)?)
    }

    /// That record. One that cannot be read is as good as none: nothing depends on it but this comparison.
    fn kept_os(&self) -> Result<Option<Kept>, Error> {
        let Some(bytes) = self.root.read_if_there(OS_KEPT)? else { return Ok(None) };
        Ok(serde_json::from_slice(&bytes)
            .inspect_err(|error| tracing::warn!(%error, "{OS_KEPT} cannot be read; remove it"))
            .ok())
    }

    /// The fields of the OS that a config sets and that this host can change.
    fn os_fields(&self, wanted: &DesiredOs) -> Vec<OsField> {
        let sets = |field: &OsField| match field {
            OsField::Image => !wanted.image.is_empty(),
            OsField::KernelArguments => !wanted.kernel_arguments.is_empty(),
            OsField::KernelType => ![DEFAULT_KERNEL, ""].contains(&wanted.kernel_type.as_str()),
            OsField::Extensions => !wanted.extensions.is_empty(),
        };
        OsField::ALL.into_iter().filter(|f| sets(f) && self.os.refuses(*f).is_none()).collect()
    }

    /// The paths whose change can mean that the OS of this config has drifted, for a watch. None of them if the config
    /// leaves the OS to the host.
    #[must_use]
    pub fn os_paths(&self, baseline: &Baseline) -> Vec<String> {
        let Ok(managed) = self.os.managed(&baseline.os) else { return self.os.paths() };
        match self.os_fields(&managed).is_empty() {
            true => Vec::new(),
            false => self.os.paths(),
        }
    }
}

/// How a host differs from what the config asks for in these fields. `settled`: what runs must have it too, and not only
/// the next boot.
fn os_drifts(wanted: &DesiredOs, fields: &[OsField], status: &OsStatus, settled: bool) -> Vec<Drift> {
    let differs = |field: OsField| {
        let next = difference(wanted, field, status.next());
        let next = next.map(|why| format!("the next boot {why}"));
        let runs = || difference(wanted, field, &status.booted).filter(|_| settled);
        next.or_else(|| runs().map(|why| format!("the running system {why}; reboot the machine")))
    };
    fields.iter().filter_map(|field| Some(Drift::Os { field: *field, why: differs(*field)? })).collect()
}

/// How the OS was when a change of it was kept. The record is compared only with what was wanted then.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    wanted: DesiredOs,
    booted: Deployment,
}

/// Arguments and packages of the next boot that came or went since then.
fn changed_since(kept: &Kept, status: &OsStatus) -> Vec<Drift> {
    let Kept { wanted, booted: kept } = kept;
    let now = status.next();
    // The kernel arguments of an image change with the image.
    let list = |list: &[String]| match list {
        [] => None,
        some => Some(some.iter().map(|one| argument(one)).collect::<Vec<_>>().join(" ")),
    };
    let came = without(&without(&now.kernel_arguments, &kept.kernel_arguments), &status.of_image);
    let went = without(&kept.kernel_arguments, &now.kernel_arguments);
    let layered: Vec<_> =
        now.extensions.iter().filter(|e| !is_within(e, &kept.extensions)).cloned().collect();
    // What the config names is compared with the config.
    let went_too = |e: &&String| !is_within(e, &now.extensions) && !is_within(e, &wanted.extensions);
    let removed: Vec<_> = kept.extensions.iter().filter(went_too).cloned().collect();
    let by_hand = format!("since the last update of the OS; change it back, or remove {OS_KEPT} to keep it");
    let told = [
        (OsField::KernelArguments, list(&came), "has in addition"),
        (OsField::KernelArguments, list(&went), "no longer has"),
        (OsField::Extensions, list(&layered), "has packages that no config names:"),
        (OsField::Extensions, list(&removed), "no longer has the packages"),
    ];
    let told = told.into_iter().filter_map(|(field, what, verb)| {
        what.map(|what| Drift::Os { field, why: format!("the next boot {verb} {what}, {by_hand}") })
    });
    told.collect()
}

/// What a deployment has instead of what is wanted.
fn difference(wanted: &DesiredOs, field: OsField, got: &Deployment) -> Option<String> {
    match field {
        OsField::Image => (!same_image(&got.image, &wanted.image))
            .then(|| format!("has the image {:?} and not {:?}", got.image, wanted.image)),
        OsField::KernelArguments => {
            let missing = without(&arguments(&wanted.kernel_arguments), &got.kernel_arguments);
            missing.first().map(|one| format!("lacks the kernel argument {}", argument(one)))
        }
        OsField::KernelType => (got.kernel_type != wanted.kernel_type)
            .then(|| format!("has the kernel {:?} and not {:?}", got.kernel_type, wanted.kernel_type)),
        OsField::Extensions => wanted
            .extensions
            .iter()
            .find(|e| !is_within(e, &got.extensions))
            .map(|missing| format!("lacks the extension {missing}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(image: &str, kernel_arguments: &str, extensions: &str) -> Deployment {
        Deployment {
            image: image.to_owned(),
            kernel_arguments: arguments(&[kernel_arguments.to_owned()]),
            kernel_type: DEFAULT_KERNEL.to_owned(),
            extensions: arguments(&[extensions.to_owned()]),
        }
    }

    #[test]
    fn what_comes_or_goes_after_a_kept_update_is_drift_and_what_an_image_brings_is_not() {
        let kept = deployment("q.io/os:1", "ro nosmt password=hush", "usbguard mine");
        for (now, of_image, want) in [
            (kept.clone(), "", &[][..]),
            (
                deployment("q.io/os:1", "ro nosmt password=hush lab.karg=2", "usbguard mine"),
                "lab.karg=2",
                &[],
            ),
            (
                deployment("q.io/os:1", "nosmt debug token=hush", "mine usbguard vim"),
                "",
                &[
                    "spec.kernelArguments: the next boot has in addition debug token=***, since",
                    "spec.kernelArguments: the next boot no longer has ro password=***, since",
                    "spec.extensions: the next boot has packages that no config names: vim, since",
                ],
            ),
            // usbguard is compared with the config.
            (
                deployment("q.io/os:1", "ro nosmt password=hush", ""),
                "",
                &["spec.extensions: the next boot no longer has the packages mine, since"],
            ),
        ] {
            let status =
                OsStatus { booted: now, of_image: arguments(&[of_image.to_owned()]), ..OsStatus::default() };
            let wanted = DesiredOs { extensions: vec!["usbguard".to_owned()], ..DesiredOs::default() };
            let kept = Kept { wanted, booted: kept.clone() };
            let told: Vec<String> = changed_since(&kept, &status).iter().map(ToString::to_string).collect();
            assert_eq!(told.len(), want.len(), "{told:?}");
            for (told, want) in told.iter().zip(want) {
                assert!(told.starts_with(want), "{told}");
            }
        }
    }

    #[test]
    fn what_was_staged_booted_or_changed_by_hand_is_told_and_what_belongs_to_the_host_is_not() {
        let wanted = DesiredOs {
            image: "q.io/os:1".to_owned(),
            kernel_arguments: vec!["nosmt password=hush".to_owned()],
            kernel_type: DEFAULT_KERNEL.to_owned(),
            extensions: vec!["usbguard".to_owned()],
            ..DesiredOs::default()
        };
        let fine = || deployment("q.io/os:1", "ro nosmt by-hand password=hush", "usbguard vim");
        let fields = [OsField::Image, OsField::KernelArguments, OsField::Extensions];
        for (booted, staged, settled, want) in [
            (fine(), None, true, &[][..]),
            (
                fine(),
                Some(deployment("q.io/os:2", "ro nosmt password=hush", "usbguard")),
                true,
                &["spec.osImageURL: the next boot has the image \"q.io/os:2\" and not \"q.io/os:1\""],
            ),
            (
                deployment("q.io/os:2", "ro nosmt password=hush", ""),
                Some(fine()),
                true,
                &[
                    "spec.osImageURL: the running system has the image \"q.io/os:2\" and not \"q.io/os:1\"; \
                     reboot the machine",
                    "spec.extensions: the running system lacks the extension usbguard; reboot the machine",
                ],
            ),
            // The agent has staged it, and the reboot is due.
            (deployment("q.io/os:2", "ro", ""), Some(fine()), false, &[]),
            (
                deployment("q.io/os:1", "ro nosmt", "usbguard"),
                None,
                true,
                &["spec.kernelArguments: the next boot lacks the kernel argument password=***"],
            ),
        ] {
            let status = OsStatus { booted, staged, ..OsStatus::default() };
            let found = os_drifts(&wanted, &fields, &status, settled);
            let told: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(told, want);
        }
    }
}
