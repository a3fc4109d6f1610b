//! The steps of a plan, in order: units that will be rewritten are disabled, originals are saved, paths are written,
//! stale paths are removed or restored, units are enabled; then the core user, the operating system, bookkeeping and
//! services. Pure.
//!
//! The order is that of the reference implementation. What that one leaves behind (links of units that are gone, unit
//! files whose config lost its contents) is cleaned up here.

use std::collections::BTreeSet;

use api::v1::MachineConfigSpec;
use desired::mask::may_show;
use desired::{Content, DEV_NULL, DesiredHost, DesiredPath, FileOrigin, Irreconcilable, Scope};
use ignition::Owner;

use crate::disk::attributes::{Attributes, PLAIN, PRIVATE, PRIVATE_DIR};
use crate::disk::path_state::PathState;
use crate::paths;
use crate::plan::disruption::{Changes, Disruption};
use crate::plan::effects::Planned;
use crate::plan::facts::Facts;
use crate::plan::host_plan::{HostPlan, hard_links};
use crate::plan::live_extensions::Live;
use crate::plan::os::planned;
use crate::plan::os_before::{ImageGivenUp, to_record};
use crate::plan::sshd::DROPIN;
use crate::plan::step::{Replaces, Step};
use crate::record::Names;

const ORIGINAL: &str = "backup of the host's own";
/// The names that distributions give the unit of their SSH server.
const SSHD_UNITS: [&str; 2] = ["sshd.service", "ssh.service"];
pub(crate) const STALE: &str = "no longer in the config";

/// Collects the steps of a plan.
pub(crate) struct Steps<'a> {
    pub(crate) old: &'a DesiredHost,
    pub(crate) new: &'a DesiredHost,
    pub(crate) facts: &'a Facts,
    /// Another program set up the host, so the old config does not describe its state.
    pub(crate) of_host: bool,
    pub(crate) changes: &'a Changes,
    pub(crate) steps: Vec<Step>,
    pub(crate) notes: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) bad: Vec<Irreconcilable>,
}

