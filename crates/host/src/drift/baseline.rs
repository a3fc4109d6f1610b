//! How the [`Baseline`] of a host comes about: from the parsed config when the config is applied, or from its record once after a
//! restart.
//!
//! ```text
//! DesiredHost (parsed for the update) ─► Baseline ─┬─► comparison (see `compare`)
//!                                                  ├─► watch (see `watch`)
//! record on the disk ──────────────────────────────┴─► Drifted: the contents of what drifted, only when something has
//! ```
//!
//! Not here: contents of files. An agent at rest holds a digest of each, some hundred bytes a path, instead of the
//! parsed config with its megabytes. If something has drifted, its contents are taken from the record of the config on
//! the disk, and only the entries of the drifted paths are parsed.

use std::collections::BTreeSet;

use api::v1::MachineConfigSpec;
use desired::{Content, DesiredHost, DesiredPath, FILE_MODE, FileOrigin, Irreconcilable, sha256};
use ignition::Owner;
use serde_json::Value;

use crate::baseline::Baseline;
use crate::disk::root::Root;
use crate::drift::difference::Drift;
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::sshd::DROPIN;
use crate::record::CurrentConfig;

/// Drift, with the part of the config that says what should be there. Short-lived: it holds contents.
#[derive(Clone)]
pub struct Drifted {
    pub(crate) config: CurrentConfig,
    pub(crate) drifts: Vec<Drift>,
    pub(crate) wanted: DesiredHost,
}

impl std::fmt::Debug for Drifted {
    /// Shows what drifted, and no contents.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { config, drifts, wanted: _ } = self;
        f.debug_struct("Drifted").field("config", config).field("drifts", drifts).finish_non_exhaustive()
    }
}

impl Drifted {
    /// The name of the config.
    #[must_use]
    pub fn config(&self) -> &str {
        &self.config.name
    }

    /// What differs.
    #[must_use]
    pub fn drifts(&self) -> &[Drift] {
        &self.drifts
    }

    /// The entries of the config for the drifted paths.
    #[must_use]
    pub fn desired_host(&self) -> &DesiredHost {
        &self.wanted
    }
}

impl Host {
    /// The baseline of the config that was applied last, from its record. The whole config is parsed for it, unless the
    /// last recovery did so: once after a start of the process, or if another process has changed the record. `None`: no
    /// config was ever applied.
    ///
    /// # Errors
    /// The record cannot be read, or its Ignition config cannot be parsed at all.
    pub fn baseline(&mut self) -> Result<Option<Baseline>, Error> {
        if let Some(made) = self.baseline_of_recovery.take()
            && self.is_current(&made)?
        {
            return Ok(Some(made));
        }
        let Some(config) = self.current_config()? else { return Ok(None) };
        let wanted = in_effect(self.root(), &config.spec)?;
        Ok(Some(Baseline::new(&config.name, record(self.root())?, &wanted)))
    }

    /// The baseline of a config that is parsed already: the one that was just applied, or one that the host should be
    /// in and has no record of. The drop-in that makes the SSH server read the keys is part of it, as it was written.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn baseline_of(&self, name: &str, wanted: DesiredHost) -> Result<Baseline, Error> {
        let wanted = with_dropin(self.root(), wanted)?;
        Ok(Baseline::new(name, record(self.root())?, &wanted))
    }

    /// Whether a baseline is still that of the config that was applied last. Reads the record's bytes, and parses
    /// nothing.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn is_current(&self, baseline: &Baseline) -> Result<bool, Error> {
        Ok(self.record_digest()? == baseline.record)
    }

    /// A digest of the record of the config that was applied last. It stays the same as long as no config is applied or
    /// taken back, by whatever process.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn record_digest(&self) -> Result<String, Error> {
        record(self.root())
    }

    /// The part of a config that says what should be at these drifted paths. Nothing else of the config is parsed.
    ///
    /// # Errors
    /// The Ignition config cannot be parsed.
    pub fn drifted(&self, config: CurrentConfig, drifts: Vec<Drift>) -> Result<Drifted, Error> {
        let paths: BTreeSet<String> = drifts.iter().map(Drift::path).collect();
        let mut wanted = in_effect(self.root(), &entries_for(&config.spec, &paths))?;
        // The drop-in for the SSH server is added if the config has users, whether it has drifted or not.
        wanted.paths.retain(|(path, _)| paths.contains(path));
        wanted.config.passwd = ignition::Passwd::default();
        Ok(Drifted { config, drifts, wanted })
    }
}

