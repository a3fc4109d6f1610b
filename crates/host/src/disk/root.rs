//! The host's root as a directory handle. Every file is read and written through it, relative to it.
//!
//! It resolves paths and reads files. Resolution cannot leave the root (`openat2` with `RESOLVE_IN_ROOT`, openat2(2):
//! a link to `/x` means `/x` of that root, `..` stops at it) and follows no links of users other than root.
//!
//! Not here: how files are changed (see `write`), which paths matter (see `paths`), or undo (see `journal`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

pub(crate) use crate::disk::names::{kept_name, split, temp_name};
pub(crate) use api::text::hex;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use sha2::{Digest, Sha256};

use crate::disk::found::{Found, FsError};
use crate::disk::resolve::{resolve, walk};
use crate::disk::xattr::FileMetadata;
use crate::fault::{Faults, NoFaults, Point, as_io};

/// The mode of folders that we create.
pub(crate) const DIR_MODE: u32 = 0o755;
/// The size of the buffer for reading and copying files.
const CHUNK: usize = 128 * 1024;

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
pub(crate) struct Short {
    /// Length in bytes.
    pub(crate) len: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// The contents. `None`: the file is longer than the limit.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// A limit on the number of folders in a path.
const MOST_FOLDERS: usize = 4096;

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

    /// What exists at `path`, with the hash of a file's contents.
    ///
    /// # Errors
    /// I/O errors other than that nothing exists there.
    pub fn found(&self, path: &str) -> Result<Found, FsError> {
        Ok(self.inspect(path)?.0)
    }

