//! SSH keys and password of the core user: where they are written, and what makes the host's SSH server read the keys.
//! Pure.
//!
//! Not here: what the server's configuration means (see `sshd`).

use std::collections::BTreeMap;

use desired::{CORE, Content, DesiredHost, DesiredPath};

use crate::disk::attributes::{Attributes, PLAIN, PRIVATE};
use crate::disk::path_state::PathState;
use crate::disk::root::{split, temp_name};
use crate::paths;
use crate::plan::facts::Facts;
use crate::plan::secret::Secret;
use crate::plan::sshd::{DROPIN, Login, STOCK_FILE, Sshd, has_key, target, with_block};
use crate::plan::stale::stays_when_unlisted;
use crate::plan::step::{Replaces, Step};
use crate::plan::steps::{STALE, Steps};

/// The mode of key folders.
const KEY_DIR_MODE: u32 = 0o700;
/// A hash that no password matches (shadow(5)).
const LOCKED: &str = "*";

/// The core user of a host, as its SSH server sees it. `None`: there is no such user.
pub(crate) fn login(facts: &Facts) -> Option<Login<'_>> {
    let core = facts.users.users.get(CORE)?;
    let main = facts.users.groups.iter().find(|(_, gid)| **gid == core.gid);
    Some(Login { name: CORE, home: &core.home, group: main.map(|(name, _)| name.as_str()) })
}

impl Steps<'_> {
    /// Adds the steps for keys and password of the core user.
    pub(crate) fn core_user(&mut self) {
        if !self.changes.passwd && !self.facts.force {
            return;
        }
        let Some(core) = self.facts.users.users.get(CORE).cloned() else {
            if !self.new.config.passwd.users.is_empty() {
                self.notes.push("this host has no user core: its keys and password are not set".to_owned());
            }
            return;
        };
        let had = self.old.config.passwd.users.iter().any(|u| u.name == CORE);
        let users = &self.new.config.passwd.users;
        if users.is_empty() && !had {
            return;
        }
        let gid = self.facts.users.groups.get(CORE).copied().unwrap_or(core.gid);
        let keys: String =
            users.iter().flat_map(|u| &u.ssh_authorized_keys).map(|k| format!("{k}\n")).collect();
        self.keys(core.uid, gid, keys);
        let hash = users.iter().find(|u| u.name == CORE).and_then(|u| u.password_hash.clone());
        // The password of a user that is no longer managed is locked. The reference sets an empty one, which lets anybody in.
        let hash = hash.filter(|h| !h.is_empty()).unwrap_or_else(|| LOCKED.to_owned());
        if self.facts.core_hash.as_ref().is_none_or(|h| h.0 != hash) {
            if !self.found(paths::PASSWD_BACKUP).is_absent() || !self.found(paths::PASSWD).is_absent() {
                let (from, to) = (paths::PASSWD.to_owned(), paths::PASSWD_BACKUP.to_owned());
                self.steps.push(Step::Copy { from, to, why: "backup, as useradd and passwd make it" });
            }
            let (user, hash, day) = (CORE.to_owned(), Secret(hash), self.facts.day);
            self.steps.push(Step::Password { user, hash, day });
        }
    }

    /// Makes the keys effective if the host's SSH server does not read them by default, and warns of a change after
    /// which nobody can log in. True if the server must reload its configuration.
    pub(crate) fn keys_count(&mut self) -> bool {
        let facts = self.facts;
        let (Some(core), Some(login)) = (facts.users.users.get(CORE), login(facts)) else { return false };
        let keys = |w: &DesiredHost| -> String {
            let all = w.config.passwd.users.iter().flat_map(|u| &u.ssh_authorized_keys);
            all.map(|k| format!("{k}\n")).collect()
        };
        let (had, has) = (keys(self.old), keys(self.new));
        let shut_out = desired::removes_last_login(&self.old.config, &self.new.config);
        let own = self.facts.core_own_keys.as_ref().map(|k| k.0.clone());
        let theirs = own.as_deref().map(|text| with_block(text, &had, "")).unwrap_or_default();
        let other_way = self.facts.others_log_in || has_key(&theirs);
        if shut_out && !other_way {
            self.warnings.push(
                "nobody can log in to this host after this change: core loses its keys and password, root \
                 has no key and no other user a password; leave a key in spec.config.passwd until there is \
                 another way in"
                    .to_owned(),
            );
        }
        if had.is_empty() && has.is_empty() {
            return false;
        }
        let texts = sshd_texts_after(self.old, self.new, facts);
        let said = facts.sshd_answers.as_ref();
        let Some(sshd) = Sshd::read(&texts, &login, said.map(|s| &s.without)) else { return false };
        if self.new.at(DROPIN).is_some() || self.new.at(paths::CORE_OWN_KEYS).is_some() {
            return false;
        }
        let needed = !has.is_empty() && !sshd.reads_ours(&login);
        let blocked = matches!(self.found(DROPIN), PathState::NoParentFolder { .. });
        let dropin = if needed && !blocked { sshd.dropin(&texts, &login, said) } else { None };
        let by_dropin = dropin.is_some();
        // A file that cannot be read as a key file must not be overwritten.
        let known = own.is_some() || self.found(paths::CORE_OWN_KEYS).is_absent();
        let by_block = needed && !by_dropin && known && sshd.reads(STOCK_FILE, &login);
        if needed && !by_dropin && !by_block {
            let warning = match &sshd.perhaps {
                Some(path) => format!(
                    "the keys of core may have no effect on this host: {path} sets AuthorizedKeysFile in a Match block that may apply to core or not, and its SSH server looks at {}; add .ssh/authorized_keys.d/ignition to AuthorizedKeysFile there",
                    sshd.files()
                ),
                None => format!(
                    "the keys of core have no effect on this host: its SSH server looks at {} only; add .ssh/authorized_keys.d/ignition to AuthorizedKeysFile in {}",
                    sshd.files(),
                    sshd.main
                ),
            };
            self.warnings.push(warning);
        }
        let steps = self.steps.len();
        let recorded = !self.found(paths::SSHD_DROPIN_RECORD).is_absent();
        let mut record = None;
        if let Some(dropin) = dropin {
            if self.reachable(DROPIN) {
                let content = Content::new(dropin.into_bytes());
                self.write(DROPIN, content.clone(), PLAIN);
                record = Some(content);
            }
        } else if !blocked && !self.found(DROPIN).is_absent() {
            self.steps.push(Step::Remove { path: DROPIN.to_owned(), why: STALE });
        }
        let changed = self.steps.len() > steps;
        match record {
            Some(content) => self.write(paths::SSHD_DROPIN_RECORD, content, PRIVATE),
            None if recorded => {
                let path = paths::SSHD_DROPIN_RECORD.to_owned();
                self.steps.push(Step::Remove { path, why: STALE });
            }
            None => {}
        }
        let block = with_block(own.as_deref().unwrap_or_default(), &had, if by_block { &has } else { "" });
        if known && own.as_deref().unwrap_or_default() != block && self.reachable(paths::CORE_OWN_KEYS) {
            let gid = self.facts.users.groups.get(CORE).copied().unwrap_or(core.gid);
            let attributes = match self.found(paths::CORE_OWN_KEYS) {
                PathState::File { mode, uid, gid, .. } => Attributes { mode: *mode, uid: *uid, gid: *gid },
                _ => Attributes { mode: 0o600, uid: core.uid, gid },
            };
            if block.is_empty() {
                self.steps.push(Step::Remove { path: paths::CORE_OWN_KEYS.to_owned(), why: STALE });
            } else {
                self.write(paths::CORE_OWN_KEYS, Content::new(block.into_bytes()), attributes);
            }
        }
        changed
    }

    fn keys(&mut self, uid: u32, gid: u32, keys: String) {
        let mut fresh = false;
        let folders = folders_of_keys();
        for (i, dir) in folders.iter().enumerate() {
            let found = if fresh { &PathState::Absent } else { self.found(dir) };
            match found.clone() {
                PathState::NoParentFolder { parent } => {
                    self.refuse(dir, format!("{parent} is not a folder"), "move that away");
                    return;
                }
                // The home folder keeps its owner.
                PathState::Dir { .. } if i == 0 => continue,
                PathState::Dir { uid: owner, .. } if owner == uid || !self.facts.owners => continue,
                PathState::Absent => {}
                _ if i == 0 => {
                    self.refuse(dir, "it is not a folder", "make it the home folder of core");
                    return;
                }
                _ => {
                    let to = split(dir).map(|(d, _)| format!("{d}/{}", temp_name(dir))).unwrap_or_default();
                    let why = "not a folder of core's own";
                    self.steps.push(Step::MoveAside { path: dir.clone(), to, why });
                }
            }
            fresh = true;
            let attributes = Attributes { mode: KEY_DIR_MODE, uid, gid };
            self.steps.push(Step::MakeDir { path: dir.clone(), attributes });
        }
        let content = Content::new(keys.into_bytes());
        let attributes = Attributes { mode: 0o600, uid, gid };
        if fresh {
            let (path, replaces) = (paths::CORE_KEYS.to_owned(), Replaces::Nothing);
            let public = false;
            self.steps.push(Step::Write { path, content, attributes, replaces, public });
        } else if self.reachable(paths::CORE_KEYS) {
            self.write(paths::CORE_KEYS, content, attributes);
        }
    }
}

