//! The dashboard in the cluster as people, strangers and attackers meet it: by a bearer token, by a session, and by a proxy.

use crate::access::authentication::Person;
use crate::access::local_access::ACTION_HEADER;
use crate::answers::page_actions::CHECKS;
use crate::body::LARGEST_IN_CLUSTER;
use crate::fake_cluster::READS;
use crate::fleet::snapshot::tests::fleet;
use crate::fleet::timeline::{EventHistory, NodeEvent};
use crate::serving::routes::tests::{is_hardened, text};
use crate::tests::site::{By, ELSEWHERE, FakeApi, PROXY, Site};
use axum::body::Body;
use http::StatusCode;
use http_body_util::BodyExt as _;
use insight::Phase;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PATHS: [&str; 7] =
    ["/", "/app.js", "/api/snapshot", "/api/events", "/api/rollouts", "/api/nodes/n1", "/nothing"];

#[tokio::test]
async fn who_is_not_known_gets_the_page_to_sign_in_and_nothing_else() {
    let site = Site::new();
    site.feed.put(Arc::new(fleet(&[("n1", Phase::Moving, "it works")])));
    let strangers = [
        By::Nothing,
        By::Token("guessed"),
        By::Cookie("__Host-mco-dashboard=00"),
        By::Cookie("__Host-mco-dashboard="),
        By::Proxy(ELSEWHERE, "pete", "ops"),
    ];
    for by in strangers {
        for path in PATHS {
            let answer = site.get(path, by).await;
            assert_eq!(answer.status(), 401, "{by:?} {path}");
            assert!(is_hardened(answer.headers()), "{by:?} {path}");
            let text = text(answer).await;
            assert!(!text.contains("n1") && !text.contains("pools"), "{by:?} {path}: {text}");
            assert_eq!(text.contains("<form"), path == "/", "{by:?} {path}: {text}");
        }
    }
    for path in ["/sign-in.js", "/style.css"] {
        let answer = site.get(path, By::Nothing).await;
        assert!(answer.status() == 200 && is_hardened(answer.headers()), "{path}");
    }
    assert_eq!(site.get("/healthz", By::Nothing).await.status(), 200);
    assert_eq!(*site.api.asked.lock().unwrap(), Vec::<String>::new(), "nothing was read");
}

#[tokio::test]
async fn who_has_no_right_to_the_fleet_gets_403_and_nothing_else() {
    let site = Site::new();
    site.feed.put(Arc::new(fleet(&[("n1", Phase::Moving, "it works")])));
    for by in [By::Token("of-joe"), By::Proxy(PROXY, "joe", "ops"), By::Proxy(PROXY, "pete", "others")] {
        for path in PATHS {
            let answer = site.get(path, by).await;
            assert_eq!(answer.status(), 403, "{by:?} {path}");
            assert!(is_hardened(answer.headers()), "{by:?} {path}");
            let text = text(answer).await;
            assert!(
                text.contains("machine-config-dashboard-viewer") && !text.contains("n1"),
                "{path}: {text}"
            );
        }
        let paused = site.post("/api/actions", by, &json!({"action": "pause", "pool": "worker"})).await;
        assert_eq!(paused.status(), 403, "{by:?}");
    }
    let signed_in = site.post("/api/session", By::Nothing, &json!({"token": "of-joe"})).await;
    assert_eq!((signed_in.status(), signed_in.headers().get("set-cookie")), (StatusCode::FORBIDDEN, None));
    let reads = |asked: &String| !asked.starts_with("may ");
    assert!(!site.api.asked.lock().unwrap().iter().any(reads), "nothing was read for them");
}

