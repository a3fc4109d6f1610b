//! A whole lab, started with one call and held by one value.
//!
//! Flow: remove what dead labs have left → bridge and base root (real nodes only) → control plane → our CRDs and the
//! controller (if asked for), while the nodes boot → every node Ready.
//!
//! Not here: the parts themselves, and any knowledge of MachineConfigs.

pub(crate) mod fake_ostree;
mod nodes;
pub(crate) mod spec;
pub(crate) mod supervise;
pub(crate) mod virtual_node;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;

use crate::control_plane::programs::{Program, Programs};
use crate::control_plane::{ControlPlane, ControlPlaneOptions};
use crate::error::{Error, Result};
use crate::lab::nodes::{RealKubelet, daemon};
use crate::lab::spec::{Kubelet, LabBuilder, LabSpec};
use crate::machine::first_boot::{BareMachine, IgnitionLog};
use crate::machine::handle::NodeHandle;
use crate::machine::image::pause_archive;
use crate::machine::real_node::{DaemonSetup, NODE_LIMIT, RealNode, RealNodeSpec};
use crate::progress::Reporter;
use crate::proxy::api_proxy::ApiProxy;
use crate::simulated::fake_kubelet::FakeKubelet;
use crate::simulated::fake_pods::FakePods;
use crate::simulated::{NodeFeeds, NodeNews, SimulatedNode};
use crate::system::command::run;
use crate::system::folder::{Folder, NodeKind, sweep};
use crate::system::network::Bridge;
use crate::system::packages::ensure_packages;
use crate::system::paths::{Environment, our_definitions};
use crate::system::process::{Process, Signal, Spec};

/// The time limit for `mco install`, which writes some thirty objects.
const INSTALL_LIMIT: Duration = Duration::from_secs(60);
/// How long our controller may take to exit after SIGTERM.
const CONTROLLER_GRACE: Duration = Duration::from_secs(5);
/// A running lab. Stop it with [`Lab::stop`]; dropping it does the same, blocking.
pub struct Lab {
    // Fields are dropped in this order: each before what it uses.
    controller: Option<Process>,
    nodes: Vec<LabNode>,
    pods: Option<FakePods>,
    feeds: Option<NodeFeeds>,
    daemon_faults: Option<ApiProxy>,
    client: Client,
    plane: ControlPlane,
    bridge: Option<Bridge>,
    /// The base root file system that real nodes share.
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

/// A node and what keeps it running.
#[derive(Debug)]
enum LabNode {
    Real(Box<RealNode>),
    Simulated(SimulatedNode),
    Fake(Arc<FakeKubelet>),
}

impl Lab {
    /// A builder for a lab.
    pub fn builder() -> LabBuilder {
        LabBuilder::default()
    }

    /// The same as [`Lab::builder`], for tests that read `Lab::start().nodes(3)`.
    pub fn start() -> LabBuilder {
        LabBuilder::default()
    }

    /// Starts a lab in this process.
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
            definitions: (spec.controller || spec.definitions).then(our_definitions),
            ..ControlPlaneOptions::default()
        };
        let mut ground = None;
        // Machines may be added later to a lab without nodes.
        if spec.kind == NodeKind::Real {
            ensure_packages(progress).await?;
            crate::machine::nspawn::check_overlay(folder.path())?;
            let base = crate::machine::base_root::ensure(spec.distribution, environment, progress).await?;
            let bridge = Bridge::create().await?;
            folder.update(|record| record.bridge = Some(bridge.name().to_owned()))?;
            options.address = bridge.gateway();
            ground = Some((bridge, base));
        }
        let kubelet = match spec.kubelet {
            Kubelet::Fake => None,
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

    /// Installs our objects and starts our controller.
    async fn install(&mut self, progress: &Reporter) -> Result<()> {
        let step = progress.begin("installing our objects");
        let config = self.kubeconfig().to_string_lossy().into_owned();
        self.mco(["install", "--kubeconfig", &config]).await?;
        step.done();
        let Some(program) = &self.spec.mco_binary else { return Ok(()) };
        // A user name of its own, by which the API server's audit log tells senders apart.
        let config =
            self.plane.identity("mco-controller", &["system:masters"])?.to_string_lossy().into_owned();
        // There is one controller, so no lease to wait for; and no fixed port, since many labs run side by side.
        let mut spec = Spec::new("mco-controller", program, self.controller_log())
            .args(["controller", "start", "--kubeconfig", &config])
            .args(["--metrics-listen=off", "--leader-elect=false"]);
        if let Some(templates) = &self.spec.templates {
            spec = spec.arg("--templates").arg(templates);
        }
        self.controller = Some(Process::spawn(spec, self.folder.path())?);
        Ok(())
    }

    /// Lets the real Ignition set up a machine, and boots it. The machine's own kubelet must register the Node: where
    /// the lab has real kubelets the program is installed, but neither its unit nor its credentials.
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

    /// A client with the administrator's rights. It belongs to this runtime.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The control plane: its programs, identities, outages.
    #[must_use]
    pub fn control_plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The data folder. Logs are in `logs`.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The data folder, shared: for programs with files in it that may outlive the lab.
    #[must_use]
    pub fn shared_folder(&self) -> Arc<Folder> {
        Arc::clone(&self.folder)
    }

    /// The process id of our controller, for measuring and for killing it.
    #[must_use]
    pub fn controller_pid(&self) -> Option<i32> {
        self.controller.as_ref().map(Process::pid)
    }

    /// The current state of every simulated node, and then every change of it, from one watch of all Nodes.
    #[must_use]
    pub fn follow_nodes(&self) -> Option<mpsc::UnboundedReceiver<NodeNews>> {
        self.feeds.as_ref().map(NodeFeeds::follow)
    }

    /// The proxy between the simulated nodes' daemons and the API server, if the lab was asked for one.
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

    /// The machine of a real node, for its state and for power on after a cut.
    #[must_use]
    pub fn real_node(&self, index: usize) -> Option<&RealNode> {
        match self.nodes.get(index)? {
            LabNode::Real(node) => Some(node),
            LabNode::Simulated(_) | LabNode::Fake(_) => None,
        }
    }

    /// The fake kubelet of a node, unless its kubelet is real.
    #[must_use]
    pub fn kubelet(&self, index: usize) -> Option<&FakeKubelet> {
        match self.nodes.get(index)? {
            LabNode::Real(node) => node.kubelet(),
            LabNode::Simulated(node) => Some(node.kubelet()),
            LabNode::Fake(kubelet) => Some(kubelet),
        }
    }

    /// Fails if a program of the lab, or our controller, has exited by itself.
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
                LabNode::Fake(_) => {}
            }
        });
        futures::future::join_all(stops).await;
        let Self { nodes, pods, feeds, plane, bridge, folder, .. } = self;
        drop((nodes, pods, feeds));
        plane.stop().await;
        // Dropping both waits for the kernel, so it runs outside of the runtime's threads.
        let _done = tokio::task::spawn_blocking(move || drop((bridge, folder))).await;
    }
}
