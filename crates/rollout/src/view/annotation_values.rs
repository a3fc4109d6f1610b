//! What the annotations of a Node say in one word: the state of its daemon, and who cordoned it.
//!
//! Not here: the rest of a Node (see the module above).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/daemon/constants/constants.go>.

use crate::view::Names;
use api::formats::text::cut;
use api::node_state::NodeState;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// How many characters of an unknown daemon state are kept.
const MAX_STATE_CHARS: usize = 100;

/// The daemon's own state, [`STATE`](api::names::annotation::STATE).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DaemonState {
    /// There is no annotation: no daemon has run.
    #[default]
    Absent,
    /// An update is being applied.
    Working,
    /// In the config that `currentConfig` names.
    Done,
    /// The last sync failed.
    Degraded,
    /// The desired config cannot be reached from here.
    Unreconcilable,
    /// Anything else, including `Rebooting` of older daemons.
    Other(Arc<str>),
}

impl DaemonState {
    pub(super) fn new(text: Option<&str>, names: &mut Names) -> Self {
        let Some(text) = text else { return Self::Absent };
        match NodeState::parse(text) {
            Some(NodeState::Working) => Self::Working,
            Some(NodeState::Done) => Self::Done,
            Some(NodeState::Degraded) => Self::Degraded,
            Some(NodeState::Unreconcilable) => Self::Unreconcilable,
            None => Self::Other(names.get(&cut(text, MAX_STATE_CHARS))),
        }
    }

    /// `Degraded` or `Unreconcilable`.
    pub fn is_bad(&self) -> bool {
        matches!(self, Self::Degraded | Self::Unreconcilable)
    }
}

impl fmt::Display for DaemonState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "no state",
            Self::Working => NodeState::Working.text(),
            Self::Done => NodeState::Done.text(),
            Self::Degraded => NodeState::Degraded.text(),
            Self::Unreconcilable => NodeState::Unreconcilable.text(),
            Self::Other(text) => text,
        })
    }
}

/// Who cordoned a node during an update, [`CORDON`](api::names::own::CORDON).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CordonMark {
    /// `drain`: we did. The node is uncordoned when the update is over.
    Drain,
    /// `daemon`: as `drain`, but done by the node's daemon together with its request. The daemon also uncordons the
    /// node, and reports these steps on its MachineConfigNode.
    Daemon,
    /// `kept`: it was cordoned when the drain began, and stays cordoned.
    Kept,
}

impl CordonMark {
    /// The annotation's value.
    pub fn text(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Daemon => "daemon",
            Self::Kept => "kept",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Drain, Self::Daemon, Self::Kept].into_iter().find(|m| m.text() == text)
    }
}
