//! What exists at a path: the value that `stat` reads and that plans compare.
//!
//! What it is not: the reading (see `stat`), or the owner and mode of what is written (see `attributes`).

use serde::{Deserialize, Serialize};

/// What exists at a path. A link as the last component is not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum PathState {
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

impl PathState {
    /// Whether nothing exists there.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent | Self::NoParentFolder { .. })
    }
}
