//! The controller's connection to the API server: its credentials, and the limits of its requests and watches.
//!
//! What it is not: the requests themselves, see [`client`].

use client::REQUEST_TIMEOUT;
use kube::Client;
use std::path::Path;
use std::time::Duration;

/// A connection is made in milliseconds or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The server ends a watch after this long, and we resume it where it was. This limits how long a connection that died
/// silently goes unnoticed. One request for each kind in that time is nothing.
pub(crate) const WATCH_SECONDS: u32 = 45;

/// A connection is closed when nothing arrives on it for this long. Lists and watches have no other limit; the server
/// ends a watch well before.
pub(crate) const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// No usable credentials.
#[derive(Debug, thiserror::Error)]
#[error("credentials from {from}")]
pub struct ClientError {
    /// The kubeconfig's path, or the other source of the credentials.
    pub from: String,
    /// Why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// A client from the given kubeconfig file; else from the one that `kubectl` would use; else from the pod's service
/// account.
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
            let names_proxy = ::client::names_proxy(&file, None);
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(file, &options).await;
            let mut config = config.map_err(|e| refused(Box::new(e)))?;
            ::client::settle_proxy(&mut config, names_proxy);
            config
        }
        None => kube::Config::infer().await.map_err(|e| refused(Box::new(e)))?,
    };
    tune(&mut config);
    Client::try_from(config).map_err(|e| refused(Box::new(e)))
}

/// Configures a connection as the controller needs it: the controller retries by itself, and closes silent
/// connections.
pub fn tune(config: &mut kube::Config) {
    // A 429 in answer to an eviction comes from a disruption budget; the drain must see and report it (Kubernetes
    // documentation, "API-initiated Eviction").
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(REQUEST_TIMEOUT);
}
