//! Tests of the Lease: when it is taken, when a holder stops, and when a term begins cleanly.

use super::*;
use serde_json::{Value, json};

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
        let mut known = Known { seen: Some(("5".to_owned(), Instant::now())), held: None };
        tokio::time::advance(Duration::from_secs(silent)).await;
        let mine = ProcessCounts { holder: "me".to_owned(), requests: 3, ..ProcessCounts::default() };
        let got = match attempt_once(&api, NAME, &mine, &mut known).await.unwrap() {
            LeaseHolder::Ours { handover, .. } => Some(handover),
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

/// A fake API server with at most one Lease. It needs this long for each request, and carries it out also if the client has given
/// up. The writes with these numbers are answered with a conflict; the first write has the number 1.
#[derive(Clone, Default)]
struct FakeServer {
    each: Duration,
    conflicts: std::ops::Range<u64>,
    writes: Arc<Mutex<u64>>,
    reads: Arc<Mutex<u64>>,
    lease: Arc<Mutex<Option<Value>>>,
}

impl FakeServer {
    fn answer(&self, is_read: bool, body: &[u8]) -> (u16, Value) {
        let status = |code: u16, reason: &str| {
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason}))
        };
        let mut lease = self.lease.lock().unwrap();
        if is_read {
            *self.reads.lock().unwrap() += 1;
            return lease.clone().map_or_else(|| status(404, "NotFound"), |lease| (200, lease));
        }
        let mut writes = self.writes.lock().unwrap();
        *writes += 1;
        let mut new: Value = serde_json::from_slice(body).unwrap();
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        if self.conflicts.contains(&*writes)
            || version(&new) != lease.as_ref().map(version).unwrap_or_default()
        {
            return status(409, "Conflict");
        }
        new["metadata"]["resourceVersion"] = json!(writes.to_string());
        *lease = Some(new.clone());
        (200, new)
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let server = server.clone();
            // A task of its own: it goes on when the request is dropped.
            let task = tokio::spawn(async move {
                let is_read = *request.method() == http::Method::GET;
                let body = request.into_body().collect_bytes().await.unwrap();
                tokio::time::sleep(server.each).await;
                server.answer(is_read, &body)
            });
            async move {
                let (code, body) = task.await.unwrap();
                let body = kube::client::Body::from(body.to_string().into_bytes());
                Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(serve, "default")
    }

    /// A candidate of this server; the role that it has.
    fn candidate(&self) -> watch::Receiver<Role> {
        let leading = watch::Sender::new(Role::Standby);
        let role = leading.subscribe();
        let terms = Arc::new(TermSignals::default());
        let me = ByLease::new(self.client(), NAME, terms, Box::new(ProcessCounts::default));
        tokio::spawn(campaign(me, leading, CancellationToken::new()));
        role
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_needs_seconds_for_a_request_has_a_leader_that_stays() {
    for millis in [2100, 3000, 3900] {
        let server = FakeServer { each: Duration::from_millis(millis), ..FakeServer::default() };
        let mut role = server.candidate();
        let leads = tokio::time::timeout(Duration::from_mins(3), role.wait_for(Role::leads)).await;
        assert!(leads.is_ok(), "{millis} ms: nobody leads");
        drop(leads);
        let lost = tokio::time::timeout(Duration::from_mins(5), role.wait_for(|role| !role.leads())).await;
        assert!(lost.is_err(), "{millis} ms: the lease is lost although each renewal arrives");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_renews_without_reading_and_reads_when_somebody_has_changed_the_lease() {
    let server = FakeServer::default();
    let mut role = server.candidate();
    let leads = tokio::time::timeout(Duration::from_secs(5), role.wait_for(Role::leads)).await;
    drop(leads.expect("it leads"));
    let reads = || *server.reads.lock().unwrap();
    let first = reads();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(reads(), first);
    // A person annotates it.
    {
        let mut lease = server.lease.lock().unwrap();
        let lease = lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = json!("by-hand");
        lease["metadata"]["annotations"]["mine"] = json!("yes");
    }
    let lost = tokio::time::timeout(Duration::from_mins(1), role.wait_for(|role| !role.leads())).await;
    assert!(lost.is_err(), "nobody has taken it");
    drop(lost);
    assert_eq!(reads(), first + 1, "once, for the version");
    let lease = server.lease.lock().unwrap().clone().unwrap();
    assert_eq!(lease["metadata"]["annotations"]["mine"], "yes", "it stays");
    // A person deletes it.
    *server.lease.lock().unwrap() = None;
    let lost = tokio::time::timeout(Duration::from_mins(1), role.wait_for(|role| !role.leads())).await;
    assert!(lost.is_err(), "it is made again");
    assert!(server.lease.lock().unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_conflict_ends_no_term_and_another_holder_does() {
    let server = FakeServer { conflicts: 2..4, ..FakeServer::default() };
    let mut role = server.candidate();
    let leads = tokio::time::timeout(Duration::from_secs(5), role.wait_for(Role::leads)).await;
    drop(leads.expect("it leads"));
    let lost = tokio::time::timeout(Duration::from_mins(1), role.wait_for(|role| !role.leads())).await;
    assert!(lost.is_err(), "somebody else has changed the lease, and not taken it");
    drop(lost);
    assert!(*server.writes.lock().unwrap() > 10, "it is renewed");
    {
        let mut lease = server.lease.lock().unwrap();
        let lease = lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = json!("theirs");
        lease["spec"]["holderIdentity"] = json!("you");
    }
    let lost = tokio::time::timeout(Duration::from_secs(5), role.wait_for(|role| !role.leads())).await;
    assert!(lost.is_ok(), "another one holds it");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_does_not_wait_long_for_an_api_server_that_is_away() {
    let server = FakeServer { each: Duration::from_hours(1), ..FakeServer::default() };
    let (leading, stop) = (watch::Sender::new(Role::Standby), CancellationToken::new());
    let me = ByLease::new(server.client(), NAME, Arc::default(), Box::new(ProcessCounts::default));
    let task = tokio::spawn(campaign(me, leading, stop.clone()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.cancel();
    assert!(tokio::time::timeout(Duration::from_secs(6), task).await.is_ok());
}
