//! Which RolloutPolicies a pool's page shows, and which of them an approval is by: also where one of them cannot be read, is not in
//! force, or has not been looked at by the controller yet.

use crate::fake_cluster::{object, status};
use crate::serving::routes::tests::{Browser, text};
use kube::Client;
use serde_json::{Value, json};

/// The cluster of the other tests, with these RolloutPolicies.
fn with_policies(policies: Vec<Value>) -> Client {
    let answer = move |request: http::Request<kube::client::Body>| {
        let path = request.uri().path();
        let value = match path.rsplit('/').next() {
            Some("rolloutpolicies") => Some(
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": policies}),
            ),
            Some("selfsubjectreviews") => {
                Some(json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
                "metadata": {}, "status": {"userInfo": {"username": "jane"}}}))
            }
            _ => object(path, false),
        };
        let (code, value) = value.map_or_else(|| (404, status(404, "nothing")), |v| (200, v));
        let body = kube::client::Body::from(value.to_string().into_bytes());
        std::future::ready(Ok::<_, std::io::Error>(
            http::Response::builder().status(code).body(body).unwrap(),
        ))
    };
    Client::new(tower::service_fn(answer), "default")
}

fn policy(name: &str, spec: &Value, status: &Value) -> Value {
    json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec, "status": status})
}

/// One that asks for an approval of its only wave, which waits.
fn waits() -> Value {
    let wave = json!([{"name": "canary", "size": 1, "approval": "Needed"}, {"name": "rest"}]);
    let progress = json!({"name": "worker", "config": "rendered-worker-2", "wave": "canary"});
    policy("careful", &json!({"pools": {"names": ["worker"]}, "waves": wave}), &json!({"pools": [progress]}))
}

/// One that a newer version has written, for these pools.
fn newer(pools: &Value) -> Value {
    policy("newer", &json!({"pools": pools, "onFailure": "Teleport"}), &json!({}))
}

async fn policies_of(all: Vec<Value>) -> Value {
    let browser = Browser::of(with_policies(all)).sign_in().await;
    let answer = browser.get("/api/pools/worker").await;
    assert_eq!(answer.status(), 200);
    let answer: Value = serde_json::from_str(&text(answer).await).unwrap();
    answer["policies"].clone()
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_hides_no_other_and_is_named_where_it_may_count() {
    let elsewhere = json!({"names": ["infra"]});
    let labels = json!({"selector": {"matchLabels": {"x": "y"}}});
    for (pools, may_count) in [
        (elsewhere, false),
        (labels, false),
        (json!({"names": ["worker"]}), true),
        (json!({"selector": {}}), false),
        (json!({"by": "a field that this version does not know"}), true),
    ] {
        let all = || vec![waits(), newer(&pools)];
        let shown = policies_of(all()).await;
        assert!(shown.to_string().contains("careful"), "{pools}: {shown}");
        let named = shown.to_string().contains("RolloutPolicy newer cannot be read");
        assert_eq!(named, may_count, "{pools}: {shown}");
        let browser = Browser::of(with_policies(all())).sign_in().await;
        let approve = json!({"action": "approve", "pool": "worker"}).to_string();
        let answer = browser.post("/api/actions", approve).await;
        let (status, said) = (answer.status(), text(answer).await);
        assert_eq!(status, if may_count { 409 } else { 200 }, "{pools}: {said}");
        assert_eq!(
            said.contains("newer cannot be read, because another version"),
            may_count,
            "{pools}: {said}"
        );
    }
}

#[tokio::test]
async fn the_policy_in_force_is_shown_before_it_has_a_status_and_one_that_is_not_in_force_says_so() {
    let for_worker = json!({"pools": {"names": ["worker"]}});
    let for_infra = json!({"pools": {"names": ["infra"]}});
    let shown = policies_of(vec![policy("fresh", &for_worker, &json!({}))]).await;
    assert_eq!((&shown[0]["name"], &shown[0]["inForce"]), (&json!("fresh"), &json!(true)), "{shown}");
    // Two want the pool. One of them had it before.
    let ready = json!([{"type": "Ready", "status": "False", "reason": "SeveralPolicies", "message": "picked by q, too",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let old = json!({"conditions": ready, "pools": [{"name": "worker"}]});
    let both = vec![policy("p", &for_worker, &old), policy("q", &for_worker, &json!({}))];
    let shown = policies_of(both).await;
    for (n, name) in ["p", "q"].into_iter().enumerate() {
        let one = &shown[n];
        assert_eq!((&one["name"], &one["inForce"]), (&json!(name), &json!(false)), "{shown}");
        assert!(one["why"].as_str().unwrap().contains("none of them is in force"), "{shown}");
    }
    assert!(shown[0]["ready"]["message"].as_str().unwrap().contains("picked by q"), "{shown}");
    // One that has left the pool and still has an entry for it.
    let shown = policies_of(vec![policy("p", &for_infra, &old)]).await;
    assert_eq!((&shown[0]["name"], &shown[0]["inForce"]), (&json!("p"), &json!(false)), "{shown}");
    assert!(shown[0]["why"].as_str().unwrap().contains("does not select"), "{shown}");
    let others = policies_of(vec![policy("p", &for_infra, &json!({}))]).await;
    assert_eq!(others, json!([]));
}
