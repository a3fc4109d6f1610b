//! `mco dashboard`: serves the page until Ctrl-C, and prints the address that opens it; or runs as a part in the cluster.
//!
//! What it is not: the page, or who may see what (see [`dashboard`]).

use crate::args::show::dashboard::Dashboard as Arguments;
use crate::commands::process;
use crate::{connect, exit, output};
use anyhow::Context as _;
use dashboard::{Cluster, ClusterDashboard, Dashboard, Network};
use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use tokio_util::sync::CancellationToken;

/// Opens an address in the person's browser.
const OPENER: &str = "xdg-open";

pub(crate) async fn run(a: Arguments) -> anyhow::Result<u8> {
    let config = connect::config(&a.cluster).await?;
    let name = config.cluster_url.to_string();
    let client = connect::client(config)?;
    let stop = process::shutdown_signal()?;
    let controller_config = operator::install::controller_config_values::unknown();
    let cluster = Cluster { client, name, controller_config };
    if a.in_cluster {
        return in_cluster(a, cluster, stop).await;
    }
    let page = Dashboard::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, a.port))).await?;
    let address = page.invite()?;
    let words = "the address opens in one browser, once; press Enter for another one, Ctrl-C to end";
    output::write(&format!("{address}\n"))?;
    if std::io::stdin().is_terminal() {
        eprintln!("mco: {words}");
        let invite = page.inviter();
        // A thread of its own, which ends with the program: nothing waits for a person who never presses Enter.
        std::thread::spawn(move || {
            for _ in std::io::stdin().lines().map_while(Result::ok) {
                match invite() {
                    Ok(address) => drop(output::write(&format!("{address}\n"))),
                    Err(error) => eprintln!("mco: {}", client::chain(&error)),
                }
            }
        });
    }
    if a.opens() {
        open(&address);
    }
    page.serve(cluster, stop).await?;
    Ok(exit::OK)
}

async fn in_cluster(a: Arguments, cluster: Cluster, stop: CancellationToken) -> anyhow::Result<u8> {
    let listen = a.listen.0.context("--listen off: the dashboard needs an address to listen on")?;
    let network =
        Network { listen, certificate: a.cert.zip(a.key), hosts: a.hosts, proxies: a.trusted_proxies };
    let page = ClusterDashboard::listen(network).await?;
    tracing::info!(address = %page.address(), "the dashboard is served");
    page.serve(cluster, stop).await;
    Ok(exit::OK)
}

/// If no browser can be opened, that is not an error: the address is printed.
fn open(address: &str) {
    let mut command = tokio::process::Command::new(OPENER);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => drop(tokio::spawn(async move { child.wait().await })),
        Err(error) => eprintln!("mco: no browser was opened ({OPENER}: {error}); open the address yourself"),
    }
}
