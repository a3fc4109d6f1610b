//! Inspects what rows of the table of effects need to know, for the paths and units that differ between two configs.
//!
//! Not here: the rows (see `plan::effects`).

use std::collections::{BTreeMap, BTreeSet};

use desired::{Wanted, has_contents};

use crate::disk::found::FsError;
use crate::disk::root::Root;
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::disruption::Changes;
use crate::plan::effects::{sysctl, table};
use crate::plan::facts::EffectFacts;
use crate::record::RebootStatus;

impl Host {
    /// What rows of the table need to know for a change between two configs, or for a repair of one.
    pub(crate) fn effect_facts(&mut self, configs: &[&Wanted]) -> Result<EffectFacts, Error> {
        let mut facts = EffectFacts::default();
        let (files, units) = match configs {
            [old, new] => {
                let changes = Changes::between(old, new);
                (changes.files, changes.units)
            }
            _ => {
                let units = configs.iter().flat_map(|c| &c.config.systemd.units).map(|u| u.name.clone());
                (
                    configs.iter().flat_map(|c| &c.paths).map(|(path, _)| path.clone()).collect(),
                    units.collect(),
                )
            }
        };
        if files.is_empty() && units.is_empty() {
            return Ok(facts);
        }
        let mut asked: BTreeSet<String> = files.iter().flat_map(|path| table::asks_about(path)).collect();
        for unit in &units {
            asked.insert(unit.clone());
            asked.extend(unit.strip_suffix(".socket").map(|stem| format!("{stem}.service")));
        }
        for unit in asked {
            if self.systemd.is_running(&unit)? {
                facts.running.insert(unit.clone());
            } else if self.systemd.state(&unit)?.is_some_and(|state| state.is_enabled()) {
                facts.start_at_boot.insert(unit.clone());
            }
            let own = configs
                .iter()
                .any(|c| c.config.systemd.units.iter().any(|u| u.name == unit && has_contents(u)));
            if !own && let Some(text) = unit_text(&self.root, &unit)? {
                facts.unit_texts.insert(unit, text);
            }
        }
        if self.programs.is_some() {
            for program in table::PROGRAMS {
                if !self.root.found(program)?.is_absent() {
                    facts.programs.insert(program.to_owned());
                }
            }
        }
        for path in &files {
            for hidden in table::hidden_by(path) {
                if !self.root.found(&hidden)?.is_absent() {
                    facts.hiding.insert(path.clone());
                }
            }
        }
        if files.iter().any(|path| path.starts_with("/etc/sysctl.d/")) {
            self.parameters(configs, &mut facts)?;
        }
        facts.soft_reboot = self.systemd.soft_reboots()?.is_some();
        facts.owes_reboot = match self.reboot_status()? {
            RebootStatus::Owed(owed) => !owed.soft,
            RebootStatus::None | RebootStatus::Rebooted(_) => false,
        };
        Ok(facts)
    }

    fn parameters(&self, configs: &[&Wanted], facts: &mut EffectFacts) -> Result<(), Error> {
        let root = &self.root;
        for dir in sysctl::FOLDERS {
            for name in root.list(dir)?.into_iter().filter(|n| n.ends_with(".conf")) {
                let path = format!("{dir}/{name}");
                if let Some(text) = root.text(&path)? {
                    facts.sysctl_files.insert(path, text);
                }
            }
        }
        for (path, _) in
            configs.iter().flat_map(|c| &c.paths).filter(|(p, _)| p.starts_with("/etc/sysctl.d/"))
        {
            let original = paths::original(path);
            if let Some(text) = root.text(&original)? {
                facts.sysctl_files.insert(original, text);
            }
        }
        for key in sysctl::keys(configs) {
            let path = format!("{}/{key}", paths::PARAMETERS);
            match root.text(&path) {
                Ok(None) => {}
                Ok(Some(text)) => drop(facts.parameters.insert(key, Some(text.trim().to_owned()))),
                Err(_) => drop(facts.parameters.insert(key, None)),
            }
        }
        facts.parameters_before = match root.read_if_there(paths::PARAMETERS_BEFORE)? {
            None => BTreeMap::new(),
            Some(bytes) => api::shape::read_bytes(&bytes).map_err(|e| Error::Config {
                name: paths::PARAMETERS_BEFORE.to_owned(),
                why: format!("{e}; remove it; parameters that are no longer set then need a reboot"),
            })?,
        };
        Ok(())
    }
}

/// The text of the host's own file of a unit.
fn unit_text(root: &Root, unit: &str) -> Result<Option<String>, FsError> {
    for dir in paths::UNIT_DIRS {
        if let Some(text) = root.text(&format!("{dir}/{unit}"))? {
            return Ok(Some(text));
        }
    }
    Ok(None)
}
