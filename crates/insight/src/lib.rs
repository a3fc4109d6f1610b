//! What people look at, as plain values that serialise: where pools and nodes stand and why ([`Snapshot`]), what is not as it
//! should be ([`Finding`]), and who set what in a pool's config ([`Explanation`]). `mco status`, `mco explain` and whatever
//! else shows a cluster show these, and so say the same.
//!
//! Flow: watches → [`Followed`] → `rollout::plan`, the plan that the controller acts on → [`Snapshot::of`], which is pure.
//!
//! What it is not: rules (those are `rollout`'s and `render`'s), tables and colours (those are the program's), and writes.

mod explanation;
mod findings;
mod follow;
mod since;
mod snapshot;

pub use explanation::{Explanation, NoSuchThing, Source, kind_of};
pub use findings::{Finding, Problem};
pub use follow::{FollowError, Followed, snapshot};
pub use rollout::Estimate;
pub use since::Progress;
pub use snapshot::{Filter, KnownNode, NodeRow, Phase, PoolRow, Snapshot, View};