#[tokio::test]
async fn who_has_the_rights_sees_all_without_a_secret_and_each_request_was_asked_about() {
    let site = Site::new();
    let cookie = site.sign_in("of-jane").await;
    for (by, user) in [
        (By::Token("of-jane"), "jane"),
        (By::Cookie(&cookie), "jane"),
        (By::Proxy(PROXY, "pete", "ops"), "pete"),
    ] {
        site.api.asked.lock().unwrap().clear();
        for (path, shows) in READS {
            let answer = site.get(path, by).await;
            assert_eq!(answer.status(), 200, "{by:?} {path}");
            let text = text(answer).await;
            assert!(text.contains(shows) && !text.contains("hunter2"), "{by:?} {path}: {text}");
        }
        assert_eq!(site.get("/", by).await.status(), 200);
        let asked = site.api.asked.lock().unwrap().clone();
        let first = asked.iter().position(|a| a == "GET /api/v1/nodes/n1").unwrap();
        if by != By::Cookie(&cookie) {
            let review = asked[..first].iter().any(|a| {
                a.starts_with(&format!("may \"{user}\""))
                    && a.contains("\"name\":\"n1\"")
                    && a.contains("\"nodes\"")
            });
            assert!(review, "{asked:#?}");
        }
    }
}

#[tokio::test]
async fn who_may_see_masked_objects_only_sees_the_whole_page_and_changes_nothing() {
    let site = Site::new();
    let vic = By::Token("of-vic");
    for (path, shows) in READS {
        let answer = site.get(path, vic).await;
        assert_eq!(answer.status(), 200, "{path}");
        let text = text(answer).await;
        assert!(
            text.contains(shows) && !text.contains("hunter2") && !text.contains("may not"),
            "{path}: {text}"
        );
    }
    let retry = json!({"action": "retry", "node": "n1", "confirm": true});
    assert_eq!(site.post("/api/actions", vic, &retry).await.status(), 403);
    assert_eq!(site.api.writes.load(Ordering::Relaxed), 0);
    let trust = text(site.get("/api/trust", vic).await).await;
    assert!(trust.contains("\"id\":\"0123456789ab\"") && !trust.contains("hunter2"), "{trust}");
    // The right is one to read.
    let asked = site.api.asked.lock().unwrap().clone();
    let masked: Vec<_> = asked.iter().filter(|a| a.contains("masked")).collect();
    assert!(!masked.is_empty() && masked.iter().all(|a| !a.contains("patch")), "{masked:#?}");
}

#[tokio::test]
async fn what_somebody_may_not_do_is_said_whatever_that_persons_name_looks_like() {
    let site = Site::new();
    let retry = json!({"action": "retry", "node": "n1", "confirm": true});
    for (answer, says) in [
        (site.get("/api/nodes/n1", By::Token("of-olga")).await, "may not get nodes n1"),
        (site.post("/api/actions", By::Token("of-olga"), &retry).await, "may not get nodes n1"),
        (site.get("/api/trust", By::Token("of-olga")).await, "may not get controllerconfigs"),
    ] {
        let text = text(answer).await;
        assert!(text.contains(says) && !text.contains("<hidden>"), "{text}");
    }
}

#[tokio::test]
async fn what_events_tell_of_rollouts_is_for_those_who_may_list_events() {
    let site = Site::new();
    site.feed.put(Arc::new(fleet(&[("n1", Phase::Done, "")])));
    let words = [("Cordon", "2026-01-01T00:00:00Z"), ("DrainWaiting", "2026-01-01T00:00:10Z")].map(|(reason, at)| {
        let event = json!({"metadata": {"name": "e", "namespace": "x"}, "involvedObject": {"kind": "Node", "name": "n1"},
            "related": {"kind": "MachineConfig", "name": "rendered-worker-0"}, "reason": reason, "firstTimestamp": at,
            "message": "The drain waits for pod a/b\npassword=hunter2"});
        NodeEvent::of(&serde_json::from_value(event).unwrap()).unwrap()
    });
    site.events.put(EventHistory::of(words.into()));
    for (who, may) in [("of-jane", true), ("of-vic", true), ("of-ann", false)] {
        for path in ["/api/rollouts", "/api/rollouts/worker/rendered-worker-0"] {
            let answer = site.get(path, By::Token(who)).await;
            let status = if may || path == "/api/rollouts" { 200 } else { 404 };
            assert_eq!(answer.status(), status, "{who} {path}");
            let text = text(answer).await;
            assert_eq!(text.contains("rendered-worker-0"), may, "{who} {path}: {text}");
            assert_eq!(text.contains("waits for pod a/b"), may, "{who} {path}: {text}");
            assert!(!text.contains("hunter2"), "{who} {path}: {text}");
            let says = text.contains("You may not list events");
            assert_eq!(says, !may && status == 200, "{who} {path}: {text}");
        }
    }
}

