//! The parts that an agent is built from, and the ways in which its run can end.
//!
//! Not here: how these parts are made (see `start`).

use crate::cluster::own_node::NodeUpdates;
use crate::cluster::report::Reporting;
use crate::metrics::Metrics;
use crate::node::HostTrouble;
use host::Host;
use std::time::Duration;

/// The parts of one agent.
#[derive(Debug)]
pub struct AgentOptions {
    /// The host.
    pub host: Host,
    /// The name of the agent's own Node.
    pub node_name: String,
    /// The source of updates of its Node. `None`: the agent watches that one object itself.
    pub updates: Option<NodeUpdates>,
    /// What it reports besides the Node's annotations.
    pub reporting: Reporting,
    /// Watch the disk of a node that is done, so that a changed file is found within a second. Needs a thread and an
    /// inotify instance, of which a user has 128 by default (inotify(7)).
    pub watch_disk: bool,
    /// How often the disk of a node that is done is compared with its config if it is not watched. `None`: only at the
    /// start and before an update.
    pub drift_period: Option<Duration>,
    /// The source of trouble other than with the config. `None`: there is none.
    pub trouble: Option<HostTrouble>,
    /// Its metrics.
    pub metrics: Metrics,
    /// Host and port of the API server: a change on trial is confirmed only if a new connection to it can be made. `None`:
    /// an answer on an old connection will do.
    pub api_server: Option<(String, u16)>,
}

/// How often a host's disk is compared with its config: a manual change is seen within a minute, and a few hundred
/// small files in the page cache cost a few milliseconds.
const DRIFT_PERIOD: Duration = Duration::from_secs(60);

impl AgentOptions {
    /// An agent that watches its own Node, reports everything, and compares its disk periodically.
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
            api_server: None,
        }
    }
}

/// The settings of an agent, out of its [`AgentOptions`].
pub(crate) struct Settings {
    pub(crate) reporting: Reporting,
    pub(crate) watch_disk: bool,
    pub(crate) drift_period: Option<Duration>,
    pub(crate) trouble: Option<HostTrouble>,
    pub(crate) metrics: Metrics,
    /// Host and port of the API server, to try a new connection.
    pub(crate) api_server: Option<(String, u16)>,
}

/// How an agent's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It was stopped.
    Stopped,
    /// It has started a reboot. A run after the reboot continues. A run in the same boot asks for the reboot again.
    Rebooting,
}
