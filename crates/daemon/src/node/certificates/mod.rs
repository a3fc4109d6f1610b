//! Certificates and credentials that the cluster gives to every host, from its ControllerConfig: the kubelet's client
//! CA, the cloud's CA, registries' CAs, the pull secret of the cluster's own registry, and the API server's CA in the
//! kubelet's kubeconfigs.
//!
//! What it is not: a part of any MachineConfig, nor of an update. A paused pool gets them too; they never cost a drain
//! or a reboot.
//!
//! ```text
//! ControllerConfig (a watch of that one object) ─► wanted ─► files ─► disk, where it differs
//!             service-ca-rotate=true ─► kubeconfig_ca ─► /etc/kubernetes/kubeconfig, the kubelet's own ─► its restart
//! ```

mod files;
mod kubeconfig_ca;
mod writer;

pub(crate) use writer::Writer;
