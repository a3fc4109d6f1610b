//! What the host records about configs: the old and new config of a change, the config in effect, and a pending
//! reboot.
//!
//! Not here: reading and writing these records (see `host`, `transaction`).

use std::fmt;

use api::v1::MachineConfigSpec;
use desired::{config_and_image, in_image, with_image};
use serde::{Deserialize, Serialize};

/// The names of the old and the new config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// The config in effect.
    pub current: String,
    /// The config to reach.
    pub desired: String,
}

/// A MachineConfig as the host records it. `Debug` shows only its name, because it holds contents of files and
/// password hashes.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct CurrentConfig {
    /// Its name; with the image that the host runs instead of the config's, if there is one (see [`desired::with_image`]).
    pub name: String,
    /// Its contents, as they are in that image.
    pub spec: MachineConfigSpec,
}

impl fmt::Debug for CurrentConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurrentConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CurrentConfig {
    /// As a MachineConfig in JSON.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>, String> {
        let object = serde_json::json!({
            "apiVersion": format!("{}/v1", api::names::GROUP),
            "kind": "MachineConfig",
            // The image has a file of its own.
            "metadata": { "name": config_and_image(&self.name).0 },
            "spec": self.spec,
        });
        serde_json::to_vec(&object).map_err(|e| e.to_string())
    }

    /// Reads the record of a host that runs `image`, or its config's own if that is empty.
    pub(crate) fn from_json(bytes: &[u8], image: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Meta {
            name: String,
        }
        #[derive(Deserialize)]
        struct Object {
            metadata: Meta,
            #[serde(default)]
            spec: MachineConfigSpec,
        }
        let o: Object = api::formats::shape::read_bytes(bytes).map_err(|e| e.to_string())?;
        Ok(Self { name: with_image(&o.metadata.name, image), spec: in_image(o.spec, image) })
    }
}

/// Identifies one boot of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Boot {
    /// The kernel's boot id. A container may see that of its computer, which stays the same when the container
    /// reboots.
    #[serde(default)]
    pub boot_id: String,
    /// Our own token from `/run`, which no boot begins with. After a soft reboot it ends with `+` and their number. Empty
    /// if it was not recorded: then only the kernel's id is compared.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
}

impl Boot {
    /// Whether `now` is the same boot of the kernel. Userspace may have been restarted alone since.
    #[must_use]
    pub fn is_same_boot(&self, now: &Self) -> bool {
        let kernel = |token: &str| token.split_once('+').map_or(token, |(kernel, _)| kernel).to_owned();
        self.boot_id == now.boot_id && (self.token.is_empty() || kernel(&self.token) == kernel(&now.token))
    }

    /// Whether `now` is the same boot, and userspace was not restarted alone since.
    #[must_use]
    pub fn is_same_userspace(&self, now: &Self) -> bool {
        self.boot_id == now.boot_id && (self.token.is_empty() || self.token == now.token)
    }
}

/// A config into whose operating system the machine failed to boot. The config is not retried as long as this record
/// is on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsFailure {
    /// The config.
    pub config: String,
    /// What was found instead.
    pub why: String,
}

/// A config whose extensions the host refused to apply to the running system. It is applied with a reboot then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveRefusal {
    /// The config.
    pub config: String,
    /// What the host said.
    pub why: String,
}

/// A change that is kept only if it is confirmed, as the journal has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// What in the change can cut the node off, for people.
    pub because: Vec<String>,
    /// The time within which it must be confirmed, in seconds. It runs from the boot into the change if the change
    /// needs one, else from its commit.
    pub within: u64,
    /// The change takes effect with a reboot, and so does its undo.
    pub reboots: bool,
    /// A restart of userspace alone will do for the change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soft: bool,
    /// Not only a change of the operating system can cut the node off: files or units can too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
    /// The units that have to run afterwards if they run before.
    #[serde(skip)]
    pub(crate) asked: Vec<String>,
    /// Those of them that ran before the change.
    #[serde(default)]
    pub units: Vec<UnitRun>,
    /// The SSH server is asked for.
    #[serde(skip)]
    pub(crate) asked_logins: bool,
    /// The SSH server, or the socket that starts it, as it was before the change: what ran, and what of it starts at
    /// boot. Empty: it is not asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logins: Vec<LoginUnit>,
    /// What the caller compares with afterwards. Only the caller can read it.
    #[serde(default)]
    pub before: String,
}

/// A unit that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitRun {
    /// Its name.
    pub unit: String,
    /// systemd's id of this run: each start has another one.
    pub invocation: String,
}

/// A unit by which people log in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoginUnit {
    /// Its name.
    pub unit: String,
    /// It ran.
    pub ran: bool,
    /// It starts at boot.
    pub enabled: bool,
}

