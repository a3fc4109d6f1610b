//! Obstacles that keep a path from being changed although the path itself looks normal: a read-only file system, an
//! immutable folder, a mount point. They are found before a change is planned, so that no node is drained for a change
//! whose first write would fail.
//!
//! Not here: what exists at the path (see `found`), or the free space on the disk (see `journal`).
//!
//! Sources: statx(2), mount(8).

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, OFlags, StatVfsMountFlags, StatxAttributes, StatxFlags};
use serde::Serialize;

use crate::disk::fs_error::FsError;
use crate::disk::root::{Root, split};

/// Why a path cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Obstacle {
    /// The file system that holds `folder` is read-only.
    ReadOnly {
        /// The innermost existing folder of the path.
        folder: String,
    },
    /// `folder` has the immutable or the append-only attribute (chattr(1)).
    FixedFolder {
        /// The innermost existing folder of the path.
        folder: String,
    },
    /// Something is mounted on the path, so no other file can replace it (`EBUSY`, rename(2)).
    MountPoint,
    /// `folder` did not answer within this time, usually because a file server is gone.
    NoAnswer {
        /// The folder that was inspected.
        folder: String,
        /// The time limit, in seconds.
        seconds: u64,
    },
}

impl Obstacle {
    /// The remedy.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::ReadOnly { .. } => {
                "choose a path on a file system that can be written, or remount that one writable".to_owned()
            }
            Self::FixedFolder { folder } => format!("remove the attribute with chattr -i -a {folder}"),
            Self::NoAnswer { folder, .. } => {
                format!(
                    "see what is mounted there (findmnt -T {folder}); make its server answer, or unmount it (umount -l)"
                )
            }
            Self::MountPoint => "unmount it, or change what is mounted there at its own path".to_owned(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadOnly { folder } => write!(f, "the file system that holds {folder} is read-only"),
            Self::FixedFolder { folder } => write!(f, "the folder {folder} is immutable or append-only"),
            Self::NoAnswer { folder, seconds } => write!(f, "{folder} has not answered within {seconds} s"),
            Self::MountPoint => f.write_str("another file is mounted on it, such as by a container runtime"),
        }
    }
}

/// The obstacle in a folder, if there is one. Each folder is inspected once for all paths in it.
pub(crate) type InFolder = Option<Obstacle>;

impl Root {
    /// What keeps files in the folder of `path` from being made, replaced and removed. For a folder that does not
    /// exist yet, the innermost existing folder above it is inspected.
    ///
    /// # Errors
    /// A folder cannot be inspected.
    pub(crate) fn folder_obstacle(&self, path: &str) -> Result<InFolder, FsError> {
        let fail = |e: io::Error| FsError::new("look at the folder of", path, e);
        let mut at = path;
        let (folder, fd) = loop {
            let (dir, _) = split(at).map_err(fail)?;
            match self.openat(dir, OFlags::RDONLY | OFlags::DIRECTORY, 0) {
                Ok(fd) => break (dir.to_owned(), fd),
                Err(_) if dir != "/" => at = dir,
                Err(e) => return Err(fail(e)),
            }
        };
        of_folder(&fd, folder).map_err(fail)
    }

    /// What keeps the folder at `path` itself from getting another mode and owner.
    ///
    /// # Errors
    /// It cannot be inspected.
    pub(crate) fn own_obstacle(&self, path: &str) -> Result<Option<Obstacle>, FsError> {
        let fail = |e: io::Error| FsError::new("look at", path, e);
        let fd = self.openat(path, OFlags::RDONLY | OFlags::DIRECTORY, 0).map_err(fail)?;
        of_folder(&fd, path.to_owned()).map_err(fail)
    }
}

fn of_folder(fd: &OwnedFd, folder: String) -> io::Result<Option<Obstacle>> {
    if fs::fstatvfs(fd)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(Some(Obstacle::ReadOnly { folder }));
    }
    let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    let is_fixed = attributes(fd, "", AtFlags::EMPTY_PATH).is_some_and(|a| a.intersects(fixed));
    Ok(is_fixed.then_some(Obstacle::FixedFolder { folder }))
}

/// The file attributes at a name. `None`: nothing exists there, or the file system does not report attributes.
fn attributes(dir: &OwnedFd, name: &str, flags: AtFlags) -> Option<StatxAttributes> {
    fs::statx(dir, name, flags, StatxFlags::empty()).ok().map(|s| s.stx_attributes)
}
