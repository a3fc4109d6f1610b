//! Whose a build is. Pure.
//!
//! Not here: what happens to builds of others (see `plan`).

use api::k8s::OwnerReference;
use api::v1::{MachineOSBuild, MachineOSConfig};

/// Whose a build is, by the object that controls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildOwner {
    /// This MachineOSConfig's.
    Ours,
    /// That of a MachineOSConfig that is gone.
    Earlier,
    /// Of nobody, or of something else: it is left alone.
    Foreign,
}

/// Whose a build is, seen from this MachineOSConfig.
pub(crate) fn build_owner(build: &MachineOSBuild, config: Option<&MachineOSConfig>) -> BuildOwner {
    let mut owners = build.metadata.owner_references.iter().flatten();
    let group = format!("{}/", api::names::GROUP);
    let is_config = |o: &&OwnerReference| {
        o.controller == Some(true)
            && o.kind == "MachineOSConfig"
            && o.api_version.starts_with(&group)
            && o.name == build.spec.machine_os_config.name
    };
    match owners.find(is_config) {
        None => BuildOwner::Foreign,
        Some(o) if config.is_some_and(|c| c.metadata.uid.as_deref() == Some(&o.uid)) => BuildOwner::Ours,
        Some(_) => BuildOwner::Earlier,
    }
}

/// Whether a build is of nobody, or of something else than a MachineOSConfig.
pub(crate) fn is_foreign(build: &MachineOSBuild) -> bool {
    build_owner(build, None) == BuildOwner::Foreign
}
