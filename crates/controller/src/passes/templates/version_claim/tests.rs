//! Tests of `version_claim`: when a version takes the ControllerConfig over, and when it waits.

use super::*;
use crate::cache::store::Item;
use crate::fake_server::{answer, shared};
use crate::render_prerequisites::Prerequisite;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The ControllerConfig `c` with this version in its annotation, as the API server has it.
fn object(version: &str, at: u64) -> Value {
    json!({
        "metadata": {"name": "c", "uid": "u", "resourceVersion": at.to_string(),
            "annotations": {GENERATED_BY_VERSION: version}},
        "spec": api::v1::ControllerConfigSpec::default(),
    })
}

/// The same in the cache.
fn put(shared: &Shared, version: &str, at: u64) {
    let value: ControllerConfig = serde_json::from_value(object(version, at)).unwrap();
    let item = Item { version: at, uid: "u".to_owned(), value: Arc::new(value) };
    shared.stores.controller_configs.apply("c".to_owned(), item);
}

async fn pass(shared: &Shared) -> Option<Duration> {
    let config = shared.stores.controller_configs.get("c").unwrap();
    claim_version(shared, &config).await.unwrap()
}

/// Whether pools may be rendered from the ControllerConfig in the cache.
fn may(shared: &Shared) -> Prerequisite {
    let config = shared.stores.controller_configs.get("c").unwrap();
    shared.prerequisites.version.check(&config, &shared.versions.raw)
}

#[tokio::test(start_paused = true)]
async fn another_version_is_taken_over_unless_somebody_keeps_writing_it() {
    let start = Instant::now();
    let taken = |times| ClaimHistory { taken: Some((times, start)), ..ClaimHistory::default() };
    let told = |times| ClaimHistory { why: Some("why".to_owned()), ..taken(times) };
    let after = |seconds| start + Duration::from_secs(seconds);
    let leave = |seconds| Step::Leave(Duration::from_secs(seconds));
    for (found, past, now, want) in [
        (None, ClaimHistory::default(), after(0), Step::Nothing),
        (None, taken(9), after(0), Step::Nothing),
        (Some("v0"), ClaimHistory::default(), after(0), Step::Take),
        (Some("v0"), taken(1), after(0), Step::Take),
        (Some("v0"), taken(2), after(0), leave(30)),
        (Some("v0"), taken(2), after(29), leave(1)),
        // The other program may have stopped, so it is tried again.
        (Some("v0"), taken(2), after(30), Step::Take),
        // After any number of attempts, this is the longest wait: the other program may have stopped.
        (Some("v0"), taken(u32::MAX), after(29), leave(1)),
        (Some("v0"), taken(u32::MAX), after(30), Step::Take),
        // The annotation is ours again, but the other program may still write it back.
        (None, told(9), after(1), Step::Prove(Duration::from_secs(4))),
        (None, told(9), after(5), Step::Nothing),
    ] {
        assert_eq!(decide(found, &past, now), want, "{found:?} {past:?}");
    }
}

/// While the operator rolls out config server and agents, the new controller leads already.
#[tokio::test(start_paused = true)]
async fn a_version_that_the_operator_has_not_released_claims_nothing_and_pools_say_so_only_in_the_end() {
    let us = render::Versions::of_this_build().raw;
    let shared = shared(|request| panic!("a request: {request:?}"));
    let marked = |released: &str, version: &str, at: u64| {
        let mut value = object(version, at);
        value["metadata"]["annotations"][RELEASED_VERSION] = json!(released);
        let value: ControllerConfig = serde_json::from_value(value).unwrap();
        let item = Item { version: at, uid: "u".to_owned(), value: Arc::new(value) };
        shared.stores.controller_configs.apply("c".to_owned(), item);
    };
    marked("v0", "v0", 1);
    let again = pass(&shared).await.unwrap();
    assert!(
        matches!(may(&shared), Prerequisite::Wait(why) if why.contains("the operator")),
        "{:?}",
        may(&shared)
    );
    tokio::time::advance(again / 2).await;
    let again = pass(&shared).await.unwrap();
    assert!(matches!(may(&shared), Prerequisite::Wait(_)), "{:?}", may(&shared));
    tokio::time::advance(again).await;
    assert_eq!(pass(&shared).await, None);
    let Prerequisite::Refuse { message, .. } = may(&shared) else { panic!("{:?}", may(&shared)) };
    assert!(message.contains("machineconfigoperator cluster") && message.contains("\"v0\""), "{message}");
    // One write of the operator's opens the gate.
    marked(&us, &us, 2);
    assert_eq!(pass(&shared).await, None);
    assert_eq!(may(&shared), Prerequisite::Met);
    // An operator that goes back holds this one again.
    marked("v0", "v0", 3);
    assert!(pass(&shared).await.is_some() && matches!(may(&shared), Prerequisite::Wait(_)));
}

