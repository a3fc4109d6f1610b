//! One request of the operator to the API server, with its timeout.
//!
//! What it is not: when it is tried again (see `sync`).

use client::CallError;
use std::time::Duration;

/// The timeout of one request to the API server.
const CALL: Duration = Duration::from_secs(10);

/// One request; `what` names it with its object.
pub(crate) async fn call<T>(
    what: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    client::call_within(CALL, || what, request).await
}
