//! The journal of one change: what will be done, and everything that is needed to undo it.
//!
//! Flow: [`Journal::begin`] records what exists at every path that the plan touches (contents in a file beside it),
//! the enablement links, and the steps in words. Only then is the host changed. The change is committed at the moment
//! when `begin.json` is renamed to `done.json`. A change that stages another operating system keeps that name until a
//! boot has come up in it (`finalised.json`). If a boot comes up in another one, the file is renamed back to
//! `begin.json`. The same holds for a change on trial until it is confirmed (see `trial`). As long as it has this name,
//! [`Journal::undo`] restores every path to its recorded state. It compares before it acts, so it can be stopped anywhere
//! and started again. It is the only undo, both for an error and after a crash.
//!
//! Guarantees: a damaged journal is detected (checksums), kept under another name, and reported. What others enable,
//! disable or mask meanwhile is left alone. Assumption: nobody else changes the managed paths meanwhile.

pub(crate) mod begin;
mod links;
mod undo;

use std::collections::BTreeSet;

use desired::{DesiredOs, sha256};
use serde::{Deserialize, Serialize};

use crate::disk::attributes::{Attributes, PRIVATE};
use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::Root;
use crate::disk::xattr::FileMetadata;
use crate::error::Error;
use crate::paths::{self, JOURNAL_DIR};
use crate::plan::effects::Effect;
use crate::plan::os::OsChange;
use crate::record::{Boot, Names, Trial};
use crate::system::os::Token;
use crate::system::systemd::ServiceAction;
use crate::transaction::shadow;
use links::Links;

/// The journal of a change that is in progress.
const BEGIN: &str = "/var/lib/machine-config-daemon/journal/begin.json";
/// The journal of a committed change.
pub(crate) const DONE: &str = "/var/lib/machine-config-daemon/journal/done.json";
/// The journal of a change that has been undone.
const UNDONE: &str = "/var/lib/machine-config-daemon/journal/undone.json";
/// The journal of a committed change whose boot has come up as planned.
const FINALISED: &str = "/var/lib/machine-config-daemon/journal/finalised.json";
/// The old contents of files, concatenated.
const DATA: &str = "/var/lib/machine-config-daemon/journal/undo.data";
/// Exists when services may have been reloaded or restarted for the change.
const SERVICES: &str = "/var/lib/machine-config-daemon/journal/services";
/// What a trial, or the way back from a change, leaves beside its journal.
const REMAINS: [&str; 5] =
    [paths::TRIAL_CLOCK, paths::TRIAL_VERDICT, paths::INTERRUPTED, paths::TRIAL_RESERVE, paths::ETC_MERGE];
/// How many damaged journals are kept for people to examine.
const DAMAGED_KEPT: usize = 3;

/// What was at a path before the change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "was", rename_all = "camelCase")]
enum PriorState {
    /// Nothing.
    Absent,
    /// A folder. With attributes: its mode and owner are restored, and it is made again if it was removed. Its
    /// contents are left alone. Without: nothing is restored, as for anything that is neither file, link nor folder.
    Dir {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attributes: Option<Attributes>,
    },
    /// A link.
    Link { target: String, uid: u32, gid: u32 },
    /// A file, with the position of its contents in the data file.
    File {
        attributes: Attributes,
        #[serde(flatten)]
        like: FileMetadata,
        offset: u64,
        len: u64,
        sha256: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PathBefore {
    path: String,
    /// The file that the path was a hard link of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    same_as: Option<String>,
    #[serde(flatten)]
    was: PriorState,
}

/// What is needed to undo a change of the operating system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum OsUndo {
    /// The token for what the host would have booted into, and the change.
    Staged { before: Token, change: Box<OsChange> },
    /// From the third format and earlier, when no host had a back end that could have changed anything: what the two
    /// configs asked for.
    Older(Box<(DesiredOs, DesiredOs)>),
}

/// The journal as it is stored on the disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// The format again, here covered by the checksum. 0: the journal is older than this field.
    #[serde(default)]
    format: u32,
    /// The old and the new config.
    pub(crate) names: Names,
    /// The steps in words.
    steps: Vec<String>,
    before: Vec<PathBefore>,
    /// Passwords that are set.
    #[serde(default)]
    passwords: Vec<shadow::PasswordBefore>,
    /// What was renamed out of the way: from, to.
    aside: Vec<(String, String)>,
    /// The enablement links. `None`: the plan does not change enablement.
    links: Option<Links>,
    /// The change of the operating system, and what undoes it.
    os: Option<OsUndo>,
    /// Services to reload or restart at the end.
    pub(crate) services: Vec<(ServiceAction, String)>,
    /// Whether systemd reloads its units.
    pub(crate) daemon_reload: bool,
    /// The boot in which the change was begun. Empty in journals of older versions, which equals no boot.
    #[serde(default)]
    pub(crate) boot: Boot,
    /// The SSH server's unit, if its configuration changes. A reader that does not know this field does not reload it.
    #[serde(default)]
    pub(crate) sshd: Option<String>,
    /// What makes the restored contents take effect, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) effects: Vec<Effect>,
    /// The change is kept only if it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trial: Option<Trial>,
    /// The change of the operating system was applied to the running system: it waits for no boot, and the undo removes it
    /// from there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) live: bool,
    /// The cluster allowed packages to be brought into the running system when the change was planned. For a reader that does not
    /// know this field they are there after the next boot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) live_allowed: bool,
}

