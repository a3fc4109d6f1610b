//! A fake API server, for tests of how a pass handles its answers, including answers that a real one cannot be made to
//! give.

use crate::io::events::Recorder;
use crate::io::metrics::Metrics;
use crate::shared::Shared;
use http::{Request, Response};
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde_json::Value;

/// A response of the fake server.
pub(crate) fn answer(code: u16, body: &Value) -> Option<Response<Body>> {
    let body = Body::from(body.to_string().into_bytes());
    Some(Response::builder().status(code).body(body).unwrap())
}

/// A client of a server that answers with this function; `None` breaks the connection.
pub(crate) fn client(
    serve: impl Fn(Request<Body>) -> Option<Response<Body>> + Clone + Send + 'static,
) -> kube::Client {
    let fake = tower::service_fn(move |request| {
        let answer = serve(request).ok_or_else(|| std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        async move { answer }
    });
    kube::Client::new(fake, "default")
}

/// The state that passes share, with that client and empty caches.
pub(crate) fn shared(
    serve: impl Fn(Request<Body>) -> Option<Response<Body>> + Clone + Send + 'static,
) -> Shared {
    let client = client(serve);
    let (events, _) = Recorder::new(client.clone());
    Shared::new(client, "/".into(), events, Metrics::new(&mut Registry::default()), &crate::passes::MARKERS)
}
