//! Undoes a change by its journal: for an error, and after a crash.
//!
//! Flow: what was renamed aside is renamed back. Every path is compared with its recorded state, and what differs is
//! restored: removals first, then writes, each kind as one batch. Then passwords and enablement links are restored. It
//! compares before it acts, so it can be stopped anywhere and started again.

use std::io::{self, Read, Seek, SeekFrom};

use sha2::{Digest, Sha256};

use super::{BEGIN, DATA, Journal, Links, PathBefore, PriorState, move_aside};
use crate::disk::batch::{FileChange, SavedFile};
use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::{Root, hex, kept_name};
use crate::disk::xattr::FileMetadata;
use crate::error::Error;
use crate::paths::{LIVE_REFUSED, OS_FAILURE, SHADOW, TRIAL_FAILURE, UNITS_PROBE};

/// Records of why a try failed. A plan removes those of earlier tries. One that is there when the change is undone is either still the
/// earlier one, or of this change: it is the reason for the undo, and must outlive it.
const OF_TRIES: [&str; 3] = [OS_FAILURE, TRIAL_FAILURE, LIVE_REFUSED];

impl Journal {
    /// Restores every path to its recorded state. Can be stopped anywhere and started again.
    pub(crate) fn undo(&self, root: &Root) -> Result<(), Error> {
        for (path, to) in self.aside.iter().rev() {
            if !root.found(to)?.is_absent() {
                root.remove_tree(path)?;
                root.rename(to, path)?;
            }
        }
        let busy = match self.restore(root) {
            Err(Error::Fs(e)) if e.source.kind() == io::ErrorKind::StorageFull => {
                // Removing what was newly written frees its space first. The old contents fitted before, so they fit
                // again.
                let differs = self.differs(root)?;
                let new = differs.iter().filter(|b| matches!(b.was, PriorState::File { .. }));
                root.change_all(&new.map(|b| FileChange::Remove(&b.path)).collect::<Vec<_>>())?;
                self.restore(root)?
            }
            other => other?,
        };
        for password in self.passwords.iter().rev() {
            password.put_back(root)?;
        }
        self.restore_links(root)?;
        self.settle(root)?;
        match busy {
            None => Ok(()),
            Some(path) => {
                Err(FsError::new("put back the file at", &path, io::ErrorKind::ResourceBusy).into())
            }
        }
    }

    /// Syncs everything that the undo covers, even if nothing differs: an earlier undo may have ended between its last
    /// change and its sync.
    fn settle(&self, root: &Root) -> Result<(), Error> {
        let paths = self.before.iter().map(|b| b.path.as_str());
        let aside = self.aside.iter().map(|(path, _)| path.as_str());
        let units = self.links.iter().map(|_| UNITS_PROBE);
        let passwords = self.passwords.iter().map(|_| SHADOW);
        Ok(root.sync_around(paths.chain(aside).chain(units).chain(passwords))?)
    }

    /// The paths that differ from their recorded state and are to be restored, last change first.
    fn differs(&self, root: &Root) -> Result<Vec<&PathBefore>, FsError> {
        let mut out = Vec::new();
        for b in self.before.iter().rev() {
            let is_newer = OF_TRIES.contains(&b.path.as_str()) && !root.found(&b.path)?.is_absent();
            if !is_newer && !b.holds(root)? {
                out.push(b);
            }
        }
        Ok(out)
    }

    /// Changes nothing if recorded contents are damaged: what is on the host may be the only good copy, such as a
    /// saved original. A folder on which somebody has mounted something meanwhile cannot be removed. A new one stays,
    /// and a file that it replaced waits until it is unmounted. Returns the path of such a file when all else is
    /// restored.
    fn restore(&self, root: &Root) -> Result<Option<String>, Error> {
        for b in self.before.iter().rev() {
            root.discard_temporary(&b.path)?;
        }
        let mut differs = self.differs(root)?;
        let mut busy = None;
        let mut mounted = Vec::new();
        for b in &differs {
            let (found, is_mount_point) = root.inspect(&b.path)?;
            if !is_mount_point || !matches!(found, PathState::Dir { .. }) {
                continue;
            }
            match &b.was {
                PriorState::Absent => tracing::warn!(
                    path = %b.path,
                    "something was mounted on a folder of the config in the meantime: the folder stays; \
                     unmount that, then remove the folder"
                ),
                PriorState::File { .. } | PriorState::Link { .. } => busy = Some(b.path.clone()),
                PriorState::Dir { .. } => continue,
            }
            mounted.push(b.path.as_str());
        }
        differs.retain(|b| !mounted.contains(&b.path.as_str()));
        let parts: Vec<Option<Part<'_>>> = differs.iter().map(|b| Part::of(root, b)).collect();
        for (b, part) in differs.iter().zip(&parts) {
            if let Some(part) = part
                && !part.is_whole()?
            {
                let why = format!("the kept contents of {} are damaged", b.path);
                return Err(move_aside(root, BEGIN, why));
            }
        }
        let mut gone = Vec::new();
        let mut back = Vec::new();
        for (b, part) in differs.iter().zip(&parts) {
            // A folder of the config that replaced a file.
            if matches!(b.was, PriorState::File { .. } | PriorState::Link { .. })
                && matches!(root.found(&b.path)?, PathState::Dir { .. })
            {
                gone.push(FileChange::RemoveEmptyDir(&b.path));
            }
            match &b.was {
                // A file of the host's own that was restored in place of the folder.
                PriorState::Dir { attributes: Some(_) }
                    if !matches!(root.found(&b.path)?, PathState::Dir { .. }) =>
                {
                    gone.push(FileChange::Remove(&b.path));
                }
                PriorState::Dir { .. } => {}
                PriorState::Absent if matches!(root.found(&b.path)?, PathState::Dir { .. }) => {
                    gone.push(FileChange::RemoveEmptyDir(&b.path));
                }
                PriorState::Absent => gone.push(FileChange::Remove(&b.path)),
                PriorState::Link { target, uid, gid } => {
                    back.push(FileChange::Link(&b.path, target, (*uid, *gid)));
                }
                PriorState::File { attributes, .. } => {
                    back.extend(part.as_ref().map(|p| FileChange::PutBack(&b.path, p, *attributes)));
                }
            }
        }
        root.change_all(&gone)?;
        for b in differs.iter().filter(|b| matches!(b.was, PriorState::File { .. } | PriorState::Link { .. }))
        {
            keep_folder(root, &b.path)?;
        }
        for b in differs.iter().rev() {
            if let PriorState::Dir { attributes: Some(a) } = &b.was {
                root.make_parents(&b.path)?;
                root.make_dir(&b.path, *a)?;
            }
        }
        root.change_all(&back)?;
        // Both names have their contents again. Now they are linked again.
        for b in self.before.iter().filter(|b| !mounted.contains(&b.path.as_str())) {
            let Some(target) = b.same_as.as_ref().filter(|target| !root.same_file(&b.path, target)) else {
                continue;
            };
            // The target may belong to others, who may have removed or changed it. The contents are restored either
            // way.
            if (PathBefore { path: target.clone(), same_as: None, was: b.was.clone() }).holds(root)? {
                root.hard_link(&b.path, target)?;
            } else {
                tracing::warn!(
                    path = %b.path, %target,
                    "the file is back, but is no longer a hard link: its target was removed or changed in the meantime"
                );
            }
        }
        Ok(busy)
    }