/// What was checked of a change on trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// A unit that ran before runs again.
    Unit,
    /// The API server answers.
    Api,
    /// The Node is ready.
    Node,
    /// The machine stays up.
    Boot,
    /// An agent, or a person, confirms it.
    Confirmation,
}

/// A config that was tried and undone. It is not tried again as long as this record is on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialFailure {
    /// The config.
    pub config: String,
    /// What failed.
    pub check: Check,
    /// How, for people.
    pub why: String,
    /// What is still looked at after the undo. `None`: nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aftermath: Option<UndoneTrialCheck>,
    /// The boot that has to end before the files are undone, because it runs another deployment than they fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) left: Option<Boot>,
    /// How often the machine was rebooted because the undo failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) reboots: u32,
}

impl TrialFailure {
    /// A record that nothing is looked at for any more.
    #[must_use]
    pub fn new(config: impl Into<String>, check: Check, why: impl Into<String>) -> Self {
        Self { config: config.into(), check, why: why.into(), aftermath: None, left: None, reboots: 0 }
    }
}

/// Whether the node is well again after a change was undone is looked at for a while, because the change may not have been to
/// blame, or may have left effects behind that only a reboot ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoneTrialCheck {
    /// The units that ran before the change.
    #[serde(default)]
    pub units: Vec<UnitRun>,
    /// What the caller noted before the change (see [`Trial::before`]).
    #[serde(default)]
    pub before: String,
    /// The boot in which the change was undone. While it lasts, effects of the change may stay. `None`: the undo needed a
    /// reboot anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_in: Option<Boot>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A pending reboot: a change needs it and it has not happened yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingReboot {
    /// The config that needs it.
    pub config: String,
    /// The boot that must end.
    #[serde(flatten)]
    pub boot: Boot,
    /// The reasons, for people.
    pub because: Vec<String>,
    /// How often a reboot was started for it.
    #[serde(default)]
    pub tries: u32,
    /// The reboot needs no further permission, as far as the agent last knew: the pods had left, or this machine is
    /// not drained. Reset while pods have to leave again.
    #[serde(default)]
    pub cleared: bool,
    /// A restart of userspace alone will do. A reader that does not know this field reboots the whole machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soft: bool,
    /// It leads back out of a change that was tried. That change may be what keeps the API server from answering.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub back: bool,
    /// How often the machine has rebooted to go back and came up where it was. Unlike `tries`, this counts boots.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub returns: u32,
}

/// After this many reboots that did not lead where they should, no further one is started: the machine does not go down, comes back
/// with what looks like the same boot, or boots an operating system that it should leave.
pub const MOST_REBOOTS: u32 = 3;

/// The state of a pending reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebootStatus {
    /// No reboot is pending.
    None,
    /// A reboot is pending: this is still the same boot.
    Owed(PendingReboot),
    /// The machine has rebooted since. [`crate::Host::reboot_done`] forgets it.
    Rebooted(PendingReboot),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reboot_is_recognised_by_boot_id_or_token_and_old_records_have_only_the_id() {
        let boot = |id: &str, token: &str| Boot { boot_id: id.to_owned(), token: token.to_owned() };
        for (then, now, lasts) in [
            (boot("a", "1"), boot("a", "1"), true),
            (boot("a", "1"), boot("b", "1"), false),
            (boot("a", "1"), boot("a", "2"), false),
            (boot("a", "1"), boot("a", ""), false),
            (boot("a", ""), boot("a", "1"), true),
            (boot("a", ""), boot("b", "1"), false),
            (boot("a", "1"), boot("a", "1+1"), true),
            (boot("a", "1+1"), boot("a", "1+2"), true),
            (boot("a", "1+1"), boot("a", "2"), false),
        ] {
            assert_eq!(then.is_same_boot(&now), lasts, "{then:?} {now:?}");
        }
        assert!(!boot("a", "1").is_same_userspace(&boot("a", "1+1")));
        assert!(boot("a", "1+1").is_same_userspace(&boot("a", "1+1")));
        let old = r#"{"config": "c", "bootId": "a", "because": ["/etc/x"]}"#;
        let old: PendingReboot = serde_json::from_str(old).unwrap();
        assert_eq!((old.boot, old.tries, old.cleared), (boot("a", ""), 0, false));
    }

    #[test]
    fn the_debug_form_of_a_config_shows_its_name_only() {
        let spec = MachineConfigSpec {
            config: Some(
                serde_json::json!({"passwd": {"users": [{"name": "core", "passwordHash": "hush"}]}}),
            ),
            ..MachineConfigSpec::default()
        };
        let config = CurrentConfig { name: "rendered-worker-1".to_owned(), spec };
        let text = format!("{config:?}");
        assert!(text.contains("rendered-worker-1") && !text.contains("hush"), "{text}");
        assert_eq!(CurrentConfig::from_json(&config.to_json().unwrap(), "").unwrap(), config);
    }
}
