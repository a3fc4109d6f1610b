//! Certificates and credentials that the cluster distributes to every host through its ControllerConfig: the kubelet's
//! client CA, the cloud's CA, registries' CAs, the pull secret of the cluster's own registry, and the API server's CA
//! in the kubelet's kubeconfigs.
//!
//! They are not part of any MachineConfig or update. Nodes of a paused pool get them too, and they never cost a drain
//! or a reboot.
//!
//! ```text
//! ControllerConfig (a watch of that one object) ─► wanted ─► files ─► disk, where it differs
//!             service-ca-rotate=true ─► kubeconfig_ca ─► the kubelet's kubeconfigs and the agent's ─► the kubelet's restart
//! ```

mod files;
mod kubeconfig_ca;
mod kubeconfig_files;
mod writer;

pub(crate) use writer::{CertificateHost, Writer};
