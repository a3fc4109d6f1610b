//! The steps of a plan, in order: units that will be rewritten are disabled, originals kept, paths written, stale ones
//! removed or restored, units enabled, the core user, the operating system, bookkeeping, services. Pure.
//!
//! The order is that of the reference; what it leaves behind (links of units that are gone, unit files whose config
//! lost its contents) is cleaned up here.

use std::collections::BTreeSet;

use api::v1::MachineConfigSpec;
use desired::mask::may_show;
use desired::{Content, DEV_NULL, FILE_MODE, Irreconcilable, Scope, Want, Wanted, has_contents};
use ignition::{Owner, Unit};

use crate::disk::found::{Attributes, Found};
use crate::disk::root::split;
use crate::paths;
use crate::plan::disruption::{Changes, Disruption};
use crate::plan::facts::Facts;
use crate::plan::policy::UPDATE_CA_TRUST;
use crate::plan::sshd::DROPIN;
use crate::plan::step::{Replaces, ServiceAction, Step, UnitAction};
use crate::record::{CurrentConfig, Names, PendingReboot};
use crate::system::unit_file::{Install, instance, is_template, is_unit_name, template_of};

/// A plain file of root's.
pub(crate) const PLAIN: Attributes = Attributes { mode: FILE_MODE, uid: 0, gid: 0 };
/// Our own state, which holds contents of files: for root only.
pub(crate) const PRIVATE: Attributes = Attributes { mode: 0o600, uid: 0, gid: 0 };
/// Folders for root only.
pub(crate) const PRIVATE_DIR_MODE: u32 = 0o700;
const ORIGINAL: &str = "the host's own, kept for later";
/// The names that distributions give their SSH server's unit; an alias of the other counts as well.
const SSHD_UNITS: [&str; 2] = ["sshd.service", "ssh.service"];
pub(crate) const STALE: &str = "no longer in the config";

/// Collects steps.
pub(crate) struct Steps<'a> {
    pub(crate) old: &'a Wanted,
    pub(crate) new: &'a Wanted,
    pub(crate) facts: &'a Facts,
    pub(crate) changes: &'a Changes,
    pub(crate) steps: Vec<Step>,
    pub(crate) notes: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) bad: Vec<Irreconcilable>,
}

