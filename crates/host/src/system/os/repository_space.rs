//! Whether the file system of OSTree's repository has room for an image: before the fetch, and again as soon as the program
//! that fetches says how large it is. OSTree stops itself, but only when the disk is full to its limit.
//!
//! Not here: `/boot` (see `boot_space`). An EFI system partition is written to only where it is `/boot`.
//!
//! Source: ostree.repo-config(5).

use crate::disk::root::Root;
use crate::system::os::OsError;
use crate::system::os::ostree_repository::{REPO, says_full};
use crate::system::pull::Pull;

/// How much of the file system OSTree leaves free, if its repository does not say otherwise (ostree.repo-config(5)).
const LEFT_FREE_PERCENT: u64 = 3;

/// Checks that there is free space, and makes the fetch stop as soon as it is known not to fit. A host whose repository is
/// elsewhere is not checked.
///
/// # Errors
/// There is none, with what to do.
pub(super) fn limit(root: &Root, pull: &Pull) -> Result<(), OsError> {
    if root.found(REPO)?.is_absent() {
        return Ok(());
    }
    let (free, size) = root.volume(REPO)?;
    let config = root.text(&format!("{REPO}/config"))?.unwrap_or_default();
    let room = free.saturating_sub(left_free(&config, size));
    pull.set_room(room);
    match room {
        0 => Err(OsError::new(format!("{REPO}: there is no room for an image; {REMEDY}"))),
        _ => Ok(()),
    }
}

/// Whether a fetch failed because there was too little space: it was known not to fit, the program reports a full disk, or
/// no space is left. The free space alone does not prove it: the program also refuses an object that does not fit while
/// smaller ones still would.
pub(super) fn is_short(root: &Root, pull: &Pull, error: &OsError) -> bool {
    !pull.is_called_off()
        && (pull.too_large().is_some() || says_full(&error.why) || limit(root, pull).is_err())
}

const REMEDY: &str = "free space on its file system (df -h /sysroot), for example with ostree admin cleanup. OSTree leaves a \
    part of it free (min-free-space-percent in /ostree/repo/config)";

/// The error of a fetch that ended because there was too little space. The image takes at least as much on the disk as its
/// download.
pub(super) fn refusal(pull: &Pull) -> Option<OsError> {
    let (need, room) = pull.too_large()?;
    Some(OsError::new(format!(
        "{REPO}: {need} bytes are needed for the image, and {room} are free for it; {REMEDY}"
    )))
}

/// The bytes that OSTree leaves free on a file system of this size. A value of another form counts as the default: it only
/// makes the check less exact.
fn left_free(config: &str, size: u64) -> u64 {
    let value = |key: &str| {
        config
            .lines()
            .find_map(|line| line.trim().strip_prefix(key)?.trim_start().strip_prefix('='))
            .map(str::trim)
    };
    if let Some(bytes) = value("min-free-space-size").and_then(bytes_of) {
        return bytes;
    }
    let percent = value("min-free-space-percent").and_then(|p| p.parse().ok()).unwrap_or(LEFT_FREE_PERCENT);
    size / 100 * percent.min(100)
}

/// `500MB`, with the units that OSTree knows.
fn bytes_of(text: &str) -> Option<u64> {
    let unit = |suffix| text.strip_suffix(suffix).and_then(|n: &str| n.trim().parse::<u64>().ok());
    [("MB", 20), ("GB", 30), ("TB", 40)]
        .into_iter()
        .find_map(|(name, shift)| unit(name)?.checked_mul(1 << shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ostree_leaves_a_part_free_as_its_repository_says() {
        for (config, size, want) in [
            ("", 1000, 30),
            ("[core]\nrepo_version=1\nmode=bare\n", 1000, 30),
            ("[core]\nmin-free-space-percent = 10\n", 1000, 100),
            ("[core]\nmin-free-space-percent=0\n", 1000, 0),
            ("[core]\nmin-free-space-size=2GB\nmin-free-space-percent=10\n", 1000, 2 << 30),
            ("[core]\nmin-free-space-size=much\n", 1000, 30),
            ("[core]\nmin-free-space-percent=200\n", 1000, 1000),
        ] {
            assert_eq!(left_free(config, size), want, "{config}");
        }
    }

    #[test]
    fn an_image_that_does_not_fit_is_refused_with_both_numbers_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let pull = Pull::default();
        limit(&root, &pull).unwrap();
        assert!(refusal(&pull).is_none(), "there is no such repository");
        std::fs::create_dir_all(dir.path().join("ostree/repo")).unwrap();
        limit(&root, &pull).unwrap();
        pull.take_output(b"layers needed: 1 (9000000.0 TB)\n");
        let why = refusal(&pull).unwrap().why;
        assert!(
            why.starts_with("/ostree/repo: 9000000000000000000 bytes") && why.contains("cleanup"),
            "{why}"
        );
        // Nothing is left beside what OSTree keeps.
        std::fs::write(dir.path().join("ostree/repo/config"), "[core]\nmin-free-space-size=9000000TB\n")
            .unwrap();
        let why = limit(&root, &Pull::default()).unwrap_err().why;
        assert!(why.contains("no room") && why.contains("min-free-space"), "{why}");
    }
}
