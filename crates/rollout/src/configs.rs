//! MachineConfigs as a rollout reads them, and whether one exists.
//!
//! What it is not: their contents. Those are rendered, and applied by the agents.

use crate::os_image::ImageLookup;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The part of a MachineConfig that a rollout reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigView {
    /// The pool that it was rendered for.
    pub pool: Option<Arc<str>>,
    /// `spec.osImageURL`; empty if there is none.
    pub os_image_url: Box<str>,
    /// What the controller has found out about that image.
    pub looked: ImageLookup,
}

/// The MachineConfigs of the cluster.
pub trait Configs {
    /// The one with this name.
    fn view(&self, name: &str) -> Option<ConfigView>;
}

impl Configs for BTreeMap<String, ConfigView> {
    fn view(&self, name: &str) -> Option<ConfigView> {
        self.get(name).cloned()
    }
}

/// Whether there is a MachineConfig of this name. If the MachineConfigs are not known, it is assumed to exist.
pub(crate) fn config_exists(configs: Option<&dyn Configs>, name: &str) -> bool {
    configs.is_none_or(|all| all.view(name).is_some())
}
