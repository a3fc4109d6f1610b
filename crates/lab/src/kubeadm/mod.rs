//! A cluster as administrators make it: `kubeadm init` and `kubeadm join` in machines that boot, with kubelet and containerd.
//!
//! Flow: programs and images ([`images`]) → a bridge and the balancer ([`balancer`]) → every machine boots with what
//! [`node`] says → `kubeadm init` on the first → the other control-plane nodes join one after another (etcd takes one member
//! at a time), then the workers, by token; kubeadm's own controllers approve their certificates → every Node Ready under its
//! machine's boot id, every pod of `kube-system` ready.
//!
//! Guarantees: every wait has an end, and an error names the node, the command and its log. Dropping the cluster takes away
//! machines, links, mounts and control groups; what a killed process leaves is swept.
//!
//! Not here: the product. CoreDNS is left out (there is nothing to resolve), and etcd does not sync to disk.

pub(crate) mod balancer;
pub(crate) mod config;
pub(crate) mod images;
pub(crate) mod node;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::control_plane::programs::{Program, Programs};
use crate::control_plane::{client, write_private};
use crate::error::{Error, Result};
use crate::kubeadm::balancer::Balancer;
use crate::kubeadm::config::{API_PORT, API_SERVICE, ETCD_HEALTH_PORT, Member, Ticket};
use crate::kubeadm::images::Images;
use crate::kubeadm::node::{FOLDER, IMAGES_UNIT, NodePrograms, setup};
use crate::lab::handle::NodeHandle;
use crate::machine::base_root;
use crate::machine::base_root::Distribution;
use crate::machine::image::pause_archive;
use crate::machine::network::{Bridge, random};
use crate::machine::real_node::{RealNode, RealNodeSpec};
use crate::progress::Reporter;
use crate::system::folder::{Folder, NodeKind, sweep};
use crate::system::packages::{ensure_packages, is_root};
use crate::system::paths::Environment;
use crate::system::process::tail;

/// All machines boot at once: a node takes 3 s alone, half a minute with five others on two cores.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// Loading half a gigabyte of images takes 9 s on an idle computer, with five other nodes ten times that.
const IMAGES_LIMIT: Duration = Duration::from_secs(300);
/// `init` and `join` take 7 to 17 s; kubeadm itself gives up on its own steps after four minutes each.
const KUBEADM_LIMIT: Duration = Duration::from_secs(480);
/// A short kubeadm command.
const SHORT_LIMIT: Duration = Duration::from_secs(60);
/// Until Nodes are Ready and their pods run.
const READY_LIMIT: Duration = Duration::from_secs(240);
/// Between two looks.
const POLL: Duration = Duration::from_millis(300);
/// Where kubeadm puts the administrator's kubeconfig.
const ADMIN: &str = "/etc/kubernetes/admin.conf";
/// kubeadm refuses a kernel with the old control groups otherwise.
const ALLOWED: &str = "--ignore-preflight-errors=SystemVerification";
/// What one control-plane node of a lab can have beside it: more would be a scale run, which this is not.
const MOST_NODES: usize = 20;

