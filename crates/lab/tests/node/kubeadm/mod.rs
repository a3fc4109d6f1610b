//! Clusters that `kubeadm` made of machines that boot: the clusters themselves, and the product on them.
//!
//! Not here: the lab's other clusters, whose control plane runs beside the nodes.

mod made;
