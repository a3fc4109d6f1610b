//! What cannot change on a machine that runs, whatever machine it is. Pure.

use ignition::{Passwd, User};

use crate::finding::{Irreconcilable, Scope};
use crate::paths::{FORCE_FILE, is_reserved};
use crate::wanted::Wanted;

/// The user that may be managed.
pub const CORE: &str = api::names::CORE_USER;

/// Every difference that cannot be applied to a running machine.
#[must_use]
pub fn irreconcilable(old: &Wanted, new: &Wanted) -> Vec<Irreconcilable> {
    let mut bad = Vec::new();
    let mut refuse = |path: &str, why: &str, remedy: &str| {
        bad.push(Irreconcilable {
            path: path.to_owned(),
            why: why.to_owned(),
            remedy: remedy.to_owned(),
            scope: Scope::Config,
        });
    };
    if let Err(errors) = ignition::validate(&new.config) {
        for e in errors.0 {
            refuse(&format!("spec.config.{}", e.path), &e.message, "correct the Ignition config");
        }
    }
    let (a, b) = (&old.config, &new.config);
    let install =
        "set it when the machine is installed; take it out of the MachineConfig of machines that run";
    let sections = [
        ("spec.config.passwd.groups", a.passwd.groups != b.passwd.groups),
        ("spec.config.kernelArguments", a.kernel_arguments != b.kernel_arguments),
        ("spec.config.storage.disks", a.storage.disks != b.storage.disks),
        ("spec.config.storage.filesystems", a.storage.filesystems != b.storage.filesystems),
        ("spec.config.storage.raid", a.storage.raid != b.storage.raid),
        ("spec.config.storage.luks", a.storage.luks != b.storage.luks),
    ];
    for (path, changed) in sections {
        if changed {
            refuse(path, "it cannot change on a machine that runs", install);
        }
    }
    if old.fips != new.fips {
        refuse("spec.fips", "it cannot change on a machine that runs", install);
    }
    for (i, f) in b.storage.files.iter().enumerate() {
        if !f.append.is_empty() {
            let path = format!("spec.config.storage.files[{i}].append");
            refuse(&path, "appending cannot be repeated or undone", "give the whole file in contents");
        }
    }
    let files = b.storage.files.iter().map(|f| &f.path).enumerate().map(|(i, p)| ("files", i, p));
    let links = b.storage.links.iter().map(|l| &l.path).enumerate().map(|(i, p)| ("links", i, p));
    let directories = b.storage.directories.iter().map(|d| &d.path).enumerate();
    for (list, i, at) in files.chain(links).chain(directories.map(|(i, p)| ("directories", i, p))) {
        let path = format!("spec.config.storage.{list}[{i}].path");
        if at == FORCE_FILE {
            refuse(&path, "this file asks the daemon to apply everything again", "use another path");
        } else if is_reserved(at) {
            refuse(&path, &format!("{at} is the daemon's own record of this host"), "use another path");
        }
    }
    for (i, l) in b.storage.links.iter().enumerate() {
        let target = l.target.as_deref().unwrap_or_default();
        let path = format!("spec.config.storage.links[{i}].target");
        if l.hard == Some(true) && (!target.starts_with('/') || is_reserved(target)) {
            refuse(
                &path,
                "a hard link needs the path of a file that is not the daemon's own",
                "use another target",
            );
        }
    }
    for (i, u) in b.systemd.units.iter().enumerate() {
        if u.mask == Some(true) && u.enabled == Some(true) {
            let path = format!("spec.config.systemd.units[{i}]");
            refuse(&path, &format!("{} is masked and enabled", u.name), "take away mask or enabled");
        }
    }
    if a.passwd != b.passwd {
        users(&b.passwd, &mut refuse);
    }
    bad
}

/// Only `core`, with keys or a password and nothing else.
fn users(passwd: &Passwd, refuse: &mut impl FnMut(&str, &str, &str)) {
    for (i, user) in passwd.users.iter().enumerate() {
        let path = format!("spec.config.passwd.users[{i}]");
        if user.name != CORE {
            let why = format!("user {:?} cannot be managed on a machine that runs", user.name);
            refuse(&path, &why, "only the user core can; make others by other means");
            continue;
        }
        let User { name, password_hash, ssh_authorized_keys, .. } = user.clone();
        let allowed = User { name, password_hash, ssh_authorized_keys, ..User::default() };
        if *user != allowed {
            let why = "of core only sshAuthorizedKeys and passwordHash can change on a machine that runs";
            refuse(&path, why, "take the other fields away");
        } else if user.password_hash.is_none() && user.ssh_authorized_keys.is_empty() {
            refuse(
                &path,
                "core has neither keys nor a password",
                "give sshAuthorizedKeys or passwordHash, or take the user away",
            );
        }
    }
}
