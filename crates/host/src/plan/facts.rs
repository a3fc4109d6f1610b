//! The result of a read-only inspection of the host: all that a plan needs to know. Gathered by
//! [`crate::Host::inspect`].

use std::collections::{BTreeMap, BTreeSet};

use desired::mask::argument;
use desired::{DEFAULT_KERNEL, DesiredOs, OsField};
use serde::{Serialize, Serializer};

use crate::disk::attributes::Attributes;
use crate::disk::obstacle::Obstacle;
use crate::disk::path_state::PathState;
use crate::plan::secret::Secret;
use crate::plan::sshd::SshdAnswers;
use crate::plan::trust::TrustTool;
use crate::record::{Boot, LiveRefusal, OsFailure, TrialFailure};
use crate::system::os::origin::{OsOrigin, RecordedOs};
use crate::system::os::{ArgumentRules, OsStatus};
use crate::system::systemd::UnitFileState;
use crate::system::users::Users;

/// What was found at one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PathFacts {
    /// What exists there.
    pub found: PathState,
    /// Why nothing can be made, replaced or removed there, although `found` does not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
    /// Why the mode and owner of the folder there cannot be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_obstacle: Option<Obstacle>,
}

impl PathFacts {
    /// The facts of a path that is not a folder.
    pub(crate) fn of(found: PathState, obstacle: Option<Obstacle>) -> Self {
        Self { found, obstacle, own_obstacle: None }
    }
}

/// All that a plan needs to know about a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// What was found at each path that the plan may touch. A path that is missing here is absent on the host.
    pub paths: BTreeMap<String, PathFacts>,
    /// The original mode and owner of the host's own folders that a config changes, by path.
    pub original_dirs: BTreeMap<String, Attributes>,
    /// Folders of the configs with a path in each that the config in effect did not put there. Only gathered for
    /// folders that replaced a file of the host's own.
    pub not_ours: BTreeMap<String, String>,
    /// Hard links of the configs that exist on the host: the path and its target are the same file.
    pub same_files: BTreeSet<String>,
    /// Paths below a folder that not every user may open.
    pub closed: BTreeSet<String>,
    /// Whether owners are set and compared.
    pub owners: bool,
    /// Users and groups.
    pub users: Users,
    /// The password hash of the core user, where it has one.
    pub core_hash: Option<Secret>,
    /// Texts of the SSH server's configuration, by path; empty if there is no such server. Includes the host's saved
    /// originals that may be restored, and targets of links. This and who can log in is gathered only if a config has
    /// users.
    pub sshd: BTreeMap<String, String>,
    /// What the SSH server itself reports for its configuration as the change leaves it. `None`: it was not or could
    /// not be asked, and the texts are evaluated instead.
    pub sshd_answers: Option<SshdAnswers>,
    /// The contents of the core user's own key file.
    pub core_own_keys: Option<Secret>,
    /// Somebody other than core can log in: root with a key, or any user with a password.
    pub others_log_in: bool,
    /// The names of all unit files.
    pub unit_files: BTreeSet<String>,
    /// The enablement state of the units of both configs.
    pub unit_states: BTreeMap<String, UnitFileState>,
    /// The host's template units with a default instance, and the name of that instance.
    pub default_instances: BTreeMap<String, String>,
    /// Units with a file in a folder other than the administrator's. Removing our file has_host_unit that one.
    pub vendor_units: BTreeSet<String>,
    /// Instances of templates that are masked by links in the administrator's folder.
    pub masked_instances: BTreeSet<String>,
    /// The program that adds new certificate authorities to the host's store.
    pub trust_tool: Option<TrustTool>,
    /// What the table of effects needs to know. `None`: no host was looked at, and it is assumed to have everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effects: Option<EffectFacts>,
    /// The parts of the operating system that cannot be changed here, each with the reason and the remedy.
    pub os_refused: BTreeMap<OsField, String>,
    /// The parts that are changed only where the cluster allows it, each with how that is allowed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub os_consent: BTreeMap<OsField, String>,
    /// The state of the operating system. `None`: no part of it can be changed here.
    #[serde(serialize_with = "without_secrets")]
    pub os: Option<OsStatus>,
    /// What the host ran before a config first named an image.
    pub os_before: RecordedOs,
    /// What the running deployment was made from. Gathered only for a change that needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_origin: Option<OsOrigin>,
    /// Whether the host can bring added packages into the running system.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub os_live: bool,
    /// The config whose extensions it refused to bring there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_refused: Option<LiveRefusal>,
    /// The part of the operating system that an undo could not restore, the cause, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_not_back: Option<String>,
    /// How kernel arguments are taken here.
    #[serde(skip)]
    pub argument_rules: ArgumentRules,
    /// The config into whose operating system the machine failed to boot.
    pub os_failure: Option<OsFailure>,
    /// The config that was tried and undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial_failure: Option<TrialFailure>,
    /// Whether the kernel runs in FIPS mode. `None`: it does not report it.
    pub fips: Option<bool>,
    /// Whether the force file exists.
    pub force: bool,
    /// Days since 1970-01-01, for the user database.
    pub day: u64,
    /// This boot.
    pub boot: Boot,
    /// Set by the caller, not found on the host: a reboot needs no further permission, because the pods have left or
    /// this machine is not drained.
    pub cleared: bool,
    /// `PRETTY_NAME` of os-release.
    pub os_name: String,
}

