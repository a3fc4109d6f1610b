//! How many nodes may be out for their update at once.
//!
//! What it is not: a reservation. The answer holds for the nodes as given; patches are bound to the versions that were
//! seen.

use crate::node::Flags;
use crate::plan::Capacity;
use crate::view::NodeView;
use api::k8s::IntOrString;
use api::names::{ARBITER, MASTER};

/// `maxUnavailable` as a number of nodes. A percentage is rounded down, and at least one node may always go.
/// Control-plane pools go one at a time, whatever the value: etcd's quorum does not survive more.
///
/// # Errors
/// A negative number or percentage, or a string that is not a whole number followed by `%`; the error quotes it.
pub fn max_unavailable(pool: &str, value: Option<&IntOrString>, nodes: usize) -> Result<usize, String> {
    let wanted = match value {
        None => 1,
        Some(IntOrString::Int(n)) => usize::try_from(*n).map_err(|_| n.to_string())?,
        Some(IntOrString::String(text)) => {
            let percent = text
                .strip_suffix('%')
                .and_then(|number| number.parse::<usize>().ok())
                .ok_or_else(|| text.clone())?;
            // Values above 100 % mean all nodes. The product must not overflow.
            nodes.saturating_mul(percent) / 100
        }
    };
    Ok(if matches!(pool, MASTER | ARBITER) { 1 } else { wanted.max(1) })
}

/// The free slots. A node that is not available takes one, and so does a node that fails to reach the pool's config, or
/// one that may have been sent by a patch without an answer.
/// `excused`: how many nodes that are out for reasons of their own take none.
pub(crate) fn measure(max: usize, excused: usize, nodes: &[(&NodeView, Flags)]) -> Capacity {
    let names = |pick: fn(&Flags) -> bool| {
        nodes.iter().filter(|(_, f)| pick(f)).map(|(n, _)| n.name.clone()).collect::<Vec<_>>()
    };
    let unavailable = names(|f| f.unavailable);
    // A node can be both not ready and failing. The reference then counts two slots, and so do we.
    let failing = names(|f| f.failing && !f.candidate);
    let unanswered = names(|f| f.maybe_sent);
    let taken = unavailable.len() + failing.len() + unanswered.len();
    let excused = nodes.iter().filter(|(_, f)| f.unrelated).count().min(excused);
    let free = max.saturating_sub(taken.saturating_sub(excused));
    Capacity { max, unavailable, broken: names(|f| f.broken), failing, unanswered, free }
}
