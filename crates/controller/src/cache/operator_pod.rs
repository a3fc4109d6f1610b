//! What the node pass reads beside pools, nodes and configs, where it is there at all: OpenShift's Scheduler, the
//! operator's pod. (Image builds become values in `rollout`, which reads them offline, too.)
//!
//! None of these kinds need be installed; a cluster without them is watched for them now and then.

use api::k8s::Pod;
use std::sync::Arc;

/// The node of a pod of the operator that is not on its way out.
pub(crate) fn operator_node(pod: &Pod) -> Option<Arc<str>> {
    let gone = pod.metadata.deletion_timestamp.is_some();
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty() && !gone).map(Arc::from)
}
