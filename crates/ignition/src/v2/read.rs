//! The conversion from spec 2.2 to the 3.5 model. Spec 2 allows the same file or unit several times, and has parts that
//! spec 3 dropped; those parts are refused with their path.
//!
//! What it is not: the check of types and unknown fields (see `check`).
//!
//! Sources: <https://coreos.github.io/ignition/configuration-v2_2/> and <https://coreos.github.io/ignition/migrating-configs/>.

use super::model::{Config, Create, Directory2, Disk2, File2, Ignition, Link2, Mount, Storage, Unit2, User2};
use crate::check::Warning;
use crate::model::{
    self as v3, Directory, Disk, Dropin, File, Group, Link, Owner, Partition, Resource, Unit, User,
    Verification,
};
use crate::newer_values::SPECIAL;
use std::collections::{HashMap, HashSet};

/// A part of a spec 2 config that has no counterpart in spec 3, with its path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct V2Error {
    /// Where.
    pub path: String,
    /// What it is, and what to do.
    pub message: String,
}

fn refuse(path: impl Into<String>, message: &str) -> V2Error {
    V2Error { path: path.into(), message: message.to_owned() }
}

/// The string, unless it is empty.
fn full(s: Option<String>) -> Option<String> {
    s.filter(|s| !s.is_empty())
}

fn yes(b: bool) -> Option<bool> {
    b.then_some(true)
}

fn owner(o: Owner) -> Owner {
    Owner { id: o.id, name: full(o.name) }
}

/// Settings that mean something else in spec 3 than in spec 2, with their paths.
pub(crate) fn notes(config: &Config) -> Vec<Warning> {
    let s = &config.storage;
    let files = s.files.iter().enumerate();
    let unset = files.filter(|(_, f)| f.mode.is_none() && !f.append);
    let unset = unset.map(|(i, _)| (format!("storage.files[{i}].mode"), "0644"));
    let folders = s.directories.iter().enumerate().filter(|(_, d)| d.mode.is_none());
    let unset = unset.chain(folders.map(|(i, _)| (format!("storage.directories[{i}].mode"), "0755")));
    let unset = unset.map(|(path, read)| {
        let message = format!(
            "without a mode, Ignition of spec 2 makes it 0000, and here it becomes {read}; write the mode"
        );
        Warning::effect(path, message)
    });
    let special = |mode: Option<i64>| mode.is_some_and(|m| m & SPECIAL != 0);
    let files = s.files.iter().enumerate().filter(|(_, f)| special(f.mode));
    let folders = s.directories.iter().enumerate().filter(|(_, d)| special(d.mode));
    let bits = files.map(|(i, _)| format!("storage.files[{i}].mode"));
    let bits = bits.chain(folders.map(|(i, _)| format!("storage.directories[{i}].mode")));
    unset.chain(bits.map(crate::newer_values::left_out)).collect()
}

/// The same config in the 3.5 model.
pub(crate) fn to_v3(config: Config) -> Result<v3::Config, V2Error> {
    let Config { ignition, networkd, passwd, storage, systemd } = config;
    if !networkd.units.is_empty() {
        return Err(refuse("networkd.units", "spec 3 has no networkd units; write them as files"));
    }
    let mut out = crate::version::empty();
    let Ignition { config, security, timeouts, version: _ } = ignition;
    out.ignition.config.merge = config.append.into_iter().map(resource).collect();
    out.ignition.config.replace = resource(config.replace);
    out.ignition.security = security;
    out.ignition.timeouts = timeouts;
    out.passwd.groups = passwd.groups.into_iter().map(group).collect();
    out.passwd.users = users(passwd.users)?;
    out.storage = self::storage(storage)?;
    out.systemd.units = units(systemd.units);
    Ok(out)
}

fn resource(r: Resource) -> Resource {
    let Resource { compression, http_headers, source, verification } = r;
    let verification = Verification { hash: full(verification.hash) };
    Resource { compression: full(compression), http_headers, source: full(source), verification }
}

fn group(g: Group) -> Group {
    let Group { gid, name, password_hash, should_exist, system } = g;
    Group { gid, name, password_hash: full(password_hash), should_exist, system: system.filter(|s| *s) }
}

/// The last entry for `core`, with the keys of all entries.
fn users(all: Vec<User2>) -> Result<Vec<User>, V2Error> {
    let mut kept: Option<User> = None;
    for (i, u) in all.into_iter().enumerate().rev() {
        let User2 {
            create,
            gecos,
            groups,
            home_dir,
            name,
            no_create_home,
            no_log_init,
            no_user_group,
            password_hash,
            primary_group,
            shell,
            ssh_authorized_keys,
            system,
            uid,
        } = u;
        if name != "core" {
            return Err(refuse(format!("passwd.users[{i}].name"), "only the user core can be managed"));
        }
        if create != Create::default() {
            return Err(refuse(
                format!("passwd.users[{i}].create"),
                "spec 3 has no create; use the user's own fields",
            ));
        }
        match &mut kept {
            Some(user) => user.ssh_authorized_keys.extend(ssh_authorized_keys),
            None => {
                kept = Some(User {
                    gecos: full(gecos),
                    groups,
                    home_dir: full(home_dir),
                    name,
                    no_create_home: yes(no_create_home),
                    no_log_init: yes(no_log_init),
                    no_user_group: yes(no_user_group),
                    password_hash,
                    primary_group: full(primary_group),
                    shell: full(shell),
                    should_exist: None,
                    ssh_authorized_keys,
                    system: yes(system),
                    uid,
                });
            }
        }
    }
    Ok(kept
        .map(|mut user| {
            let mut seen = HashSet::new();
            user.ssh_authorized_keys.retain(|k| seen.insert(k.clone()));
            user
        })
        .into_iter()
        .collect())
}

