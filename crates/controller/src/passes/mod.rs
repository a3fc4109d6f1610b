//! All passes, and how they run while this process leads. Each file is one pass: a pure function makes its plan, and
//! its descriptor says what it reads, what marks it, what it does and which rights it needs.

pub(crate) mod descriptor;
pub(crate) mod drain;
pub(crate) mod garbage;
pub(crate) mod generated;
pub(crate) mod image_builds;
pub(crate) mod machine_config_nodes;
pub(crate) mod nodes;
pub(crate) mod old_images;
pub(crate) mod os_images;
pub(crate) mod pinned_images;
pub(crate) mod render;
pub(crate) mod streams;
pub(crate) mod templates;
pub(crate) mod topology;

use crate::change::{Changed, Reaction};
use crate::passes::descriptor::Descriptor;
use crate::queue::serve;
use crate::rights::Right;
use crate::shared::Shared;
use crate::term::catch_up;
use client::lease::Handover;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// All passes.
pub(crate) const ALL: [Descriptor; 13] = [
    nodes::PASS,
    render::PASS,
    drain::PASS,
    templates::PASS,
    generated::PASS,
    topology::PASS,
    garbage::PASS,
    machine_config_nodes::PASS,
    image_builds::PASS,
    old_images::PASS,
    pinned_images::PASS,
    os_images::PASS,
    streams::PASS,
];

/// How each pass answers to a change (see [`crate::dirty`]).
pub(crate) const REACTIONS: [Reaction<Shared>; ALL.len()] = {
    let mut all = [ALL[0].reaction(); ALL.len()];
    let mut i = 0;
    while i < ALL.len() {
        all[i] = ALL[i].reaction();
        i += 1;
    }
    all
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
    for Descriptor { pass, work, start, reads: _, writes: _, marked_by: _, effects: _ } in ALL {
        let (queue, run) = (shared.queues.of(pass), start(&shared, handover));
        let (metrics, stop) = (shared.metrics.clone(), stop.clone());
        tasks.spawn(async move { serve(&queue, work, &metrics, &stop, run).await });
    }
    tokio::select! {
        () = stop.cancelled() => {}
        () = catch_up::report_unreadable_kinds(&shared) => {}
    }
    while tasks.join_next().await.is_some() {}
}
