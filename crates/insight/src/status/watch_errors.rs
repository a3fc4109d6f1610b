//! Errors of the watches that read pools and nodes, and which watches fail at the moment.

use client::{CallError, watch_code, watch_is_expired, watch_is_outage};
use kube::runtime::watcher;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An API server that is silent for this long while the first lists are read is not waited for any longer.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// The watches that fail, by their index: kind and cause. A working watch says nothing about another one.
#[derive(Debug, Default)]
pub(super) struct WatchErrors(BTreeMap<usize, (&'static str, String)>);

impl WatchErrors {
    pub(super) fn note(&mut self, watch: usize, kind: &'static str, why: String) {
        self.0.insert(watch, (kind, why));
    }

    /// Notes that a watch works. Returns whether it failed before.
    pub(super) fn clear(&mut self, watch: usize) -> bool {
        self.0.remove(&watch).is_some()
    }

    /// Each cause once: an unreachable API server makes all watches fail for the same cause.
    pub(super) fn text(&self) -> Option<String> {
        let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (kind, why) in self.0.values() {
            kinds.entry(why).or_default().insert(kind);
        }
        let one =
            |(why, kinds): (&str, BTreeSet<&str>)| format!("{}: {why}", Vec::from_iter(kinds).join(", "));
        let all: Vec<String> = kinds.into_iter().map(one).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Why the cluster cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// There was no answer at all.
    #[error("no answer from the API server within {} s; is the kubeconfig the right one?", SILENCE.as_secs())]
    Late,
    /// None of the first lists that were still missing went on.
    #[error(
        "the API server answers, but for {} s it has sent nothing more of its lists of {}; it may be overloaded",
        SILENCE.as_secs(), missing.join(", ")
    )]
    Slow {
        /// What is missing, in the plural.
        missing: Vec<&'static str>,
    },
    /// The kinds of `machineconfiguration.openshift.io` are not installed.
    #[error(
        "the cluster has no MachineConfigPools and MachineConfigs: their CRDs are not installed; run \
        `mco install`"
    )]
    NotInstalled(#[source] Box<watcher::Error>),
    /// A list was refused, or failed.
    #[error("cannot list pools, nodes and MachineConfigs")]
    List(#[source] Box<watcher::Error>),
    /// The API server did not say which kinds are installed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The watches ended. They restart by themselves after every failure, so this is a bug.
    #[error("the watches ended")]
    Ended,
}

impl FollowError {
    /// Whether the next attempt may succeed although nobody changes anything: no answer, a broken connection, an API
    /// server that is starting or overloaded.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Late | Self::Slow { .. } => true,
            Self::NotInstalled(_) | Self::Ended => false,
            Self::Call(error) => error.is_outage(),
            // A version that is too old asks for a new list.
            Self::List(error) => watch_is_outage(error) || watch_is_expired(error),
        }
    }
}

pub(super) fn refused(error: watcher::Error) -> FollowError {
    let absent = watch_code(&error) == Some(404);
    let error = Box::new(error);
    if absent { FollowError::NotInstalled(error) } else { FollowError::List(error) }
}
