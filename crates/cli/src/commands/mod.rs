//! One function per subcommand, and the shell around them: crypto provider, log, runtime, error, exit code.

mod controller;
mod daemon;
mod explain;
mod history;
mod install;
mod lint;
mod operator;
mod pause;
mod plan;
mod plan_objects;
mod plan_settings;
mod pointer;
mod render;
mod rendered_now;
mod retry;
mod server;
mod status;
mod token;
mod undo;

use crate::args::boot::Operator;
use crate::args::daemon::Daemon;
use crate::args::{Command, Controller, Log, Mco, Server};
use crate::{exit, output};
use clap::CommandFactory;
use std::io::IsTerminal;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) fn run(mco: Mco) -> ExitCode {
    let outcome = prepare(&mco.log).and_then(|()| dispatch(mco.command));
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(e) if broken_pipe(&e) => ExitCode::from(exit::OK),
        Err(e) => {
            eprintln!("mco: {}", client::chain(e.as_ref()));
            ExitCode::from(exit::FAILED)
        }
    }
}

/// Whether the command renders once and ends. All others run for long, or hold little memory.
pub(crate) fn ends_soon(command: &Command) -> bool {
    matches!(command, Command::Render(_) | Command::Lint(_) | Command::Controller(Controller::Bootstrap(_)))
}

fn dispatch(command: Command) -> anyhow::Result<u8> {
    match command {
        Command::Install(a) => runtime()?.block_on(install::run(a)),
        Command::Status(a) => runtime()?.block_on(status::run(a)),
        Command::Plan(a) => runtime()?.block_on(plan::run(a)),
        Command::Pause(a) => runtime()?.block_on(pause::run(a, true)),
        Command::Resume(a) => runtime()?.block_on(pause::run(a, false)),
        Command::History(a) => runtime()?.block_on(history::run(a)),
        Command::Undo(a) => runtime()?.block_on(undo::run(a)),
        Command::Retry(a) => runtime()?.block_on(retry::run(a)),
        Command::Explain(a) => runtime()?.block_on(explain::run(a)),
        Command::Render(a) => runtime()?.block_on(render::run(a)),
        Command::Lint(a) => lint::run(&a),
        Command::Controller(Controller::Start(a)) => runtime()?.block_on(controller::start(a)),
        Command::Controller(Controller::Bootstrap(a)) => controller::bootstrap(a),
        Command::Daemon(Daemon::Start(a)) => {
            // Before there are threads: the whole process changes its root.
            daemon::enter(&a.root_mount)?;
            small_runtime()?.block_on(daemon::start(a))
        }
        Command::Daemon(Daemon::FirstBoot(a)) => {
            daemon::enter(&a.root_mount)?;
            // systemd is talked to by the runtime's own thread, while another waits for it.
            small_runtime()?.block_on(daemon::first_boot(a))
        }
        Command::Daemon(Daemon::Plan(a)) => daemon::plan(&a),
        Command::Daemon(Daemon::Recover(a)) => daemon::recover(&a),
        Command::Server(Server::Start(a)) => runtime()?.block_on(server::start(a)),
        Command::Server(Server::Bootstrap(a)) => runtime()?.block_on(server::bootstrap(a)),
        Command::Operator(Operator::Start(a)) => runtime()?.block_on(operator::start(a)),
        Command::Token(a) => runtime()?.block_on(token::run(a)),
        Command::Pointer(a) => runtime()?.block_on(pointer::run(a)),
        Command::Completion(a) => {
            // Into memory first: the generator panics when its writer fails.
            let mut script = vec![];
            clap_complete::generate(a.shell, &mut Mco::command(), "mco", &mut script);
            output::write(&String::from_utf8_lossy(&script))?;
            Ok(exit::OK)
        }
    }
}

fn prepare(log: &Log) -> anyhow::Result<()> {
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

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    cryptography()?;
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// The agent does one thing at a time: one thread is enough, and saves memory on every host.
fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    cryptography()?;
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Cancelled at SIGTERM or SIGINT.
fn shutdown_signal() -> anyhow::Result<CancellationToken> {
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

fn broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|c| {
        c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    #[test]
    fn a_refusal_by_the_api_server_is_told_in_its_words_and_without_its_object() {
        let status = Status::failure("pools is forbidden", "Forbidden").with_code(403);
        let error = kube::Error::Api(Box::new(status));
        let error = anyhow::Error::new(error).context("cannot read the pool").context("history");
        assert_eq!(
            client::chain(error.as_ref()),
            "history: cannot read the pool: pools is forbidden (403 Forbidden)"
        );
    }
}
