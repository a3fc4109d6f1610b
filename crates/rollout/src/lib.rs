//! Decides the next moves from pools and nodes: which node goes to which config, who is drained, and why the others
//! wait.
//!
//! What it is: pure functions. [`plan`] looks at all pools and nodes at once and returns a [`RolloutPlan`];
//! [`drain::plan`] looks at one node and its pods; [`machine_config_nodes`] maintains MachineConfigNodes; [`Situation::forecast`] plans
//! ahead from objects in files. The time is an argument.
//!
//! What it is not: a client, a queue or a clock. The `controller` crate supplies the inputs from its caches and carries
//! plans out.

mod configs;
pub mod drain;
mod event;
mod explain;
mod facts;
mod forecast;
mod hold;
mod inputs;
pub mod machine_config_nodes;
mod node;
mod order;
mod os_image;
mod patch;
pub mod pinned_images;
mod plan;
pub mod policy;
mod status;
mod target;
mod time;
pub mod topology;

mod updates;
pub mod view;
mod wait_history;

pub use api::names::pool_condition::{CONFIG_PINNED, MEMBERSHIP_CONFLICT};
pub use configs::{ConfigView, Configs};
pub use event::{EventObject, EventPlan};
pub use explain::estimate::{Estimate, Finished, RolloutProgress, estimate};
pub use facts::{Facts, Trouble, TroubleOf, Unanswered};
pub use forecast::situation::{Situation, SituationError};
pub use forecast::{DrainForecast, Forecast, NodeAfter, NodeForecast, PoolForecast, Queued};
pub use hold::{Hold, Prefetching, Reason, Wait};
pub use inputs::streams::stream_of;
pub use inputs::{ControllerMemory, Inputs, PoolInput, Sources, Streams};
pub use node::membership::{BrokenSelector, Index, NoPool, Owners, Unmanaged};
pub use os_image::{ImageLookup, OsImageInput, OsImageWait, skips_inspection};
pub use patch::{Change, NodePatch};
pub use plan::capacity::max_unavailable;
pub use plan::decide::plan;
pub use plan::{Capacity, NodeStep, PoolPlan, RolloutPlan, Step};
pub use status::pin::{PastConfig, history_with, past_configs, pinned_config, previous_config};
pub use status::pinned_text;
pub use target::{BuildState, ImageWait, Layering, OsBuildView, OsConfigView, Target};

pub use updates::{PastUpdate, past_updates};
pub use view::roles::{Cluster, is_control_plane, is_role_with_etcd};
pub use wait_history::{PastWaits, WaitHistory, past_waits};
