//! The result of a read-only inspection of the host: all that a plan needs to know. Gathered by
//! [`crate::Host::probe`].

use std::collections::{BTreeMap, BTreeSet};

use desired::mask::argument;
use serde::{Serialize, Serializer};

use crate::disk::found::{Attributes, Found};
use crate::disk::obstacle::Obstacle;
use crate::plan::sshd::SshdAnswers;
use crate::plan::step::Secret;
use crate::plan::trust::TrustTool;
use crate::record::{Boot, OsFailure};
use crate::system::os::OsStatus;
use crate::system::systemd::UnitFileState;
use crate::system::users::Users;

/// All that a look at one path has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PathFacts {
    /// What stands there.
    pub found: Found,
    /// Why nothing can be made, replaced or removed there, though what stands there does not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Obstacle>,
    /// Why the folder there cannot get another mode and owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_obstacle: Option<Obstacle>,
}

impl PathFacts {
    /// What was found and what is in the way, of something that is no folder.
    pub(crate) fn of(found: Found, obstacle: Option<Obstacle>) -> Self {
        Self { found, obstacle, own_obstacle: None }
    }
}

/// The facts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// What a look at each path that the plan may touch has found. A path that is missing here is absent on the host.
    pub paths: BTreeMap<String, PathFacts>,
    /// How the host's own folders were whose mode or owner a config changes, by path.
    pub original_dirs: BTreeMap<String, Attributes>,
    /// Folders of the configs that hold something that the config in effect has not put there, with its path. Looked for
    /// where the host's own file is kept that such a folder replaced.
    pub not_ours: BTreeMap<String, String>,
    /// Hard links of the configs that are one file with their target.
    pub same_files: BTreeSet<String>,
    /// Paths below a folder that not everybody may open.
    pub closed: BTreeSet<String>,
    /// Whether owners are set and compared.
    pub owners: bool,
    /// Users and groups.
    pub users: Users,
    /// The password hash of the core user, where it has one.
    pub core_hash: Option<Secret>,
    /// Texts of the SSH server's configuration, by path; none where there is no such server. Also of the host's own files
    /// that are kept and may come back, and of targets of links. This and who can log in is known only where a config has
    /// users.
    pub sshd: BTreeMap<String, String>,
    /// What the SSH server itself says of its configuration as the change leaves it; `None`: it was not or could not be
    /// asked, and the texts are read instead.
    pub sshd_answers: Option<SshdAnswers>,
    /// The file of the core user's own keys.
    pub core_own_keys: Option<Secret>,
    /// Somebody else than core can log in: root with a key, or anybody with a password.
    pub others_log_in: bool,
    /// Names of all unit files.
    pub unit_files: BTreeSet<String>,
    /// How the units of both configs are enabled.
    pub unit_states: BTreeMap<String, UnitFileState>,
    /// Template units of the host that have a default instance, with its name.
    pub default_instances: BTreeMap<String, String>,
    /// Units that stand in a folder other than the administrator's, so that removing ours uncovers them.
    pub vendor_units: BTreeSet<String>,
    /// Instances of templates that are masked by links of the administrator's folder.
    pub masked_instances: BTreeSet<String>,
    /// What takes new certificate authorities into the host's store.
    pub trust_tool: Option<TrustTool>,
    /// Why the operating system cannot be changed here; `None` when it can.
    pub os_unsupported: Option<String>,
    /// What it has of the operating system; `None` where that cannot be changed.
    #[serde(serialize_with = "without_secrets")]
    pub os: Option<OsStatus>,
    /// The config whose operating system the machine did not come up in.
    pub os_failure: Option<OsFailure>,
    /// Whether the kernel runs in FIPS mode; `None` when it does not say.
    pub fips: Option<bool>,
    /// The force file is there.
    pub force: bool,
    /// Days since 1970-01-01, for the user database.
    pub day: u64,
    /// This boot.
    pub boot: Boot,
    /// Not found on the host but told by the caller: a reboot needs nobody's leave any more, as the pods have left or this
    /// machine is not drained.
    pub cleared: bool,
    /// `PRETTY_NAME` of os-release.
    pub os_name: String,
}

impl Facts {
    /// What stands at a path.
    #[must_use]
    pub fn found(&self, path: &str) -> &Found {
        self.paths.get(path).map_or(&Found::Absent, |at| &at.found)
    }
}

/// Kernel arguments can hold passwords.
#[allow(clippy::ref_option, reason = "what serde hands over")]
fn without_secrets<S: Serializer>(os: &Option<OsStatus>, s: S) -> Result<S::Ok, S::Error> {
    let mut os = os.clone();
    if let Some(OsStatus { booted, staged, previous }) = &mut os {
        for deployment in [Some(booted), staged.as_mut(), previous.as_mut()].into_iter().flatten() {
            for a in &mut deployment.kernel_arguments {
                *a = argument(a).into_owned();
            }
        }
    }
    os.serialize(s)
}