    fn restore_links(&self, root: &Root) -> Result<(), Error> {
        let Some(were) = &self.links else { return Ok(()) };
        let are = Links::read(root)?;
        let new = are.links.iter().filter(|l| !were.links.contains(l) && were.belongs_to_change(l));
        let mut gone: Vec<FileChange<'_>> = new.map(|(path, _)| FileChange::Remove(path)).collect();
        let new = are.dirs.iter().filter(|d| !were.dirs.contains(d));
        gone.extend(new.map(|dir| FileChange::RemoveEmptyDir(dir)));
        root.change_all(&gone)?;
        let old = were.links.iter().filter(|l| !are.links.contains(l) && were.belongs_to_change(l));
        let back: Vec<FileChange<'_>> =
            old.map(|(path, target)| FileChange::Link(path, target, (0, 0))).collect();
        root.change_all(&back)?;
        Ok(())
    }
}

/// Renames a folder into which others have put something, so that the file that was there can be restored.
fn keep_folder(root: &Root, path: &str) -> Result<(), FsError> {
    if !matches!(root.found(path)?, PathState::Dir { .. }) {
        return Ok(());
    }
    let mut number = 1;
    let kept = loop {
        let kept = kept_name(path, number);
        if root.found(&kept)?.is_absent() {
            break kept;
        }
        number += 1;
    };
    root.rename(path, &kept)?;
    tracing::warn!(
        %path, %kept,
        "a folder of the config is not empty, but the file that it replaced is restored: the folder was \
         renamed; move what you need out of it, then remove it"
    );
    Ok(())
}

/// The recorded contents of one file.
struct Part<'r> {
    root: &'r Root,
    like: &'r FileMetadata,
    offset: u64,
    len: u64,
    sha256: &'r str,
}

impl<'r> Part<'r> {
    fn of(root: &'r Root, before: &'r PathBefore) -> Option<Self> {
        let PriorState::File { like, offset, len, sha256, .. } = &before.was else { return None };
        Some(Self { root, like, offset: *offset, len: *len, sha256 })
    }

    fn is_whole(&self) -> Result<bool, FsError> {
        let mut sha = Sha256::new();
        let mut contents = self.contents()?;
        io::copy(&mut contents, &mut HashWriter(&mut sha)).map_err(|e| FsError::new("read", DATA, e))?;
        Ok(hex(&sha.finalize()) == self.sha256)
    }
}

impl SavedFile for Part<'_> {
    fn contents(&self) -> Result<Box<dyn Read + '_>, FsError> {
        let mut file = self.root.reader(DATA)?;
        file.seek(SeekFrom::Start(self.offset)).map_err(|e| FsError::new("read", DATA, e))?;
        Ok(Box::new(file.take(self.len)))
    }

    fn like(&self) -> &FileMetadata {
        self.like
    }
}

impl PathBefore {
    /// Whether the path is in its recorded state.
    fn holds(&self, root: &Root) -> Result<bool, FsError> {
        let found = root.found(&self.path)?;
        Ok(match (&self.was, &found) {
            (PriorState::Absent, found) => found.is_absent(),
            (PriorState::Dir { attributes: Some(a) }, PathState::Dir { mode, uid, gid }) => {
                a.mode == *mode && (!root.options().owners || (a.uid, a.gid) == (*uid, *gid))
            }
            (PriorState::Dir { attributes: Some(_) }, _) => false,
            (PriorState::Dir { .. }, _) => true,
            (PriorState::Link { target, .. }, PathState::Link { target: now, .. }) => target == now,
            (
                PriorState::File { attributes: a, sha256: sum, .. },
                PathState::File { mode, uid, gid, sha256, .. },
            ) => {
                let owner = !root.options().owners || (a.uid, a.gid) == (*uid, *gid);
                a.mode == *mode && owner && sum == sha256
            }
            _ => false,
        })
    }
}

struct HashWriter<'h>(&'h mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
