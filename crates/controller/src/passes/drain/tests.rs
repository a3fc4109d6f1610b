//! What a node's pool reports when the patch of its drain is refused.

use super::*;
use crate::cache::store::Item;
use crate::fake_server::{answer, shared};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_conflict_that_lasts_on_a_drains_patch_is_told_on_the_nodes_pool_until_it_is_over() {
    let shared = Arc::new(shared(|request| match request.method().as_str() {
        "PATCH" => answer(409, &json!({"kind": "Status", "code": 409, "message": "no, says n"})),
        _ => answer(404, &json!({"kind": "Status", "code": 404})),
    }));
    let asks = |request: &str, version| {
        let node = NodeView {
            name: "n".into(),
            uid: "n".into(),
            desired_drain: Some(request.into()),
            last_applied_drain: Some("uncordon-a".into()),
            ..NodeView::default()
        };
        let item = Item { version, uid: "n".to_owned(), value: Arc::new(node) };
        shared.stores.nodes.apply("n".to_owned(), item);
    };
    asks("drain-b", 1);
    let drains = Drains::new(shared.clone());
    assert_eq!(drains.pass("n".to_owned()).await, Outcome::Stale, "it may pass by itself");
    assert_eq!(shared.side_problems.all(), []);
    tokio::time::advance(Duration::from_secs(6)).await;
    let outcome = drains.pass("n".to_owned()).await;
    assert!(matches!(&outcome, Outcome::Failed(why) if why.contains("no, says n")), "{outcome:?}");
    let told = shared.side_problems.all();
    assert!(told.len() == 1 && told[0].of == TroubleOf::Node("n".into()), "{told:?}");
    assert!(
        told[0].text.contains("no, says n") && !shared.queues.of(Pass::Node).take().is_empty(),
        "{told:?}"
    );
    // The daemon no longer asks for a drain.
    asks("uncordon-a", 2);
    assert_eq!(drains.pass("n".to_owned()).await, Outcome::Done);
    assert_eq!(shared.side_problems.all(), []);
}
