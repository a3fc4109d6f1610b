//! MachineConfig: what a host must look like. Rendered ones are MachineConfigs too, named `rendered-POOL-HASH`.
//!
//! Sources: <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types.go>
//! and <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfig.md>.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

crate::definition::resource::resource!(
    /// A piece of host configuration, or (named `rendered-…`) the whole of a pool's.
    MachineConfig, MachineConfigSpec, NoStatus,
    "machineconfiguration.openshift.io", "v1", "machineconfigs"
);

/// The status of a kind that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoStatus {}

/// Everything that a MachineConfig can say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigSpec {
    /// The OS image, by digest. Empty: the cluster's default.
    #[serde(rename = "osImageURL", default)]
    pub os_image_url: String,
    /// The image that extensions are installed from. Empty: the cluster's default.
    #[serde(rename = "baseOSExtensionsContainerImage", default)]
    pub base_os_extensions_container_image: String,
    /// An Ignition config, as the user wrote it (spec 2.2 or 3.x).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::any_object")]
    pub config: Option<Value>,
    /// Arguments on the kernel's command line, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_arguments: Option<Vec<String>>,
    /// Names of OS extensions to install.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<String>>,
    /// FIPS mode; cannot change on a running machine.
    #[serde(default)]
    pub fips: bool,
    /// `default`, `realtime` or `64k-pages`. Empty: not said.
    #[serde(default)]
    pub kernel_type: String,
}
