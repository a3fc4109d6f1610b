//! The record of the packages that MachineConfigs have installed on an ordinary host. All other packages are the host's
//! own.

use desired::DEFAULT_KERNEL;
use serde::{Deserialize, Serialize};

use super::packages::Package;
use crate::disk::attributes::PRIVATE;
use crate::disk::root::Root;
use crate::paths::PACKAGES;
use crate::system::os::OsError;

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Record {
    /// `default`: MachineConfigs have set no kernel.
    pub(super) kernel_type: String,
    /// The extensions that are in effect.
    pub(super) extensions: Vec<String>,
    /// The packages that came, in the order in which they did. One that the host had before is not among them.
    pub(super) packages: Vec<Package>,
}

impl Default for Record {
    fn default() -> Self {
        Self { kernel_type: DEFAULT_KERNEL.to_owned(), extensions: Vec::new(), packages: Vec::new() }
    }
}

impl Record {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The host's record.
    pub(super) fn read(root: &Root) -> Result<Self, OsError> {
        let Some(text) = root.text(PACKAGES)? else { return Ok(Self::default()) };
        serde_json::from_str(&text).map_err(|e| {
            OsError::new(format!(
                "{PACKAGES} is damaged ({e}); remove it. Packages that MachineConfigs installed then count as the host's own and are never removed"
            ))
        })
    }

    /// Writes it. A record of nothing is no file.
    pub(super) fn write(&self, root: &Root) -> Result<(), OsError> {
        if self.is_empty() {
            return Ok(root.remove(PACKAGES)?);
        }
        let json = serde_json::to_vec(self).map_err(|e| OsError::new(e.to_string()))?;
        Ok(root.write_bytes(PACKAGES, &json, PRIVATE)?)
    }
}