/// The texts of the SSH server's configuration as a change leaves them, without our own additions.
pub(crate) fn sshd_texts_after(
    old: &DesiredHost,
    new: &DesiredHost,
    facts: &Facts,
) -> BTreeMap<String, String> {
    let now = &facts.sshd;
    let mut texts = now.clone();
    texts.remove(DROPIN);
    let mut put = |path: &String, text: Option<String>| match text {
        Some(text) => texts.insert(path.clone(), text),
        None => texts.remove(path),
    };
    // The same as `Steps::remove_stale` does.
    for (path, want) in &old.paths {
        if new.at(path).is_some() || stays_when_unlisted(path) || matches!(want, DesiredPath::Dir { .. }) {
            continue;
        }
        let (original, stamp) = (paths::original(path), paths::no_original(path));
        let (kept, stamped) = (!facts.found(&original).is_absent(), !facts.found(&stamp).is_absent());
        if *want != DesiredPath::Nothing || kept {
            put(path, now.get(&original).filter(|_| kept && !stamped).cloned());
        }
    }
    let of_file = |want: &DesiredPath| match want {
        DesiredPath::File { content, .. } => Some(String::from_utf8_lossy(content.bytes()).into_owned()),
        _ => None,
    };
    for (path, want) in &new.paths {
        let text = match want {
            DesiredPath::Link { target: to, .. } => {
                let target = target(path, to);
                new.at(&target).map_or_else(|| now.get(&target).cloned(), of_file)
            }
            other => of_file(other),
        };
        put(path, text);
    }
    texts
}

/// The folders above the keys of core, outermost first: home, `.ssh`, `authorized_keys.d`.
pub(crate) fn folders_of_keys() -> [String; 3] {
    let home = paths::CORE_HOME;
    [home.to_owned(), format!("{home}/.ssh"), format!("{home}/.ssh/authorized_keys.d")]
}
