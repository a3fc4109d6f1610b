//! The last updates that a node went through, as its MachineConfigNode keeps them in [`own::UPDATES`]: when each part of one was
//! done, and what its drain waited for. The conditions of an update are withdrawn when it is over, so the agent writes this
//! down just before.
//!
//! What it is not: the update that is under way, which the conditions show, or the writing.

use crate::machine_config_nodes::WAITED;
use crate::wait_history::past_waits;
use api::conditions::get_true;
use api::k8s::ObjectMeta;
use api::names::{node_condition as c, own};
use api::v1::MachineConfigNodeStatus;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// How many updates a node remembers.
const KEPT: usize = 10;
/// The longest text about a drain, in characters: every watch of the object carries it.
const LONGEST: usize = 300;

/// An update that is over. The parts that it had are in seconds after its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PastUpdate {
    /// The rendered config that the node went to.
    pub config: String,
    /// When it was cordoned, or prepared where nothing was drained.
    pub began: Timestamp,
    /// The pods had left; absent: nothing was drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<u32>,
    /// Files, units and the OS were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<u32>,
    /// The machine was back; absent: it did not reboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebooted: Option<u32>,
    /// The node took pods again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncordoned: Option<u32>,
    /// All of it was done.
    pub done: u32,
    /// What its drain waited for last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waited: String,
    /// What the node waited for before all that, each with its seconds; see [`PastWaits`](crate::PastWaits).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turn: Vec<(String, u32)>,
}

impl PastUpdate {
    /// The update that ends now, from the conditions that are about to be withdrawn. `None`: they show none.
    pub fn of(status: &MachineConfigNodeStatus, config: &str, now: Timestamp) -> Option<Self> {
        let all = status.conditions.as_deref().unwrap_or_default();
        let find = |type_: &str| get_true(all, type_);
        let at = |type_: &str| find(type_).map(|have| have.last_transition_time.0);
        let applied = at(c::APPLIED_FILES_AND_OS)?;
        let steps = [at(c::CORDONED), at(c::UPDATE_PREPARED), at(c::DRAINED), Some(applied)];
        let began = steps.into_iter().flatten().next()?;
        let after = |at: Timestamp| u32::try_from(at.duration_since(began).as_secs()).unwrap_or_default();
        let drained = find(c::DRAINED).filter(|_| at(c::CORDONED).is_some());
        let waited = drained.and_then(|have| Some(have.message.split_once(WAITED)?.1)).unwrap_or_default();
        Some(Self {
            config: config.to_owned(),
            began,
            drained: drained.map(|have| after(have.last_transition_time.0)),
            applied: Some(after(applied)),
            rebooted: at(c::REBOOTED_NODE).map(after),
            uncordoned: at(c::UNCORDONED).map(after),
            done: after(now),
            waited: waited.chars().take(LONGEST).collect(),
            turn: vec![],
        })
    }

    /// The moment so many seconds after its beginning.
    pub fn at(&self, seconds: u32) -> Timestamp {
        self.began.saturating_add(SignedDuration::from_secs(seconds.into())).unwrap_or(self.began)
    }

    /// The new value of [`own::UPDATES`] on an object that does not have this update yet. `None`: it has.
    /// It takes over what the controller wrote there about the node's wait.
    pub fn with_this_update(mut self, on: &ObjectMeta) -> Option<String> {
        let mut all = past_updates(on);
        self.turn =
            past_waits(on).filter(|waits| waits.config == self.config).map(|w| w.waits).unwrap_or_default();
        // A write that was answered with an error may have been made.
        if all.last().is_some_and(|last| last.config == self.config && last.began == self.began) {
            return None;
        }
        all.push(self);
        let from = all.len().saturating_sub(KEPT);
        serde_json::to_string(all.get(from..)?).ok()
    }
}

/// The updates of a MachineConfigNode's node that are over, the oldest first. If the record cannot be read, it counts as empty.
pub fn past_updates(object: &ObjectMeta) -> Vec<PastUpdate> {
    let text = object.annotations.as_ref().and_then(|all| all.get(own::UPDATES));
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status(steps: &[(&str, &str, i64, &str)]) -> MachineConfigNodeStatus {
        let one = |(type_, status, second, message): &(&str, &str, i64, &str)| json!({"type": type_, "status": status, "reason": "r", "message": message, "lastTransitionTime": at(*second)});
        serde_json::from_value(json!({"conditions": steps.iter().map(one).collect::<Vec<_>>()})).unwrap()
    }

    fn object(text: &str) -> ObjectMeta {
        let annotations = BTreeMap::from([(own::UPDATES.to_owned(), text.to_owned())]);
        ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() }
    }

    #[test]
    fn an_update_is_written_down_with_its_parts_and_what_its_drain_waited_for() {
        let waited = format!("Node n is drained{WAITED}pod a/b: its budget");
        let whole = status(&[
            (c::UPDATE_PREPARED, "True", 9, ""),
            (c::CORDONED, "True", 10, ""),
            (c::DRAINED, "True", 30, waited.as_str()),
            (c::APPLIED_FILES_AND_OS, "True", 38, ""),
            (c::REBOOTED_NODE, "True", 77, ""),
            (c::UNCORDONED, "True", 82, ""),
        ]);
        let noted = PastUpdate::of(&whole, "new", at(85)).unwrap();
        let parts = (noted.drained, noted.applied, noted.rebooted, noted.uncordoned, noted.done);
        assert_eq!((noted.began, parts), (at(10), (Some(20), Some(28), Some(67), Some(72), 75)));
        assert_eq!(noted.waited, "pod a/b: its budget");
        let light = status(&[
            (c::UPDATE_PREPARED, "True", 9, ""),
            (c::DRAINED, "False", 9, ""),
            (c::APPLIED_FILES_AND_OS, "True", 12, ""),
        ]);
        let noted = PastUpdate::of(&light, "new", at(13)).unwrap();
        assert_eq!((noted.began, noted.drained, noted.applied, noted.rebooted), (at(9), None, Some(3), None));
        // An agent that starts in its config, and one whose update was never applied.
        for nothing in [
            status(&[]),
            status(&[(c::CORDONED, "True", 1, ""), (c::APPLIED_FILES_AND_OS, "Unknown", 2, "")]),
        ] {
            assert_eq!(PastUpdate::of(&nothing, "new", at(3)), None);
        }
    }

    #[test]
    fn the_last_ten_are_kept_each_once_and_a_record_that_cannot_be_read_is_begun_anew() {
        let update = |n: i64| PastUpdate { config: format!("c{n}"), began: at(n), ..PastUpdate::default() };
        let mut have = object("no list");
        for n in 0..15 {
            let text = update(n).with_this_update(&have).unwrap();
            have = object(&text);
            assert_eq!(update(n).with_this_update(&have), None, "once");
        }
        let all: Vec<i64> = past_updates(&have).iter().map(|u| u.began.as_second()).collect();
        assert_eq!(all, (5..15).collect::<Vec<_>>());
        let long = PastUpdate { waited: "x".repeat(LONGEST), config: "c".repeat(253), ..update(20) };
        assert!(long.with_this_update(&ObjectMeta::default()).unwrap().len() < 1024, "ten of them are small");
    }
}
