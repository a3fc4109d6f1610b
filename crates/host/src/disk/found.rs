//! What exists at a path, the mode and owner of what is written, and the error of a file operation.

use std::io;

use desired::FILE_MODE;
use serde::{Deserialize, Serialize};

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

/// What exists at a path. A link as the last component is not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Found {
    /// Nothing.
    Absent,
    /// A regular file.
    #[serde(rename_all = "camelCase")]
    File {
        /// Permission bits, including setuid and the like.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Length in bytes.
        len: u64,
        /// SHA-256 of the contents, in hex.
        sha256: String,
        /// It has the immutable or append-only attribute (chattr(1)).
        #[serde(default)]
        immutable: bool,
    },
    /// A symbolic link.
    Link {
        /// Its target as it is written.
        target: String,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A folder.
    Dir {
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A device, socket or pipe.
    Other,
    /// Nothing, and nothing can be made there: `parent` is not a folder.
    NoParentFolder {
        /// The part of the path that is not a folder.
        parent: String,
    },
}

impl Found {
    /// Whether nothing exists there.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent | Self::NoParentFolder { .. })
    }
}

/// The owner and mode that a written file gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Mode and owner of an ordinary file of root.
pub(crate) const PLAIN: Attributes = Attributes { mode: FILE_MODE, uid: 0, gid: 0 };
/// Mode and owner of our own state. It holds contents of files, so only root may read it.
pub(crate) const PRIVATE: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };
/// The same for folders.
pub(crate) const PRIVATE_DIR: Attributes = Attributes { mode: 0o700, uid: 0, gid: 0 };