/// The format of the journal. A reader knows all formats up to its own. A format gets a new number if it changes what
/// undo has to do.
const FORMAT: u32 = 7;
/// The format of a journal on trial whose change of the operating system, if it has one, waits for a boot.
const FORMAT_WITHOUT_LIVE: u32 = 6;
/// The format of a journal with effects that is not on trial.
const FORMAT_WITHOUT_TRIAL: u32 = 5;
/// The format of a journal with a change of the operating system and without effects.
const FORMAT_WITHOUT_EFFECTS: u32 = 4;
/// The format of a journal without a change of the operating system. Once committed, it does not wait for a boot.
const FORMAT_WITHOUT_OS: u32 = 3;
/// The format of a journal that restores no folders and no hard links: readers that know only the second format can
/// read it completely.
const FORMAT_WITHOUT_FOLDERS: u32 = 2;

/// The format of journals that name none: they were written before there was a second one.
fn first_format() -> u32 {
    1
}

/// Why a journal cannot be used.
enum Unusable {
    Damaged(String),
    Newer(u32),
}

impl Unusable {
    fn at(self, root: &Root, path: &'static str) -> Error {
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

/// The state of the last change.
#[derive(Debug)]
pub(crate) enum Stage {
    /// There is no journal.
    Nothing,
    /// In progress.
    Begun(Journal),
    /// Committed, with remains to clear, or waiting for its boot.
    Done(Journal),
    /// It has ended, with remains to clear: it was undone (`None`), or it is kept. What was moved aside for one that is kept is
    /// named by its journal, if that can be read.
    Ended(Option<Box<Journal>>),
}

impl Journal {
    /// The state of the last change. A journal that cannot be read is renamed and kept.
    pub(crate) fn stage(root: &Root) -> Result<Stage, Error> {
        if let Some(bytes) = root.read_if_there(BEGIN)? {
            return match Self::from_file(&bytes) {
                Ok(journal) => Ok(Stage::Begun(journal)),
                Err(why) => Err(why.at(root, BEGIN)),
            };
        }
        if let Some(bytes) = root.read_if_there(DONE)? {
            return match Self::from_file(&bytes) {
                Ok(journal) => Ok(Stage::Done(journal)),
                Err(why) => Err(why.at(root, DONE)),
            };
        }
        if let Some(bytes) = root.read_if_there(FINALISED)? {
            return Ok(Stage::Ended(Self::from_file(&bytes).ok().map(Box::new)));
        }
        let left = !root.list(JOURNAL_DIR)?.iter().all(|n| n.starts_with("damaged-"));
        Ok(if left { Stage::Ended(None) } else { Stage::Nothing })
    }

    /// Whether a change is in progress, or was when its process ended.
    pub(crate) fn is_open(root: &Root) -> Result<bool, FsError> {
        Ok(!root.found(BEGIN)?.is_absent())
    }

    /// Records that services are about to be reloaded or restarted.
    pub(crate) fn mark_services(root: &Root) -> Result<(), FsError> {
        root.write_bytes(SERVICES, b"", PRIVATE)
    }

    /// Whether services may have been reloaded or restarted.
    pub(crate) fn services_marked(root: &Root) -> Result<bool, FsError> {
        Ok(!root.found(SERVICES)?.is_absent())
    }

    /// Commits the change. From here on it is never undone, unless it waits for a boot that fails (see
    /// [`Journal::os_change`]).
    pub(crate) fn commit(root: &Root) -> Result<(), FsError> {
        root.rename(BEGIN, DONE)
    }

    /// Reverts the commit of a change that must be undone after all.
    pub(crate) fn reopen(root: &Root) -> Result<(), FsError> {
        root.rename(DONE, BEGIN)
    }

    /// Records that the boot that the change waited for has come up as planned. From here on it is never undone.
    pub(crate) fn finalise(root: &Root) -> Result<(), FsError> {
        root.rename(DONE, FINALISED)
    }

    /// The change of the operating system, and the token for the state before. Such a change is complete when a later
    /// boot has come up in it. Until then the journal stays after the commit.
    pub(crate) fn os_change(&self) -> Option<(&Token, &OsChange)> {
        match self.os.as_ref()? {
            OsUndo::Staged { before, change } => Some((before, change)),
            OsUndo::Older(..) => None,
        }
    }

    /// Records that everything has been undone.
    pub(crate) fn retract(root: &Root) -> Result<(), FsError> {
        root.rename(BEGIN, UNDONE)
    }

    /// Removes damaged journals that were kept, except the newest ones: each holds old contents of files.
    ///
    /// # Errors
    /// One of them cannot be removed.
    pub(crate) fn forget_damaged(root: &Root) -> Result<(), FsError> {
        let when =
            |name: &str| -> Option<u64> { name.strip_prefix("damaged-")?.split_once('.')?.0.parse().ok() };
        let names = root.list(JOURNAL_DIR)?;
        let times: BTreeSet<u64> = names.iter().filter_map(|n| when(n)).collect();
        let old = times.len().saturating_sub(DAMAGED_KEPT);
        let Some(first_kept) = times.iter().nth(old) else { return Ok(()) };
        for name in names.iter().filter(|n| when(n).is_some_and(|t| t < *first_kept)) {
            root.remove(&format!("{JOURNAL_DIR}/{name}"))?;
        }
        Ok(())
    }

    /// Removes the remains of a change that has ended.
    pub(crate) fn clear(root: &Root, journal: Option<&Self>) -> Result<(), FsError> {
        for (_, to) in journal.map_or(&[][..], |j| &j.aside) {
            match root.remove_tree(to) {
                // The change has ended either way. A journal that is never cleared would block every later change.
                Err(e) if !e.killed() => {
                    tracing::warn!(path = %to, error = %e, "a folder that was moved aside could not be \
                        removed; remove it by hand");
                }
                other => other?,
            }
        }
        for path in [BEGIN, DONE, UNDONE, FINALISED, DATA, SERVICES].into_iter().chain(REMAINS) {
            root.discard_temporary(path)?;
        }
        // The file that holds the state of the change is removed last.
        for path in REMAINS.into_iter().chain([DATA, SERVICES, DONE, UNDONE, FINALISED]) {
            root.remove(path)?;
        }
        Ok(())
    }

    /// The contents of its file.
    fn to_file(&self) -> Result<Vec<u8>, Error> {
        let config =
            |e: serde_json::Error| Error::Config { name: self.names.desired.clone(), why: e.to_string() };
        let journal = serde_json::to_string(self).map_err(config)?;
        let file = JournalFile { format: self.format, sha256: sha256(journal.as_bytes()), journal };
        serde_json::to_vec(&file).map_err(config)
    }

    /// Reads the contents of its file.
    fn from_file(bytes: &[u8]) -> Result<Self, Unusable> {
        let damaged = |why: String| Unusable::Damaged(why);
        let format = serde_json::from_slice::<Format>(bytes).map_or(0, |f| f.format);
        if format > FORMAT {
            return Err(Unusable::Newer(format));
        }
        let file: JournalFile = api::formats::shape::read_bytes(bytes).map_err(|e| damaged(e.to_string()))?;
        if file.format == 0 || sha256(file.journal.as_bytes()) != file.sha256 {
            return Err(damaged("its checksum does not match".to_owned()));
        }
        let journal: Self =
            api::formats::shape::read_bytes(file.journal.as_bytes()).map_err(|e| damaged(e.to_string()))?;
        if ![0, file.format].contains(&journal.format) && file.format != first_format() {
            return Err(damaged("its format number does not match its content".to_owned()));
        }
        Ok(journal)
    }
}

/// Renames a damaged journal and its old contents, so that the daemon can go on and none of the host's own data is
/// lost.
fn move_aside(root: &Root, path: &str, why: String) -> Error {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let kept = format!("{JOURNAL_DIR}/damaged-{seconds}.json");
    let data = || match root.found(DATA)? {
        PathState::Absent => Ok(()),
        _ => root.rename(DATA, &format!("{JOURNAL_DIR}/damaged-{seconds}.data")),
    };
    match data().and_then(|()| root.rename(path, &kept)) {
        Ok(()) => Error::Journal { path: path.to_owned(), why, kept },
        Err(e) => e.into(),
    }
}
