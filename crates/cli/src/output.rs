//! Output formats: a table for people, JSON and YAML for programs.

use clap::ValueEnum;
use serde::Serialize;
use std::io::Write;

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

/// Writes a value in a machine-readable format, or lets `text` write it for people.
///
/// # Errors
/// A closed or full standard output, or a value that the format cannot say.
pub fn print<T: Serialize>(format: Format, value: &T, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    let out = match format {
        Format::Text => text(),
        Format::Json => serde_json::to_string_pretty(value)? + "\n",
        Format::Yaml => api::yaml::to_string(value)?,
    };
    write(&out)?;
    if out.ends_with('\n') || out.is_empty() { Ok(()) } else { write("\n") }
}

/// Writes text as it is. Unlike `println!` it does not panic when whoever reads has gone (`mco install | head -1`).
///
/// # Errors
/// A closed or full standard output.
pub fn write(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}
