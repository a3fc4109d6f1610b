//! Files that OSTree's merge of `/etc` leaves outdated are written again from the config.
//!
//! Each deployment has an `/etc` of its own. OSTree makes a new one at shutdown: it takes the new image's (`/usr/etc`), and
//! brings along what differs between the `/etc` and the image of the deployment that is left. A file that this image holds
//! as the config wants it does not differ, so it stays behind: the new `/etc` has the new image's file, or none.
//!
//! Flow: after the boot into the deployment that a change staged, before the change is kept or its trial begins, the disk is
//! compared with the config. What counts as left behind is noted, then written, then noted as done. As long as that is not
//! noted, the next start does the rest. What cannot be written is told as drift.
//!
//! Guarantees: only that is written which was as the config wants it when the old deployment was shut down, and is now as
//! the new image has it. Both are read from the disk: OSTree keeps the old deployment with its `/etc`. What a person
//! changed before the reboot, or changes after it, is told as drift, as ever. It is done once for a change.
//!
//! Not here: reboots. systemd reads its units again, what this boot would have started is started, and the services are
//! told that the default disruption policy names. What else started earlier in this boot reads a file at its next start.
//!
//! Source: <https://ostreedev.github.io/ostree/deployment/>.

use std::collections::BTreeSet;

use desired::DisruptionPolicy;
use serde::{Deserialize, Serialize};

use crate::baseline::{Baseline, Expected};
use crate::disk::attributes::{PLAIN, PRIVATE, PRIVATE_DIR};
use crate::disk::fs_error::FsError;
use crate::disk::path_state::PathState;
use crate::disk::root::Root;
use crate::drift::compare::path_drift;
use crate::drift::difference::Drift;
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::facts::Facts;
use crate::plan::sshd::DROPIN;
use crate::plan::step::Step;
use crate::system::systemd::ServiceAction;
use crate::system::unit_file::is_template;
use crate::system::users::Users;
use crate::transaction::journal::Journal;

/// OSTree merges this folder only.
const ETC: &str = "/etc/";
/// Where the image has its own `/etc`.
const OF_IMAGE: &str = "/usr";

/// The note beside the journal.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    /// The paths that were left behind.
    paths: BTreeSet<String>,
    /// All of them are written.
    done: bool,
}

impl Host {
    /// Writes the files that the merge left outdated, at the boot that the change waited for. The caller has checked that
    /// the machine booted as planned. A failure is only logged, because it must not block the end of a trial. Files that
    /// could not be written are reported as drift, and written at the next start as long as the change is on trial.
    pub(crate) fn restore_after_merge_or_log(&mut self, journal: &Journal) -> Result<(), Error> {
        match self.restore_after_merge(journal) {
            Err(error) if !error.killed() => {
                tracing::warn!(error = %api::formats::text::chain(&error), "files that the merge of /etc left outdated cannot be \
                    written");
                Ok(())
            }
            done => done,
        }
    }

    fn restore_after_merge(&mut self, journal: &Journal) -> Result<(), Error> {
        let Some((before, _)) = journal.os_change() else { return Ok(()) };
        let noted = self.note()?;
        if noted.as_ref().is_some_and(|note| note.done) {
            return Ok(());
        }
        let Some(old) = self.os.folder_of(before)? else { return Ok(()) };
        if self.root.found(&format!("{old}/etc"))?.is_absent() {
            tracing::warn!(deployment = %old, "the OSTree deployment that this host has left was removed before the agent could \
                compare its /etc with the new one; so no file below /etc is written again from the config, and a file that \
                differs from the config counts as drift: the node becomes Degraded");
            return Ok(());
        }
        let merge = Merge { root: self.root.clone(), old };
        merge.bring_record()?;
        let Some(baseline) = self.baseline()? else { return Ok(()) };
        let done = match baseline.name() == journal.names.desired {
            true => self.write_left_behind(&merge, &baseline, noted),
            false => Ok(()),
        };
        self.baseline_of_recovery = Some(baseline);
        done
    }

