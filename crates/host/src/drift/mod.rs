//! Drift: how the host differs from the config it is in, and the plan that repairs it.
//!
//! Not here: when to look (see `watch`), nor which drift is repaired automatically (the caller's policy).

pub(crate) mod baseline;
pub(crate) mod compare;
pub(crate) mod difference;
pub(crate) mod watch;

use std::collections::BTreeSet;

use api::v1alpha1::Reboots;
use desired::mask::{HostContents, MAX_SHOWN, MaskReason, MaskSide, difference};
use desired::{DesiredHost, DesiredPath, FILE_MODE, Irreconcilable};

use crate::baseline::Baseline;
use crate::drift::baseline::Drifted;
use crate::drift::compare::drifts;
use crate::drift::difference::Drift;
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::disruption::{Changes, disruption};
use crate::plan::effects::{RowApplied, RowRefused, TakesEffect, table, units};
use crate::plan::facts::Facts;
use crate::plan::live_extensions::Live;
use crate::plan::steps::Steps;
use crate::plan::{Change, HostPlan};
use crate::record::Names;
use desired::{DisruptionPolicy, PolicyAction};

impl Host {
    /// Every difference between the host and the config of a baseline. If a boot loader still counts the boots of a change
    /// that was kept, it is told again that the change is kept.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn drifts_from(&mut self, baseline: &Baseline) -> Result<Vec<Drift>, Error> {
        let mut found = self.files_drift_from(baseline)?;
        found.extend(self.os_drifts(&baseline.os)?);
        found.extend(self.retry_discarding_undo_data()?);
        Ok(found)
    }

    pub(crate) fn files_drift_from(&mut self, baseline: &Baseline) -> Result<Vec<Drift>, Error> {
        let facts = self.facts_to_compare(baseline)?;
        Ok(drifts(baseline, &facts))
    }

    /// As [`Host::drifts_from`], before a change to another config. Drift that the change itself overwrites or removes
    /// is left out, and that of the operating system too: the change is planned from what the next boot has.
    ///
    /// # Errors
    /// As [`Host::drifts_from`].
    pub fn blocking_drifts(&mut self, change: &Change) -> Result<Vec<Drift>, Error> {
        let unchanged = unchanged(&change.old, &change.new);
        self.files_drift_from(&Baseline::new(&change.names().current, String::new(), &unchanged))
    }

    /// How drifted contents differ, as far as that may be shown (see `desired::mask`): a few lines, or sizes. `None`:
    /// the drift's own text says everything.
    #[must_use]
    pub fn explain(&self, wanted: &DesiredHost, drift: &Drift) -> Option<String> {
        let Drift::Content { path } = drift else { return None };
        let nothing: &[u8] = &[];
        let (want, mode) = match wanted.at(path)? {
            DesiredPath::File { content, mode, .. } => (content.bytes(), *mode),
            DesiredPath::Nothing => (nothing, FILE_MODE),
            DesiredPath::Mask | DesiredPath::Dir { .. } | DesiredPath::Link { .. } => return None,
        };
        let short = self.root().read_short(path, MAX_SHOWN).ok()?;
        let mut want = MaskSide::with_mode(want, mode);
        if !self.root().is_open_to_all(path) {
            want.private = Some(MaskReason::Folder);
        }
        let read = short.bytes.as_deref().map(|bytes| MaskSide::with_mode(bytes, short.mode));
        Some(difference(path, want, HostContents { read, len: short.len }))
    }

    /// Plans the repair of what drifted and nothing else. The disruption policy's actions for these paths are carried
    /// out, except drains and reboots: only an administrator orders those. Without a policy no service is reloaded or
    /// restarted.
    ///
    /// # Errors
    /// Something cannot be read. The inner error: why the repair is not possible on this host.
    pub fn plan_repair(
        &mut self,
        drifted: &Drifted,
        policy: Option<&DisruptionPolicy>,
    ) -> Result<Result<HostPlan, Vec<Irreconcilable>>, Error> {
        let Drifted { config, drifts, wanted } = drifted;
        let facts = self.facts(&[wanted])?;
        let names = Names { current: config.name.clone(), desired: config.name.clone() };
        let (mut notes, mut bad) = (Vec::new(), Vec::new());
        let rewritten = units_with_other_files(wanted, drifts);
        let told = services_to_restart(wanted, rewritten, policy, &facts, &mut notes);
        let none = DisruptionPolicy::empty();
        let mut cost =
            disruption(&told, wanted, wanted, policy.unwrap_or(&none), &facts, &mut notes, &mut bad);
        cost.reboot.clear();
        cost.drain.clear();
        // What was recorded of kernel parameters is about changes of configs.
        cost.parameters_before = None;
        let units = wanted.config.systemd.units.iter().map(|u| u.name.clone()).collect();
        // The enablement of a unit is examined only if the unit changed. Here that is every unit that is left.
        let changes = Changes { units, ..Changes::default() };
        let mut steps = Steps {
            old: wanted,
            new: wanted,
            facts: &facts,
            of_host: false,
            changes: &changes,
            steps: Vec::new(),
            notes,
            warnings: Vec::new(),
            bad,
        };
        steps.add_all(&names, &config.spec, &cost, &Live::No);
        // A repair leads back to what was there before, so it is not on trial.
        Ok(steps.plan(names, cost))
    }
}

