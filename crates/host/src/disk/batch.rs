//! Many file changes in a row, with two disk syncs in all instead of two for each change.
//!
//! Flow: all new contents are written to temporary files; the disk is synced; each file is renamed into place, in
//! order; the disk is synced again. After a power cut each path therefore has its old contents or its new ones, never
//! a part. The journal then restores or completes the change. Files that are replaced or removed are closed in bulk,
//! so that their space is freed together (see [`DeletedFiles`]).

use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, FileType, OFlags};

use crate::disk::attributes::Attributes;
use crate::disk::fs_error::FsError;
use crate::disk::root::{Root, split};
use crate::disk::xattr::FileMetadata;

/// From this many changes on, the file system is synced once for all of them. For fewer changes, a sync of the whole
/// file system may cost more than it saves.
pub(crate) const SYNC_ONCE_FROM: usize = 8;

/// The saved contents of a file, and its other metadata.
pub(crate) trait SavedFile {
    /// The contents, from the start.
    fn contents(&self) -> Result<Box<dyn Read + '_>, FsError>;
    /// Times and extended attributes.
    fn like(&self) -> &FileMetadata;
}

/// One change of a file, link or folder.
#[derive(Clone, Copy)]
pub(crate) enum FileChange<'s> {
    /// Write a file.
    Write(&'s str, &'s [u8], Attributes),
    /// Put back a file.
    PutBack(&'s str, &'s dyn SavedFile, Attributes),
    /// Copy a file or link.
    Copy(&'s str, &'s str),
    /// Make a symbolic link with this owner.
    Link(&'s str, &'s str, (u32, u32)),
    /// Remove a file or link.
    Remove(&'s str),
    /// Remove a folder, if it is empty.
    RemoveEmptyDir(&'s str),
}

impl<'s> FileChange<'s> {
    /// The path that it changes.
    pub(crate) fn path(self) -> &'s str {
        match self {
            Self::Write(path, ..)
            | Self::PutBack(path, ..)
            | Self::Copy(_, path)
            | Self::Link(path, ..)
            | Self::Remove(path)
            | Self::RemoveEmptyDir(path) => path,
        }
    }

    /// The path that it reads, which no earlier change of the same batch may change.
    pub(crate) fn reads(self) -> Option<&'s str> {
        match self {
            Self::Copy(from, _) => Some(from),
            _ => None,
        }
    }
}

/// The file systems that were changed: an open folder on each.
#[derive(Default)]
struct Touched(Vec<(u64, OwnedFd)>);

impl Touched {
    fn add(&mut self, folder: OwnedFd) {
        let device = fs::fstat(&folder).map_or(0, |s| s.st_dev);
        if !self.0.iter().any(|(d, _)| *d == device) {
            self.0.push((device, folder));
        }
    }

    fn sync(&self, root: &Root) -> Result<(), FsError> {
        for (_, folder) in self.0.iter().filter(|_| root.options().sync) {
            let on = "the file system of managed files";
            root.call("sync", on, || fs::syncfs(folder).map_err(Into::into))?;
        }
        Ok(())
    }
}

/// Deleted files, kept open until they are closed together. A file system that is mounted with `discard` may wait
/// milliseconds for the disk when it frees the space of a file. Closing many at once overlaps these waits.
#[derive(Default)]
struct DeletedFiles(Vec<OwnedFd>);

impl DeletedFiles {
    /// The most files that are kept open: far below the usual limit of 1,024 open files.
    const MOST: usize = 256;
    /// How many threads close files, the current one included.
    const THREADS: usize = 8;

    /// Keeps the file at `name` open, if it can be opened at all, because it is about to be replaced or removed.
    fn hold_open(&mut self, dir: &OwnedFd, name: &str) {
        if self.0.len() >= Self::MOST {
            self.close_all();
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.0.extend(fs::openat(dir, name, flags, fs::Mode::empty()));
    }

    fn close_all(&mut self) {
        let each = self.0.len().div_ceil(Self::THREADS);
        std::thread::scope(|scope| {
            while self.0.len() > each {
                let some = self.0.split_off(self.0.len() - each);
                // If no thread can be started, they are closed here.
                let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop(some));
            }
            self.0.clear();
        });
    }
}

