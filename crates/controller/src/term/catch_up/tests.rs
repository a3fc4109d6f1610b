//! Tests of `catch_up`.

use super::*;
use crate::cache::store::{Item, Store};
use crate::fake_server::{answer, shared};
use kube::Api;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) fn followed(
    shared: &Shared,
    kind: &str,
    need: ReadRequirement,
    cache: &Arc<Store<u8>>,
) -> WatchedKind {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(api::names::GROUP, "v1", kind));
    let (api, which) = (Api::all_with(shared.client.clone(), &resource), watcher::Config::default());
    WatchedKind { kind: kind.to_owned(), need, api, which, cache: cache.clone() }
}

fn list(items: &serde_json::Value) -> Option<http::Response<kube::client::Body>> {
    answer(
        200,
        &json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                 "metadata": {"resourceVersion": "20"}, "items": items}),
    )
}

fn put(cache: &Store<u8>, name: &str, version: u64) {
    cache.apply(name.to_owned(), Item { version, uid: "u".to_owned(), value: Arc::new(0) });
}

/// Another leader may have changed, created and deleted objects of any kind.
#[tokio::test(start_paused = true)]
async fn nothing_is_decided_before_every_kind_is_as_the_api_server_has_it() {
    for kind in ["MachineConfig", "KubeletConfig", "MachineConfigPool"] {
        let served = json!([{"metadata": {"name": "a", "resourceVersion": "7"}}, {"metadata": {"name": "b", "resourceVersion": "8"}}]);
        let shared = shared(move |_| list(&served));
        let cache = Arc::new(Store::default());
        cache.replace(BTreeMap::new());
        put(&cache, "a", 6);
        put(&cache, "gone", 5);
        shared.add_watched_kind(followed(&shared, kind, ReadRequirement::Always, &cache));
        let waits = async || {
            let waited = tokio::time::timeout(Duration::from_mins(1), caught_up(&shared)).await;
            waited.is_err()
        };
        assert!(waits().await, "{kind}: nothing is up to date");
        put(&cache, "a", 7);
        assert!(waits().await, "{kind}: b is not there");
        // `b` has not arrived, so the watch is asked to list everything.
        tokio::time::timeout(LOOK, cache.asked_to_list(false)).await.expect("it is asked to list");
        cache.skip("b", 8);
        assert!(waits().await, "{kind}: one is there that is gone");
        cache.remove("gone");
        let begin = Instant::now();
        caught_up(&shared).await;
        assert!(begin.elapsed() < LOOK, "{kind}: {:?}", begin.elapsed());
    }
}

/// The token of the first page is too old. The answer to it has another one, with which the rest comes in a later version.
#[tokio::test(start_paused = true)]
async fn a_list_that_outlives_its_token_goes_on_and_demands_the_later_version() {
    let asked = Arc::new(Mutex::new(vec![]));
    let seen = asked.clone();
    let shared = shared(move |request| {
        let query = request.uri().query().unwrap_or_default();
        let token = query.split('&').find_map(|part| part.strip_prefix("continue=")).unwrap_or_default();
        seen.lock().unwrap().push(token.to_owned());
        let page = |version: &str, token: &str, items: serde_json::Value| {
            let metadata = json!({"resourceVersion": version, "continue": token});
            answer(
                200,
                &json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": metadata, "items": items}),
            )
        };
        match token {
            "" => page("20", "old", json!([{"metadata": {"name": "a", "resourceVersion": "7"}}])),
            "old" => answer(
                410,
                &json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old", "metadata": {"continue": "now"}}),
            ),
            _ => page("30", "", json!([{"metadata": {"name": "b", "resourceVersion": "25"}}])),
        }
    });
    let cache = Arc::new(Store::default());
    cache.replace(BTreeMap::new());
    put(&cache, "a", 7);
    put(&cache, "b", 8);
    let followed = followed(&shared, "MachineConfig", ReadRequirement::Always, &cache);
    assert!(!is_current(&followed).await.unwrap(), "b is older than its page");
    put(&cache, "b", 25);
    assert!(is_current(&followed).await.unwrap());
    assert_eq!(*asked.lock().unwrap(), ["", "old", "now", "", "old", "now"]);
}

