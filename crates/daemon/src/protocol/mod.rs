//! The node's side of the update protocol, as a pure function. Input: the Node's annotations, the state of the disk,
//! and what this process has done so far. Output: the single next [`Action`].
//!
//! It reads nothing, writes nothing and has no clock (`View::now` is an argument). `agent` carries out the action that
//! [`step`] returns and calls it again. It makes no choices of its own, so a restart at any point is harmless:
//! everything that matters is on the Node or on the disk, and what only this process knows can be rebuilt.
//!
//! ```text
//! Nothing on the Node or the disk ──► Join ─┐
//! node-annotations.json ──► AdoptFile ──────┤
//!                                           ▼
//!      Check ──► Prepare ──► (Fetch) ──► (drain) ──► Apply ──► Reboot ──► ForgetReboot ──► Check
//!                                          └──────────► (uncordon) ──► Done
//!
//! A change that can cut the node off is confirmed after it was applied and rebooted into, or undone (see `trial`).
//! An unfinished change (after a crash or a failed undo) is recovered before anything else. A drained node on which pods
//! can be scheduled again is drained again before it is changed or rebooted.
//!
//! The agent cordons a schedulable node in the same patch that asks for the drain, and uncordons it in the patch that
//! says Done. If the node was cordoned before the update, the controller decides whether it is uncordoned.
//! ```
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfigDaemon.md>.

mod action;
pub mod clock;
mod disruption;
mod facts;
mod image;
pub mod join;
mod phase;
mod prefetch;
mod retry;
mod step;
#[cfg(test)]
mod tests;
mod trial;
mod trial_facts;
pub(crate) mod waiting_config;

pub use action::{Action, AgentNote, Changes, Cordon, Waiting};
pub(crate) use disruption::announcement;
pub use facts::{DiskFacts, EMPTY_CONFIG, NodeFacts, RebootFact, View};
pub use phase::{ConfigPair, Cost, Failure, FailureKind, Job, Phase, cut_reason};
pub(crate) use retry::signed;
pub use retry::{backoff, disturbing_backoff, outage_backoff};
pub use step::step;
pub(crate) use trial::{AfterUndo, StateAfterUndo, after_undo, restarted, restarts};
pub use trial_facts::{StateBefore, TrialFacts, TrialObservation, TriedFacts};