impl Root {
    /// Makes many changes. None of them may change a path that an earlier one reads or makes.
    ///
    /// # Errors
    /// The index of the change and the call that failed.
    pub(crate) fn change_many(&self, changes: &[FileChange<'_>]) -> Result<(), (usize, FsError)> {
        let lazy = self.lazy();
        let mut touched = Touched::default();
        let mut staged = vec![false; changes.len()];
        for ((i, change), staged) in changes.iter().enumerate().zip(&mut staged) {
            *staged = lazy.stage(*change).map_err(|e| (i, e))?;
            if let Ok((folder, _)) = self.parent(change.path()) {
                touched.add(folder);
            }
        }
        let last = |e| (changes.len().saturating_sub(1), e);
        if staged.contains(&true) {
            touched.sync(self).map_err(last)?;
        }
        let mut held = DeletedFiles::default();
        for ((i, change), staged) in changes.iter().enumerate().zip(staged) {
            if let Ok((dir, name)) = self.parent(change.path()) {
                held.hold_open(&dir, name);
            }
            lazy.publish(*change, staged).map_err(|e| (i, e))?;
        }
        held.close_all();
        touched.sync(self).map_err(last)
    }

    /// Syncs the file systems that hold these paths. A path whose folder does not exist is skipped.
    ///
    /// # Errors
    /// A file system cannot be synced.
    pub(crate) fn sync_around<'p>(&self, paths: impl Iterator<Item = &'p str>) -> Result<(), FsError> {
        let mut touched = Touched::default();
        for path in paths {
            if let Ok((folder, _)) = self.parent(path) {
                touched.add(folder);
            }
        }
        touched.sync(self)
    }

    /// Writes the temporary file of a change, if the change has contents.
    fn stage(&self, change: FileChange<'_>) -> Result<bool, FsError> {
        match change {
            FileChange::Write(path, mut contents, a) => {
                self.stage_file(path, &mut contents, a, &FileMetadata::default()).map(|_| true)
            }
            FileChange::PutBack(path, kept, a) => {
                self.stage_file(path, kept.contents()?.as_mut(), a, kept.like()).map(|_| true)
            }
            FileChange::Copy(from, to) => {
                let fail = |e: rustix::io::Errno| FsError::new("copy", from, e);
                let (dir, name) = self.parent(from).map_err(|e| FsError::new("copy", from, e))?;
                let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return Ok(false);
                }
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = fs::openat(&dir, name, flags, fs::Mode::empty()).map_err(fail)?;
                let like = FileMetadata::of(&file).map_err(|e| FsError::new("copy", from, e))?;
                let a = Attributes { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid };
                self.stage_file(to, &mut std::fs::File::from(file), a, &like).map(|_| true)
            }
            FileChange::Link(..) | FileChange::Remove(_) | FileChange::RemoveEmptyDir(_) => Ok(false),
        }
    }

    /// Makes a change visible at its path. A staged change already has its temporary file.
    fn publish(&self, change: FileChange<'_>, staged: bool) -> Result<(), FsError> {
        match change {
            _ if staged => {
                let path = change.path();
                let (dir, _) = self.parent(path).map_err(|e| FsError::new("write", path, e))?;
                self.publish_in(&dir, path)
            }
            FileChange::Write(path, contents, a) => self.write_bytes(path, contents, a),
            FileChange::PutBack(path, kept, a) => {
                self.write_like(path, kept.contents()?.as_mut(), a, kept.like())
            }
            FileChange::Copy(from, to) => self.copy(from, to),
            FileChange::Link(path, target, owner) => self.link(path, target, Some(owner)),
            FileChange::Remove(path) => self.remove(path),
            FileChange::RemoveEmptyDir(path) => self.remove_empty_dir(path),
        }
    }

    /// Makes changes: many of them with one sync for all, few of them with one sync each.
    ///
    /// # Errors
    /// The call that failed.
    pub(crate) fn change_all(&self, changes: &[FileChange<'_>]) -> Result<(), FsError> {
        if changes.len() < SYNC_ONCE_FROM {
            return changes.iter().try_for_each(|change| self.publish(*change, false));
        }
        self.change_many(changes).map_err(|(_, e)| e)
    }
}

/// The longest start of a list of changes that can be made as one batch: each has a path of its own, and none reads,
/// or lies below, a path that an earlier one changes.
pub(crate) fn first_batch<'s>(changes: impl Iterator<Item = FileChange<'s>>) -> Vec<FileChange<'s>> {
    let mut paths = std::collections::BTreeSet::new();
    let mut out = Vec::new();
    for change in changes {
        let stands_on = |mut at: &'s str| {
            while let Ok((dir, _)) = split(at) {
                if paths.contains(dir) {
                    return true;
                }
                at = dir;
            }
            false
        };
        let meets = paths.contains(change.path())
            || stands_on(change.path())
            || change.reads().is_some_and(|from| paths.contains(from));
        if meets {
            break;
        }
        paths.insert(change.path());
        out.push(change);
    }
    out
}
