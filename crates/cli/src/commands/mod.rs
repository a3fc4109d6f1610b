//! Runs the function of a subcommand, and turns its result into messages and an exit code.

mod boot;
mod change;
mod image;
mod manifests;
mod parts;
mod process;
mod show;

use boot::{pointer, token};
use change::{approve, install, pause, retry, undo, uninstall};
use manifests::{lint, render};
use parts::{controller, daemon, operator, server};
use process::{runtime, small_runtime};
use show::{bundle, dashboard, explain, history, plan, status};

use crate::args::image::Image;
use crate::args::parts::controller::Controller;
use crate::args::parts::daemon::Daemon;
use crate::args::parts::operator::Operator;
use crate::args::parts::server::Server;
use crate::args::{Command, Mco};
use crate::{exit, output};
use clap::CommandFactory;
use std::process::ExitCode;

pub(crate) fn run(mco: Mco) -> ExitCode {
    let outcome = process::log(&mco.log).and_then(|()| dispatch(mco.command));
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(e) if process::broken_pipe(&e) => ExitCode::from(exit::OK),
        Err(e) => {
            eprintln!("mco: {}", client::chain(e.as_ref()));
            if let Some(right) = client::MissingRight::of(e.as_ref()) {
                eprintln!("mco: {right}; an administrator gives this right: {}", right.commands());
            }
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
        Command::Uninstall(a) => runtime()?.block_on(uninstall::run(a)),
        Command::Status(a) => runtime()?.block_on(status::run(a)),
        Command::Bundle(a) => runtime()?.block_on(bundle::run(a)),
        Command::Dashboard(a) => runtime()?.block_on(dashboard::run(a)),
        Command::Plan(a) => runtime()?.block_on(plan::run(a)),
        Command::Pause(a) => runtime()?.block_on(pause::run(a, true)),
        Command::Resume(a) => runtime()?.block_on(pause::run(a, false)),
        Command::Approve(a) => runtime()?.block_on(approve::run(a)),
        Command::History(a) => runtime()?.block_on(history::run(a)),
        Command::Undo(a) => runtime()?.block_on(undo::run(a)),
        Command::Retry(a) => runtime()?.block_on(retry::run(a)),
        Command::Explain(a) => runtime()?.block_on(explain::run(a)),
        Command::Render(a) => runtime()?.block_on(render::run(a)),
        Command::Lint(a) => lint::run(&a),
        Command::Image(Image::Inspect(a)) => small_runtime()?.block_on(image::inspect::run(a)),
        Command::Image(Image::Build(a)) => small_runtime()?.block_on(image::build::run(a)),
        Command::Controller(Controller::Start(a)) => runtime()?.block_on(controller::start(a)),
        Command::Controller(Controller::Bootstrap(a)) => controller::bootstrap(a),
        Command::Daemon(Daemon::Start(a)) => {
            // Before there are threads: the whole process changes its root.
            daemon::enter(&a.root_mount, &a.metrics.files())?;
            small_runtime()?.block_on(daemon::start(*a))
        }
        Command::Daemon(Daemon::FirstBoot(a)) => {
            daemon::enter(&a.root_mount, &[])?;
            // systemd is talked to by the runtime's own thread, while another waits for it.
            small_runtime()?.block_on(daemon::first_boot(a))
        }
        Command::Daemon(Daemon::Plan(a)) => daemon::plan(&a),
        Command::Daemon(Daemon::Recover(a)) => daemon::recover(&a),
        Command::Daemon(Daemon::Try(a)) => daemon::try_on_host(&a),
        Command::Daemon(Daemon::Confirm(a)) => daemon::confirm(&a),
        Command::Daemon(Daemon::WatchTrial(a)) => daemon::watch_trial(&a),
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
