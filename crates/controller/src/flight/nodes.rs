//! Patches of Nodes, sent until the outcome is known. Each patch is bound to the resource version that it
//! was decided on, and its answer goes into the cache before anything else is decided.
//!
//! What it is not: the choice of what to write, or how many are sent at once (see `permits`).

use crate::cache::stores::TrimmedNode;
use crate::flight::permits::Whose;
use crate::io::backoff::WORK;
use crate::shared::Shared;
use crate::term::leader::STRAY;
use client::{CallError, call};
use kube::api::{Patch, PatchParams};
use rollout::NodePatch;
use serde_json::Value;
use std::fmt::Display;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// After this many server errors in a row for one Node's patch, the server will continue to fail: an admission webhook
/// is down, for example. If the first attempt did take effect after all, the next one was a conflict, and the watch has
/// had seconds to deliver it. So the other nodes need not wait for this patch any longer.
const FAULTS: u32 = 6;

/// How long a patch without an answer is sent again. An API server that was away for a while has answered by then. A
/// webhook that hangs has not, and the plan may want something else for the node by now.
const TRYING: Duration = Duration::from_mins(5);

/// How long a pass waits for an answer. A server that answers with errors of its own has given its final answer by then
/// (see [`FAULTS`]).
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How often the cache is checked for the outcome of a patch.
const LOOK: Duration = Duration::from_millis(250);

/// Sends one patch of a drain, and puts the answer into the cache. Its outcome affects no decision about other nodes.
pub(crate) async fn patch_node(shared: &Shared, patch: &NodePatch) -> Result<(), CallError> {
    let place = shared.permits.take(Whose::Drain, &shared.terms).await;
    send(shared, &place, patch).await
}

/// Sends one Node patch, holding a permit, and puts the answer into the cache. Returns when the outcome is known: there
/// is an answer; or the Node has another version, to which the patch is not bound; or the patch has arrived or never
/// will.
pub(crate) async fn until_settled(
    shared: &Shared,
    place: &OwnedSemaphorePermit,
    patch: &NodePatch,
) -> Result<(), CallError> {
    let done = send(shared, place, patch).await;
    if done.as_ref().is_err_and(|e| e.is_unanswered() && !e.is_server_fault()) {
        let last = Instant::now();
        let version = |node: &str| shared.stores.nodes.version(node);
        let bound = patch.resource_version.parse().ok();
        while last.elapsed() < STRAY && version(&patch.node) == bound {
            tokio::time::sleep(LOOK).await;
        }
        // It may have arrived although the watch has not delivered the new version.
        if version(&patch.node) == bound {
            read(shared, &patch.node).await;
        }
    }
    done
}

async fn send(shared: &Shared, place: &OwnedSemaphorePermit, patch: &NodePatch) -> Result<(), CallError> {
    // For these fields this does the same as a merge patch, and the API server need not convert the Node to JSON and
    // back.
    let body = Patch::Strategic(patch.merge_patch());
    until_answered(shared, place, &patch.node, &body, patch).await?;
    tracing::info!(node = %patch.node, "{patch}");
    Ok(())
}

/// Sends one Node patch, holding a permit, until it is answered or [`TRYING`] has passed, and puts the answer into the
/// cache.
///
/// A patch without an answer may have arrived, or may still arrive. A plan made before that is known could send another
/// node as well, and so exceed `maxUnavailable`. So the patch is sent again until it is answered. Because it is bound
/// to a version it takes effect at most once. A refusal says that the node has changed, maybe by an earlier copy of
/// this patch; so the node is read before anything else is decided.
pub(crate) async fn until_answered(
    shared: &Shared,
    _place: &OwnedSemaphorePermit,
    name: &str,
    body: &Patch<Value>,
    words: &(dyn Display + Sync),
) -> Result<(), CallError> {
    let api = shared.api::<TrimmedNode>();
    let params = PatchParams::default();
    let (begin, mut attempt, mut faults) = (Instant::now(), 0, 0);
    loop {
        let error = match call(|| format!("patch of node {words}"), api.patch(name, &params, body)).await {
            Ok(node) => {
                shared.node_answer(&node.0);
                return Ok(());
            }
            Err(e) => e,
        };
        faults = if error.is_server_fault() { faults + 1 } else { 0 };
        if !error.is_unanswered() || faults >= FAULTS || begin.elapsed() >= TRYING {
            if attempt > 0 {
                read(shared, name).await;
            }
            return Err(error);
        }
        let delay = WORK.delay(attempt);
        if attempt == 0 {
            tracing::warn!(node = %name, "{}; it is sent again until the API server answers", error.chain());
        } else {
            tracing::debug!(node = %name, attempt, ?delay, "{}", error.chain());
        }
        tokio::time::sleep(delay).await;
        attempt += 1;
    }
}

