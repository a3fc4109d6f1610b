//! The controller's connection to the API server: its credentials, and the limits of its requests and watches.
//!
//! What it is not: the requests themselves, see [`client`].

use client::REQUEST_TIMEOUT;
use kube::Client;
use std::path::Path;
use std::time::Duration;

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