    /// Writes what the merge left behind: what is noted, or, without a note, what is found now.
    fn write_left_behind(
        &mut self,
        merge: &Merge,
        baseline: &Baseline,
        noted: Option<Note>,
    ) -> Result<(), Error> {
        let note = match noted {
            Some(note) => note,
            None => {
                let (drifts, facts) = (self.files_drift_from(baseline)?, merge.facts(baseline)?);
                let mut paths = BTreeSet::new();
                for drift in &drifts {
                    if merge.left_behind(baseline, drift, &facts)? {
                        tracing::warn!(%drift, "left behind by the merge of /etc; written again from the config");
                        paths.insert(drift.path());
                    }
                }
                let note = Note { paths, done: false };
                if !note.paths.is_empty() {
                    self.write_note(&note)?;
                }
                note
            }
        };
        if !note.paths.is_empty() {
            let listed = baseline.paths.iter().filter(|(path, _)| note.paths.contains(path));
            let facts = self.facts_to_compare(baseline)?;
            for (path, want) in listed {
                if path != DROPIN && path_drift(path, want, facts.found(path), &facts).is_err() {
                    merge.keep_original(path, want)?;
                }
            }
            self.write_again(&note.paths)?;
        }
        self.write_note(&Note { done: true, ..note })
    }

    /// Writes these paths from the record of the config, as a repair of drift does, and starts what this boot would have
    /// started. What is written already stays. No service is waited for: it may be ordered after this process.
    fn write_again(&mut self, paths: &BTreeSet<String>) -> Result<(), Error> {
        let Some(config) = self.current_config()? else { return Ok(()) };
        let drifts = paths.iter().map(|path| Drift::Missing { path: path.clone() }).collect();
        let drifted = self.drifted(config, drifts)?;
        // What the policy would do may need a file that can be read. The files come first.
        let mut plan = self.plan_repair(&drifted, Some(&DisruptionPolicy::default()))?;
        if plan.is_err() {
            plan = self.plan_repair(&drifted, None)?;
        }
        let plan = match plan {
            Ok(plan) => plan,
            Err(bad) => {
                for why in bad {
                    tracing::warn!(%why, "files that the merge of /etc left outdated cannot be written");
                }
                return Ok(());
            }
        };
        let is_act = |s: &Step| matches!(s, Step::Service { .. } | Step::Effect(_) | Step::TellSshd { .. });
        let (acts, steps): (Vec<Step>, Vec<Step>) =
            plan.steps.into_iter().filter(|s| !matches!(s, Step::DaemonReload)).partition(is_act);
        self.run_all(&steps).map_err(|(step, error)| {
            tracing::warn!(%step, "a step failed");
            error
        })?;
        if paths.iter().any(|path| path.starts_with(paths::UNITS_DIR)) {
            self.systemd_or_log("daemon-reload", "", |s| s.daemon_reload())?;
        }
        for act in acts {
            if let Step::Service { action, unit } = act {
                self.systemd_or_log(action.verb(), &unit, |s| match (action, s.was_started(&unit)?) {
                    (ServiceAction::Run, _) | (_, true) => s.queue(action, &unit),
                    (_, false) => Ok(()),
                })?;
            }
        }
        for unit in drifted.wanted.config.systemd.units.iter().filter(|u| !is_template(&u.name)) {
            let (name, starts) = (&unit.name, unit.enabled == Some(true) && unit.mask != Some(true));
            self.systemd_or_log("start", name, |s| match s.was_started(name)? {
                true => {
                    tracing::warn!(unit = %name, "it started before its files were restored; it uses them from its next \
                        start on");
                    Ok(())
                }
                false if starts => s.queue(ServiceAction::Restart, name),
                false => Ok(()),
            })?;
        }
        Ok(())
    }

    fn note(&self) -> Result<Option<Note>, Error> {
        let bytes = self.root.read_if_there(paths::ETC_MERGE)?;
        let unreadable =
            |e: serde_json::Error| Error::Config { name: paths::ETC_MERGE.to_owned(), why: e.to_string() };
        bytes.map(|b| serde_json::from_slice(&b).map_err(unreadable)).transpose()
    }

    fn write_note(&self, note: &Note) -> Result<(), Error> {
        let json = serde_json::to_vec(note)
            .map_err(|e| Error::Config { name: paths::ETC_MERGE.to_owned(), why: e.to_string() })?;
        Ok(self.root.write_bytes(paths::ETC_MERGE, &json, PRIVATE)?)
    }
}

/// What is compared: the root, and the folder of the deployment that was left.
struct Merge {
    root: Root,
    old: String,
}

impl Merge {
    fn before(&self, path: &str) -> Result<PathState, FsError> {
        self.root.found(&format!("{}{path}", self.old))
    }

    /// Whether a path is as the new image has it.
    fn is_of_image(&self, path: &str) -> Result<bool, FsError> {
        Ok(same(&self.root.found(path)?, &self.root.found(&format!("{OF_IMAGE}{path}"))?))
    }

