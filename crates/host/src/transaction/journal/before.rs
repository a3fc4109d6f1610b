//! Recording what exists before a change: the state of each path, and the old contents of files.
//!
//! Not here: how it is restored (see `undo`).

use std::collections::BTreeSet;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

use super::{Before, PriorState};
use crate::disk::found::{Attributes, Found, FsError};
use crate::disk::root::{Root, hex, split};

/// Records a path and the missing folders above it, outermost first. Mode and owner of a folder are recorded if it is
/// the `folder` that a step changes.
pub(super) fn note(
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

/// Reads old contents one file after another, and records the length and hash of each.
pub(super) struct Data<'r> {
    pub(super) root: &'r Root,
    pub(super) paths: Vec<String>,
    pub(super) at: Option<(std::fs::File, u64, Sha256)>,
    pub(super) next: usize,
    pub(super) done: Vec<(u64, String)>,
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
