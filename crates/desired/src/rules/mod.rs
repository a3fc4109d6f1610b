//! What running machines cannot apply: one set of rules, which linting, rendering and the host share. Pure.
//!
//! There are two kinds: what cannot change on an installed machine ([`FIXED`], and the FIPS switch), and what no
//! running machine can do, whatever its previous config.
//!
//! What it is not: Ignition's own rules (`ignition::validate`), or what is in the way on one machine (`host`).

mod broken;
mod section;

use broken::{APPEND, MODE, SOURCE};
pub use broken::{BrokenRule, ComparedConfig, ConfigPart};
pub use section::{FIXED, Overrides, Section};

use std::collections::BTreeMap;

use ignition::{Config, File, Link, Unit, User};

use crate::paths::{self, FORCE_FILE, has_contents, is_reserved};

/// The only user that may be managed.
pub const CORE: &str = api::names::CORE_USER;
/// The largest mode of a file: no set-user-ID, set-group-ID or sticky bit.
pub const MODE_MAX: i64 = 0o777;

const INSTALL: &str =
    "set it when the machine is installed, and remove it from the MachineConfig of running machines";
const CORRECT: &str = "use a path of your own";

/// Every rule that a config breaks for machines that are in the config `old`. Without `old` there are no such machines:
/// a pool's first config may then contain what only an installer can set (see [`at_install`]), but still nothing that
/// no machine can do.
#[must_use]
pub fn broken<'a>(
    old: Option<ComparedConfig<'_>>,
    new: ComparedConfig<'a>,
    overrides: Overrides,
) -> Vec<BrokenRule<'a>> {
    let mut all = Vec::new();
    if let Some(old) = old {
        for section in &FIXED {
            let changed = (section.differs)(old.config, new.config);
            let gone = section.may_go && !(section.is_set)(new.config);
            if changed && !gone && !(section.overridden)(overrides) {
                let why = "it cannot change on a running machine".to_owned();
                all.push(BrokenRule { part: ConfigPart::Section(section), field: "", why, remedy: INSTALL });
            }
        }
        if old.fips != new.fips {
            let why = format!("it cannot change from {} to {} on a running machine", old.fips, new.fips);
            all.push(BrokenRule { part: ConfigPart::Fips, field: "", why, remedy: INSTALL });
        }
    }
    for file in &new.config.storage.files {
        all.extend(file_rules(file));
        all.extend(path_rules(&file.path, ConfigPart::File(&file.path)));
    }
    for link in &new.config.storage.links {
        all.extend(path_rules(&link.path, ConfigPart::Link(&link.path)));
        all.extend(link_rules(link));
    }
    for directory in &new.config.storage.directories {
        all.extend(path_rules(&directory.path, ConfigPart::Directory(&directory.path)));
    }
    for unit in &new.config.systemd.units {
        all.extend(unit_rules(unit));
    }
    nested(new.config, &mut all);
    // Users that the machines have already are accepted.
    if old.is_none_or(|old| old.config.passwd.users != new.config.passwd.users) {
        for user in &new.config.passwd.users {
            all.extend(user_rules(user));
        }
    }
    all
}

/// The sections of a pool's first config that only newly installed machines get. They are not wrong, but machines that
/// are running already will not apply them.
#[must_use]
pub fn at_install(new: ComparedConfig<'_>) -> Vec<BrokenRule<'_>> {
    let set = FIXED.iter().filter(|section| (section.is_set)(new.config));
    let warned = set.map(|section| BrokenRule {
        part: ConfigPart::Section(section),
        field: "",
        why: "it takes effect only when a machine is installed; running machines refuse it".to_owned(),
        remedy: "install the machines with this config, or remove the section",
    });
    warned.collect()
}

fn file_rules(file: &File) -> Option<BrokenRule<'_>> {
    let of = |field, why: String, remedy| {
        Some(BrokenRule { part: ConfigPart::File(&file.path), field, why, remedy })
    };
    if !file.append.is_empty() {
        let why = format!("{}: appending cannot be repeated or undone", file.path);
        return of(APPEND, why, "give the whole file in contents, or write a drop-in");
    }
    None
}

/// No config may write the agent's own records, or the administrator's force file.
fn path_rules<'a>(path: &'a str, part: ConfigPart<'a>) -> Option<BrokenRule<'a>> {
    let of = |why: String, remedy| Some(BrokenRule { part, field: ".path", why, remedy });
    if path == FORCE_FILE {
        let why = format!("{FORCE_FILE} is the file by which an administrator has everything applied again");
        return of(why, "remove it");
    }
    if is_reserved(path) {
        return of(format!("{path} is the agent's own record of this host"), CORRECT);
    }
    None
}

fn link_rules(link: &Link) -> Option<BrokenRule<'_>> {
    let target = link.target.as_deref().unwrap_or_default();
    (link.hard == Some(true) && (!target.starts_with('/') || is_reserved(target))).then(|| BrokenRule {
        part: ConfigPart::Link(&link.path),
        field: ".target",
        why: "a hard link needs the path of a file that is not the agent's own".to_owned(),
        remedy: "use another target",
    })
}

