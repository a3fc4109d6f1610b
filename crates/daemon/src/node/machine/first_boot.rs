//! What the first boot of a machine left on its host: annotations for the Node, the config that was served, and signs of the
//! control plane.
//!
//! Not here: the first boot itself (see `entry::first_boot`), nor which config a new node joins with (see `protocol::join`).

use super::{Machine, MachineError};
use crate::protocol::join::{self, KUBELET_SETTINGS, SERVER_DATA, STATIC_PODS};
use api::v1::MachineConfig;
use std::collections::BTreeMap;

/// The annotations that the first boot leaves for the Node, as a JSON map.
pub(crate) const ANNOTATIONS_FILE: &str = desired::paths::NODE_ANNOTATIONS;
/// Its name after it was used. OpenShift's daemon uses this name, without the `s`.
const ANNOTATIONS_FILE_USED: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// The complete config that the config server served.
pub(crate) const SERVED_FILE: &str = api::paths::SERVED_CONFIG;
/// The input of a first boot. When the agent runs, the first boot is over.
pub(crate) const FIRSTBOOT_FILE: &str = api::paths::ENCAPSULATED;
/// The presets that Ignition writes for the first boot. Later boots must not see them.
const FIRSTBOOT_PRESET: &str = "/etc/systemd/system-preset/20-ignition.preset";

impl Machine {
    /// Removes what only the first boot may see.
    pub(super) fn clear_first_boot(&self) -> Result<(), MachineError> {
        if !self.root.found(FIRSTBOOT_FILE)?.is_absent() {
            tracing::warn!("{FIRSTBOOT_FILE} was left over from the first boot; renamed it");
            self.root.rename(FIRSTBOOT_FILE, &format!("{FIRSTBOOT_FILE}.bak"))?;
        }
        if !self.root.found(FIRSTBOOT_PRESET)?.is_absent() {
            self.root.remove(FIRSTBOOT_PRESET)?;
        }
        Ok(())
    }

    /// The path that shows that the host belongs to the control plane: a static pod of the API server or of etcd, in
    /// the folder that the kubelet's settings name or in a usual one, or a server's data folder. `None`: there is no
    /// such path.
    pub(crate) fn control_plane(&self) -> Result<Option<String>, MachineError> {
        let settings = self.root.text(KUBELET_SETTINGS)?.unwrap_or_default();
        let folders = join::static_pod_folder(&settings).into_iter();
        for folder in folders.chain(STATIC_PODS.map(str::to_owned)) {
            if let Some(pod) = self.root.list(&folder)?.iter().find(|name| join::is_control_plane_pod(name)) {
                return Ok(Some(format!("{folder}/{pod}")));
            }
        }
        for path in SERVER_DATA {
            if !self.root.found(path)?.is_absent() {
                return Ok(Some(path.to_owned()));
            }
        }
        Ok(None)
    }

    /// The annotations that the first boot left for the Node.
    pub(crate) fn first_annotations(&self) -> Result<BTreeMap<String, String>, MachineError> {
        let text = self.root.text(ANNOTATIONS_FILE)?.unwrap_or_default();
        api::formats::shape::read_bytes(text.as_bytes()).map_err(|e| {
            let remedy = "repair or remove the file";
            MachineError::degraded(format!("{ANNOTATIONS_FILE} is not a map of annotations ({e}); {remedy}"))
        })
    }

    /// Renames the file of these annotations after they were used.
    pub(crate) fn retire_first_annotations(&self) -> Result<(), MachineError> {
        Ok(self.root.rename(ANNOTATIONS_FILE, ANNOTATIONS_FILE_USED)?)
    }

    /// The config that the config server left on the host, if it has this name.
    pub(crate) fn served(&self, name: &str) -> Result<Option<MachineConfig>, MachineError> {
        let Some(text) = self.root.text(SERVED_FILE)? else { return Ok(None) };
        match api::formats::shape::read_bytes::<MachineConfig>(text.as_bytes()) {
            Ok(config) => Ok(Some(config).filter(|c| c.metadata.name.as_deref() == Some(name))),
            Err(error) => {
                tracing::warn!(%error, "{SERVED_FILE} is not a MachineConfig");
                Ok(None)
            }
        }
    }
}
