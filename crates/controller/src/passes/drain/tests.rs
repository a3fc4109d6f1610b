//! What a node's pool reports when the patch of its drain is refused, or has no answer.

use super::*;
use crate::cache::store::Item;
use crate::fake_server::{answer, shared, shared_with};
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

#[tokio::test(start_paused = true)]
async fn patches_of_drains_that_hang_are_told_within_ten_seconds_and_so_is_one_that_waits_for_them() {
    let hangs = tokio::sync::watch::Sender::new(true);
    let seen = hangs.subscribe();
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let mut seen = seen.clone();
        async move {
            seen.wait_for(|hangs| !*hangs).await.map_err(std::io::Error::other)?;
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "resourceVersion": "2",
            "annotations": {
                "machineconfiguration.openshift.io/desiredDrain": "uncordon-b",
                "machineconfiguration.openshift.io/lastAppliedDrain": "uncordon-b",
            }}});
            Ok::<_, std::io::Error>(answer(200, &node).unwrap())
        }
    });
    let client = kube::Client::new(serve, "default");
    let shared = Arc::new(shared_with(client, &mut prometheus_client::registry::Registry::default()));
    let drains = Arc::new(Drains::new(shared.clone()));
    let mut passes = tokio::task::JoinSet::new();
    for n in 0..=PATCHES_IN_FLIGHT {
        let name = format!("n{n}");
        let node = NodeView {
            name: name.as_str().into(),
            uid: name.as_str().into(),
            unschedulable: true,
            desired_drain: Some("uncordon-b".into()),
            last_applied_drain: Some("drain-a".into()),
            ..NodeView::default()
        };
        let item = Item { version: 1, uid: name.clone(), value: Arc::new(node) };
        shared.stores.nodes.apply(name.clone(), item);
        let drains = drains.clone();
        passes.spawn(async move { drains.pass(name).await });
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(shared.side_problems.all(), []);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let told = shared.side_problems.all();
    let saying = |words: &str| told.iter().filter(|told| told.text.contains(words)).count();
    assert_eq!(
        (told.len(), saying("does not answer")),
        (PATCHES_IN_FLIGHT + 1, PATCHES_IN_FLIGHT),
        "{told:?}"
    );
    assert_eq!(saying("waits for them"), 1, "{told:?}");
    assert!(!shared.queues.of(Pass::Node).take().is_empty(), "pools say it with the next plan");
    hangs.send_replace(false);
    while let Some(outcome) = passes.join_next().await {
        assert_eq!(outcome.unwrap(), Outcome::Done);
    }
    assert_eq!(shared.side_problems.all(), [], "they were still waited for");
}
