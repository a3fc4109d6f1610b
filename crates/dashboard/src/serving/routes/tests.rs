//! The routes as a browser, and as an attacker, meets them.

use super::*;
use crate::access::local_access::ACTION_HEADER;
use crate::fake_cluster::{no_cluster, seeded};
use crate::fleet::feed::Feed;
use crate::fleet::snapshot::tests::fleet;
use api::v1::ControllerConfig;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use insight::Phase;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

const HOST: &str = "127.0.0.1:8796";

pub(crate) struct Browser {
    app: Router,
    feed: Arc<Feed>,
    access: Arc<LocalAccess>,
    cookie: String,
}

impl Browser {
    pub(crate) fn new() -> Self {
        Self::of(no_cluster())
    }

    pub(crate) fn of(client: Client) -> Self {
        let (access, feed) = (Arc::new(LocalAccess::new(8796).unwrap()), Arc::new(Feed::new("https://c")));
        let stop = CancellationToken::new();
        let controller_config = Arc::new(ControllerConfig::new("x", Default::default()));
        let (access_of, feed_of) = (Arc::clone(&access), Arc::clone(&feed));
        let (timeline, events) = (Arc::default(), Arc::default());
        let access_mode = AccessMode::Local(access_of);
        let checks = Arc::new(Semaphore::new(page_actions::CHECKS));
        let pools = Arc::new(Semaphore::new(details::POOLS));
        let shared = Shared {
            access_mode,
            feed: feed_of,
            timeline,
            events,
            client,
            controller_config,
            checks,
            pools,
            stop,
        };
        Self { app: router(shared), feed, access, cookie: String::new() }
    }

    pub(crate) async fn signed_in() -> Self {
        Self::new().sign_in().await
    }

    pub(crate) async fn sign_in(self) -> Self {
        let mut browser = self;
        let token = browser.access.invite(Instant::now()).unwrap();
        let answer = browser.get(&format!("/?token={token}")).await;
        assert_eq!(answer.status(), 200);
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap();
        browser.cookie = cookie.to_owned();
        browser
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        self.send_body(method, path, headers, Body::empty()).await
    }

    /// As the page's own scripts send it.
    pub(crate) async fn post(&self, path: &str, body: impl Into<Body>) -> Response {
        let own =
            [("origin", "http://127.0.0.1:8796"), (ACTION_HEADER, "1"), ("sec-fetch-site", "same-origin")];
        self.send_body("POST", path, &own, body.into()).await
    }

    pub(crate) async fn send_body(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.access.base()));
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", HOST);
        }
        if !self.cookie.is_empty() {
            request = request.header("cookie", &self.cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.app.clone().oneshot(request.body(body).unwrap()).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[]).await
    }
}

pub(crate) async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Whether an answer forbids what the page never needs.
pub(crate) fn is_hardened(headers: &HeaderMap) -> bool {
    let says = |name: &str, what: &str| headers.get(name).is_some_and(|v| v.to_str().unwrap().contains(what));
    says("content-security-policy", "default-src 'none'")
        && says("content-security-policy", "frame-ancestors 'none'")
        && says("content-security-policy", "require-trusted-types-for 'script'")
        && !says("content-security-policy", "unsafe")
        && says("x-frame-options", "DENY")
        && says("x-content-type-options", "nosniff")
        && says("cache-control", "no-store")
        && says("referrer-policy", "no-referrer")
}

const PATHS: [&str; 6] = ["/", "/app.js", "/api/snapshot", "/api/events", "/api/rollouts", "/nothing"];

#[tokio::test]
async fn without_a_session_nothing_is_given_and_every_answer_is_hardened() {
    let (stranger, friend) = (Browser::new(), Browser::signed_in().await);
    for path in PATHS {
        let refused = stranger.get(path).await;
        assert!(is_hardened(refused.headers()), "{path}: {:?}", refused.headers());
        assert_eq!(refused.status(), 401, "{path}");
        assert!(text(refused).await.contains("mco dashboard"), "{path}: it says what to do");
        let rebound = friend.send("GET", path, &[("host", "attacker.example:8796")]).await;
        assert_eq!(rebound.status(), 421, "{path}");
        assert!(is_hardened(rebound.headers()) && !text(rebound).await.contains("pools"), "{path}");
        let given = friend.get(path).await;
        assert_eq!(given.status(), if path == "/nothing" { 404 } else { 200 }, "{path}");
        assert!(is_hardened(given.headers()), "{path}");
        let framed =
            friend.send("GET", path, &[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "iframe")]).await;
        assert_eq!(framed.status(), 403, "{path}: in another site's frame");
        let forged =
            friend.send("POST", path, &[("origin", "http://attacker.example"), (ACTION_HEADER, "1")]).await;
        assert_eq!(forged.status(), 403, "{path}: a forged action");
    }
}

#[tokio::test]
async fn a_token_opens_one_browser_and_no_other_host_may_spend_it() {
    let browser = Browser::new();
    let token = browser.access.invite(Instant::now()).unwrap();
    let path = format!("/?token={token}");
    let elsewhere = browser.send("GET", &path, &[("host", "attacker.example:8796")]).await;
    assert_eq!(
        (elsewhere.status(), elsewhere.headers().get("set-cookie")),
        (StatusCode::MISDIRECTED_REQUEST, None)
    );
    let first = browser.get(&path).await;
    assert!(first.status() == 200 && first.headers().contains_key("set-cookie"), "{first:?}");
    let second = browser.get(&path).await;
    assert_eq!((second.status(), second.headers().get("set-cookie")), (StatusCode::FORBIDDEN, None));
    let guessed = browser.get("/?token=").await;
    assert_eq!(guessed.status(), 403);
}

