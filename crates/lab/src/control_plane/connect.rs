//! Clients for the lab's API servers.
//!
//! Not here: kubeconfigs and their certificates (see `certs`).

use std::path::Path;
use std::time::Duration;

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::error::{Error, Result};

/// The time limit for requests of a lab's client: long enough for a busy 2-core machine, short enough to be noticed.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// A client for any kubeconfig of the lab.
///
/// # Errors
/// When the kubeconfig cannot be read or used.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    client_with(kubeconfig, true).await
}

/// A client for a proxy, without retries of its own.
pub(crate) async fn upstream(kubeconfig: &Path) -> Result<Client> {
    client_with(kubeconfig, false).await
}

async fn client_with(kubeconfig: &Path, retry: bool) -> Result<Client> {
    install_crypto_provider();
    let failed = |source| Error::Kubeconfig { path: kubeconfig.to_owned(), source };
    let parsed = Kubeconfig::read_from(kubeconfig).map_err(failed)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.map_err(failed)?;
    config.default_retry = retry;
    config.connect_timeout = Some(CLIENT_TIMEOUT);
    // A watch may be silent for minutes. It is ended by its own timeout, not by a read timeout.
    config.write_timeout = Some(CLIENT_TIMEOUT);
    Client::try_from(config).map_err(Error::kube(format!("make a client for {}", kubeconfig.display())))
}

/// rustls needs one crypto provider per process; the first one that is installed stays.
pub(crate) fn install_crypto_provider() {
    let _already = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

pub(crate) async fn probe(client: &Client) -> std::result::Result<(), String> {
    let request = http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
