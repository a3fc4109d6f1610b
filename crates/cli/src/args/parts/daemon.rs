//! The arguments of `mco daemon …`. They are used in `commands::parts::daemon`.

use crate::args::shared::{Cluster, Listen, Refuse, SecureMetrics};
use crate::output::Format;
use clap::{Args, Subcommand};
use jiff::SignedDuration;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Daemon {
    /// Run the agent until SIGTERM
    #[command(
        after_help = "In a pod, mount the host's root folder at /rootfs: the agent changes its root to that \
            folder and runs as on the host itself.\n\nExamples:\n  as a systemd service on the host:\n    mco \
            daemon start --root-mount /\n  with another identity than the kubelet's:\n    \
        mco daemon start --root-mount / --kubeconfig /etc/mco/agent.kubeconfig --node-name worker-0"
    )]
    Start(Box<DaemonStart>),
    /// Show what a config would do on this host: every step and what it costs, or why it cannot be applied
    #[command(
        after_help = "The config is a rendered MachineConfig or an Ignition config; any other MachineConfig \
            is taken as the complete config of the host. It is compared with the config that the host is in. \
            Nothing is changed.\n\nExit codes: 0 it can be \
        applied; 1 failed; 2 wrong command line; 3 it cannot be applied here, or costs what --refuse names or more.\n\nExamples:\n  \
        mco daemon plan -f rendered.yaml\n  kubectl get machineconfig rendered-worker-0123 -o yaml | mco daemon plan -f - --refuse reboot"
    )]
    Plan(DaemonPlan),
    /// Finish or undo what a crash interrupted; needs no API server
    Recover(DaemonRecover),
    /// Apply a config to this host and undo it unless you confirm it in time
    #[command(
        after_help = "For a change that may cut you off: network, SSH server, firewall, kernel arguments. The config is a MachineConfig or \
            an Ignition config, taken as the complete config of the host. If it needs a reboot, the machine reboots, \
            and the time runs from the boot. Log in again and run `mco daemon confirm`. If you cannot, you need do \
            nothing: when the time is up the change is undone, with another reboot if the first one was needed. That \
            needs neither this command nor your session: a unit of its own watches the clock, also after a power \
            cut.\n\nWithout a reboot the command waits: press Enter to keep the change, or u and Enter to undo it \
            at once. Interrupting the command changes nothing: the time goes on.\n\nThe command refuses a host that a \
            cluster manages; there the agent tries such changes by itself.\n\nExit codes: 0 kept, or rebooting; 1 \
            failed, nothing is changed; 2 wrong command line; 3 undone.\n\nExamples:\n  mco daemon plan -f \
            network.yaml      what would it change?\n  mco daemon try -f network.yaml --confirm-within 2m\n  mco \
            daemon confirm                   from another session, or after the reboot"
    )]
    Try(DaemonTry),
    /// Keep the change that is on trial on this host
    #[command(
        after_help = "After this the change is not undone any more. On a node of a cluster the agent confirms a \
            change by itself; confirm it by hand only if you know why the agent does not.\n\nExit codes: 0 kept; 1 \
            failed; 2 wrong command line; 3 no change is on trial.\n\nExample:\n  mco daemon confirm"
    )]
    Confirm(DaemonRecover),
    /// Undo the change that is on trial on this host when its time is up; started by systemd
    #[command(hide = true)]
    WatchTrial(DaemonRecover),
    /// Complete a machine's first boot: apply what Ignition cannot, before the kubelet starts
    #[command(
        name = "firstboot-complete-machineconfig",
        after_help = "Returns at once on a machine whose first boot is complete. A failure is retried every \
            minute; the kubelet's unit waits for this one.\n\nExample (in \
            machine-config-daemon-firstboot.service):\n  mco daemon firstboot-complete-machineconfig --root-mount /"
    )]
    FirstBoot(DaemonFirstBoot),
}

#[derive(Debug, Args)]
pub(crate) struct DaemonStart {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The name of this host's Node [default: the host name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) node_name: String,
    /// The host's root folder
    #[arg(long, value_name = "DIR", default_value = "/rootfs", overrides_with = "root_mount")]
    pub(crate) root_mount: PathBuf,
    /// The address where /metrics is served, or `off`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8797")]
    pub(crate) metrics_url: Listen,
    #[command(flatten)]
    pub(crate) metrics: SecureMetrics,
    /// Check the kubelet's health
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) kubelet_healthz_enabled: bool,
    /// The kubelet's health endpoint: an http URL with an IP address
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:10248/healthz")]
    pub(crate) kubelet_healthz_endpoint: Endpoint,
    /// Apply this config (a MachineConfig or an Ignition config) to the host without a cluster, and end
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) once_from: Option<String>,
    /// With --once-from: do not reboot, even if the config needs it
    #[arg(long, requires = "once_from")]
    pub(crate) skip_reboot: bool,
}

/// The kubelet's health endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
}

impl std::str::FromStr for Endpoint {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let wrong =
            || format!("{s:?}: write http://IP:PORT/PATH, for example http://127.0.0.1:10248/healthz");
        let rest = s.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, "healthz"));
        let address = host.replace("localhost:", "127.0.0.1:").parse().map_err(|_| wrong())?;
        Ok(Self { address, path: format!("/{path}") })
    }
}

#[derive(Debug, Args)]
pub(crate) struct DaemonPlan {
    /// The config: a file, or `-`
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// A manifest of the MachineConfiguration whose disruption policies apply [default: the built-in ones]
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Exit with 3 when the change costs this or more
    #[arg(long, value_enum)]
    pub(crate) refuse: Option<Refuse>,
    /// The host's root folder
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root_mount: PathBuf,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonTry {
    /// The config: a file, or `-`
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How long you may take to confirm it: 30s to 24h
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = api::trial::parse_time_limit)]
    pub(crate) confirm_within: SignedDuration,
    /// The host's root folder
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root_mount: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonRecover {
    /// The host's root folder
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root_mount: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonFirstBoot {
    /// The host's root folder
    #[arg(long, value_name = "DIR", default_value = "/rootfs", overrides_with = "root_mount")]
    pub(crate) root_mount: PathBuf,
    /// The config that the config server left for the first boot, below the root folder
    #[arg(long, value_name = "FILE", default_value = api::paths::ENCAPSULATED)]
    pub(crate) machineconfig_file: String,
}
