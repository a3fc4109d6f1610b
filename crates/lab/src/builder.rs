//! One call that brings up a whole lab, and the value that holds it.
//!
//! Flow: sweep what dead labs left → bridge and base root (real nodes only) → control plane → our CRDs and the
//! controller (when asked for) beside the nodes' boots → every node Ready.
//!
//! Not here: the parts themselves, and anything that knows what a MachineConfig is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};

use crate::control_plane::{ControlPlane, ControlPlaneOptions};
use crate::error::{Error, Result};
use crate::folder::{Folder, sweep};
use crate::handle::{NodeHandle, NodeKind};
use crate::image::pause_archive;
use crate::kubelet_standin::{KubeletStandIn, NodeSpec};
use crate::network::Bridge;
use crate::packages::{ensure_packages, is_root};
use crate::paths::Environment;
use crate::pod_standin::PodStandIn;
use crate::process::{Process, Signal, Spec, run};
use crate::programs::{Program, Programs};
use crate::progress::Reporter;
use crate::real_kubelet::{KubeletSetup, setup};
use crate::real_node::{DaemonSetup, NODE_LIMIT, RealNode, RealNodeSpec};
use crate::simulated::{NodeFeeds, SimulatedNode, SimulatedSetup};

/// `mco install` writes some thirty objects.
const INSTALL_LIMIT: Duration = Duration::from_secs(60);
/// How long our controller may take to end when asked.
const CONTROLLER_GRACE: Duration = Duration::from_secs(5);
/// A bare real node is away for about this long.
const REBOOT_MILLIS: u64 = 500;
/// Stand-ins that are registered at the same time: more only makes the API server queue them.
const REGISTER_AT_ONCE: usize = 32;

/// Who speaks for a node in the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kubelet {
    /// The lab does: Node, Lease, Ready, no pods that really run.
    #[default]
    StandIn,
    /// A real kubelet with containerd in the (real) node.
    Real,
}

/// Everything that a lab is asked to be. Serializable, so that another process can build it (`lab up`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabSpec {
    /// How many nodes.
    pub nodes: usize,
    /// What they are.
    pub kind: NodeKind,
    /// Their names are this and a number from 0.
    pub prefix: String,
    /// Who speaks for them.
    pub kubelet: Kubelet,
    /// Run the controller manager.
    pub controller_manager: bool,
    /// Run the scheduler.
    pub scheduler: bool,
    /// The `mco` program: the daemon on real nodes, `install`, the controller.
    pub mco_binary: Option<PathBuf>,
    /// Install our objects and run our controller.
    pub controller: bool,
    /// The templates that the controller gets.
    pub templates: Option<PathBuf>,
    /// More arguments for `mco daemon start`.
    pub daemon_args: Vec<String>,
    /// Make sure that `kubectl` is there too.
    pub kubectl: bool,
    /// How long a simulated node's reboot keeps it away, in milliseconds.
    pub reboot_millis: u64,
}

impl Default for LabSpec {
    fn default() -> Self {
        Self {
            nodes: 0,
            kind: NodeKind::StandIn,
            prefix: "worker-".to_owned(),
            kubelet: Kubelet::StandIn,
            controller_manager: true,
            scheduler: true,
            mco_binary: None,
            controller: false,
            templates: None,
            daemon_args: Vec::new(),
            kubectl: false,
            reboot_millis: REBOOT_MILLIS,
        }
    }
}

impl LabSpec {
    /// The nodes' names.
    pub fn node_names(&self) -> impl Iterator<Item = String> {
        (0..self.nodes).map(|index| format!("{}{index}", self.prefix))
    }

