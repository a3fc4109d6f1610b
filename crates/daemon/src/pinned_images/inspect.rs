//! What a round asks of the host and of its container runtime before it plans: sockets, images that are there, room. Nothing is
//! decided here.
//!
//! Not here: the sizes of images that are missing (see `sizes`).

use super::grpc::GrpcError;
use super::images::{Images, RoundError};
use super::plan::{Facts, PinnedSet, Reserve, Space, images};
use super::runtime::{Kind, Runtime, RuntimeError, sockets, stored_name};
use crate::protocol::join::KUBELET_SETTINGS;
use api::conditions::is_true;
use api::k8s::Node;
use host::FsError;
use rollout::view::{Labels, Names};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Newer versions of kubeadm note the runtime's socket here.
const INSTANCE_SETTINGS: &str = "/var/lib/kubelet/instance-config.yaml";
/// Where kubeadm notes it on the Node.
const SOCKET_NOTE: &str = "kubeadm.alpha.kubernetes.io/cri-socket";

impl Images {
    pub(super) fn sockets(&self, node: &Node) -> Result<Vec<PathBuf>, FsError> {
        let mut settings = vec![];
        for path in [INSTANCE_SETTINGS, KUBELET_SETTINGS] {
            settings.extend(self.root.text(path)?);
        }
        let note = node.metadata.annotations.as_ref().and_then(|a| a.get(SOCKET_NOTE));
        let info = node.status.as_ref().and_then(|s| s.node_info.as_ref());
        let runtime = info.map(|i| i.container_runtime_version.as_str()).unwrap_or_default();
        Ok(sockets(&self.root_mount, note.map(String::as_str), &settings, runtime))
    }

    pub(super) async fn facts(
        &self,
        runtime: &Runtime,
        sets: &[PinnedSet],
        node: &Node,
        folder: Option<&str>,
    ) -> Result<Facts, RoundError> {
        let mut present = BTreeMap::new();
        for image in images(sets) {
            match runtime.held(&image).await {
                Ok(Some(held)) => drop(present.insert(image, held.pinned)),
                // An image that is refused by its name is missing, and its pull says why.
                Ok(None) | Err(RuntimeError::Call(GrpcError::Refused { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ours = match runtime.kind {
            Kind::Containerd => runtime.ours().await?.into_iter().collect(),
            // Its list is all that there is.
            Kind::CriO => images(sets).iter().map(|image| stored_name(image)).collect(),
        };
        let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        let labels = Labels::new(node.metadata.labels.as_ref(), &mut Names::default());
        Ok(Facts {
            present,
            ours,
            space: self.space(folder),
            needed: 0,
            ready: is_true(conditions, "Ready"),
            disk_pressure: is_true(conditions, "DiskPressure"),
            control_plane: rollout::is_control_plane(&labels),
        })
    }

    /// Room in the folder of images.
    pub(super) fn space(&self, folder: Option<&str>) -> Option<Space> {
        let path = self.root_mount.join(folder?.trim_start_matches('/'));
        match rustix::fs::statvfs(&path) {
            Ok(found) => {
                let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
                let settings = self.root.text(KUBELET_SETTINGS).ok().flatten();
                let reserve = Reserve::of(settings.as_deref());
                Some(Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks), reserve })
            }
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "the free space for images is not known");
                None
            }
        }
    }
}
