//! `mco uninstall`: takes away everything that was installed, in an order that leaves nothing behind.
//!
//! Flow: [`find`] finds what there is → [`plan()`] lists what goes and what stays, and why (pure) → [`carry_out`] does it.
//!
//! The order: first what would create things again (the operator), then what taints Nodes that register, then the other
//! workloads, then what refuses changes, then what is held by finalizers whose controller is gone, then the rights, the
//! definitions with all of their objects, and at last the namespaces. A run that is cut off is continued by the next one.
//!
//! Before agents go they are asked to end trials, and to remove the units that they have installed for trials.
//!
//! Hosts keep their files, unless [`restore_hosts`] takes every managed node back to its own files before that.
//!
//! What it is not: the change of a host (see `host`).

mod execute;
mod find;
mod others;
mod plan;
mod progress;
mod restore;
mod waiting;

pub use execute::{Remains, carry_out};
pub use find::find;
pub use others::Lost;
pub use plan::{Action, Facts, Plan, plan};
pub use progress::Step;
pub use restore::{NodeToRestore, Progress, RestoreState, nodes_to_restore, restore_hosts};

use client::CallError;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Why it cannot be taken away.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// The API server refused a request, or did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Another one runs this cluster.
    #[error(
        "another Machine Config Operator runs this cluster: {why}. Nothing of this one is installed, and nothing was \
         removed; check with kubectl config current-context that this is the right cluster"
    )]
    Foreign {
        /// How it is known.
        why: String,
    },
    /// Nodes are on their way to another config.
    #[error(
        "nothing was removed: {}. An interrupted update leaves a node cordoned, or between two configs; wait until mco status says \
         that it is done, or pass --force",
        nodes.join("; ")
    )]
    Busy {
        /// The nodes, each with where it goes.
        nodes: Vec<String>,
    },
    /// Secrets that somebody else made would go with a namespace.
    #[error(
        "nothing was removed: a namespace goes with everything in it, also with what somebody else made: {}. A key in one of these \
         may have no other copy. Copy what you need ({}), then run the command again with --delete-secrets, or delete the \
         Secrets first",
        others::listed(secrets),
        others::commands(secrets)
    )]
    Secrets {
        /// The Secrets.
        secrets: Vec<Lost>,
    },
    /// Nodes did not get back to their own files.
    #[error(
        "nothing was removed, and the pools are paused, because not every node got back to its own files:{}\nfix the cause and \
         run the command again; --force removes the installation anyway; mco resume POOL cancels the uninstall",
        lines(nodes)
    )]
    NotRestored {
        /// The nodes, each with the reason.
        nodes: BTreeMap<String, String>,
    },
    /// Somebody has resumed a pool meanwhile: the controller would send its nodes to their config again.
    #[error(
        "nothing was removed: {} not paused any more, so the controller moves nodes to their config again while they go back to \
         their own files. No further node is sent back to its own files. Find out who resumed it, then run the command again, \
         which pauses the pools; to cancel the uninstall, run mco resume POOL for the other pools",
        pools.join(", ")
    )]
    Resumed {
        /// The pools, each with who did it.
        pools: Vec<String>,
    },
    /// Something does not go.
    #[error(
        "{what} still exists after {seconds} s: a finalizer holds it or, if it is a CustomResourceDefinition, one of its objects. \
         Look at metadata.finalizers (kubectl get -o yaml), let the finalizer's owner finish, then run the command again"
    )]
    Stays {
        /// The object.
        what: String,
        /// How long was waited.
        seconds: u64,
    },
    /// Pods of a workload that is gone do not end.
    #[error(
        "pods of {what} still run after {seconds} s: {}; where the machine of a node is gone, delete its Node; else look at why the \
         kubelet does not end the pod; then run the command again",
        pods.join(", ")
    )]
    PodsStay {
        /// The workload.
        what: String,
        /// The pods, each with its node.
        pods: Vec<String>,
        /// How long was waited.
        seconds: u64,
    },
}

fn lines(nodes: &BTreeMap<String, String>) -> String {
    nodes.iter().fold(String::new(), |mut all, (name, why)| {
        let _ = write!(all, "\n  Node {name}: {why}");
        all
    })
}
