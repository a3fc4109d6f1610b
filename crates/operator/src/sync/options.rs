//! The options of the running operator.
//!
//! What it is not: the settings object, which is read from the cluster (see `settings`).

use listen::Addresses;

/// The operator's options.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Without a settings object: the config server asks for boot tokens, so user data must have them.
    pub require_token: bool,
    /// The image that this process runs in. `None`: it is not a pod, and leaves the operator's own Deployment alone.
    pub image: Option<String>,
    /// Act only while holding the Lease, so that several may run.
    pub leader_elect: bool,
    /// Where metrics and probes are served.
    pub metrics: Addresses,
}
