//! Can running machines be changed from one rendered config to another, or only made anew? Pure.
//!
//! What it is not: the daemon's own check, which stands before every update as well.

use crate::check::Component;
use crate::error::Finding;
use api::names::CORE_USER;
use ignition::{Config, User};

/// Sections whose changes are let pass although machines will not follow (new machines will).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `storage.disks`
    pub disks: bool,
    /// `storage.filesystems`
    pub filesystems: bool,
    /// `storage.raid`
    pub raid: bool,
}

/// The file that makes a daemon skip its checks; no config may create it.
const FORCE_FILE: &str = "/run/machine-config-daemon-force";

/// Where a change cannot be made, with the rule and a test for who asks for it.
struct Change {
    path: &'static str,
    message: String,
    asks: fn(&Config) -> bool,
}

/// Compares the present config with the new one, and names the MachineConfigs that ask for what cannot be done.
///
/// # Errors
/// Every section that cannot be changed on a running machine.
pub fn reconcilable(
    old: (&Config, bool),
    new: (&Config, bool),
    components: &[Component<'_>],
    overrides: Overrides,
) -> Result<(), Vec<Finding>> {
    let ((old, old_fips), (new, new_fips)) = (old, new);
    let mut findings = Vec::new();
    for Change { path, message, asks } in changes(old, new, overrides) {
        let who: Vec<&str> =
            components.iter().filter(|c| c.config.as_ref().is_some_and(asks)).map(Component::name).collect();
        let object = match who.as_slice() {
            [] => "the rendered MachineConfig".to_owned(),
            [one] => format!("MachineConfig {one}"),
            many => format!("MachineConfigs {}", many.join(", ")),
        };
        findings.push(Finding { object, path: format!("spec.config.{path}"), message });
    }
    if old_fips != new_fips {
        let who = components.iter().find(|c| c.machine_config.spec.fips).map(Component::name);
        findings.push(Finding {
            object: who
                .map_or_else(|| "the rendered MachineConfig".to_owned(), |n| format!("MachineConfig {n}")),
            path: "spec.fips".to_owned(),
            message: format!("cannot change from {old_fips} to {new_fips} on machines that are installed"),
        });
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn changes(old: &Config, new: &Config, overrides: Overrides) -> Vec<Change> {
    let mut found: Vec<Change> = Vec::new();
    let (o, n) = (&old.storage, &new.storage);
    let fixed = "cannot change on a running machine; undo this change or make the machines anew";
    let mut fix = |changed: bool, path: &'static str, asks: fn(&Config) -> bool| {
        if changed {
            found.push(Change { path, message: fixed.to_owned(), asks });
        }
    };
    fix(old.passwd.groups != new.passwd.groups, "passwd.groups", |c| !c.passwd.groups.is_empty());
    fix(old.kernel_arguments != new.kernel_arguments, "kernelArguments", |c| {
        c.kernel_arguments != ignition::KernelArguments::default()
    });
    fix(!overrides.disks && o.disks != n.disks, "storage.disks", |c| !c.storage.disks.is_empty());
    fix(!overrides.filesystems && o.filesystems != n.filesystems, "storage.filesystems", |c| {
        !c.storage.filesystems.is_empty()
    });
    fix(!overrides.raid && o.raid != n.raid, "storage.raid", |c| !c.storage.raid.is_empty());
    if n.files.iter().any(|f| !f.append.is_empty()) {
        let message = "appending to files cannot be done twice; write the whole file or a drop-in".to_owned();
        let asks = |c: &Config| c.storage.files.iter().any(|f| !f.append.is_empty());
        found.push(Change { path: "storage.files", message, asks });
    }
    if n.files.iter().any(|f| f.path == FORCE_FILE) {
        let message = format!("{FORCE_FILE} is the administrator's switch on the machine; remove it here");
        let asks = |c: &Config| c.storage.files.iter().any(|f| f.path == FORCE_FILE);
        found.push(Change { path: "storage.files", message, asks });
    }
    if old.passwd.users != new.passwd.users
        && let Err(message) = users(&new.passwd.users)
    {
        found.push(Change { path: "passwd.users", message, asks: |c| !c.passwd.users.is_empty() });
    }
    found
}

/// Only the core user's keys and password can be managed.
fn users(users: &[User]) -> Result<(), String> {
    if let Some(other) = users.iter().find(|u| u.name != CORE_USER) {
        return Err(format!("user {:?} cannot be managed; only {CORE_USER} can", other.name));
    }
    let Some(last) = users.last() else { return Ok(()) };
    if last.password_hash.is_none() && last.ssh_authorized_keys.is_empty() {
        return Err(format!("user {CORE_USER} needs a password hash or an SSH key"));
    }
    let only = User {
        name: last.name.clone(),
        password_hash: last.password_hash.clone(),
        ssh_authorized_keys: last.ssh_authorized_keys.clone(),
        ..User::default()
    };
    if *last == only {
        Ok(())
    } else {
        Err(format!(
            "only sshAuthorizedKeys and passwordHash of {CORE_USER} can be managed; remove the other fields"
        ))
    }
}
