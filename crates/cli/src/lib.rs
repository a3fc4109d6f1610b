//! The program `mco`: one subcommand for each role (controller, daemon) and each user task.
//!
//! What it is: argument structs (the one place that reads the environment), output formats, exit codes. What it is
//! not: logic, which is in the crates that it calls.
//!
//! Called by another name (a link), it plays that role: `machine-config-daemon start …` is `mco daemon start …`.

pub mod args;
mod commands;
mod connect;
pub mod exit;
mod input;
pub mod output;

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

/// Runs the program with the arguments given, argument zero included, and returns its exit code. `keep_freed_memory` is
/// called for commands that use much memory for a short time.
pub fn main(arguments: impl IntoIterator<Item = OsString>, keep_freed_memory: fn()) -> ExitCode {
    let arguments = with_role(arguments);
    let matches = named(args::Mco::command(), &arguments).try_get_matches_from(arguments);
    let parsed = matches.and_then(|m| args::Mco::from_arg_matches(&m));
    let mco = match parsed {
        Ok(mco) => mco,
        Err(e) => {
            let code = if e.use_stderr() { exit::USAGE } else { exit::OK };
            // A pipe that the reader has closed (`--help | head`) is no failure.
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

/// kubectl starts a plugin by the name `kubectl-mco`; usage lines then say what the user has typed.
fn named(command: clap::Command, arguments: &[OsString]) -> clap::Command {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    if name.is_some_and(|name| name == "kubectl-mco") { command.bin_name("kubectl mco") } else { command }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_sound() {
        args::Mco::command().debug_assert();
    }

    /// Every `mco …` line of every help text, with the command that shows it.
    fn examples(command: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
        let help = command.get_after_help().into_iter().chain(command.get_after_long_help());
        let text = help.map(ToString::to_string).collect::<Vec<_>>().join("\n");
        // At the start of a line, or after a pipe.
        let starts = |l: &'_ str| l.starts_with("mco ").then_some(0).or_else(|| Some(l.find("| mco ")? + 2));
        for line in text.lines().map(str::trim) {
            found.extend(starts(line).map(|at| (path.to_owned(), line[at..].to_owned())));
        }
        for sub in command.get_subcommands() {
            examples(sub, &format!("{path} {}", sub.get_name()), found);
        }
    }

    /// The arguments of a line of shell, up to a pipe, a redirection, another command or the explanation beside it.
    fn arguments(line: &str) -> Vec<String> {
        let line = line.split("   ").next().unwrap_or_default();
        let mut words = vec![];
        let mut rest = line.chars().peekable();
        let (mut word, mut quote) = (String::new(), None);
        let mut any = false;
        while let Some(c) = rest.next() {
            match (c, quote) {
                (c, Some(q)) if c == q => quote = None,
                ('"' | '\'', None) => (quote, any) = (Some(c), true),
                ('|' | '>' | '<' | ';' | '#' | '&', None) => break,
                (' ', None) => {
                    if any || !word.is_empty() {
                        words.push(std::mem::take(&mut word));
                    }
                    any = false;
                }
                ('$', Some('"')) if rest.peek() == Some(&'(') => {
                    word.push_str("0123456789ab.x");
                    for c in rest.by_ref() {
                        if c == ')' {
                            break;
                        }
                    }
                }
                (c, _) => word.push(c),
            }
        }
        if any || !word.is_empty() {
            words.push(word);
        }
        words
    }

    /// The texts of README.md and of the book's pages.
    fn pages() -> Vec<(String, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let entries = std::fs::read_dir(root.join("docs")).unwrap();
        let paths = entries.map(|e| e.unwrap().path()).chain([root.join("README.md")]);
        let pages = paths.filter(|p| p.extension().is_some_and(|e| e == "md"));
        pages.map(|p| (p.display().to_string(), std::fs::read_to_string(p).unwrap())).collect()
    }

    #[test]
    fn every_example_of_the_help_and_of_the_guide_is_a_command_line_that_is_taken() {
        let mut all = vec![];
        examples(&args::Mco::command(), "mco", &mut all);
        assert!(all.len() > 40, "{} examples", all.len());
        for (file, text) in pages() {
            let prompts = text.lines().filter_map(|l| l.strip_prefix("$ ").or_else(|| l.strip_prefix("# ")));
            let lines = prompts.filter(|l| l.starts_with("mco ")).map(|l| (file.clone(), l.to_owned()));
            all.extend(lines);
        }
        for (place, line) in all {
            let words: Vec<String> = arguments(&line).into_iter().map(|w| w.replace('…', "x")).collect();
            if let Err(e) = args::Mco::command().try_get_matches_from(&words) {
                assert!(!e.use_stderr(), "{place}: {line}\n{words:?}\n{e}");
            }
            let agent = words.iter().any(|w| w == "daemon") && words.iter().any(|w| w == "start");
            assert!(!agent || line.contains("--root-mount /"), "{place}: {line}: fails on a host");
        }
    }

    #[test]
    fn a_link_named_as_a_role_plays_it() {
        let all = with_role(["/usr/bin/machine-config-daemon", "start"].map(OsString::from));
        assert_eq!(all[1..], ["daemon", "start"].map(OsString::from));
        let all = with_role(["/usr/bin/mco", "daemon", "start"].map(OsString::from));
        assert_eq!(all[1..], ["daemon", "start"].map(OsString::from));
    }
}
