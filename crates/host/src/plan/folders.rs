//! The steps that create and change a config's folders, and remove folders that the config no longer has. Pure.
//!
//! Not here: files and links (see `steps`).

use desired::{Content, DesiredPath};
use ignition::Owner;

use crate::disk::attributes::{Attributes, PLAIN};
use crate::disk::path_state::PathState;
use crate::paths;
use crate::plan::step::Step;
use crate::plan::steps::{STALE, Steps};

impl Steps<'_> {
    /// Makes or changes one folder as the new config asks. Its contents are left alone.
    pub(crate) fn reach_dir(
        &mut self,
        path: &str,
        mode: Option<u32>,
        (user, group): (&Owner, &Owner),
        overwrite: Option<bool>,
    ) {
        let now = match self.found(path).clone() {
            PathState::Dir { mode, uid, gid } => Some(Attributes { mode, uid, gid }),
            PathState::Absent => None,
            _ if !self.reachable(path) || !self.may_replace(path, overwrite) => return,
            _ => None,
        };
        let asked = |o: &Owner| o.id.is_some() || o.name.as_deref().is_some_and(|n| !n.is_empty());
        let is = now.unwrap_or(Attributes { mode: crate::disk::root::DIR_MODE, uid: 0, gid: 0 });
        let attributes = Attributes {
            mode: mode.unwrap_or(is.mode),
            uid: if asked(user) { self.id(path, user, "user") } else { is.uid },
            gid: if asked(group) { self.id(path, group, "group") } else { is.gid },
        };
        let kept = paths::original_dir(path);
        match now {
            Some(now) => {
                let known = [kept.clone(), paths::original(path), paths::no_original(path)];
                // If the old config had the folder already, its origin is unknown: it stays when no config names it any more.
                let ours = self.old.at(path).is_some_and(|w| *w != DesiredPath::Nothing);
                if !ours && known.iter().all(|p| self.found(p).is_absent()) {
                    match serde_json::to_vec(&now) {
                        Ok(json) => {
                            self.private_originals();
                            self.write(&kept, Content::new(json), PLAIN);
                        }
                        Err(e) => self.refuse(path, e.to_string(), "choose another path"),
                    }
                }
            }
            None => self.keep_original(path),
        }
        if now.is_none() && !self.found(path).is_absent() {
            self.steps.push(Step::Remove { path: path.to_owned(), why: "a folder takes its place" });
        }
        let same = |now: Attributes| {
            now.mode == attributes.mode
                && (!self.facts.owners || (now.uid, now.gid) == (attributes.uid, attributes.gid))
        };
        if !now.is_some_and(same) {
            self.steps.push(Step::MakeDir { path: path.to_owned(), attributes });
        }
    }

    /// Gives up a folder. A folder of the host's own gets its original mode and owner back. Any other is removed if
    /// nothing is left in it, and a file that it replaced is restored.
    pub(crate) fn release_folder(&mut self, path: &str) {
        let (dir, original, stamp) =
            (paths::original_dir(path), paths::original(path), paths::no_original(path));
        let there = |p: &String| !self.found(p).is_absent();
        let (kept, stamped) = (there(&original), there(&stamp));
        let is_dir = matches!(self.found(path), PathState::Dir { .. });
        if is_dir
            && kept
            && !stamped
            && let Some(holds) = self.remaining_in(path)
        {
            let why = format!(
                "the file that this folder replaced has to be restored, but the folder is not empty: it holds {holds}"
            );
            return self.refuse(path, why, &format!("move {holds} away, or keep the folder in the config"));
        }
        if let Some(attributes) = self.facts.original_dirs.get(path).copied().filter(|_| is_dir) {
            let same = match self.found(path) {
                PathState::Dir { mode, uid, gid } => {
                    *mode == attributes.mode
                        && (!self.facts.owners || (*uid, *gid) == (attributes.uid, attributes.gid))
                }
                _ => false,
            };
            if !same {
                self.steps.push(Step::MakeDir { path: path.to_owned(), attributes });
            }
        } else if is_dir && (stamped || kept) {
            self.steps.push(Step::RemoveDir { path: path.to_owned(), why: STALE });
        } else if is_dir {
            self.notes.push(format!("{path} stays: it is unknown whether the host had it before"));
        }
        if kept && !stamped && (is_dir || self.found(path).is_absent()) {
            let (from, to) = (original.clone(), path.to_owned());
            self.steps.push(Step::Copy { from, to, why: "restores the host's own" });
        }
        for path in [dir, original, stamp] {
            if !self.found(&path).is_absent() {
                self.steps
                    .push(Step::Remove { path, why: "bookkeeping of a path that is no longer managed" });
            }
        }
    }

    /// What is left in a folder after everything that only the old config wants is removed.
    pub(crate) fn remaining_in(&self, folder: &str) -> Option<String> {
        let below = |path: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let there = |path: &String| !self.found(path).is_absent();
        let comes_back = |path: &str| {
            there(&paths::original(path)) && !there(&paths::no_original(path))
                || self.facts.original_dirs.contains_key(path)
        };
        let wanted =
            self.new.paths.iter().find(|(p, want)| below(p) && *want != DesiredPath::Nothing).map(|(p, _)| p);
        let theirs = || self.old.paths.iter().find(|(p, _)| below(p) && comes_back(p)).map(|(p, _)| p);
        self.facts.not_ours.get(folder).or(wanted).or_else(theirs).cloned()
    }
}
