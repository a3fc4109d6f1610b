//! PinnedImageSets on this node: their images are pulled before pods need them, and kept from the kubelet's garbage collection.
//!
//! ```text
//! PinnedImageSets (watch) ─┐
//! own Node, pools ─────────┼─► manager ─► sync ─► plan ─► container runtime (CRI, containerd's images, CRI-O's configuration)
//! time for another look ───┘      └─► report ─► MachineConfigNode
//! ```
//!
//! `plan`, `report`, `auth` and `wire` are pure. A node without a set does nothing but watch the sets.
//!
//! Not here: the rollout, which waits for no set; or the image of the operating system (see the `host` crate).

mod auth;
mod crio;
mod grpc;
mod images;
mod inspect;
mod manager;
mod plan;
mod pull;
mod report;
mod runtime;
mod sizes;
mod sync;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use manager::{Manager, follow_sets};
