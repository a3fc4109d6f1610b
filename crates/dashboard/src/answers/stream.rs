//! A viewer's stream: what changes in the fleet, as server-sent events, for as long as that person may look.
//!
//! What it is not: the fleet and its differences (see `feed`).
//!
//! Source: <https://html.spec.whatwg.org/multipage/server-sent-events.html>.

use crate::access::authentication::Credential;
use crate::access::cluster_access::{ClusterAccess, Expiry, Visitor};
use crate::access::local_access::Session;
use crate::fleet::feed::{Feed, Followed};
use crate::response;
use crate::response::Text;
use crate::shared::{AccessMode, Shared};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures::stream;
use http::StatusCode;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// A stream without news says that it is alive this often: a proxy may end one that is silent for longer.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// An event, as scripts never see a comment: the page knows by it that what it shows is still live.
const BEAT: &str = "event: beat\ndata: {}\n\n";
/// How often it is asked whether a viewer may still look, at most: a right that is taken away ends a stream within this and
/// [`HEARTBEAT`].
const RECHECK_INTERVAL: Duration = Duration::from_secs(30);
/// How soon a browser comes back whose stream ended, in milliseconds.
const COME_BACK: &str = "retry: 1000\n\n";
/// Says that the whole fleet is to be taken again.
const RESET: &str = "event: reset\ndata: {}\n\n";

/// A viewer's stream.
struct Viewer {
    /// What is sent before anything new.
    first: Option<Bytes>,
    /// The numbers of differences that it missed.
    missed: std::vec::IntoIter<u64>,
    news: broadcast::Receiver<u64>,
    feed: Arc<Feed>,
    validity: Validity,
    stop: CancellationToken,
}

/// How long a viewer may look.
enum Validity {
    /// Until the session ends.
    Until(Instant),
    /// As long as the visit lasts and the cluster lets this person look, which is asked again after [`RECHECK_INTERVAL`].
    WhileAuthorized {
        access: Arc<ClusterAccess>,
        credential: Credential,
        ends: Expiry,
        asked: tokio::time::Instant,
    },
}

impl Validity {
    async fn is_over(&mut self) -> bool {
        match self {
            Self::Until(end) => Instant::now() >= *end,
            Self::WhileAuthorized { access, ends, .. }
                if access.has_ended(*ends, tokio::time::Instant::now()) =>
            {
                true
            }
            Self::WhileAuthorized { asked, .. } if asked.elapsed() < RECHECK_INTERVAL => false,
            Self::WhileAuthorized { access, credential, asked, .. } => {
                *asked = tokio::time::Instant::now();
                access.authorize(credential).await.is_err()
            }
        }
    }
}

/// Begins one.
pub(crate) async fn events(State(shared): State<Shared>, request: Request) -> Response {
    let now = Instant::now();
    let validity = match (&shared.access_mode, request.extensions().get::<Visitor>()) {
        (AccessMode::Cluster(access), Some(visitor)) => Validity::WhileAuthorized {
            access: Arc::clone(access),
            credential: visitor.credential.clone(),
            ends: visitor.ends,
            asked: tokio::time::Instant::now(),
        },
        _ => Validity::Until(request.extensions().get::<Session>().map_or(now, |session| session.until)),
    };
    let header = request.headers().get("last-event-id").and_then(|v| v.to_str().ok());
    let last = header.or_else(|| request.uri().query().and_then(|q| q.strip_prefix("after=")));
    let Followed { missed, news } = shared.feed.follow(last);
    let reset = if missed.is_none() { RESET } else { "" };
    let first = Some(Bytes::from(format!("{COME_BACK}{reset}")));
    let missed = missed.unwrap_or_default().into_iter();
    let viewer = Viewer { first, missed, news, feed: shared.feed, validity, stop: shared.stop };
    let stream = stream::unfold(viewer, |mut viewer| async move {
        let next = next(&mut viewer).await?;
        Some((Ok::<_, Infallible>(next), viewer))
    });
    response::of(StatusCode::OK, "text/event-stream", Body::from_stream(stream))
}

/// What a viewer is sent next; `None`: the stream ends, and the browser comes back.
async fn next(viewer: &mut Viewer) -> Option<Bytes> {
    if let Some(first) = viewer.first.take() {
        return Some(first);
    }
    // Without a text it reads too slowly: it comes back for what is still there, or for the whole fleet.
    let text = |seq: u64| viewer.feed.text(seq).map(|text| Bytes::from_owner(Text(text)));
    if let Some(seq) = viewer.missed.next() {
        return text(seq);
    }
    let next = tokio::select! {
        () = viewer.stop.cancelled() => None,
        news = viewer.news.recv() => match news {
            Ok(seq) => text(seq),
            // It reads too slowly.
            Err(_) => None,
        },
        () = tokio::time::sleep(HEARTBEAT) => Some(Bytes::from_static(BEAT.as_bytes())),
    };
    // Asked when there is something to send: nothing is sent to who may not look any more.
    if viewer.validity.is_over().await { None } else { next }
}
