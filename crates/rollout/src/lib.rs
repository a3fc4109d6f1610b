//! Decides the next moves from pools and nodes: which node goes to which config, who is drained, and why the others
//! wait.
//!
//! What it is: pure functions. [`plan`] looks at all pools and nodes at once and returns a [`RolloutPlan`];
//! [`drain::plan`] looks at one node and its pods; [`mcn`] maintains MachineConfigNodes; [`Situation::forecast`] plans
//! ahead from objects in files. The time is an argument.
//!
//! What it is not: a client, a queue or a clock. The `controller` crate supplies the inputs from its caches and carries
//! plans out.

pub mod drain;
mod explain;
mod forecast;
mod hold;
mod layered;
pub mod mcn;
mod node;
mod order;
mod plan;
pub mod policy;
mod status;
pub mod topology;
pub mod view;

pub use api::names::pool_condition::{CONFIG_PINNED, MEMBERSHIP_CONFLICT};
pub use explain::estimate::{Estimate, Finished, RolloutProgress, estimate};
pub use forecast::situation::{Situation, SituationError};
pub use forecast::{DrainForecast, Forecast, NodeAfter, NodeForecast, PoolForecast, Queued};
pub use hold::{Hold, Reason};
pub use layered::{BuildState, ImageWait, Layering, OsBuildView, OsConfigView};
pub use node::membership::{BrokenSelector, Index, Owners};
pub use node::roles::{Cluster, is_control_plane};
pub use plan::capacity::max_unavailable;
pub use plan::decide::plan;
pub use plan::inputs::{
    ConfigView, Configs, Facts, Inputs, PoolInput, Sources, Streams, Trouble, TroubleOf, Unanswered,
};
pub use plan::patch::{Change, NodePatch};
pub use plan::{
    Capacity, EventObject, EventPlan, NoPool, NodeStep, PoolPlan, RolloutPlan, Step, Target, Unmanaged, Wait,
};
pub use status::pin::{InForce, before, past, pinned, with_next};
pub use status::pinned_text;
pub use status::streams::stream_of;
