//! The error of a file operation, with the remedy for its cause.
//!
//! What it is not: the operations (see `root` and `write`).

use std::io;

use crate::fault::is_killed;

/// A file operation that failed. The text names the path and the remedy; the source has the cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op} {path}: {remedy}", remedy = remedy(source))]
pub struct FsError {
    /// The operation.
    pub op: &'static str,
    /// The path on the host.
    pub path: String,
    /// The system's error.
    pub source: io::Error,
}

impl FsError {
    pub(crate) fn new(op: &'static str, path: &str, source: impl Into<io::Error>) -> Self {
        Self { op, path: path.to_owned(), source: source.into() }
    }

    /// Whether a fault point simulated the end of the process here.
    pub(crate) fn killed(&self) -> bool {
        is_killed(&self.source)
    }
}

/// A symbolic link in the path that belongs to a user other than root, who could point it elsewhere at any time.
#[derive(Debug, thiserror::Error)]
#[error("{name} is a link that belongs to user {uid}")]
pub(crate) struct ForeignLink {
    /// The link's path component.
    pub(crate) name: String,
    /// Its owner.
    pub(crate) uid: u32,
}

/// The remedy for an I/O error.
fn remedy(e: &io::Error) -> &'static str {
    if e.get_ref().is_some_and(|e| e.is::<ForeignLink>()) {
        return "links that belong to other users than root are not followed; remove the link, or give it to \
            root (chown -h)";
    }
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "the disk is full; free space and retry",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only; remount it writable or repair it",
        io::ErrorKind::PermissionDenied => {
            "not permitted; check for an immutable attribute (lsattr), a read-only mount or missing privileges"
        }
        io::ErrorKind::NotADirectory => {
            "a parent of it is not a folder; move that away or choose another path"
        }
        io::ErrorKind::IsADirectory => "there is a folder at this path; move it away or choose another path",
        io::ErrorKind::ResourceBusy => {
            "something is mounted there (see findmnt); unmount it; the next try continues"
        }
        io::ErrorKind::DirectoryNotEmpty => "the folder is not empty; move its contents away",
        io::ErrorKind::NotFound => "it does not exist",
        io::ErrorKind::AlreadyExists => "there is something at this path already; move it away",
        io::ErrorKind::InvalidFilename => "a part of the path is too long for the file system",
        _ if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            "too many links on the way; remove the looping link"
        }
        _ => "see the cause; the file system may need repair",
    }
}
