//! Tests of `watches`: what begins a pass, and what is said of a watch that does not work.

use super::*;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::core::PartialObjectMeta;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an API server does with a watch.
#[derive(Debug, Clone, Copy)]
enum WatchAnswer {
    /// It refuses it with this code.
    Refuses(u16),
    /// It does not answer.
    Hangs,
    /// It refuses so many with this code, and accepts the next one, which tells of nothing.
    RefusesThenAccepts(usize, u16),
}

/// An API server that answers the first lists with this code. Also returns how often it was asked.
fn server(lists: usize, code: u16, watches: WatchAnswer) -> (Client, Arc<AtomicUsize>) {
    let (asked, watched) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    let serve = tower::service_fn(move |request: http::Request<Body>| {
        let refused = count.fetch_add(1, Ordering::SeqCst) < lists;
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        let watched = if is_watch { watched.fetch_add(1, Ordering::SeqCst) } else { 0 };
        async move {
            let list = r#"{"apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "5"}, "items": []}"#;
            let failure = |code: u16| {
                (
                    code,
                    format!(r#"{{"kind": "Status", "status": "Failure", "code": {code}, "message": "no"}}"#),
                )
            };
            let never = futures::stream::pending::<Result<http_body::Frame<_>, std::convert::Infallible>>();
            let (code, body) = match (is_watch, watches) {
                (false, _) if refused => failure(code),
                (false, _) => (200, list.to_owned()),
                (true, WatchAnswer::Refuses(code)) => failure(code),
                (true, WatchAnswer::Hangs) => std::future::pending().await,
                (true, WatchAnswer::RefusesThenAccepts(many, code)) if watched < many => failure(code),
                (true, WatchAnswer::RefusesThenAccepts(..)) => (200, String::new()),
            };
            let body: futures::stream::BoxStream<'static, _> = match is_watch && code == 200 {
                true => never.boxed(),
                false => futures::stream::iter([Ok(http_body::Frame::data(body.into()))]).boxed(),
            };
            let answer = http::Response::builder().status(code).body(http_body_util::StreamBody::new(body));
            Ok::<_, std::io::Error>(answer.unwrap())
        }
    });
    (Client::new(serve, "default"), asked)
}

fn watches(client: &Client) -> Watches {
    let mut watches = Watches::default();
    watches.follow(
        client,
        Api::<PartialObjectMeta<Secret>>::all,
        watcher::Config::default().fields("metadata.name=s"),
    );
    watches
}

