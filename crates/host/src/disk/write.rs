//! The only code in this crate that changes files: a temporary file in the same folder, mode and owner, fsync, rename,
//! fsync of the folder. Links, folders, copies and removals are single changes as well.
//!
//! Not here: how a path is resolved (see `root`), many changes at once (see `batch`), or undo (see `journal`).
//!
//! Sources: rename(2), fsync(2).

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, Uid};

use crate::disk::attributes::Attributes;
use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::{DIR_MODE, Root, split, temp_name};
use crate::disk::xattr::{self, FileMetadata, Xattr};

impl Root {
    /// Makes the missing folders above `path`, each with [`DIR_MODE`].
    ///
    /// # Errors
    /// A component of the path is not a folder, or a folder cannot be made.
    pub fn make_parents(&self, path: &str) -> Result<(), FsError> {
        let (dir, _) = split(path).map_err(|e| FsError::new("make the folder of", path, e))?;
        if dir == "/" || self.openat(dir, OFlags::PATH | OFlags::DIRECTORY, 0).is_ok() {
            return Ok(());
        }
        self.make_parents(dir)?;
        let owner = Attributes { mode: DIR_MODE, uid: 0, gid: 0 };
        self.make_dir(dir, owner)
    }

    /// Makes one folder, whose parent must exist. A folder that exists already gets the mode and owner.
    ///
    /// # Errors
    /// Something other than a folder exists there, or the folder cannot be made.
    pub fn make_dir(&self, path: &str, attributes: Attributes) -> Result<(), FsError> {
        let (dir, name) = self.parent(path).map_err(|e| FsError::new("make the folder", path, e))?;
        self.call("make the folder", path, || {
            match fs::mkdirat(&dir, name, Mode::from_raw_mode(attributes.mode)) {
                Err(rustix::io::Errno::EXIST) | Ok(()) => Ok(()),
                Err(e) => Err(e.into()),
            }
        })?;
        self.call("set mode and owner of the folder", path, || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = fs::openat(&dir, name, flags, Mode::empty())?;
            self.attribute(&fd, attributes)?;
            Ok(())
        })?;
        self.sync_dir(&dir, path)
    }

    /// Sets the owner, then the mode, because a change of owner clears setuid bits (chown(2)).
    fn attribute(&self, fd: &OwnedFd, a: Attributes) -> io::Result<()> {
        if self.options().owners {
            fs::fchown(fd, Some(Uid::from_raw(a.uid)), Some(Gid::from_raw(a.gid)))?;
        }
        fs::fchmod(fd, Mode::from_raw_mode(a.mode))?;
        Ok(())
    }

    fn sync_dir(&self, dir: &OwnedFd, path: &str) -> Result<(), FsError> {
        if self.options().sync {
            self.call("sync the folder of", path, || fs::fsync(dir).map_err(Into::into))?;
        }
        Ok(())
    }

    /// Syncs the file system of a folder, to make durable what other programs wrote on our behalf. It is no error if
    /// the folder does not exist.
    pub(crate) fn sync_file_system(&self, path: &str) -> Result<(), FsError> {
        if !self.options().sync {
            return Ok(());
        }
        match self.openat(path, OFlags::RDONLY | OFlags::DIRECTORY, 0) {
            Ok(dir) => self.call("sync the file system of", path, || fs::syncfs(&dir).map_err(Into::into)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(FsError::new("sync the file system of", path, e)),
        }
    }

    /// Replaces the file or link at `path`, or makes a new file: all or nothing.
    ///
    /// Flow: temporary file in the same folder (its name follows from the path, so that a crash leaves one that the
    /// next attempt or the undo removes), contents, owner and mode, fsync, rename, fsync of the folder.
    ///
    /// # Errors
    /// The path and the call that failed. The temporary file is removed.
    pub fn write(&self, path: &str, contents: &mut dyn Read, a: Attributes) -> Result<(), FsError> {
        self.write_like(path, contents, a, &FileMetadata::default())
    }

    /// As [`Root::write`], from memory.
    ///
    /// # Errors
    /// As [`Root::write`].
    pub fn write_bytes(&self, path: &str, mut contents: &[u8], a: Attributes) -> Result<(), FsError> {
        self.write(path, &mut contents, a)
    }

    /// As [`Root::write`], with the times and extended attributes of another file.
    pub(crate) fn write_like(
        &self,
        path: &str,
        contents: &mut dyn Read,
        a: Attributes,
        like: &FileMetadata,
    ) -> Result<(), FsError> {
        let dir = self.stage_file(path, contents, a, like)?;
        self.publish_in(&dir, path)?;
        self.sync_dir(&dir, path)
    }

    /// Writes the temporary file for `path`. Returns the folder that it is in.
    pub(crate) fn stage_file(
        &self,
        path: &str,
        contents: &mut dyn Read,
        a: Attributes,
        like: &FileMetadata,
    ) -> Result<OwnedFd, FsError> {
        self.make_parents(path)?;
        let (dir, _) = self.parent(path).map_err(|e| FsError::new("write", path, e))?;
        let temp = temp_name(path);
        self.discard(&dir, &temp, path)?;
        let filled = self.fill(&dir, path, contents, a, like);
        self.tidy(&dir, &temp, filled)?;
        Ok(dir)
    }

    /// Renames the temporary file for `path` into place.
    pub(crate) fn publish_in(&self, dir: &OwnedFd, path: &str) -> Result<(), FsError> {
        let (_, name) = split(path).map_err(|e| FsError::new("write", path, e))?;
        let temp = temp_name(path);
        let renamed = self.call("rename into place", path, || {
            fs::renameat(dir, temp.as_str(), dir, name).map_err(Into::into)
        });
        self.tidy(dir, &temp, renamed)
    }

    fn fill(
        &self,
        dir: &OwnedFd,
        path: &str,
        contents: &mut dyn Read,
        a: Attributes,
        like: &FileMetadata,
    ) -> Result<(), FsError> {
        let fd = self.call("create a temporary file for", path, || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            fs::openat(dir, temp_name(path), flags, Mode::from_raw_mode(0o600)).map_err(Into::into)
        })?;
        let mut file = std::fs::File::from(fd);
        self.call("write", path, || copy(contents, &mut file))?;
        let fd = OwnedFd::from(file);
        self.call("set mode and owner of", path, || {
            self.attribute(&fd, a)?;
            if like.xattrs.is_empty() {
                xattr::set(&fd, self.label(dir, path).iter());
            } else {
                xattr::set(&fd, &like.xattrs);
            }
            let Some((tv_sec, tv_nsec)) = like.modified else { return Ok(()) };
            let t = fs::Timespec { tv_sec, tv_nsec };
            let times = fs::Timestamps { last_access: t, last_modification: t };
            fs::futimens(&fd, &times).map_err(Into::into)
        })?;
        if self.options().sync {
            self.call("sync", path, || fs::fsync(&fd).map_err(Into::into))?;
        }
        Ok(())
    }

    /// The security label of the file that will be replaced.
    fn label(&self, dir: &OwnedFd, path: &str) -> Option<Xattr> {
        let (_, name) = split(path).ok()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        xattr::label(&fs::openat(dir, name, flags, Mode::empty()).ok()?)
    }

    /// Replaces the file or link at `path` with a symbolic link, or makes a new one.
    ///
    /// # Errors
    /// As [`Root::write`].
    pub fn link(&self, path: &str, target: &str, owner: Option<(u32, u32)>) -> Result<(), FsError> {
        self.make_parents(path)?;
        let (dir, name) = self.parent(path).map_err(|e| FsError::new("link", path, e))?;
        let temp = temp_name(path);
        self.discard(&dir, &temp, path)?;
        let made = (|| {
            self.call("make a temporary link for", path, || {
                fs::symlinkat(target, &dir, temp.as_str())?;
                if let (true, Some((uid, gid))) = (self.options().owners, owner) {
                    let (u, g) = (Uid::from_raw(uid), Gid::from_raw(gid));
                    fs::chownat(&dir, temp.as_str(), Some(u), Some(g), AtFlags::SYMLINK_NOFOLLOW)?;
                }
                Ok(())
            })?;
            self.call("rename into place", path, || {
                fs::renameat(&dir, temp.as_str(), &dir, name).map_err(Into::into)
            })
        })();
        self.tidy(&dir, &temp, made)?;
        self.sync_dir(&dir, path)
    }

    /// Makes `path` a hard link of the file `target`. It replaces the file or link at `path`.
    ///
    /// # Errors
    /// As [`Root::write`]. Also if the target does not exist, or is on another file system.
    pub fn hard_link(&self, path: &str, target: &str) -> Result<(), FsError> {
        self.make_parents(path)?;
        let fail = |e| FsError::new("make a hard link at", path, e);
        let (dir, name) = self.parent(path).map_err(fail)?;
        let (from, file) = self.parent(target).map_err(fail)?;
        let temp = temp_name(path);
        self.discard(&dir, &temp, path)?;
        let made = (|| {
            self.call("make a hard link at", path, || {
                fs::linkat(&from, file, &dir, temp.as_str(), AtFlags::empty()).map_err(Into::into)
            })?;
            self.call("rename into place", path, || {
                fs::renameat(&dir, temp.as_str(), &dir, name).map_err(Into::into)
            })
        })();
        self.tidy(&dir, &temp, made)?;
        // A rename between two hard links of one file does nothing (rename(2)), so the temporary one is still there.
        self.discard(&dir, &temp, path)?;
        self.sync_dir(&dir, path)
    }

    /// Removes the temporary file after a failure, unless the failure is the simulated end of the process.
    fn tidy(&self, dir: &OwnedFd, temp: &str, done: Result<(), FsError>) -> Result<(), FsError> {
        if let Err(e) = &done
            && !e.killed()
        {
            // The caller must get the original failure. The undo tries the removal again.
            let _ = fs::unlinkat(dir, temp, AtFlags::empty());
        }
        done
    }

    fn discard(&self, dir: &OwnedFd, temp: &str, path: &str) -> Result<(), FsError> {
        if fs::statat(dir, temp, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return Ok(());
        }
        self.call("remove the temporary file of", path, || {
            fs::unlinkat(dir, temp, AtFlags::empty()).map_err(Into::into)
        })
    }

    /// Removes what an interrupted write or link may have left beside `path`.
    ///
    /// # Errors
    /// It exists and cannot be removed.
    pub(crate) fn discard_temporary(&self, path: &str) -> Result<(), FsError> {
        match self.parent(path) {
            Ok((dir, _)) => self.discard(&dir, &temp_name(path), path),
            Err(_) => Ok(()),
        }
    }

    /// Copies a file with its mode, owner, modification time and extended attributes; or a link with its owner.
    ///
    /// # Errors
    /// `from` is neither a file nor a link, or one of the calls failed.
    pub fn copy(&self, from: &str, to: &str) -> Result<(), FsError> {
        let fail = |e: io::Error| FsError::new("copy", from, e);
        let (dir, name) = self.parent(from).map_err(fail)?;
        let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| fail(e.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = fs::openat(&dir, name, flags, Mode::empty()).map_err(|e| fail(e.into()))?;
                let a = Attributes { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid };
                let like = FileMetadata::of(&fd).map_err(fail)?;
                self.write_like(to, &mut std::fs::File::from(fd), a, &like)
            }
            FileType::Symlink => {
                let target = fs::readlinkat(&dir, name, Vec::new()).map_err(|e| fail(e.into()))?;
                let target = target.into_string().map_err(|_| fail(io::ErrorKind::InvalidData.into()))?;
                self.link(to, &target, Some((stat.st_uid, stat.st_gid)))
            }
            _ => Err(fail(io::ErrorKind::IsADirectory.into())),
        }
    }

    /// Removes a file or link. It is no error if nothing exists there.
    ///
    /// # Errors
    /// It is a folder or cannot be removed.
    pub fn remove(&self, path: &str) -> Result<(), FsError> {
        self.unlink("remove", path, AtFlags::empty())
    }

    /// Removes a folder if it is empty. It is no error if it is not empty or does not exist.
    ///
    /// # Errors
    /// It is not a folder or cannot be removed.
    pub fn remove_empty_dir(&self, path: &str) -> Result<(), FsError> {
        match self.unlink("remove the folder", path, AtFlags::REMOVEDIR) {
            Err(e) if e.source.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other,
        }
    }

    fn unlink(&self, op: &'static str, path: &str, flags: AtFlags) -> Result<(), FsError> {
        let (dir, name) = match self.parent(path) {
            Ok(x) => x,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(e) => return Err(FsError::new(op, path, e)),
        };
        if matches!(
            fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR)
        ) {
            return Ok(());
        }
        self.call(op, path, || fs::unlinkat(&dir, name, flags).map_err(Into::into))?;
        self.sync_dir(&dir, path)
    }

    /// Removes a folder and all in it, or a file. Links are not followed. It is no error if nothing exists there.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub fn remove_tree(&self, path: &str) -> Result<(), FsError> {
        if let (PathState::Dir { .. }, is_mount_point) = self.inspect(path)? {
            // A mounted file system does not belong to this tree.
            if is_mount_point {
                return Err(FsError::new("remove", path, io::ErrorKind::ResourceBusy));
            }
            for name in self.list(path)? {
                self.remove_tree(&format!("{}/{name}", path.trim_end_matches('/')))?;
            }
            return self.unlink("remove the folder", path, AtFlags::REMOVEDIR);
        }
        self.remove(path)
    }

    /// Renames inside the root.
    ///
    /// # Errors
    /// As `rename`.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FsError> {
        let fail = |e: io::Error| FsError::new("rename", from, e);
        let (a, from_name) = self.parent(from).map_err(fail)?;
        let (b, to_name) = self.parent(to).map_err(fail)?;
        self.call("rename", from, || fs::renameat(&a, from_name, &b, to_name).map_err(Into::into))?;
        self.sync_dir(&b, to)?;
        self.sync_dir(&a, from)
    }
}

fn copy(from: &mut dyn Read, to: &mut std::fs::File) -> io::Result<()> {
    io::copy(from, to)?;
    to.flush()
}
