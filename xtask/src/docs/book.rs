//! The pages of the book: their headings, links and fenced blocks, and a check that links lead somewhere.
//!
//! What it is not: a Markdown renderer. It knows only the forms that the book uses: ATX headings, fenced blocks, inline
//! links.

use anyhow::Context;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// The number of its first line, from 1.
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) text: String,
    /// The reason in its marker for not being checked.
    pub(super) unchecked: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    line: usize,
    target: String,
}

#[derive(Debug)]
pub(super) struct Page {
    /// Relative to the repository's folder.
    pub(super) path: PathBuf,
    pub(super) blocks: Vec<Block>,
    anchors: BTreeSet<String>,
    links: Vec<Link>,
    /// Files and folders of the repository that are named in backquotes.
    paths: Vec<Link>,
    /// Commands of cargo in backquotes, with their lines, but those of `cargo xtask`, which often have placeholders.
    pub(super) cargo: Vec<(usize, String)>,
}

/// Whether a part of a path is a word in capitals, which is a placeholder for any name.
pub(super) fn is_placeholder(part: &str) -> bool {
    part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// The folders of the repository whose files pages mention.
const FOLDERS: [&str; 8] =
    ["crates/", "deploy/", "docs/", "examples/", "fuzz/", "templates/", "tests/", "xtask/"];

impl Page {
    pub(super) fn parse(path: PathBuf, text: &str) -> Self {
        let mut page = Self {
            path,
            blocks: vec![],
            anchors: BTreeSet::new(),
            links: vec![],
            paths: vec![],
            cargo: vec![],
        };
        let mut marker: Option<String> = None;
        // The fence that ends the block, and how far a list indents it.
        let mut block: Option<(String, usize, Block)> = None;
        for (i, line) in text.lines().enumerate() {
            let (number, trimmed) = (i + 1, line.trim_start());
            if let Some((fence, indent, open)) = &mut block {
                if trimmed.trim_end() == fence {
                    page.blocks.extend(block.take().map(|(_, _, b)| b));
                } else {
                    open.text += line.get(*indent..).unwrap_or(trimmed);
                    open.text.push('\n');
                }
                continue;
            }
            if trimmed.starts_with("```") {
                let fence: String = trimmed.chars().take_while(|c| *c == '`').collect();
                let language = trimmed[fence.len()..].trim().to_owned();
                let new = Block { line: number, language, text: String::new(), unchecked: marker.take() };
                block = Some((fence, line.len() - trimmed.len(), new));
                continue;
            }
            let comment =
                trimmed.strip_prefix("<!-- unchecked:").and_then(|r| r.trim_end().strip_suffix("-->"));
            if let Some(reason) = comment {
                marker = Some(reason.trim().to_owned());
                continue;
            }
            if !trimmed.is_empty() {
                marker = None;
            }
            let level = line.chars().take_while(|c| *c == '#').count();
            if level > 0 && line[level..].starts_with(' ') {
                page.add_anchor(line[level..].trim());
            }
            page.links.extend(links_of(line).map(|target| Link { line: number, target }));
            let spans = line.split('`').skip(1).step_by(2);
            let commands = spans.clone().filter_map(|s| s.strip_prefix("cargo "));
            let commands = commands.filter(|words| !words.starts_with("xtask"));
            page.cargo.extend(commands.map(|words| (number, words.to_owned())));
            let names = spans.filter(|s| {
                let is_one_file = !s.contains(['*', '…', ' ', '$']) && !s.split('/').any(is_placeholder);
                FOLDERS.iter().any(|f| s.starts_with(f)) && is_one_file
            });
            page.paths.extend(names.map(|s| Link { line: number, target: s.to_owned() }));
        }
        page
    }

    /// Adds the anchor that mdBook and GitHub make for a heading; a second heading of the same name gets a number.
    fn add_anchor(&mut self, heading: &str) {
        let anchor = anchor(heading);
        let mut unique = anchor.clone();
        let mut n = 0;
        while !self.anchors.insert(unique.clone()) {
            n += 1;
            unique = format!("{anchor}-{n}");
        }
    }
}

fn anchor(heading: &str) -> String {
    // For a link in a heading, only its text is part of the anchor.
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, r)| r);
    }
    text += rest;
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The targets of a line's links. Text in backquotes is not searched.
fn links_of(line: &str) -> impl Iterator<Item = String> {
    let outside: Vec<&str> = line.split('`').step_by(2).collect();
    // Backquoted text may be the label of a link, so the rest is joined: only the target after it matters.
    let text = outside.join("`");
    let mut found = vec![];
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once("](") {
        let (target, more) = after.split_once(')').unwrap_or((after, ""));
        found.push(target.to_owned());
        rest = more;
    }
    found.into_iter()
}

