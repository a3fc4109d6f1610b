//! What a pointer config of a pool says, looked up in the cluster: the config server's address, its CA, and the pool's boot token.
//!
//! Not here: the pointer config itself (see `ignition::pointer`), and the user data that the operator keeps (see `user_data`).

use api::first_boot::server_tls::{BUNDLE, CA};
use api::first_boot::user_data;
use api::names::{CONTROLLER_CONFIG, NAMESPACE};
use api::v1::{ControllerConfig, MachineConfigPool};
use client::{CallError, call};
use ignition::pointer::Pointer;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::Api;
use std::fmt;

/// What a pointer config says besides its pool and port. All that is `None` in what a person gives is looked up.
#[derive(Clone, Default)]
pub struct PointerFacts {
    /// The config server's host, as it is written in a URL.
    pub host: Option<String>,
    /// The CAs that machines trust (PEM).
    pub ca: Option<Vec<u8>>,
    /// The boot token. It is a secret. `None` after the look-up: the pool has none.
    pub token: Option<String>,
}

impl fmt::Debug for PointerFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        f.debug_struct("PointerFacts").field("host", &self.host).finish_non_exhaustive()
    }
}

/// Why there is no pointer config for a pool.
#[derive(Debug, thiserror::Error)]
pub enum PointerFactsError {
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The pool does not exist.
    #[error("there is no MachineConfigPool {0:?}: `mco status` lists the pools")]
    NoPool(String),
    /// Nobody says where the server is.
    #[error("ControllerConfig {CONTROLLER_CONFIG} does not say how machines reach the server: pass --host")]
    NoHost,
    /// The address is no use to another machine.
    #[error(
        "{0} is a loopback address: each machine would ask itself for its config. Pass --host with an address that machines can \
        reach, or set one with `mco install --api-server-url`"
    )]
    Loopback(String),
    /// The operator has not made the CA yet.
    #[error(
        "ConfigMap {NAMESPACE}/{CA} has no {BUNDLE}: wait until the operator has made it (`mco status`), or pass --ca"
    )]
    NoCa,
}

/// The facts, complete.
#[derive(Clone)]
pub struct CompletePointerFacts {
    host: String,
    ca: Vec<u8>,
    token: Option<String>,
}

impl fmt::Debug for CompletePointerFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is a secret.
        f.debug_struct("CompletePointerFacts").field("host", &self.host).finish_non_exhaustive()
    }
}

impl CompletePointerFacts {
    /// The pointer of a pool.
    pub fn pointer<'a>(&'a self, pool: &'a str, port: u16) -> Pointer<'a> {
        Pointer { host: &self.host, port, pool, ca: &self.ca, token: self.token.as_deref() }
    }
}

impl PointerFacts {
    /// Looks up what is not given, for a pool that has to exist.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    pub async fn look_up(
        self,
        client: &Client,
        pool: &str,
    ) -> Result<CompletePointerFacts, PointerFactsError> {
        let pools: Api<MachineConfigPool> = Api::all(client.clone());
        let what = || format!("get MachineConfigPool {pool}");
        if call(what, pools.get_opt(pool)).await?.is_none() {
            return Err(PointerFactsError::NoPool(pool.to_owned()));
        }
        let host = match self.host {
            Some(host) => host,
            None => host(client).await?.ok_or(PointerFactsError::NoHost)?,
        };
        if user_data::is_loopback(&host) {
            return Err(PointerFactsError::Loopback(host));
        }
        let ca = match self.ca {
            Some(ca) => ca,
            None => ca(client).await?.ok_or(PointerFactsError::NoCa)?,
        };
        let token = match self.token {
            Some(token) => Some(token),
            None => token(client, pool).await?,
        };
        Ok(CompletePointerFacts { host, ca, token })
    }
}

async fn host(client: &Client) -> Result<Option<String>, CallError> {
    let configs: Api<ControllerConfig> = Api::all(client.clone());
    let what = || format!("get ControllerConfig {CONTROLLER_CONFIG}");
    let config = call(what, configs.get_opt(CONTROLLER_CONFIG)).await?;
    Ok(config.and_then(|config| user_data::host(&config.spec)))
}

async fn ca(client: &Client) -> Result<Option<Vec<u8>>, CallError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = call(|| format!("get ConfigMap {NAMESPACE}/{CA}"), maps.get_opt(CA)).await?;
    Ok(map.and_then(|map| map.data?.remove(BUNDLE)).map(String::into_bytes))
}

async fn token(client: &Client, pool: &str) -> Result<Option<String>, CallError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), user_data::NAMESPACE);
    let name = user_data::secret_name(pool);
    let what = || format!("get Secret {}/{name}", user_data::NAMESPACE);
    let secret = call(what, secrets.get_opt(&name)).await?;
    Ok(secret.as_ref().and_then(crate::user_data::token_of).map(|token| token.reveal()))
}
