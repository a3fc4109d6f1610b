//! The way of one change in `docs/architecture.md`: every file of its table exists, and the numbers below it are those of the table.
//!
//! What it is not: whether the table names all that a reader needs, or the best order.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files of a cell: a path from the root, or a name beside the last path or in the folder that is named after it.
fn files(root: &Path, cell: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = vec![];
    let mut last = PathBuf::new();
    for name in cell.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")) {
        let path = match name.starts_with("crates/") {
            true => {
                last = PathBuf::from(name);
                last.clone()
            }
            false => {
                let places = [last.with_file_name(name), last.with_extension("").join(name)];
                places.into_iter().find(|path| root.join(path).is_file()).unwrap_or_else(|| name.into())
            }
        };
        assert!(root.join(&path).is_file(), "docs/architecture.md names {}", path.display());
        all.push(path);
    }
    all
}

#[test]
fn the_way_of_a_change_goes_through_files_that_exist_and_are_counted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let (_, table) = page.split_once("| what happens | where |\n").unwrap();
    let (table, after) = table.split_once("\n\n").unwrap();
    let cells = table.lines().skip(1).filter_map(|row| row.trim_matches('|').split('|').nth(1));
    let all: Vec<PathBuf> = cells.flat_map(|cell| files(&root, cell)).collect();
    let mut counts = BTreeMap::new();
    for file in &all {
        let name = file.components().nth(1).unwrap().as_os_str().to_str().unwrap().to_owned();
        *counts.entry(name).or_insert(0) += 1;
        assert_eq!(all.iter().filter(|other| *other == file).count(), 1, "{} is there twice", file.display());
    }
    let numbers = ["controller", "daemon", "host", "rollout", "render"].map(|name| counts[name]);
    let [controller, daemon, host, rollout, render] = numbers;
    let says = format!(
        "These are {} files: {controller} of the controller, {daemon} of the daemon, {host} of the host, {rollout} of rollout, \
         {render} of render.",
        all.len()
    );
    assert!(after.starts_with(&says), "it has to say: {says}");
}