fn storage(s: Storage) -> Result<v3::Storage, V2Error> {
    let Storage { directories, disks, files, filesystems, links, raid } = s;
    for (i, f) in filesystems.iter().enumerate() {
        let root = f.name.as_deref() == Some("root") && f.mount == Mount::default();
        if !root {
            return Err(refuse(
                format!("storage.filesystems[{i}]"),
                "file systems of spec 2 cannot be translated; write this config in spec 3",
            ));
        }
    }
    let on_root = |path: String, filesystem: &Option<String>| match filesystem.as_deref() {
        Some("root") => Ok(()),
        None | Some("") => Err(refuse(format!("{path}.filesystem"), "spec 2 requires it; write root")),
        Some(_) => Err(refuse(format!("{path}.filesystem"), "only the file system root can be translated")),
    };
    for (i, f) in files.iter().enumerate() {
        on_root(format!("storage.files[{i}]"), &f.filesystem)?;
    }
    let kept = self::files(files)?;
    let mut out = v3::Storage { files: kept, raid, ..v3::Storage::default() };
    for (i, d) in directories.into_iter().enumerate() {
        on_root(format!("storage.directories[{i}]"), &d.filesystem)?;
        let Directory2 { filesystem: _, group, mode, overwrite, path, user } = d;
        out.directories.push(Directory { group: owner(group), mode, overwrite, path, user: owner(user) });
    }
    for (i, l) in links.into_iter().enumerate() {
        on_root(format!("storage.links[{i}]"), &l.filesystem)?;
        let Link2 { filesystem: _, group, hard, overwrite, path, target, user } = l;
        let (group, user) = (owner(group), owner(user));
        out.links.push(Link { group, hard: yes(hard), overwrite, path, target: Some(target), user });
    }
    for (i, d) in disks.into_iter().enumerate() {
        out.disks.push(disk(&format!("storage.disks[{i}]"), d)?);
    }
    Ok(out)
}

/// One entry for each path: the last one that does not append, and, in their order, all that append to it. Paths are in
/// the reverse order of their last entries, as in the reference.
fn files(all: Vec<File2>) -> Result<Vec<File>, V2Error> {
    let mut last: HashMap<String, usize> = HashMap::new();
    let mut made: HashMap<String, File> = HashMap::new();
    for (i, f) in all.into_iter().enumerate() {
        let path = f.path.clone();
        last.insert(path.clone(), i);
        let appended = f.append;
        let mut file = file(f);
        if let Some(before) = made.remove(&path).filter(|_| appended) {
            let same = (file.mode.is_none() || file.mode == before.mode)
                && (file.user == Owner::default() || file.user == before.user)
                && (file.group == Owner::default() || file.group == before.group);
            if !same {
                let message = "spec 3 has one mode and owner for a file and what is appended to it; write the same here";
                return Err(refuse(format!("storage.files[{i}]"), message));
            }
            let more = std::mem::take(&mut file.append);
            file = before;
            file.append.extend(more);
        }
        made.insert(path, file);
    }
    let mut kept: Vec<File> = made.into_values().collect();
    kept.sort_by_key(|f| std::cmp::Reverse(last.get(&f.path).copied()));
    Ok(kept)
}

fn file(f: File2) -> File {
    let File2 { append, contents, filesystem: _, group, mode, overwrite, path, user } = f;
    let source = Some(contents.source.clone().unwrap_or_default());
    let contents = Resource { source, ..resource(contents) };
    let (contents, append, overwrite) = if append {
        (Resource::default(), vec![contents], Some(false))
    } else {
        (contents, Vec::new(), Some(overwrite.unwrap_or(true)))
    };
    File { append, contents, group: owner(group), mode, overwrite, path, user: owner(user) }
}

fn disk(at: &str, d: Disk2) -> Result<Disk, V2Error> {
    /// Sectors of 512 bytes in a MiB.
    const SECTORS: i64 = 2048;
    let mib = |path: String, sectors: i64| match sectors {
        0 => Ok(None),
        n if n % SECTORS == 0 => Ok(Some(n / SECTORS)),
        _ => Err(refuse(path, "spec 3 counts in MiB; use a multiple of 2048 sectors")),
    };
    let mut partitions = Vec::new();
    for (i, p) in d.partitions.into_iter().enumerate() {
        partitions.push(Partition {
            size_mib: mib(format!("{at}.partitions[{i}].size"), p.size)?,
            start_mib: mib(format!("{at}.partitions[{i}].start"), p.start)?,
            guid: full(p.guid),
            label: full(p.label),
            number: p.number,
            type_guid: full(p.type_guid),
            ..Partition::default()
        });
    }
    Ok(Disk { device: d.device, partitions, wipe_table: yes(d.wipe_table) })
}

/// The last entry of each name, with drop-ins of earlier entries that it does not have itself.
fn units(all: Vec<Unit2>) -> Vec<Unit> {
    let mut kept: Vec<Unit> = Vec::new();
    for u in all.into_iter().rev() {
        let Unit2 { contents, dropins, enable, enabled, mask, name } = u;
        let dropins = dropins.into_iter().map(|d| Dropin { contents: full(d.contents), name: d.name });
        if let Some(later) = kept.iter_mut().find(|k| k.name == name) {
            for d in dropins {
                if !later.dropins.iter().any(|x| x.name == d.name) {
                    later.dropins.push(d);
                }
            }
        } else {
            kept.push(Unit {
                contents: full(contents),
                dropins: dropins.collect(),
                // `enable` is the older field. If both are set, the reference uses the newer one.
                enabled: enabled.or(yes(enable)),
                mask: yes(mask),
                name,
            });
        }
    }
    kept
}
