//! Texts that pages quote from the program, so that people find what to do about a message: a text in double quotes in the first
//! cell of a table, or at the beginning of a line, must exist in the sources. Otherwise nobody would find the row for the message that
//! they see.
//!
//! What it is not: a check of quotes elsewhere in a sentence, or of other pages, where quotes may be anybody's words.

use std::path::Path;

/// The pages with tables of messages.
pub(super) const PAGES: [&str; 3] = ["docs/troubleshooting.md", "docs/image-mode.md", "docs/dashboard.md"];

/// Quotes that do not occur in the sources, and the number of all quotes.
pub(super) fn unknown(page: &str, sources: &str) -> (usize, Vec<String>) {
    let quotes: Vec<&str> = page
        .lines()
        .flat_map(|line| match line.strip_prefix("| ") {
            Some(row) => row.split(" |").next().map_or(vec![], |c| c.split('"').skip(1).step_by(2).collect()),
            None => line.strip_prefix('"').and_then(|rest| rest.split('"').next()).into_iter().collect(),
        })
        .collect();
    let missing = quotes.iter().filter(|q| {
        // `…` stands for what differs from case to case, so only the parts between are compared.
        let parts = q.split('…').map(str::trim).filter(|p| !p.is_empty());
        parts.into_iter().any(|p| !sources.contains(p))
    });
    (quotes.len(), missing.map(|q| (*q).to_owned()).collect())
}

/// The text of all sources, of the scripts among them and of those of the dashboard's page, with string literals of several lines
/// joined.
pub(super) fn sources(root: &Path) -> String {
    let page = super::book::walk(&root.join("crates/dashboard/assets")).into_iter();
    let page = page.filter(|p| p.extension().is_some_and(|e| e == "js"));
    let files = super::sources(root, &["rs", "sh"]).into_iter().chain(page);
    let texts = files.filter_map(|p| std::fs::read_to_string(p).ok());
    let mut all = String::new();
    for text in texts {
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("\\\n") {
            all += before;
            rest = after.trim_start();
        }
        all += rest;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_that_the_program_does_not_say_is_found() {
        let page = "| it says | cause |\n| \"cannot … here\", \"never said\" | \"not looked at\" |\n\"nor this\": why.\n";
        let (count, missing) = unknown(page, "cannot {x} here");
        assert_eq!((count, missing), (3, vec!["never said".to_owned(), "nor this".to_owned()]));
    }
}
