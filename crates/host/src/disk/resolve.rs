//! Opens paths so that resolution cannot leave the root and follows no links of users other than root.
//!
//! Not here: anything that is done with the opened file or folder (see `root`).
//!
//! Sources: path_resolution(7), open(2).

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{self, FileType, Mode, OFlags, ResolveFlags};

use crate::disk::fs_error::ForeignLink;

/// How often a resolution that raced with a rename is retried.
const RESOLVE_TRIES: u32 = 32;
/// The kernel's own limit of symbolic links in one path (path_resolution(7)).
const MAX_LINKS: u32 = 40;

/// `openat2`, retried when it raced with a rename.
pub(crate) fn resolve(
    at: &OwnedFd,
    path: &str,
    flags: OFlags,
    mode: u32,
    how: ResolveFlags,
) -> io::Result<OwnedFd> {
    let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode));
    for _ in 0..RESOLVE_TRIES {
        match fs::openat2(at, path, flags, mode, how | ResolveFlags::NO_MAGICLINKS) {
            Err(rustix::io::Errno::AGAIN) => {}
            other => return other.map_err(Into::into),
        }
    }
    Err(rustix::io::Errno::AGAIN.into())
}

/// Resolves a path component by component, each through the handle of the one before. What was checked is therefore
/// what is used, whatever is renamed meanwhile.
pub(crate) fn walk(root: &OwnedFd, path: &str, flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    let parts = |text: &str| -> Vec<String> {
        text.split('/').filter(|p| !matches!(*p, "" | ".")).rev().map(str::to_owned).collect()
    };
    let strict = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // The components that are left, in reverse: the next one is last.
    let mut rest = parts(path);
    let mut folders: Vec<OwnedFd> = Vec::new();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            folders.pop();
            continue;
        }
        let at = folders.last().unwrap_or(root);
        let fd = match fs::openat(at, part.as_str(), look, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) if rest.is_empty() && flags.contains(OFlags::CREATE) => {
                return resolve(at, &part, flags, mode, strict);
            }
            other => other?,
        };
        let stat = fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            links += 1;
            if links > MAX_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            if stat.st_uid != 0 {
                let link = ForeignLink { name: part, uid: stat.st_uid };
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, link));
            }
            let target = fs::readlinkat(&fd, "", Vec::new())?;
            let target = target.into_string().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            if target.starts_with('/') {
                folders.clear();
            }
            rest.extend(parts(&target));
        } else if rest.is_empty() {
            return resolve(at, &part, flags, mode, strict);
        } else {
            folders.push(fd);
        }
    }
    resolve(folders.last().unwrap_or(root), ".", flags, mode, strict)
}
