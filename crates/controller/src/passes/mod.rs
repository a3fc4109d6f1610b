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

use crate::cache::settings::Setting;
use crate::change::{Changed, Reaction};
use crate::passes::descriptor::Descriptor;
use crate::queue::{Pass, every_pass, serve};
use crate::rights::Right;
use crate::shared::Shared;
use crate::term::catch_up;
use crate::watches::input::{Input, Way};
use client::lease::Handover;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

macro_rules! descriptors {
    ($($(#[$doc:meta])* $name:ident = $module:ident;)*) => {
        /// All passes.
        pub(crate) const ALL: &[Descriptor] = &[$($module::PASS),*];
        // Each descriptor is that of the pass beside whose name its module stands.
        const _: () = assert!($(matches!($module::PASS.pass, Pass::$name))&&*);
    };
}
every_pass!(descriptors);

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

/// What the passes read. All that is watched is in it.
pub(crate) fn inputs() -> Vec<&'static Input> {
    let mut all: Vec<&'static Input> = vec![];
    for input in ALL.iter().flat_map(|pass| pass.reads.iter().copied()) {
        if !all.iter().any(|known| std::ptr::eq(*known, input)) {
            all.push(input);
        }
    }
    all
}

/// The cluster's settings among that.
pub(crate) fn settings() -> impl Iterator<Item = Setting> {
    inputs().into_iter().filter_map(|input| match input.way {
        Way::Setting(setting) => Some(setting),
        Way::Watched { .. } | Way::Followed(_) | Way::Requested => None,
    })
}

/// The rights that the passes need.
pub(crate) fn rights() -> BTreeSet<Right> {
    ALL.iter().flat_map(Descriptor::all_rights).collect()
}

/// Runs all passes until `stop`.
pub(crate) async fn run(shared: Arc<Shared>, handover: Handover, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = catch_up::caught_up(&shared) => {}
    }
    shared.changed(&Changed::TermBegins);
    let mut tasks = JoinSet::new();
    for &Descriptor { pass, work, start, reads: _, rights: _, marked_by: _, effects: _ } in ALL {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::watch::ReadRequirement;
    use crate::fake_server::{answer, shared};
    use crate::watches;
    use serde_json::json;
    use tokio_util::task::TaskTracker;

    #[test]
    fn each_pass_has_a_name_of_its_own() {
        assert_eq!(ALL.iter().map(|pass| pass.pass).collect::<BTreeSet<_>>().len(), ALL.len());
        assert_eq!(ALL.iter().map(|pass| pass.work.name).collect::<BTreeSet<_>>().len(), ALL.len());
    }

    /// The start of a term, and readiness, look at what is recorded.
    #[tokio::test]
    async fn what_a_descriptor_reads_is_watched_and_nothing_else() {
        let shared = Arc::new(shared(|_| answer(404, &json!({"kind": "Status", "code": 404}))));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        watches::start(&shared, &inputs(), &tasks, &stop);
        let named = |kind: &str, need: ReadRequirement| format!("{kind} {need:?}");
        let watched: BTreeSet<String> =
            shared.watched_kinds().iter().map(|of| named(&of.kind, of.need)).collect();
        let wanted = inputs().into_iter().filter_map(|input| match input.way {
            Way::Watched { need, .. } => input.kind.map(|kind| named(kind.name, need)),
            Way::Setting(_) => input.kind.map(|kind| named(kind.name, ReadRequirement::Setting)),
            Way::Followed(_) | Way::Requested => None,
        });
        assert_eq!(watched, wanted.collect());
        assert!(watched.len() > 20 && watched.contains("Node Always"), "{watched:?}");
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }

    /// The template folder and the pull secret are no kinds that are watched.
    #[tokio::test]
    async fn what_is_followed_besides_is_what_a_descriptor_reads() {
        let started = |inputs: &[&'static Input]| {
            let shared = Arc::new(shared(|_| answer(404, &json!({"kind": "Status", "code": 404}))));
            let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
            stop.cancel();
            watches::start(&shared, inputs, &tasks, &stop);
            tasks.len()
        };
        let inputs = inputs();
        let (followed, others): (Vec<_>, Vec<_>) =
            inputs.iter().copied().partition(|input| matches!(input.way, Way::Followed(_)));
        assert_eq!(followed.len(), 2);
        assert_eq!(started(&inputs), started(&others) + followed.len());
    }
}