/// The other program writes its version back at once, as long as it runs.
#[tokio::test(start_paused = true)]
async fn pools_go_on_half_a_minute_after_the_other_program_has_ended() {
    let (runs, writes) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(1)));
    let (other_runs, count) = (runs.clone(), writes.clone());
    let us = render::Versions::of_this_build().raw;
    let shared = shared(move |request| match *request.method() == http::Method::GET {
        true => answer(200, &object("v0", count.load(Ordering::Relaxed))),
        false => answer(200, &object(&us, count.fetch_add(2, Ordering::Relaxed) + 1)),
    });
    put(&shared, "v0", 1);
    let may = || may(&shared);
    let pass = async || {
        let again = pass(&shared).await;
        if other_runs.load(Ordering::Relaxed) {
            put(&shared, "v0", writes.load(Ordering::Relaxed));
        }
        again
    };
    for _ in 0..3 {
        pass().await;
    }
    assert!(matches!(may(), Prerequisite::Refuse { .. }), "{:?}", may());
    // This lasts for minutes, and the pools' message does not change in between.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_mins(20) {
        let again = pass().await.unwrap_or(Duration::from_secs(1));
        assert!(matches!(may(), Prerequisite::Refuse { .. }), "{:?}", may());
        tokio::time::sleep(again.min(Duration::from_secs(1))).await;
    }
    runs.store(false, Ordering::Relaxed);
    let ended = Instant::now();
    while may() != Prerequisite::Met {
        assert!(ended.elapsed() < Duration::from_secs(45), "{:?}", ended.elapsed());
        pass().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// A take-over that was refused at first does not mean that somebody writes the annotation back.
#[tokio::test(start_paused = true)]
async fn a_take_over_that_was_refused_at_first_is_one_like_any_other() {
    let us = render::Versions::of_this_build().raw;
    let denied = Arc::new(AtomicBool::new(true));
    let denies = denied.clone();
    let shared = shared(move |request| match (request.method(), denies.load(Ordering::Relaxed)) {
        (&http::Method::GET, _) => answer(200, &object("v0", 1)),
        (_, true) => answer(403, &json!({"kind": "Status", "code": 403, "message": "not by you"})),
        (_, false) => answer(200, &object(&us, 2)),
    });
    put(&shared, "v0", 1);
    assert_eq!(pass(&shared).await, Some(AGAIN));
    let why = shared.prerequisites.version.claims().why.unwrap_or_default();
    assert!(why.contains("not by you"), "{why}");
    denied.store(false, Ordering::Relaxed);
    assert_eq!(pass(&shared).await, None, "nobody has written it back: there is nothing to prove");
    assert_eq!(may(&shared), Prerequisite::Met);
    assert_eq!(shared.prerequisites.version.claims().why, None);
}

#[test]
fn the_last_writer_of_the_annotation_is_named() {
    let entry = |manager: &str, time: &str, key: &str| {
        json!({"manager": manager, "operation": "Update", "time": time, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, format!("f:{key}"): {}}}}})
    };
    let config = |entries: serde_json::Value| -> ControllerConfig {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "managedFields": entries},
            "spec": api::v1::ControllerConfigSpec::default(),
        }))
        .unwrap()
    };
    let entries = json!([
        entry("kubectl", "2026-01-01T00:00:00Z", GENERATED_BY_VERSION),
        entry("argocd", "2026-01-02T00:00:00Z", GENERATED_BY_VERSION),
        entry("other", "2026-01-03T00:00:00Z", "other"),
        {"manager": "status", "time": "2026-01-04T00:00:00Z", "fieldsV1": {"f:status": {}}},
    ]);
    assert_eq!(writer(&config(entries)).as_deref(), Some("field manager \"argocd\""));
    assert_eq!(writer(&config(json!([]))), None);
}
