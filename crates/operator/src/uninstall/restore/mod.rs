//! Takes every managed node back to its own files, before `mco uninstall` takes the rest away.
//!
//! Flow: the pools are paused, so that the controller sends no node anywhere → [`round`] says how far each node is
//! and which go next (pure) → those get the empty config as their desired config. The agent treats it as any other change: it
//! drains by the controller, puts back what it replaced, deletes what it made, and reboots where that is needed.
//!
//! Guarantees: one control-plane node at a time, and not before etcd is Ready on all others; of each other pool no more than
//! its `maxUnavailable`. When somebody resumes a pool meanwhile, no further node is sent and nothing is removed. Everything is
//! remembered on the Nodes, so a second run continues a first one. While a node fails, no other is sent, unless that was asked
//! for.
//!
//! What it is not: how a host goes back (see `host`).

mod plan;
mod run;
mod unsent_nodes;

pub use plan::{NodeToRestore, RestoreState};
pub(super) use run::pause;
pub use run::{Progress, nodes_to_restore, restore_hosts};
