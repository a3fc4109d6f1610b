//! Kernel arguments of deployments, which neither OSTree nor bootc says: those of the boot loader's entries, and those that an
//! image brings along.
//!
//! Not here: how they are changed (see the parent module).
//!
//! Sources: <https://uapi-group.org/specifications/specs/boot_loader_specification/> and <https://ostreedev.github.io/ostree/>.

use super::found::OstreeDeployment;
use super::{ENTRIES, OstreeHost, kargs_d};
use crate::disk::path_state::PathState;
use crate::system::os::OsError;
use crate::system::os::arguments::{CMDLINE, of_deployment};
use crate::system::os::loader::entries;

impl OstreeHost {
    /// The arguments of a deployment's boot loader entry. An entry names its deployment by a link, whose name changes
    /// when OSTree writes all entries anew.
    pub(super) fn entry_of(&self, one: &OstreeDeployment) -> Result<Option<Vec<String>>, OsError> {
        let place = format!("/deploy/{}/deploy/{}.{}", one.stateroot, one.checksum, one.serial);
        self.find_entry(|link| {
            Ok(match self.root.found(link)? {
                PathState::Link { target, .. } => target.trim_end_matches('/').ends_with(&place),
                _ => false,
            })
        })
    }

    /// The arguments of the running deployment's boot loader entry: what it boots with, whatever a person typed at the
    /// prompt this time.
    pub(super) fn entry_of_booted(&self, booted: &OstreeDeployment) -> Result<Vec<String>, OsError> {
        if let Some(all) = self.entry_of(booted)? {
            return Ok(all);
        }
        let cmdline = self.root.text(CMDLINE)?.unwrap_or_default();
        let mark = cmdline.split_whitespace().find_map(|w| w.strip_prefix("ostree="));
        let by_mark = self.find_entry(|link| Ok(Some(link) == mark && self.root.found(link)?.is_absent()))?;
        by_mark.ok_or_else(|| {
            OsError::new(format!(
                "no boot loader entry in {ENTRIES} is that of the running deployment {}, so its kernel arguments are not \
                 known; check that /boot is mounted, and write the entries again with ostree admin deploy",
                booted.id()
            ))
        })
    }

    /// The arguments of the first entry whose link is taken.
    pub(super) fn find_entry(
        &self,
        is: impl Fn(&str) -> Result<bool, OsError>,
    ) -> Result<Option<Vec<String>>, OsError> {
        for name in self.root.list(ENTRIES)?.into_iter().filter(|n| n.ends_with(".conf")) {
            let text = self.root.text(&format!("{ENTRIES}/{name}"))?.unwrap_or_default();
            let all = entries::arguments_of(&text);
            let link = all.iter().find_map(|a| a.strip_prefix("ostree="));
            if let Some(link) = link
                && is(link)?
            {
                return Ok(Some(of_deployment(&all.join(" "))));
            }
        }
        Ok(None)
    }

    /// The arguments that the image of a deployment brings along.
    pub(super) fn of_image(&self, one: &OstreeDeployment) -> Result<Vec<String>, OsError> {
        let folder = format!("{}/usr/lib/bootc/kargs.d", one.folder());
        let mut out = Vec::new();
        for name in self.root.list(&folder)?.into_iter().filter(|n| n.ends_with(".toml")) {
            let path = format!("{folder}/{name}");
            let text = self.root.text(&path)?.unwrap_or_default();
            let some = kargs_d::of(&text, std::env::consts::ARCH);
            out.extend(
                some.map_err(|e| OsError::new(format!("{path} of the image: {e}; correct the image")))?,
            );
        }
        Ok(out)
    }
}
