//! The arguments of `mco plan`. They are used in `commands::show::plan`.

use crate::args::shared::{Cluster, Refuse, ShowSecrets};
use crate::output::Format;
use clap::Args;
use std::path::PathBuf;

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
