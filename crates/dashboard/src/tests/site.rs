//! The dashboard in a fake cluster that knows some people, for tests: a request is sent as one of them.

use crate::access::authorization::FLEET;
use crate::access::cluster_access::ClusterAccess;
use crate::access::local_access::ACTION_HEADER;
use crate::access::required_right::WITH_SECRETS;
use crate::answers::page_actions::CHECKS;
use crate::fake_cluster::{object, status};
use crate::fleet::feed::Feed;
use crate::fleet::node_events::NodeEvents;
use crate::serving::routes::router;
use crate::shared::{AccessMode, Peer, Shared};
use api::v1::ControllerConfig;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

pub(crate) const HOST: &str = "mco.example.com";
/// A name as clusters have it that know people by OIDC.
pub(crate) const OLGA: &str = "oidc:olga@example.com";
pub(crate) const PROXY: &str = "10.0.0.7";
pub(crate) const ELSEWHERE: &str = "10.0.0.8";

/// A cluster that knows some people.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    /// Jane's token has ended.
    pub(crate) ended: Arc<AtomicBool>,
    /// She has no rights any more.
    pub(crate) revoked: Arc<AtomicBool>,
    /// What was done to objects.
    pub(crate) writes: Arc<AtomicUsize>,
    /// The reviews of rights, and after them the requests that they were for.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl FakeApi {
    pub(crate) fn client(&self) -> Client {
        let me = self.clone();
        let answer = move |request: http::Request<kube::client::Body>| {
            let me = me.clone();
            async move { Ok::<_, std::io::Error>(me.answer(request).await) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    pub(crate) async fn answer(
        &self,
        request: http::Request<kube::client::Body>,
    ) -> http::Response<kube::client::Body> {
        let metadata =
            request.headers().get("accept").is_some_and(|a| a.to_str().unwrap().contains("PartialObject"));
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let body = body.collect().await.unwrap().to_bytes();
        let (code, value) = if path.ends_with("reviews") {
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            review["status"] = match path.ends_with("/tokenreviews") {
                true => self.who(&review["spec"]),
                false => json!({"allowed": self.may(&review["spec"])}),
            };
            (201, review)
        } else {
            if head.method == Method::PATCH {
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
            let part = if metadata { " (metadata)" } else { "" };
            self.asked.lock().unwrap().push(format!("{} {path}{part}", head.method));
            object(&path, metadata).map_or_else(|| (404, status(404, "nothing")), |v| (200, v))
        };
        let body = kube::client::Body::from(value.to_string().into_bytes());
        http::Response::builder().status(code).body(body).unwrap()
    }

    pub(crate) fn who(&self, spec: &Value) -> Value {
        let name = match spec["token"].as_str().unwrap() {
            "of-jane" if !self.ended.load(Ordering::Relaxed) => "jane",
            "of-joe" => "joe",
            "of-ann" => "ann",
            "of-vic" => "vic",
            "of-olga" => OLGA,
            _ => return json!({"authenticated": false}),
        };
        json!({"authenticated": true, "user": {"username": name, "groups": ["system:authenticated"]}})
    }

    pub(crate) fn may(&self, spec: &Value) -> bool {
        let attributes = &spec["resourceAttributes"];
        self.asked.lock().unwrap().push(format!("may {} {attributes}", spec["user"]));
        let is_fleet = FLEET.iter().any(|(group, resource)| {
            attributes["verb"] == "list"
                && attributes["resource"] == *resource
                && attributes["group"].as_str().unwrap_or_default() == *group
        });
        match spec["user"].as_str().unwrap() {
            "jane" => !self.revoked.load(Ordering::Relaxed),
            "pete" => spec["groups"].as_array().unwrap().contains(&json!("ops")),
            "ann" | OLGA => is_fleet,
            "vic" => {
                let kind = |&(group, resource): &(&str, &str)| {
                    attributes["resource"] == resource
                        && attributes["group"].as_str().unwrap_or_default() == group
                };
                // Of Secrets the boot tokens.
                let secret = attributes["resource"] == "secrets";
                let token = attributes["verb"] == "list"
                    && attributes["namespace"] == api::first_boot::boot_token::NAMESPACE
                    && attributes["subresource"] == "masked";
                attributes["verb"] != "patch"
                    && (!secret || token)
                    && (attributes["subresource"] == "masked" || !WITH_SECRETS.iter().any(kind))
            }
            _ => false,
        }
    }
}

pub(crate) struct Site {
    pub(crate) app: Router,
    pub(crate) feed: Arc<Feed>,
    pub(crate) events: Arc<NodeEvents>,
    pub(crate) api: FakeApi,
}

/// How somebody is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By<'a> {
    Nothing,
    Token(&'a str),
    Cookie(&'a str),
    /// A proxy's headers, from this address.
    Proxy(&'a str, &'a str, &'a str),
}

impl Site {
    pub(crate) fn new() -> Self {
        let (api, feed) = (FakeApi::default(), Arc::new(Feed::new("https://c")));
        let events = Arc::new(NodeEvents::default());
        let client = api.client();
        let access =
            ClusterAccess::new(&client, vec![HOST.to_owned()], vec![format!("{PROXY}/32").parse().unwrap()]);
        let shared = Shared {
            client: access.client_of(Arc::default()),
            access_mode: AccessMode::Cluster(Arc::new(access)),
            feed: Arc::clone(&feed),
            timeline: Arc::default(),
            events: Arc::clone(&events),
            controller_config: Arc::new(ControllerConfig::new("x", Default::default())),
            checks: Arc::new(Semaphore::new(CHECKS)),
            pools: Arc::new(Semaphore::new(crate::answers::details::POOLS)),
            stop: CancellationToken::new(),
        };
        Self { app: router(shared), feed, events, api }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        by: By<'_>,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", HOST);
        }
        let mut from = ELSEWHERE;
        match by {
            By::Nothing => {}
            By::Token(token) => request = request.header("authorization", format!("Bearer {token}")),
            By::Cookie(cookie) => request = request.header("cookie", cookie),
            By::Proxy(address, user, groups) => {
                from = address;
                request = request.header("x-forwarded-user", user).header("x-forwarded-groups", groups);
            }
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let from: IpAddr = from.parse().unwrap();
        let request = request.extension(Peer(from)).body(body).unwrap();
        self.app.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str, by: By<'_>) -> Response {
        self.send("GET", path, by, &[], Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, by: By<'_>, body: &Value) -> Response {
        let own =
            [("origin", "https://mco.example.com"), (ACTION_HEADER, "1"), ("sec-fetch-site", "same-origin")];
        self.send("POST", path, by, &own, Body::from(body.to_string())).await
    }

    /// Signs in, and returns the cookie.
    pub(crate) async fn sign_in(&self, token: &str) -> String {
        let answer = self.post("/api/session", By::Nothing, &json!({"token": token})).await;
        assert_eq!(answer.status(), 200);
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        for word in ["__Host-", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
            assert!(cookie.contains(word), "{word}: {cookie}");
        }
        assert!(!cookie.contains(token), "{cookie}");
        cookie.split(';').next().unwrap().to_owned()
    }
}