/// A digest of all files on the disk that a baseline is made from.
fn record(root: &Root) -> Result<String, Error> {
    let mut all = Vec::new();
    for path in [paths::CURRENT_CONFIG, paths::CURRENT_IMAGE, paths::SSHD_DROPIN_RECORD] {
        let bytes = root.read_if_there(path)?;
        all.push(u8::from(bytes.is_some()));
        let digest = bytes.map(|bytes| sha256(&bytes)).unwrap_or_default();
        all.extend(digest.into_bytes());
    }
    Ok(sha256(&all))
}

/// The config without the files, folders, links and units that these paths do not belong to. All Ignition versions have
/// the same names for these lists and for the key of an entry.
fn entries_for(spec: &MachineConfigSpec, paths: &BTreeSet<String>) -> MachineConfigSpec {
    let text =
        |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let unit = |entry: &Value| {
        let name = text(entry, "name");
        let dropins = entry.get("dropins").and_then(Value::as_array).into_iter().flatten();
        paths.contains(&paths::unit(&name))
            || dropins.into_iter().any(|d| paths.contains(&paths::dropin(&name, &text(d, "name"))))
    };
    let mut config = spec.config.clone();
    let mut retain = |pointer: &str, which: &dyn Fn(&Value) -> bool| {
        let list = config.as_mut().and_then(|c| c.pointer_mut(pointer)).and_then(Value::as_array_mut);
        if let Some(list) = list {
            list.retain(|entry| which(entry));
        }
    };
    for list in ["/storage/files", "/storage/directories", "/storage/links"] {
        retain(list, &|entry| paths.contains(&text(entry, "path")));
    }
    retain("/systemd/units", &unit);
    MachineConfigSpec { config, ..spec.clone() }
}

/// The config that a host is in, parsed, together with the drop-in that makes the SSH server read the keys.
pub(crate) fn in_effect(root: &Root, config: &MachineConfigSpec) -> Result<DesiredHost, Error> {
    with_dropin(root, applied(config)?)
}

/// Adds the drop-in that makes the SSH server read the keys, as it was written.
pub(crate) fn with_dropin(root: &Root, mut wanted: DesiredHost) -> Result<DesiredHost, Error> {
    if let Some(text) = root.read_if_there(paths::SSHD_DROPIN_RECORD)?
        && wanted.at(DROPIN).is_none()
        && !wanted.config.passwd.users.is_empty()
    {
        let (user, group) = (Owner::default(), Owner::default());
        let (content, mode, origin) = (Content::new(text), FILE_MODE, FileOrigin::Agent);
        wanted.paths.put(DROPIN.to_owned(), DesiredPath::File { content, mode, user, group, origin });
    }
    Ok(wanted)
}

/// Parses the config that a host is in, to compare the host with it: without entries that would be refused today,
/// because they were not written as they are given.
///
/// # Errors
/// The Ignition config as a whole cannot be parsed.
pub fn applied(config: &MachineConfigSpec) -> Result<DesiredHost, Error> {
    parsed(config).map(DesiredHost::as_applied)
}

/// Parses a config, with the entries that would be refused today in [`DesiredHost::refused`].
///
/// # Errors
/// The Ignition config as a whole cannot be parsed.
pub fn parsed(config: &MachineConfigSpec) -> Result<DesiredHost, Error> {
    let unreadable = |bad: Vec<Irreconcilable>| Error::Config {
        name: "the config".to_owned(),
        why: bad.first().map(ToString::to_string).unwrap_or_default(),
    };
    DesiredHost::parse(config).map_err(unreadable)
}
