//! The steps that enable, disable, preset and mask units. Pure.
//!
//! Not here: what a unit's `[Install]` section asks for (see `unit_file`). systemd itself makes the links.
//!
//! Sources: systemctl(1), systemd.unit(5).

use desired::{DEV_NULL, DesiredHost, DesiredPath, has_contents};
use ignition::Unit;

use crate::disk::root::split;
use crate::paths;
use crate::plan::step::{Replaces, Step, UnitAction};
use crate::plan::steps::Steps;
use crate::system::systemd::UnitFileState;
use crate::system::unit_file::{Install, instance, is_template, is_unit_name, template_of};

impl Steps<'_> {
    pub(crate) fn state(&self, unit: &str) -> Option<&UnitFileState> {
        self.facts.unit_states.get(unit)
    }

    pub(crate) fn units(&mut self, action: UnitAction, units: Vec<String>) -> bool {
        if units.is_empty() {
            return false;
        }
        self.steps.push(Step::Units { action, units });
        true
    }

    /// Disables units whose file changes, so that the links of an old `[Install]` section are removed, and units that
    /// are removed. Returns their names.
    pub(crate) fn disable_rewritten(&mut self) -> Vec<String> {
        let mut disable = Vec::new();
        for u in &self.new.config.systemd.units {
            let path = paths::unit(&u.name);
            let enabled = self.state(&u.name).is_some_and(UnitFileState::is_enabled);
            let want = self.new.at(&path).cloned();
            if enabled && has_contents(u) && want.is_some_and(|w| self.needs_write(&path, &w)) {
                disable.push(u.name.clone());
            }
        }
        // A unit that stays in the config and loses its file: no link may point to that file afterwards. For a unit
        // that will be masked this must happen now, because systemd does not touch the links of masked units.
        for u in &self.new.config.systemd.units {
            let path = paths::unit(&u.name);
            let ours = matches!(self.old.at(&path), Some(DesiredPath::File { .. }));
            let loses = match self.new.at(&path) {
                Some(DesiredPath::Mask) | None => ours && !self.has_host_unit(u),
                Some(DesiredPath::Nothing) => !self.found(&path).is_absent(),
                Some(DesiredPath::File { .. } | DesiredPath::Dir { .. } | DesiredPath::Link { .. }) => false,
            };
            if loses && self.state(&u.name).is_some_and(UnitFileState::is_enabled) {
                disable.push(u.name.clone());
            }
        }
        for u in self.removed_units() {
            if has_contents(u) && u.mask != Some(true) && !self.has_host_unit(u) && is_unit_name(&u.name) {
                disable.push(u.name.clone());
            }
        }
        self.units(UnitAction::Disable, disable.clone());
        disable
    }

    /// The units of the old config that the new one does not have.
    pub(crate) fn removed_units(&self) -> Vec<&Unit> {
        let new = &self.new.config.systemd.units;
        let gone = |u: &&Unit| !new.iter().any(|n| n.name == u.name);
        self.old.config.systemd.units.iter().filter(gone).collect()
    }

    /// Whether the host has its own unit of that name, which takes effect when ours is removed.
    pub(crate) fn has_host_unit(&self, u: &Unit) -> bool {
        let kept = !self.found(&paths::original(&paths::unit(&u.name))).is_absent();
        kept || self.facts.vendor_units.contains(&u.name)
    }

    /// Whether the host will have a file of this unit: the config's, or one of its own that takes effect then.
    pub(crate) fn exists(&self, u: &Unit) -> bool {
        let path = paths::unit(&u.name);
        let shows = match (self.new.at(&path), self.old.at(&path)) {
            (Some(DesiredPath::Nothing), _) => self.facts.vendor_units.contains(&u.name),
            (None, Some(DesiredPath::File { .. } | DesiredPath::Mask)) => self.has_host_unit(u),
            // The old config removed the host's own file: it is restored.
            (None, Some(DesiredPath::Nothing)) if self.has_host_unit(u) => return true,
            _ => true,
        };
        has_contents(u) || shows && self.facts.unit_files.contains(&u.name)
    }

    /// Whether something may have enabled this unit, so that it can be disabled. An instance needs no file of its own
    /// for that.
    pub(crate) fn can_be_disabled(&self, u: &Unit) -> bool {
        self.exists(u) || template_of(&u.name).is_some_and(|t| self.facts.unit_files.contains(&t))
    }

    /// Whether a step so far changes the file of a unit. Before it, the unit may have had nothing to enable.
    pub(crate) fn changes_unit_file(&self, name: &str) -> bool {
        let file = |p: &str| split(p).is_ok_and(|(dir, n)| n == name && paths::UNIT_DIRS.contains(&dir));
        self.steps.iter().any(|s| s.paths().iter().any(|p| file(p)))
    }

    /// Restores masks of instances, the config's and an administrator's, that systemd removes when it disables their
    /// template.
    pub(crate) fn mask_again(&mut self) {
        let acts = |s: &Step, unit: &String| match s {
            Step::Units { action: UnitAction::Disable | UnitAction::Preset, units } => units.contains(unit),
            _ => false,
        };
        let ours = self.new.config.systemd.units.iter().filter(|u| u.mask == Some(true)).map(|u| &u.name);
        let named = |name: &&String| {
            let path = paths::unit(name);
            self.new.at(&path).is_some() || self.old.at(&path).is_some()
        };
        let theirs = self.facts.masked_instances.iter().filter(|name| !named(name));
        let lost = |name: &&String| {
            template_of(name).is_some_and(|t| t != **name && self.steps.iter().any(|s| acts(s, &t)))
        };
        let again: Vec<String> = ours.chain(theirs).filter(lost).map(|name| paths::unit(name)).collect();
        for path in again {
            let target = DEV_NULL.to_owned();
            self.steps.push(Step::Link { path, target, owner: (0, 0), replaces: Replaces::Link });
        }
    }

    /// Whether this change unmasks a unit or its template: links that it had before take effect again.
    pub(crate) fn is_unmasked(&self, name: &str) -> bool {
        let masked = |w: &DesiredHost, name: &str| w.at(&paths::unit(name)) == Some(&DesiredPath::Mask);
        [Some(name.to_owned()), template_of(name)]
            .iter()
            .flatten()
            .any(|n| masked(self.old, n) && !masked(self.new, n))
    }

    /// Whether a unit is a template without a default instance, which cannot be enabled as it is.
    pub(crate) fn lacks_instance(&self, u: &Unit) -> bool {
        if !is_template(&u.name) {
            return false;
        }
        match u.contents.as_deref().filter(|c| !c.is_empty()) {
            Some(text) => {
                let install = Install::parse(text);
                install.default_instance.is_none() && !install.is_empty()
            }
            None => !self.facts.default_instances.contains_key(&u.name),
        }
    }

    /// The unit of the config that keeps another one from being enabled: the default instance of a template, or the
    /// template of an instance, if that one should be disabled or masked. systemd enables and disables both together.
    pub(crate) fn conflicting_unit(&self, u: &Unit) -> Option<String> {
        let other = if is_template(&u.name) {
            let default = match u.contents.as_deref().filter(|c| !c.is_empty()) {
                Some(text) => Install::parse(text).default_instance,
                None => self.facts.default_instances.get(&u.name).cloned(),
            };
            instance(&u.name, &default?)
        } else {
            template_of(&u.name)?
        };
        let off = |o: &&Unit| o.name == other && (o.enabled == Some(false) || o.mask == Some(true));
        self.new.config.systemd.units.iter().find(off).map(|o| o.name.clone())
    }

    /// Adds the steps that enable, disable and preset units. True if there are any.
    pub(crate) fn enablement(&mut self, disabled: &[String]) -> bool {
        let (mut enable, mut disable, mut preset) = (Vec::new(), Vec::new(), Vec::new());
        for (i, u) in self.new.config.systemd.units.iter().enumerate() {
            let name = &u.name;
            // Disabling a template removes the links of all its instances.
            let was_disabled =
                disabled.contains(name) || template_of(name).is_some_and(|t| disabled.contains(&t));
            let asked = self.changes.units.contains(name) || self.facts.force || was_disabled;
            let exists = self.exists(u);
            let state = self.state(name).cloned();
            match u.enabled {
                Some(true) if exists && u.mask != Some(true) => {
                    if self.lacks_instance(u) {
                        let path = format!("spec.config.systemd.units[{i}]");
                        let why = format!("template {name} cannot be enabled without an instance");
                        self.refuse(&path, why, "set DefaultInstance= in [Install], or enable an instance");
                    } else if let Some(instance) = self.conflicting_unit(u) {
                        let path = format!("spec.config.systemd.units[{i}]");
                        let why = format!(
                            "{name} is to be enabled, but {instance}, which systemd enables together \
                                with it, is to be disabled or masked"
                        );
                        self.refuse(&path, why, "enable both, or neither");
                    } else if asked || state.is_some_and(|s| s.is_disabled()) || self.changes_unit_file(name)
                    {
                        enable.push(name.clone());
                    }
                }
                // An instance needs no file of its own: what enabled it can be removed.
                Some(false) if self.can_be_disabled(u) => {
                    if state.as_ref().is_none_or(|s| !s.is_disabled()) && asked
                        || state.is_some_and(|s| s.is_enabled())
                        || self.is_unmasked(name)
                    {
                        disable.push(name.clone());
                    }
                }
                Some(_) => {
                    self.notes
                        .push(format!("{name} is not on this host: it is neither enabled nor disabled"));
                }
                None if !asked || u.mask == Some(true) => {}
                None if !exists || self.lacks_instance(u) => {
                    self.notes.push(format!("{name} has nothing to enable, so its preset is not applied"));
                }
                None => preset.push(name.clone()),
            }
        }
        for u in self.removed_units() {
            if u.mask != Some(true) && self.has_host_unit(u) {
                preset.push(u.name.clone());
            }
        }
        // A preset of a template also affects its instances, and one of an instance affects the template. Therefore
        // what the config says about each of them is applied last.
        for u in &self.new.config.systemd.units {
            let name = &u.name;
            let kin = |p: &String| {
                p != name && (template_of(p).as_ref() == Some(name) || template_of(name).as_ref() == Some(p))
            };
            if !preset.iter().any(kin) {
                continue;
            }
            match u.enabled {
                Some(true)
                    if self.exists(u)
                        && u.mask != Some(true)
                        && !enable.contains(name)
                        && !self.lacks_instance(u) =>
                {
                    enable.push(name.clone());
                }
                Some(false) if self.can_be_disabled(u) && !disable.contains(name) => {
                    disable.push(name.clone());
                }
                _ => {}
            }
        }
        let preset = self.units(UnitAction::Preset, preset);
        let enable = self.units(UnitAction::Enable, enable);
        self.units(UnitAction::Disable, disable) || enable || preset
    }
}
