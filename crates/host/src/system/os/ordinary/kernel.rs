//! The kernel that a host runs, and the one that it boots by default.
//!
//! Not here: the packages that kernels are (see `manager`).
//!
//! Sources: uname(1), grubby(8).

use std::time::Duration;

use desired::DEFAULT_KERNEL;

use super::{OrdinaryHost, os};
use crate::system::os::OsError;
use crate::system::pull::Pull;

const GRUBBY: &str = "/usr/sbin/grubby";
const SOON: Duration = Duration::from_secs(60);

/// The type of a running kernel by its release, such as `6.1.0-25-rt-amd64` or `5.14.0-427.el9.x86_64+rt`.
pub(super) fn kernel_type(release: &str) -> &'static str {
    if release.contains("-rt-") || release.ends_with("+rt") || release.contains(".rt") {
        "realtime"
    } else if release.ends_with("+64k") {
        "64k-pages"
    } else {
        DEFAULT_KERNEL
    }
}

impl OrdinaryHost {
    /// Asks grubby, which sets the default entry of Red Hat's family. `None`: this host has none.
    pub(super) fn grubby(&mut self, word: &str) -> Result<Option<String>, OsError> {
        if self.root.found(GRUBBY)?.is_absent() {
            return Ok(None);
        }
        let said = self.runner().run((GRUBBY, &[word.to_owned()]), SOON, &[], &Pull::default());
        said.map(|text| Some(text.trim().to_owned())).map_err(|e| match e.killed {
            true => e,
            false => os(format!("grubby {word}: {}", e.why)),
        })
    }

    /// Lets a kernel of this type boot by default: the newest one. Debian's GRUB does that by itself.
    pub(super) fn set_default(&mut self, wanted: &str) -> Result<(), OsError> {
        if self.root.found(GRUBBY)?.is_absent() {
            return self.check_default(wanted);
        }
        let name = |file: &String| file.strip_prefix("vmlinuz-").map(str::to_owned);
        let all = self.root.list("/boot")?.iter().filter_map(name).collect::<Vec<_>>();
        let fits = all.into_iter().filter(|r| kernel_type(r) == wanted && !r.contains("rescue"));
        match fits.max_by_key(|release| numbers(release)) {
            Some(release) => self.grubby(&format!("--set-default=/boot/vmlinuz-{release}")).map(drop),
            None => Err(os(format!("there is no kernel of type {wanted} in /boot"))),
        }
    }

    /// What the machine boots by default must be a kernel of this type. Not known of every boot loader.
    pub(super) fn check_default(&self, wanted: &str) -> Result<(), OsError> {
        let Some(kernel) = self.loader.default_kernel()? else { return Ok(()) };
        if kernel_type(kernel.trim_start_matches("vmlinuz-")) == wanted {
            return Ok(());
        }
        Err(os(format!(
            "the boot loader would boot {kernel}, which is no kernel of type {wanted}; let it boot the newest kernel by \
             default (GRUB_DEFAULT in /etc/default/grub), or remove spec.kernelType from the MachineConfig"
        )))
    }
}

/// The numbers in a text, in order: of two releases of a kernel, the newer one has the greater list.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}