    fn check(&self) -> Result<()> {
        let options = |text: &str| Err(Error::Options(text.to_owned()));
        if self.kind == NodeKind::Real && self.nodes > 0 && !is_root() {
            return Err(Error::NeedsRoot { what: "a lab with real nodes" });
        }
        if self.kubelet == Kubelet::Real && self.kind != NodeKind::Real {
            return options(
                "a real kubelet needs real nodes: add `.real()` (`--kubelet real` goes without `--simulated`)",
            );
        }
        if self.controller && self.mco_binary.is_none() {
            return options("the controller needs the `mco` program: add `.mco_binary(path)`");
        }
        if self.controller && self.templates.is_none() {
            return options("the controller needs its templates: add `.templates(folder)`");
        }
        if let Some(binary) =
            self.mco_binary.as_deref().filter(|binary| !crate::process::is_executable(binary))
        {
            return options(&format!(
                "{} is not a program: build it with `cargo build -p cli`",
                binary.display()
            ));
        }
        Ok(())
    }
}

/// Says what a lab should be, then [`LabBuilder::start`]s it.
#[derive(Debug, Clone, Default)]
#[must_use = "call `start`"]
pub struct LabBuilder {
    spec: LabSpec,
    progress: Reporter,
    environment: Option<Environment>,
}

