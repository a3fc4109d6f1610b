//! Room on the disk for the records of a trial: it is kept from before the change on, and given back when one of them does not fit.

use serde::Serialize;

use crate::disk::attributes::PRIVATE;
use crate::disk::fs_error::FsError;
use crate::error::Error;
use crate::host::Host;
use crate::paths;

/// The room for the records of a trial's end: each has a block of its own for its contents, its name and a temporary file.
const RESERVE: usize = 64 * 1024;

/// Whether there was no room for a write.
fn is_full(error: &FsError) -> bool {
    use std::io::ErrorKind;
    matches!(error.source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl Host {
    /// Keeps room for the records of the trial's end.
    pub(crate) fn reserve_room(&self) -> Result<(), FsError> {
        // Not the same byte again and again: a file system may store that in no room at all.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let bytes = std::iter::repeat_with(|| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()
        });
        let bytes: Vec<u8> = bytes.flatten().take(RESERVE).collect();
        self.root.write_bytes(paths::TRIAL_RESERVE, &bytes, PRIVATE)
    }

    /// Writes a record that a trial's end cannot do without. On a full disk the room that was kept for it is given back.
    pub(crate) fn write_needed(&self, path: &str, bytes: &[u8]) -> Result<(), FsError> {
        match self.root.write_bytes(path, bytes, PRIVATE) {
            Err(full) if is_full(&full) && !self.root.found(paths::TRIAL_RESERVE)?.is_absent() => {
                tracing::warn!(%path, "the disk is full; using the space that was reserved for the end of the trial");
                self.root.discard_temporary(path)?;
                self.root.remove(paths::TRIAL_RESERVE)?;
                self.root.write_bytes(path, bytes, PRIVATE)
            }
            done => done,
        }
    }

    pub(super) fn write_record(&self, path: &str, record: &impl Serialize) -> Result<(), Error> {
        let json = serde_json::to_vec(record)
            .map_err(|e| Error::Config { name: path.to_owned(), why: e.to_string() })?;
        Ok(self.write_needed(path, &json)?)
    }
}
