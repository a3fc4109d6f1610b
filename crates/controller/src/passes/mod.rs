//! All passes, and how they run while this process leads. Each file is one pass: a pure function makes its plan, and
//! its descriptor says what it reads, what marks it, what it does and which rights it needs.

pub(crate) mod certificates;
pub(crate) mod descriptor;
pub(crate) mod drain;
pub(crate) mod finalizers;
pub(crate) mod garbage;
pub(crate) mod generated;
pub(crate) mod machine_config_nodes;
pub(crate) mod nodes;
pub(crate) mod queue;
pub(crate) mod render;
pub(crate) mod templates;
pub(crate) mod topology;
pub(crate) mod version_claim;

use crate::dirty::{Changed, Marker};
use crate::io::metrics;
use crate::passes::descriptor::{Descriptor, Right, Run};
use crate::passes::queue::{Outcome, Queue, Work, work};
use crate::shared::Shared;
use crate::term::catch_up;
use crate::term::leader::Handover;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// All passes.
pub(crate) const ALL: [Descriptor; 8] = [
    nodes::PASS,
    render::PASS,
    drain::PASS,
    templates::PASS,
    generated::PASS,
    topology::PASS,
    garbage::PASS,
    machine_config_nodes::PASS,
];

/// The marker of each pass (see [`crate::dirty`]).
pub(crate) const MARKERS: [Marker; ALL.len()] = {
    let mut markers = [ALL[0].marked_by; ALL.len()];
    let mut i = 0;
    while i < ALL.len() {
        markers[i] = ALL[i].marked_by;
        i += 1;
    }
    markers
};

/// The rights that the passes need for objects of the whole cluster. Not included are the objects in our own namespace
/// (the lease, events) and the pull secret.
pub(crate) fn rights() -> BTreeSet<Right> {
    ALL.iter().flat_map(|pass| pass.rights().collect::<Vec<_>>()).collect()
}

/// Runs all passes until `stop`.
pub(crate) async fn run(shared: Arc<Shared>, handover: Handover, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = catch_up::caught_up(&shared) => {}
    }
    shared.changed(&Changed::TermBegins);
    let mut tasks = JoinSet::new();
    for Descriptor { pass, work, start, reads: _, writes: _, marked_by: _ } in ALL {
        let (queue, run) = (shared.queues.of(pass), start(&shared, handover));
        tasks.spawn(counted(shared.clone(), queue, work, stop.clone(), run));
    }
    tokio::select! {
        () = stop.cancelled() => {}
        () = catch_up::tell_unread(&shared) => {}
    }
    while tasks.join_next().await.is_some() {}
}

async fn counted(
    shared: Arc<Shared>,
    queue: Arc<Queue<String>>,
    how: Work,
    stop: CancellationToken,
    pass: Run,
) {
    let metrics = shared.metrics.clone();
    let counted = move |key, waited| -> BoxFuture<'static, Outcome> {
        let (pass, metrics, begin) = (pass(key), metrics.clone(), Instant::now());
        Box::pin(async move {
            // A panic in one pass must not end the others: it is logged, and the pass is tried again after a growing
            // wait.
            let outcome = AssertUnwindSafe(pass).catch_unwind().await.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                Outcome::Failed(format!("a bug in the controller ended the pass: {text}"))
            });
            let word = match &outcome {
                Outcome::Done => "done",
                Outcome::Stale => "stale",
                Outcome::After(_) => "again",
                Outcome::Failed(_) => "failed",
            };
            let labels = metrics::Pass { queue: how.name.to_owned(), outcome: word.to_owned() };
            metrics.passes.get_or_create(&labels).inc();
            metrics.worked(how.name, waited, begin.elapsed());
            outcome
        })
    };
    work(&queue, how, &stop, counted).await;
}