impl Steps<'_> {
    /// All of them.
    pub(crate) fn all(&mut self, names: &Names, desired: &MachineConfigSpec, disruption: &Disruption) {
        let disabled = self.disable_rewritten();
        let last = |want: &Want| matches!(want, Want::Link { hard: true, .. });
        for (path, want) in self.new.paths.iter().filter(|(_, w)| !last(w)) {
            self.reach(path, want);
        }
        // Another name of a file comes after it: one that is written anew is another file.
        for (path, want) in self.new.paths.iter().filter(|(_, w)| last(w)) {
            self.reach(path, want);
        }
        self.stale();
        self.trust();
        let touched = self.enablement(&disabled);
        self.mask_again();
        self.core_user();
        let sshd = self.keys_count() || self.steps.iter().any(|s| s.paths().contains(&DROPIN));
        if !self.changes.os.is_empty() {
            self.steps.push(Step::Os { from: self.old.os.clone(), to: self.new.os.clone() });
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
        for s in &disruption.services {
            self.steps.push(Step::Service { action: s.action, unit: s.unit.clone() });
        }
    }

    pub(crate) fn found(&self, path: &str) -> &Found {
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

    /// Refuses steps that cannot be done where their paths stand. What stays as it is is not asked for.
    fn obstructed(&mut self) {
        let mut asked = BTreeSet::new();
        for step in &self.steps {
            let more = match step {
                Step::Units { .. } => Some(paths::UNITS_PROBE),
                Step::Password { .. } => Some(paths::SHADOW),
                _ => None,
            };
            for path in step.paths().into_iter().chain(more) {
                // A folder that is there gets another mode where it is, also as a mount point.
                let itself =
                    matches!(step, Step::MakeDir { .. }) && matches!(self.found(path), Found::Dir { .. });
                asked.insert((path, itself));
            }
        }
        let mut bad = Vec::new();
        for (path, itself) in asked {
            let Some(at) = self.facts.paths.get(path) else { continue };
            let obstacle = if itself { &at.own_obstacle } else { &at.obstacle };
            let (why, remedy) = match (obstacle, &at.found) {
                (Some(obstacle), _) => (obstacle.to_string(), obstacle.remedy()),
                (None, Found::File { immutable: true, .. }) if !self.bad.iter().any(|b| b.path == path) => {
                    let remedy = format!("take the attribute away with chattr -i -a {path}");
                    ("the file is immutable or append-only".to_owned(), remedy)
                }
                _ => continue,
            };
            bad.push(Irreconcilable { path: path.to_owned(), why, remedy, scope: Scope::Machine });
        }
        self.bad.extend(bad);
    }

    /// What is in the way of changing a path; false when something is.
    pub(crate) fn reachable(&mut self, path: &str) -> bool {
        let (why, remedy) = match self.found(path) {
            Found::Dir { .. } => ("a folder stands there", "move the folder away, or choose another path"),
            Found::Other => ("a device, socket or pipe stands there", "move it away, or choose another path"),
            Found::File { immutable: true, .. } => {
                ("the file is immutable or append-only", "take the attribute away with chattr -i -a")
            }
            Found::Blocked { parent } => {
                let why = format!("{parent} is not a folder");
                self.refuse(path, why, "move that away, or choose another path");
                return false;
            }
            Found::Absent | Found::File { .. } | Found::Link { .. } => return true,
        };
        self.refuse(path, why, remedy);
        false
    }

    /// Whether a path holds exactly what is wanted.
    fn holds(&self, path: &str, content: &Content, a: Attributes) -> bool {
        match self.found(path) {
            Found::File { mode, uid, gid, len, sha256, .. } => {
                *mode == a.mode
                    && (!self.facts.owners || (*uid, *gid) == (a.uid, a.gid))
                    && *len == content.bytes().len() as u64
                    && *sha256 == content.sha256()
            }
            _ => false,
        }
    }

    pub(crate) fn write(&mut self, path: &str, content: Content, attributes: Attributes) {
        if self.holds(path, &content, attributes) {
            return;
        }
        let replaces = self.replaces(path);
        let public = !self.facts.closed.contains(path) && may_show(path, attributes.mode, content.bytes());
        self.steps.push(Step::Write { path: path.to_owned(), content, attributes, replaces, public });
    }

    fn replaces(&self, path: &str) -> Replaces {
        match self.found(path) {
            Found::File { .. } => Replaces::File,
            Found::Link { .. } => Replaces::Link,
            _ => Replaces::Nothing,
        }
    }

    fn id(&mut self, path: &str, owner: &Owner, what: &str) -> u32 {
        if let Some(id) = owner.id {
            return u32::try_from(id).unwrap_or_else(|_| {
                self.refuse(path, format!("{what} id {id} is not a user number"), "use 0 to 4294967295");
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
            self.refuse(path, why, "make it on the host first, or give its number");
            0
        })
    }

    /// Whether a path's content, as the new config wants it, has yet to be written.
    fn needs_write(&mut self, path: &str, want: &Want) -> bool {
        match want {
            Want::File { content, mode, user, group, .. } => {
                let bad = self.bad.len();
                let a = Attributes {
                    mode: *mode,
                    uid: self.id(path, user, "user"),
                    gid: self.id(path, group, "group"),
                };
                self.bad.truncate(bad);
                !self.holds(path, content, a)
            }
            _ => false,
        }
    }

    /// Brings one path to what the new config wants.
    fn reach(&mut self, path: &str, want: &Want) {
        if path == paths::KUBELET_CA {
            return;
        }
        if let Want::Dir { mode, user, group, overwrite } = want {
            return self.reach_dir(path, *mode, (user, group), *overwrite);
        }
        if !self.reachable(path) {
            return;
        }
        match want {
            Want::File { content, mode, user, group, .. } => {
                let uid = self.id(path, user, "user");
                let gid = self.id(path, group, "group");
                self.keep_original(path);
                self.write(path, content.clone(), Attributes { mode: *mode, uid, gid });
            }
            Want::Dir { .. } => {}
            Want::Link { overwrite, .. } if !self.may_replace(path, *overwrite) => {}
            Want::Link { target, hard: true, .. } => {
                let written = self.steps.iter().any(|s| s.paths().contains(&target.as_str()));
                if !written && !matches!(self.found(target), Found::File { .. }) {
                    let why = format!("a hard link needs a file, and {target} is none");
                    return self.refuse(path, why, "make the file first, or correct the target");
                }
                self.keep_original(path);
                if written || !self.facts.same_files.contains(path) {
                    let (path, target) = (path.to_owned(), target.clone());
                    self.steps.push(Step::HardLink { path, target });
                }
            }
            Want::Link { target, user, group, .. } => {
                let owner = (self.id(path, user, "user"), self.id(path, group, "group"));
                self.keep_original(path);
                let holds = match self.found(path) {
                    Found::Link { target: now, uid, gid } => {
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
            Want::Mask => {
                self.keep_original(path);
                if !matches!(self.found(path), Found::Link { target, .. } if target == DEV_NULL) {
                    let replaces = self.replaces(path);
                    let (path, target) = (path.to_owned(), DEV_NULL.to_owned());
                    self.steps.push(Step::Link { path, target, owner: (0, 0), replaces });
                }
            }
            Want::Nothing if self.found(path).is_absent() => {}
            Want::Nothing => {
                self.keep_original(path);
                self.steps.push(Step::Remove { path: path.to_owned(), why: "empty in the config" });
            }
        }
    }

    /// Whether what the host itself has at a path may give way; says so where it may not.
    fn may_replace(&mut self, path: &str, overwrite: Option<bool>) -> bool {
        let theirs = !self.found(path).is_absent() && self.old.at(path).is_none();
        if theirs && overwrite == Some(false) {
            let remedy = "set overwrite to true, or choose another path";
            self.refuse(path, "something stands there, and overwrite is false", remedy);
            return false;
        }
        true
    }

    /// Brings one folder to what the new config wants. What is in it is left alone.
    fn reach_dir(
        &mut self,
        path: &str,
        mode: Option<u32>,
        (user, group): (&Owner, &Owner),
        overwrite: Option<bool>,
    ) {
        let now = match self.found(path).clone() {
            Found::Dir { mode, uid, gid } => Some(Attributes { mode, uid, gid }),
            Found::Absent => None,
            _ if !self.reachable(path) || !self.may_replace(path, overwrite) => return,
            _ => None,
        };
        let asked = |o: &Owner| o.id.is_some() || o.name.as_deref().is_some_and(|n| !n.is_empty());
        let is = now.unwrap_or(Attributes { mode: crate::disk::root::DIR_MODE, uid: 0, gid: 0 });
        let attributes = Attributes {
            mode: mode.unwrap_or(is.mode),
            uid: if asked(user) { self.id(path, user, "user") } else { is.uid },
            gid: if asked(group) { self.id(path, group, "group") } else { is.gid },
        };
        let kept = paths::original_dir(path);
        match now {
            Some(now) => {
                let known = [kept.clone(), paths::original(path), paths::no_original(path)];
                // Of a folder that the config before had already nobody knows whose it was: it stays when it is given up.
                let ours = self.old.at(path).is_some_and(|w| *w != Want::Nothing);
                if !ours && known.iter().all(|p| self.found(p).is_absent()) {
                    match serde_json::to_vec(&now) {
                        Ok(json) => {
                            self.private_originals();
                            self.write(&kept, Content::new(json), PLAIN);
                        }
                        Err(e) => self.refuse(path, e.to_string(), "choose another path"),
                    }
                }
            }
            None => self.keep_original(path),
        }
        if now.is_none() && !self.found(path).is_absent() {
            self.steps.push(Step::Remove { path: path.to_owned(), why: "a folder takes its place" });
        }
        let same = |now: Attributes| {
            now.mode == attributes.mode
                && (!self.facts.owners || (now.uid, now.gid) == (attributes.uid, attributes.gid))
        };
        if !now.is_some_and(same) {
            self.steps.push(Step::MakeDir { path: path.to_owned(), attributes });
        }
    }

    /// Gives up a folder: one that the host had gets its mode and owner back, one that it had not goes if nothing is left
    /// in it, and a file that it stood in place of comes back.
    fn stale_dir(&mut self, path: &str) {
        let (dir, original, stamp) =
            (paths::original_dir(path), paths::original(path), paths::no_original(path));
        let there = |p: &String| !self.found(p).is_absent();
        let (kept, stamped) = (there(&original), there(&stamp));
        let is_dir = matches!(self.found(path), Found::Dir { .. });
        if is_dir
            && kept
            && !stamped
            && let Some(holds) = self.stays_in(path)
        {
            let why = format!(
                "the file that this folder replaced is to come back, and the folder is not empty: {holds} stays in it"
            );
            return self.refuse(path, why, &format!("move {holds} away, or keep the folder in the config"));
        }
        if let Some(attributes) = self.facts.original_dirs.get(path).copied().filter(|_| is_dir) {
            let same = match self.found(path) {
                Found::Dir { mode, uid, gid } => {
                    *mode == attributes.mode
                        && (!self.facts.owners || (*uid, *gid) == (attributes.uid, attributes.gid))
                }
                _ => false,
            };
            if !same {
                self.steps.push(Step::MakeDir { path: path.to_owned(), attributes });
            }
        } else if is_dir && (stamped || kept) {
            self.steps.push(Step::RemoveDir { path: path.to_owned(), why: STALE });
        } else if is_dir {
            self.notes.push(format!("{path} stays: it is not known whether the host had it before"));
        }
        if kept && !stamped && (is_dir || self.found(path).is_absent()) {
            let (from, to) = (original.clone(), path.to_owned());
            self.steps.push(Step::Copy { from, to, why: "the host's own comes back" });
        }
        for path in [dir, original, stamp] {
            if !self.found(&path).is_absent() {
                self.steps.push(Step::Remove { path, why: "bookkeeping of a path that is given up" });
            }
        }
    }

    /// What is left in a folder when all that only the old config wants is gone.
    fn stays_in(&self, folder: &str) -> Option<String> {
        let below = |path: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let there = |path: &String| !self.found(path).is_absent();
        let comes_back = |path: &str| {
            there(&paths::original(path)) && !there(&paths::no_original(path))
                || self.facts.original_dirs.contains_key(path)
        };
        let wanted =
            self.new.paths.iter().find(|(p, want)| below(p) && *want != Want::Nothing).map(|(p, _)| p);
        let theirs = || self.old.paths.iter().find(|(p, _)| below(p) && comes_back(p)).map(|(p, _)| p);
        self.facts.not_ours.get(folder).or(wanted).or_else(theirs).cloned()
    }

    /// Keeps what the host itself has at a path, or stamps that it has nothing. What is our own needs neither.
    fn keep_original(&mut self, path: &str) {
        if matches!(self.new.at(path), Some(Want::File { at, .. }) if at == paths::SSHD_DROPIN_RECORD) {
            return;
        }
        let (original, stamp) = (paths::original(path), paths::no_original(path));
        if !self.found(&original).is_absent() || !self.found(&stamp).is_absent() {
            return;
        }
        let ours = self.old.at(path).is_some_and(|w| *w != Want::Nothing);
        if ours || self.found(path).is_absent() {
            self.write(&stamp, Content::new(Vec::new()), PLAIN);
        } else {
            self.private_originals();
            self.steps.push(Step::Copy { from: path.to_owned(), to: original, why: ORIGINAL });
        }
    }

    /// What the host has in a folder that is closed to others stays closed to them where it is kept.
    fn private_originals(&mut self) {
        let path = paths::ORIGINALS;
        let private = matches!(self.found(path), Found::Dir { mode, .. } if *mode == PRIVATE_DIR_MODE);
        if !private && !self.steps.iter().any(|s| matches!(s, Step::MakeDir { path: p, .. } if p == path)) {
            let attributes = Attributes { mode: PRIVATE_DIR_MODE, uid: 0, gid: 0 };
            self.steps.push(Step::MakeDir { path: path.to_owned(), attributes });
        }
    }

    /// Takes away what only the old config wants, and puts back what the host had there.
    fn stale(&mut self) {
        let mut folders = Vec::new();
        for (path, want) in &self.old.paths {
            if self.new.at(path).is_some() || never_stale(path) {
                continue;
            }
            if matches!(want, Want::Dir { .. }) {
                folders.push(path.clone());
                continue;
            }
            let (original, stamp) = (paths::original(path), paths::no_original(path));
            let (kept, stamped) = (!self.found(&original).is_absent(), !self.found(&stamp).is_absent());
            if *want == Want::Nothing && !kept {
                continue;
            }
            if !matches!(self.found(path), Found::Absent | Found::Blocked { .. }) && !self.reachable(path) {
                continue;
            }
            if kept && !stamped {
                let why = "the host's own comes back";
                self.steps.push(Step::Copy { from: original.clone(), to: path.clone(), why });
            } else if !self.found(path).is_absent() {
                self.steps.push(Step::Remove { path: path.clone(), why: STALE });
            }
            for (there, path) in [(stamped, stamp), (kept, original)] {
                if there {
                    self.steps.push(Step::Remove { path, why: "bookkeeping of a path that is given up" });
                }
            }
        }
        // What is in a folder goes before it.
        folders.sort();
        for path in folders.iter().rev() {
            self.stale_dir(path);
        }
        for path in LEAKED {
            if matches!(self.found(path), Found::Link { .. }) {
                self.steps.push(Step::Remove { path: path.to_owned(), why: "left behind by older versions" });
            }
        }
    }

    /// Lets the program that takes certificate authorities in find those of the config, where it looks elsewhere.
    fn trust(&mut self) {
        let Some(tool) = &self.facts.trust_tool else { return };
        let both = self.old.paths.iter().chain(&self.new.paths).map(|(path, _)| path);
        let links: std::collections::BTreeMap<String, &String> =
            both.filter_map(|path| Some((tool.link(path)?, path))).collect();
        for (link, target) in links {
            let wanted = self.new.at(target).is_some_and(|w| *w != Want::Nothing);
            let ours = matches!(self.found(&link), Found::Link { target: t, .. } if t == target);
            if self.new.at(&link).is_some() || self.old.at(&link).is_some() {
                continue;
            }
            if !ours && !self.found(&link).is_absent() {
                self.notes.push(format!("{link} is the host's own: {target} is not linked there"));
                continue;
            }
            if ours && !wanted {
                self.steps.push(Step::Remove { path: link, why: STALE });
            } else if wanted && !ours && self.reachable(&link) {
                let (target, replaces) = (target.clone(), Replaces::Nothing);
                self.steps.push(Step::Link { path: link, target, owner: (0, 0), replaces });
            }
        }
    }

    /// Runs that program where authorities change and nothing else of the plan does, as where the node reboots: no service
    /// at boot does it here. What Ignition wrote before the first boot counts as changed.
    fn run_trust_tool(&mut self, disruption: &Disruption) {
        let Some(tool) = &self.facts.trust_tool else { return };
        if self.facts.unit_files.contains(UPDATE_CA_TRUST) {
            return;
        }
        let touched = self.steps.iter().any(|s| s.paths().iter().any(|p| tool.reads(p)));
        let first = self.found(paths::CURRENT_CONFIG).is_absent()
            && self.new.paths.iter().any(|(path, want)| *want != Want::Nothing && tool.reads(path));
        let (action, unit) = (ServiceAction::Run, tool.program.clone());
        let runs = disruption.services.iter().any(|s| s.action == action && s.unit == unit);
        if (touched || first) && !runs {
            self.steps.push(Step::Service { action, unit });
        }
    }

    fn state(&self, unit: &str) -> Option<&crate::system::systemd::UnitFileState> {
        self.facts.unit_states.get(unit)
    }

    fn units(&mut self, action: UnitAction, units: Vec<String>) -> bool {
        if units.is_empty() {
            return false;
        }
        self.steps.push(Step::Units { action, units });
        true
    }

    /// Disables units whose file changes, so that links of an old `[Install]` section go; and units that vanish.
    /// Gives their names.
    fn disable_rewritten(&mut self) -> Vec<String> {
        let mut disable = Vec::new();
        for u in &self.new.config.systemd.units {
            let path = paths::unit(&u.name);
            let enabled = self.state(&u.name).is_some_and(crate::system::systemd::UnitFileState::is_enabled);
            let want = self.new.at(&path).cloned();
            if enabled && has_contents(u) && want.is_some_and(|w| self.needs_write(&path, &w)) {
                disable.push(u.name.clone());
            }
        }
        // A unit that stays in the config and loses its file: nothing may go on to point to that. Where it is to be
        // masked, this is the last chance: systemd leaves the links of masked units alone.
        for u in &self.new.config.systemd.units {
            let path = paths::unit(&u.name);
            let ours = matches!(self.old.at(&path), Some(Want::File { .. }));
            let loses = match self.new.at(&path) {
                Some(Want::Mask) | None => ours && !self.uncovers(u),
                Some(Want::Nothing) => !self.found(&path).is_absent(),
                Some(Want::File { .. } | Want::Dir { .. } | Want::Link { .. }) => false,
            };
            if loses && self.state(&u.name).is_some_and(crate::system::systemd::UnitFileState::is_enabled) {
                disable.push(u.name.clone());
            }
        }
        for u in self.removed_units() {
            if has_contents(u) && u.mask != Some(true) && !self.uncovers(u) && is_unit_name(&u.name) {
                disable.push(u.name.clone());
            }
        }
        self.units(UnitAction::Disable, disable.clone());
        disable
    }

    /// Units of the old config that the new one does not have.
    fn removed_units(&self) -> Vec<&Unit> {
        let new = &self.new.config.systemd.units;
        let gone = |u: &&Unit| !new.iter().any(|n| n.name == u.name);
        self.old.config.systemd.units.iter().filter(gone).collect()
    }

    /// Whether the host has its own unit of that name, which shows when ours goes.
    fn uncovers(&self, u: &Unit) -> bool {
        let kept = !self.found(&paths::original(&paths::unit(&u.name))).is_absent();
        kept || self.facts.vendor_units.contains(&u.name)
    }

    /// Whether the host will have a file of this unit: the config's, or one of its own that shows then.
    fn exists(&self, u: &Unit) -> bool {
        let path = paths::unit(&u.name);
        let shows = match (self.new.at(&path), self.old.at(&path)) {
            (Some(Want::Nothing), _) => self.facts.vendor_units.contains(&u.name),
            (None, Some(Want::File { .. } | Want::Mask)) => self.uncovers(u),
            // The config before took the host's own away: it comes back.
            (None, Some(Want::Nothing)) if self.uncovers(u) => return true,
            _ => true,
        };
        has_contents(u) || shows && self.facts.unit_files.contains(&u.name)
    }

    /// Whether something may enable this unit: an instance needs no file of its own for that.
    fn can_be_disabled(&self, u: &Unit) -> bool {
        self.exists(u) || template_of(&u.name).is_some_and(|t| self.facts.unit_files.contains(&t))
    }

    /// Whether a step so far changes the file of a unit, which may have had nothing to enable before.
    fn brings_file(&self, name: &str) -> bool {
        let file = |p: &str| split(p).is_ok_and(|(dir, n)| n == name && paths::UNIT_DIRS.contains(&dir));
        self.steps.iter().any(|s| s.paths().iter().any(|p| file(p)))
    }

    /// Puts masks of instances back, the config's and an administrator's, that systemd takes away when it disables their
    /// template.
    fn mask_again(&mut self) {
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

    /// Whether this change takes the mask away from a unit or its template: the links that it had before count again.
    fn is_unmasked(&self, name: &str) -> bool {
        let masked = |w: &Wanted, name: &str| w.at(&paths::unit(name)) == Some(&Want::Mask);
        [Some(name.to_owned()), template_of(name)]
            .iter()
            .flatten()
            .any(|n| masked(self.old, n) && !masked(self.new, n))
    }

    /// Whether a template could be enabled as it is.
    fn lacks_instance(&self, u: &Unit) -> bool {
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
    /// template of an instance, which is to be disabled or masked. systemd takes both for one.
    fn against(&self, u: &Unit) -> Option<String> {
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

    /// Enables, disables and presets. True when there was any of it.
    fn enablement(&mut self, disabled: &[String]) -> bool {
        let (mut enable, mut disable, mut preset) = (Vec::new(), Vec::new(), Vec::new());
        for (i, u) in self.new.config.systemd.units.iter().enumerate() {
            let name = &u.name;
            // A template takes the links of all its instances along.
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
                    } else if let Some(instance) = self.against(u) {
                        let path = format!("spec.config.systemd.units[{i}]");
                        let why =
                            format!("{name} is to be enabled and {instance}, which goes with it, is not");
                        self.refuse(&path, why, "enable both, or neither");
                    } else if asked || state.is_some_and(|s| s.is_disabled()) || self.brings_file(name) {
                        enable.push(name.clone());
                    }
                }
                // An instance goes by its template: what enabled it can be taken away.
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
                    self.notes.push(format!("{name} has nothing to enable: no preset"));
                }
                None => preset.push(name.clone()),
            }
        }
        for u in self.removed_units() {
            if u.mask != Some(true) && self.uncovers(u) {
                preset.push(u.name.clone());
            }
        }
        // A preset of a template decides about its instances too, and one of an instance shows at the template: what the
        // config says of them counts, and has the last word.
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

    /// The note of the config in effect, and of a reboot that is owed.
    fn bookkeeping(&mut self, names: &Names, desired: &MachineConfigSpec, disruption: &Disruption) {
        let config = CurrentConfig { name: names.desired.clone(), spec: desired.clone() };
        match config.to_json() {
            Ok(json) => self.write(paths::CURRENT_CONFIG, Content::new(json), PRIVATE),
            Err(why) => self.refuse("spec", why, "correct the MachineConfig"),
        }
        if disruption.needs_reboot() {
            let pending = PendingReboot {
                config: names.desired.clone(),
                boot: self.facts.boot.clone(),
                because: disruption.reboot.clone(),
                tries: 0,
                cleared: self.facts.cleared,
            };
            match serde_json::to_vec(&pending) {
                Ok(json) => self.write(paths::REBOOT_PENDING, Content::new(json), PRIVATE),
                Err(e) => self.refuse(paths::REBOOT_PENDING, e.to_string(), "correct the MachineConfig"),
            }
        }
    }
}

/// Whether a path stays though no config has it any more.
pub(crate) fn never_stale(path: &str) -> bool {
    paths::NEVER_STALE.contains(&path)
        || split(path).is_ok_and(|(dir, _)| dir.contains(paths::NEVER_STALE_BELOW))
}

/// Links that versions before ours made and never removed.
pub(crate) const LEAKED: [&str; 2] = [
    "/etc/systemd/system/network-online.target.requires/node-valid-hostname.service",
    "/etc/systemd/system/network-online.target.wants/ovs-configuration.service",
];