/// Puts the current Node into the cache as soon as it can be read.
async fn read(shared: &Shared, name: &str) {
    let api = shared.api::<TrimmedNode>();
    let (mut attempt, mut faults) = (0, 0);
    loop {
        let error = match call(|| format!("node {name}"), api.get(name)).await {
            Ok(node) => return shared.node_answer(&node.0),
            Err(e) => e,
        };
        faults = if error.is_server_fault() { faults + 1 } else { 0 };
        // It is gone, we may not read it, or the fault lasts: the watch will deliver what is true.
        if !error.is_unanswered() || faults >= FAULTS {
            return;
        }
        tracing::debug!(node = %name, attempt, "{}", error.chain());
        tokio::time::sleep(WORK.delay(attempt)).await;
        attempt += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::Item;
    use crate::fake_server::{answer, shared};
    use rollout::view::NodeView;
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_patch_is_sent_until_answered_but_one_nodes_fault_does_not_hold_the_others_for_ever() {
        let rows: [(&'static [u16], Option<u16>, u32); 5] = [
            (&[0, 0, 0, 0, 0, 0, 0, 0, 503], None, 10),
            (&[500, 500, 0, 500, 500, 500, 500, 500], None, 9),
            (&[409], Some(409), 1),
            // The conflict may come from the first attempt, whose answer was lost. So the node is read.
            (&[0, 409], Some(409), 3),
            (&[500; 99], Some(500), 2 * FAULTS),
        ];
        for (answers, want, times) in rows {
            let asked = Arc::new(AtomicU32::new(0));
            let count = asked.clone();
            let shared = shared(move |_| match answers.get(count.fetch_add(1, Ordering::Relaxed) as usize) {
                Some(0) => None,
                Some(code) => answer(*code, &json!({"kind": "Status", "code": code, "message": "no"})),
                None => {
                    let metadata = json!({"name": "n", "uid": "u", "resourceVersion": "7"});
                    answer(200, &json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
                }
            });
            let item = Item { version: 3, uid: "u".to_owned(), value: Arc::new(NodeView::default()) };
            shared.stores.nodes.apply("n".to_owned(), item);
            let patch = NodePatch { node: "n".into(), ..NodePatch::default() };
            let result =
                tokio::time::timeout(std::time::Duration::from_secs(600), patch_node(&shared, &patch));
            let error = result.await.expect("it ends").err();
            assert_eq!(error.as_ref().map(CallError::is_conflict), want.map(|c| c == 409), "{error:?}");
            assert_eq!(asked.load(Ordering::Relaxed), times, "{answers:?}");
            let known = asked.load(Ordering::Relaxed) as usize > answers.len();
            assert_eq!(shared.stores.nodes.version("n"), Some(if known { 7 } else { 3 }), "{answers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_ending_controller_waits_for_patches_under_way_and_sends_no_more() {
        let shared = shared(|_| answer(500, &json!({})));
        let shared = Arc::new(shared);
        let place = shared.permits.take(Whose::Drain, &shared.terms).await;
        // More patches than permits.
        let waits = |shared: Arc<Shared>| async move {
            let _place = shared.permits.take(Whose::Drain, &shared.terms).await;
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        };
        let queue: Vec<_> = (0..200).map(|_| tokio::spawn(waits(shared.clone()))).collect();
        tokio::task::yield_now().await;
        let begin = tokio::time::Instant::now();
        let end = shared.permits.close(&shared.terms, std::time::Duration::from_secs(2));
        let late = tokio::time::sleep(std::time::Duration::from_millis(300));
        let ((), ()) = tokio::join!(end, async {
            late.await;
            drop(place);
        });
        assert_eq!(begin.elapsed().as_millis(), 300);
        let more = tokio::time::timeout(
            std::time::Duration::from_secs(60),
            shared.permits.take(Whose::Drain, &shared.terms),
        )
        .await;
        assert!(more.is_err(), "no permit is free for a further patch");
        assert!(queue.iter().any(|task| !task.is_finished()), "nor for one that was waiting");
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_waits_while_the_lease_has_run_out_and_goes_when_it_was_renewed_after_all() {
        let shared = shared(|_| answer(500, &json!({})));
        let minute = std::time::Duration::from_secs(60);
        shared.terms.renewed(tokio::time::Instant::now());
        assert!(tokio::time::timeout(minute, shared.permits.take(Whose::Drain, &shared.terms)).await.is_ok());
        tokio::time::advance(minute).await;
        let begin = tokio::time::Instant::now();
        let (place, ()) = tokio::join!(
            tokio::time::timeout(minute, shared.permits.take(Whose::Drain, &shared.terms)),
            async {
                tokio::time::sleep(minute / 10).await;
                shared.terms.renewed(tokio::time::Instant::now());
            }
        );
        assert!(place.is_ok() && begin.elapsed() >= minute / 10);
    }
}
