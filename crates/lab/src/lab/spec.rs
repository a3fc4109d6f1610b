//! The specification of a lab: a value that a test, the demo or another process (`lab up`) can pass on.
//!
//! Not here: how a lab is started.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kubeadm::KubeadmSpec;
use crate::lab::Lab;
use crate::machine::base_root::Distribution;
use crate::machine::layout::Layout;
use crate::machine::node_file::NodeFile;
use crate::progress::Reporter;
use crate::system::folder::NodeKind;
use crate::system::packages::is_root;
use crate::system::paths::Environment;

/// A bare real node is away for about this long.
const REBOOT_MILLIS: u64 = 500;

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
    /// How many workers.
    pub nodes: usize,
    /// How many nodes with the role of a control-plane node, named `master-0` and so on; they come after the workers.
    pub masters: usize,
    /// What they are.
    pub kind: NodeKind,
    /// The workers' names are this and a number from 0.
    pub prefix: String,
    /// What real nodes run.
    pub distribution: Distribution,
    /// Who speaks for them.
    pub kubelet: Kubelet,
    /// Whose nodes they look like, where their kubelet is real.
    pub layout: Layout,
    /// Run the controller manager.
    pub controller_manager: bool,
    /// Run the scheduler.
    pub scheduler: bool,
    /// The `mco` program: the daemon on real nodes, `install`, the controller.
    pub mco_binary: Option<PathBuf>,
    /// Run the daemon as a service of each real node.
    pub daemon: bool,
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
    /// Files that every real node has from its first boot on.
    pub node_files: Vec<NodeFile>,
    /// Units that every real node starts at boot.
    pub node_units: Vec<String>,
    /// More flags for the API server.
    pub api_server_args: Vec<String>,
    /// Put a proxy between the daemons of simulated nodes and the API server.
    pub daemon_faults: bool,
}

/// What another process is asked to hold (`lab up`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// A control plane beside its nodes.
    Lab(Box<LabSpec>),
    /// A cluster of kubeadm.
    Kubeadm(KubeadmSpec),
}

impl From<LabSpec> for Request {
    fn from(spec: LabSpec) -> Self {
        Self::Lab(Box::new(spec))
    }
}

impl From<KubeadmSpec> for Request {
    fn from(spec: KubeadmSpec) -> Self {
        Self::Kubeadm(spec)
    }
}

impl Default for LabSpec {
    fn default() -> Self {
        Self {
            nodes: 0,
            masters: 0,
            kind: NodeKind::StandIn,
            prefix: "worker-".to_owned(),
            distribution: Distribution::default(),
            kubelet: Kubelet::StandIn,
            layout: Layout::Plain,
            controller_manager: true,
            scheduler: true,
            mco_binary: None,
            daemon: true,
            controller: false,
            templates: None,
            daemon_args: Vec::new(),
            kubectl: false,
            reboot_millis: REBOOT_MILLIS,
            node_files: Vec::new(),
            node_units: Vec::new(),
            api_server_args: Vec::new(),
            daemon_faults: false,
        }
    }
}

impl LabSpec {
    /// The nodes' names: the workers', then the control-plane nodes'.
    pub fn node_names(&self) -> impl Iterator<Item = String> {
        (0..self.count()).map(|index| self.node_name(index))
    }

    /// The name of node number `index`.
    pub(crate) fn node_name(&self, index: usize) -> String {
        match index.checked_sub(self.nodes) {
            None => format!("{}{index}", self.prefix),
            Some(master) => format!("master-{master}"),
        }
    }

    /// How many nodes there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes + self.masters
    }

    /// Whether node number `index` has the role of a control-plane node.
    pub(crate) fn is_master(&self, index: usize) -> bool {
        index >= self.nodes
    }

    pub(crate) fn check(&self) -> Result<()> {
        let options = |text: &str| Err(Error::Options(text.to_owned()));
        if self.kind == NodeKind::Real && !is_root() {
            return Err(Error::NeedsRoot { what: "a lab with real nodes" });
        }
        if self.kubelet == Kubelet::Real && self.kind != NodeKind::Real {
            return options(
                "a real kubelet needs real nodes: add `.real()` (`--kubelet real` goes without `--simulated`)",
            );
        }
        if self.layout != Layout::Plain && self.kubelet != Kubelet::Real {
            return options("a distribution's layout is that of its kubelet: add `.kubelet(Kubelet::Real)`");
        }
        if self.controller && self.mco_binary.is_none() {
            return options("the controller needs the `mco` program: add `.mco_binary(path)`");
        }
        if self.controller && self.templates.is_none() {
            return options("the controller needs its templates: add `.templates(folder)`");
        }
        if let Some(binary) =
            self.mco_binary.as_deref().filter(|binary| !crate::system::process::is_executable(binary))
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
    /// How many workers.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.spec.nodes = nodes;
        self
    }

    /// How many nodes with the role of a control-plane node, after the workers.
    pub fn masters(mut self, masters: usize) -> Self {
        self.spec.masters = masters;
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

    /// What the real nodes run.
    pub fn distribution(mut self, distribution: Distribution) -> Self {
        self.spec.distribution = distribution;
        self
    }

    /// Who speaks for the nodes.
    pub fn kubelet(mut self, kubelet: Kubelet) -> Self {
        self.spec.kubelet = kubelet;
        self
    }

    /// Whose nodes the nodes look like, where their kubelet is real.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.spec.layout = layout;
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

    /// Run the daemon as a service of each real node, which it is by default, or not.
    pub fn daemon(mut self, wanted: bool) -> Self {
        self.spec.daemon = wanted;
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

    /// A file that every real node has from its first boot on; `path` is absolute.
    pub fn node_file(mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        self.spec.node_files.push(NodeFile::new(path.trim_start_matches('/'), mode, content));
        self
    }

    /// A unit that every real node starts at boot.
    pub fn node_unit(mut self, name: impl Into<String>) -> Self {
        self.spec.node_units.push(name.into());
        self
    }

    /// Put a proxy between the daemons of simulated nodes and the API server: [`Lab::daemon_faults`].
    pub fn daemon_faults(mut self, wanted: bool) -> Self {
        self.spec.daemon_faults = wanted;
        self
    }

    /// More flags for the API server.
    pub fn api_server_args<I: Into<String>>(mut self, args: impl IntoIterator<Item = I>) -> Self {
        self.spec.api_server_args = args.into_iter().map(Into::into).collect();
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