#[tokio::test]
async fn an_address_that_has_ended_gives_a_page_that_says_how_to_get_another() {
    let browser = Browser::new();
    let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(11 * 60)) else { return };
    let token = browser.access.invite(long_ago).unwrap();
    let answer = browser.get(&format!("/?token={token}")).await;
    assert_eq!((answer.status(), answer.headers().get("set-cookie")), (StatusCode::FORBIDDEN, None));
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(is_hardened(answer.headers()));
    let page = text(answer).await;
    assert!(page.contains("ten minutes and has expired") && page.contains("press Enter"), "{page}");
}

#[tokio::test]
async fn nothing_is_served_outside_of_the_path_that_the_cookie_is_for() {
    let browser = Browser::signed_in().await;
    for path in PATHS {
        let request = Request::builder().uri(path).header("host", HOST).header("cookie", &browser.cookie);
        let answer = browser.app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn whoever_reloads_the_first_address_stays_signed_in() {
    let browser = Browser::signed_in().await;
    let again = browser.get("/?token=0123").await;
    assert_eq!((again.status(), again.headers().get("set-cookie")), (StatusCode::OK, None));
}

#[tokio::test]
async fn a_stream_goes_on_where_it_ended_or_says_that_all_is_to_be_read_again() {
    let browser = Browser::signed_in().await;
    let whole: serde_json::Value =
        serde_json::from_str(&text(browser.get("/api/snapshot").await).await).unwrap();
    let id = whole["id"].as_str().unwrap().to_owned();
    browser.feed.put(Arc::new(fleet(&[("n1", Phase::Moving, "it works")])));
    let first = async |headers: &[(&str, &str)], query: &str| {
        let response = browser.send("GET", &format!("/api/events{query}"), headers).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut body = response.into_body();
        let mut all = String::new();
        while !all.contains("event: ") {
            let frame = body.frame().await.unwrap().unwrap();
            all += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
        all
    };
    let resumed = first(&[], &format!("?after={id}")).await;
    assert!(resumed.contains("event: delta") && resumed.contains("\"name\":\"n1\""), "{resumed}");
    // What a browser that comes back says counts more than the address that it comes back to.
    assert!(first(&[("last-event-id", "7.7")], &format!("?after={id}")).await.contains("event: reset"));
    assert!(first(&[("last-event-id", &id)], "?after=7.7").await.contains("event: delta"));
    assert!(first(&[], "").await.contains("event: reset"));
}

#[tokio::test]
async fn a_viewer_that_falls_behind_loses_its_stream() {
    let browser = Browser::signed_in().await;
    let mut body = browser.get("/api/events").await.into_body();
    for n in 0..1000 {
        browser.feed.put(Arc::new(fleet(&[("n1", Phase::Moving, &n.to_string())])));
    }
    let ended = async {
        while let Some(frame) = body.frame().await {
            frame.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(5), ended).await.expect("the stream ends");
}

/// A viewer over a socket who reads nothing for a while: the server holds no more for it than for others, ends its stream, and
/// gives it what it missed when it comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stands_still_is_dropped_and_comes_back_to_what_it_missed() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let browser = Browser::signed_in().await;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = browser.app.clone();
    let served = tokio::spawn(async move { axum::serve(listener, app).await });
    let ask = async |after: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "GET {}/api/events?after={after} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nCookie: {}\r\n\r\n",
            browser.access.base(),
            browser.cookie
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let mut slow = ask("").await;
    let mut all = vec![];
    slow.read_buf(&mut all).await.unwrap();
    // More than sockets hold, and more differences than a viewer may be behind.
    let big = "x".repeat(64 << 10);
    for n in 0..600 {
        browser.feed.put(Arc::new(fleet(&[("n1", Phase::Moving, &format!("{n} {big}"))])));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::timeout(Duration::from_secs(20), slow.read_to_end(&mut all))
        .await
        .expect("it ends")
        .unwrap();
    let text = String::from_utf8_lossy(&all);
    assert!(!text.contains("599 x"), "it was not given everything");
    let last = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap().to_owned();
    let first_word = |text: &str| text.contains("event: reset") || text.contains("599 x");
    let mut again = ask(&last).await;
    let mut all = vec![];
    while !first_word(&String::from_utf8_lossy(&all)) {
        let read = tokio::time::timeout(Duration::from_secs(10), again.read_buf(&mut all)).await;
        assert!(read.expect("it goes on").unwrap() > 0);
    }
    served.abort();
}

#[tokio::test]
async fn more_than_ten_megabytes_are_not_looked_at() {
    let browser = Browser::of(seeded(false)).sign_in().await;
    let long = browser.post("/api/check", vec![b'#'; (10 << 20) + 1]).await;
    assert_eq!(long.status(), 413);
    assert!(text(long).await.contains("mco plan -f"));
    assert_eq!(
        browser.post("/api/check", vec![b'#'; 10 << 20]).await.status(),
        400,
        "a comment is no manifest"
    );
    assert_eq!(browser.post("/api/actions", vec![b' '; 1 << 20]).await.status(), 413);
}
