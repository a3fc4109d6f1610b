//! The specification of a lab: a value that a test, the demo or another process (`lab up`) can pass on.
//!
//! Not here: starting a lab.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::kubeadm::spec::KubeadmSpec;
use crate::lab::Lab;
use crate::machine::base_root::Distribution;
use crate::machine::layout::Layout;
use crate::machine::node_file::NodeFile;
use crate::system::folder::NodeKind;
use crate::system::packages::is_root;
use crate::system::paths::Environment;

/// The length of a simulated reboot, about that of a bare real node.
const REBOOT_MILLIS: u64 = 500;

/// Who acts as the kubelet of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kubelet {
    /// The lab does: it maintains the Node, its Lease and Ready; pods do not really run.
    #[default]
    Fake,
    /// A real kubelet with containerd, in a real node.
    Real,
}

/// The specification of a lab. Serializable, so that another process can build it (`lab up`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabSpec {
    /// The number of workers.
    pub nodes: usize,
    /// The number of nodes with the role of a control-plane node, named `master-0` and so on; they come after the
    /// workers.
    pub masters: usize,
    /// The kind of the nodes.
    pub kind: NodeKind,
    /// The workers' names are this prefix and a number from 0.
    pub prefix: String,
    /// The distribution of real nodes.
    pub distribution: Distribution,
    /// Who acts as their kubelet.
    pub kubelet: Kubelet,
    /// The distribution of Kubernetes whose layout nodes with a real kubelet have.
    pub layout: Layout,
    /// Whether the controller manager runs.
    pub controller_manager: bool,
    /// Whether the scheduler runs.
    pub scheduler: bool,
    /// The `mco` program, used for the daemon on real nodes, for `install` and for the controller.
    pub mco_binary: Option<PathBuf>,
    /// Whether the daemon runs as a service of each real node.
    pub daemon: bool,
    /// Whether our objects are installed and our controller runs.
    pub controller: bool,
    /// Whether the cluster has our CustomResourceDefinitions from the start, as with a controller.
    pub definitions: bool,
    /// The controller's templates.
    pub templates: Option<PathBuf>,
    /// Additional arguments for `mco daemon start`.
    pub daemon_args: Vec<String>,
    /// Whether to provide `kubectl` too.
    pub kubectl: bool,
    /// How long the reboot of a simulated node takes, in milliseconds.
    pub reboot_millis: u64,
    /// Files that every real node has from its first boot on.
    pub node_files: Vec<NodeFile>,
    /// Units that every real node starts at boot.
    pub node_units: Vec<String>,
    /// Additional flags for the API server.
    pub api_server_args: Vec<String>,
    /// Whether a proxy is put between the daemons of simulated nodes and the API server.
    pub daemon_faults: bool,
}

/// What another process is asked to run (`lab up`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// A lab whose control plane runs beside its nodes.
    Lab(Box<LabSpec>),
    /// A kubeadm cluster.
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
            kind: NodeKind::Fake,
            prefix: "worker-".to_owned(),
            distribution: Distribution::default(),
            kubelet: Kubelet::Fake,
            layout: Layout::Plain,
            controller_manager: true,
            scheduler: true,
            mco_binary: None,
            daemon: true,
            controller: false,
            definitions: false,
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
            self.mco_binary.as_deref().filter(|binary| !crate::system::command::is_executable(binary))
        {
            return options(&format!(
                "{} is not a program: build it with `cargo build -p cli`",
                binary.display()
            ));
        }
        Ok(())
    }
}

/// Collects what a lab should be, then [`LabBuilder::start`]s it.
pub type LabBuilder = Builder<LabSpec>;

impl LabBuilder {
    /// Sets the number of workers.
    pub fn nodes(mut self, nodes: usize) -> Self {
        self.spec.nodes = nodes;
        self
    }

    /// Sets the number of control-plane nodes, which come after the workers.
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
    pub fn fake(mut self) -> Self {
        self.spec.kind = NodeKind::Fake;
        self
    }

