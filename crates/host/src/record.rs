//! What the host records about configs: the old and new config of a change, the config in effect, and a pending
//! reboot.
//!
//! Not here: reading and writing these records (see `host`, `transaction`).

use std::fmt;

use api::v1::MachineConfigSpec;
use serde::{Deserialize, Serialize};

/// The names of the two configs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Of the config in effect.
    pub current: String,
    /// Of the config to reach.
    pub desired: String,
}

/// A MachineConfig as the host keeps it. Shown by its name only: it holds contents of files and password hashes.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct CurrentConfig {
    /// Its name.
    pub name: String,
    /// What it says.
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
            "metadata": { "name": self.name },
            "spec": self.spec,
        });
        serde_json::to_vec(&object).map_err(|e| e.to_string())
    }

    pub(crate) fn from_json(bytes: &[u8]) -> Result<Self, String> {
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
        let o: Object = api::shape::read_bytes(bytes).map_err(|e| e.to_string())?;
        Ok(Self { name: o.metadata.name, spec: o.spec })
    }
}

/// One boot of this machine, told from every other one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Boot {
    /// The kernel's id of it. A container may see that of its computer, which goes on running when the container reboots.
    #[serde(default)]
    pub boot_id: String,
    /// Our own, from `/run`, with which no boot begins. Empty where it was not written down: the kernel's decides alone
    /// then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
}

impl Boot {
    /// Whether `now` is still this boot.
    #[must_use]
    pub fn lasts(&self, now: &Self) -> bool {
        self.boot_id == now.boot_id && (self.token.is_empty() || self.token == now.token)
    }
}

/// A config whose operating system the machine did not come up in. As long as this is on the disk the config is not tried
/// again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsFailure {
    /// The config.
    pub config: String,
    /// What was found instead.
    pub why: String,
}

/// A reboot that is owed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingReboot {
    /// For which config.
    pub config: String,
    /// The boot that must end.
    #[serde(flatten)]
    pub boot: Boot,
    /// Why, for people.
    pub because: Vec<String>,
    /// How often a reboot was begun for it.
    #[serde(default)]
    pub tries: u32,
    /// Nobody has to be asked before the reboot, as far as its owner last knew: the pods had left, or this machine is not
    /// drained. Taken back while pods have to leave once more.
    #[serde(default)]
    pub cleared: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_ends_with_its_id_or_its_token_and_records_of_older_versions_have_only_the_id() {
        let boot = |id: &str, token: &str| Boot { boot_id: id.to_owned(), token: token.to_owned() };
        for (then, now, lasts) in [
            (boot("a", "1"), boot("a", "1"), true),
            (boot("a", "1"), boot("b", "1"), false),
            (boot("a", "1"), boot("a", "2"), false),
            (boot("a", "1"), boot("a", ""), false),
            (boot("a", ""), boot("a", "1"), true),
            (boot("a", ""), boot("b", "1"), false),
        ] {
            assert_eq!(then.lasts(&now), lasts, "{then:?} {now:?}");
        }
        let old = r#"{"config": "c", "bootId": "a", "because": ["/etc/x"]}"#;
        let old: PendingReboot = serde_json::from_str(old).unwrap();
        assert_eq!((old.boot, old.tries, old.cleared), (boot("a", ""), 0, false));
    }

    #[test]
    fn a_config_shows_its_name_and_nothing_of_its_contents() {
        let spec = MachineConfigSpec {
            config: Some(
                serde_json::json!({"passwd": {"users": [{"name": "core", "passwordHash": "hush"}]}}),
            ),
            ..MachineConfigSpec::default()
        };
        let config = CurrentConfig { name: "rendered-worker-1".to_owned(), spec };
        let text = format!("{config:?}");
        assert!(text.contains("rendered-worker-1") && !text.contains("hush"), "{text}");
        assert_eq!(CurrentConfig::from_json(&config.to_json().unwrap()).unwrap(), config);
    }
}
