//! The arguments of the command line, in the same folders as the commands. `cargo xtask gen` makes the man pages and
//! completions from them.
//!
//! What it is not: what commands do (see `commands`).

pub(crate) mod boot;
pub(crate) mod change;
pub(crate) mod image;
pub(crate) mod manifests;
pub(crate) mod parts;
pub(crate) mod shared;
pub(crate) mod show;

use crate::args::boot::pointer::Pointer;
use crate::args::boot::token::Token;
use crate::args::change::approve::Approve;
use crate::args::change::install::Install;
use crate::args::change::pause::Pause;
use crate::args::change::retry::Retry;
use crate::args::change::undo::Undo;
use crate::args::change::uninstall::Uninstall;
use crate::args::image::Image;
use crate::args::manifests::lint::Lint;
use crate::args::manifests::render::Render;
use crate::args::parts::controller::Controller;
use crate::args::parts::daemon::Daemon;
use crate::args::parts::operator::Operator;
use crate::args::parts::server::Server;
use crate::args::show::bundle::Bundle;
use crate::args::show::dashboard::Dashboard;
use crate::args::show::explain::Explain;
use crate::args::show::history::History;
use crate::args::show::plan::Plan;
use crate::args::show::status::Status;
use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;

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
    Uninstall(Uninstall),
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
    /// The operator: installs the other parts and keeps them as the settings say
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

#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
