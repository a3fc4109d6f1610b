//! The journal's file: its format, its checksum, and what becomes of one that is damaged.
//!
//! Not here: what is in the journal (see `journal`).

use desired::sha256;
use serde::{Deserialize, Serialize};

use super::{DATA, FORMAT, Journal};
use crate::disk::found::Found;
use crate::disk::root::Root;
use crate::error::Error;
use crate::paths::JOURNAL_DIR;

/// The format of journals that name none: they were written before there was a second one.
fn first_format() -> u32 {
    1
}

/// Why a journal cannot be used.
pub(super) enum Unusable {
    Damaged(String),
    Newer(u32),
}

impl Unusable {
    pub(super) fn at(self, root: &Root, path: &'static str) -> Error {
        match self {
            Self::Damaged(why) => move_aside(root, path, why),
            // It is intact: the version that wrote it can use it.
            Self::Newer(found) => Error::JournalNewer { path, found, known: FORMAT },
        }
    }
}

/// The journal with its checksum, as it is in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalFile {
    #[serde(default = "first_format")]
    format: u32,
    sha256: String,
    journal: String,
}

/// The one field that all formats have.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl Journal {
    /// The contents of its file.
    pub(super) fn to_file(&self) -> Result<Vec<u8>, Error> {
        let config =
            |e: serde_json::Error| Error::Config { name: self.names.desired.clone(), why: e.to_string() };
        let journal = serde_json::to_string(self).map_err(config)?;
        let file = JournalFile { format: self.format, sha256: sha256(journal.as_bytes()), journal };
        serde_json::to_vec(&file).map_err(config)
    }

    /// Reads the contents of its file.
    pub(super) fn from_file(bytes: &[u8]) -> Result<Self, Unusable> {
        let damaged = |why: String| Unusable::Damaged(why);
        let format = serde_json::from_slice::<Format>(bytes).map_or(0, |f| f.format);
        if format > FORMAT {
            return Err(Unusable::Newer(format));
        }
        let file: JournalFile = api::shape::read_bytes(bytes).map_err(|e| damaged(e.to_string()))?;
        if file.format == 0 || sha256(file.journal.as_bytes()) != file.sha256 {
            return Err(damaged("its checksum does not match".to_owned()));
        }
        let journal: Self =
            api::shape::read_bytes(file.journal.as_bytes()).map_err(|e| damaged(e.to_string()))?;
        if ![0, file.format].contains(&journal.format) && file.format != first_format() {
            return Err(damaged("its format number does not match its content".to_owned()));
        }
        Ok(journal)
    }
}

/// Renames a damaged journal and its old contents, so that the daemon can go on and none of the host's own data is
/// lost.
pub(super) fn move_aside(root: &Root, path: &str, why: String) -> Error {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let kept = format!("{JOURNAL_DIR}/damaged-{seconds}.json");
    let data = || match root.found(DATA)? {
        Found::Absent => Ok(()),
        _ => root.rename(DATA, &format!("{JOURNAL_DIR}/damaged-{seconds}.data")),
    };
    match data().and_then(|()| root.rename(path, &kept)) {
        Ok(()) => Error::Journal { path: path.to_owned(), why, kept },
        Err(e) => e.into(),
    }
}
