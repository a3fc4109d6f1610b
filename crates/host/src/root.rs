//! The host's root as a directory handle: every file is read and written through it, relative to it.
//!
//! What it is: path resolution that cannot leave the root (`openat2` with `RESOLVE_IN_ROOT`: a link to `/x` means
//! `/x` of that root, `..` stops at it) and follows no other user's links, and the one way in which this crate changes files: a temporary file in the
//! same folder, mode and owner, fsync, rename, fsync of the folder. What it is not: knowledge about what stands
//! where (see `paths`), or about undo (see `journal`).

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use sha2::{Digest, Sha256};

use crate::fault::{Faults, NoFaults, Point, as_io};
use crate::found::{Attributes, Found, FsError};
use crate::resolve::{resolve, walk};
use crate::xattr::{self, Like, Xattr};

/// The mode of folders that we create.
pub(crate) const DIR_MODE: u32 = 0o755;
/// Bytes moved at once when a file is read or copied.
const CHUNK: usize = 128 * 1024;

/// How files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Wait for the disk after each change. Off in tests only.
    pub sync: bool,
    /// Set owners. Off when the root is a plain folder of somebody who is not root: then owners are neither set nor
    /// compared.
    pub owners: bool,
}

#[derive(Debug)]
struct Inner {
    fd: Arc<OwnedFd>,
    faults: Arc<dyn Faults>,
    options: Options,
}

/// The handle.
#[derive(Clone, Debug)]
pub struct Root(Arc<Inner>);

