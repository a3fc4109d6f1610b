//! Boot loader entries as files: what a change of kernel arguments writes, what its undo puts back, and what is tidied when
//! the change is kept. Where systemd-boot counts boots, a changed entry has a counter, and the previous entry is kept
//! beside it (see `boot_counting`).
//!
//! Each step leaves an entry that boots: the old one, or the new one.
//!
//! Not here: which entries are this host's (see `find`).
//!
//! Source: <https://uapi-group.org/specifications/specs/boot_loader_specification/>.

use std::collections::BTreeMap;

use super::boot_counting::{self, Kind};
use super::find::{ENTRY_FOLDERS, Entries};
use super::{Before, BootLoader, SETTINGS, entries, missing};
use crate::system::os::OsError;

/// A changed entry, beside which the previous one is kept.
pub(super) struct PendingEntry {
    pub(super) path: String,
    /// The boot loader counts its boots.
    pub(super) counted: bool,
}

/// The folder and the name of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl BootLoader {
    /// All files of the entry that a path belongs to, with their kinds.
    fn of_entry(&self, path: &str) -> Result<Vec<(String, Kind)>, OsError> {
        let Some((stem, _)) = boot_counting::parts(path) else { return Ok(Vec::new()) };
        let (folder, _) = split(path);
        let mut out = Vec::new();
        for name in self.root.list(folder)? {
            let file = format!("{folder}/{name}");
            match boot_counting::parts(&file) {
                Some((of, kind)) if of == stem => out.push((file, kind)),
                _ => {}
            }
        }
        Ok(out)
    }

    /// Gives every entry these own arguments instead of those that it has.
    pub(super) fn change_entries(
        &self,
        found: &Entries,
        had: &[String],
        own: &[String],
    ) -> Result<(), OsError> {
        let mut changed = Vec::new();
        for path in &found.files {
            let old = self.text(path)?;
            let text = entries::with_arguments(&old, had, own);
            match boot_counting::parts(path) {
                // An entry whose boots are counted already may belong to a kernel that never booted: it is not known to
                // work.
                Some((stem, Kind::Plain)) if found.counts && text != old => {
                    self.has_room(path, text.len())?;
                    self.root.rename(path, &boot_counting::before(stem))?;
                    let path = boot_counting::counted(stem);
                    self.put(&path, &text, SETTINGS)?;
                    changed.push(path);
                }
                _ => {
                    self.put(path, &text, SETTINGS)?;
                    changed.push(path.clone());
                }
            }
        }
        for path in &changed {
            missing(path, own, &entries::arguments_of(&self.text(path)?))?;
        }
        Ok(())
    }

    /// Restores the entries. If a kernel was removed in the meantime, its entry is not restored; the entry of a kernel that
    /// was installed in the meantime gets the previous arguments.
    pub(super) fn restore_entries(
        &self,
        found: &Entries,
        own: &[String],
        before: &Before,
    ) -> Result<(), OsError> {
        let stem = |path: &str| boot_counting::parts(path).map(|(stem, _)| stem.to_owned());
        let was: BTreeMap<String, (&String, &String)> = before
            .files
            .iter()
            .filter_map(|(path, text)| Some((stem(path)?, (path, text.as_ref()?))))
            .collect();
        for path in found.files.iter().filter(|path| stem(path).is_some_and(|stem| !was.contains_key(&stem)))
        {
            let text = entries::with_arguments(&self.text(path)?, own, &before.own);
            self.put(path, &text, SETTINGS)?;
        }
        for (stem, (path, text)) in was {
            self.root.discard_temporary(&boot_counting::counted(&stem))?;
            let there = self.of_entry(path)?;
            if there.is_empty() {
                continue;
            }
            // systemd has taken the boot of a new kernel for a good one meanwhile.
            let plain = boot_counting::plain(&stem);
            let is_good = there.iter().any(|(file, _)| *file == plain);
            let to = if is_good { &plain } else { path };
            self.put(to, text, SETTINGS)?;
            for (file, _) in there.iter().filter(|(file, _)| file != to) {
                self.root.remove(file)?;
            }
        }
        Ok(())
    }

    /// The changed entries beside which the previous one is kept. They are found even where nothing can be changed.
    pub(super) fn waiting_entries(&self) -> Result<Vec<PendingEntry>, OsError> {
        let mut out = Vec::new();
        for folder in ENTRY_FOLDERS {
            for name in self.root.list(folder)? {
                let path = format!("{folder}/{name}");
                if !matches!(boot_counting::parts(&path), Some((_, Kind::Before))) {
                    continue;
                }
                let there = self.of_entry(&path)?;
                let counts = there.into_iter().find(|(_, kind)| matches!(kind, Kind::Counted(_)));
                let (path, counted) = counts.map_or((path, false), |(file, _)| (file, true));
                out.push(PendingEntry { path, counted });
            }
        }
        Ok(out)
    }

    /// Removes the counters of changed entries whose boot was good, and removes the previous entries.
    pub(super) fn discard_previous_entries(&self, found: &Entries) -> Result<(), OsError> {
        for path in &found.files {
            let there = self.of_entry(path)?;
            let Some((stem, _)) = boot_counting::parts(path) else { continue };
            let Some((old, _)) = there.iter().find(|(_, kind)| *kind == Kind::Before) else { continue };
            let plain = boot_counting::plain(stem);
            let mut is_there = there.iter().any(|(file, _)| *file == plain);
            for (file, _) in there.iter().filter(|(_, kind)| matches!(kind, Kind::Counted(_))) {
                // Also over one that somebody has written since, from the old arguments perhaps: this one has booted.
                self.root.rename(file, &plain)?;
                is_there = true;
            }
            if is_there {
                self.root.remove(old)?;
            }
        }
        Ok(())
    }

    /// The entries that have no tries left, so that the previous ones are booted.
    pub(super) fn without_tries(&self, found: &Entries) -> Result<Vec<String>, OsError> {
        let mut out = Vec::new();
        for path in &found.files {
            let there = self.of_entry(path)?;
            if there.iter().any(|(_, kind)| *kind == Kind::Before) {
                let spent = there.into_iter().filter(|(_, kind)| *kind == Kind::Counted(0));
                out.extend(spent.map(|(file, _)| split(&file).1.to_owned()));
            }
        }
        Ok(out)
    }
}
