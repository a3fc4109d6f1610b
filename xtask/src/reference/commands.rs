//! The page of the program's commands, from the definition of its arguments: the same source as help, man pages and
//! completions.

use super::{cell, columns, head, row};
use clap::{ArgAction, CommandFactory};

pub(super) fn page() -> String {
    let mut out = head("Commands", "crates/cli");
    out += "\nThe same is in `mco COMMAND --help` and in the man pages (`docs/man`). Options of all commands:\n\n";
    let mut command = cli::args::Mco::command();
    command.build();
    let is_global = |a: &&clap::Arg| a.is_global_set() && !a.is_hide_set();
    out += &options(command.get_arguments().filter(is_global));
    out += &text(&command);
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        of(sub, "mco", &mut out);
    }
    out
}

fn of(command: &clap::Command, above: &str, out: &mut String) {
    let path = format!("{above} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    *out += &format!("\n## {path}\n\n{about}.\n");
    let shown = |a: &&clap::Arg| {
        !a.is_hide_set() && !a.is_global_set() && !["help", "version"].contains(&a.get_id().as_str())
    };
    let subs: Vec<_> = command.get_subcommands().filter(|c| !c.is_hide_set()).collect();
    if subs.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").split_whitespace().collect::<Vec<_>>().join(" ");
        *out += &format!("\n```text\n{usage}\n```\n");
        if command.get_arguments().any(|a| shown(&a)) {
            *out += &format!("\n{}", options(command.get_arguments().filter(shown)));
        }
        *out += &text(command);
    }
    for sub in subs {
        of(sub, &path, out);
    }
}

/// The text that the help has after the options.
fn text(command: &clap::Command) -> String {
    let after = command.get_after_long_help().or(command.get_after_help());
    after.map(|t| format!("\n```text\n{}\n```\n", t.to_string().trim_end())).unwrap_or_default()
}

fn options<'a>(args: impl Iterator<Item = &'a clap::Arg>) -> String {
    let mut out = columns(&["option", "meaning"]);
    for arg in args {
        let value = || {
            let names = arg.get_value_names().unwrap_or_default();
            names.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(" ")
        };
        let takes = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let mut shown = vec![];
        shown.extend(arg.get_short().map(|s| format!("`-{s}`")));
        shown.extend(arg.get_long().map(|l| match takes {
            true => format!("`--{l} {}`", value()),
            false => format!("`--{l}`"),
        }));
        if shown.is_empty() {
            shown.push(format!("`{}`", value()));
        }
        let mut meaning = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let choices: Vec<String> =
            arg.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect();
        if takes && !choices.is_empty() {
            meaning += &format!(". One of {}", choices.join(", "));
        }
        let defaults: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
        if takes && defaults.iter().any(|v| !v.is_empty()) && !arg.is_hide_default_value_set() {
            meaning += &format!(". Default: `{}`", defaults.join(" "));
        }
        if let Some(env) = arg.get_env() {
            meaning += &format!(". Environment: `{}`", env.to_string_lossy());
        }
        // In code, only the character that would end the cell has to be escaped.
        out += &row(&[&shown.join(", ").replace('|', "\\|"), &cell(&meaning)]);
    }
    out
}