/// Waits for a change, for at most this long. Returns how many seconds that took.
async fn waited(watches: &mut Watches, wait: Duration) -> u64 {
    let begin = Instant::now();
    watches.until_change(wait).await;
    begin.elapsed().as_secs()
}

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_work_is_told_after_a_minute_and_looked_after_each_minute() {
    for (answer, why) in [
        (WatchAnswer::Refuses(403), "start of the watch: no (403 )"),
        (WatchAnswer::Refuses(504), "start of the watch: no (504 )"),
        (WatchAnswer::Hangs, "no answer"),
    ] {
        let warnings = Warnings::default();
        let guard = tracing::subscriber::set_default(warnings.clone());
        let (client, _) = server(0, 0, answer);
        let mut watches = watches(&client);
        assert_eq!(waited(&mut watches, HOUR).await, 0, "{answer:?}: the list");
        watches.catch_up();
        assert_eq!(watches.trouble(), None);
        assert_eq!(warnings.count(), 0);
        let minute = 55..=61;
        let first = waited(&mut watches, HOUR).await;
        assert!(minute.contains(&first), "{answer:?}: a pass is due after {first} s");
        let said = watches.trouble().unwrap();
        let want = format!("the watch of /api/v1/secrets?metadata.name=s does not work: {why}; ");
        assert!(said.starts_with(&want), "{said}");
        assert_eq!(warnings.count(), 1, "{answer:?}");
        for _ in 0..3 {
            assert!(minute.contains(&waited(&mut watches, HOUR).await), "{answer:?}");
        }
        assert_eq!(warnings.count(), 1, "once");
        drop(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_works_again_is_no_trouble_any_more() {
    let (client, _) = server(0, 0, WatchAnswer::RefusesThenAccepts(20, 504));
    let mut watches = watches(&client);
    waited(&mut watches, HOUR).await;
    watches.catch_up();
    waited(&mut watches, HOUR).await;
    assert!(watches.trouble().is_some());
    let mut waits = vec![];
    while watches.trouble().is_some() {
        waits.push(waited(&mut watches, HOUR).await);
    }
    assert!(
        waits.len() <= 3 && waits.iter().all(|seconds| *seconds <= 61),
        "a pass says so at once: {waits:?}"
    );
    // Until the next hour, or a change.
    assert_eq!(waited(&mut watches, HOUR).await, HOUR.as_secs());
}

/// Most waits are short while parts are rolled out.
#[tokio::test(start_paused = true)]
async fn short_waits_hide_no_watch_that_does_not_work() {
    let (client, _) = server(0, 0, WatchAnswer::Refuses(403));
    let (mut watches, begin) = (watches(&client), Instant::now());
    while watches.trouble().is_none() {
        watches.until_change(Duration::from_secs(10)).await;
        // A pass is made.
        tokio::time::sleep(Duration::from_secs(3)).await;
        watches.catch_up();
        assert!(begin.elapsed() < BLIND * 2, "nobody hears of it");
    }
    assert!(begin.elapsed() >= BLIND, "{:?}", begin.elapsed());
}

/// While a step fails, or the settings are not valid, no change ends a wait.
#[tokio::test(start_paused = true)]
async fn waits_that_no_change_ends_hide_no_watch_that_does_not_work() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let (client, _) = server(0, 0, WatchAnswer::Refuses(403));
    let (mut watches, begin) = (watches(&client), Instant::now());
    let wait = Duration::from_secs(20);
    while watches.trouble().is_none() {
        let before = Instant::now();
        watches.whole_wait(wait).await;
        assert_eq!(before.elapsed().as_secs(), wait.as_secs(), "the list is a change");
        // A pass is made.
        tokio::time::sleep(Duration::from_secs(3)).await;
        watches.catch_up();
        assert!(begin.elapsed() < BLIND * 2, "nobody hears of it");
    }
    assert!(begin.elapsed() >= BLIND, "{:?}", begin.elapsed());
    let said = watches.trouble().unwrap();
    assert!(said.contains("?metadata.name=s does not work: start of the watch: no (403 )"), "{said}");
    let before = Instant::now();
    watches.whole_wait(HOUR).await;
    assert_eq!(before.elapsed().as_secs(), HOUR.as_secs());
    assert_eq!(warnings.count(), 1, "once");
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_in_a_wait_that_no_change_ends() {
    // Columns: how many tries are refused; how long the wait is; how often somebody is warned.
    for (refused, wait, told) in
        [(5, Duration::from_secs(30), 0), (20, Duration::from_mins(5), 1), (0, Duration::from_secs(30), 0)]
    {
        let warnings = Warnings::default();
        let _guard = tracing::subscriber::set_default(warnings.clone());
        let (client, _) = server(0, 0, WatchAnswer::RefusesThenAccepts(refused, 504));
        let mut watches = watches(&client);
        watches.whole_wait(wait).await;
        assert!(watches.broken.is_empty(), "{refused}: {:?}", watches.broken);
        assert_eq!(watches.trouble(), None, "{refused}");
        assert_eq!(warnings.count(), told, "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_that_are_refused_are_asked_for_less_and_less_and_begin_a_pass_each_minute() {
    for code in [403, 500] {
        let (client, asked) = server(usize::MAX, code, WatchAnswer::RefusesThenAccepts(0, 0));
        let (mut watches, begin) = (watches(&client), Instant::now());
        for _ in 0..2 {
            let waited = waited(&mut watches, HOUR).await;
            assert!((59..=61).contains(&waited), "{code}: a change after {waited} s");
        }
        assert!(
            watches.trouble().unwrap().contains(&format!("list: no ({code} )")),
            "{:?}",
            watches.trouble()
        );
        let asked = asked.load(Ordering::SeqCst);
        assert!((10..=40).contains(&asked), "{code}: {asked} lists in {:?}", begin.elapsed());
    }
    let (client, asked) = server(3, 500, WatchAnswer::RefusesThenAccepts(0, 0));
    let mut watches = watches(&client);
    assert!(
        waited(&mut watches, HOUR).await <= WATCH.last.as_secs(),
        "what has changed meanwhile is looked at"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    assert_eq!(waited(&mut watches, HOUR).await, HOUR.as_secs(), "nothing changes, and the watch works");
    assert_eq!(watches.trouble(), None);
}

/// Counts warnings of this crate.
#[derive(Debug, Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Warnings {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        if *metadata.level() == tracing::Level::WARN && metadata.target().starts_with("operator::") {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
