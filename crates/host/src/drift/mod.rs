//! Drift: how the host differs from the config it is in, and the plan that repairs it.
//!
//! Not here: when to look (see `watch`), nor which drift is repaired automatically (the caller's policy).

pub(crate) mod compare;
pub(crate) mod watch;

use std::collections::BTreeSet;

use api::v1::MachineConfigSpec;
use desired::mask::{MAX_SHOWN, OnHost, Side, Why, difference};
use desired::{Content, FILE_MODE, Irreconcilable, Want, Wanted};
use ignition::Owner;

use crate::disk::root::Root;
use crate::drift::compare::{Drift, drifts};
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::disruption::{Changes, disruption};
use crate::plan::policy::{DisruptionPolicy, PolicyAction};
use crate::plan::sshd::DROPIN;
use crate::plan::steps::Steps;
use crate::plan::{Change, HostPlan, hard_links};
use crate::record::{CurrentConfig, Names};

impl Host {
    /// The config that the host is in, together with the drop-in that makes the SSH server read the keys, as it was
    /// written.
    ///
    /// # Errors
    /// The Ignition config as a whole cannot be parsed, or the record of the drop-in cannot be read.
    pub fn in_effect(&self, config: &MachineConfigSpec) -> Result<Wanted, Error> {
        in_effect(self.root(), config)
    }

    /// Every difference between the host and the config that it is in (see [`Host::in_effect`]).
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn drifts_from(&mut self, wanted: &Wanted) -> Result<Vec<Drift>, Error> {
        let facts = self.facts(&[wanted])?;
        Ok(drifts(wanted, &facts))
    }

    /// As [`Host::drifts_from`], before a change to another config. Drift that the change itself overwrites or removes
    /// is left out.
    ///
    /// # Errors
    /// As [`Host::drifts_from`].
    pub fn drifts_in_way(&mut self, change: &Change) -> Result<Vec<Drift>, Error> {
        self.drifts_from(&kept(&change.old, &change.new))
    }

    /// How drifted contents differ, as far as that may be shown (see `desired::mask`): a few lines, or sizes. `None`:
    /// the drift's own text says everything.
    #[must_use]
    pub fn explain(&self, wanted: &Wanted, drift: &Drift) -> Option<String> {
        let Drift::Content { path } = drift else { return None };
        let nothing: &[u8] = &[];
        let (want, mode) = match wanted.at(path)? {
            Want::File { content, mode, .. } => (content.bytes(), *mode),
            Want::Nothing => (nothing, FILE_MODE),
            Want::Mask | Want::Dir { .. } | Want::Link { .. } => return None,
        };
        let short = self.root().read_short(path, MAX_SHOWN).ok()?;
        let mut want = Side::with_mode(want, mode);
        if !self.root().is_open_to_all(path) {
            want.private = Some(Why::Folder);
        }
        let read = short.bytes.as_deref().map(|bytes| Side::with_mode(bytes, short.mode));
        Some(difference(path, want, OnHost { read, len: short.len }))
    }

    /// Plans the repair of these paths and units and nothing else. The disruption policy's actions for them are
    /// carried out, except drains and reboots: only an administrator orders those. Without a policy no service is
    /// reloaded or restarted.
    ///
    /// # Errors
    /// Something cannot be read. The inner error: why the repair is not possible on this host.
    pub fn plan_repair(
        &mut self,
        config: &CurrentConfig,
        drifts: &[Drift],
        policy: Option<&DisruptionPolicy>,
    ) -> Result<Result<HostPlan, Vec<Irreconcilable>>, Error> {
        let mut wanted = self.in_effect(&config.spec)?;
        let paths: BTreeSet<String> = drifts.iter().map(Drift::path).collect();
        wanted.paths.retain(|(p, _)| paths.contains(p));
        wanted.config.passwd = ignition::Passwd::default();
        wanted.config.storage.files.retain(|f| paths.contains(&f.path));
        wanted.config.storage.directories.retain(|d| paths.contains(&d.path));
        wanted.config.storage.links.retain(|l| paths.contains(&l.path));
        wanted.config.systemd.units.retain(|u| {
            paths.contains(&paths::unit(&u.name))
                || u.dropins.iter().any(|d| paths.contains(&paths::dropin(&u.name, &d.name)))
        });
        let facts = self.facts(&[&wanted])?;
        let names = Names { current: config.name.clone(), desired: config.name.clone() };
        let (mut notes, mut bad) = (Vec::new(), Vec::new());
        let told = services_to_restart(&wanted, policy, &mut notes);
        let none = DisruptionPolicy::empty();
        let mut cost =
            disruption(&told, &wanted, &wanted, policy.unwrap_or(&none), &facts, &mut notes, &mut bad);
        cost.reboot.clear();
        cost.drain.clear();
        let units = wanted.config.systemd.units.iter().map(|u| u.name.clone()).collect();
        // The enablement of a unit is examined only if the unit changed. Here that is every unit that is left.
        let changes = Changes { units, ..Changes::default() };
        let mut steps = Steps {
            old: &wanted,
            new: &wanted,
            facts: &facts,
            changes: &changes,
            steps: Vec::new(),
            notes,
            warnings: Vec::new(),
            bad,
        };
        steps.all(&names, &config.spec, &cost);
        Ok(if steps.bad.is_empty() {
            let Steps { steps, notes, warnings, .. } = steps;
            let hard_links = hard_links(&wanted, &facts);
            Ok(HostPlan { names, steps, disruption: cost, notes, warnings, hard_links })
        } else {
            Err(steps.bad)
        })
    }
}

