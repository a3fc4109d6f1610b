//! Calls to the API server: every one has a timeout and an error that names what was tried on which object.
//!
//! What it is not: retries. A failed call ends the pass that made it; the queue decides when the next pass is
//! (see [`crate::queue`]), and that pass decides anew from what the caches say then.

use kube::Client;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

/// A request that is not answered in this time is given up: five times what a loaded API server needs for its
/// slowest write, and short enough that one lost connection does not hold a node's drain up for minutes.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection is made in milliseconds or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The server ends a watch after this long and we resume it where it was. It bounds how long a connection that died
/// without a word goes unnoticed; one request per kind in that time is nothing.
pub(crate) const WATCH_SECONDS: u32 = 45;

/// A connection on which nothing arrives for this long is given up. Lists and watches have no other limit; a watch is
/// ended by the server well before.
pub(crate) const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// No usable credentials.
#[derive(Debug, thiserror::Error)]
#[error("credentials from {from}")]
pub struct ClientError {
    /// The kubeconfig's path, or where else they come from.
    pub from: String,
    /// Why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server answered with an error, or could not be reached.
    #[error("{what}")]
    Api {
        /// What was tried, with the object's kind and name.
        what: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// No answer.
    #[error("{what}: no answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout {
        /// What was tried, with the object's kind and name.
        what: String,
    },
}

impl CallError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::Timeout { .. } => None,
        }
    }

    /// The object changed since it was read: what was decided is void, decide anew.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The object (or its namespace, or its kind) is not there.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Not allowed: permissions, or an admission policy.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Refused for now: a disruption budget, or an API server that sheds load.
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == Some(429)
    }

    /// The server understood the request and will refuse it each time, for what it says or for who sends it: that ends
    /// with a change of the object, of permissions or of an admission policy, and not by itself. A webhook may deny with
    /// any code.
    pub fn is_refused(&self) -> bool {
        let denied = |status: &kube::core::Status| {
            status.message.starts_with("admission webhook ") && status.message.contains(" denied the request")
        };
        let by_a_webhook = match self {
            Self::Api { source, .. } => matches!(source.as_ref(), kube::Error::Api(status) if denied(status)),
            Self::Timeout { .. } => false,
        };
        by_a_webhook || matches!(self.code(), Some(400 | 403 | 405 | 413 | 415 | 422))
    }

    /// Nobody knows whether it was done: no answer, a broken connection, or a server that gave up half-way.
    pub fn is_unanswered(&self) -> bool {
        self.code().is_none_or(|code| code >= 500)
    }

    /// The server answered, but with a fault of its own: an admission webhook that is down, a database that is slow.
    pub fn is_server_fault(&self) -> bool {
        self.code().is_some_and(|code| code >= 500)
    }

    /// The whole chain in one line, for logs and conditions.
    pub fn chain(&self) -> String {
        chain(self)
    }
}

/// An error and its causes in one line. An answer of the API server is told by its message and code; the library
/// would print the whole object.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = one(error);
    let mut next = source(error);
    while let Some(cause) = next {
        let cause_text = one(cause);
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = source(cause);
    }
    text
}

fn one(error: &(dyn std::error::Error + 'static)) -> String {
    use kube::runtime::watcher::Error as Watch;
    if let Some(kube::Error::Api(status)) = error.downcast_ref() {
        return format!("{} ({} {})", status.message, status.code, status.reason);
    }
    match error.downcast_ref() {
        Some(Watch::InitialListFailed(_)) => "list".to_owned(),
        Some(Watch::WatchStartFailed(_)) => "start of the watch".to_owned(),
        Some(Watch::WatchFailed(_)) => "watch".to_owned(),
        Some(Watch::WatchError(status)) => format!("watch: {} ({})", status.message, status.code),
        _ => error.to_string(),
    }
}

fn source<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a (dyn std::error::Error + 'static)> {
    let told_whole = matches!(error.downcast_ref(), Some(kube::Error::Api(_)))
        || matches!(error.downcast_ref(), Some(kube::runtime::watcher::Error::WatchError(_)));
    if told_whole { None } else { error.source() }
}

/// Runs one request under the timeout.
pub(crate) async fn call<T>(
    what: impl FnOnce() -> String,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(CallError::Api { what: what(), source: Box::new(source) }),
        Err(_) => Err(CallError::Timeout { what: what() }),
    }
}

/// A client from the kubeconfig file given, else as `kubectl` finds one, else from the pod's service account.
pub(crate) async fn client(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    const ANYWHERE: &str =
        "$KUBECONFIG, ~/.kube/config or the pod's service account; --kubeconfig names a file";
    let refused = |source: Box<dyn std::error::Error + Send + Sync>| ClientError {
        from: kubeconfig.map_or_else(|| ANYWHERE.to_owned(), |p| p.display().to_string()),
        source,
    };
    let mut config = match kubeconfig {
        Some(path) => {
            let file = kube::config::Kubeconfig::read_from(path).map_err(|e| refused(Box::new(e)))?;
            kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default())
                .await
                .map_err(|e| refused(Box::new(e)))?
        }
        None => kube::Config::infer().await.map_err(|e| refused(Box::new(e)))?,
    };
    tune(&mut config);
    Client::try_from(config).map_err(|e| refused(Box::new(e)))
}

/// How the controller wants to speak with an API server: it retries by itself, and gives up silent connections.
pub fn tune(config: &mut kube::Config) {
    // A 429 to an eviction is a disruption budget's answer, which the drain wants to see and to report.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(REQUEST_TIMEOUT);
}
