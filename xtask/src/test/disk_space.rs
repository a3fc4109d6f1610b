//! Whether the disks have room for a run of the tests. Without this check a full disk ends the run after minutes, with an error
//! of the compiler or of a database that does not name the reason.
//!
//! Not here: what is deleted from `target` after a run (`prune.rs`).

use super::{Scope, prune};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder that a run fills.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Folder {
    path: PathBuf,
    /// The disk that it is on: the device's number.
    disk: u64,
    /// What it has when everything is there, in bytes.
    full: u64,
    /// What it has now, in bytes.
    has: u64,
}

/// What `target` has after a build of everything: of the tests, and with the release build.
const TESTS: u64 = 10_000_000_000;
const ALL_BUILT: u64 = 12_000_000_000;
/// What the cache has: the control plane's programs, and with the images of virtual machines.
const CONTROL_PLANE: u64 = 2_000_000_000;
const MACHINES: u64 = 6_000_000_000;
/// The most that running tests write at a time, in the folder of temporary files.
const CLUSTERS: u64 = 5_000_000_000;
const RUNNING: u64 = 8_000_000_000;

/// An error if a disk has too little room for a run of this scope.
pub(super) fn check(root: &Path, scope: Scope) -> anyhow::Result<()> {
    let (target, cache, temporary) = match scope {
        Scope::Unit => (TESTS, 0, 0),
        Scope::Quick => (TESTS, CONTROL_PLANE, CLUSTERS),
        Scope::All => (ALL_BUILT, MACHINES, RUNNING),
    };
    let lab = lab::Environment::read();
    let mut folders: Vec<Folder> = vec![];
    let mut free = BTreeMap::new();
    for (path, full) in [(root.join("target"), target), (lab.cache, cache), (lab.data, temporary)] {
        let (at, about) = existing(&path)?;
        let disk = rustix::fs::statvfs(&at)
            .with_context(|| format!("cannot read how much room {} has", at.display()))?;
        free.insert(about.dev(), disk.f_bavail.saturating_mul(disk.f_frsize));
        folders.push(Folder { path, disk: about.dev(), full, has: 0 });
    }
    // What the folders have matters, and is measured, only where there is no room for all of it.
    if lacking(&folders, &free).is_none() {
        return Ok(());
    }
    for folder in &mut folders {
        folder.has = prune::size(&folder.path)?;
    }
    match lacking(&folders, &free) {
        Some(why) => bail!(why),
        None => Ok(()),
    }
}

/// The folder, or the nearest one above it that exists.
fn existing(path: &Path) -> anyhow::Result<(PathBuf, std::fs::Metadata)> {
    let found = path.ancestors().find_map(|path| Some((path.to_owned(), std::fs::metadata(path).ok()?)));
    found.with_context(|| format!("neither {} nor a folder above it can be read", path.display()))
}

/// What to say if a disk has less room than its folders still need. `free` has the bytes that each disk has left.
fn lacking(folders: &[Folder], free: &BTreeMap<u64, u64>) -> Option<String> {
    let needs = |folder: &Folder| folder.full.saturating_sub(folder.has);
    free.iter().find_map(|(disk, free)| {
        let of_disk: Vec<&Folder> = folders.iter().filter(|f| f.disk == *disk && needs(f) > 0).collect();
        let needed: u64 = of_disk.iter().map(|folder| needs(folder)).sum();
        let names: Vec<String> = of_disk
            .iter()
            .map(|f| format!("{} needs {} more", f.path.display(), prune::gigabytes(needs(f))))
            .collect();
        (needed > *free).then(|| {
            format!(
                "the disk is too small for this run: {}; {} are free. Delete something, put XDG_CACHE_HOME \
                 or TMPDIR on another disk, or run less (`--quick`, `--unit`, `--only WORD`)",
                names.join(", "),
                prune::gigabytes(*free)
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(path: &str, disk: u64, full: u64, has: u64) -> Folder {
        let giga = 1_000_000_000;
        Folder { path: path.into(), disk, full: full * giga, has: has * giga }
    }

    #[test]
    fn the_folders_of_one_disk_share_its_room() {
        let folders = [folder("/w/target", 1, 12, 2), folder("/c", 1, 6, 6), folder("/t", 2, 8, 0)];
        let says = |one: u64, two: u64| {
            lacking(&folders, &[(1, one * 1_000_000_000), (2, two * 1_000_000_000)].into())
        };
        assert_eq!(says(10, 8), None);
        let text = says(9, 8).unwrap();
        assert!(text.contains("/w/target needs 10.0 GB more; 9.0 GB are free"), "{text}");
        let text = says(10, 7).unwrap();
        assert!(text.contains("/t needs 8.0 GB more; 7.0 GB are free"), "{text}");

        let one_disk = folders.map(|folder| Folder { disk: 1, ..folder });
        let text = lacking(&one_disk, &[(1, 17_900_000_000)].into()).unwrap();
        assert!(
            text.contains("/w/target needs 10.0 GB more, /t needs 8.0 GB more; 17.9 GB are free"),
            "{text}"
        );
        assert_eq!(lacking(&one_disk, &[(1, 18_000_000_000)].into()), None);
    }

    #[test]
    fn a_folder_that_does_not_exist_yet_is_on_the_disk_of_the_one_above() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (found, about) = existing(&here.join("none/at/all")).unwrap();
        assert_eq!((found.as_path(), about.dev()), (here, std::fs::metadata(here).unwrap().dev()));
    }
}
