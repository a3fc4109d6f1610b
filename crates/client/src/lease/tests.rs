//! Tests of the Lease: when it is taken, when a holder stops, and when a term begins cleanly.

use super::*;

const NAME: &str = "machine-config-controller";

#[test]
fn a_lease_is_taken_when_free_ours_or_expired() {
    let held = |holder: &str| LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        ..LeaseSpec::default()
    };
    let secs = Duration::from_secs;
    for (spec, silent, want) in [
        (LeaseSpec::default(), secs(0), LeaseState::Free),
        (held(""), secs(0), LeaseState::Free),
        (held("me"), secs(0), LeaseState::Ours),
        (held("you"), secs(14), LeaseState::Theirs),
        (held("you"), secs(15), LeaseState::Expired),
    ] {
        assert_eq!(lease_state(&spec, "me", silent), want, "{spec:?} {silent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_before_its_lease_expires_for_others() {
    // The lease is missing, is created, and from then on requests hang.
    let requests = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let n = requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            if n > 1 {
                std::future::pending::<()>().await;
            }
            let missing =
                serde_json::json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
            let (code, body) = match *request.method() == http::Method::GET {
                true => (404, missing),
                false => (201, serde_json::json!({"metadata": {"name": NAME}})),
            };
            let body = kube::client::Body::from(body.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    let leading = watch::Sender::new(Role::Standby);
    let mut led = leading.subscribe();
    let stop = CancellationToken::new();
    let terms = Arc::new(TermSignals::default());
    let me =
        ByLease::new(Client::new(serve, "default"), NAME, terms.clone(), Box::new(ProcessCounts::default));
    let task = tokio::spawn(campaign(me, leading, stop.clone()));
    assert_eq!(*led.wait_for(Role::leads).await.unwrap(), Role::Leads(Handover::Clean));
    assert!(!terms.has_expired());
    let begin = Instant::now();
    led.wait_for(|l| !l.leads()).await.unwrap();
    assert!(terms.has_expired(), "also for a caller that asks, not only for one that waits");
    assert!(begin.elapsed() < DURATION, "acted for {:?}; the lease lasts {DURATION:?}", begin.elapsed());
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_term_begins_cleanly_only_when_no_write_of_an_earlier_holder_can_be_in_flight() {
    let lease = |holder: &str, strays: bool| {
        let notes = if strays { serde_json::json!({STRAYS: "true"}) } else { serde_json::json!({}) };
        serde_json::json!({"metadata": {"name": NAME, "resourceVersion": "5", "annotations": notes},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}})
    };
    let clean = Some(Handover::Clean);
    let unclean = Some(Handover::Unclean);
    for (about, there, silent, want) in [
        ("a first controller", None, 0, clean),
        ("given up", Some(lease("", false)), 0, clean),
        ("given up soon after a crash, or with a patch unanswered", Some(lease("", true)), 0, unclean),
        ("held", Some(lease("you", false)), 14, None),
        ("its holder is silent", Some(lease("you", false)), 15, unclean),
        ("lost, and nobody took it", Some(lease("me", false)), 0, unclean),
    ] {
        let written = Arc::new(Mutex::new(serde_json::Value::Null));
        let (kept, body) = (written.clone(), there.clone());
        let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (kept, body) = (kept.clone(), body.clone());
            async move {
                let missing = serde_json::json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
                let (code, answer) = if *request.method() == http::Method::GET {
                    body.map_or((404, missing), |lease| (200, lease))
                } else {
                    let bytes = request.into_body().collect_bytes().await.unwrap();
                    let lease: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                    *kept.lock().unwrap() = lease.clone();
                    (200, lease)
                };
                let body = kube::client::Body::from(answer.to_string().into_bytes());
                Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        let api: Api<Lease> = Api::namespaced(Client::new(serve, "default"), NAMESPACE);
        let mut seen = Some(("5".to_owned(), Instant::now()));
        tokio::time::advance(Duration::from_secs(silent)).await;
        let mine = ProcessCounts { holder: "me".to_owned(), requests: 3, ..ProcessCounts::default() };
        let got = match attempt_once(&api, NAME, &mine, &mut seen).await.unwrap() {
            LeaseHolder::Ours(handover) => Some(handover),
            LeaseHolder::Theirs(_) => None,
        };
        assert_eq!(got, want, "{about}");
        let left = written.lock().unwrap()["metadata"]["annotations"][STRAYS].clone();
        assert!(left.is_null(), "{about}: the mark is the last holder's");
        let written = written.lock().unwrap().clone();
        let metadata = serde_json::from_value(written["metadata"].clone()).unwrap_or_default();
        let told = ProcessCounts::read(&metadata, "me").map(|counts| counts.requests);
        // A Lease that is made gets them when it is renewed.
        assert_eq!(told, got.filter(|_| there.is_some()).map(|_| 3), "{about}");
    }
}

#[test]
fn taking_over_counts_a_transition_and_renewing_does_not() {
    let first = taken(None, "a");
    let renewed = taken(Some(&first), "a");
    assert_eq!(renewed.lease_transitions, first.lease_transitions);
    assert_eq!(renewed.acquire_time, first.acquire_time);
    assert_eq!(taken(Some(&renewed), "b").lease_transitions, Some(2));
}
