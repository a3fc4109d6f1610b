//! Changes the packages as it was resolved, and back.
//!
//! Not here: which packages (see `resolve`).

use super::packages::{Package, State};
use super::{OrdinaryHost, Packages, os};
use crate::system::os::OsError;

impl OrdinaryHost {
    /// Brings the packages to what was resolved.
    pub(super) fn change(&mut self, packages: &Packages) -> Result<(), OsError> {
        let manager = self.manager()?;
        let mut runner = self.runner();
        if !packages.install.is_empty() {
            manager.install(&mut runner, &packages.install, &packages.needed)?;
        }
        if !packages.remove.is_empty() {
            let names: Vec<String> = packages.remove.iter().map(|p| p.name.clone()).collect();
            let goes = manager.removes(&mut runner, &names)?;
            if let Some(by) = goes.iter().find(|n| !names.contains(n)) {
                return Err(os(format!(
                    "{} cannot be removed, because {by} needs it; keep that extension in the MachineConfig",
                    names.join(", ")
                )));
            }
            manager.remove(&mut runner, &names, false)?;
        }
        let now = manager.installed(&mut runner)?;
        let has = |p: &Package| now.get(&p.name).is_some_and(|(v, s)| *v == p.version && *s == State::Whole);
        if let Some(lost) = packages.install.iter().find(|p| !has(p)) {
            return Err(os(format!(
                "{} reported success, but {} {} is not installed",
                manager.name(),
                lost.name,
                lost.version
            )));
        }
        match packages.remove.iter().find(|p| has(p)) {
            Some(left) => {
                Err(os(format!("{} reported success, but {} is still installed", manager.name(), left.name)))
            }
            None => Ok(()),
        }
    }

    /// Undoes what [`OrdinaryHost::change`] did, or a part of it.
    pub(super) fn change_back(&mut self, packages: &Packages) -> Result<(), OsError> {
        if packages.install.is_empty() && packages.remove.is_empty() {
            return Ok(());
        }
        let manager = self.manager()?;
        let mut runner = self.runner();
        // Whatever fails here may be what is undone.
        let new = packages.install.iter().filter(|p| !packages.left.contains(&p.name));
        let brought: Vec<String> = new.map(|p| p.name.clone()).collect();
        match manager.repair(&mut runner, &brought) {
            Err(error) if error.killed => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "the interrupted package transaction could not be completed; undoing it");
            }
            Ok(()) => {}
        }
        let now = manager.installed(&mut runner)?;
        let there = |p: &&Package| now.get(&p.name).is_some_and(|(_, s)| *s != State::ConfigFiles);
        let came: Vec<String> = packages.install.iter().filter(there).map(|p| p.name.clone()).collect();
        if !came.is_empty() {
            let goes = manager.removes(&mut runner, &came)?;
            let others: Vec<String> = goes.iter().filter(|n| !came.contains(n)).cloned().collect();
            if !others.is_empty() {
                return Err(os(format!(
                    "{} cannot be taken back, because packages that were installed meanwhile need it: {}; remove those",
                    came.join(", "),
                    others.join(", ")
                )));
            }
            let (kept, whole): (Vec<_>, Vec<_>) = came.into_iter().partition(|n| packages.left.contains(n));
            for (names, purge) in [(whole, true), (kept, false)] {
                if !names.is_empty() {
                    manager.remove(&mut runner, &names, purge)?;
                }
            }
        }
        let gone: Vec<Package> = packages
            .remove
            .iter()
            .filter(|p| now.get(&p.name).is_none_or(|(_, s)| *s != State::Whole))
            .cloned()
            .collect();
        if gone.is_empty() { Ok(()) } else { manager.install(&mut runner, &gone, &[]) }
    }
}
