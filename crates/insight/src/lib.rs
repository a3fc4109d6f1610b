//! What people look at, as plain values that serialise. `mco` and the dashboard both show these values, so they agree.
//!
//! - where pools and nodes stand and why: [`Snapshot`], and what needs attention: [`Finding`];
//! - what the controller does now: [`Forecast`], and what a change would do and cost: [`ChangePlan`];
//! - the past configs of a pool and who changed what: [`PoolHistory`], and an undo: [`UndoPlan`];
//! - who set what in a pool's config: [`Explanation`];
//! - everything that a bug report needs, without secrets: [`bundle()`].
//!
//! Flow of a snapshot: watches → [`ClusterWatch`] → `rollout::plan`, the plan that the controller acts on → [`Snapshot::of`],
//! which is pure. The others are filled from lists or files: [`present_situation`], [`for_planning`], [`situation`], [`history()`],
//! [`explain()`]; what objects render to is [`rendered()`].
//!
//! What it is not: rules (see `rollout`, `render` and `host`), tables and colours (see the program), or writes.

mod bundle;
mod change;
mod explain;
mod history;
mod objects;
mod policies;
mod situation;
mod status;

pub use bundle::redact::redacted;
pub use bundle::redact_text::redacted_lines;
pub use bundle::{BundleFile, bundle};
pub use change::impact::{ExpectedDrain, PolicySummary, TimeEstimate};
pub use change::rendering::{RenderWith, Rendered, UnrenderableError, in_force, rendered};
pub use change::settings::{needs_templates, rendered_now};
pub use change::unrendered::unrendered;
pub use change::{
    ChangeError, ChangePlan, ChangeView, Cost, Manifests, Outcome, PoolChange, PulledImage, disruption_policy,
};
pub use explain::requests::{ExplainError, explain, explain_stored};
pub use explain::{Explanation, NotInConfig, Source, kind_of};
pub use history::undo::{RollbackError, UndoPlan, rollback_target};
pub use history::{HistoryError, PastConfig, PoolHistory, history, rendered_of};
pub use objects::dump::{Dump, DumpError};
pub use objects::lists::{ListError, Listed, for_planning, for_rendering};
pub use objects::{Objects, UnreadableConfig, configs, merged_over, object, pool_of};
pub use policies::{Policies, UnreadablePolicy, policies};
pub use rollout::{Estimate, Forecast};
pub use situation::{PresentError, PresentSituation, present_situation, situation};
pub use status::findings::{Finding, Problem};
pub use status::follow::{ClusterWatch, snapshot};
pub use status::node_progress::{Milestone, Progress};
pub use status::policy::{PolicyRow, WaveRow, WaveState};
pub use status::rows::{NodeRow, Phase, PoolRow};
pub use status::served::UnreadKind;
pub use status::until_updated::{FollowEnd, FollowOptions, FollowedStatus, StatusView};
pub use status::watch_errors::FollowError;
pub use status::{Filter, KnownNode, Snapshot, View};