#[tokio::test]
async fn a_right_to_look_at_the_fleet_is_none_to_details_and_actions() {
    let site = Site::new();
    let ann = By::Token("of-ann");
    assert_eq!(site.get("/api/snapshot", ann).await.status(), 200);
    for path in ["/api/nodes/n1", "/api/configs/rendered-worker-2"] {
        let answer = site.get(path, ann).await;
        assert_eq!(answer.status(), 403, "{path}");
        assert!(text(answer).await.contains("may not get"), "{path}");
    }
    for action in [
        json!({"action": "retry", "node": "n1", "confirm": true}),
        json!({"action": "pause", "pool": "worker", "confirm": true}),
        json!({"action": "undo", "pool": "worker", "confirm": true, "seen": null}),
    ] {
        let answer = site.post("/api/actions", ann, &action).await;
        assert!(answer.status().is_client_error() || answer.status().is_server_error(), "{action}");
    }
    assert_eq!(site.api.writes.load(Ordering::Relaxed), 0);
    let retry = json!({"action": "retry", "node": "n1", "confirm": true});
    let done = site.post("/api/actions", By::Token("of-jane"), &retry).await;
    assert_eq!((done.status().as_u16(), site.api.writes.load(Ordering::Relaxed)), (200, 1));
    // A name that is a path of its own is no node.
    for odd in ["/api/nodes/n1%2Fstatus", "/api/nodes/..%2Fpods", "/api/nodes/a%252Fb"] {
        let answer = site.get(odd, By::Token("of-jane")).await;
        assert!([403, 404].contains(&answer.status().as_u16()), "{odd}: {}", answer.status());
    }
}