    /// The records of the config in effect are files of `/etc` too. They are ours alone.
    fn bring_record(&self) -> Result<(), FsError> {
        for path in [paths::CURRENT_CONFIG, paths::CURRENT_IMAGE] {
            let before = self.before(path)?;
            if matches!(before, PathState::File { .. })
                && !same(&before, &self.root.found(path)?)
                && self.is_of_image(path)?
            {
                self.root.copy(&format!("{}{path}", self.old), path)?;
            }
        }
        Ok(())
    }

    /// What the old deployment's `/etc` had at the managed paths.
    fn facts(&self, baseline: &Baseline) -> Result<Facts, Error> {
        let mut facts = Facts::with_users(self.root.options().owners, Users::read(&self.root)?);
        for (path, want) in baseline.paths.iter().filter(|(path, _)| path.starts_with(ETC)) {
            if let Expected::Link { target, hard: true, .. } = want
                && self.root.same_file(&format!("{}{path}", self.old), &format!("{}{target}", self.old))
            {
                facts.same_files.insert(path.clone());
            }
        }
        Ok(facts)
    }

    /// Whether the merge made this difference. `facts`: of the old deployment.
    fn left_behind(&self, baseline: &Baseline, drift: &Drift, facts: &Facts) -> Result<bool, FsError> {
        let path = drift.path();
        match drift {
            Drift::Os { .. } => Ok(false),
            Drift::Enablement { unit, enabled, .. } => {
                let (before, now) = (self.links(&self.old, unit)?, self.links("", unit)?);
                let was_as_wanted = before.is_empty() != *enabled;
                let mut of_image = true;
                for link in before.union(&now) {
                    of_image &= self.is_of_image(link)?;
                }
                Ok(was_as_wanted && before != now && of_image)
            }
            _ if !path.starts_with(ETC) => Ok(false),
            _ => {
                let Some((_, want)) = baseline.paths.iter().find(|(p, _)| *p == path) else {
                    return Ok(false);
                };
                let was_as_wanted = path_drift(&path, want, &self.before(&path)?, facts).is_ok();
                Ok(was_as_wanted && self.is_of_image(&path)?)
            }
        }
    }

    /// The links below a folder that make targets start a unit.
    fn links(&self, top: &str, unit: &str) -> Result<BTreeSet<String>, FsError> {
        let mut out = BTreeSet::new();
        for dir in self.root.list(&format!("{top}{}", paths::UNITS_DIR))? {
            let link = format!("{}/{dir}/{unit}", paths::UNITS_DIR);
            if (dir.ends_with(".wants") || dir.ends_with(".requires"))
                && matches!(self.root.found(&format!("{top}{link}"))?, PathState::Link { .. })
            {
                out.insert(link);
            }
        }
        Ok(out)
    }

    /// Keeps what the new image has at a path, for when no config names the path any more. An original that a host had
    /// before, other than the file of the pool's image, stays.
    fn keep_original(&self, path: &str, want: &Expected) -> Result<(), FsError> {
        if matches!(want, Expected::Dir { .. }) {
            return Ok(());
        }
        let (original, stamp) = (paths::original(path), paths::no_original(path));
        let (kept, stamped) = (self.root.found(&original)?, !self.root.found(&stamp)?.is_absent());
        // The pool's image had this file when the original was saved.
        let is_wanted = match (&kept, want) {
            (PathState::File { len, sha256, .. }, Expected::File { len: l, sha256: s, .. }) => {
                len == l && sha256 == s
            }
            (PathState::Link { target, .. }, Expected::Link { target: t, hard: false, .. }) => target == t,
            _ => false,
        };
        if !kept.is_absent() && !is_wanted && !stamped {
            return Ok(());
        }
        match self.root.found(path)? {
            PathState::File { .. } | PathState::Link { .. } => {
                self.root.make_parents(paths::ORIGINALS)?;
                self.root.make_dir(paths::ORIGINALS, PRIVATE_DIR)?;
                self.root.copy(path, &original)?;
                self.root.remove(&stamp)
            }
            PathState::Absent | PathState::NoParentFolder { .. } => {
                self.root.write_bytes(&stamp, b"", PLAIN)?;
                self.root.remove(&original)
            }
            PathState::Dir { .. } | PathState::Other => Ok(()),
        }
    }
}

/// Whether two paths are alike, as OSTree compares them. What is absent in both is.
fn same(a: &PathState, b: &PathState) -> bool {
    match (a, b) {
        (
            PathState::File { mode, uid, gid, sha256, .. },
            PathState::File { mode: m, uid: u, gid: g, sha256: s, .. },
        ) => (mode, uid, gid, sha256) == (m, u, g, s),
        (a, b) => a.is_absent() && b.is_absent() || a == b,
    }
}
