//! What exists at a path, without its contents: kind, mode, owner, hash; whether it is another path's file; who may open its
//! folder.
//!
//! Not here: reading contents (see `root`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use sha2::{Digest, Sha256};

use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::{Root, hex, split};

/// The size of the buffer for reading and copying files.
const CHUNK: usize = 128 * 1024;

/// A limit on the number of folders in a path.
const MOST_FOLDERS: usize = 4096;

impl Root {
    /// What exists at `path`, with the hash of a file's contents.
    ///
    /// # Errors
    /// I/O errors other than that nothing exists there.
    pub fn found(&self, path: &str) -> Result<PathState, FsError> {
        Ok(self.inspect(path)?.0)
    }

    /// As [`Root::found`], and whether something is mounted there. One system call answers both.
    pub(crate) fn inspect(&self, path: &str) -> Result<(PathState, bool), FsError> {
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
            Err(rustix::io::Errno::NOENT) => return Ok((PathState::Absent, false)),
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
                PathState::File { mode, uid, gid, len, sha256, immutable }
            }
            FileType::Symlink => {
                let target = fs::readlinkat(&dir, name, Vec::new()).map_err(|e| fail(e.into()))?;
                PathState::Link { target: target.to_string_lossy().into_owned(), uid, gid }
            }
            FileType::Directory => PathState::Dir { mode, uid, gid },
            _ => PathState::Other,
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
    fn blocked(&self, path: &str) -> Result<PathState, FsError> {
        for (end, _) in path.match_indices('/').skip(1) {
            let dir = path.get(..end).unwrap_or_default();
            let parent = || dir.to_owned();
            match self.openat(dir, OFlags::PATH | OFlags::DIRECTORY, 0) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                    return Ok(PathState::NoParentFolder { parent: parent() });
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    // A dangling link counts as well: a folder cannot be made in its place.
                    let link = self.parent(dir).is_ok_and(|(d, n)| {
                        fs::statat(&d, n, AtFlags::SYMLINK_NOFOLLOW)
                            .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::Symlink)
                    });
                    return Ok(if link {
                        PathState::NoParentFolder { parent: parent() }
                    } else {
                        PathState::Absent
                    });
                }
                Err(e) => return Err(FsError::new("read", path, e)),
            }
        }
        Ok(PathState::Absent)
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
        let Ok(root) = fs::fstat(self.folder()) else { return false };
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
