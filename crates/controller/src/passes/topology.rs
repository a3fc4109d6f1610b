//! The topology pass: derives the cluster's topology from its nodes and keeps it in the ControllerConfig, for everyone
//! who reads it there. Rollout decisions do not wait for it: they count the same nodes by the same rule.
//!
//! What it is not: the rule (see `rollout::topology`).

use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::refusals::{AGAIN, Topic};
use crate::kind;
use crate::passes::descriptor::{Descriptor, stateless};
use crate::queue::{Outcome, Pass, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use api::names::CONTROLLER_CONFIG;
use api::v1::ControllerConfig;
use client::{CallError, call};
use kube::api::{Patch, PatchParams};
use rollout::TroubleOf;
use rollout::topology::{self, Topology};
use std::sync::Arc;

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::Topology,
    work: Work { name: "topology", ..Work::SINGLE_KEY },
    reads: &[&inputs::CONTROLLER_CONFIGS, &inputs::NODES],
    rights: &[Right::named("patch", kind::CONTROLLER_CONFIGS, &[CONTROLLER_CONFIG])],
    marked_by,
    effects: Effects::NONE,
    start: |shared, _| stateless(shared, pass),
};

fn marked_by(changed: &Changed<'_>, _: KnownObjects<'_>, marks: &mut DirtyKeys) {
    let concerns = match changed {
        // A node was added or removed, or has another role.
        Changed::Node(change) => {
            change.old.as_deref().map(|n| &n.labels) != change.new.as_deref().map(|n| &n.labels)
        }
        Changed::ControllerConfig(_) | Changed::TermBegins => true,
        _ => false,
    };
    if concerns {
        marks.mark(Pass::Topology, CONTROLLER_CONFIG);
    }
}

/// The key of this write in [`crate::flight::refusals::CurrentFailures`].
const TOPOLOGY: &str = "topology";

/// One pass over all nodes.
pub(crate) async fn pass(shared: Arc<Shared>, name: String) -> Outcome {
    let done = carry_out(&shared, &name).await;
    let words = match &done {
        Ok(()) => {
            shared.troubles.resolved(TOPOLOGY);
            None
        }
        Err(error) => shared.troubles.due_message(TOPOLOGY, error),
    };
    let told = words.is_some();
    let text = words
        .map(|words| format!("the control-plane topology found from the nodes cannot be written: {words}"));
    shared.report_problem(Topic::Topology, TroubleOf::Cluster, text);
    match done {
        Ok(()) => Outcome::Done,
        Err(e) if e.is_refused() => {
            tracing::warn!("{}", e.chain());
            Outcome::After(AGAIN)
        }
        Err(e) if !told && (e.is_conflict() || e.is_not_found()) => Outcome::Stale,
        Err(e) => Outcome::Failed(e.chain()),
    }
}

async fn carry_out(shared: &Shared, name: &str) -> Result<(), CallError> {
    let Some(config) = shared.stores.controller_configs.get(name) else { return Ok(()) };
    let found = Topology::of(shared.stores.nodes.all().iter().map(AsRef::as_ref));
    let Some(patch) = topology::patch(&config, found) else { return Ok(()) };
    let api = shared.api::<ControllerConfig>();
    let body = Patch::Merge(&patch);
    let what = || format!("topology in controllerconfig {name}");
    // By its name the operator knows a machine's word from a person's.
    let params =
        PatchParams { field_manager: Some("machine-config-controller".to_owned()), ..PatchParams::default() };
    let answer = call(what, api.patch(name, &params, &body)).await?;
    let word = |t: Option<&'static str>| t.unwrap_or("not known");
    tracing::info!(
        control_plane = word(found.control_plane),
        infrastructure = word(found.infrastructure),
        "the control-plane topology was updated from the nodes"
    );
    shared.controller_config_answer(answer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::Item;
    use crate::fake_server::{answer, shared};
    use rollout::view::NodeView;
    use serde_json::json;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_topology_that_cannot_be_written_is_told_on_every_pool_until_it_can() {
        use std::sync::atomic::{AtomicU16, Ordering};
        let code = Arc::new(AtomicU16::new(0));
        for (with, at_once) in [(403, true), (409, false), (500, false)] {
            code.store(with, Ordering::Relaxed);
            let says = code.clone();
            let shared = Arc::new(shared(move |_| match says.load(Ordering::Relaxed) {
                200 => answer(
                    200,
                    &json!({"metadata": {"name": "c", "uid": "u", "resourceVersion": "9"}, "spec": {}}),
                ),
                code => {
                    answer(code, &json!({"kind": "Status", "code": code, "message": "no, says the policy"}))
                }
            }));
            let config: ControllerConfig =
                serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {}})).unwrap();
            let item = Item { version: 1, uid: "u".to_owned(), value: Arc::new(config) };
            shared.stores.controller_configs.apply("c".to_owned(), item);
            let labels = [("node-role.kubernetes.io/control-plane", "")].into_iter().collect();
            let node = NodeView { name: "n".into(), labels, ..NodeView::default() };
            let item = Item { version: 1, uid: "n".to_owned(), value: Arc::new(node) };
            shared.stores.nodes.apply("n".to_owned(), item);
            let told =
                || shared.side_problems.all().iter().map(|t| t.text.clone()).collect::<Vec<_>>().join(" ");
            pass(shared.clone(), "c".to_owned()).await;
            assert_eq!(told().contains("says the policy"), at_once, "{with}: {}", told());
            tokio::time::advance(Duration::from_secs(8)).await;
            shared.queues.of(Pass::Node).take();
            pass(shared.clone(), "c".to_owned()).await;
            assert!(told().contains("says the policy"), "{with}");
            assert_eq!(
                shared.queues.of(Pass::Node).take().is_empty(),
                at_once,
                "pools say it with the next plan"
            );
            code.store(200, Ordering::Relaxed);
            assert_eq!(pass(shared.clone(), "c".to_owned()).await, Outcome::Done);
            assert_eq!(told(), "", "{with}");
        }
    }
}
