//! What the agent of a node says of itself in one word, in the annotation [`STATE`](crate::names::annotation::STATE).
//!
//! Not here: what follows from it for a rollout (`rollout::view::DaemonState`, which also keeps words that this version does not know).
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/daemon/constants/constants.go>.

use crate::names::state;
use std::fmt;

/// The state of a node's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// [`state::WORKING`].
    Working,
    /// [`state::DONE`].
    Done,
    /// [`state::DEGRADED`].
    Degraded,
    /// [`state::UNRECONCILABLE`].
    Unreconcilable,
}

impl NodeState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Working, Self::Done, Self::Degraded, Self::Unreconcilable];

    /// The annotation's value.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Working => state::WORKING,
            Self::Done => state::DONE,
            Self::Degraded => state::DEGRADED,
            Self::Unreconcilable => state::UNRECONCILABLE,
        }
    }

    /// The state that a value means. `None`: there is none, or it is one of another version, such as `Rebooting`.
    pub fn parse(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.text() == value)
    }

    /// Whether the agent says that it cannot go on.
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::Degraded | Self::Unreconcilable)
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_it_is_written() {
        for state in NodeState::ALL {
            assert_eq!(NodeState::parse(state.text()), Some(state));
        }
        for other in ["", "Rebooting", "done"] {
            assert_eq!(NodeState::parse(other), None, "{other:?}");
        }
    }
}
