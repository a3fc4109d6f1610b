//! OSTree's repository of a host: where it is, the programs that know it, and what they say when it is full.
//!
//! Not here: what is done with it (see `ostree`, `rpm_ostree`), nor how much room it has (see `repository_space`).
//!
//! Sources: ostree(1), ostree.repo(5).

/// OSTree's own program.
pub(crate) const OSTREE: &str = "/usr/bin/ostree";
/// The part of OSTree that knows container images: `ostree container` starts it.
pub(crate) const CONTAINER: &str = "/usr/libexec/libostree/ext/ostree-container";
/// OSTree's repository of the system.
pub(crate) const REPO: &str = "/ostree/repo";
/// What OSTree says when its repository's file system has no room, or less than it always leaves free.
const NO_SPACE: [&str; 2] = ["min-free-space", "No space left on device"];

/// Whether OSTree, or a program that uses it, says that the file system of its repository is full. It has no exit status for that.
pub(crate) fn says_full(why: &str) -> bool {
    NO_SPACE.iter().any(|said| why.contains(said))
}
