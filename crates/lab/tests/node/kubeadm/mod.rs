//! Clusters that `kubeadm` made of machines that boot: the clusters themselves, and the product on them, installed from
//! its image with the commands of `docs/getting-started/kubeadm.md`.
//!
//! Not here: the lab's other clusters, whose control plane runs beside the nodes.

mod created;
mod installed_cluster;
mod single_control_plane;
mod three_control_planes;
mod watchers;
