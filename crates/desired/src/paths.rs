//! Paths that configs and the rules for them name: the agent's own folders, which no config may write to, and the
//! folders of units. The names are those of OpenShift's daemon, so that either daemon can take over from the other.
//!
//! What it is not: all other paths on a host (see `host::paths`).

pub use api::paths::{INTERNAL_PULL_SECRET, NODE_ANNOTATIONS, PULL_SECRET};
use ignition::Unit;

/// The folder of the daemon's records.
pub const DAEMON_DIR: &str = "/etc/machine-config-daemon";
/// The MachineConfig that was applied last, as JSON.
pub const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
/// The image that the host runs instead of the one of its config; absent if it runs none.
pub const CURRENT_IMAGE: &str = "/etc/machine-config-daemon/currentimage";
/// Our own state: the journal, and what must survive a reboot.
pub const STATE_DIR: &str = "/var/lib/machine-config-daemon";
/// The journal's folder.
pub const JOURNAL_DIR: &str = "/var/lib/machine-config-daemon/journal";
/// Records that a reboot is pending, and since which boot.
pub const REBOOT_PENDING: &str = "/var/lib/machine-config-daemon/reboot.json";
/// What the names of the agent's own files below `/run` begin with. They hold what is true until the next boot, and the agent trusts
/// them.
pub const RUN_PREFIX: &str = "/run/machine-config-daemon-";
/// Another name of `/run` on every host of systemd.
const VAR_RUN: &str = "/var/run/";
/// If this file exists, everything is applied again, with a reboot.
pub const FORCE_FILE: &str = "/run/machine-config-daemon-force";
/// Folder of the units that an administrator, and so a MachineConfig, owns.
pub const UNITS_DIR: &str = "/etc/systemd/system";
/// The folder for the host's own files that were replaced by files of a config.
pub const ORIGINALS: &str = "/etc/machine-config-daemon/orig";
/// The folder of the stamps that record that the host had no file of its own.
pub const NO_ORIGINALS: &str = "/etc/machine-config-daemon/noorig";
/// Rollback and the saved originals depend on these. A config that wrote there would destroy the basis of its own
/// change.
const RESERVED: [&str; 5] = [STATE_DIR, CURRENT_CONFIG, CURRENT_IMAGE, ORIGINALS, NO_ORIGINALS];

/// Whether a path is one of the agent's own records of the host, or lies below one. The force file is not one of them:
/// it belongs to the administrator.
#[must_use]
pub fn is_reserved(path: &str) -> bool {
    let is_of_run = match path.strip_prefix(VAR_RUN) {
        Some(name) => RUN_PREFIX.strip_prefix("/run/").is_some_and(|ours| name.starts_with(ours)),
        None => path.starts_with(RUN_PREFIX) && path != FORCE_FILE,
    };
    let is_at = |ours: &&str| path.strip_prefix(*ours).is_some_and(|r| r.starts_with('/') || r.is_empty());
    is_of_run || RESERVED.iter().any(is_at)
}

/// Where the host's own file is kept while a config's file is at `path`.
#[must_use]
pub fn original(path: &str) -> String {
    format!("{ORIGINALS}{path}.mcdorig")
}

/// Where the host's own mode and owner of the folder at `path` are kept while a config sets others.
#[must_use]
pub fn original_dir(path: &str) -> String {
    format!("{ORIGINALS}{path}.mcdorigdir")
}

/// The stamp that records that the host had no file at `path`.
#[must_use]
pub fn no_original(path: &str) -> String {
    format!("{NO_ORIGINALS}{path}.mcdnoorig")
}

/// The file of a unit.
#[must_use]
pub fn unit(name: &str) -> String {
    format!("{UNITS_DIR}/{name}")
}

/// Whether a unit comes with its own unit file.
#[must_use]
pub fn has_contents(u: &Unit) -> bool {
    u.contents.as_deref().is_some_and(|c| !c.is_empty())
}

/// The file of a drop-in.
#[must_use]
pub fn dropin(unit: &str, name: &str) -> String {
    format!("{UNITS_DIR}/{unit}.d/{name}")
}
