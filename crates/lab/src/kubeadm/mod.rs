//! A cluster as administrators create it: with `kubeadm init` and `kubeadm join` in machines that boot, with kubelet
//! and containerd.
//!
//! Flow: programs and images ([`images`]) → a bridge and the load balancer ([`balancer`]) → every machine boots with
//! the files of [`node`] → `kubeadm init` on the first → the other control-plane nodes join one after another (etcd
//! takes one member at a time), then the workers, by token; kubeadm's own controllers approve their certificates →
//! every Node is Ready under its machine's boot id, and every pod of `kube-system` is ready.
//!
//! Guarantees: every wait has a time limit, and an error names the node, the command and its log. Dropping the cluster
//! removes machines, links, mounts and control groups; the next sweep removes what a killed process has left.
//!
//! Not here: the product. CoreDNS is not installed (there is nothing to resolve), and etcd does not sync to disk.

pub(crate) mod balancer;
pub(crate) mod config;
pub(crate) mod images;
pub(crate) mod node;
mod setup;
pub(crate) mod spec;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::conditions::is_true;
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::control_plane::client;
use crate::control_plane::programs::{Program, Programs};
use crate::error::{Error, Result};
use crate::kubeadm::balancer::Balancer;
use crate::kubeadm::config::{API_PORT, API_SERVICE, ETCD_HEALTH_PORT};
use crate::kubeadm::node::NodePrograms;
use crate::kubeadm::setup::Setup;
use crate::kubeadm::spec::{KubeadmBuilder, KubeadmSpec};
use crate::machine::base_root;
use crate::machine::base_root::Distribution;
use crate::machine::handle::NodeHandle;
use crate::machine::image::pause_archive;
use crate::machine::real_node::RealNode;
use crate::progress::Reporter;
use crate::system::folder::{Folder, NodeKind, sweep};
use crate::system::network::Bridge;
use crate::system::packages::ensure_packages;
use crate::system::paths::Environment;

/// The time limit for Nodes to become Ready and for their pods to run.
const READY_LIMIT: Duration = Duration::from_secs(240);
/// The pause between two checks.
const POLL: Duration = Duration::from_millis(300);
/// A running cluster. Stop it with [`Kubeadm::stop`]; dropping it does the same, blocking.
pub struct Kubeadm {
    // Fields are dropped in this order: each before what it uses.
    client: Client,
    nodes: Vec<RealNode>,
    balancer: Balancer,
    bridge: Bridge,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    folder: Arc<Folder>,
    spec: KubeadmSpec,
}

impl std::fmt::Debug for Kubeadm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubeadm")
            .field("folder", &self.folder.path())
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

impl Kubeadm {
    /// A builder for a cluster.
    pub fn builder() -> KubeadmBuilder {
        KubeadmBuilder::default()
    }

    /// Starts a cluster in this process.
    ///
    /// # Errors
    /// As [`KubeadmBuilder::start`].
    pub async fn from_spec(
        spec: &KubeadmSpec,
        environment: &Environment,
        progress: &Reporter,
    ) -> Result<Self> {
        spec.check()?;
        let swept = sweep(environment)?;
        if !swept.is_empty() {
            progress.line(&format!("removed what {} ended lab(s) had left", swept.len()));
        }
        ensure_packages(progress).await?;
        let programs = Programs::new(environment)?;
        let base = base_root::ensure(Distribution::default(), environment, progress).await?;
        let mut images = images::ensure(&programs, &base, progress).await?;
        images.every_node.push(pause_archive(environment, progress).await?);
        let own = NodePrograms {
            kubeadm: programs.get(Program::Kubeadm, progress).await?,
            kubelet: programs.get(Program::Kubelet, progress).await?,
            kubectl: programs.get(Program::Kubectl, progress).await?,
        };

        let folder = Arc::new(Folder::create(environment)?);
        crate::machine::nspawn::check_overlay(folder.path())?;
        folder.update(|record| {
            record.nodes = spec.node_names().collect();
            record.kind = Some(NodeKind::Real);
        })?;
        let bridge = Bridge::create().await?;
        folder.update(|record| record.bridge = Some(bridge.name().to_owned()))?;
        let setup = Setup::new(spec, &bridge)?;
        let servers: Vec<SocketAddr> =
            setup.control_planes().iter().map(|(_, address)| SocketAddr::new(*address, API_PORT)).collect();
        let balancer = Balancer::start(SocketAddr::new(bridge.gateway(), API_PORT), &servers).await?;

        let nodes = setup.boot(&own, &images, &base, &bridge, &folder, progress).await?;
        let kubeconfig = setup.init(&nodes, &folder, progress).await?;
        setup.join(&nodes, progress).await?;
        let client = client(&kubeconfig).await?;
        let cluster = Self {
            client,
            nodes,
            balancer,
            bridge,
            kubeconfig,
            kubectl: own.kubectl,
            folder,
            spec: spec.clone(),
        };
        let step = progress.begin("waiting until every node and its pods are ready");
        cluster.wait_ready(READY_LIMIT).await?;
        step.done();
        let kubeconfig = cluster.kubeconfig.clone();
        cluster.folder.update(|record| {
            record.kubeconfig = Some(kubeconfig);
            record.ready = true;
        })?;
        Ok(cluster)
    }

