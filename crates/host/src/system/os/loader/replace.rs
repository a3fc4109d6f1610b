//! Replaces the boot loader's files: each as a whole, with the mode and owner that it had, if there is room for a second copy.
//!
//! Not here: what is written (see `loader` and its other parts).

use super::{BootLoader, os};
use crate::disk::attributes::Attributes;
use crate::disk::path_state::PathState;
use crate::system::os::OsError;

/// The bytes that must be free beside the boot loader's files: each is replaced by a second copy.
const SPARE: u64 = 1024 * 1024;

impl BootLoader {
    /// Replaces a file, or makes it; keeps mode and owner of the one that it replaces. Nothing is written if it has
    /// this text already.
    pub(super) fn put(&self, path: &str, text: &str, new: Attributes) -> Result<(), OsError> {
        let attributes = self.place(path)?.unwrap_or(new);
        if self.root.text(path)?.as_deref() == Some(text) {
            return Ok(());
        }
        self.has_room(path, text.len())?;
        Ok(self.root.write_bytes(path, text.as_bytes(), attributes)?)
    }

    /// Mode and owner of the file at a path. `None`: there is nothing.
    pub(super) fn place(&self, path: &str) -> Result<Option<Attributes>, OsError> {
        match self.root.found(path)? {
            PathState::File { mode, uid, gid, .. } => Ok(Some(Attributes { mode, uid, gid })),
            PathState::Absent | PathState::NoParentFolder { .. } => Ok(None),
            _ => Err(os(format!("{path} is not a regular file; move it away and restore the file"))),
        }
    }

    /// Whether a file system has room for a text of this length, in bytes.
    pub(super) fn has_room(&self, path: &str, length: usize) -> Result<(), OsError> {
        let (_, free) = self.root.space(path)?;
        let need = SPARE + length as u64;
        if free < need {
            return Err(os(format!(
                "{path}: {need} bytes are needed on its file system and {free} are free; free space there, for \
                 example by removing old kernels"
            )));
        }
        Ok(())
    }
}
