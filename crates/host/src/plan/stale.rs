//! Steps that remove what only the old config wants, and restore what the host had there. Pure.
//!
//! Not here: how the host's own is saved (see `steps`), nor folders (see `folders`).

use desired::DesiredPath;

use crate::disk::path_state::PathState;
use crate::disk::root::split;
use crate::paths;
use crate::plan::step::Step;
use crate::plan::steps::{STALE, Steps};

impl Steps<'_> {
    /// Removes what only the old config wants, and restores what the host had there.
    pub(crate) fn remove_stale(&mut self) {
        let mut folders = Vec::new();
        for (path, want) in &self.old.paths {
            if self.new.at(path).is_some() || stays_when_unlisted(path) {
                continue;
            }
            if matches!(want, DesiredPath::Dir { .. }) {
                folders.push(path.clone());
                continue;
            }
            let (original, stamp) = (paths::original(path), paths::no_original(path));
            let (kept, stamped) = (!self.found(&original).is_absent(), !self.found(&stamp).is_absent());
            if *want == DesiredPath::Nothing && !kept {
                continue;
            }
            if !matches!(self.found(path), PathState::Absent | PathState::NoParentFolder { .. })
                && !self.reachable(path)
            {
                continue;
            }
            if kept && !stamped {
                let why = "restores the host's own";
                self.steps.push(Step::Copy { from: original.clone(), to: path.clone(), why });
            } else if !self.found(path).is_absent() {
                self.steps.push(Step::Remove { path: path.clone(), why: STALE });
            }
            for (there, path) in [(stamped, stamp), (kept, original)] {
                if there {
                    self.steps
                        .push(Step::Remove { path, why: "bookkeeping of a path that is no longer managed" });
                }
            }
        }
        // The contents of a folder are removed before the folder.
        folders.sort();
        for path in folders.iter().rev() {
            self.release_folder(path);
        }
        for path in LEAKED {
            if matches!(self.found(path), PathState::Link { .. }) {
                self.steps.push(Step::Remove { path: path.to_owned(), why: "left behind by older versions" });
            }
        }
    }
}

/// Whether a path stays although no config has it any more.
pub(crate) fn stays_when_unlisted(path: &str) -> bool {
    paths::NEVER_STALE.contains(&path)
        || split(path).is_ok_and(|(dir, _)| dir.contains(paths::NEVER_STALE_BELOW))
}

/// Links that earlier versions made and never removed.
pub(crate) const LEAKED: [&str; 2] = [
    "/etc/systemd/system/network-online.target.requires/node-valid-hostname.service",
    "/etc/systemd/system/network-online.target.wants/ovs-configuration.service",
];
