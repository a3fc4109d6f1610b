//! The reference pages of the book, made from the code: `cargo xtask gen` writes them, `gen --check` compares.
//!
//! What it is not: the explanations of the other pages. What is said here stands in the code beside what it describes;
//! a page that reads badly is mended there.

mod alerts;
mod commands;
mod events;
mod kinds;
mod metrics;
mod names;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder of the pages; nothing else stands in it.
pub(crate) const FOLDER: &str = "docs/reference";

/// Every page: its path from the repository's folder, and its text.
pub(crate) fn pages(root: &Path) -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let folder = Path::new(FOLDER);
    let mut pages = BTreeMap::new();
    let names = names::Names::read(root)?;
    pages.insert(folder.join("annotations.md"), names::annotations(&names)?);
    pages.insert(folder.join("labels.md"), names::labels(&names)?);
    pages.insert(folder.join("conditions.md"), names::conditions(&names)?);
    pages.insert(folder.join("events.md"), events::page());
    pages.insert(folder.join("alerts.md"), alerts::page());
    pages.insert(folder.join("metrics.md"), metrics::page()?);
    pages.insert(folder.join("commands.md"), commands::page());
    for (name, text) in kinds::pages()? {
        pages.insert(folder.join(name), text);
    }
    Ok(pages)
}

/// The head of a page. The comment is not shown in the book.
fn head(title: &str, source: &str) -> String {
    format!("# {title}\n\n<!-- Made by `cargo xtask gen` from {source}; do not edit. -->\n")
}

/// A text for one cell of a table: one line, without what would end the cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

/// A row of a table.
fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// The first two lines of a table.
fn columns(names: &[&str]) -> String {
    row(names) + &row(&vec!["---"; names.len()])
}
