//! The owner and mode of what is written.
//!
//! What it is not: the writing (see `write`), or what exists at a path (see `path_state`).

use desired::FILE_MODE;
use serde::{Deserialize, Serialize};

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
