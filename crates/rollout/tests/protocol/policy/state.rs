//! A state of the model: the nodes, the pool's progress as it is stored, and the writes under way.
//!
//! What it is not: what can happen in a state (see `steps`).

use super::{CONFIGS, NOON};
use api::k8s::Time;
use api::v1alpha1::PoolProgress;
use std::sync::Arc;

/// What the calendar says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hours {
    Open,
    /// Outside of the window.
    Shut,
    /// Within the window and the freeze.
    Frozen,
}

impl Hours {
    pub(super) const ALL: [Self; 3] = [Self::Open, Self::Shut, Self::Frozen];

    pub(super) fn now(self) -> Time {
        let text = match self {
            Self::Open => NOON,
            Self::Shut => "2026-07-01T11:30:00Z",
            Self::Frozen => "2026-07-01T12:35:00Z",
        };
        Time(text.parse().unwrap())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum St {
    Done,
    Working,
    /// Drained, or rebooting.
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) cur: u8,
    pub(super) des: u8,
    pub(super) st: St,
    /// The config that it is not sent to again for now.
    pub(super) quarantined: Option<u8>,
    /// The config that it takes along if somebody reboots it.
    pub(super) mark: Option<u8>,
    /// A person has rebooted it.
    pub(super) person: bool,
}

impl Node {
    /// At rest in this config.
    pub(super) fn at(config: u8) -> Self {
        Self { cur: config, des: config, st: St::Done, quarantined: None, mark: None, person: false }
    }
}

/// What a Node patch writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Sent {
    pub(super) node: usize,
    pub(super) des: u8,
    /// The node is not quarantined any more.
    pub(super) lifts: bool,
    /// What the node takes along from now on; `None`: that stays.
    pub(super) mark: Option<Option<u8>>,
}

/// A Node patch or a status write under way: what it writes, and whether its object is still at the version that it is
/// bound to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flight<T> {
    pub(super) what: T,
    pub(super) valid: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) nodes: Vec<Node>,
    pub(super) target: u8,
    /// The pool's entry in the policy's status, as JSON: a value that can be hashed.
    pub(super) progress: String,
    pub(super) patches: Vec<Flight<Sent>>,
    pub(super) statuses: Vec<Flight<String>>,
    /// What the controller remembers of the gate, and of which config that is.
    pub(super) gate: Option<(u8, bool)>,
    /// Whether the drain that was blocked can end now.
    pub(super) freed: bool,
    /// A person has approved the canary of the first change.
    pub(super) approved: bool,
    /// Patches of an earlier leader that may still arrive, and of which this one knows nothing.
    pub(super) late: Vec<Flight<Sent>>,
    /// Nodes whose older patches are void: this leader has written to them, or has seen them change.
    pub(super) sealed: Vec<bool>,
    pub(super) hours: Hours,
    /// How many more times a person reboots a node.
    pub(super) reboots: u8,
}

impl State {
    /// Checks that a patch which arrives does not send its node to a config that is stored as rejected by now.
    pub(super) fn reaches(&self, node: usize, config: u8) {
        let progress: PoolProgress = serde_json::from_str(&self.progress).unwrap();
        let rejected = progress.rejected.iter().any(|r| r.config == CONFIGS[config as usize]);
        assert!(
            !rejected || self.nodes[node].des == config,
            "late, n{node} reaches a rejected config: {self:?}"
        );
    }

    pub(super) fn arrives(&mut self, Sent { node: i, des, lifts, mark }: Sent) {
        self.reaches(i, des);
        let had = self.nodes[i];
        let quarantined = had.quarantined.filter(|_| !lifts);
        self.write(i, Node { des, quarantined, mark: mark.unwrap_or(had.mark), ..had });
    }

    pub(super) fn write(&mut self, i: usize, node: Node) {
        self.nodes[i] = node;
        self.patches.iter_mut().filter(|f| f.what.node == i).for_each(|f| f.valid = false);
        self.late.retain(|f| f.what.node != i);
        self.sealed[i] = true;
    }
}

/// A request for a drain.
pub(super) fn drain(config: u8) -> Arc<str> {
    format!("drain-{}", CONFIGS[config as usize]).into()
}
