//! The journal of one change: what will be done, and everything that is needed to undo it.
//!
//! Flow: [`Journal::begin`] records what exists at every path that the plan touches (contents in a file beside it),
//! the enablement links, and the steps in words. Only then is the host changed. The change is committed at the moment
//! when `begin.json` is renamed to `done.json`. A change that stages another operating system keeps that name until a
//! boot has come up in it (`finalised.json`). If a boot comes up in another one, the file is renamed back to
//! `begin.json`. As long as it has this name, [`Journal::undo`] restores every path to its recorded state. It compares
//! before it acts, so it can be stopped anywhere and started again. It is the only undo, both for an error and after a
//! crash.
//!
//! Guarantees: a damaged journal is detected (checksums), kept under another name, and reported. What others enable,
//! disable or mask meanwhile is left alone. Assumption: nobody else changes the managed paths meanwhile.

mod links;
mod undo;

use std::collections::BTreeSet;
use std::io::{self, Read};

use desired::{OsWanted, sha256};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::disk::found::{Attributes, Found, FsError};
use crate::disk::root::{Root, hex, split};
use crate::disk::xattr::FileMetadata;
use crate::error::Error;
use crate::paths::{JOURNAL_DIR, STATE_DIR};
use crate::plan::HostPlan;
use crate::plan::os::OsChange;
use crate::plan::step::Step;
use crate::record::{Boot, Names};
use crate::system::os::Token;
use crate::system::systemd::ServiceAction;
use crate::transaction::shadow;
use links::Links;

/// The journal of a change that is in progress.
const BEGIN: &str = "/var/lib/machine-config-daemon/journal/begin.json";
/// The journal of a committed change.
const DONE: &str = "/var/lib/machine-config-daemon/journal/done.json";
/// The journal of a change that has been undone.
const UNDONE: &str = "/var/lib/machine-config-daemon/journal/undone.json";
/// The journal of a committed change whose boot has come up as planned.
const FINALISED: &str = "/var/lib/machine-config-daemon/journal/finalised.json";
/// The old contents of files, concatenated.
const DATA: &str = "/var/lib/machine-config-daemon/journal/undo.data";
/// Exists when services may have been reloaded or restarted for the change.
const SERVICES: &str = "/var/lib/machine-config-daemon/journal/services";
/// Mode and owner of the journal's files: only root may read them, because old contents may be secret.
const PRIVATE: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };
/// The same for folders.
const PRIVATE_DIR: Attributes = Attributes { mode: 0o700, uid: 0, gid: 0 };
/// How many damaged journals are kept for people to examine.
const DAMAGED_KEPT: usize = 3;
/// Space per path for the journal's own text and for partly filled blocks.
const SLACK: u64 = 8 * 1024;

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
struct Before {
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
    Older(OsWanted, OsWanted),
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
    before: Vec<Before>,
    /// Passwords that are set.
    #[serde(default)]
    passwords: Vec<shadow::Before>,
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
}

/// The format of the journal. A reader knows all formats up to its own. A format gets a new number if it changes what
/// undo has to do.
const FORMAT: u32 = 4;
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
            Self::Damaged(why) => put_away(root, path, why),
            // It is intact: the version that wrote it can use it.
            Self::Newer(found) => Error::JournalNewer { path, found, known: FORMAT },
        }
    }
}

/// The journal with its checksum, as it is in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
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
    /// Undone, with remains to clear.
    Undone,
}

