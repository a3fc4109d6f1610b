//! Patches of Nodes that fail, get no answer, or meet the end of a term.

use super::*;
use crate::cache::store::Item;
use crate::fake_server::{answer, shared};
use crate::shared::Shared;
use rollout::view::NodeView;
use serde_json::json;
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
        let sent = async {
            let place = shared.permits.take(PatchOf::Drain, &shared.terms).await;
            send(&shared, &place, &patch).await
        };
        let result = tokio::time::timeout(std::time::Duration::from_secs(600), sent);
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
    let place = shared.permits.take(PatchOf::Drain, &shared.terms).await;
    // More patches than permits.
    let waits = |shared: Arc<Shared>| async move {
        let _place = shared.permits.take(PatchOf::Drain, &shared.terms).await;
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
        shared.permits.take(PatchOf::Drain, &shared.terms),
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
    assert!(tokio::time::timeout(minute, shared.permits.take(PatchOf::Drain, &shared.terms)).await.is_ok());
    tokio::time::advance(minute).await;
    let begin = tokio::time::Instant::now();
    let (place, ()) = tokio::join!(
        tokio::time::timeout(minute, shared.permits.take(PatchOf::Drain, &shared.terms)),
        async {
            tokio::time::sleep(minute / 10).await;
            shared.terms.renewed(tokio::time::Instant::now());
        }
    );
    assert!(place.is_ok() && begin.elapsed() >= minute / 10);
}
