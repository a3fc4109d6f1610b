//! The bodies of requests: how large they may be, and how long they may take.
//!
//! What it is not: what is in them (see `page_actions` and `routes`).

use axum::body::{Body, Bytes};
use futures::StreamExt as _;
use futures::stream::try_unfold;
use http::StatusCode;
use std::time::Duration;

/// How long a request's body may take to come.
pub(crate) const BODY: Duration = Duration::from_secs(10);
/// The largest text that is looked at, in bytes, on a person's own computer.
pub(crate) const LARGEST: usize = 10 << 20;
/// The same in the cluster, where everybody who may look has it read on a control-plane node. A text of YAML takes some
/// hundred times its size at the worst.
pub(crate) const LARGEST_IN_CLUSTER: usize = 2 << 20;
/// An action names a pool or a node.
pub(crate) const LARGEST_ACTION: usize = 16 << 10;

/// A body that fails unless all of it comes within [`BODY`].
pub(crate) fn in_time(body: Body) -> Body {
    let end = tokio::time::Instant::now() + BODY;
    Body::from_stream(try_unfold(body.into_data_stream(), move |mut body| async move {
        match tokio::time::timeout_at(end, body.next()).await {
            Ok(next) => next.transpose().map(|next| next.map(|bytes| (bytes, body))),
            Err(_) => Err(axum::Error::new(TooSlow)),
        }
    }))
}

/// A body did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("the request was not complete within {} seconds", BODY.as_secs())]
pub(crate) struct TooSlow;

/// Reads a body of at most this many bytes. One that is longer is read to its end all the same, within its time, and thrown away:
/// a browser that is cut off while it sends does not read the answer that says why.
///
/// # Errors
/// The status that says what is wrong with it.
pub(crate) async fn read(body: Body, most: usize) -> Result<Bytes, StatusCode> {
    let (mut parts, mut all, mut fits) = (body.into_data_stream(), vec![], true);
    while let Some(part) = parts.next().await {
        match part {
            Ok(part) if fits && all.len() + part.len() <= most => all.extend_from_slice(&part),
            Ok(_) => (all, fits) = (vec![], false),
            Err(_) if !fits => break,
            Err(error) => {
                let mut causes =
                    std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
                return Err(match causes.any(|e| e.is::<TooSlow>()) {
                    true => StatusCode::REQUEST_TIMEOUT,
                    false => StatusCode::BAD_REQUEST,
                });
            }
        }
    }
    if fits { Ok(all.into()) } else { Err(StatusCode::PAYLOAD_TOO_LARGE) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_body_that_is_too_long_is_read_to_its_end() {
        let seen = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&seen);
        let parts = futures::stream::iter(0..10).map(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>("four")
        });
        assert_eq!(read(Body::from_stream(parts), 8).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
        assert_eq!(seen.load(Ordering::Relaxed), 10);
        assert_eq!(read(Body::from("eight by"), 8).await.unwrap(), "eight by");
    }
}
