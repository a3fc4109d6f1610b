//! The order in which the nodes of a pool go.
//!
//! What it is not: which of them may go (see `plan`), or which wave they are in (see `policy`).

use crate::view::NodeView;

/// The order in which nodes go: zone by zone, and within a zone the oldest first. Nodes without a zone come last. Names
/// decide between equals.
pub(crate) fn order(a: &NodeView, b: &NodeView) -> std::cmp::Ordering {
    let key = |n: &NodeView| (n.zone().is_none(), n.created);
    a.zone().is_none().cmp(&b.zone().is_none()).then_with(|| {
        a.zone().cmp(&b.zone()).then_with(|| key(a).cmp(&key(b))).then_with(|| a.name.cmp(&b.name))
    })
}
