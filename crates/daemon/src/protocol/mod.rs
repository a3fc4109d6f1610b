//! The node's side of the update protocol, as a pure function: what stands on the Node, what is on the disk, and what
//! this process has done so far go in; the one next [`Action`] comes out.
//!
//! What it is not: it reads nothing, writes nothing and has no clock (`View::now` is an argument). `agent` does what
//! [`step`] says and calls it again; it chooses nothing itself, so a restart at any line is harmless: everything that
//! matters is on the Node or on the disk, and what only this process knows can be made again.
//!
//! ```text
//! Nothing on the Node or the disk ──► Join ─┐
//! node-annotations.json ──► AdoptFile ──────┤
//!                                           ▼
//!      Check ──► Prepare ──► (Fetch) ──► (drain) ──► Apply ──► Reboot ──► ForgetReboot ──► Check
//!                                          └──────────► (uncordon) ──► Done
//!
//! A change that is half made (a crash, an undo that failed) is recovered before anything else. A drained node that takes
//! pods again is drained again before it is changed or rebooted.
//!
//! A node that takes pods is cordoned by its agent, in the patch that asks for the drain, and given back in the patch
//! that says Done. One that was cordoned before is given back, or not, by the controller.
//! ```

pub mod clock;
mod facts;
pub mod join;
mod step;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk;

pub use api::events::AgentEvent as EventKind;
pub use facts::{
    Cost, DiskFacts, EMPTY_CONFIG, Failure, FailureKind, Job, NodeFacts, Pair, Phase, RebootFact, View,
    backoff, cut_reason, disturbing_backoff, outage_backoff,
};
pub use step::{Action, Changes, Cordon, Note, Waiting, step};
