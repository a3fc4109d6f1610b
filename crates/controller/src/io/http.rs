//! The HTTP endpoints `/metrics` and `/healthz`.

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long a shutdown waits for requests that are being answered: one that never ends must not keep the process alive.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until `stop`. The caller makes the listener, so that an address already in use is an error at start.
pub(crate) async fn serve(listener: TcpListener, registry: Arc<Registry>, stop: CancellationToken) {
    let app = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok" }))
        .with_state(registry);
    let served = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    let end = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        served = served.into_future() => if let Err(error) = served {
            tracing::warn!("metrics are no longer served: {error}");
        },
        () = end => tracing::debug!("a connection did not end and is dropped"),
    }
}

async fn metrics(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_request_that_never_ends_does_not_hold_the_shutdown_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, Arc::new(Registry::default()), stop.clone()));
        let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), task).await.expect("it ends").unwrap();
    }
}
