//! The arguments of `mco plan`, `mco pause`, `mco resume` and `mco approve`.

use crate::args::Cluster;
use crate::args::render::ShowSecrets;
use crate::output::Format;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How much a change may disturb a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Refuse {
    /// Refuse a change that reloads a service, or worse
    Reload,
    /// Refuse a change that restarts a service, or worse
    Restart,
    /// Refuse a change that drains a node, or worse
    Drain,
    /// Refuse a change that reboots a node
    Reboot,
}

impl Refuse {
    /// The same severity in the `host` crate.
    pub(crate) fn severity(self) -> host::Severity {
        match self {
            Self::Reload => host::Severity::Reload,
            Self::Restart => host::Severity::Restart,
            Self::Drain => host::Severity::Drain,
            Self::Reboot => host::Severity::Reboot,
        }
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without -f: shows what the controller does next, node by node: which node gets which \
        config, what is cordoned, drained and tainted, the status of each pool, and why every other node waits. \
        The forecast ends where the controller waits for a node, a pod or a person. Nothing is written.\nWith \
        -f: shows what these manifests would change, pool by pool: the rendered difference, what it costs the \
        nodes (nothing, reloads, restarts, a drain, a reboot) and which path causes it, and the order of the \
        nodes. Obstacles that only the machine knows of (a unit that is not installed, a link in the way) are \
        not seen. KubeletConfigs, ContainerRuntimeConfigs, mirrors, registries, signature policies and the \
        ControllerConfig become MachineConfigs by the controller's templates: pass these with --templates.\nWith \
        --from, objects come from files instead of a cluster: a folder is \
    read with its subfolders, such as a must-gather dump or what `kubectl get -o yaml` wrote.\n\nExit codes: 0 done; 1 \
    failed; 2 wrong command line; 3 the change costs what --refuse names or more, or no running host can apply \
    it.\n\nExamples:\n  mco plan\n  mco plan --from must-gather/ --pool worker -o json\n  \
    mco plan -f 50-motd.yaml\n  mco plan -f 50-motd.yaml --delete\n  mco plan -f kubeletconfig.yaml --templates templates/\n  mco plan -f new/ --from dump/ --refuse reboot      for CI: 3 when nodes would reboot"
)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Read the cluster's objects from this file or folder instead of a cluster; may be given several times
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub(crate) from: Vec<PathBuf>,
    /// Plan a change by these manifests: a file, a folder, or `-`; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR")]
    pub(crate) files: Vec<PathBuf>,
    /// With -f: plan that these objects are deleted, as by `kubectl delete -f`
    #[arg(long, requires = "files")]
    pub(crate) delete: bool,
    /// With -f: the folder of the controller's templates, for kinds that become MachineConfigs by them [default: that
    /// of the controller's image, if it exists]
    #[arg(long, value_name = "DIR", requires = "files")]
    pub(crate) templates: Option<PathBuf>,
    /// Only this pool; may be given several times
    #[arg(long = "pool", value_name = "NAME")]
    pub(crate) pools: Vec<String>,
    /// With -f: exit with 3 when the change costs a node this or more
    #[arg(long, value_enum, requires = "files")]
    pub(crate) refuse: Option<Refuse>,
    #[command(flatten)]
    pub(crate) show: ShowSecrets,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

/// `pause` and `resume`.
#[derive(Debug, Args)]
#[command(after_help = "A paused pool gives no node a new config. Nodes whose update has begun finish it; \
        rendering goes on.\nPausing a paused pool, or resuming a running one, changes \
        nothing.\n\nExamples:\n  mco pause worker\n  mco resume worker infra -o json")]
pub(crate) struct Pause {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pools
    #[arg(value_name = "POOL", required = true)]
    pub(crate) pools: Vec<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

/// `approve`.
#[derive(Debug, Args)]
#[command(
    after_help = "A wave of a RolloutPolicy with \"approval: Needed\" begins only after this. The approval is for the pool's \
        present config: another one must be approved again. The policy's status records who approved it, and \
        when.\n\nExamples:\n  mco approve worker\n  mco approve worker --config \
        rendered-worker-0123456789abcdef0123456789abcdef    fails if that is not the config that waits"
)]
pub(crate) struct Approve {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// The rendered config that is approved [default: the one that waits]
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: Option<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