/// Why a file cannot have its mode: an agent sets the nine permission bits of a file, and no others.
#[must_use]
pub fn special_mode_bits(file: &File) -> Option<BrokenRule<'_>> {
    let mode = file.mode.filter(|mode| !(0..=MODE_MAX).contains(mode))?;
    // Rust prints the two's complement of a negative number.
    let mode = if mode < 0 { mode.to_string() } else { format!("{mode:04o}") };
    Some(BrokenRule {
        part: ConfigPart::File(&file.path),
        field: MODE,
        why: format!("mode {mode} of {} has bits above 0777", file.path),
        remedy: "use a mode from 0 to 0777: the set-user-ID, set-group-ID and sticky bits of a file cannot be set",
    })
}

/// Why other implementations would read a file's source differently: they refuse characters that must be escaped, and a
/// config must mean the same to all.
#[must_use]
pub fn unescaped(file: &File) -> Option<BrokenRule<'_>> {
    let source = file.contents.source.as_deref().unwrap_or_default();
    let (head, data) = source.split_once(',')?;
    let is_data = head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    if !is_data || data.bytes().all(|b| IN_URL.get(usize::from(b)).is_some_and(|known| *known)) {
        return None;
    }
    Some(BrokenRule {
        part: ConfigPart::File(&file.path),
        field: SOURCE,
        why: format!("{}: the data URL holds a character that must be escaped", file.path),
        remedy: "write it as %XX, or use ;base64",
    })
}

/// Bytes that are allowed in a data URL.
const IN_URL: [bool; 256] = in_url();

const fn in_url() -> [bool; 256] {
    let mut known = [false; 256];
    let marks = b"%-_.!~*'();/?:@&=+$,\r\n";
    let mut i = 0;
    while i < 256 {
        known[i] = (i as u8).is_ascii_alphanumeric();
        i += 1;
    }
    let mut i = 0;
    while i < marks.len() {
        known[marks[i] as usize] = true;
        i += 1;
    }
    known
}

fn unit_rules(unit: &Unit) -> Option<BrokenRule<'_>> {
    (unit.mask == Some(true) && unit.enabled == Some(true)).then(|| BrokenRule {
        part: ConfigPart::Unit(&unit.name),
        field: "",
        why: format!("{} is masked and enabled", unit.name),
        remedy: "remove mask or enabled",
    })
}

/// A file or link at a path that must be a folder for another entry.
fn nested<'a>(config: &'a Config, all: &mut Vec<BrokenRule<'a>>) {
    // Paths that are not folders, with the part of the config that they belong to. Units cannot be below one another.
    let mut solid: BTreeMap<String, Option<ConfigPart<'a>>> = BTreeMap::new();
    for unit in &config.systemd.units {
        if unit.mask == Some(true) || has_contents(unit) {
            solid.insert(paths::unit(&unit.name), None);
        }
        for dropin in unit.dropins.iter().filter(|d| d.contents.as_deref().is_some_and(|c| !c.is_empty())) {
            solid.insert(paths::dropin(&unit.name, &dropin.name), None);
        }
    }
    solid.extend(config.storage.files.iter().map(|f| (f.path.clone(), Some(ConfigPart::File(&f.path)))));
    solid.extend(config.storage.links.iter().map(|l| (l.path.clone(), Some(ConfigPart::Link(&l.path)))));
    let folders = config.storage.directories.iter();
    let folders: Vec<_> = folders.map(|d| (d.path.clone(), Some(ConfigPart::Directory(&d.path)))).collect();
    for (path, part) in solid.iter().chain(folders.iter().map(|(path, part)| (path, part))) {
        let mut at = path.as_str();
        while let Some((folder, _)) = at.rsplit_once('/').filter(|(folder, _)| !folder.is_empty()) {
            if let Some(above) = solid.get(folder)
                && let Some(part) = part.or(*above)
            {
                all.push(BrokenRule {
                    part,
                    field: ".path",
                    why: format!("{path}: the config also wants a file at {folder}"),
                    remedy: "remove one of the two",
                });
            }
            at = folder;
        }
    }
}

/// Only `core`, with keys or a password and nothing else.
fn user_rules(user: &User) -> Option<BrokenRule<'_>> {
    let of =
        |why: String, remedy| Some(BrokenRule { part: ConfigPart::User(&user.name), field: "", why, remedy });
    if user.name != CORE {
        let why = format!("user {:?} cannot be managed on a running machine", user.name);
        return of(why, "only the user core can; create others by other means");
    }
    let only = User {
        name: user.name.clone(),
        password_hash: user.password_hash.clone(),
        ssh_authorized_keys: user.ssh_authorized_keys.clone(),
        ..User::default()
    };
    if *user != only {
        let why = "of core only sshAuthorizedKeys and passwordHash can change on a running machine";
        return of(why.to_owned(), "remove the other fields");
    }
    if user.password_hash.is_none() && user.ssh_authorized_keys.is_empty() {
        let why = "core has neither keys nor a password".to_owned();
        return of(why, "give sshAuthorizedKeys or passwordHash, or remove the user");
    }
    if user.password_hash.as_deref().is_some_and(|h| h.contains([':', '\n', '\r', '\0'])) {
        let why = "the password hash of core holds a colon or a line break".to_owned();
        return of(why, "make it with mkpasswd");
    }
    None
}

#[cfg(test)]
mod tests;
