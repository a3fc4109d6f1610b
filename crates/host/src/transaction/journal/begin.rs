//! The beginning of a journal: whether there is space, and what exists before the change, with the old contents of files.
//! Only then is the host changed.
//!
//! Not here: which links belong to a plan (see `links`), nor how anything is restored (see `undo`).

use std::collections::BTreeSet;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

use super::links::{Links, units_of_steps};
use super::{
    BEGIN, DATA, FORMAT, FORMAT_WITHOUT_EFFECTS, FORMAT_WITHOUT_FOLDERS, FORMAT_WITHOUT_LIVE,
    FORMAT_WITHOUT_OS, FORMAT_WITHOUT_TRIAL, Journal, OsUndo, PathBefore, PriorState,
};
use crate::disk::attributes::{Attributes, PRIVATE, PRIVATE_DIR};
use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::{Root, hex, split};
use crate::error::Error;
use crate::paths::{JOURNAL_DIR, STATE_DIR};
use crate::plan::HostPlan;
use crate::plan::effects::Effect;
use crate::plan::step::Step;
use crate::record::{Boot, Trial};
use crate::system::os::Token;
use crate::transaction::shadow;

/// Space per path for the journal's own text and for partly filled blocks.
const SLACK: u64 = 8 * 1024;

impl Journal {
    /// Records what the plan will change. Writes only to the journal's own folder.
    pub(crate) fn begin(
        root: &Root,
        plan: &HostPlan,
        before_os: Option<Token>,
        boot: Boot,
        trial: Option<Trial>,
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
                // The undo would mistake an existing object there for the one that was moved aside.
                if !root.found(to)?.is_absent() {
                    return Err(FsError::new("move something to", to, io::ErrorKind::AlreadyExists).into());
                }
                aside.push((path.clone(), to.clone()));
            }
        }
        for b in &mut before {
            b.same_as = plan.hard_links.get(&b.path).cloned();
        }
        check_space(root, plan)?;
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
            if let Some(PathBefore { was: PriorState::File { offset, len, sha256, .. }, .. }) =
                before.get_mut(i)
            {
                (*offset, *len, *sha256) = (place, length, sum);
                place += length;
            }
        }
        let touches = |f: &dyn Fn(&Step) -> bool| plan.steps.iter().any(f);
        let links = if touches(&|s| matches!(s, Step::Units { .. })) {
            Some(Links { units: Some(units_of_steps(root, &plan.steps)?), ..Links::read(root)? })
        } else {
            None
        };
        let mut passwords = Vec::new();
        for step in &plan.steps {
            if let Step::Password { user, hash, .. } = step {
                passwords.extend(shadow::PasswordBefore::read(root, user, &hash.0)?);
            }
        }
        let is_new =
            |b: &PathBefore| b.same_as.is_some() || matches!(b.was, PriorState::Dir { attributes: Some(_) });
        let effects: Vec<Effect> = plan
            .steps
            .iter()
            .filter_map(|s| match s {
                Step::Effect(planned) => planned.undo.clone(),
                _ => None,
            })
            .collect();
        let live_allowed = plan.live_allowed && before_os.is_some();
        let journal = Self {
            format: match &before_os {
                _ if plan.is_live() => FORMAT,
                _ if trial.is_some() => FORMAT_WITHOUT_LIVE,
                _ if !effects.is_empty() => FORMAT_WITHOUT_TRIAL,
                Some(_) => FORMAT_WITHOUT_EFFECTS,
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
            effects,
            trial,
            live: plan.is_live(),
            live_allowed,
        };
        root.write_bytes(BEGIN, &journal.to_file()?, PRIVATE)?;
        Ok(journal)
    }
}

/// Refuses a change for which there is not enough space.
pub(crate) fn check_space(root: &Root, plan: &HostPlan) -> Result<(), Error> {
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

/// Records a path and the missing folders above it, outermost first. Mode and owner of a folder are recorded if it is
/// the `folder` that a step changes.
fn note(
    root: &Root,
    path: &str,
    folder: bool,
    seen: &mut BTreeSet<String>,
    before: &mut Vec<PathBefore>,
) -> Result<(), FsError> {
    let found = || root.found(path);
    let attributes = |found: &PathState| match found {
        PathState::Dir { mode, uid, gid } if folder => Some(Attributes { mode: *mode, uid: *uid, gid: *gid }),
        _ => None,
    };
    if !seen.insert(path.to_owned()) {
        if let Some(PathBefore { was: PriorState::Dir { attributes: known @ None }, .. }) =
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
        PathState::Absent | PathState::NoParentFolder { .. } => PriorState::Absent,
        PathState::Link { target, uid, gid } => PriorState::Link { target, uid, gid },
        PathState::File { mode, uid, gid, len, sha256, .. } => PriorState::File {
            attributes: Attributes { mode, uid, gid },
            like: root.metadata_of_file(path)?,
            offset: 0,
            len,
            sha256,
        },
        PathState::Dir { .. } | PathState::Other => PriorState::Dir { attributes: attributes(&found) },
    };
    before.push(PathBefore { path: path.to_owned(), same_as: None, was });
    Ok(())
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