impl Journal {
    /// Records what the plan will change. Writes only to the journal's own folder.
    pub(crate) fn begin(
        root: &Root,
        plan: &HostPlan,
        before_os: Option<Token>,
        boot: Boot,
    ) -> Result<Self, Error> {
        let mut before = Vec::new();
        let mut seen = BTreeSet::new();
        let mut aside = Vec::new();
        for step in &plan.steps {
            for path in step.paths() {
                // Our own folders stay private: their old mode is not restored.
                let folder = matches!(step, Step::MakeDir { .. } | Step::RemoveDir { .. })
                    && !desired::paths::is_reserved(path);
                note(root, path, folder, &mut seen, &mut before)?;
            }
            if let Step::MoveAside { path, to, .. } = step {
                // The undo would take what exists there for what was moved aside.
                if !root.found(to)?.is_absent() {
                    return Err(FsError::new("move something to", to, io::ErrorKind::AlreadyExists).into());
                }
                aside.push((path.clone(), to.clone()));
            }
        }
        for b in &mut before {
            b.same_as = plan.hard_links.get(&b.path).cloned();
        }
        space(root, plan)?;
        let files: Vec<usize> = before
            .iter()
            .enumerate()
            .filter(|(_, b)| matches!(b.was, PriorState::File { .. }))
            .map(|(i, _)| i)
            .collect();
        root.make_parents(STATE_DIR)?;
        root.make_dir(STATE_DIR, PRIVATE_DIR)?;
        root.make_dir(JOURNAL_DIR, PRIVATE_DIR)?;
        let paths = files.iter().filter_map(|i| before.get(*i)).map(|b| b.path.clone()).collect();
        let mut data = Data { root, paths, at: None, next: 0, done: Vec::new() };
        root.write(DATA, &mut data, PRIVATE)?;
        let mut place = 0;
        for (i, (length, sum)) in files.into_iter().zip(data.done) {
            if let Some(Before { was: PriorState::File { offset, len, sha256, .. }, .. }) = before.get_mut(i)
            {
                (*offset, *len, *sha256) = (place, length, sum);
                place += length;
            }
        }
        let touches = |f: &dyn Fn(&Step) -> bool| plan.steps.iter().any(f);
        let links = if touches(&|s| matches!(s, Step::Units { .. })) {
            Some(Links { units: Some(links::concerned(root, &plan.steps)?), ..Links::read(root)? })
        } else {
            None
        };
        let mut passwords = Vec::new();
        for step in &plan.steps {
            if let Step::Password { user, hash, .. } = step {
                passwords.extend(shadow::Before::read(root, user, &hash.0)?);
            }
        }
        let is_new =
            |b: &Before| b.same_as.is_some() || matches!(b.was, PriorState::Dir { attributes: Some(_) });
        let journal = Self {
            format: match &before_os {
                Some(_) => FORMAT,
                None if before.iter().any(is_new) => FORMAT_WITHOUT_OS,
                None => FORMAT_WITHOUT_FOLDERS,
            },
            names: plan.names.clone(),
            steps: plan.steps.iter().map(ToString::to_string).collect(),
            before,
            passwords,
            aside,
            links,
            os: before_os
                .zip(plan.os_change())
                .map(|(before, change)| OsUndo::Staged { before, change: Box::new(change.clone()) }),
            services: plan
                .steps
                .iter()
                .filter_map(|s| match s {
                    Step::Service { action, unit } => Some((*action, unit.clone())),
                    _ => None,
                })
                .collect(),
            daemon_reload: touches(&|s| matches!(s, Step::DaemonReload)),
            boot,
            sshd: plan.steps.iter().find_map(|s| match s {
                Step::TellSshd { unit } => Some(unit.clone()),
                _ => None,
            }),
        };
        root.write_bytes(BEGIN, &journal.seal()?, PRIVATE)?;
        Ok(journal)
    }

    fn seal(&self) -> Result<Vec<u8>, Error> {
        let config =
            |e: serde_json::Error| Error::Config { name: self.names.desired.clone(), why: e.to_string() };
        let journal = serde_json::to_string(self).map_err(config)?;
        let sealed = Sealed { format: self.format, sha256: sha256(journal.as_bytes()), journal };
        serde_json::to_vec(&sealed).map_err(config)
    }

    /// The state of the last change. A journal that cannot be read is renamed and kept.
    pub(crate) fn stage(root: &Root) -> Result<Stage, Error> {
        if let Some(bytes) = root.read_if_there(BEGIN)? {
            return match Self::unseal(&bytes) {
                Ok(journal) => Ok(Stage::Begun(journal)),
                Err(why) => Err(why.at(root, BEGIN)),
            };
        }
        if let Some(bytes) = root.read_if_there(DONE)? {
            return match Self::unseal(&bytes) {
                Ok(journal) => Ok(Stage::Done(journal)),
                Err(why) => Err(why.at(root, DONE)),
            };
        }
        let left = !root.list(JOURNAL_DIR)?.iter().all(|n| n.starts_with("damaged-"));
        Ok(if left { Stage::Undone } else { Stage::Nothing })
    }

    fn unseal(bytes: &[u8]) -> Result<Self, Unusable> {
        let damaged = |why: String| Unusable::Damaged(why);
        let format = serde_json::from_slice::<Format>(bytes).map_or(0, |f| f.format);
        if format > FORMAT {
            return Err(Unusable::Newer(format));
        }
        let sealed: Sealed = api::shape::read_bytes(bytes).map_err(|e| damaged(e.to_string()))?;
        if sealed.format == 0 || sha256(sealed.journal.as_bytes()) != sealed.sha256 {
            return Err(damaged("its checksum does not match".to_owned()));
        }
        let journal: Self =
            api::shape::read_bytes(sealed.journal.as_bytes()).map_err(|e| damaged(e.to_string()))?;
        if ![0, sealed.format].contains(&journal.format) && sealed.format != first_format() {
            return Err(damaged("its format number does not match its content".to_owned()));
        }
        Ok(journal)
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
        for path in [BEGIN, DONE, UNDONE, FINALISED, DATA, SERVICES] {
            root.discard_temporary(path)?;
        }
        // The file that holds the state of the change is removed last.
        for path in [DATA, SERVICES, DONE, UNDONE, FINALISED] {
            root.remove(path)?;
        }
        Ok(())
    }
}

