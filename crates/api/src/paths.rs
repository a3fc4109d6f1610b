//! Paths on a host that several parts know: those by which two of our programs, or one of them and the kubelet, hand files to each
//! other, under OpenShift's names, so that either may take over from the other; and files of others that several parts write or
//! read.
//!
//! What it is not: paths that one part alone uses (see `desired::paths` and `host`).

/// The annotations for the Node of a machine that boots for the first time: the config server writes them into its config, and
/// the agent puts them on the Node.
pub const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
/// The node's pull secret, which the kubelet reads.
pub const PULL_SECRET: &str = "/var/lib/kubelet/config.json";
/// Credentials for the cluster's own registry: the agent writes them, and pulls of OS images use them.
pub const INTERNAL_PULL_SECRET: &str = "/etc/mco/internal-registry-pull-secret.json";
/// The CA with which the kubelet verifies its clients. The config server puts it into first configs, and the agent keeps it up to
/// date.
pub const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
/// The cloud provider's CA, as [`KUBELET_CA`].
pub const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
/// The whole MachineConfig that the config server served.
pub const SERVED_CONFIG: &str = "/etc/mcs-machine-config-content.json";
/// The MachineConfig without its Ignition part: the config server writes it into its config, and the agent applies it at the first
/// boot.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
/// The registries and mirrors that programs pull from: containers-registries.conf(5).
pub const REGISTRIES_CONF: &str = "/etc/containers/registries.conf";
/// Where container runtimes look for the CAs of registries, by the registry's name: containers-certs.d(5).
pub const REGISTRY_CERTIFICATES: &str = "/etc/docker/certs.d";
