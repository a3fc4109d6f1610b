//! Errors of the watches that read pools and nodes, and which watches fail at the moment.

use client::{CallError, watch_code};
use kube::runtime::watcher;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// An API server that takes longer than this for the first lists is treated as unreachable.
pub(super) const FIRST_LISTS: Duration = Duration::from_secs(30);

/// A watch that was started again and has not failed for this long counts as working, even if it has reported no change: the
/// longest wait before another try is 30 s, and so is the time limit for a connection.
pub(super) const TRIED: Duration = Duration::from_secs(70);

/// The watches that fail, by their index: kind, cause, and since when. A working watch says nothing about another one.
#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<usize, (&'static str, String, Instant)>);

impl Troubles {
    pub(super) fn note(&mut self, watch: usize, kind: &'static str, why: String, now: Instant) {
        self.0.insert(watch, (kind, why, now));
    }

    pub(super) fn over(&mut self, watch: usize) {
        self.0.remove(&watch);
    }

    /// Each cause once: an unreachable API server makes all watches fail for the same cause.
    pub(super) fn text(&self, now: Instant) -> Option<String> {
        let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (kind, why, _) in self.0.values().filter(|(.., since)| now.duration_since(*since) < TRIED) {
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
    /// The first lists take too long.
    #[error("no answer from the API server within {} s; is the kubeconfig the right one?", FIRST_LISTS.as_secs())]
    Late,
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
            Self::Late => true,
            Self::NotInstalled(_) | Self::Ended => false,
            Self::Call(error) => error.is_outage(),
            Self::List(error) => match (watch_code(error), &**error) {
                (Some(code), _) => is_busy(code),
                (
                    None,
                    watcher::Error::InitialListFailed(error)
                    | watcher::Error::WatchStartFailed(error)
                    | watcher::Error::WatchFailed(error),
                ) => matches!(
                    error,
                    kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_)
                ),
                (None, _) => false,
            },
        }
    }
}

/// Whether the API server is overloaded or starting, or its answer (410) asks for a new list.
fn is_busy(code: u16) -> bool {
    code == 429 || code == 410 || code >= 500
}

pub(super) fn refused(error: watcher::Error) -> FollowError {
    let absent = watch_code(&error) == Some(404);
    let error = Box::new(error);
    if absent { FollowError::NotInstalled(error) } else { FollowError::List(error) }
}
