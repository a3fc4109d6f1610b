//! The arguments of `mco dashboard`. They are used in `commands::show::dashboard`.

use crate::args::shared::{Cluster, Listen};
use clap::Args;
use ipnet::IpNet;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "The page is served on this computer's loopback address only, until Ctrl-C, with the rights of your \
        kubeconfig. The printed address opens it in one browser, once, within ten minutes; press Enter for another address. From another computer, \
        forward the port: ssh -L PORT:127.0.0.1:PORT HOST\n\nExamples:\n  mco dashboard\n  mco dashboard --no-open --port \
        8796\n\nIn the cluster the operator runs it with --in-cluster; see spec.dashboard of MachineConfigOperator cluster."
)]
pub(crate) struct Dashboard {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The port on 127.0.0.1; 0 for any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// Only print the address; do not open a browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Serve everybody who may look at the cluster, over HTTPS, with this pod's account, until SIGTERM
    #[arg(long, conflicts_with_all = ["port", "no_open"])]
    pub(crate) in_cluster: bool,
    /// The address to listen on in the cluster
    #[arg(long, value_name = "ADDR", default_value = ":9443", requires = "in_cluster")]
    pub(crate) listen: Listen,
    /// The certificate for HTTPS (PEM); read again when it changes [default: a self-signed one, made at start]
    #[arg(long, value_name = "FILE", requires_all = ["in_cluster", "key"])]
    pub(crate) cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// A name by which people reach it in the cluster besides the Service's; may be given several times
    #[arg(long = "host", value_name = "NAME", requires = "in_cluster")]
    pub(crate) hosts: Vec<String>,
    /// A proxy that signs people in, whose X-Forwarded-User and X-Forwarded-Groups are trusted: an address or a range; may be
    /// given several times
    #[arg(long = "trusted-proxy", value_name = "NET", requires = "in_cluster", value_parser = net)]
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// The display: without one, no browser is opened
    #[arg(long, hide = true, env = "DISPLAY", value_name = "ANY")]
    pub(crate) display: Option<OsString>,
    /// The same, on Wayland
    #[arg(long, hide = true, env = "WAYLAND_DISPLAY", value_name = "ANY")]
    pub(crate) wayland_display: Option<OsString>,
}

impl Dashboard {
    /// Whether a browser is to be opened.
    pub(crate) fn opens(&self) -> bool {
        let shows = [&self.display, &self.wayland_display].into_iter().flatten().any(|d| !d.is_empty());
        shows && !self.no_open
    }
}

fn net(text: &str) -> Result<IpNet, String> {
    api::formats::network::network(text)
        .ok_or_else(|| "not an address or a range, such as 10.0.0.4/31".to_owned())
}
