//! Paths on a host by which two of our programs, or one of them and the kubelet, hand files to each other. The names are those
//! of OpenShift, so that either may take over from the other.
//!
//! What it is not: paths that one part alone uses (see `desired::paths` and `host`).

/// The annotations for the Node of a machine that boots for the first time: the config server writes them into its config, and
/// the agent puts them on the Node.
pub const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
/// The node's pull secret, which the kubelet reads.
pub const PULL_SECRET: &str = "/var/lib/kubelet/config.json";
/// Credentials for the cluster's own registry: the agent writes them, and pulls of OS images use them.
pub const INTERNAL_PULL_SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
