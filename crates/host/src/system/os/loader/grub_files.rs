//! GRUB's files: the settings that contain the arguments, and the configuration that is generated from them.
//!
//! Not here: what they mean (see `grub`).
//!
//! Source: <https://www.gnu.org/software/grub/manual/grub/grub.html>.

use std::time::Duration;

use super::find::{Grub, Loader, Settings};
use super::{BootLoader, PRIVATE, SETTINGS, grub, missing, os};
use crate::paths::GENERATED_GRUB;
use crate::system::os::OsError;

/// How long GRUB may take to generate its configuration. It looks for other systems on all disks.
const GENERATE: Duration = Duration::from_secs(300);

impl BootLoader {
    /// The name of the kernel's file that the machine boots by default. `None`: it is not known of this boot loader.
    pub(in crate::system::os) fn default_kernel(&self) -> Result<Option<String>, OsError> {
        let Ok(Loader::Grub(Grub { cfg, environment, .. })) = self.loader() else { return Ok(None) };
        let environment = self.root.text(&environment)?.unwrap_or_default();
        let text = self.text(&cfg)?;
        let list = grub::entries(&text);
        let entry = grub::default_entry(&list, grub::chosen(&text, &environment));
        Ok(entry.and_then(|e| e.kernel.rsplit('/').next()).map(str::to_owned))
    }

    pub(super) fn grub_settings(&self, settings: &Settings, own: &[String]) -> Result<(), OsError> {
        match settings {
            Settings::DropIn(path) if own.is_empty() => Ok(self.root.remove(path)?),
            Settings::DropIn(path) => self.put(path, &grub::settings(own), SETTINGS),
            Settings::Shared(path) => {
                let text = self.root.text(path)?.unwrap_or_default();
                self.put(path, &grub::with_block(&text, own), SETTINGS)
            }
        }
    }

    /// Generates GRUB's configuration into a file of its own, checks it, and puts it in place.
    pub(super) fn generate(&mut self, grub: &Grub, own: &[String]) -> Result<(), OsError> {
        self.root.remove(GENERATED_GRUB)?;
        let done = self.programs.run(grub.program, &["-o", GENERATED_GRUB], GENERATE);
        let text = done.map_err(|e| {
            os(format!(
                "{e}; the boot configuration was not changed. Run {} by hand to see its whole output",
                grub.program
            ))
        });
        let text = text.and_then(|_| self.text(GENERATED_GRUB));
        self.root.remove(GENERATED_GRUB)?;
        let text = text?;
        let list = grub::entries(&text);
        let normal: Vec<_> = list.iter().filter(|e| e.is_ours && !e.is_recovery).collect();
        if normal.is_empty() {
            return Err(os(format!(
                "{} found no kernel of this host to boot; {} was not changed. Check that /boot is mounted and \
                 /etc/grub.d/10_linux can be executed",
                grub.program, grub.cfg
            )));
        }
        for entry in normal {
            missing(&format!("the entry {:?} of {}", entry.title, grub.program), own, &entry.arguments)?;
        }
        self.put(&grub.cfg, &text, PRIVATE)
    }
}
