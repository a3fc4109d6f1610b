//! A whole lab: started in one call, held by one value.
//!
//! Flow: sweep what dead labs left → bridge and base root (real nodes only) → control plane → our CRDs and the
//! controller (if asked for), while the nodes boot → every node Ready.
//!
//! Not here: the parts themselves, and anything that knows what a MachineConfig is.

pub(crate) mod handle;
pub(crate) mod spec;
pub(crate) mod supervise;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::control_plane::programs::{Program, Programs};
use crate::control_plane::{ControlPlane, ControlPlaneOptions, client};
use crate::error::{Error, Result};
use crate::lab::handle::NodeHandle;
use crate::lab::spec::{Kubelet, LabBuilder, LabSpec};
use crate::machine::first_boot::{BareMachine, IgnitionLog};
use crate::machine::image::pause_archive;
use crate::machine::layout::Places;
use crate::machine::network::Bridge;
use crate::machine::real_kubelet::{self as kubelet, KubeletSetup};
use crate::machine::real_node::{DaemonSetup, NODE_LIMIT, RealNode, RealNodeSpec};
use crate::progress::{Reporter, Step};
use crate::proxy::api_proxy::ApiProxy;
use crate::simulated::kubelet_standin::{KubeletStandIn, NodeSpec, heartbeat};
use crate::simulated::pod_standin::PodStandIn;
use crate::simulated::{NodeFeeds, NodeNews, SimulatedNode, SimulatedSetup, boot_id};
use crate::system::folder::{Folder, NodeKind, sweep};
use crate::system::packages::ensure_packages;
use crate::system::paths::Environment;
use crate::system::process::{Process, Signal, Spec, run};

/// `mco install` writes some thirty objects.
const INSTALL_LIMIT: Duration = Duration::from_secs(60);
/// How long our controller may take to end when asked.
const CONTROLLER_GRACE: Duration = Duration::from_secs(5);
/// Stand-ins that are registered at the same time: more only makes the API server queue them.
const REGISTER_AT_ONCE: usize = 32;
/// Between two lines that say how many nodes are there.
const TELL: Duration = Duration::from_secs(10);