impl Steps<'_> {
    /// The plan of these steps. It cuts nobody off and is not on trial, unless the caller says so.
    ///
    /// # Errors
    /// What keeps this host from it.
    pub(crate) fn plan(self, names: Names, disruption: Disruption) -> Result<HostPlan, Vec<Irreconcilable>> {
        if !self.bad.is_empty() {
            return Err(self.bad);
        }
        Ok(HostPlan {
            names,
            steps: self.steps,
            disruption,
            notes: self.notes,
            warnings: self.warnings,
            cut_offs: Vec::new(),
            trial: None,
            not_live: None,
            live_allowed: false,
            hard_links: hard_links(self.old, self.facts),
        })
    }

    /// Adds all steps of the plan.
    pub(crate) fn add_all(
        &mut self,
        names: &Names,
        desired: &MachineConfigSpec,
        disruption: &Disruption,
        live: &Live,
    ) {
        let (first, last): (Vec<&Planned>, _) = disruption.effects.iter().partition(|p| p.is_first());
        self.steps.extend(first.into_iter().cloned().map(Step::Effect));
        let disabled = self.disable_rewritten();
        let hard = |want: &DesiredPath| matches!(want, DesiredPath::Link { hard: true, .. });
        for (path, want) in self.new.paths.iter().filter(|(_, w)| !hard(w)) {
            self.add_path(path, want);
        }
        // Hard links are made after the files that they refer to: a file that is rewritten is a new inode.
        for (path, want) in self.new.paths.iter().filter(|(_, w)| hard(w)) {
            self.add_path(path, want);
        }
        self.remove_stale();
        self.trust();
        let touched = self.enablement(&disabled);
        self.mask_again();
        self.core_user();
        let sshd = self.keys_count() || self.steps.iter().any(|s| s.paths().contains(&DROPIN));
        self.operating_system();
        if let Live::Yes(extensions) = live
            && !disruption.live.is_empty()
        {
            let (config, extensions) = (names.desired.clone(), extensions.clone());
            self.steps.push(Step::Live { config, extensions });
        }
        self.bookkeeping(names, desired, disruption);
        let units_changed = self.steps.iter().any(|s| {
            s.paths().iter().any(|p| p.starts_with(paths::UNITS_DIR)) || matches!(s, Step::Units { .. })
        });
        if touched || units_changed || !disruption.daemon_reload.is_empty() {
            self.steps.push(Step::DaemonReload);
        }
        self.obstructed();
        if sshd && !disruption.needs_reboot() {
            let told = |unit: &str| disruption.services.iter().any(|s| s.unit == unit);
            let unit = SSHD_UNITS.iter().find(|u| self.facts.unit_files.contains(**u));
            self.steps.extend(unit.filter(|u| !told(u)).map(|u| Step::TellSshd { unit: (*u).to_owned() }));
        }
        self.run_trust_tool(disruption);
        self.steps.extend(last.into_iter().cloned().map(Step::Effect));
        for s in &disruption.services {
            self.steps.push(Step::Service { action: s.action, unit: s.unit.clone() });
        }
    }

    /// Boots into another deployment, if the config asks for another one, or if somebody has left the config's and a person
    /// asks for all of it again.
    fn operating_system(&mut self) {
        let asked = !self.changes.os.is_empty() || self.facts.force;
        if !asked {
            return;
        }
        let change = planned(self.old, self.new, self.facts);
        self.steps.extend(change.map(|change| Step::Os { change: Box::new(change) }));
        self.image_before();
    }

    /// Records what the host ran when a config names the first image, and forgets it when the host is back there.
    fn image_before(&mut self) {
        let path = paths::OS_BEFORE;
        if let Some(origin) = to_record(self.old, self.new, self.facts, self.of_host) {
            match serde_json::to_vec(origin) {
                Ok(json) => self.write(path, Content::new(json), PRIVATE),
                Err(e) => self.refuse(path, e.to_string(), "remove the file"),
            }
        }
        if !self.found(path).is_absent() {
            let why = match ImageGivenUp::of(self.old, self.new, self.facts) {
                ImageGivenUp::Back(_) | ImageGivenUp::Runs => {
                    "the machine is back in the image that it ran before MachineConfigs named one"
                }
                _ => return,
            };
            self.steps.push(Step::Remove { path: path.to_owned(), why });
        }
    }

    pub(crate) fn found(&self, path: &str) -> &PathState {
        self.facts.found(path)
    }

    pub(crate) fn refuse(&mut self, path: &str, why: impl Into<String>, remedy: &str) {
        self.bad.push(Irreconcilable {
            path: path.to_owned(),
            why: why.into(),
            remedy: remedy.to_owned(),
            scope: Scope::Machine,
        });
    }

    /// Refuses steps whose paths cannot be changed. Paths that no step changes are not checked.
    pub(crate) fn obstructed(&mut self) {
        let mut asked = BTreeSet::new();
        for step in &self.steps {
            let more = match step {
                Step::Units { .. } => Some(paths::UNITS_PROBE),
                Step::Password { .. } => Some(paths::SHADOW),
                _ => None,
            };
            for path in step.paths().into_iter().chain(more) {
                // The mode of an existing folder is changed in place, so it may be a mount point.
                let itself =
                    matches!(step, Step::MakeDir { .. }) && matches!(self.found(path), PathState::Dir { .. });
                asked.insert((path, itself));
            }
        }
        let mut bad = Vec::new();
        for (path, itself) in asked {
            let Some(at) = self.facts.paths.get(path) else { continue };
            let obstacle = if itself { &at.own_obstacle } else { &at.obstacle };
            let (why, remedy) = match (obstacle, &at.found) {
                (Some(obstacle), _) => (obstacle.to_string(), obstacle.remedy()),
                (None, PathState::File { immutable: true, .. })
                    if !self.bad.iter().any(|b| b.path == path) =>
                {
                    let remedy = format!("remove the attribute with chattr -i -a {path}");
                    ("the file is immutable or append-only".to_owned(), remedy)
                }
                _ => continue,
            };
            bad.push(Irreconcilable { path: path.to_owned(), why, remedy, scope: Scope::Machine });
        }
        self.bad.extend(bad);
    }

    /// Whether a path can be changed. An obstacle is added to the refusals.
    pub(crate) fn reachable(&mut self, path: &str) -> bool {
        let (why, remedy) = match self.found(path) {
            PathState::Dir { .. } => {
                ("there is a folder at this path", "move the folder away, or choose another path")
            }
            PathState::Other => {
                ("there is a device, socket or pipe at this path", "move it away, or choose another path")
            }
            PathState::File { immutable: true, .. } => {
                ("the file is immutable or append-only", "remove the attribute with chattr -i -a")
            }
            PathState::NoParentFolder { parent } => {
                let why = format!("{parent} is not a folder");
                self.refuse(path, why, "move that away, or choose another path");
                return false;
            }
            PathState::Absent | PathState::File { .. } | PathState::Link { .. } => return true,
        };
        self.refuse(path, why, remedy);
        false
    }

    /// Whether a path has exactly the wanted contents, mode and owner.
    pub(crate) fn is_as_wanted(&self, path: &str, content: &Content, a: Attributes) -> bool {
        match self.found(path) {
            PathState::File { mode, uid, gid, len, sha256, .. } => {
                *mode == a.mode
                    && (!self.facts.owners || (*uid, *gid) == (a.uid, a.gid))
                    && *len == content.bytes().len() as u64
                    && *sha256 == content.sha256()
            }
            _ => false,
        }
    }

    pub(crate) fn write(&mut self, path: &str, content: Content, attributes: Attributes) {
        if self.is_as_wanted(path, &content, attributes) {
            return;
        }
        let replaces = self.replaces(path);
        let public = !self.facts.closed.contains(path) && may_show(path, attributes.mode, content.bytes());
        self.steps.push(Step::Write { path: path.to_owned(), content, attributes, replaces, public });
    }

    pub(crate) fn replaces(&self, path: &str) -> Replaces {
        match self.found(path) {
            PathState::File { .. } => Replaces::File,
            PathState::Link { .. } => Replaces::Link,
            _ => Replaces::Nothing,
        }
    }

    pub(crate) fn id(&mut self, path: &str, owner: &Owner, what: &str) -> u32 {
        if let Some(id) = owner.id {
            return u32::try_from(id).unwrap_or_else(|_| {
                self.refuse(path, format!("{what} ID {id} is out of range"), "use 0 to 4294967295");
                0
            });
        }
        let Some(name) = owner.name.as_deref().filter(|n| !n.is_empty()) else { return 0 };
        let found = match what {
            "user" => self.facts.users.users.get(name).map(|u| u.uid),
            _ => self.facts.users.groups.get(name).copied(),
        };
        found.unwrap_or_else(|| {
            let why = format!("its {what} {name:?} does not exist on this host");
            self.refuse(path, why, "create it on the host first, or give its number");
            0
        })
    }

    /// Whether the content that the new config wants at a path still has to be written.
    pub(crate) fn needs_write(&mut self, path: &str, want: &DesiredPath) -> bool {
        match want {
            DesiredPath::File { content, mode, user, group, .. } => {
                let bad = self.bad.len();
                let a = Attributes {
                    mode: *mode,
                    uid: self.id(path, user, "user"),
                    gid: self.id(path, group, "group"),
                };
                self.bad.truncate(bad);
                !self.is_as_wanted(path, content, a)
            }
            _ => false,
        }
    }

    /// Adds the steps that bring one path to what the new config wants.
    pub(crate) fn add_path(&mut self, path: &str, want: &DesiredPath) {
        if path == paths::KUBELET_CA {
            return;
        }
        if let DesiredPath::Dir { mode, user, group, overwrite } = want {
            return self.reach_dir(path, *mode, (user, group), *overwrite);
        }
        if !self.reachable(path) {
            return;
        }
        match want {
            DesiredPath::File { content, mode, user, group, .. } => {
                let uid = self.id(path, user, "user");
                let gid = self.id(path, group, "group");
                self.keep_original(path);
                self.write(path, content.clone(), Attributes { mode: *mode, uid, gid });
            }
            DesiredPath::Dir { .. } => {}
            DesiredPath::Link { overwrite, .. } if !self.may_replace(path, *overwrite) => {}
            DesiredPath::Link { target, hard: true, .. } => {
                let written = self.steps.iter().any(|s| s.paths().contains(&target.as_str()));
                if !written && !matches!(self.found(target), PathState::File { .. }) {
                    let why = format!("a hard link needs a file, but {target} is not one");
                    return self.refuse(path, why, "create the file first, or correct the target");
                }
                self.keep_original(path);
                if written || !self.facts.same_files.contains(path) {
                    let (path, target) = (path.to_owned(), target.clone());
                    self.steps.push(Step::HardLink { path, target });
                }
            }
            DesiredPath::Link { target, user, group, .. } => {
                let owner = (self.id(path, user, "user"), self.id(path, group, "group"));
                self.keep_original(path);
                let holds = match self.found(path) {
                    PathState::Link { target: now, uid, gid } => {
                        now == target && (!self.facts.owners || owner == (*uid, *gid))
                    }
                    _ => false,
                };
                if !holds {
                    let replaces = self.replaces(path);
                    let (path, target) = (path.to_owned(), target.clone());
                    self.steps.push(Step::Link { path, target, owner, replaces });
                }
            }
            DesiredPath::Mask => {
                self.keep_original(path);
                if !matches!(self.found(path), PathState::Link { target, .. } if target == DEV_NULL) {
                    let replaces = self.replaces(path);
                    let (path, target) = (path.to_owned(), DEV_NULL.to_owned());
                    self.steps.push(Step::Link { path, target, owner: (0, 0), replaces });
                }
            }
            DesiredPath::Nothing if self.found(path).is_absent() => {}
            DesiredPath::Nothing => {
                self.keep_original(path);
                self.steps.push(Step::Remove { path: path.to_owned(), why: "empty in the config" });
            }
        }
    }

    /// Whether the host's own file at a path may be replaced. Adds a refusal if it may not.
    pub(crate) fn may_replace(&mut self, path: &str, overwrite: Option<bool>) -> bool {
        let theirs = !self.found(path).is_absent() && self.old.at(path).is_none();
        if theirs && overwrite == Some(false) {
            let remedy = "set overwrite to true, or choose another path";
            self.refuse(path, "there is something at this path, and overwrite is false", remedy);
            return false;
        }
        true
    }

    /// Saves the host's own file at a path, or records that there was none. Our own files need neither.
    pub(crate) fn keep_original(&mut self, path: &str) {
        if matches!(self.new.at(path), Some(DesiredPath::File { origin: FileOrigin::Agent, .. })) {
            return;
        }
        let (original, stamp) = (paths::original(path), paths::no_original(path));
        if !self.found(&original).is_absent() || !self.found(&stamp).is_absent() {
            return;
        }
        let ours = self.old.at(path).is_some_and(|w| *w != DesiredPath::Nothing);
        if ours || self.found(path).is_absent() {
            self.write(&stamp, Content::new(Vec::new()), PLAIN);
        } else {
            self.private_originals();
            self.steps.push(Step::Copy { from: path.to_owned(), to: original, why: ORIGINAL });
        }
    }

    /// Makes the folder of saved originals private, so that a file from a closed folder stays closed to other users.
    pub(crate) fn private_originals(&mut self) {
        let path = paths::ORIGINALS;
        let private = matches!(self.found(path), PathState::Dir { mode, .. } if *mode == PRIVATE_DIR.mode);
        if !private && !self.steps.iter().any(|s| matches!(s, Step::MakeDir { path: p, .. } if p == path)) {
            self.steps.push(Step::MakeDir { path: path.to_owned(), attributes: PRIVATE_DIR });
        }
    }
}