#[tokio::test]
async fn other_sites_and_names_get_nothing_in_any_mode() {
    let site = Site::new();
    site.feed.put(Arc::new(fleet(&[("n1", Phase::Moving, "it works")])));
    let cookie = site.sign_in("of-jane").await;
    let retry = || Body::from(json!({"action": "retry", "node": "n1", "confirm": true}).to_string());
    for by in [By::Token("of-jane"), By::Cookie(&cookie), By::Proxy(PROXY, "pete", "ops")] {
        for path in PATHS {
            let rebound = site.send("GET", path, by, &[("host", "attacker.example")], Body::empty()).await;
            assert_eq!(rebound.status(), 421, "DNS rebinding, {by:?} {path}");
            assert!(is_hardened(rebound.headers()) && !text(rebound).await.contains("n1"), "{by:?} {path}");
            let framed = [("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "iframe")];
            let framed = site.send("GET", path, by, &framed, Body::empty()).await;
            assert!(framed.status() == 403 && is_hardened(framed.headers()), "clickjacking, {by:?} {path}");
        }
        let shown = site.get("/", by).await;
        assert!(shown.status() == 200 && is_hardened(shown.headers()), "no frame shows it, {by:?}");
        for headers in [
            &[][..],
            &[(ACTION_HEADER, "1")],
            &[("origin", "https://mco.example.com")],
            &[("origin", "https://attacker.example"), (ACTION_HEADER, "1")],
            &[("origin", "null"), (ACTION_HEADER, "1")],
            &[("origin", "http://mco.example.com"), (ACTION_HEADER, "1")],
        ] {
            let forged = site.send("POST", "/api/actions", by, headers, retry()).await;
            assert_eq!(forged.status(), 403, "a forged action, {by:?} {headers:?}");
        }
    }
    assert_eq!(site.api.writes.load(Ordering::Relaxed), 0);
    // Nor can another site sign a browser in.
    for headers in [
        &[("origin", "https://attacker.example"), (ACTION_HEADER, "1")][..],
        &[("origin", "https://mco.example.com")],
        &[("host", "attacker.example"), ("origin", "https://attacker.example"), (ACTION_HEADER, "1")],
    ] {
        let token = Body::from(json!({"token": "of-jane"}).to_string());
        let answer = site.send("POST", "/api/session", By::Nothing, headers, token).await;
        assert!(
            answer.status().is_client_error() && !answer.headers().contains_key("set-cookie"),
            "{headers:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_or_a_right_that_ends_ends_the_session_and_the_stream() {
    for (is_token, status) in [(true, 401), (false, 403)] {
        let site = Site::new();
        let cookie = site.sign_in("of-jane").await;
        let by = By::Cookie(&cookie);
        let mut body = site.get("/api/events", by).await.into_body();
        assert!(body.frame().await.is_some());
        let end = if is_token { &site.api.ended } else { &site.api.revoked };
        end.store(true, Ordering::Relaxed);
        let started = tokio::time::Instant::now();
        while let Some(frame) = body.frame().await {
            frame.unwrap();
            assert!(started.elapsed().as_secs() < 120, "the stream goes on");
        }
        assert_eq!(site.get("/api/snapshot", by).await.status(), status);
        let page = text(site.get("/", by).await).await;
        assert!(page.contains("<form"), "somebody else can sign in: {page}");
        assert_eq!(page.contains("machine-config-dashboard-viewer"), !is_token, "{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_session_and_a_proxys_person_comes_by_the_proxy_again() {
    let site = Site::new();
    let cookie = site.sign_in("of-jane").await;
    let other = site.sign_in("of-jane").await;
    let ends_after = async |by: By<'_>| {
        let started = tokio::time::Instant::now();
        let mut body = site.get("/api/events", by).await.into_body();
        while let Some(frame) = body.frame().await {
            frame.unwrap();
            assert!(started.elapsed().as_secs() < 13 * 60 * 60, "{by:?}: the stream goes on");
        }
        started.elapsed().as_secs()
    };
    let proxied = ends_after(By::Proxy(PROXY, "pete", "ops")).await;
    assert!((60..90).contains(&proxied), "{proxied} s");
    let mut signed_out = site.get("/api/events", By::Cookie(&other)).await.into_body();
    let own = [("origin", "https://mco.example.com"), (ACTION_HEADER, "1")];
    let done = site.send("DELETE", "/api/session", By::Cookie(&other), &own, Body::empty()).await;
    assert_eq!(done.status(), 200);
    assert!(done.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    while signed_out.frame().await.is_some() {}
    assert_eq!(site.get("/api/snapshot", By::Cookie(&other)).await.status(), 401);
    assert_eq!(site.get("/api/snapshot", By::Cookie(&cookie)).await.status(), 200, "the other session stays");
    let session = ends_after(By::Cookie(&cookie)).await;
    assert!((11 * 60 * 60..12 * 60 * 60 + 60).contains(&session), "{session} s");
    assert_eq!(site.get("/api/snapshot", By::Cookie(&cookie)).await.status(), 401);
}

#[tokio::test]
async fn few_texts_are_looked_at_at_the_same_time_and_none_that_is_large() {
    let site = Site::new();
    let jane = By::Token("of-jane");
    let own = [("origin", "https://mco.example.com"), (ACTION_HEADER, "1")];
    let check = |body: Body| site.send("POST", "/api/check", jane, &own, body);
    let large = check(Body::from(vec![b' '; LARGEST_IN_CLUSTER + 1])).await;
    assert_eq!(large.status(), 413);
    assert!(text(large).await.contains("2 MiB"));
    let manifest = "{kind: MachineConfig, metadata: {name: a}}";
    let never = || Body::from_stream(futures::stream::pending::<Result<&[u8], std::io::Error>>());
    let mut two: Vec<_> = (0..CHECKS).map(|_| Box::pin(check(never()))).collect();
    for waiting in &mut two {
        assert!(futures::poll!(waiting).is_pending());
    }
    // The reviews of the person's rights are answered in the meantime.
    tokio::time::timeout(Duration::from_millis(200), futures::future::join_all(&mut two)).await.unwrap_err();
    assert_eq!(check(Body::from(manifest)).await.status(), 429);
    // An action reads as much to say what it means. A pause does not, and must not wait.
    let actions = [
        json!({"action": "resume", "pool": "worker"}),
        json!({"action": "undo", "pool": "worker"}),
        json!({"action": "retry", "node": "n1"}),
    ];
    for action in &actions {
        let busy = site.post("/api/actions", jane, action).await;
        assert_eq!(busy.status(), 429, "{action}");
        assert!(text(busy).await.contains("try again in a few seconds"), "{action}");
    }
    let pause = json!({"action": "pause", "pool": "worker"});
    assert_eq!(site.post("/api/actions", jane, &pause).await.status(), 200);
    drop(two);
    assert_eq!(check(Body::from(manifest)).await.status(), 200);
    for action in &actions {
        assert_eq!(site.post("/api/actions", jane, action).await.status(), 200, "{action}");
    }
}

#[tokio::test]
async fn of_other_configs_than_its_own_a_pools_page_reads_the_metadata_alone() {
    let site = Site::new();
    assert_eq!(site.get("/api/pools/worker", By::Token("of-jane")).await.status(), 200);
    let asked = site.api.asked.lock().unwrap().clone();
    let lists: Vec<_> =
        asked.iter().filter(|a| a.starts_with("GET") && a.contains("/machineconfigs")).collect();
    assert!(lists.iter().any(|a| a.ends_with("/machineconfigs (metadata)")), "{lists:#?}");
    assert!(!lists.iter().any(|a| a.ends_with("/machineconfigs")), "{lists:#?}");
}

#[tokio::test]
async fn the_page_knows_who_looks_and_whether_signing_out_means_something() {
    let site = Site::new();
    let cookie = site.sign_in("of-jane").await;
    for (by, user, can) in [
        (By::Cookie(&cookie), "jane", true),
        (By::Token("of-jane"), "jane", false),
        (By::Proxy(PROXY, "pete", "ops"), "pete", false),
    ] {
        let said: Value = serde_json::from_str(&text(site.get("/api/session", by).await).await).unwrap();
        assert_eq!(said, json!({"user": user, "canSignOut": can}), "{by:?}");
    }
    // Another site cannot sign anybody out.
    let forged = [("origin", "https://attacker.example"), (ACTION_HEADER, "1")];
    let answer = site.send("DELETE", "/api/session", By::Cookie(&cookie), &forged, Body::empty()).await;
    assert_eq!(answer.status(), 403);
    assert_eq!(site.get("/api/snapshot", By::Cookie(&cookie)).await.status(), 200);
}

#[tokio::test]
async fn nobody_ends_the_sessions_of_others() {
    let site = Site::new();
    let jane = site.sign_in("of-jane").await;
    let first = site.sign_in("of-ann").await;
    for _ in 0..16 {
        site.sign_in("of-ann").await;
    }
    assert_eq!(site.get("/api/snapshot", By::Cookie(&first)).await.status(), 401, "her own oldest goes");
    assert_eq!(site.get("/api/snapshot", By::Cookie(&jane)).await.status(), 200);
}

#[tokio::test]
async fn what_is_recorded_of_an_approval_is_the_persons_name() {
    let rights = Arc::new(crate::access::authorization::Rights::new(FakeApi::default().client()));
    let person = Arc::new(Person { name: "jane".to_owned(), ..Person::default() });
    let review = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .body(kube::client::Body::empty())
        .unwrap();
    let answer = rights.client_of(person).send(review).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let said: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(said["status"]["userInfo"]["username"], "jane");
}