/// A running lab. Take it down with [`Lab::stop`]; dropping it does the same, blocking.
pub struct Lab {
    // Fields drop in order: what uses something before what it uses.
    controller: Option<Process>,
    nodes: Vec<LabNode>,
    pods: Option<PodStandIn>,
    feeds: Option<NodeFeeds>,
    daemon_faults: Option<ApiProxy>,
    client: Client,
    plane: ControlPlane,
    bridge: Option<Bridge>,
    /// The root that real nodes share.
    base: Option<PathBuf>,
    kubelet: Option<RealKubelet>,
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
            api_server_args: spec.api_server_args.clone(),
            nodes: spec.count(),
            ..ControlPlaneOptions::default()
        };
        let mut ground = None;
        // A lab without nodes may get machines later.
        if spec.kind == NodeKind::Real {
            ensure_packages(progress).await?;
            crate::machine::check_overlay(folder.path())?;
            let base = crate::machine::base_root::ensure(spec.distribution, environment, progress).await?;
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
            daemon_faults: None,
            client,
            plane,
            bridge,
            base,
            kubelet,
            folder,
            spec: spec.clone(),
        };
        if spec.controller {
            lab.install(progress).await?;
        }
        if spec.count() > 0 {
            let step = progress.begin(format!("starting {} node(s)", spec.count()));
            lab.start_nodes(&step).await?;
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
        // A name of its own, by which the API server's audit log tells senders apart.
        let config =
            self.plane.identity("mco-controller", &["system:masters"])?.to_string_lossy().into_owned();
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

    async fn start_nodes(&mut self, step: &Step) -> Result<()> {
        let spec = &self.spec;
        let (base, kubelet) = (self.base.as_deref(), self.kubelet.as_ref());
        let names: Vec<(String, Roles)> = spec
            .node_names()
            .enumerate()
            .map(|(index, name)| (name, spec.layout.roles(spec.is_master(index))))
            .collect();
        let pods = &*self.pods.insert(PodStandIn::start(self.client.clone()));
        match (self.spec.kind, &self.bridge, base) {
            (NodeKind::Real, Some(bridge), Some(base)) => {
                for (index, (name, _)) in names.iter().enumerate() {
                    let places = self.spec.layout.places(self.spec.is_master(index));
                    let spec = RealNodeSpec {
                        index,
                        base: base.to_owned(),
                        daemon: daemon(&self.spec, &self.plane, name)?,
                        kubelet: kubelet
                            .map(|kubelet| kubelet.setup(&self.plane, bridge, name, (index, &places)))
                            .transpose()?,
                        files: self.spec.node_files.clone(),
                        enable: self.spec.node_units.clone(),
                        boot_args: self.spec.distribution.boot_args(),
                        ignition: None,
                        name: name.clone(),
                    };
                    let (node, _) = RealNode::boot(&spec, bridge, &self.folder).await?;
                    self.nodes.push(LabNode::Real(Box::new(node)));
                }
                let client = &self.client;
                let roles = names.iter().map(|(_, roles)| *roles);
                try_join_all(self.nodes.iter_mut().zip(roles).filter_map(|(node, roles)| match node {
                    LabNode::Real(node) => Some(async move {
                        match kubelet {
                            None => join_real(node, roles, client, pods).await,
                            Some(_) => label_real(node, roles, client).await,
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
                let kubelets = client(&self.plane.identity("lab-kubelets", &["system:masters"])?).await?;
                let daemons = if self.spec.daemon_faults {
                    let proxy = &*self.daemon_faults.insert(ApiProxy::start(&self.plane).await?);
                    proxy.kubeconfig(&self.plane, "mco-daemons")?
                } else {
                    self.plane.identity("mco-daemons", &["system:masters"])?
                };
                let daemons = client(&daemons).await?;
                let heartbeat = heartbeat(names.len(), self.spec.controller_manager);
                let mut starting =
                    stream::iter(names.iter().map(|(name, roles)| {
                        let mut spec = NodeSpec { heartbeat, ..labelled(name, roles) };
                        if feeds.is_some() {
                            spec.boot_id = boot_id(0);
                        }
                        let (kubelets, feed) = (kubelets.clone(), feeds.map(|feeds| feeds.feed(name)));
                        async move {
                            Ok::<_, Error>((Arc::new(KubeletStandIn::start(kubelets, spec).await?), feed))
                        }
                    }))
                    .buffered(REGISTER_AT_ONCE);
                let mut told = Instant::now();
                while let Some(started) = starting.next().await {
                    let (kubelet, feed) = started?;
                    pods.add(Arc::clone(&kubelet));
                    self.nodes.push(match feed {
                        None => LabNode::StandIn(kubelet),
                        Some(feed) => {
                            let handle = NodeHandle::new(self.folder.path(), kubelet.name(), kind);
                            let (daemons, setup) = (daemons.clone(), setup.clone());
                            LabNode::Simulated(SimulatedNode::start(
                                daemons,
                                &handle.root(),
                                kubelet,
                                feed,
                                setup,
                            )?)
                        }
                    });
                    if told.elapsed() >= TELL {
                        told = Instant::now();
                        step.so_far(self.nodes.len());
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets the real Ignition set a machine up, and boots it. Who makes it a Node is its own kubelet: the real one is
    /// installed where the lab has real kubelets, without a unit and without credentials.
    ///
    /// # Errors
    /// The lab has no real nodes, Ignition fails, or the machine does not come up.
    pub async fn first_boot(&mut self, machine: BareMachine) -> Result<(NodeHandle, IgnitionLog)> {
        let (Some(bridge), Some(base)) = (&self.bridge, &self.base) else {
            return Err(Error::Options("a first boot needs a lab with real nodes: add `.real()`".to_owned()));
        };
        let program = crate::machine::first_boot::program(&Reporter::default()).await?;
        let BareMachine { name, config, files, enable } = machine;
        let index = self.nodes.len();
        let places = self.spec.layout.places(false);
        let kubelet = self.kubelet.as_ref();
        let kubelet = kubelet.map(|k| k.setup(&self.plane, bridge, &name, (index, &places))).transpose()?;
        let mut all = crate::machine::first_boot::files();
        all.extend(files);
        let spec = RealNodeSpec {
            index,
            base: base.clone(),
            daemon: daemon(&self.spec, &self.plane, &name)?.map(|d| DaemonSetup { kubeconfig: None, ..d }),
            kubelet: kubelet.map(|setup| setup.without_unit(&places)),
            files: all,
            enable,
            boot_args: self.spec.distribution.boot_args(),
            ignition: Some((program, config)),
            name: name.clone(),
        };
        self.folder.update(|record| record.nodes.push(name))?;
        let (node, said) = RealNode::boot(&spec, bridge, &self.folder).await?;
        let handle = node.handle();
        node.machine().wait_running(NODE_LIMIT).await?;
        self.nodes.push(LabNode::Real(Box::new(node)));
        let said = said.unwrap_or_else(|| IgnitionLog(String::new()));
        Ok((handle, said))
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

    /// Every change of any simulated node, after what each is now, as one watch of all Nodes brings it.
    #[must_use]
    pub fn follow_nodes(&self) -> Option<mpsc::UnboundedReceiver<NodeNews>> {
        self.feeds.as_ref().map(NodeFeeds::follow)
    }

    /// The proxy between the simulated nodes' daemons and the API server, where the lab was asked for one.
    #[must_use]
    pub fn daemon_faults(&self) -> Option<&ApiProxy> {
        self.daemon_faults.as_ref()
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

    /// Node number `index`, counted from 0; the control-plane nodes come after the workers.
    #[must_use]
    pub fn node(&self, index: usize) -> NodeHandle {
        let name = self.spec.node_name(index);
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

/// The daemon of the node of this name. It speaks as that node.
fn daemon(spec: &LabSpec, plane: &ControlPlane, name: &str) -> Result<Option<DaemonSetup>> {
    let Some(program) = spec.mco_binary.as_ref().filter(|_| spec.daemon) else { return Ok(None) };
    Ok(Some(DaemonSetup {
        program: std::path::absolute(program).map_err(Error::io("find", program))?,
        kubeconfig: Some(plane.identity(&format!("system:node:{name}"), &["system:nodes"])?),
        args: spec.daemon_args.clone(),
    }))
}

/// The labels of a node's role, with their values.
type Roles = &'static [(&'static str, &'static str)];

/// A Node with these labels.
fn labelled(name: &str, roles: Roles) -> NodeSpec {
    roles.iter().fold(NodeSpec::new(name), |spec, (label, value)| spec.label(label, value))
}

/// Waits for a machine and registers its stand-in under the boot id that it really has.
async fn join_real(node: &mut RealNode, roles: Roles, client: &Client, pods: &PodStandIn) -> Result<()> {
    let boot_id = node.machine().wait_running(NODE_LIMIT).await?;
    let mut spec = labelled(node.name(), roles);
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
    fn setup(
        &self,
        plane: &ControlPlane,
        bridge: &Bridge,
        node: &str,
        (index, places): (usize, &Places),
    ) -> Result<KubeletSetup> {
        let path = plane.identity(&format!("system:node:{node}"), &["system:nodes"])?;
        let kubeconfig = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let address = bridge.node_address(index).map(|address| address.to_string()).unwrap_or_default();
        let (kubeconfig, ca) = (kubeconfig.as_str(), plane.ca());
        let kubelet = kubelet::Kubelet { node, address: &address, index, kubeconfig, ca: &ca };
        Ok(kubelet::setup(kubelet, places, &self.program, &self.archive))
    }
}

/// Waits for a machine whose kubelet registers it, gives the Node its role (a kubelet may not) and waits for Ready.
async fn label_real(node: &RealNode, roles: Roles, client: &Client) -> Result<()> {
    node.machine().wait_running(NODE_LIMIT).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let start = Instant::now();
    let patch = Patch::Merge(
        serde_json::json!({"metadata": {"labels": roles.iter().copied().collect::<BTreeMap<_, _>>()}}),
    );
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
