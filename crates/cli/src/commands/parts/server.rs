//! `mco server`.

use crate::args::parts::server::{Listening, ServerBootstrap, ServerStart};
use crate::commands::process;
use crate::{connect, exit};
use prometheus_client::registry::Registry;
use server::{BootstrapOptions, Limits, ListenOptions, Metrics, StartOptions, TlsProfile};
use std::sync::Arc;

pub(crate) async fn start(a: ServerStart) -> anyhow::Result<u8> {
    let client = connect::connect_with(&a.cluster, server::tune).await?;
    let options = StartOptions {
        listen: listen(a.listen),
        apiserver_url: a.apiserver_url,
        bootstrap_token_dir: a.bootstrap_token_dir,
        require_token: a.require_token,
        ..StartOptions::default()
    };
    server::start_with(client, options, process::shutdown_signal()?).await?;
    Ok(exit::OK)
}

pub(crate) async fn bootstrap(a: ServerBootstrap) -> anyhow::Result<u8> {
    let options = BootstrapOptions {
        listen: listen(a.listen),
        server_basedir: a.server_basedir,
        bootstrap_kubeconfig: a.bootstrap_kubeconfig,
        bootstrap_certs: a.bootstrap_certs,
    };
    server::bootstrap(options, process::shutdown_signal()?).await?;
    Ok(exit::OK)
}

fn listen(a: Listening) -> ListenOptions {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    ListenOptions {
        metrics,
        registry: Arc::new(registry),
        metrics_addresses: a.metrics.with(a.metrics_listen),
        secure_port: a.secure_port,
        insecure_port: a.insecure_port,
        cert: a.cert,
        key: a.key,
        tls: TlsProfile { min_version: a.tls_min_version, cipher_suites: a.tls_cipher_suites },
        payload_version: a.payload_version,
        bind_address: a.bind_address,
        balancers: a.balancers,
        http2: a.http2,
        limits: Limits { per_address: a.connections_per_address, ..Limits::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parts::server::Server;
    use crate::args::{Command, Mco};
    use clap::Parser as _;

    #[test]
    fn the_connections_of_one_address_are_as_the_flag_says() {
        let most = |more: &[&str]| {
            let start = ["mco", "server", "start", "--apiserver-url", "https://a:6443"];
            let mco = Mco::try_parse_from(start.iter().chain(more)).unwrap();
            let Command::Server(Server::Start(a)) = mco.command else { panic!("server start") };
            listen(a.listen).limits.per_address
        };
        assert_eq!(most(&[]), 4096);
        assert_eq!(most(&["--connections-per-address", "20000"]), 20_000);
        assert_eq!(most(&["--connections-per-address=0"]), 0);
    }
}