/// What a cluster of kubeadm should be. Serializable, so that another process can build it (`lab up`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeadmSpec {
    /// How many nodes with a control plane and a member of etcd each: 1 or 3, as etcd wants an odd number.
    pub control_planes: usize,
    /// How many other nodes.
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

    fn check(&self) -> Result<()> {
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

/// Says what a cluster should be, then [`KubeadmBuilder::start`]s it.
#[derive(Debug, Clone, Default)]
#[must_use = "call `start`"]
pub struct KubeadmBuilder {
    spec: KubeadmSpec,
    progress: Reporter,
    environment: Option<Environment>,
}

impl KubeadmBuilder {
    /// How many nodes with a control plane: 1 or 3.
    pub fn control_planes(mut self, number: usize) -> Self {
        self.spec.control_planes = number;
        self
    }

    /// How many other nodes.
    pub fn workers(mut self, number: usize) -> Self {
        self.spec.workers = number;
        self
    }

    /// Where progress lines go; nowhere by default.
    pub fn progress(mut self, progress: Reporter) -> Self {
        self.progress = progress;
        self
    }

    /// The environment, where it is not the process's own.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// What has been said so far, for `lab::up`.
    #[must_use]
    pub fn spec(&self) -> &KubeadmSpec {
        &self.spec
    }

    /// Brings the cluster up and returns when every node is Ready.
    ///
    /// # Errors
    /// Any part fails; what was up by then is taken down again.
    pub async fn start(self) -> Result<Kubeadm> {
        let environment = self.environment.unwrap_or_else(Environment::read);
        Kubeadm::from_spec(&self.spec, &environment, &self.progress).await
    }
}

/// A running cluster. Take it down with [`Kubeadm::stop`]; dropping it does the same, blocking.
pub struct Kubeadm {
    // Fields drop in order: what uses something before what it uses.
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
    /// Says what a cluster should be.
    pub fn builder() -> KubeadmBuilder {
        KubeadmBuilder::default()
    }

    /// Brings a cluster up in this process.
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
        crate::machine::check_overlay(folder.path())?;
        folder.update(|record| {
            record.nodes = spec.node_names().collect();
            record.kind = Some(NodeKind::Real);
        })?;
        let bridge = Bridge::create().await?;
        folder.update(|record| record.bridge = Some(bridge.name().to_owned()))?;
        let making = Making::new(spec, &bridge)?;
        let servers: Vec<SocketAddr> =
            making.control_planes().iter().map(|(_, address)| SocketAddr::new(*address, API_PORT)).collect();
        let balancer = Balancer::start(SocketAddr::new(bridge.gateway(), API_PORT), &servers).await?;

        let nodes = making.boot(&own, &images, &base, &bridge, &folder, progress).await?;
        let kubeconfig = making.init(&nodes, &folder, progress).await?;
        making.join(&nodes, progress).await?;
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

    /// Waits until every Node is Ready under the boot id that its machine really has, every pod of `kube-system` is ready, and
    /// every node reaches the API server by its service's address. kube-proxy is ready whether or not its rules were taken.
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
                    // Every node has kube-proxy, those of the control plane four static pods.
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

    /// The administrator's kubeconfig, as kubeadm made it. Its server is the balancer.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// `kubectl` of the cluster's version.
    #[must_use]
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    /// An administrator's client of this runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The data folder.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The bridge that all nodes are on.
    #[must_use]
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The nodes: those of the control plane, then the workers.
    #[must_use]
    pub fn nodes(&self) -> &[RealNode] {
        &self.nodes
    }

    /// Every node as tests and the demo see it, in the same order.
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

    /// Where each member of etcd says how it is (`/health`), by plain HTTP, in the order of the control-plane nodes.
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
        // They wait for the kernel: off the runtime's threads.
        let _done = tokio::task::spawn_blocking(move || {
            drop(nodes);
            drop(bridge);
            drop(folder);
        })
        .await;
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

/// What is known before the first machine boots.
struct Making {
    /// Every node's name and address.
    nodes: Vec<(String, IpAddr)>,
    control_planes: usize,
    /// The balancer's address.
    endpoint: IpAddr,
    certificate_key: String,
}

impl Making {
    fn new(spec: &KubeadmSpec, bridge: &Bridge) -> Result<Self> {
        let mut nodes = vec![];
        for (index, name) in spec.node_names().enumerate() {
            let address = bridge
                .node_address(index)
                .ok_or_else(|| Error::Options(format!("the lab's subnet has no address for node {name}")))?;
            nodes.push((name, address));
        }
        Ok(Self {
            nodes,
            control_planes: spec.control_planes,
            endpoint: bridge.gateway(),
            certificate_key: (0..4).map(|_| format!("{:016x}", random())).collect(),
        })
    }

    fn control_planes(&self) -> &[(String, IpAddr)] {
        self.nodes.get(..self.control_planes).unwrap_or_default()
    }

    fn member(&self, index: usize) -> Result<Member<'_>> {
        match self.nodes.get(index) {
            Some((name, address)) => Ok(Member { name, address: *address }),
            None => Err(Error::Options(format!("the cluster has no node number {index}"))),
        }
    }

    /// Boots every machine and waits until all have their images.
    async fn boot(
        &self,
        programs: &NodePrograms,
        images: &Images,
        base: &Path,
        bridge: &Bridge,
        folder: &Folder,
        progress: &Reporter,
    ) -> Result<Vec<RealNode>> {
        let step =
            progress.begin(format!("booting {} machine(s) and loading their images", self.nodes.len()));
        let mut nodes = vec![];
        for (index, (name, _)) in self.nodes.iter().enumerate() {
            let own = if index < self.control_planes { images.control_plane.as_slice() } else { &[] };
            let archives: Vec<&Path> = images.every_node.iter().chain(own).map(PathBuf::as_path).collect();
            let spec = RealNodeSpec {
                name: name.clone(),
                index,
                base: base.to_owned(),
                daemon: None,
                kubelet: Some(setup(&self.nodes, index, programs, &archives)),
                files: vec![],
                enable: vec![],
                boot_args: vec![],
                ignition: None,
            };
            nodes.push(RealNode::boot(&spec, bridge, folder).await?.0);
        }
        try_join_all(nodes.iter().map(|node| async move {
            node.machine().wait_running(BOOT_LIMIT).await?;
            images_loaded(node).await
        }))
        .await?;
        step.done();
        Ok(nodes)
    }

    /// `kubeadm init` on the first node. Returns the administrator's kubeconfig.
    async fn init(&self, nodes: &[RealNode], folder: &Folder, progress: &Reporter) -> Result<PathBuf> {
        let first = node_at(nodes, 0)?;
        let step = progress.begin(format!("kubeadm init on {}", first.name()));
        let text = config::init(self.member(0)?, self.endpoint, &self.certificate_key);
        let words = ["init", "--skip-phases=addon/coredns", "--upload-certs", ALLOWED];
        kubeadm(first, &text, &words).await?;
        let admin = first.handle().read_file(ADMIN).await?;
        let kubeconfig = folder.join("kubeconfig");
        write_private(&kubeconfig, &admin)?;
        step.done();
        Ok(kubeconfig)
    }

    /// `kubeadm join` on all the others.
    async fn join(&self, nodes: &[RealNode], progress: &Reporter) -> Result<()> {
        if nodes.len() < 2 {
            return Ok(());
        }
        let said = node_at(nodes, 0)?
            .handle()
            .run_within(
                ["kubeadm", "token", "create", "--kubeconfig", ADMIN, "--print-join-command"],
                SHORT_LIMIT,
            )
            .await?;
        let ticket = Ticket::parse(&said)?;
        for index in 1..self.control_planes {
            let node = node_at(nodes, index)?;
            let step = progress.begin(format!("kubeadm join of {} as a control-plane node", node.name()));
            let key = Some(self.certificate_key.as_str());
            kubeadm(
                node,
                &config::join(self.member(index)?, self.endpoint, &ticket, key),
                &["join", ALLOWED],
            )
            .await?;
            step.done();
        }
        let workers = self.control_planes..nodes.len();
        if workers.is_empty() {
            return Ok(());
        }
        let step = progress.begin(format!("kubeadm join of {} worker(s)", workers.len()));
        try_join_all(workers.map(|index| {
            let ticket = &ticket;
            async move {
                let text = config::join(self.member(index)?, self.endpoint, ticket, None);
                kubeadm(node_at(nodes, index)?, &text, &["join", ALLOWED]).await
            }
        }))
        .await?;
        step.done();
        Ok(())
    }
}

fn node_at(nodes: &[RealNode], index: usize) -> Result<&RealNode> {
    nodes.get(index).ok_or_else(|| Error::Options(format!("the cluster has no node number {index}")))
}

/// Waits until a node reaches the API server by its service's address.
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

/// Waits until the unit that loads images has ended well.
async fn images_loaded(node: &RealNode) -> Result<()> {
    let start = Instant::now();
    loop {
        let show = ["systemctl", "show", "--property=ActiveState", "--value", IMAGES_UNIT];
        let state = node.machine().exec(show).await?.stdout.trim().to_owned();
        if state == "active" {
            return Ok(());
        }
        if state == "failed" || start.elapsed() > IMAGES_LIMIT {
            return Err(Error::OnNode {
                command: format!("systemctl start {IMAGES_UNIT}"),
                node: node.name().to_owned(),
                status: state,
                log: node.machine().console(),
                tail: node.handle().logs(IMAGES_UNIT).await.unwrap_or_default(),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Runs kubeadm with this configuration. What it says goes to a file of the node, which this computer sees, too.
async fn kubeadm(node: &RealNode, config: &str, words: &[&str]) -> Result<()> {
    // On the node's own overlay: from here it is in its upper folder.
    let log = node.dir().join("upper").join(FOLDER.trim_start_matches('/')).join("kubeadm.log");
    let (word, flags) = words.split_first().map_or(("", &[][..]), |(word, flags)| (*word, flags));
    let inside = format!("{FOLDER}/{word}.yaml");
    // Through the machine's own root: what is put below a mounted overlay may not be seen in it.
    let root = node.handle().root_of_boot()?;
    let parent = root.join(FOLDER.trim_start_matches('/'));
    fs::create_dir_all(&parent).map_err(Error::io("create", &parent))?;
    write_private(&root.join(inside.trim_start_matches('/')), config)?;
    let command = format!("kubeadm {word} --config {inside} {}", flags.join(" "));
    let script = format!("exec {command} > {FOLDER}/kubeadm.log 2>&1");
    let failed = |status: String| Error::OnNode {
        command: command.clone(),
        node: node.name().to_owned(),
        status,
        tail: tail(&log),
        log: log.clone(),
    };
    match node.machine().exec_within(["sh", "-c", &script], KUBEADM_LIMIT).await {
        Ok(done) if done.code == 0 => Ok(()),
        Ok(done) => Err(failed(format!("exit status {}", done.code))),
        Err(Error::Timeout { waited, .. }) => Err(failed(format!("no end after {} s", waited.as_secs()))),
        Err(other) => Err(other),
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
