//! Output formats: a table for people, JSON and YAML for programs.
//!
//! Output for programs names its format as Kubernetes objects do, by `apiVersion` and `kind`. Within one version, fields are
//! added, but never renamed or removed. Field names are camelCase.

pub mod tables;

use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;

/// The version of all JSON and YAML that is not a Kubernetes object itself.
const API_VERSION: &str = "cli.machineconfig.dev/v1";

/// `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// The kind of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Kind {
    /// `mco status`.
    Status,
    /// `mco plan`: what the controller does now.
    Forecast,
    /// `mco plan -f`: what a change would do.
    ChangePlan,
    /// `mco pause`, `mco resume`.
    PauseList,
    /// `mco approve`.
    Approval,
    /// `mco history`.
    History,
    /// `mco undo`.
    Undo,
    /// `mco retry`.
    RetryList,
    /// `mco explain`.
    Explanation,
    /// `mco lint`.
    FindingList,
    /// `mco token list`.
    TokenList,
    /// `mco daemon plan`.
    HostPlan,
}

/// A value with its `apiVersion` and `kind`. A list has its entries in `items`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versioned<'a, T> {
    api_version: &'static str,
    kind: Kind,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Serialize)]
struct Items<'a, T> {
    items: &'a [T],
}

/// Writes a value in a machine-readable format, or lets `text` write it for people.
///
/// # Errors
/// A closed or full standard output, or a value that the format cannot express.
pub(crate) fn print<T: Serialize>(
    format: Format,
    kind: Kind,
    value: &T,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    print_object(format, &Versioned { api_version: API_VERSION, kind, value }, text)
}

/// The same for a list.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_list<T: Serialize>(
    format: Format,
    kind: Kind,
    items: &[T],
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    print(format, kind, &Items { items }, text)
}

/// The same for a Kubernetes object, which has an `apiVersion` and `kind` already.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_object<T: Serialize>(
    format: Format,
    value: &T,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let out = match format {
        Format::Text => text(),
        Format::Json => serde_json::to_string_pretty(value)? + "\n",
        Format::Yaml => api::formats::yaml::to_string(value)?,
    };
    write(&out)?;
    if out.ends_with('\n') || out.is_empty() { Ok(()) } else { write("\n") }
}

/// Writes text as it is. Unlike `println!` it does not panic when the reader has closed the pipe (`mco install | head -1`).
///
/// # Errors
/// A closed or full standard output.
pub fn write(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// Warns about each kind that may not be listed, and says what that means.
pub(crate) fn not_allowed(kinds: &[String]) {
    for kind in kinds {
        eprintln!("mco: {}", actions::messages::not_allowed(kind));
    }
}

/// Logs parts of a rendered config that have no effect or will not work.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}
