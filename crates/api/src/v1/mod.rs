//! The kinds of `machineconfiguration.openshift.io/v1` that this system reads and writes.

mod controller_config;
mod machine_config;
mod machine_config_node;
mod os_image;
mod pinned_image_set;
mod pool;

pub use controller_config::*;
pub use machine_config::*;
pub use machine_config_node::*;
pub use os_image::*;
pub use pinned_image_set::*;
pub use pool::*;

/// A field whose content is somebody else's: any JSON object, unknown fields kept.
pub(crate) fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
