//! What every command of the process shares: the log, the crypto provider, the async runtime, and the signals that end it.
//!
//! What it is not: which command runs (see the parent module).

use crate::args::Log;
use std::io::IsTerminal;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Begins the log on standard error.
pub(super) fn log(log: &Log) -> anyhow::Result<()> {
    let filter: Targets = match log.log.trim() {
        "" => Targets::new().with_default(LevelFilter::ERROR),
        filter => filter
            .parse()
            .map_err(|e| anyhow::anyhow!("--log {filter:?}: {e}; for example: info,controller=debug"))?,
    };
    // The client logs an answer that it cannot read, with the secrets in it. Its errors say what failed without them.
    let filter = filter.with_target("kube_client::client", LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let subscriber = tracing_subscriber::registry().with(filter);
    if log.log_json {
        subscriber.with(lines.json()).init();
    } else {
        subscriber.with(lines.with_ansi(std::io::stderr().is_terminal() && log.colours())).init();
    }
    Ok(())
}

/// TLS needs a crypto provider. Commands that open no connection do not load one, which saves memory.
fn cryptography() -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another crypto provider is installed already"))
}

/// For commands that do many things at a time.
pub(super) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    cryptography()?;
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// The agent does one thing at a time: one thread is enough, and saves memory on every host.
pub(super) fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    cryptography()?;
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Cancelled at SIGTERM or SIGINT.
pub(crate) fn shutdown_signal() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let cancel = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => tracing::info!("SIGTERM: ending"),
            _ = int.recv() => tracing::info!("SIGINT: ending"),
        }
        cancel.cancel();
    });
    Ok(token)
}

/// The reader of the output has closed the pipe.
pub(super) fn broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|c| {
        c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