/// Records a path and the missing folders above it, outermost first. Mode and owner of a folder are recorded if it is
/// the `folder` that a step changes.
fn note(
    root: &Root,
    path: &str,
    folder: bool,
    seen: &mut BTreeSet<String>,
    before: &mut Vec<Before>,
) -> Result<(), FsError> {
    let found = || root.found(path);
    let attributes = |found: &Found| match found {
        Found::Dir { mode, uid, gid } if folder => Some(Attributes { mode: *mode, uid: *uid, gid: *gid }),
        _ => None,
    };
    if !seen.insert(path.to_owned()) {
        if let Some(Before { was: PriorState::Dir { attributes: known @ None }, .. }) =
            before.iter_mut().find(|b| folder && b.path == path)
        {
            *known = attributes(&found()?);
        }
        return Ok(());
    }
    let found = found()?;
    if found.is_absent()
        && let Ok((dir, _)) = split(path)
        && dir != "/"
    {
        note(root, dir, false, seen, before)?;
    }
    let was = match found {
        Found::Absent | Found::NoParentFolder { .. } => PriorState::Absent,
        Found::Link { target, uid, gid } => PriorState::Link { target, uid, gid },
        Found::File { mode, uid, gid, len, sha256, .. } => PriorState::File {
            attributes: Attributes { mode, uid, gid },
            like: root.like(path)?,
            offset: 0,
            len,
            sha256,
        },
        Found::Dir { .. } | Found::Other => PriorState::Dir { attributes: attributes(&found) },
    };
    before.push(Before { path: path.to_owned(), same_as: None, was });
    Ok(())
}

/// Refuses a change for which there is not enough space.
pub(crate) fn space(root: &Root, plan: &HostPlan) -> Result<(), Error> {
    // For each file system: its device, the free and the needed bytes, and the first path that needs them.
    let mut need: Vec<(u64, u64, u64, String)> = Vec::new();
    let mut add = |path: &str, bytes: u64| -> Result<(), Error> {
        let (dev, free) = root.space(path)?;
        match need.iter_mut().find(|n| n.0 == dev) {
            Some(n) => n.2 = n.2.saturating_add(bytes),
            None => need.push((dev, free, bytes, path.to_owned())),
        }
        Ok(())
    };
    let kept: BTreeSet<&str> = plan.steps.iter().flat_map(Step::paths).collect();
    for path in kept {
        let len = root.len(path)?;
        if len > 0 {
            add(JOURNAL_DIR, len.saturating_add(SLACK))?;
        }
    }
    for step in &plan.steps {
        let (path, bytes) = match step {
            Step::Write { path, content, .. } => (path, content.bytes().len() as u64),
            // A saved original takes space in addition to the file that replaces it.
            Step::Copy { from, to, .. } => (to, root.len(from)?),
            _ => continue,
        };
        add(path, bytes.saturating_add(SLACK))?;
    }
    match need.iter().find(|(_, free, bytes, _)| bytes > free) {
        Some((_, free, need, path)) => Err(Error::NoSpace { path: path.clone(), need: *need, free: *free }),
        None => Ok(()),
    }
}

/// Renames a damaged journal and its old contents, so that the daemon can go on and none of the host's own data is
/// lost.
fn put_away(root: &Root, path: &str, why: String) -> Error {
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

/// Reads old contents one file after another, and records the length and hash of each.
struct Data<'r> {
    root: &'r Root,
    paths: Vec<String>,
    at: Option<(std::fs::File, u64, Sha256)>,
    next: usize,
    done: Vec<(u64, String)>,
}

impl Read for Data<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some((file, len, sha)) = &mut self.at {
                let n = file.read(buffer)?;
                if n > 0 {
                    sha.update(buffer.get(..n).unwrap_or_default());
                    *len += n as u64;
                    return Ok(n);
                }
                if let Some((_, len, sha)) = self.at.take() {
                    self.done.push((len, hex(&sha.finalize())));
                }
            }
            let Some(path) = self.paths.get(self.next) else { return Ok(0) };
            self.next += 1;
            self.at = Some((self.root.reader(path).map_err(|e| e.source)?, 0, Sha256::new()));
        }
    }
}
