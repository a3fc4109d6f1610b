//! The program `mco`: one subcommand for each role (controller, daemon) and each user task.
//!
//! What it is: argument structs (the one place that reads the environment), output formats, exit codes. What it is
//! not: logic; that stands in the crates that it calls.
//!
//! Called by another name (a link), it plays that role: `machine-config-daemon start …` is `mco daemon start …`.

pub mod args;
mod args_boot;
mod args_daemon;
mod args_render;
mod args_rollout;
mod client;
mod commands;
mod dump;
pub mod exit;
pub mod explain;
mod manifests;
pub mod output;
pub mod status;

use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Names under which the program plays one role.
const ROLES: [(&str, &str); 4] = [
    ("machine-config-controller", "controller"),
    ("machine-config-daemon", "daemon"),
    ("machine-config-server", "server"),
    ("machine-config-operator", "operator"),
];

/// Runs the program with the arguments given, argument zero included, and says how it ended. `keep_freed_memory` is called
/// for commands that read much, make much of it, and end.
pub fn main(arguments: impl IntoIterator<Item = OsString>, keep_freed_memory: fn()) -> ExitCode {
    let matches = args::Mco::command().try_get_matches_from(with_role(arguments));
    let parsed = matches.and_then(|m| args::Mco::from_arg_matches(&m));
    let mco = match parsed {
        Ok(mco) => mco,
        Err(e) => {
            let code = if e.use_stderr() { exit::USAGE } else { exit::OK };
            // A closed pipe behind `--help | head` is no failure.
            let _ = e.print();
            return ExitCode::from(code);
        }
    };
    if commands::ends_soon(&mco.command) {
        keep_freed_memory();
    }
    commands::run(mco)
}

/// `machine-config-daemon start` → `mco daemon start`.
fn with_role(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = arguments.into_iter().collect();
    let name = all.first().and_then(|a| Path::new(a).file_name()).and_then(|n| n.to_str()).unwrap_or("mco");
    if let Some((_, role)) = ROLES.iter().find(|(link, _)| *link == name) {
        all.insert(1, OsString::from(role));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_sound() {
        args::Mco::command().debug_assert();
    }

    #[test]
    fn a_link_named_as_a_role_plays_it() {
        let all = with_role(["/usr/bin/machine-config-daemon", "start"].map(OsString::from));
        assert_eq!(all[1..], ["daemon", "start"].map(OsString::from));
        let all = with_role(["/usr/bin/mco", "daemon", "start"].map(OsString::from));
        assert_eq!(all[1..], ["daemon", "start"].map(OsString::from));
    }
}
