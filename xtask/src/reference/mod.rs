//! The reference pages of the book, made from the code: `cargo xtask gen` writes them, `gen --check` compares.
//!
//! What it is not: explanations, which are on the book's other pages. Every text here is taken from the code that it
//! describes; a page that reads badly is improved there.

mod alerts;
mod commands;
mod events;
mod kinds;
mod metrics;
mod names;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder of the pages, which holds nothing else.
pub(crate) const FOLDER: &str = "docs/reference";

/// Every page: its path relative to the repository's folder, and its text.
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

/// A text for one cell of a table: on one line, and with the characters escaped that would end the cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// The header and the separator line of a table.
fn columns(names: &[&str]) -> String {
    row(names) + &row(&vec!["---"; names.len()])
}