    /// Waits until every Node is Ready under its machine's real boot id, every pod of `kube-system` is ready, and every
    /// node reaches the API server through its Service. The last is checked because kube-proxy reports ready even if
    /// its rules could not be applied.
    ///
    /// # Errors
    /// Not within `limit`; the error says what is missing.
    pub async fn wait_ready(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        for node in self.handles() {
            node.wait_ready(&self.client, limit.saturating_sub(start.elapsed())).await?;
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "kube-system");
        loop {
            let seen = match pods.list(&ListParams::default()).await {
                Ok(list) => {
                    // Every node runs kube-proxy, and each control-plane node four static pods.
                    let due = self.nodes.len() + 4 * self.spec.control_planes;
                    let waits: Vec<String> =
                        list.items.iter().filter(|pod| !is_ready(pod)).map(ResourceExt::name_any).collect();
                    if waits.is_empty() && list.items.len() >= due {
                        break;
                    }
                    format!("{} of {due} pods are there, not ready: {}", list.items.len(), waits.join(", "))
                }
                Err(error) => client::chain(&error),
            };
            if start.elapsed() > limit {
                let what = "the namespace kube-system".to_owned();
                return Err(Error::Timeout { what, waited: limit, detail: seen });
            }
            tokio::time::sleep(POLL).await;
        }
        let left = || limit.saturating_sub(start.elapsed());
        try_join_all(self.nodes.iter().map(|node| service_answers(node, left()))).await.map(drop)
    }

    /// The administrator's kubeconfig, as kubeadm wrote it. Its server is the load balancer.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// `kubectl` of the cluster's version.
    #[must_use]
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    /// A client with the administrator's rights. It belongs to this runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The data folder.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The bridge to which all nodes are attached.
    #[must_use]
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The nodes: those of the control plane, then the workers.
    #[must_use]
    pub fn nodes(&self) -> &[RealNode] {
        &self.nodes
    }

    /// Handles of all nodes for tests and the demo, in the same order.
    #[must_use]
    pub fn handles(&self) -> Vec<NodeHandle> {
        self.nodes.iter().map(RealNode::handle).collect()
    }

    /// The nodes of the control plane.
    #[must_use]
    pub fn control_planes(&self) -> &[RealNode] {
        self.nodes.get(..self.spec.control_planes).unwrap_or_default()
    }

    /// The other nodes.
    #[must_use]
    pub fn workers(&self) -> &[RealNode] {
        self.nodes.get(self.spec.control_planes..).unwrap_or_default()
    }

    /// The address at which each member of etcd serves `/health` by plain HTTP, in the order of the control-plane
    /// nodes.
    #[must_use]
    pub fn etcd_members(&self) -> Vec<SocketAddr> {
        self.control_planes().iter().map(|node| SocketAddr::new(node.address(), ETCD_HEALTH_PORT)).collect()
    }

    /// Takes everything down and waits until it is gone.
    pub async fn stop(self) {
        let Self { client, nodes, balancer, bridge, folder, .. } = self;
        drop(client);
        join_all(nodes.iter().map(RealNode::stop)).await;
        balancer.stop().await;
        // Dropping these waits for the kernel, so it runs outside of the runtime's threads.
        let _done = tokio::task::spawn_blocking(move || {
            drop(nodes);
            drop(bridge);
            drop(folder);
        })
        .await;
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    is_true(conditions.unwrap_or_default(), "Ready")
}

/// Waits until a node reaches the API server through its Service.
async fn service_answers(node: &RealNode, limit: Duration) -> Result<()> {
    let start = Instant::now();
    let connect = format!("timeout 2 bash -c ': < /dev/tcp/{API_SERVICE}/443'");
    loop {
        let done = node.machine().exec(["sh", "-c", &connect]).await?;
        if done.code == 0 {
            return Ok(());
        }
        if start.elapsed() > limit {
            return Err(Error::Timeout {
                what: format!("the service of the API server on node {}", node.name()),
                waited: limit,
                detail: format!(
                    "{API_SERVICE} does not take a connection (see the log of its kube-proxy): {}",
                    done.stderr.trim()
                ),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}