/// As [`Host::in_effect`].
pub(crate) fn in_effect(root: &Root, config: &MachineConfigSpec) -> Result<Wanted, Error> {
    let mut wanted = applied(config)?;
    if let Some(text) = root.read_if_there(paths::SSHD_DROPIN_RECORD)?
        && wanted.at(DROPIN).is_none()
        && !wanted.config.passwd.users.is_empty()
    {
        let (user, group) = (Owner::default(), Owner::default());
        let at = paths::SSHD_DROPIN_RECORD.to_owned();
        let content = Content::new(text);
        wanted.paths.put(DROPIN.to_owned(), Want::File { content, mode: FILE_MODE, user, group, at });
    }
    Ok(wanted)
}

/// Parses the config that a host is in, to compare the host with it.
///
/// # Errors
/// The Ignition config as a whole cannot be parsed.
pub fn applied(config: &MachineConfigSpec) -> Result<Wanted, Error> {
    let unreadable = |bad: Vec<Irreconcilable>| Error::Config {
        name: "the config".to_owned(),
        why: bad.first().map(ToString::to_string).unwrap_or_default(),
    };
    Wanted::parse(config).map(Wanted::as_applied).map_err(unreadable)
}

/// The units and paths that two configs have in common. What a change from one to the other writes or removes is left
/// out.
fn kept(old: &Wanted, new: &Wanted) -> Wanted {
    let mut kept = old.clone();
    kept.paths.retain(|(path, want)| old.was_applied(want) && new.at(path) == Some(want));
    kept.config.systemd.units.retain(|u| new.config.systemd.units.contains(u));
    kept
}

/// The paths and units whose policies reload or restart services, without drains and reboots.
fn services_to_restart(
    wanted: &Wanted,
    policy: Option<&DisruptionPolicy>,
    notes: &mut Vec<String>,
) -> Changes {
    let Some(policy) = policy else {
        notes.push("no service is reloaded or restarted: the disruption policy could not be read".to_owned());
        return Changes::default();
    };
    let mut may = |what: &str, actions: Option<&[PolicyAction]>| {
        let reboots = actions.is_none_or(|a| a.iter().any(|a| matches!(a, PolicyAction::Reboot)));
        if reboots {
            notes.push(format!("{what}: an update of it would reboot; a repair does not"));
        }
        !reboots
    };
    let storage = &wanted.config.storage;
    let files = storage.files.iter().map(|f| f.path.clone());
    let files = files.chain(storage.directories.iter().map(|d| d.path.clone()));
    let files = files.chain(storage.links.iter().map(|l| l.path.clone()));
    let files = files.filter(|p| may(p, policy.for_path(p).map(|p| p.actions.as_slice()))).collect();
    let units = wanted.config.systemd.units.iter().map(|u| u.name.clone());
    let units = units.filter(|u| may(u, policy.for_unit(u).map(|p| p.actions.as_slice()))).collect();
    Changes { files, units, ..Changes::default() }
}

impl Drift {
    /// The managed path that drifted. For a unit's enablement it is the path of the unit.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Content { path }
            | Self::Mode { path, .. }
            | Self::Missing { path }
            | Self::Owner { path, .. }
            | Self::Kind { path, .. }
            | Self::NotMasked { path, .. } => path.clone(),
            Self::Enablement { unit, .. } => paths::unit(unit),
        }
    }
}
