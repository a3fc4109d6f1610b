//! What is known of a change on trial, of one that was tried and undone, and of the node before the change. Plain values.
//!
//! Not here: what follows from them (see `trial`).

use crate::protocol::clock::Moment;
use host::{Check, UnitRun, UnitState};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The state before a change, which the agent stores to compare with it afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StateBefore {
    /// The Node was Ready.
    pub ready: bool,
    /// When the kubelet had last reported.
    pub heard: Option<Timestamp>,
    /// A person tries the change and confirms it: the agent does not.
    pub person: bool,
    /// Host and port of the API server, for the host's own watch. `None`: not known, or it is reached through a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_server: Option<(String, u16)>,
}

/// A change on trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialFacts {
    /// The config of the change, in which the host is.
    pub config: String,
    /// Whether it is in effect. `false`: its reboot is still to come.
    pub begun: bool,
    /// Whether it takes effect with a reboot.
    pub reboots: bool,
    /// The time for its confirmation.
    pub within: SignedDuration,
    /// How much of that is left.
    pub left: SignedDuration,
    /// The units that ran before it.
    pub units: Vec<UnitRun>,
    /// What else was so before it.
    pub before: StateBefore,
}

/// The failure of a change that was tried and undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedFacts {
    /// Its config.
    pub config: String,
    /// What failed.
    pub check: Check,
    /// A person asked for another try.
    pub retry: bool,
    /// Whether the change is to blame is open: since the undo nothing has shown that the node is well in the old config,
    /// and the machine has rebooted, so no effect of the change has stayed.
    pub in_doubt: bool,
}

/// One look at a node on trial. The Node itself is in the view.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialObservation {
    /// When.
    pub at: Moment,
    /// Whether the API server answered on a new connection; if not, how.
    pub api: Result<(), String>,
    /// The units that ran before the change: name and state.
    pub units: Vec<(String, UnitState)>,
    /// Why people can no longer log in as before.
    pub logins: Option<String>,
}
