//! The server of a cluster: `mco server start`.
//!
//! A task follows the cluster (`follow`) and keeps the prepared configs up to date; the listeners answer from them.
//! While the API server is unavailable, the last good configs are served.

pub mod built_image;
mod follow;
pub mod kubeconfig;
pub mod served_config;
pub(crate) mod state;
mod watches;

use crate::answer::boot_tokens::BootTokens;
use crate::answer::respond::Shared;
use crate::error::ServerError;
use crate::listen::{ListenOptions, Listeners};
use crate::prepared::cache::PreparedConfigs;
use ::listen::Access;
use api::first_boot::boot_token;
use follow::Follower;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The timeout of one request to the API server.
const CALL: Duration = Duration::from_secs(10);

/// The options of `mco server start`; the fields are its flags.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// Ports, certificate, TLS.
    pub listen: ListenOptions,
    /// `--kubeconfig`: for running outside of the cluster. `None` uses the pod's own credentials.
    pub kubeconfig: Option<PathBuf>,
    /// `--apiserver-url`: the API server as machines reach it. Must be given.
    pub apiserver_url: String,
    /// `--bootstrap-token-dir` (ours): where the Secret `node-bootstrapper-token` is mounted.
    pub bootstrap_token_dir: PathBuf,
    /// `--require-token` (ours): only machines with a boot token get configs. Off by default.
    pub require_token: bool,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self {
            listen: ListenOptions::default(),
            kubeconfig: None,
            apiserver_url: String::new(),
            bootstrap_token_dir: "/etc/mcs/bootstrap-token".into(),
            require_token: false,
        }
    }
}

/// Serves from the cluster until `shutdown`, and then until running answers are finished.
///
/// # Errors
/// An option or certificate that cannot be used, a port that is taken, no cluster to connect to. It is no error if the API
/// server does not answer: machines are told to try again.
pub async fn start(options: StartOptions, shutdown: CancellationToken) -> Result<(), ServerError> {
    StartServer::open(options).await?.run(shutdown).await;
    Ok(())
}

/// Like [`start`], with the caller's client, whose configuration [`tune`] must have set. `options.kubeconfig` is not read.
///
/// # Errors
/// As [`start`].
pub async fn start_with(
    client: Client,
    options: StartOptions,
    shutdown: CancellationToken,
) -> Result<(), ServerError> {
    StartServer::open_with(client, options)?.run(shutdown).await;
    Ok(())
}

/// A cluster server whose ports are open.
#[derive(Debug)]
pub struct StartServer {
    access: Access,
    listeners: Listeners,
    shared: Arc<Shared>,
    follower: Follower,
}

impl StartServer {
    /// Checks the options and opens the ports.
    ///
    /// # Errors
    /// As [`start`].
    pub async fn open(mut options: StartOptions) -> Result<Self, ServerError> {
        let client = connect(options.kubeconfig.take()).await?;
        Self::open_with(client, options)
    }

    fn open_with(client: Client, options: StartOptions) -> Result<Self, ServerError> {
        let StartOptions { listen, kubeconfig: _, apiserver_url, bootstrap_token_dir, require_token } =
            options;
        let bad_url = |why: String| ServerError::Option { option: "apiserver-url", why };
        if apiserver_url.is_empty() {
            return Err(bad_url("must be given: the API server's URL as machines reach it".to_owned()));
        }
        match url::Url::parse(&apiserver_url) {
            Ok(url) if matches!(url.scheme(), "https" | "http") && url.has_host() => {}
            Ok(_) => return Err(bad_url(format!("{apiserver_url:?} is not an https:// URL with a host"))),
            Err(e) => return Err(bad_url(format!("{apiserver_url:?}: {e}"))),
        }
        let boot_tokens =
            require_token.then(|| BootTokens::new(Api::namespaced(client.clone(), boot_token::NAMESPACE)));
        let shared = Arc::new(Shared {
            configs: PreparedConfigs::default(),
            metrics: listen.metrics.clone(),
            boot_tokens,
        });
        let listeners = Listeners::open(&listen)?;
        let payload = listen.payload_version;
        tracing::info!(apiserver_url, payload, require_token, "serving from the cluster");
        let access = Access::fixed(client.clone());
        let follower = Follower::new(client, apiserver_url, bootstrap_token_dir);
        Ok(Self { access, listeners, shared, follower })
    }

    /// Where HTTPS is served.
    ///
    /// # Errors
    /// An address that the system does not tell.
    pub fn secure_addr(&self) -> io::Result<SocketAddr> {
        self.listeners.secure_addr()
    }

    /// Serves until `shutdown`, and then until running answers are finished.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { access, listeners, shared, mut follower } = self;
        let follow = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = follower.follow(&shared) => {}
            }
        };
        tokio::join!(listeners.serve(Arc::clone(&shared), access, shutdown.clone()), follow);
    }
}

async fn connect(kubeconfig: Option<PathBuf>) -> Result<Client, ServerError> {
    let cluster = |e: String| ServerError::Cluster(e);
    let mut config = match kubeconfig {
        Some(path) => {
            let told = |e: kube::config::KubeconfigError| cluster(format!("{}: {e}", path.display()));
            let file = Kubeconfig::read_from(&path).map_err(told)?;
            let options = KubeConfigOptions::default();
            let names_proxy = client::names_proxy(&file, None);
            let mut config = kube::Config::from_custom_kubeconfig(file, &options).await.map_err(told)?;
            client::settle_proxy(&mut config, names_proxy);
            config
        }
        None => kube::Config::infer().await.map_err(|e| cluster(e.to_string()))?,
    };
    tune(&mut config);
    Client::try_from(config).map_err(|e| cluster(e.to_string()))
}

/// Sets the timeouts that the server needs on its API client.
pub fn tune(config: &mut kube::Config) {
    config.connect_timeout = Some(CALL);
}
