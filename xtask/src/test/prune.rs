//! Keeps `target` small. Cargo replaces what it rebuilds, but it never deletes the output of a program, a feature or a version
//! that no longer exists, nor outdated caches of incremental builds.
//!
//! Flow: measure → if there is too much, list what can be deleted, the least useful first ([`candidates`]) → delete until
//! enough is gone. Cargo rebuilds what is missing, so deleting too much costs time, and nothing else.
//!
//! What it is not: `cargo clean`. Below the limit it deletes nothing.

use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Above this many bytes, `target` is pruned. Between two runs, a day of work adds less than the 5 GB that are missing to
/// [`DOCUMENTED`].
const LIMIT: u64 = 20_000_000_000;
/// `target` is pruned down to this many bytes.
const ENOUGH: u64 = 15_000_000_000;

/// Something in `target` that can be deleted.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Part of an incremental build's cache. Caches are deleted last, because they make the next build faster.
    is_cache: bool,
    changed: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// How large `target` may become in a day of work.
const DOCUMENTED: u64 = 25_000_000_000;

/// What `target` had, and what was deleted from it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    before: u64,
    deleted: u64,
}

impl Size {
    /// In words, beside the limit.
    pub(super) fn text(self) -> String {
        let had = match self.deleted {
            0 => format!("target/ has {}", gigabytes(self.before)),
            some => format!(
                "target/ had {}; {} that cargo does not use now are deleted",
                gigabytes(self.before),
                gigabytes(some)
            ),
        };
        let over = if self.before > DOCUMENTED { "; WARNING: that was more than the limit" } else { "" };
        format!("{had} (limit: {}){over}", gigabytes(DOCUMENTED))
    }
}

/// Prunes `target`. `built` are the files that cargo named in a build of everything; empty if it built less.
pub(super) fn run(root: &Path, built: &[PathBuf]) -> anyhow::Result<Size> {
    let (before, deleted) = prune(&root.join("target"), built, LIMIT, ENOUGH)?;
    Ok(Size { before, deleted })
}

/// The size before, and how much was deleted.
fn prune(target: &Path, built: &[PathBuf], limit: u64, enough: u64) -> anyhow::Result<(u64, u64)> {
    let before = size(target)?;
    if before <= limit {
        return Ok((before, 0));
    }
    let mut deleted = 0;
    for candidate in candidates(target, built)? {
        if before.saturating_sub(deleted) <= enough {
            break;
        }
        let path = &candidate.path;
        let gone = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        gone.with_context(|| format!("cannot delete {}", path.display()))?;
        deleted += candidate.bytes;
    }
    Ok((before, deleted))
}

/// What can be deleted, in this order: output that cargo did not name, the oldest first, then the caches of incremental builds.
fn candidates(target: &Path, built: &[PathBuf]) -> anyhow::Result<Vec<Candidate>> {
    // Programs have two names (hard links): `debug/mco` is also `debug/deps/mco-HASH`.
    let used: BTreeSet<u64> =
        built.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|m| m.ino()).collect();
    let mut all = vec![];
    for profile in entries(target)? {
        for cache in entries(&profile.join("incremental"))? {
            let changed = std::fs::metadata(&cache)?.modified()?;
            all.push(Candidate { is_cache: true, changed, bytes: size(&cache)?, path: cache });
        }
    }
    if !used.is_empty() {
        for path in entries(&target.join("debug/deps"))? {
            let about = std::fs::symlink_metadata(&path)?;
            if about.is_file() && !used.contains(&about.ino()) {
                let (changed, bytes) = (about.modified()?, about.blocks() * 512);
                all.push(Candidate { is_cache: false, changed, path, bytes });
            }
        }
    }
    all.sort();
    Ok(all)
}

/// The entries of a folder; none if it does not exist or is a file.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(vec![]);
    }
    let list = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    list.map(|entry| Ok(entry?.path())).collect()
}

/// A number of bytes, in words.
pub(super) fn gigabytes(bytes: u64) -> String {
    format!("{}.{} GB", bytes / 1_000_000_000, bytes / 100_000_000 % 10)
}

/// The disk space that a folder takes; none if it does not exist. A file with several hard links counts once.
pub(super) fn size(folder: &Path) -> anyhow::Result<u64> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in entries(&folder)? {
            // Other builds may delete files meanwhile.
            let Ok(about) = std::fs::symlink_metadata(&path) else { continue };
            if about.is_dir() {
                folders.push(path);
            } else {
                files.insert(about.ino(), about.blocks() * 512);
            }
        }
    }
    Ok(files.values().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_stands_beside_its_limit() {
        let text = |before, deleted| Size { before, deleted }.text();
        assert_eq!(text(12_340_000_000, 0), "target/ has 12.3 GB (limit: 25.0 GB)");
        let over = text(26_000_000_000, 11_000_000_000);
        assert!(
            over.contains("11.0 GB that cargo does not use") && over.ends_with("more than the limit"),
            "{over}"
        );
    }

    #[test]
    fn what_cargo_did_not_name_goes_first_and_what_it_uses_stays() {
        let target = std::env::temp_dir().join(format!("mco-xtask-prune-{}", std::process::id()));
        let deps = target.join("debug/deps");
        let cache = target.join("debug/incremental/lab-1");
        std::fs::create_dir_all(&deps).unwrap();
        std::fs::create_dir_all(cache.join("s-1")).unwrap();
        let write = |path: &Path| std::fs::write(path, vec![7; 64 * 1024]).unwrap();
        for path in [deps.join("node-old"), deps.join("mco-2"), cache.join("s-1/o.o"), target.join("notes")] {
            write(&path);
        }
        std::fs::hard_link(deps.join("mco-2"), target.join("debug/mco")).unwrap();
        let built = [target.join("debug/mco")];
        let file = size(&target).unwrap() / 4;
        assert!(file >= 64 * 1024, "a file with two names counts once: {file}");

        let left = || {
            let paths = [deps.join("node-old"), deps.join("mco-2"), cache.clone(), target.join("notes")];
            paths.map(|path| path.exists())
        };
        assert_eq!(prune(&target, &built, 4 * file, 0).unwrap(), (4 * file, 0), "there is no need");
        assert_eq!(left(), [true; 4]);
        assert_eq!(prune(&target, &built, 3 * file, 3 * file).unwrap(), (4 * file, file));
        assert_eq!(left(), [false, true, true, true], "and no more than is needed");
        assert_eq!(prune(&target, &built, 2 * file, 0).unwrap(), (3 * file, file));
        assert_eq!(left(), [false, true, false, true]);
        // A build of less than everything does not say what is used.
        write(&deps.join("node-old"));
        assert_eq!(prune(&target, &[], 0, 0).unwrap(), (3 * file, 0));
        std::fs::remove_dir_all(&target).unwrap();
    }
}