impl Root {
    /// Opens a root folder: `/`, or the folder that stands for it. Owners are set when we are root.
    ///
    /// # Errors
    /// The folder does not exist or cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FsError> {
        let owners = rustix::process::geteuid().is_root();
        Self::open_with(path, Options { sync: true, owners }, Arc::new(NoFaults))
    }

    /// As [`Root::open`], with options and a fault hook.
    ///
    /// # Errors
    /// The folder does not exist or cannot be opened.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: Options,
        faults: Arc<dyn Faults>,
    ) -> Result<Self, FsError> {
        let path = path.as_ref();
        let fd = fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| FsError::new("open the root folder", &path.to_string_lossy(), e))?;
        Ok(Self(Arc::new(Inner { fd: Arc::new(fd), faults, options })))
    }

    /// The same root, without waiting for the disk: for many changes of which the last word waits for all.
    #[must_use]
    pub(crate) fn lazy(&self) -> Self {
        let Inner { fd, faults, options } = &*self.0;
        let options = Options { sync: false, ..*options };
        Self(Arc::new(Inner { fd: Arc::clone(fd), faults: Arc::clone(faults), options }))
    }

    /// The same root without fault points: for what stands in for another process.
    #[must_use]
    pub(crate) fn without_faults(&self) -> Self {
        let fd = Arc::clone(&self.0.fd);
        Self(Arc::new(Inner { fd, faults: Arc::new(NoFaults), options: self.0.options }))
    }

    /// How files are written.
    #[must_use]
    pub fn options(&self) -> Options {
        self.0.options
    }

    pub(crate) fn faults(&self) -> &Arc<dyn Faults> {
        &self.0.faults
    }

    /// One system call, with the hook asked before and after it.
    pub(crate) fn call<T>(
        &self,
        call: &'static str,
        on: &str,
        f: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, FsError> {
        let fail = |e| FsError::new(call, on, e);
        self.0.faults.at(Point { call, on, before: true }).map_err(|f| fail(as_io(f)))?;
        let out = f().map_err(fail)?;
        self.0.faults.at(Point { call, on, before: false }).map_err(|f| fail(as_io(f)))?;
        Ok(out)
    }

    /// Opens a path. Links on the way are followed inside the root; those of other users than root are not, as they can
    /// point elsewhere the next moment: somebody's own folder must not lead what root writes out of it.
    fn openat(&self, path: &str, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        let relative = match path.trim_start_matches('/') {
            "" => ".",
            p => p,
        };
        if !self.0.options.owners {
            return resolve(&self.0.fd, relative, flags, mode, ResolveFlags::IN_ROOT);
        }
        let strict = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        match resolve(&self.0.fd, relative, flags, mode, strict) {
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                walk(&self.0.fd, relative, flags, mode)
            }
            other => other,
        }
    }

    /// The folder that holds `path`, and the last part of it.
    pub(crate) fn parent<'p>(&self, path: &'p str) -> io::Result<(OwnedFd, &'p str)> {
        let (dir, name) = split(path)?;
        Ok((self.openat(dir, OFlags::RDONLY | OFlags::DIRECTORY, 0)?, name))
    }

    /// What stands at `path`, with the hash of a file's contents.
    ///
    /// # Errors
    /// I/O errors other than that nothing stands there.
    pub fn found(&self, path: &str) -> Result<Found, FsError> {
        let fail = |e: io::Error| FsError::new("read", path, e);
        let (dir, name) = match self.parent(path) {
            Ok(x) => x,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return self.blocked(path),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => return self.blocked(path),
            Err(e) => return Err(fail(e)),
        };
        let stat = match fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(s) => s,
            Err(rustix::io::Errno::NOENT) => return Ok(Found::Absent),
            Err(e) => return Err(fail(e.into())),
        };
        let (mode, uid, gid) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let fd = fs::openat(
                    &dir,
                    name,
                    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
                    Mode::empty(),
                )
                .map_err(|e| fail(e.into()))?;
                let immutable = immutable(&fd);
                let (len, sha256) = hash(&mut std::fs::File::from(fd)).map_err(fail)?;
                Ok(Found::File { mode, uid, gid, len, sha256, immutable })
            }
            FileType::Symlink => {
                let target = fs::readlinkat(&dir, name, Vec::new()).map_err(|e| fail(e.into()))?;
                Ok(Found::Link { target: target.to_string_lossy().into_owned(), uid, gid })
            }
            FileType::Directory => Ok(Found::Dir { mode, uid, gid }),
            _ => Ok(Found::Other),
        }
    }

    /// `path`'s parent could not be opened: because something that is not a folder is in the way (the outermost such
    /// part is named), or because it does not exist.
    fn blocked(&self, path: &str) -> Result<Found, FsError> {
        for (end, _) in path.match_indices('/').skip(1) {
            let dir = path.get(..end).unwrap_or_default();
            let parent = || dir.to_owned();
            match self.openat(dir, OFlags::PATH | OFlags::DIRECTORY, 0) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                    return Ok(Found::Blocked { parent: parent() });
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    // A link that leads nowhere is in the way too: a folder cannot be made in its place.
                    let link = self.parent(dir).is_ok_and(|(d, n)| {
                        fs::statat(&d, n, AtFlags::SYMLINK_NOFOLLOW)
                            .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Symlink)
                    });
                    return Ok(if link { Found::Blocked { parent: parent() } } else { Found::Absent });
                }
                Err(e) => return Err(FsError::new("read", path, e)),
            }
        }
        Ok(Found::Absent)
    }

    /// The contents of a file; links are followed inside the root.
    ///
    /// # Errors
    /// It does not exist or cannot be read.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FsError> {
        let read = || -> io::Result<Vec<u8>> {
            let fd = self.openat(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
            let mut out = Vec::new();
            std::fs::File::from(fd).read_to_end(&mut out)?;
            Ok(out)
        };
        read().map_err(|e| FsError::new("read", path, e))
    }

    /// The length of a file, and its contents where that is not more than `most`. Links at the last part are not
    /// followed.
    pub(crate) fn read_short(&self, path: &str, most: u64) -> Result<(u64, Option<Vec<u8>>), FsError> {
        let file = self.reader(path)?;
        let read = || -> io::Result<(u64, Option<Vec<u8>>)> {
            let len = file.metadata()?.len();
            if len > most {
                return Ok((len, None));
            }
            let mut out = Vec::new();
            (&file).take(most).read_to_end(&mut out)?;
            Ok((len, Some(out)))
        };
        read().map_err(|e| FsError::new("read", path, e))
    }

    /// As [`Root::read`]; nothing there is `None`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_if_there(&self, path: &str) -> Result<Option<Vec<u8>>, FsError> {
        match self.read(path) {
            Ok(x) => Ok(Some(x)),
            Err(e) if matches!(e.source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// As [`Root::read_if_there`], as text; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn text(&self, path: &str) -> Result<Option<String>, FsError> {
        Ok(self.read_if_there(path)?.map(|b| String::from_utf8_lossy(&b).into_owned()))
    }

    /// The names in a folder, sorted; none when it does not exist. Names that are not UTF-8 cannot be ours and are
    /// left out.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn list(&self, path: &str) -> Result<Vec<String>, FsError> {
        let fail = |e: io::Error| FsError::new("list", path, e);
        let fd = match self.openat(path, OFlags::RDONLY | OFlags::DIRECTORY, 0) {
            Ok(fd) => fd,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            Err(e) => return Err(fail(e)),
        };
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(fd).map_err(|e| fail(e.into()))? {
            let entry = entry.map_err(|e| fail(e.into()))?;
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes the folders above `path` that are missing, each with [`DIR_MODE`].
    ///
    /// # Errors
    /// Something that is not a folder is in the way, or the folder cannot be made.
    pub fn make_parents(&self, path: &str) -> Result<(), FsError> {
        let (dir, _) = split(path).map_err(|e| FsError::new("make the folder of", path, e))?;
        if dir == "/" || self.openat(dir, OFlags::PATH | OFlags::DIRECTORY, 0).is_ok() {
            return Ok(());
        }
        self.make_parents(dir)?;
        let owner = Attributes { mode: DIR_MODE, uid: 0, gid: 0 };
        self.make_dir(dir, owner)
    }

    /// Makes one folder (its parent exists); one that is there already gets the mode and owner.
    ///
    /// # Errors
    /// Something else stands there, or the folder cannot be made.
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

    /// Sets owner, then mode (changing the owner clears setuid bits).
    fn attribute(&self, fd: &OwnedFd, a: Attributes) -> io::Result<()> {
        if self.0.options.owners {
            fs::fchown(fd, Some(Uid::from_raw(a.uid)), Some(Gid::from_raw(a.gid)))?;
        }
        fs::fchmod(fd, Mode::from_raw_mode(a.mode))?;
        Ok(())
    }

    fn sync_dir(&self, dir: &OwnedFd, path: &str) -> Result<(), FsError> {
        if self.0.options.sync {
            self.call("sync the folder of", path, || fs::fsync(dir).map_err(Into::into))?;
        }
        Ok(())
    }

    /// Waits until the disk knows all that others did on our behalf in the file system of a folder. None there is
    /// fine.
    pub(crate) fn sync_file_system(&self, path: &str) -> Result<(), FsError> {
        if !self.0.options.sync {
            return Ok(());
        }
        match self.openat(path, OFlags::RDONLY | OFlags::DIRECTORY, 0) {
            Ok(dir) => self.call("sync the file system of", path, || fs::syncfs(&dir).map_err(Into::into)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(FsError::new("sync the file system of", path, e)),
        }
    }

    /// Puts a file in place of whatever file or link stands at `path`: all or nothing.
    ///
    /// Flow: temporary file in the same folder (its name follows from the path, so that a crash leaves one that the
    /// next attempt or the undo removes), contents, owner and mode, fsync, rename, fsync of the folder.
    ///
    /// # Errors
    /// The path and the call that failed. The temporary file is removed.
    pub fn write(&self, path: &str, contents: &mut dyn Read, a: Attributes) -> Result<(), FsError> {
        self.write_like(path, contents, a, &Like::default())
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
        like: &Like,
    ) -> Result<(), FsError> {
        self.make_parents(path)?;
        let (dir, name) = self.parent(path).map_err(|e| FsError::new("write", path, e))?;
        let temp = temp_name(path);
        self.discard(&dir, &temp, path)?;
        let written = self.fill(&dir, path, contents, a, like).and_then(|()| {
            self.call("rename into place", path, || {
                fs::renameat(&dir, temp.as_str(), &dir, name).map_err(Into::into)
            })
        });
        self.tidy(&dir, &temp, written)?;
        self.sync_dir(&dir, path)
    }

    /// Writes the temporary file for `path`.
    pub(crate) fn fill(
        &self,
        dir: &OwnedFd,
        path: &str,
        contents: &mut dyn Read,
        a: Attributes,
        like: &Like,
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
        if self.0.options.sync {
            self.call("sync", path, || fs::fsync(&fd).map_err(Into::into))?;
        }
        Ok(())
    }

    /// The security label of the file that a new one is put in place of.
    fn label(&self, dir: &OwnedFd, path: &str) -> Option<Xattr> {
        let (_, name) = split(path).ok()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        xattr::label(&fs::openat(dir, name, flags, Mode::empty()).ok()?)
    }

    /// Puts a symbolic link in place of whatever file or link stands at `path`.
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
                if let (true, Some((uid, gid))) = (self.0.options.owners, owner) {
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

    /// After a failure that is not the end of the process: removes the temporary file.
    pub(crate) fn tidy(&self, dir: &OwnedFd, temp: &str, done: Result<(), FsError>) -> Result<(), FsError> {
        if let Err(e) = &done
            && !e.killed()
        {
            // The failure is what the caller must hear of; the undo tries the removal again.
            let _ = fs::unlinkat(dir, temp, AtFlags::empty());
        }
        done
    }

    pub(crate) fn discard(&self, dir: &OwnedFd, temp: &str, path: &str) -> Result<(), FsError> {
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
    /// It is there and cannot be removed.
    pub(crate) fn discard_temporary(&self, path: &str) -> Result<(), FsError> {
        match self.parent(path) {
            Ok((dir, _)) => self.discard(&dir, &temp_name(path), path),
            Err(_) => Ok(()),
        }
    }

    /// Copies a file or link with its mode, owner and times, and a file's extended attributes.
    ///
    /// # Errors
    /// `from` is neither, or one of the calls failed.
    pub fn copy(&self, from: &str, to: &str) -> Result<(), FsError> {
        let fail = |e: io::Error| FsError::new("copy", from, e);
        let (dir, name) = self.parent(from).map_err(fail)?;
        let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| fail(e.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = fs::openat(&dir, name, flags, Mode::empty()).map_err(|e| fail(e.into()))?;
                let a = Attributes { mode: stat.st_mode & 0o7777, uid: stat.st_uid, gid: stat.st_gid };
                let like = Like::of(&fd).map_err(fail)?;
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

    /// Removes a file or link; nothing there is fine.
    ///
    /// # Errors
    /// It is a folder or cannot be removed.
    pub fn remove(&self, path: &str) -> Result<(), FsError> {
        self.unlink("remove", path, AtFlags::empty())
    }

    /// Removes a folder if it is empty; one that is not, or none, is left alone.
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

    /// Removes a folder and all in it, or a file; links are not followed. Nothing there is fine.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub fn remove_tree(&self, path: &str) -> Result<(), FsError> {
        if let Found::Dir { .. } = self.found(path)? {
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

    /// The file system that holds `path` (or would hold it): its device number and the bytes that are free on it.
    ///
    /// # Errors
    /// The file system cannot be asked.
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

    /// The length of the file or link at `path`; nothing there has none.
    pub(crate) fn len(&self, path: &str) -> Result<u64, FsError> {
        let Ok((dir, name)) = self.parent(path) else { return Ok(0) };
        match fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(s) => Ok(u64::try_from(s.st_size).unwrap_or_default()),
            Err(rustix::io::Errno::NOENT) => Ok(0),
            Err(e) => Err(FsError::new("read", path, e)),
        }
    }

    /// What of the file at `path` a copy of it is to have.
    pub(crate) fn like(&self, path: &str) -> Result<Like, FsError> {
        Like::of(&self.reader(path)?.into()).map_err(|e| FsError::new("read", path, e))
    }

    /// A file to read from start to end; links at the last part are not followed.
    pub(crate) fn reader(&self, path: &str) -> Result<std::fs::File, FsError> {
        let fail = |e: io::Error| FsError::new("read", path, e);
        let (dir, name) = self.parent(path).map_err(fail)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = fs::openat(&dir, name, flags, Mode::empty()).map_err(|e| fail(e.into()))?;
        Ok(fd.into())
    }

    /// A handle on a file or folder for locks and watches.
    pub(crate) fn handle(&self, path: &str, flags: OFlags, mode: u32) -> Result<OwnedFd, FsError> {
        self.openat(path, flags, mode).map_err(|e| FsError::new("open", path, e))
    }
}

/// The folder and the last part of an absolute path.
pub(crate) fn split(path: &str) -> io::Result<(&str, &str)> {
    let bad = || io::Error::new(io::ErrorKind::InvalidInput, "not an absolute, plain path");
    let (dir, name) = path.rsplit_once('/').ok_or_else(bad)?;
    if !path.starts_with('/') || matches!(name, "" | "." | "..") || path.contains('\0') {
        return Err(bad());
    }
    Ok((if dir.is_empty() { "/" } else { dir }, name))
}

/// The name of the temporary file for `path`: short whatever the path is, and always the same.
pub(crate) fn temp_name(path: &str) -> String {
    format!(".mcd-{}.tmp", &hex(&Sha256::digest(path.as_bytes()))[..16])
}

/// SHA-256 in hex.
#[must_use]
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

fn hash(file: &mut impl Read) -> io::Result<(u64, String)> {
    let mut sha = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut len = 0u64;
    loop {
        let n = file.read(&mut buffer)?;
        let Some(part) = buffer.get(..n).filter(|p| !p.is_empty()) else { break };
        sha.update(part);
        len = len.saturating_add(n as u64);
    }
    Ok((len, hex(&sha.finalize())))
}

fn copy(from: &mut dyn Read, to: &mut std::fs::File) -> io::Result<()> {
    io::copy(from, to)?;
    to.flush()
}

/// Whether the file carries an attribute that makes every change of it fail. File systems that do not say count as
/// no.
fn immutable(fd: &OwnedFd) -> bool {
    use rustix::fs::{StatxAttributes, StatxFlags};
    fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
        .is_ok_and(|s| s.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND))
}