    /// Sets the prefix of the nodes' names.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.spec.prefix = prefix.into();
        self
    }

    /// Sets the distribution of real nodes.
    pub fn distribution(mut self, distribution: Distribution) -> Self {
        self.spec.distribution = distribution;
        self
    }

    /// Sets who acts as the nodes' kubelet.
    pub fn kubelet(mut self, kubelet: Kubelet) -> Self {
        self.spec.kubelet = kubelet;
        self
    }

    /// Sets the distribution of Kubernetes whose layout nodes with a real kubelet have.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.spec.layout = layout;
        self
    }

    /// Runs the lab with or without the controller manager.
    pub fn controller_manager(mut self, wanted: bool) -> Self {
        self.spec.controller_manager = wanted;
        self
    }

    /// Runs the lab with or without the scheduler.
    pub fn scheduler(mut self, wanted: bool) -> Self {
        self.spec.scheduler = wanted;
        self
    }

    /// Sets the path of the `mco` program.
    pub fn mco_binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.spec.mco_binary = Some(path.into());
        self
    }

    /// Sets whether the daemon runs as a service of each real node, which is the default.
    pub fn daemon(mut self, wanted: bool) -> Self {
        self.spec.daemon = wanted;
        self
    }

    /// Sets whether our objects are installed (`mco install`) and our controller runs (`mco controller start`).
    pub fn controller(mut self, wanted: bool) -> Self {
        self.spec.controller = wanted;
        self
    }

    /// Sets whether the cluster has our CustomResourceDefinitions from the start.
    pub fn definitions(mut self, wanted: bool) -> Self {
        self.spec.definitions = wanted;
        self
    }

    /// Sets the controller's templates.
    pub fn templates(mut self, path: impl Into<PathBuf>) -> Self {
        self.spec.templates = Some(path.into());
        self
    }

    /// Adds arguments for `mco daemon start` on the nodes.
    pub fn daemon_args<I: Into<String>>(mut self, args: impl IntoIterator<Item = I>) -> Self {
        self.spec.daemon_args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether to provide `kubectl` too.
    pub fn kubectl(mut self, wanted: bool) -> Self {
        self.spec.kubectl = wanted;
        self
    }

    /// Sets how long the reboot of a simulated node takes.
    pub fn reboot_time(mut self, time: Duration) -> Self {
        self.spec.reboot_millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Adds a file that every real node has from its first boot on; `path` is absolute.
    pub fn node_file(mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        self.spec.node_files.push(NodeFile::new(path.trim_start_matches('/'), mode, content));
        self
    }

    /// Adds a unit that every real node starts at boot.
    pub fn node_unit(mut self, name: impl Into<String>) -> Self {
        self.spec.node_units.push(name.into());
        self
    }

    /// Adds a service that every real node starts at boot: the file of its unit, which is below multi-user.target.
    pub fn node_service(self, name: &str, unit: impl Into<Vec<u8>>) -> Self {
        self.node_file(&format!("etc/systemd/system/{name}"), 0o644, unit).node_unit(name)
    }

    /// Sets whether a proxy is put between the daemons of simulated nodes and the API server: [`Lab::daemon_faults`].
    pub fn daemon_faults(mut self, wanted: bool) -> Self {
        self.spec.daemon_faults = wanted;
        self
    }

    /// Adds flags for the API server.
    pub fn api_server_args<I: Into<String>>(mut self, args: impl IntoIterator<Item = I>) -> Self {
        self.spec.api_server_args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Starts the lab and returns when every node is Ready.
    ///
    /// # Errors
    /// Any part fails; what was started by then is taken down again.
    pub async fn start(self) -> Result<Lab> {
        let environment = self.environment.unwrap_or_else(Environment::read);
        Lab::from_spec(&self.spec, &environment, &self.progress).await
    }
}
