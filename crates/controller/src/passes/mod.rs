//! Which queue is worked how, by which pass; runs while this process leads.

pub(crate) mod certificates;
pub(crate) mod drain;
pub(crate) mod finalizers;
pub(crate) mod garbage;
pub(crate) mod generated;
pub(crate) mod machine_config_nodes;
pub(crate) mod nodes;
pub(crate) mod own_configs;
pub(crate) mod queue;
pub(crate) mod render;
pub(crate) mod template_gate;
pub(crate) mod templates;
pub(crate) mod topology;
pub(crate) mod version_claim;

use crate::context::{Context, Queues};
use crate::io::metrics;
use crate::passes::drain::Drains;
use crate::passes::nodes::Nodes;
use crate::passes::queue::{Growth, Outcome, Queue, Spacing, Work, work};
use crate::passes::render::Rendering;
use crate::term::catch_up;
use crate::term::fence::Seal;
use crate::term::leader::Handover;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Rendering: every distinct result is an object that stays, and nodes begin to move to it; so a burst of changes is
/// spread a little wider than elsewhere. A single change is rendered at once all the same.
const RENDER: Work = Work {
    name: "render",
    parallel: 8,
    spacing: Spacing { growth: Growth::Changes, ..Spacing::millis(50, 1000) },
};

/// Nodes: at the far end of the spacing a plan over thousands of nodes runs eight times a second. A freed slot waits that
/// long at most; people are promised that it is used within 200 ms.
const NODE: Work = Work { name: "node", parallel: 1, spacing: Spacing::millis(5, 125) };

/// Drains: as many as have a request; `maxUnavailable` bounds those. The spacing gathers pods that end together.
const DRAIN: Work = Work { name: "drain", parallel: 512, spacing: Spacing::millis(5, 250) };

/// Templates: one key.
const TEMPLATE: Work = Work { name: "template", parallel: 1, spacing: Spacing::millis(50, 1000) };

/// What is generated from settings: one key.
const GENERATED: Work = Work { name: "generated", ..TEMPLATE };

/// What nobody waits for.
const QUIET: Work = Work { name: "quiet", parallel: 16, spacing: Spacing::millis(50, 5000) };

/// Runs all passes until `stop`.
pub(crate) async fn run(context: Arc<Context>, handover: Handover, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => return,
        () = catch_up::caught_up(&context) => {}
    }
    context.mark_all();
    let nodes = Arc::new(Nodes::new(context.clone(), Seal::after(handover, &context)));
    let mut tasks = JoinSet::new();
    let mut start = |queue: fn(&Queues) -> &Queue<String>, how: Work, pass: Pass| {
        tasks.spawn(counted(context.clone(), queue, how, stop.clone(), pass));
    };
    start(
        |q| &q.node,
        NODE,
        Box::new(move |_| {
            let nodes = nodes.clone();
            Box::pin(async move { nodes.pass().await })
        }),
    );
    let rendering = Arc::new(Rendering::new(context.clone()));
    start(
        |q| &q.render,
        RENDER,
        Box::new(move |key| {
            let rendering = rendering.clone();
            Box::pin(async move { rendering.pass(key).await })
        }),
    );
    let drains = Arc::new(Drains::new(context.clone()));
    start(
        |q| &q.drain,
        DRAIN,
        Box::new(move |key| {
            let drains = drains.clone();
            Box::pin(async move { drains.pass(key).await })
        }),
    );
    start(|q| &q.template, TEMPLATE, on(&context, templates::pass));
    start(|q| &q.generated, GENERATED, on(&context, generated::pass));
    start(|q| &q.topology, Work { name: "topology", ..TEMPLATE }, on(&context, topology::pass));
    start(|q| &q.garbage, Work { name: "garbage", ..QUIET }, on(&context, garbage::pass));
    start(|q| &q.progress, Work { name: "progress", ..QUIET }, on(&context, machine_config_nodes::pass));
    let watches = context.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = catch_up::tell_unread(&watches) => {}
    }
    while tasks.join_next().await.is_some() {}
}

type Pass = Box<dyn Fn(String) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// A pass that remembers nothing between runs.
fn on<F, Fut>(context: &Arc<Context>, pass: F) -> Pass
where
    F: Fn(Arc<Context>, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let context = context.clone();
    Box::new(move |key| Box::pin(pass(context.clone(), key)))
}

async fn counted(
    context: Arc<Context>,
    queue: fn(&Queues) -> &Queue<String>,
    how: Work,
    stop: CancellationToken,
    pass: Pass,
) {
    let metrics = context.metrics.clone();
    let counted = move |key, waited| -> BoxFuture<'static, Outcome> {
        let (pass, metrics, begin) = (pass(key), metrics.clone(), Instant::now());
        Box::pin(async move {
            // A fault in one pass must not end the others: it is told, and tried again after a growing wait.
            let outcome = AssertUnwindSafe(pass).catch_unwind().await.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                Outcome::Failed(format!("the pass ended with a fault of the controller itself: {text}"))
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
    work(queue(&context.queues), how, &stop, counted).await;
}
