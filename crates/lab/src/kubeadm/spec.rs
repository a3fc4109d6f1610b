//! The specification of a kubeadm cluster, and the builder that collects it.
//!
//! Not here: starting a cluster.

use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::kubeadm::Kubeadm;
use crate::system::packages::is_root;
use crate::system::paths::Environment;

/// The most nodes that one computer can run; for scale there are simulated nodes.
const MOST_NODES: usize = 20;

/// The specification of a kubeadm cluster. Serializable, so that another process can build it (`lab up`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeadmSpec {
    /// The number of control-plane nodes, each with a member of etcd: 1 or 3, because etcd wants an odd number.
    pub control_planes: usize,
    /// The number of workers.
    pub workers: usize,
}

impl Default for KubeadmSpec {
    fn default() -> Self {
        Self { control_planes: 1, workers: 1 }
    }
}

impl KubeadmSpec {
    /// Every node: those of the control plane, then the workers.
    pub fn node_names(&self) -> impl Iterator<Item = String> {
        let control_planes = (0..self.control_planes).map(|n| format!("control-plane-{n}"));
        control_planes.chain((0..self.workers).map(|n| format!("worker-{n}")))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let options = |text: String| Err(Error::Options(text));
        if self.control_planes == 0 || self.control_planes.is_multiple_of(2) {
            return options(format!(
                "{} control-plane nodes: etcd wants an odd number of members, 1 or 3",
                self.control_planes
            ));
        }
        let all = self.control_planes + self.workers;
        if all > MOST_NODES {
            return options(format!("{all} nodes: a cluster of kubeadm has at most {MOST_NODES} in the lab"));
        }
        if !is_root() {
            return Err(Error::NeedsRoot { what: "a cluster of kubeadm" });
        }
        Ok(())
    }
}

/// Collects what a cluster should be, then [`KubeadmBuilder::start`]s it.
pub type KubeadmBuilder = Builder<KubeadmSpec>;

impl KubeadmBuilder {
    /// Sets the number of control-plane nodes: 1 or 3.
    pub fn control_planes(mut self, number: usize) -> Self {
        self.spec.control_planes = number;
        self
    }

    /// Sets the number of workers.
    pub fn workers(mut self, number: usize) -> Self {
        self.spec.workers = number;
        self
    }

    /// Starts the cluster and returns when every node is Ready.
    ///
    /// # Errors
    /// Any part fails; what was started by then is taken down again.
    pub async fn start(self) -> Result<Kubeadm> {
        let environment = self.environment.unwrap_or_else(Environment::read);
        Kubeadm::from_spec(&self.spec, &environment, &self.progress).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_planes_that_make_no_etcd_and_clusters_that_are_too_large_are_refused() {
        for (control_planes, workers, want) in
            [(0, 1, "odd number"), (2, 0, "odd number"), (3, 18, "21 nodes")]
        {
            let error = KubeadmSpec { control_planes, workers }.check().unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
        let names: Vec<String> = KubeadmSpec { control_planes: 1, workers: 2 }.node_names().collect();
        assert_eq!(names, ["control-plane-0", "worker-0", "worker-1"]);
    }

    #[test]
    fn a_cluster_is_asked_for_in_words_that_another_process_reads() {
        let request = crate::Request::from(KubeadmSpec { control_planes: 3, workers: 2 });
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(text, r#"{"kubeadm":{"controlPlanes":3,"workers":2}}"#);
        assert_eq!(serde_json::from_str::<crate::Request>(&text).unwrap(), request);
    }
}
