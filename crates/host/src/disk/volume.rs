//! File systems of the host: how much room they have, and whether they can be written to.
//!
//! Not here: how much room a change needs (see `journal::begin`).
//!
//! Source: statvfs(3).

use std::io;

use rustix::fs::{self, OFlags};

use crate::disk::fs_error::FsError;
use crate::disk::names::split;
use crate::disk::root::Root;

impl Root {
    /// The file system that holds `path` (or would hold it): its device number and its free bytes.
    ///
    /// # Errors
    /// The file system cannot be queried.
    pub(crate) fn space(&self, path: &str) -> Result<(u64, u64), FsError> {
        let fail = |e: io::Error| FsError::new("ask for the free space at", path, e);
        let mut at = path;
        loop {
            let (dir, _) = split(at).map_err(fail)?;
            match self.openat(dir, OFlags::RDONLY | OFlags::DIRECTORY, 0) {
                Ok(fd) => {
                    let s = fs::fstatvfs(&fd).map_err(|e| fail(e.into()))?;
                    let dev = fs::fstat(&fd).map_err(|e| fail(e.into()))?.st_dev;
                    return Ok((dev, s.f_bavail.saturating_mul(s.f_frsize)));
                }
                Err(_) if dir != "/" => at = dir,
                Err(e) => return Err(fail(e)),
            }
        }
    }

    /// The file system that holds the folder `path`: the bytes that a program without privileges may still write, so without
    /// the blocks that are reserved for root, and all its bytes.
    ///
    /// # Errors
    /// The folder cannot be opened, or its file system cannot be queried.
    pub(crate) fn volume(&self, path: &str) -> Result<(u64, u64), FsError> {
        let fail = |e: io::Error| FsError::new("ask for the free space at", path, e);
        let fd = self.openat(path, OFlags::RDONLY | OFlags::DIRECTORY, 0).map_err(fail)?;
        let s = fs::fstatvfs(&fd).map_err(|e| fail(e.into()))?;
        Ok((s.f_bavail.saturating_mul(s.f_frsize), s.f_blocks.saturating_mul(s.f_frsize)))
    }

    /// Whether the file system that holds the folder `path` is mounted read-only.
    ///
    /// # Errors
    /// The folder cannot be opened, or its file system cannot be queried.
    pub(crate) fn is_read_only(&self, path: &str) -> Result<bool, FsError> {
        let fail = |e: io::Error| FsError::new("ask for the mount options of", path, e);
        let fd = self.openat(path, OFlags::RDONLY | OFlags::DIRECTORY, 0).map_err(fail)?;
        let found = fs::fstatvfs(&fd).map_err(|e| fail(e.into()))?;
        Ok(found.f_flag.contains(fs::StatVfsMountFlags::RDONLY))
    }
}
