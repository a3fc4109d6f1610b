//! The arguments of `mco install`. They are used in `commands::change::install`.

use crate::args::shared::{Balancer, Cluster, balancer, duration};
use crate::output::Format;
use clap::Args;
use k8s_openapi::jiff::SignedDuration;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Running it again upgrades. Pools stay as they are. Options that are given now are written into the settings (without --image:\ninto the ControllerConfig), and so are detected values that have changed.\n\nExit codes: 0 installed, 1 failed, 4 it does not run within --timeout.\n\nExamples:\n  mco install\n  mco install --pool worker --dry-run\n  mco install --dry-run -o yaml | less\n  mco install --dry-run --output-dir mco/\n  mco install --image registry.example.com/mco:1 --api-server-url https://api.example.com:6443"
)]
pub(crate) struct Install {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// A pool to create; may be given several times [default: master and worker; with --image those of the settings]
    #[arg(long = "pool", value_name = "NAME")]
    pub(crate) pools: Vec<String>,
    /// The address of the cluster's DNS service [default: that of the cluster's DNS Service in kube-system, else 10.96.0.10]
    #[arg(long, value_name = "IP")]
    pub(crate) cluster_dns_ip: Option<std::net::IpAddr>,
    /// Run the operator as pods of this image; it installs and keeps everything else, as MachineConfigOperator cluster says
    /// [default: all parts run elsewhere]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// With --image: do not wait until everything runs
    #[arg(long, requires = "image", conflicts_with = "timeout")]
    pub(crate) no_wait: bool,
    /// With --image: how long to wait until everything runs
    #[arg(long, requires = "image", value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub(crate) timeout: SignedDuration,
    /// Install on a cluster whose objects another program manages, and take them over from it
    #[arg(long)]
    pub(crate) take_over: bool,
    /// With --image: upgrade although the installation says that it must not be upgraded now (its condition Upgradeable)
    #[arg(long, requires = "image")]
    pub(crate) allow_not_upgradeable: bool,
    /// With --image: the config server gives configs only to machines with a boot token [default for a new installation;
    /// an existing one stays as it is]
    #[arg(long, requires = "image")]
    pub(crate) require_token: bool,
    /// With --image: the config server serves configs to anyone who can reach it, over plain HTTP (22624) too, as
    /// OpenShift's does
    #[arg(long, requires = "image", conflicts_with = "require_token")]
    pub(crate) open: bool,
    /// With --image: a load balancer in front of the config server that speaks PROXY protocol, version 2; may be
    /// given several times; `none` removes all; without this option the existing ones stay
    #[arg(long = "proxy-protocol-from", value_name = "IP[/BITS]", value_parser = balancer, requires = "image")]
    pub(crate) balancers: Vec<Balancer>,
    /// The API server's URL, as machines reach it [default: from the kubeconfig, unless that is a loopback address]
    #[arg(long, value_name = "URL")]
    pub(crate) api_server_url: Option<String>,
    /// The CA that the API server's clients trust, PEM [default: the kubeconfig's]
    #[arg(long, value_name = "FILE")]
    pub(crate) api_server_ca: Option<PathBuf>,
    /// Run the node agents as pods of this image [default: with --image pods of that image, or what the settings say; without
    /// it services of their hosts]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) daemon_image: Option<String>,
    /// With --image: the node agents are services of their hosts, from a package or an image of the host
    #[arg(long, requires = "image", conflicts_with = "daemon_image")]
    pub(crate) agents_of_hosts: bool,
    /// Also install the CRDs of OpenShift's config and operator kinds, which are read if they exist
    #[arg(long)]
    pub(crate) openshift_config_crds: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// With --dry-run: how to print the objects
    #[arg(short, long, value_enum, default_value_t, requires = "dry_run")]
    pub(crate) output: Format,
    /// With --dry-run: write the objects into this folder for kubectl, with the CRDs in a separate file
    #[arg(long, value_name = "DIR", requires = "dry_run", conflicts_with = "output")]
    pub(crate) output_dir: Option<PathBuf>,
}