    /// As [`Root::found`], and whether something is mounted there. One system call answers both.
    pub(crate) fn inspect(&self, path: &str) -> Result<(Found, bool), FsError> {
        let fail = |e: io::Error| FsError::new("read", path, e);
        let (dir, name) = match self.parent(path) {
            Ok(x) => x,
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok((self.blocked(path)?, false));
            }
            Err(e) => return Err(fail(e)),
        };
        let stat = match fs::statx(&dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
            Ok(s) => s,
            Err(rustix::io::Errno::NOENT) => return Ok((Found::Absent, false)),
            Err(e) => return Err(fail(e.into())),
        };
        let (bits, uid, gid) = (u32::from(stat.stx_mode), stat.stx_uid, stat.stx_gid);
        let mode = bits & 0o7777;
        let found = match FileType::from_raw_mode(bits) {
            FileType::RegularFile => {
                let fd = fs::openat(
                    &dir,
                    name,
                    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
                    Mode::empty(),
                )
                .map_err(|e| fail(e.into()))?;
                let (len, sha256) = hash(&mut std::fs::File::from(fd), stat.stx_size).map_err(fail)?;
                // Either attribute makes every change of the file fail. A file system that does not report attributes
                // has none.
                let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
                let immutable = stat.stx_attributes.intersects(fixed);
                Found::File { mode, uid, gid, len, sha256, immutable }
            }
            FileType::Symlink => {
                let target = fs::readlinkat(&dir, name, Vec::new()).map_err(|e| fail(e.into()))?;
                Found::Link { target: target.to_string_lossy().into_owned(), uid, gid }
            }
            FileType::Directory => Found::Dir { mode, uid, gid },
            _ => Found::Other,
        };
        Ok((found, stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)))
    }

    /// A hash of a path's metadata. It changes when another file replaces the one there, or when the contents, mode or
    /// owner of the file change. No contents are read. 0: nothing exists there.
    #[must_use]
    pub fn fingerprint(&self, path: &str) -> u64 {
        let Ok((dir, name)) = split(path) else { return 0 };
        self.openat(dir, OFlags::PATH | OFlags::DIRECTORY, 0).map_or(0, |dir| fingerprint(&dir, name))
    }

    /// Finds why the parent of `path` could not be opened: because a component is not a folder (the outermost one is
    /// named), or because it does not exist.
    fn blocked(&self, path: &str) -> Result<Found, FsError> {
        for (end, _) in path.match_indices('/').skip(1) {
            let dir = path.get(..end).unwrap_or_default();
            let parent = || dir.to_owned();
            match self.openat(dir, OFlags::PATH | OFlags::DIRECTORY, 0) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                    return Ok(Found::NoParentFolder { parent: parent() });
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    // A dangling link counts as well: a folder cannot be made in its place.
                    let link = self.parent(dir).is_ok_and(|(d, n)| {
                        fs::statat(&d, n, AtFlags::SYMLINK_NOFOLLOW)
                            .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Symlink)
                    });
                    return Ok(if link { Found::NoParentFolder { parent: parent() } } else { Found::Absent });
                }
                Err(e) => return Err(FsError::new("read", path, e)),
            }
        }
        Ok(Found::Absent)
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
    pub(crate) fn read_short(&self, path: &str, most: u64) -> Result<Short, FsError> {
        let file = self.reader(path)?;
        let read = || -> io::Result<Short> {
            // The mode of the opened file, because another file may replace it at any time.
            let about = file.metadata()?;
            let (len, mode) = (about.len(), std::os::unix::fs::MetadataExt::mode(&about) & 0o7777);
            if len > most {
                return Ok(Short { len, mode, bytes: None });
            }
            let mut out = Vec::new();
            (&file).take(most).read_to_end(&mut out)?;
            Ok(Short { len, mode, bytes: Some(out) })
        };
        read().map_err(|e| FsError::new("read", path, e))
    }

    /// Whether every user may open the folder that a path is in: all folders above it, with links followed, are
    /// searchable by others. A folder that does not exist yet counts as open, because the agent makes it so. False
    /// where it cannot be told.
    pub(crate) fn is_open_to_all(&self, path: &str) -> bool {
        const PASS: u32 = 0o001;
        let mut dir = match split(path) {
            Ok((dir, _)) => dir,
            Err(_) => return false,
        };
        let mut at = loop {
            match self.openat(dir, OFlags::PATH | OFlags::DIRECTORY, 0) {
                Ok(fd) => break fd,
                Err(e) if e.kind() == io::ErrorKind::NotFound && dir != "/" => match split(dir) {
                    Ok((above, _)) => dir = above,
                    Err(_) => return false,
                },
                Err(_) => return false,
            }
        };
        let Ok(root) = fs::fstat(&*self.0.fd) else { return false };
        for _ in 0..MOST_FOLDERS {
            let Ok(stat) = fs::fstat(&at) else { return false };
            if (stat.st_dev, stat.st_ino) == (root.st_dev, root.st_ino) {
                return true;
            }
            if stat.st_mode & PASS == 0 {
                return false;
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match fs::openat(&at, "..", flags, Mode::empty()) {
                Ok(above) => at = above,
                Err(_) => return false,
            }
        }
        false
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

    /// Whether two paths are hard links of one file. A link as the last component is not followed.
    pub(crate) fn same_file(&self, a: &str, b: &str) -> bool {
        let which = |path: &str| {
            let (dir, name) = self.parent(path).ok()?;
            let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some((stat.st_dev, stat.st_ino))
        };
        which(a).is_some_and(|a| which(b) == Some(a))
    }

    /// The metadata of the file at `path` that a copy of it should have.
    pub(crate) fn like(&self, path: &str) -> Result<FileMetadata, FsError> {
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

/// As [`Root::fingerprint`], of a name in a folder. The change time (ctime) is set by the kernel; no user can forge
/// it.
pub(crate) fn fingerprint(folder: &OwnedFd, name: &str) -> u64 {
    let Ok(stat) = fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return 0 };
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_mode, stat.st_uid, stat.st_gid).hash(&mut hasher);
    // The times of a folder are left out: they change with the entries in it.
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        (stat.st_size, stat.st_ctime, stat.st_ctime_nsec, stat.st_mtime, stat.st_mtime_nsec)
            .hash(&mut hasher);
    }
    hasher.finish()
}

/// Length and SHA-256 of a file that is expected to have `size` bytes.
fn hash(file: &mut impl Read, size: u64) -> io::Result<(u64, String)> {
    let mut sha = Sha256::new();
    // One byte more than the file has, so that the next read at the latest sees its end.
    let room = usize::try_from(size).unwrap_or(CHUNK).saturating_add(1).clamp(512, CHUNK);
    let mut buffer = vec![0; room];
    let mut len = 0u64;
    loop {
        let n = file.read(&mut buffer)?;
        let Some(part) = buffer.get(..n).filter(|p| !p.is_empty()) else { break };
        sha.update(part);
        len = len.saturating_add(n as u64);
    }
    Ok((len, hex(&sha.finalize())))
}
