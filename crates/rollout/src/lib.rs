//! Decides the next moves from pools and nodes: which node goes to which config, who is drained, and why the others
//! wait.
//!
//! What it is: pure functions. [`plan`] looks at all pools and nodes at once and returns a [`RolloutPlan`];
//! [`drain::plan`] looks at one node and its pods; [`mcn`] maintains MachineConfigNodes; [`Situation::forecast`] plans
//! ahead from objects in files. The time is an argument.
//!
//! What it is not: a client, a queue or a clock. The `controller` crate supplies the inputs from its caches and carries
//! plans out.

mod assembly;
mod capacity;
mod control_plane;
mod decide;
pub mod drain;
mod estimate;
mod explain;
mod first_boot;
mod forecast;
mod layered;
pub mod mcn;
mod membership;
mod node;
mod patch;
mod pin;
mod plan;
pub mod policy;
mod roles;
mod seal;
mod situation;
mod status;
mod streams;
mod stuck;
pub mod topology;
pub mod view;

pub use api::names::pool_condition::{CONFIG_PINNED, MEMBERSHIP_CONFLICT};
pub use assembly::{ConfigView, Configs, Sources, Streams};
pub use capacity::max_unavailable;
pub use decide::plan;
pub use estimate::{Estimate, Finished, RolloutProgress, estimate};
pub use forecast::{DrainForecast, Forecast, NodeAfter, NodeForecast, PoolForecast, Queued};
pub use layered::{BuildState, ImageWait, Layering, OsBuildView, OsConfigView};
pub use membership::{BrokenSelector, Index, Owners};
pub use patch::{Change, NodePatch};
pub use pin::{InForce, before, past, pinned, with_next};
pub use plan::{
    Capacity, EventObject, EventPlan, Facts, Hold, Inputs, NoPool, NodeStep, PoolInput, PoolPlan, Reason,
    RolloutPlan, Step, Target, Trouble, TroubleOf, Unanswered, Unmanaged, Wait,
};
pub use roles::{Cluster, is_control_plane};
pub use situation::{Situation, SituationError};
pub use status::pinned_text;
pub use streams::stream_of;
