//! The inputs of a pool's rendering.
//!
//! What it is not: the reading of them from a cluster or from files.

use crate::config::streams::Stream;
use crate::version::{Mode, Versions};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use desired::Overrides;

/// The inputs of a pool's rendering.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The pool.
    pub pool: &'a MachineConfigPool,
    /// Its MachineConfigs, in any order; see [`select`].
    pub configs: &'a [&'a MachineConfig],
    /// Cluster facts.
    pub controller_config: &'a ControllerConfig,
    /// The rendered config that the pool is in now, if there is one.
    pub current: Option<&'a MachineConfig>,
    /// The build that renders.
    pub versions: &'a Versions,
    /// The OS image stream that the pool follows, if there are streams; otherwise the images are those of the
    /// ControllerConfig.
    pub stream: Option<&'a Stream>,
    /// Changes that are accepted although machines will not apply them.
    pub overrides: Overrides,
    /// How strict rendering is.
    pub mode: Mode,
}

impl<'a> Inputs<'a> {
    /// Inputs for a cluster, without stream and overrides.
    pub fn new(
        pool: &'a MachineConfigPool,
        configs: &'a [&'a MachineConfig],
        controller_config: &'a ControllerConfig,
        versions: &'a Versions,
    ) -> Self {
        let (current, stream, overrides, mode) = (None, None, Overrides::default(), Mode::default());
        Self { pool, configs, controller_config, current, versions, stream, overrides, mode }
    }
}
