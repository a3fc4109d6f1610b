//! What a config wants of the operating system.
//!
//! What it is not: how a host gets there (see `host`).

use serde::{Deserialize, Serialize};

/// What a MachineConfig says about the operating system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsState {
    /// The image; empty when the config leaves it to the host.
    pub image: String,
    /// Kernel arguments that the config adds, in order.
    pub kernel_arguments: Vec<String>,
    /// `default`, `realtime` or `64k-pages`.
    pub kernel_type: String,
    /// Extensions.
    pub extensions: Vec<String>,
}