/// Every page: README.md and the pages in `docs/`.
pub(super) fn pages(root: &Path) -> anyhow::Result<Vec<Page>> {
    let mut files: Vec<PathBuf> =
        walk(&root.join("docs")).into_iter().filter(|p| p.extension().is_some_and(|e| e == "md")).collect();
    files.push(root.join("README.md"));
    files.sort();
    let mut pages = vec![];
    for file in files {
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        pages.push(Page::parse(file.strip_prefix(root)?.to_path_buf(), &text));
    }
    Ok(pages)
}

pub(super) fn walk(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let paths = entries.flatten().map(|e| e.path());
    paths.flat_map(|p| if p.is_dir() { walk(&p) } else { vec![p] }).collect()
}

/// Links that lead nowhere, and pages that are missing in the table of contents.
pub(super) fn links(root: &Path, pages: &[Page], count: &mut usize) -> Vec<String> {
    let mut wrong = vec![];
    let mut listed = BTreeSet::new();
    for page in pages {
        let is_contents = page.path == Path::new("docs/SUMMARY.md");
        let in_book = page.path.starts_with("docs");
        for Link { line, target } in &page.links {
            *count += 1;
            let mut fault =
                |why: String| wrong.push(format!("{}:{line}: {target}: {why}", page.path.display()));
            if target.contains("://") {
                // There is no network here, so only the form is checked.
                if !target.starts_with("https://") || target.contains(' ') {
                    fault("write an https address".to_owned());
                }
                continue;
            }
            let (file, fragment) = match target.split_once('#') {
                Some((file, fragment)) => (file, Some(fragment)),
                None => (target.as_str(), None),
            };
            let path = match file {
                "" => page.path.clone(),
                file => normal(&page.path.parent().unwrap_or(Path::new("")).join(file)),
            };
            let there = pages.iter().find(|p| p.path == path);
            if is_contents {
                listed.insert(path.clone());
            }
            if in_book && !path.starts_with("docs") {
                fault("leads outside of the book: name the file without a link".to_owned());
            } else if there.is_none() && !root.join(&path).exists() {
                fault("there is no such file".to_owned());
            } else if let Some(fragment) = fragment
                && !there.is_some_and(|p| p.anchors.contains(fragment))
            {
                fault(format!("the page has no heading for #{fragment}"));
            }
        }
    }
    for page in pages {
        for Link { line, target } in &page.paths {
            *count += 1;
            if !root.join(target).exists() {
                wrong.push(format!("{}:{line}: {target}: there is no such file", page.path.display()));
            }
        }
    }
    for page in pages.iter().filter(|p| p.path.starts_with("docs") && p.path != Path::new("docs/SUMMARY.md"))
    {
        if !listed.contains(&page.path) {
            wrong.push(format!("{}: docs/SUMMARY.md does not list this page", page.path.display()));
        }
    }
    wrong
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_become_anchors_as_readers_know_them() {
        for (heading, want) in [
            ("Why does this node wait?", "why-does-this-node-wait"),
            ("The `mco` program", "the-mco-program"),
            ("See [Rollouts](rollouts.md)", "see-rollouts"),
        ] {
            assert_eq!(anchor(heading).replace('[', ""), want);
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let a = "# A\n`crates/none.rs` `crates/*.rs` `crates/NAME/src` [x](b.md#two) [y](b.md#three) [z](c.md) [w](../README.md) `[v](d.md)` [u](http://e)\n";
        let pages = [
            Page::parse("docs/SUMMARY.md".into(), "[A](a.md)\n[B](b.md)\n"),
            Page::parse("docs/a.md".into(), a),
            Page::parse("docs/b.md".into(), "# One\n## Two\n"),
            Page::parse("docs/lost.md".into(), "# Lost\n"),
        ];
        let wrong = links(Path::new("/nonexistent"), &pages, &mut 0);
        let have = |text: &str| assert!(wrong.iter().any(|w| w.contains(text)), "{text}: {wrong:#?}");
        have("#three");
        have("c.md: there is no such file");
        have("crates/none.rs: there is no such file");
        have("leads outside of the book");
        have("https");
        have("docs/lost.md: docs/SUMMARY.md does not list");
        assert_eq!(wrong.len(), 6, "{wrong:#?}");
    }
}
