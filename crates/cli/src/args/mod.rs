//! The arguments of the command line. `cargo xtask gen` makes the man pages and completions from them.

pub(crate) mod boot;
pub(crate) mod change;
pub(crate) mod daemon;
pub(crate) mod dashboard;
pub(crate) mod image;
pub(crate) mod render;
pub(crate) mod rollout;
pub(crate) mod status;

pub(crate) use crate::args::boot::Balancer;
use crate::args::boot::{Operator, Pointer, Token, balancer, network};
use crate::args::change::{History, Retry, Undo};
use crate::args::daemon::Daemon;
use crate::args::dashboard::Dashboard;
use crate::args::image::Image;
use crate::args::render::{Explain, Lint, Render};
use crate::args::rollout::{Approve, Pause, Plan};
use crate::args::status::{Bundle, Status};
use crate::output::Format;
use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand};
use k8s_openapi::jiff::SignedDuration;
use listen::Addresses;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The Machine Config Operator for any Kubernetes
#[derive(Debug, Parser)]
#[command(name = "mco", version, about, max_term_width = 100, disable_help_subcommand = true)]
#[command(
    long_about = "The Machine Config Operator for any Kubernetes: files, systemd units, SSH keys, kernel \
    arguments and the OS image of every node, from MachineConfig objects, rolled out a few nodes at a time."
)]
#[command(
    after_help = "Start here:\n  mco install                      install CRDs, settings and pools in the \
        cluster\n  mco controller start --templates DIR   run the controller\n  mco daemon start \
        --root-mount /   run the agent of this host, as root\n  mco status -w                    watch a \
        rollout\n\nExit codes: 0 done, 1 failed, 2 wrong command line, 3 findings (if asked for), 4 the \
        given time is over."
)]
pub struct Mco {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) log: Log,
}

/// Each connection that fails would be an error line of the client library's own; whoever needed it says so already.
const DEFAULT_LOG: &str = "info,kube_client::client::builder=off";

/// The log, on standard error.
#[derive(Debug, Clone, Args)]
pub struct Log {
    /// What to log: a level, or filters like `info,controller=debug`
    #[arg(long, global = true, env = "MCO_LOG", default_value = DEFAULT_LOG, value_name = "FILTER")]
    pub(crate) log: String,
    /// One JSON object per log line
    #[arg(long, global = true, env = "MCO_LOG_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) log_json: bool,
    /// Any text but an empty one turns colours off (<https://no-color.org>)
    #[arg(long, global = true, hide = true, env = "NO_COLOR", value_name = "ANY")]
    pub(crate) no_color: Option<OsString>,
}

