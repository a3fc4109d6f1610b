//! A MachineConfig as far as the image of its operating system goes: its contents may be a megabyte, and are not kept.
//!
//! Not here: whether the image is a good one (see `rollout`).

use kube::core::{NotUsed, Object};
use serde::{Deserialize, Serialize};

/// A MachineConfig of which nothing but the image is decoded.
pub(crate) type ConfigImage = Object<Option<ImageSpec>, NotUsed>;

/// What is read of a MachineConfig's `spec`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ImageSpec {
    #[serde(rename = "osImageURL", default)]
    pub(crate) os_image_url: String,
}