/// What rows of the table need to know of a host. Gathered only for what a change touches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectFacts {
    /// The programs of the table that this host has and this process can run.
    pub programs: BTreeSet<String>,
    /// The units that run.
    pub running: BTreeSet<String>,
    /// The units that do not run and are enabled: a boot starts them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub start_at_boot: BTreeSet<String>,
    /// Files of the configs that hide a file of the host with the same name, which counts once they are removed.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub hiding: BTreeSet<String>,
    /// The texts of the host's own unit files and drop-ins, one for each unit whose file is not the config's.
    #[serde(skip)]
    pub unit_texts: BTreeMap<String, String>,
    /// Files of sysctl.d(5), by path; also saved originals of those.
    #[serde(skip)]
    pub sysctl_files: BTreeMap<String, String>,
    /// Kernel parameters by their path below `/proc/sys`. `None`: it exists and cannot be read. One that is missing
    /// here does not exist.
    pub parameters: BTreeMap<String, Option<String>>,
    /// The values that kernel parameters had before this agent set them for the first time.
    pub parameters_before: BTreeMap<String, String>,
    /// Whether systemd can restart userspace alone (`systemctl soft-reboot`).
    pub soft_reboot: bool,
    /// A whole reboot is pending.
    pub owes_reboot: bool,
}

impl Facts {
    /// Facts that know the users of the host and no path yet. `owners`: whether owners are set and compared.
    pub(crate) fn with_users(owners: bool, users: Users) -> Self {
        Self { owners, users, ..Self::default() }
    }

    /// These facts of a host that nobody can allow what needs consent. `how`: what can be done instead.
    #[must_use]
    pub fn without_pool(mut self, how: &str) -> Self {
        for said in self.os_consent.values_mut() {
            how.clone_into(said);
        }
        self
    }

    /// These facts without the administrator's consent: parts that need it then count as unchangeable. Removals need no
    /// consent.
    pub(crate) fn without_consent(&self, wants: &DesiredOs) -> Self {
        let mut facts = self.clone();
        let asks = |field: &OsField| match field {
            OsField::Extensions => !wants.extensions.is_empty(),
            OsField::KernelType => ![DEFAULT_KERNEL, ""].contains(&wants.kernel_type.as_str()),
            OsField::Image | OsField::KernelArguments => true,
        };
        for (field, how) in self.os_consent.iter().filter(|(field, _)| asks(field)) {
            facts.os_refused.entry(*field).or_insert_with(|| how.clone());
        }
        facts
    }

    /// What exists at a path.
    #[must_use]
    pub fn found(&self, path: &str) -> &PathState {
        self.paths.get(path).map_or(&PathState::Absent, |at| &at.found)
    }
}

/// Kernel arguments can hold passwords.
fn without_secrets<S: Serializer>(os: &Option<OsStatus>, s: S) -> Result<S::Ok, S::Error> {
    let mut os = os.clone();
    if let Some(OsStatus { booted, staged, previous, of_image }) = &mut os {
        for deployment in [Some(booted), staged.as_mut(), previous.as_mut()].into_iter().flatten() {
            for a in &mut deployment.kernel_arguments {
                *a = argument(a).into_owned();
            }
        }
        for a in of_image {
            *a = argument(a).into_owned();
        }
    }
    os.serialize(s)
}
