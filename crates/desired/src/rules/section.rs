//! The sections of an Ignition config that cannot change on an installed machine.
//!
//! What it is not: what no running machine can do, whatever its previous config (see the parent module).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfiguration.md>.

use ignition::{Config, KernelArguments};
use serde_json::Value;

/// Sections whose changes are accepted although existing machines will not apply them (new machines will).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `storage.disks`
    pub disks: bool,
    /// `storage.filesystems`
    pub filesystems: bool,
    /// `storage.raid`
    pub raid: bool,
}

impl Overrides {
    /// `spec.irreconcilableValidationOverrides` of MachineConfiguration `cluster`, in the form of JSON. Without it none. A
    /// word that is not known overrides nothing.
    #[must_use]
    pub fn of_cluster(object: Option<&Value>) -> Self {
        let list = object.and_then(|o| o.pointer("/spec/irreconcilableValidationOverrides/storage"));
        let has = |word: &str| list.and_then(Value::as_array).is_some_and(|l| l.iter().any(|w| w == word));
        Self { disks: has("Disks"), filesystems: has("FileSystems"), raid: has("Raid") }
    }
}

/// A section that only an installer can set.
#[derive(Debug)]
pub struct Section {
    /// Its path in `spec.config`.
    pub path: &'static str,
    pub(super) differs: fn(&Config, &Config) -> bool,
    pub(super) is_set: fn(&Config) -> bool,
    /// Whether the section may be removed completely: that changes nothing on the machine.
    pub(super) may_go: bool,
    pub(super) overridden: fn(Overrides) -> bool,
}

/// The sections that cannot change on an installed machine. If hosts learn to change a section, it is removed here and
/// nowhere else.
pub const FIXED: [Section; 6] = [
    Section {
        path: "passwd.groups",
        differs: |a, b| a.passwd.groups != b.passwd.groups,
        is_set: |c| !c.passwd.groups.is_empty(),
        may_go: false,
        overridden: |_| false,
    },
    Section {
        path: "kernelArguments",
        differs: |a, b| a.kernel_arguments != b.kernel_arguments,
        is_set: |c| c.kernel_arguments != KernelArguments::default(),
        may_go: false,
        overridden: |_| false,
    },
    Section {
        path: "storage.disks",
        differs: |a, b| a.storage.disks != b.storage.disks,
        is_set: |c| !c.storage.disks.is_empty(),
        may_go: false,
        overridden: |o| o.disks,
    },
    Section {
        path: "storage.filesystems",
        differs: |a, b| a.storage.filesystems != b.storage.filesystems,
        is_set: |c| !c.storage.filesystems.is_empty(),
        may_go: false,
        overridden: |o| o.filesystems,
    },
    Section {
        path: "storage.raid",
        differs: |a, b| a.storage.raid != b.storage.raid,
        is_set: |c| !c.storage.raid.is_empty(),
        may_go: false,
        overridden: |o| o.raid,
    },
    Section {
        path: "storage.luks",
        differs: |a, b| a.storage.luks != b.storage.luks,
        is_set: |c| !c.storage.luks.is_empty(),
        may_go: true,
        overridden: |_| false,
    },
];