impl Log {
    /// Whether output to a terminal may have colours.
    pub(crate) fn colours(&self) -> bool {
        self.no_color.as_ref().is_none_or(|text| text.is_empty())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Install namespace, CRDs, ControllerConfig and pools in a cluster
    Install(Install),
    /// Remove everything that was installed; hosts keep their files
    Uninstall(boot::Uninstall),
    /// Show pools and nodes: who waits for what, and why
    Status(Status),
    /// Serve a page on this computer that shows pools and nodes live
    Dashboard(Dashboard),
    /// Show what the controller does next, or what a change would do to the nodes; writes nothing
    Plan(Plan),
    /// Pause pools: their nodes get no new configs
    Pause(Pause),
    /// Resume paused pools
    Resume(Pause),
    /// Approve the wave of a pool that waits for an approval
    Approve(Approve),
    /// Show the history of a pool's rendered configs: when, what changed, and who changed it
    History(History),
    /// Roll a pool back to an earlier config, until its MachineConfigs are corrected
    Undo(Undo),
    /// Make nodes retry at once what failed
    Retry(Retry),
    /// Show which MachineConfig set a file, unit or argument of a pool, and which were overridden
    Explain(Explain),
    /// Render manifests without a cluster, or show what they would change
    Render(Render),
    /// Collect what a bug report needs in one archive, without secrets
    Bundle(Bundle),
    /// Check manifests: each finding with its place and remedy
    Lint(Lint),
    /// OS images: inspect one, or build a pool's own on this computer
    #[command(subcommand)]
    Image(Image),
    /// The controller: renders configs, rolls them out, drains nodes
    #[command(subcommand)]
    Controller(Controller),
    /// The node agent: applies configs to this host
    #[command(subcommand)]
    Daemon(Daemon),
    /// The config server: serves booting machines their Ignition config
    #[command(subcommand)]
    Server(Server),
    /// The operator: keeps the config server's certificates and the machines' user data
    #[command(subcommand)]
    Operator(Operator),
    /// Boot tokens: which machines may fetch a pool's config
    #[command(subcommand)]
    Token(Token),
    /// Print the pointer config that a machine is provisioned with: it makes the machine fetch its config from the
    /// config server
    Pointer(Pointer),
    /// Print a shell completion script
    #[command(after_help = "Example:\n  mco completion bash > /etc/bash_completion.d/mco")]
    Completion(Completion),
}

/// Which cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct Cluster {
    /// The kubeconfig to use [default: as kubectl finds it, else the pod's own]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The environment's kubeconfig files, used without --kubeconfig: for each setting the first file that has it
    /// counts
    #[arg(long, hide = true, env = "KUBECONFIG", value_name = "FILES")]
    pub(crate) kubeconfig_list: Option<OsString>,
}

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
    /// The address of the cluster's DNS service [default: that of Service kube-system/kube-dns, else 10.96.0.10]
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
    #[arg(long, requires = "image", value_name = "TIME", value_parser = boot::duration, default_value = "10m")]
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

#[derive(Debug, Subcommand)]
pub(crate) enum Controller {
    /// Run the controller until SIGTERM
    #[command(
        after_help = "Example:\n  mco controller start --kubeconfig ~/.kube/config --templates /usr/share/mco/templates"
    )]
    Start(ControllerStart),
    /// Render once, from the manifests in one folder to files in another
    Bootstrap(ControllerBootstrap),
}

#[derive(Debug, Args)]
pub(crate) struct ControllerStart {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The folder of the templates that the base MachineConfigs are made from
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: PathBuf,
    /// The address where /metrics, /healthz and /readyz are served, or `off`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8797")]
    pub(crate) metrics_listen: Listen,
    #[command(flatten)]
    pub(crate) metrics: SecureMetrics,
    /// Act only while holding the Lease, so that several controllers can run
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) leader_elect: bool,
}

/// Metrics for the network.
#[derive(Debug, Args)]
pub(crate) struct SecureMetrics {
    /// The address where the same is served over HTTPS, or `off`. Reading metrics there needs a bearer token with the right
    /// to `get` the path /metrics
    #[arg(long, value_name = "ADDR", default_value = "off")]
    pub(crate) metrics_secure_listen: Listen,
    /// The certificate for HTTPS (PEM); read again when it changes [default: a self-signed one, made at start]
    #[arg(long, value_name = "FILE", requires = "metrics_key")]
    pub(crate) metrics_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "metrics_cert")]
    pub(crate) metrics_key: Option<PathBuf>,
}

impl SecureMetrics {
    /// The certificate's files.
    pub(crate) fn files(&self) -> Vec<&Path> {
        [&self.metrics_cert, &self.metrics_key].into_iter().filter_map(Option::as_deref).collect()
    }

    /// These addresses and the plain one.
    pub(crate) fn with(self, plain: Listen) -> Addresses {
        let certificate = self.metrics_cert.zip(self.metrics_key);
        Addresses { plain: plain.0, secure: self.metrics_secure_listen.0, certificate }
    }
}

/// An address to listen on, or `off`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl std::str::FromStr for Listen {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        if s == "off" {
            return Ok(Self(None));
        }
        // As in other Kubernetes components, `:PORT` is all addresses.
        let all = s.strip_prefix(':').map(|port| format!("[::]:{port}"));
        let address = all.as_deref().unwrap_or(s).parse();
        address
            .map(|a| Self(Some(a)))
            .map_err(|e| format!("{e}: write IP:PORT, :PORT for all addresses, or off"))
    }
}

