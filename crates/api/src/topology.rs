//! The topology of a cluster's control plane, in one word: how many nodes it has, and where they are. The ControllerConfig has the
//! word in a copy of OpenShift's Infrastructure, and Nodes have it in the annotation
//! [`CONTROL_PLANE_TOPOLOGY`](crate::names::annotation::CONTROL_PLANE_TOPOLOGY).
//!
//! Not here: how it is counted from the nodes where nobody says it (see `rollout::topology`).
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/config/v1/types_infrastructure.go>.

use crate::names::topology;
use std::fmt;

/// The topology of a control plane. What copies the word keeps the text, also one that is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlPlaneTopology {
    /// [`topology::HIGHLY_AVAILABLE`].
    HighlyAvailable,
    /// [`topology::HIGHLY_AVAILABLE_ARBITER`].
    HighlyAvailableArbiter,
    /// [`topology::SINGLE_REPLICA`].
    SingleReplica,
    /// [`topology::DUAL_REPLICA`].
    DualReplica,
    /// [`topology::EXTERNAL`].
    External,
}

impl ControlPlaneTopology {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::HighlyAvailable,
        Self::HighlyAvailableArbiter,
        Self::SingleReplica,
        Self::DualReplica,
        Self::External,
    ];

    /// The word.
    pub const fn text(self) -> &'static str {
        match self {
            Self::HighlyAvailable => topology::HIGHLY_AVAILABLE,
            Self::HighlyAvailableArbiter => topology::HIGHLY_AVAILABLE_ARBITER,
            Self::SingleReplica => topology::SINGLE_REPLICA,
            Self::DualReplica => topology::DUAL_REPLICA,
            Self::External => topology::EXTERNAL,
        }
    }

    /// The topology that a word means. `None`: there is no word, or it is one of another version.
    pub fn parse(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topology| topology.text() == value)
    }
}

/// Whether anything is said of the age of boot images on a cluster of this platform and topology: machines on bare metal, and a single
/// node, are not made from images that somebody keeps.
pub fn has_boot_images(platform: &str, topology: Option<ControlPlaneTopology>) -> bool {
    platform != "BareMetal" && topology != Some(ControlPlaneTopology::SingleReplica)
}

impl fmt::Display for ControlPlaneTopology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_it_is_written() {
        let words = ["HighlyAvailable", "HighlyAvailableArbiter", "SingleReplica", "DualReplica", "External"];
        assert_eq!(ControlPlaneTopology::ALL.map(ControlPlaneTopology::text), words);
        for topology in ControlPlaneTopology::ALL {
            assert_eq!(ControlPlaneTopology::parse(topology.text()), Some(topology));
            assert_eq!(topology.to_string(), topology.text());
        }
        for other in ["", "singleReplica", "HighlyAvailable ", "TripleReplica"] {
            assert_eq!(ControlPlaneTopology::parse(other), None, "{other:?}");
        }
    }
}
