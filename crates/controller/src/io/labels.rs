//! Labels that several families of metrics have.

use prometheus_client::encoding::EncodeLabelSet;

/// `pool`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Pool {
    pub(crate) pool: String,
}

/// `node`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Node {
    pub(crate) node: String,
}

/// `pool`, `state`: a word of [`rollout::Step::STATES`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PoolState {
    pub(crate) pool: String,
    pub(crate) state: String,
}
