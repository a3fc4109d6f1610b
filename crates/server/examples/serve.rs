//! `serve bootstrap|start --flag value …`: the server with the reference's flags, for trying it out before or without
//! the `mco` binary. What it is not: the product's command line (see the `cli` crate).

use anyhow::{Context as _, bail};
use prometheus_client::registry::Registry;
use server::{BootstrapOptions, Metrics, StartOptions};
use tokio_util::sync::CancellationToken;

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new("info"))
        .with_writer(std::io::stderr)
        .init();
    let mut args = std::env::args().skip(1);
    let role = args.next().context("usage: serve bootstrap|start --flag value …")?;
    let mut options = BootstrapOptions::default();
    let mut cluster = StartOptions::default();
    let mut registry = Registry::default();
    options.listen.metrics = Metrics::new(&mut registry);
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--server-basedir" => options.server_basedir = value.into(),
            "--bootstrap-kubeconfig" => options.bootstrap_kubeconfig = value.into(),
            "--bootstrap-certs" => options.bootstrap_certs.push(value),
            "--cert" => options.listen.cert = value.into(),
            "--key" => options.listen.key = value.into(),
            "--secure-port" => options.listen.secure_port = value.parse()?,
            "--insecure-port" => options.listen.insecure_port = value.parse()?,
            "--tls-min-version" => options.listen.tls.min_version = value,
            "--tls-cipher-suites" => {
                options.listen.tls.cipher_suites = value.split(',').map(str::to_owned).collect();
            }
            "--http2" => options.listen.http2 = value.parse()?,
            "--kubeconfig" => cluster.kubeconfig = Some(value.into()),
            "--apiserver-url" => cluster.apiserver_url = value,
            "--bootstrap-token-dir" => cluster.bootstrap_token_dir = value.into(),
            other => bail!("unknown flag {other}"),
        }
    }
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let on_signal = stop.clone();
        tokio::spawn(async move {
            let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
            tokio::select! { _ = term.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
            on_signal.cancel();
            std::io::Result::Ok(())
        });
        match role.as_str() {
            "bootstrap" => server::bootstrap(options, stop).await?,
            "start" => server::start(StartOptions { listen: options.listen, ..cluster }, stop).await?,
            other => bail!("unknown role {other}"),
        }
        Ok(())
    })
}