#[derive(Debug, Args)]
pub(crate) struct ControllerBootstrap {
    /// The folder with the manifests: ControllerConfig, pools, MachineConfigs
    #[arg(long, value_name = "DIR")]
    pub(crate) manifest_dir: PathBuf,
    /// The folder to write to
    #[arg(long, value_name = "DIR")]
    pub(crate) dest_dir: PathBuf,
    /// The pull secret's manifest
    #[arg(long, value_name = "FILE")]
    pub(crate) pull_secret: PathBuf,
    /// The folder of the templates
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Server {
    /// Serve from the cluster until SIGTERM
    Start(ServerStart),
    /// Serve from a folder until SIGTERM, for the first machines of a cluster
    Bootstrap(ServerBootstrap),
}

/// Ports, certificate, TLS.
#[derive(Debug, Args)]
pub(crate) struct Listening {
    /// The HTTPS port
    #[arg(long, value_name = "PORT", default_value_t = 22623)]
    pub(crate) secure_port: u16,
    /// The port for plain HTTP, which exposes configs to anyone on the network path; 0 for none. OpenShift's is 22624
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) insecure_port: u16,
    /// The certificate (PEM); read again when it changes
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.crt")]
    pub(crate) cert: PathBuf,
    /// The key (PEM); read again when it changes
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.key")]
    pub(crate) key: PathBuf,
    /// The minimum TLS version: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12")]
    pub(crate) tls_min_version: String,
    /// Cipher suites to offer, by IANA, Go or OpenSSL name [default: all that are safe]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tls_cipher_suites: Vec<String>,
    /// The release that this server belongs to
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) payload_version: String,
    /// The address to listen on [default: all]
    #[arg(long, value_name = "IP")]
    pub(crate) bind_address: Option<std::net::IpAddr>,
    /// A load balancer that speaks PROXY protocol, version 2. Machines are identified by the address in its header,
    /// which is then required; may be given several times
    #[arg(long = "proxy-protocol-from", value_name = "IP[/BITS]", value_parser = network)]
    pub(crate) balancers: Vec<ipnet::IpNet>,
    /// The most concurrent connections from one address (an IPv6 /64 counts as one); 0 for no limit. Raise it if
    /// thousands of machines boot behind one address (NAT)
    #[arg(long, value_name = "N", default_value_t = server::Limits::default().per_address)]
    pub(crate) connections_per_address: usize,
    /// Offer HTTP/2 too
    #[arg(long)]
    pub(crate) http2: bool,
    /// The address where /metrics, /healthz and /readyz are served, or `off`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8798")]
    pub(crate) metrics_listen: Listen,
    #[command(flatten)]
    pub(crate) metrics: SecureMetrics,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  mco server start --kubeconfig ~/.kube/config --apiserver-url https://api.example.com:6443 --cert tls.crt --key tls.key"
)]
pub(crate) struct ServerStart {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    #[command(flatten)]
    pub(crate) listen: Listening,
    /// The API server's URL as machines reach it; written into the kubeconfig that they are given
    #[arg(long, value_name = "URL")]
    pub(crate) apiserver_url: String,
    /// Where the Secret with the bootstrap token is mounted
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap-token")]
    pub(crate) bootstrap_token_dir: PathBuf,
    /// Serve configs only to machines that send a boot token (see `mco token`)
    #[arg(long)]
    pub(crate) require_token: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServerBootstrap {
    #[command(flatten)]
    pub(crate) listen: Listening,
    /// The folder with machine-pools/ and machine-configs/
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap")]
    pub(crate) server_basedir: PathBuf,
    /// The kubeconfig that machines are given
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kubeconfig")]
    pub(crate) bootstrap_kubeconfig: PathBuf,
    /// A registry's CA, `REGISTRY=FILE` with the file below the base folder; may be given several times
    #[arg(long = "bootstrap-certs", value_name = "REGISTRY=FILE")]
    pub(crate) bootstrap_certs: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