impl LabBuilder {
    /// How many nodes.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.spec.nodes = nodes;
        self
    }

    /// Nodes are machines that boot.
    pub fn real(mut self) -> Self {
        self.spec.kind = NodeKind::Real;
        self
    }

    /// Nodes are folders with our daemon on them.
    pub fn simulated(mut self) -> Self {
        self.spec.kind = NodeKind::Simulated;
        self
    }

    /// Nodes are Node objects and nothing else.
    pub fn stand_ins(mut self) -> Self {
        self.spec.kind = NodeKind::StandIn;
        self
    }

    /// The nodes' names are this and a number.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.spec.prefix = prefix.into();
        self
    }

    /// Who speaks for the nodes.
    pub fn kubelet(mut self, kubelet: Kubelet) -> Self {
        self.spec.kubelet = kubelet;
        self
    }

    /// With or without the controller manager.
    pub fn controller_manager(mut self, wanted: bool) -> Self {
        self.spec.controller_manager = wanted;
        self
    }

    /// With or without the scheduler.
    pub fn scheduler(mut self, wanted: bool) -> Self {
        self.spec.scheduler = wanted;
        self
    }

    /// The `mco` program.
    pub fn mco_binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.spec.mco_binary = Some(path.into());
        self
    }

    /// Install our objects (`mco install`) and run our controller (`mco controller start`).
    pub fn controller(mut self, wanted: bool) -> Self {
        self.spec.controller = wanted;
        self
    }

    /// The templates that the controller gets.
    pub fn templates(mut self, path: impl Into<PathBuf>) -> Self {
        self.spec.templates = Some(path.into());
        self
    }

    /// More arguments for `mco daemon start` on the nodes.
    pub fn daemon_args<I: Into<String>>(mut self, args: impl IntoIterator<Item = I>) -> Self {
        self.spec.daemon_args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Make sure that `kubectl` is there.
    pub fn kubectl(mut self, wanted: bool) -> Self {
        self.spec.kubectl = wanted;
        self
    }

    /// How long a simulated node's reboot keeps it away.
    pub fn reboot_time(mut self, time: Duration) -> Self {
        self.spec.reboot_millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
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
    pub fn spec(&self) -> &LabSpec {
        &self.spec
    }

    /// Brings the lab up and returns when every node is Ready.
    ///
    /// # Errors
    /// Any part fails; what was up by then is taken down again.
    pub async fn start(self) -> Result<Lab> {
        let environment = self.environment.unwrap_or_else(Environment::read);
        Lab::from_spec(&self.spec, &environment, &self.progress).await
    }
}

/// A running lab. Take it down with [`Lab::stop`]; dropping it does the same, blocking.
pub struct Lab {
    // Fields drop in order: what uses something before what it uses.
    controller: Option<Process>,
    nodes: Vec<LabNode>,
    pods: Option<PodStandIn>,
    feeds: Option<NodeFeeds>,
    client: Client,
    plane: ControlPlane,
    bridge: Option<Bridge>,
    folder: Arc<Folder>,
    spec: LabSpec,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab")
            .field("folder", &self.folder.path())
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// A node and whatever keeps it running.
#[derive(Debug)]
enum LabNode {
    Real(Box<RealNode>),
    Simulated(SimulatedNode),
    StandIn(Arc<KubeletStandIn>),
}

impl Lab {
    /// Says what a lab should be.
    pub fn builder() -> LabBuilder {
        LabBuilder::default()
    }

    /// The same as [`Lab::builder`], in the words of a test.
    pub fn start() -> LabBuilder {
        LabBuilder::default()
    }

    /// Brings a lab up in this process.
    ///
    /// # Errors
    /// As [`LabBuilder::start`].
    pub async fn from_spec(spec: &LabSpec, environment: &Environment, progress: &Reporter) -> Result<Self> {
        spec.check()?;
        let swept = sweep(environment)?;
        if !swept.is_empty() {
            progress.line(&format!("removed what {} ended lab(s) had left", swept.len()));
        }
        let folder = Arc::new(Folder::create(environment)?);
        folder.update(|record| {
            record.nodes = spec.node_names().collect();
            record.kind = Some(spec.kind);
        })?;
        let programs = Programs::new(environment)?;
        if spec.kubectl {
            programs.get(Program::Kubectl, progress).await?;
        }

        let mut options = ControlPlaneOptions {
            controller_manager: spec.controller_manager,
            scheduler: spec.scheduler,
            ..ControlPlaneOptions::default()
        };
        let mut ground = None;
        if spec.kind == NodeKind::Real && spec.nodes > 0 {
            ensure_packages(progress).await?;
            let base = crate::base_root::ensure(environment, progress).await?;
            let bridge = Bridge::create().await?;
            folder.update(|record| record.bridge = Some(bridge.name().to_owned()))?;
            options.address = bridge.gateway();
            ground = Some((bridge, base));
        }
        let kubelet = match spec.kubelet {
            Kubelet::StandIn => None,
            Kubelet::Real => Some(RealKubelet {
                program: programs.get(Program::Kubelet, progress).await?,
                archive: pause_archive(environment, progress).await?,
            }),
        };
        let plane = ControlPlane::start(Arc::clone(&folder), &programs, &options, progress).await?;
        let client = plane.client().await?;
        let (bridge, base) = ground.unzip();
        let mut lab = Self {
            controller: None,
            nodes: Vec::new(),
            pods: None,
            feeds: None,
            client,
            plane,
            bridge,
            folder,
            spec: spec.clone(),
        };
        if spec.controller {
            lab.install(progress).await?;
        }
        if spec.nodes > 0 {
            let step = progress.begin(format!("starting {} node(s)", spec.nodes));
            lab.start_nodes(base.as_deref(), kubelet.as_ref()).await?;
            step.done();
        }
        lab.folder.update(|record| record.ready = true)?;
        Ok(lab)
    }

    /// Our objects and our controller.
    async fn install(&mut self, progress: &Reporter) -> Result<()> {
        let step = progress.begin("installing our objects");
        let config = self.kubeconfig().to_string_lossy().into_owned();
        self.mco(["install", "--kubeconfig", &config]).await?;
        step.done();
        let Some(program) = &self.spec.mco_binary else { return Ok(()) };
        // One controller, so no lease to wait for; no fixed port, since many labs run side by side.
        let mut spec = Spec::new("mco-controller", program, self.controller_log())
            .args(["controller", "start", "--kubeconfig", &config])
            .args(["--metrics-listen=off", "--leader-elect=false"]);
        if let Some(templates) = &self.spec.templates {
            spec = spec.arg("--templates").arg(templates);
        }
        self.controller = Some(Process::spawn(spec, self.folder.path())?);
        Ok(())
    }

    async fn start_nodes(&mut self, base: Option<&Path>, kubelet: Option<&RealKubelet>) -> Result<()> {
        let names: Vec<String> = self.spec.node_names().collect();
        let pods = &*self.pods.insert(PodStandIn::start(self.client.clone()));
        match (self.spec.kind, &self.bridge, base) {
            (NodeKind::Real, Some(bridge), Some(base)) => {
                let daemon = match &self.spec.mco_binary {
                    None => None,
                    Some(program) => Some(DaemonSetup {
                        program: std::path::absolute(program).map_err(Error::io("find", program))?,
                        kubeconfig: self.plane.identity("lab-daemon", &["system:masters"])?,
                        args: self.spec.daemon_args.clone(),
                    }),
                };
                for (index, name) in names.into_iter().enumerate() {
                    let spec = RealNodeSpec {
                        index,
                        base: base.to_owned(),
                        daemon: daemon.clone(),
                        kubelet: kubelet
                            .map(|kubelet| kubelet.setup(&self.plane, bridge, &name, index))
                            .transpose()?,
                        name,
                    };
                    let node = RealNode::boot(&spec, bridge, &self.folder)?;
                    self.nodes.push(LabNode::Real(Box::new(node)));
                }
                let client = &self.client;
                try_join_all(self.nodes.iter_mut().filter_map(|node| match node {
                    LabNode::Real(node) => Some(async move {
                        match kubelet {
                            None => join_real(node, client, pods).await,
                            Some(_) => label_real(node, client).await,
                        }
                    }),
                    LabNode::Simulated(_) | LabNode::StandIn(_) => None,
                }))
                .await?;
            }
            (kind, ..) => {
                let feeds = (kind == NodeKind::Simulated)
                    .then(|| &*self.feeds.insert(NodeFeeds::start(self.client.clone())));
                let setup = SimulatedSetup { down: Duration::from_millis(self.spec.reboot_millis) };
                for chunk in names.chunks(REGISTER_AT_ONCE) {
                    let watched: Vec<_> =
                        chunk.iter().map(|name| feeds.map(|feeds| feeds.feed(name))).collect();
                    let started = try_join_all(
                        chunk
                            .iter()
                            .map(|name| KubeletStandIn::start(self.client.clone(), NodeSpec::worker(name))),
                    );
                    for (kubelet, feed) in started.await?.into_iter().map(Arc::new).zip(watched) {
                        pods.add(Arc::clone(&kubelet));
                        self.nodes.push(match feed {
                            None => LabNode::StandIn(kubelet),
                            Some(feed) => {
                                let handle = NodeHandle::new(self.folder.path(), kubelet.name(), kind);
                                let (client, setup) = (self.client.clone(), setup.clone());
                                LabNode::Simulated(SimulatedNode::start(
                                    client,
                                    &handle.root(),
                                    kubelet,
                                    feed,
                                    setup,
                                )?)
                            }
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs `mco` with these arguments to its end.
    ///
    /// # Errors
    /// No `mco_binary` was given, or the program fails.
    pub async fn mco<I: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Result<String> {
        let Some(program) = &self.spec.mco_binary else {
            return Err(Error::Options("the lab was started without `.mco_binary(path)`".to_owned()));
        };
        run(&program.to_string_lossy(), args, INSTALL_LIMIT).await
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        self.plane.kubeconfig()
    }

    /// An administrator's client of this runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The control plane: its programs, identities, outages.
    #[must_use]
    pub fn control_plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The data folder: logs are in `logs`.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The process id of our controller, for measuring it and for ending it badly.
    #[must_use]
    pub fn controller_pid(&self) -> Option<i32> {
        self.controller.as_ref().map(Process::pid)
    }

    /// The log of our controller.
    #[must_use]
    pub fn controller_log(&self) -> PathBuf {
        self.folder.join("logs/mco-controller.log")
    }

    /// The bridge of a lab with real nodes.
    #[must_use]
    pub fn bridge(&self) -> Option<&Bridge> {
        self.bridge.as_ref()
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every node.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeHandle> {
        self.spec
            .node_names()
            .map(|name| NodeHandle::new(self.folder.path(), &name, self.spec.kind))
            .collect()
    }

    /// Node number `index`, counted from 0.
    #[must_use]
    pub fn node(&self, index: usize) -> NodeHandle {
        let name = format!("{}{index}", self.spec.prefix);
        NodeHandle::new(self.folder.path(), &name, self.spec.kind)
    }

    /// The machine of a real node: its state, power on after a cut.
    #[must_use]
    pub fn real_node(&self, index: usize) -> Option<&RealNode> {
        match self.nodes.get(index)? {
            LabNode::Real(node) => Some(node),
            LabNode::Simulated(_) | LabNode::StandIn(_) => None,
        }
    }

    /// The kubelet's stand-in of a node, unless its kubelet is real.
    #[must_use]
    pub fn kubelet(&self, index: usize) -> Option<&KubeletStandIn> {
        match self.nodes.get(index)? {
            LabNode::Real(node) => node.kubelet(),
            LabNode::Simulated(node) => Some(node.kubelet()),
            LabNode::StandIn(kubelet) => Some(kubelet),
        }
    }

    /// Fails when a program of the lab, or our controller, has ended by itself.
    ///
    /// # Errors
    /// [`Error::Died`] with the end of its log.
    pub fn check(&self) -> Result<()> {
        self.plane.check()?;
        self.controller.as_ref().map_or(Ok(()), Process::check)
    }

    /// Takes everything down and waits until it is gone.
    pub async fn stop(mut self) {
        if let Some(controller) = self.controller.take() {
            controller.stop(Signal::TERM, CONTROLLER_GRACE).await;
        }
        let stops = self.nodes.iter().map(|node| async move {
            match node {
                LabNode::Real(node) => node.stop().await,
                LabNode::Simulated(node) => node.stop().await,
                LabNode::StandIn(_) => {}
            }
        });
        futures::future::join_all(stops).await;
        let Self { nodes, pods, feeds, plane, bridge, folder, .. } = self;
        drop((nodes, pods, feeds));
        plane.stop().await;
        // Both wait for the kernel: off the runtime's threads.
        let _done = tokio::task::spawn_blocking(move || drop((bridge, folder))).await;
    }
}

/// Waits for a machine and registers its stand-in under the boot id that it really has.
async fn join_real(node: &mut RealNode, client: &Client, pods: &PodStandIn) -> Result<()> {
    let boot_id = node.machine().wait_running(NODE_LIMIT).await?;
    let mut spec = NodeSpec::worker(node.name());
    spec.address = Some(node.address().to_string());
    spec.boot_id = boot_id;
    let kubelet = Arc::new(KubeletStandIn::start(client.clone(), spec).await?);
    pods.add(Arc::clone(&kubelet));
    node.follow(kubelet);
    Ok(())
}

/// What every node with a real kubelet gets.
struct RealKubelet {
    program: PathBuf,
    archive: PathBuf,
}

impl RealKubelet {
    fn setup(&self, plane: &ControlPlane, bridge: &Bridge, name: &str, index: usize) -> Result<KubeletSetup> {
        let path = plane.identity(&format!("system:node:{name}"), &["system:nodes"])?;
        let kubeconfig = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let address = bridge.node_address(index).map(|address| address.to_string()).unwrap_or_default();
        Ok(setup(name, &address, index, &kubeconfig, &plane.ca(), &self.program, &self.archive))
    }
}

/// Waits for a machine whose kubelet registers it, gives the Node its role (a kubelet may not) and waits for Ready.
async fn label_real(node: &RealNode, client: &Client) -> Result<()> {
    node.machine().wait_running(NODE_LIMIT).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let start = Instant::now();
    let patch = Patch::Merge(serde_json::json!({"metadata": {"labels": {WORKER_LABEL: ""}}}));
    loop {
        match nodes.patch(node.name(), &PatchParams::default(), &patch).await {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 404 && start.elapsed() < NODE_LIMIT => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => return Err(Error::kube(format!("label node {}", node.name()))(error)),
        }
    }
    node.handle().wait_ready(client, NODE_LIMIT).await
}

/// The label of the nodes that the pool `worker` selects.
const WORKER_LABEL: &str = "node-role.kubernetes.io/worker";
