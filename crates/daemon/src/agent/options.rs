//! The parts that an agent is built from, and the ways in which its run can end.
//!
//! Not here: how these parts are made (see `start`).

use crate::cluster::node_watch::NodeUpdates;
use crate::cluster::report::Reporting;
use crate::metrics::Metrics;
use crate::node::Trouble;
use host::Host;
use std::time::Duration;

/// What one agent works with.
#[derive(Debug)]
pub struct AgentOptions {
    /// The host.
    pub host: Host,
    /// The name of the own Node.
    pub node_name: String,
    /// Where it learns of its Node. `None`: it watches that one object itself.
    pub updates: Option<NodeUpdates>,
    /// What it tells beside the Node's annotations.
    pub reporting: Reporting,
    /// Watch the disk of a node that is done: a changed file is found within a second. Takes a thread and an inotify
    /// instance, of which a user has 128 by default.
    pub watch_disk: bool,
    /// How often the disk of a node that is done is compared with its config where it is not watched. `None`: at the
    /// start and before an update only.
    pub drift_period: Option<Duration>,
    /// Who tells what is wrong beside the config. `None`: nobody.
    pub trouble: Option<Trouble>,
    /// Its metrics.
    pub metrics: Metrics,
}

/// How often a host's disk is compared with its config: a change by hand is seen within a minute, and a few hundred
/// small files that are in the page cache cost a few milliseconds.
const DRIFT_PERIOD: Duration = Duration::from_secs(60);

impl AgentOptions {
    /// An agent that watches its own Node and tells everything, and looks at its disk now and then.
    pub fn new(node_name: &str, host: Host) -> Self {
        Self {
            host,
            node_name: node_name.to_owned(),
            updates: None,
            reporting: Reporting::default(),
            watch_disk: false,
            drift_period: Some(DRIFT_PERIOD),
            trouble: None,
            metrics: Metrics::default(),
        }
    }
}

/// How an agent's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It was told to stop.
    Stopped,
    /// It has begun a reboot. A run after the reboot goes on; one in the same boot asks for the reboot again.
    Rebooting,
}
