//! Inspects the host before a change is planned, or before its disk is compared with a config. The result is
//! [`Facts`]: everything that the pure parts of this crate need to know. It changes none of the host's own files.
//!
//! Not here: what is decided from the facts (see `plan`, `drift`).

mod logins;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use desired::{CORE, DEV_NULL, DesiredHost, DesiredPath, OsField, has_contents};

use crate::disk::fs_error::FsError;
use crate::disk::obstacle::{InFolder, Obstacle};
use crate::disk::path_state::PathState;
use crate::disk::root::{Root, split};
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::Change;
use crate::plan::disruption::Changes;
use crate::plan::effects::{sysctl, table};
use crate::plan::facts::{EffectFacts, Facts, PathFacts};
use crate::plan::os_before::asks_for_origin;
use crate::plan::secret::Secret;
use crate::plan::stale::LEAKED;
use crate::plan::trust::TrustTool;
use crate::record::RebootStatus;
use crate::system::os::origin::RecordedOs;
use crate::system::os_release::OsRelease;
use crate::system::unit_file::{Install, is_template, is_unit_name, template_of};
use crate::system::users::{Users, hash_of};

/// Seconds in a day.
const DAY: u64 = 86_400;

impl Host {
    /// Gathers all that the plan of a change needs to know. Changes nothing.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn inspect(&mut self, change: &Change) -> Result<Facts, Error> {
        if !change.old.refused.is_empty() {
            let findings = change.old.refused.len();
            tracing::warn!(findings, "the current config has entries that would be refused today");
        }
        let mut facts = self.change_facts(&change.old, &change.new, change.needs_os())?;
        self.origin_facts(change, &mut facts)?;
        Ok(facts)
    }

    /// What the host ran before a config named an image, and what it runs now, as far as the change depends on it.
    fn origin_facts(&mut self, change: &Change, facts: &mut Facts) -> Result<(), Error> {
        if facts.os.is_none() || facts.os_refused.contains_key(&OsField::Image) {
            return Ok(());
        }
        facts.os_before = RecordedOs::read(self.root.text(paths::OS_BEFORE)?.as_deref());
        if asks_for_origin(&change.old, &change.new, &facts.os_before, change.is_of_host()) {
            facts.os_origin = self.os.origin()?;
        }
        Ok(())
    }

    /// All that a change needs to know. Who can log in, and how, is examined only if the change could affect logins.
    fn change_facts(&mut self, old: &DesiredHost, new: &DesiredHost, os: bool) -> Result<Facts, Error> {
        let configs = [old, new];
        let mut facts = self.facts(&configs)?;
        if os || facts.force {
            self.os_facts(&mut facts)?;
        }
        if configs.iter().any(|c| !c.config.passwd.users.is_empty()) {
            self.logins(old, new, &mut facts)?;
        }
        Ok(facts)
    }

    /// What a plan between these configs needs to know of the disk and the units.
    pub(crate) fn facts(&mut self, configs: &[&DesiredHost]) -> Result<Facts, Error> {
        let root = self.root();
        let text = |path: &str| root.text(path);
        let mut facts = Facts {
            owners: root.options().owners,
            users: Users::read(root)?,
            core_hash: text(paths::SHADOW)?.and_then(|t| hash_of(&t, CORE)).map(Secret),
            force: !root.found(paths::FORCE_FILE)?.is_absent(),
            fips: match text(paths::FIPS_ENABLED)?.as_deref().map(str::trim) {
                Some("1") => Some(true),
                Some("0") => Some(false),
                _ => None,
            },
            os_name: OsRelease::read(root)?.name,
            day: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY,
            ..Facts::default()
        };
        facts.trust_tool = TrustTool::find(|path| root.found(path))?;
        managed_paths(root, configs, &mut facts)?;
        for name in configs.iter().flat_map(|c| &c.config.systemd.units).map(|u| &u.name) {
            for dir in paths::UNIT_DIRS {
                let path = format!("{dir}/{name}");
                if split(&path).is_err() || root.found(&path)?.is_absent() {
                    continue;
                }
                if dir != paths::UNITS_DIR {
                    facts.vendor_units.insert(name.clone());
                }
                if is_template(name)
                    && let Some(text) = root.text(&path)?
                    && let Some(default) = Install::parse(&text).default_instance
                {
                    facts.default_instances.entry(name.clone()).or_insert(default);
                }
            }
        }
        facts.unit_files = unit_files(root)?;
        for name in
            root.list(paths::UNITS_DIR)?.into_iter().filter(|n| template_of(n).is_some_and(|t| t != *n))
        {
            let path = paths::unit(&name);
            if matches!(root.found(&path)?, PathState::Link { target, .. } if target == DEV_NULL) {
                facts.masked_instances.insert(name);
            }
        }
        for name in configs.iter().flat_map(|c| &c.config.systemd.units).map(|u| &u.name) {
            if let Some(state) = self.systemd.state(name)? {
                facts.unit_states.insert(name.clone(), state);
            }
        }
        facts.boot = self.boot()?;
        facts.os_failure = self.os_failure()?;
        facts.effects = Some(self.effect_facts(configs)?);
        facts.trial_failure = self.trial_failure()?;
        Ok(facts)
    }

    /// What a plan needs to know of the operating system. It is asked only for plans that change it: a back end may have
    /// to start a service for its answer.
    fn os_facts(&mut self, facts: &mut Facts) -> Result<(), Error> {
        for field in OsField::ALL {
            match self.os.refuses(field) {
                Some(why) => drop(facts.os_refused.insert(field, why)),
                None => facts.os_consent.extend(self.os.needs_consent(field).map(|how| (field, how))),
            }
        }
        if facts.os_refused.len() < OsField::ALL.len() {
            facts.os = Some(self.os.status()?);
        }
        facts.os_live = self.os.can_apply_live();
        if facts.os_live {
            // A record that cannot be read does not prevent another try.
            let refused = self.root.text(paths::LIVE_REFUSED)?;
            facts.live_refused = refused.and_then(|text| serde_json::from_str(&text).ok());
        }
        facts.os_not_back = self.os.not_brought_back()?;
        if !facts.os_refused.contains_key(&OsField::KernelArguments) {
            facts.argument_rules = self.os.argument_rules()?;
        }
        Ok(())
    }

    /// What rows of the table need to know for a change between two configs, or for a repair of one.
    fn effect_facts(&mut self, configs: &[&DesiredHost]) -> Result<EffectFacts, Error> {
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

    fn parameters(&self, configs: &[&DesiredHost], facts: &mut EffectFacts) -> Result<(), Error> {
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
            Some(bytes) => api::formats::shape::read_bytes(&bytes).map_err(|e| Error::Config {
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

/// The names of all unit files.
pub(crate) fn unit_files(root: &Root) -> Result<BTreeSet<String>, FsError> {
    let mut all = BTreeSet::new();
    for dir in paths::UNIT_DIRS.into_iter().chain(paths::GENERATED_UNIT_DIRS) {
        all.extend(root.list(dir)?.into_iter().filter(|name| is_unit_name(name)));
    }
    Ok(all)
}

/// Every path that a plan between the configs may touch: what exists there, and any obstacle.
fn managed_paths(root: &Root, configs: &[&DesiredHost], facts: &mut Facts) -> Result<(), Error> {
    let mut folders: BTreeMap<String, InFolder> = BTreeMap::new();
    let (owner_paths, closed, trust_tool) = (&mut facts.paths, &mut facts.closed, &facts.trust_tool);
    let mut inspect = |path: String| -> Result<(), FsError> {
        let Entry::Vacant(entry) = owner_paths.entry(path) else { return Ok(()) };
        let at = path_facts(root, entry.key(), &mut folders)?;
        entry.insert(at);
        Ok(())
    };
    for (path, _) in configs.iter().flat_map(|c| &c.paths) {
        if !root.is_open_to_all(path) {
            closed.insert(path.clone());
        }
        inspect(paths::original(path))?;
        inspect(paths::no_original(path))?;
        inspect(path.clone())?;
        if let Some(link) = trust_tool.as_ref().and_then(|tool| tool.link(path)) {
            inspect(link)?;
        }
    }
    for (path, want) in configs.iter().flat_map(|c| &c.paths) {
        match want {
            DesiredPath::Link { target, hard: true, .. } if split(target).is_ok() => inspect(target.clone())?,
            DesiredPath::Dir { .. } => inspect(paths::original_dir(path))?,
            _ => {}
        }
    }
    let fixed = [
        paths::CURRENT_CONFIG,
        paths::CURRENT_IMAGE,
        paths::REBOOT_PENDING,
        paths::PASSWD,
        paths::PASSWD_BACKUP,
        paths::SHADOW,
        paths::ORIGINALS,
        paths::UNITS_PROBE,
        paths::SSHD_DROPIN_RECORD,
        paths::OS_FAILURE,
        paths::OS_BEFORE,
        paths::LIVE_REFUSED,
        paths::PARAMETERS_BEFORE,
        paths::TRIAL_FAILURE,
    ];
    for path in fixed.into_iter().chain(LEAKED) {
        inspect(path.to_owned())?;
    }
    for (path, want) in configs.iter().flat_map(|c| &c.paths) {
        match want {
            DesiredPath::Link { target, hard: true, .. }
                if split(target).is_ok() && root.same_file(path, target) =>
            {
                facts.same_files.insert(path.clone());
            }
            DesiredPath::Dir { .. } => {
                let kept = paths::original_dir(path);
                if let Some(bytes) = root.read_if_there(&kept)? {
                    let attributes = api::formats::shape::read_bytes(&bytes).map_err(|e| Error::Config {
                        name: kept,
                        why: format!("{e}; remove it; {path} then stays as it is when its config is removed"),
                    })?;
                    facts.original_dirs.insert(path.clone(), attributes);
                }
                // The first config is the one in effect.
                if let Some(old) = configs.first()
                    && !facts.found(&paths::original(path)).is_absent()
                    && let Some(other) = foreign_path_in(root, old, path)?
                {
                    facts.not_ours.insert(path.clone(), other);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// What exists at a path, and any obstacle to changing it. Each folder is inspected only once.
fn path_facts(
    root: &Root,
    path: &str,
    folders: &mut BTreeMap<String, InFolder>,
) -> Result<PathFacts, FsError> {
    let (found, is_mount_point) = root.inspect(path)?;
    let own_obstacle = match &found {
        PathState::Dir { .. } => root.own_obstacle(path)?,
        _ => None,
    };
    // A path that cannot be split is refused elsewhere.
    let Ok((dir, _)) = split(path) else { return Ok(PathFacts { found, obstacle: None, own_obstacle }) };
    let in_folder = match folders.entry(dir.to_owned()) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(root.folder_obstacle(path)?),
    };
    let obstacle = in_folder.clone().or_else(|| is_mount_point.then_some(Obstacle::MountPoint));
    Ok(PathFacts { found, obstacle, own_obstacle })
}

/// A path in a folder that the config did not put there.
fn foreign_path_in(root: &Root, config: &DesiredHost, folder: &str) -> Result<Option<String>, FsError> {
    if !matches!(root.found(folder)?, PathState::Dir { .. }) {
        return Ok(None);
    }
    for name in root.list(folder)? {
        let path = format!("{folder}/{name}");
        let other = match config.at(&path) {
            None | Some(DesiredPath::Nothing) => Some(path),
            Some(DesiredPath::Dir { .. }) => foreign_path_in(root, config, &path)?,
            Some(_) => None,
        };
        if other.is_some() {
            return Ok(other);
        }
    }
    Ok(None)
}
