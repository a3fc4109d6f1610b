//! Where the nodes of a pool are sent: a rendered config, and an OS image where one was built for it.
//!
//! What it is not: which build belongs to a pool's config, and whether machines may have its image (see `api::images::image_builds`).

pub use api::images::build_state::BuildState;
pub use api::images::image_builds::{ImageWait, Layering, OsBuildView, OsConfigView};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A change from one rendered config to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeAsked {
    /// The config that nodes are in.
    pub from: Arc<str>,
    /// The one that they are to move to.
    pub to: Arc<str>,
}

/// Where nodes should go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The rendered MachineConfig.
    pub config: Arc<str>,
    /// The layered OS image, where the pool has one.
    pub image: Option<Arc<str>>,
}

impl Target {
    /// Where the nodes of a pool with this rendered config go: to the image that was built for it, where one is built.
    pub(crate) fn of(config: Arc<str>, layering: &Layering) -> Self {
        match &layering.build {
            Some(build) if layering.config.is_some() => {
                Self { config: build.machine_config.clone(), image: layering.image().cloned() }
            }
            _ => Self { config, image: None },
        }
    }
}