/// The units and paths that two configs have in common. What a change from one to the other writes or removes is left
/// out.
fn unchanged(old: &DesiredHost, new: &DesiredHost) -> DesiredHost {
    let mut unchanged = old.clone();
    unchanged.paths.retain(|(path, want)| want.was_applied() && new.at(path) == Some(want));
    unchanged.config.systemd.units.retain(|u| new.config.systemd.units.contains(u));
    unchanged
}

/// The units whose file, or one of whose drop-ins, had other contents or was missing.
fn units_with_other_files(wanted: &DesiredHost, drifts: &[Drift]) -> BTreeSet<String> {
    let other = |path: &str| {
        drifts.iter().any(|d| match d {
            Drift::Content { .. } | Drift::Missing { .. } | Drift::Kind { .. } => d.path() == path,
            Drift::Mode { .. } | Drift::Owner { .. } | Drift::NotMasked { .. } => false,
            Drift::Enablement { .. } | Drift::Os { .. } => false,
        })
    };
    let units = wanted.config.systemd.units.iter().filter(|unit| {
        let dropins = unit.dropins.iter().map(|d| paths::dropin(&unit.name, &d.name));
        std::iter::once(paths::unit(&unit.name)).chain(dropins).any(|path| other(&path))
    });
    units.map(|unit| unit.name.clone()).collect()
}

/// The paths and units whose policies reload or restart services, without drains and reboots.
fn services_to_restart(
    wanted: &DesiredHost,
    drifted_units: BTreeSet<String>,
    policy: Option<&DisruptionPolicy>,
    facts: &Facts,
    notes: &mut Vec<String>,
) -> Changes {
    let Some(policy) = policy else {
        notes.push("no service is reloaded or restarted: the disruption policy could not be read".to_owned());
        return Changes::default();
    };
    // What has a row in the table takes effect again, unless that needs more than effects.
    let by_table = |taken: Option<Result<RowApplied, RowRefused>>| {
        let taken = taken.filter(|_| policy.reboots == Reboots::WhenNeeded);
        matches!(taken, Some(Ok(RowApplied { way: TakesEffect::AtEachUse | TakesEffect::Effects(_), .. })))
    };
    let mut may =
        |what: &str, actions: Option<&[PolicyAction]>, taken: Option<Result<RowApplied, RowRefused>>| {
            let reboots = match actions {
                Some(actions) => actions.iter().any(|a| matches!(a, PolicyAction::Reboot)),
                None => !by_table(taken),
            };
            if reboots {
                notes.push(format!("{what}: an update of it would reboot; a repair does not"));
            }
            !reboots
        };
    let storage = &wanted.config.storage;
    let files = storage.files.iter().map(|f| f.path.clone());
    let files = files.chain(storage.directories.iter().map(|d| d.path.clone()));
    let files = files.chain(storage.links.iter().map(|l| l.path.clone()));
    let row = |path: &str| table::of_file(path, wanted, wanted, facts, false);
    let files = files.filter(|p| may(p, policy.for_path(p).map(|p| p.actions.as_slice()), row(p))).collect();
    let units = wanted.config.systemd.units.iter().map(|u| u.name.clone());
    let row = |unit: &str| Some(units::of_unit(unit, (wanted, wanted), drifted_units.contains(unit), facts));
    let units = units.filter(|u| may(u, policy.for_unit(u).map(|p| p.actions.as_slice()), row(u))).collect();
    Changes { files, units, drifted_units, ..Changes::default() }
}
