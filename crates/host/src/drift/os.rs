//! Compares the operating system with what the config asks for: what runs, and what the next boot comes up in. A person or
//! another program may have staged or booted another deployment, or changed kernel arguments.
//!
//! Only what the config names is compared: everything else of the OS belongs to the host. A config that names nothing costs no
//! question. Not here: the commands that ask the host (see `system::os`), nor packages that no config names (see
//! `OsBackend::unsupported_packages`).

use desired::mask::argument;
use desired::{DEFAULT_KERNEL, OsField, OsWanted, arguments};

use crate::drift::baseline::Baseline;
use crate::drift::compare::Drift;
use crate::error::Error;
use crate::host::Host;
use crate::system::os::reference::same_image;
use crate::system::os::rpm_ostree::packages::is_within;
use crate::system::os::{Deployment, OsStatus, without};
use crate::transaction::reboot::RebootStatus;

impl Host {
    /// How the operating system differs from the config. While a reboot is due, what runs is not compared.
    pub(super) fn os_drifts(&mut self, wanted: &OsWanted) -> Result<Vec<Drift>, Error> {
        let fields = self.os_fields(wanted);
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let status = self.os.status()?;
        let settled = matches!(self.reboot_status()?, RebootStatus::None) && !self.has_unfinished_change()?;
        Ok(os_drifts(wanted, &fields, &status, settled))
    }

    /// The fields of the OS that a config sets and that this host can change.
    fn os_fields(&self, wanted: &OsWanted) -> Vec<OsField> {
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
        match self.os_fields(&baseline.os).is_empty() {
            true => Vec::new(),
            false => self.os.paths(),
        }
    }
}

/// How a host differs from what the config asks for in these fields. `settled`: what runs must have it too, and not only
/// the next boot.
fn os_drifts(wanted: &OsWanted, fields: &[OsField], status: &OsStatus, settled: bool) -> Vec<Drift> {
    let differs = |field: OsField| {
        let next = difference(wanted, field, status.next());
        let next = next.map(|why| format!("the next boot {why}"));
        let runs = || difference(wanted, field, &status.booted).filter(|_| settled);
        next.or_else(|| runs().map(|why| format!("the machine runs with another one: it {why}; reboot it")))
    };
    fields.iter().filter_map(|field| Some(Drift::Os { field: *field, why: differs(*field)? })).collect()
}

/// What a deployment has instead of what is wanted.
fn difference(wanted: &OsWanted, field: OsField, got: &Deployment) -> Option<String> {
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
    fn what_was_staged_booted_or_changed_by_hand_is_told_and_what_belongs_to_the_host_is_not() {
        let wanted = OsWanted {
            image: "q.io/os:1".to_owned(),
            kernel_arguments: vec!["nosmt password=hush".to_owned()],
            kernel_type: DEFAULT_KERNEL.to_owned(),
            extensions: vec!["usbguard".to_owned()],
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
                    "spec.osImageURL: the machine runs with another one: it has the image \"q.io/os:2\" and not \"q.io/os:1\"; \
                     reboot it",
                    "spec.extensions: the machine runs with another one: it lacks the extension usbguard; reboot it",
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
