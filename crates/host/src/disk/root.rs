//! The host's root as a directory handle. Every file is read and written through it, relative to it.
//!
//! It resolves paths and reads files. Resolution cannot leave the root (`openat2` with `RESOLVE_IN_ROOT`, openat2(2):
//! a link to `/x` means `/x` of that root, `..` stops at it) and follows no links of users other than root.
//!
//! Not here: what exists at a path (see `stat`), how files are changed (see `write`), which paths matter (see `paths`), or undo (see `journal`).

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

pub(crate) use crate::disk::names::{kept_name, split, temp_name};
pub(crate) use api::formats::text::hex;
use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags};

use crate::disk::fs_error::FsError;
use crate::disk::resolve::{resolve, walk};
use crate::disk::xattr::FileMetadata;
use crate::fault::{Faults, NoFaults, Point, as_io};

/// The mode of folders that we create.
pub(crate) const DIR_MODE: u32 = 0o755;
/// How files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Sync to disk after each change. Off in tests only.
    pub sync: bool,
    /// Set owners. Off when the root is a folder of a user other than root: then owners are neither set nor compared.
    pub owners: bool,
}

#[derive(Debug)]
struct Inner {
    fd: Arc<OwnedFd>,
    faults: Arc<dyn Faults>,
    options: Options,
}

/// A file whose contents are read only if it is short.
pub(crate) struct ShortFile {
    /// Length in bytes.
    pub(crate) len: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// The contents. `None`: the file is longer than the limit.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// A handle on a host's root folder.
#[derive(Clone, Debug)]
pub struct Root(Arc<Inner>);

impl Root {
    /// Opens a root folder: `/`, or a folder in place of it. Owners are set if this process runs as root.
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

    /// The same root without syncs: for many changes that are synced together at the end.
    #[must_use]
    pub(crate) fn lazy(&self) -> Self {
        let Inner { fd, faults, options } = &*self.0;
        let options = Options { sync: false, ..*options };
        Self(Arc::new(Inner { fd: Arc::clone(fd), faults: Arc::clone(faults), options }))
    }

    /// The same root without fault points: for code that plays another process.
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

    /// The folder itself.
    pub(super) fn folder(&self) -> &OwnedFd {
        &self.0.fd
    }

    pub(crate) fn faults(&self) -> &Arc<dyn Faults> {
        &self.0.faults
    }

    /// Makes one system call, with the fault hook called before and after it.
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

    /// Opens a path. Links in it are followed inside the root. Links of users other than root are not followed,
    /// because their owner can redirect them at any time: a user must not be able to redirect what root writes.
    pub(crate) fn openat(&self, path: &str, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
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

    /// The folder that holds `path`, and the last component of it.
    pub(crate) fn parent<'p>(&self, path: &'p str) -> io::Result<(OwnedFd, &'p str)> {
        let (dir, name) = split(path)?;
        Ok((self.openat(dir, OFlags::RDONLY | OFlags::DIRECTORY, 0)?, name))
    }

    /// The contents of a file. Links are followed inside the root.
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

    /// The length of a file, and its contents if they are at most `most` bytes. A link as the last component is not
    /// followed.
    pub(crate) fn read_short(&self, path: &str, most: u64) -> Result<ShortFile, FsError> {
        let file = self.reader(path)?;
        let read = || -> io::Result<ShortFile> {
            // The mode of the opened file, because another file may replace it at any time.
            let about = file.metadata()?;
            let (len, mode) = (about.len(), std::os::unix::fs::MetadataExt::mode(&about) & 0o7777);
            if len > most {
                return Ok(ShortFile { len, mode, bytes: None });
            }
            let mut out = Vec::new();
            (&file).take(most).read_to_end(&mut out)?;
            Ok(ShortFile { len, mode, bytes: Some(out) })
        };
        read().map_err(|e| FsError::new("read", path, e))
    }

    /// As [`Root::read`]. `None`: nothing exists there.
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

    /// As [`Root::read_if_there`], as text. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn text(&self, path: &str) -> Result<Option<String>, FsError> {
        Ok(self.read_if_there(path)?.map(|b| String::from_utf8_lossy(&b).into_owned()))
    }

    /// The names in a folder, sorted. None if it does not exist. Names that are not UTF-8 cannot be ours and are left
    /// out.
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

    /// The length of the file or link at `path`; 0 if nothing exists there.
    pub(crate) fn len(&self, path: &str) -> Result<u64, FsError> {
        let Ok((dir, name)) = self.parent(path) else { return Ok(0) };
        match fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(s) => Ok(u64::try_from(s.st_size).unwrap_or_default()),
            Err(rustix::io::Errno::NOENT) => Ok(0),
            Err(e) => Err(FsError::new("read", path, e)),
        }
    }

    /// The metadata of the file at `path` that a copy of it should have.
    pub(crate) fn metadata_of_file(&self, path: &str) -> Result<FileMetadata, FsError> {
        FileMetadata::of(&self.reader(path)?.into()).map_err(|e| FsError::new("read", path, e))
    }

    /// A file to read from start to end. A link as the last component is not followed.
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