/// Also by a watch that drops the list that it is in whenever it is asked to list.
#[tokio::test(start_paused = true)]
async fn a_list_that_takes_long_is_given_the_time() {
    for seconds in [1, 5, 10] {
        let shared = shared(|_| list(&json!([{"metadata": {"name": "a", "resourceVersion": "7"}}])));
        let cache = Arc::new(Store::default());
        shared.add_watched_kind(followed(&shared, "MachineConfig", ReadRequirement::Always, &cache));
        let watch = async {
            loop {
                tokio::select! {
                    () = cache.asked_to_list(false) => {}
                    () = tokio::time::sleep(Duration::from_secs(seconds)) => {
                        cache.replace(BTreeMap::new());
                        put(&cache, "a", 7);
                    }
                }
            }
        };
        tokio::select! {
            () = watch => {}
            ended = tokio::time::timeout(Duration::from_mins(5), caught_up(&shared)) => {
                assert!(ended.is_ok(), "a list of {seconds} s");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_cannot_be_read_holds_what_depends_on_it() {
    let rows = [
        (403, ReadRequirement::Always, None, true),
        (500, ReadRequirement::Always, None, true),
        (500, ReadRequirement::WhereServed, None, true),
        (403, ReadRequirement::WhereServed, None, true),
        (404, ReadRequirement::WhereServed, Some(1), true),
        (404, ReadRequirement::Setting, Some(1), true),
        (403, ReadRequirement::Setting, Some(1), false),
        (500, ReadRequirement::Setting, Some(TRIES + 1), false),
        (403, ReadRequirement::NonBlocking, Some(1), true),
        (404, ReadRequirement::NonBlocking, Some(1), true),
    ];
    for (code, need, want, known) in rows {
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        let shared = shared(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            answer(code, &json!({"kind": "Status", "code": code, "message": "no"}))
        });
        let cache = Arc::new(Store::default());
        cache.replace(BTreeMap::new());
        shared.add_watched_kind(followed(&shared, "KubeletConfig", need, &cache));
        let ended = tokio::time::timeout(Duration::from_mins(5), caught_up(&shared)).await.is_ok();
        let times = ended.then(|| asked.load(Ordering::Relaxed));
        assert_eq!((times, cache.is_synced()), (want, known), "{code} {need:?}");
    }
}

/// A pool in the cache, and the condition that the server received for it.
fn with_pool(code: u16, message: &'static str) -> (Arc<Shared>, Arc<Mutex<String>>) {
    let said = Arc::new(Mutex::new(String::new()));
    let saying = said.clone();
    let shared = shared(move |request| {
        if request.uri().path().ends_with("/status") {
            let saying = saying.clone();
            let body = futures::executor::block_on(request.into_body().collect_bytes()).unwrap();
            *saying.lock().unwrap() = String::from_utf8(body.to_vec()).unwrap();
            return answer(
                200,
                &json!({"metadata": {"name": "worker", "uid": "p", "resourceVersion": "9"}, "spec": {}}),
            );
        }
        answer(code, &json!({"kind": "Status", "code": code, "message": message}))
    });
    let pool = api::v1::MachineConfigPool::new("worker", Default::default());
    let item = Item { version: 1, uid: "p".to_owned(), value: Arc::new(pool) };
    shared.stores.pools.apply("worker".to_owned(), item);
    (Arc::new(shared), said)
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_no_decision_rests_on_holds_nobody_up_and_pools_tell_of_it() {
    let (shared, said) = with_pool(500, "no, says the server");
    let cache = Arc::new(Store::default());
    shared.add_watched_kind(followed(&shared, "MachineConfigNode", ReadRequirement::NonBlocking, &cache));
    let begin = Instant::now();
    tokio::time::timeout(Duration::from_mins(5), caught_up(&shared)).await.expect("it begins");
    assert!(begin.elapsed() <= Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!(*said.lock().unwrap(), "", "nothing is held");
    // The watch fails in the same way.
    cache.set_trouble(Some("the first list: no".to_owned()));
    let telling = tokio::spawn({
        let shared = shared.clone();
        async move { report_unreadable_kinds(&shared).await }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    let told = shared.side_problems.all();
    assert!(
        told.len() == 1
            && told[0].text.contains("MachineConfigNode")
            && told[0].text.contains("the first list: no"),
        "{told:?}"
    );
    assert!(!shared.queues.of(crate::queue::Pass::Node).take().is_empty(), "pools say it with the next plan");
    cache.set_trouble(None);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(shared.side_problems.all(), []);
    telling.abort();
}

#[tokio::test(start_paused = true)]
async fn pools_say_what_a_term_waits_for() {
    let refusal = "machineosconfigs.machineconfiguration.openshift.io is forbidden: User \"u\" cannot list resource \
                   \"machineosconfigs\" in API group \"machineconfiguration.openshift.io\" at the cluster scope";
    let gives = "kubectl create clusterrole machineosconfigs-list --verb=list \
                 --resource=machineosconfigs.machineconfiguration.openshift.io";
    for (code, message, remedy) in [(500, "no, says the server", ""), (403, refusal, gives)] {
        let (shared, said) = with_pool(code, message);
        let cache = Arc::new(Store::default());
        shared.add_watched_kind(followed(&shared, "MachineOSConfig", ReadRequirement::WhereServed, &cache));
        let begins = tokio::time::timeout(Duration::from_secs(10), caught_up(&shared)).await;
        assert!(begins.is_err(), "an image build would not be seen");
        let said = said.lock().unwrap().replace("\\\"", "\"");
        for part in ["RenderDegraded", "NotStarted", "MachineOSConfig", message, remedy] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
}
