//! The running operator: keeps the config server's CA and certificate, the user data of machines, and the number of
//! controllers.
//!
//! Flow: something changes, or [`AGAIN`] passes → everything is read again → [`certificates::decide`],
//! [`user_data::plan`] → writes, each bound to the version that was read. A pass that conflicts with another writer is
//! repeated. So several operators may run, and a restart at any point is harmless.
//!
//! What it is not: the manifests of the parts, and the ClusterOperator's status.

use crate::boot_tokens;
use crate::certificates::{self, CertificateError, StoredObjects};
use crate::manifests::pods;
use crate::manifests::rights::CONTROLLER;
use crate::user_data::{self, Facts, NotUpdated, Write};
use api::boot_token::{self, ENTROPY, Record};
use api::events::OperatorEvent;
use api::names::{CONTROLLER_CONFIG, NAMESPACE};
use api::server_tls;
use api::v1::{ControllerConfig, MachineConfigPool};
use client::{CallError, chain};
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The timeout of one request to the API server.
const CALL: Duration = Duration::from_secs(10);
/// Changes come in bursts: a pass begins this long after the first change.
const SETTLE: Duration = Duration::from_millis(500);
/// A pass is made at least this often. Certificates age for years without any change in the cluster.
const AGAIN: Duration = Duration::from_secs(3600);
/// The wait after a failed pass.
const RETRY: Duration = Duration::from_secs(10);

/// The operator's options.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The config server asks for boot tokens, so user data must have them.
    pub require_token: bool,
}

/// Why a pass failed. No text quotes a Secret.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server refused a request, or did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A certificate could not be created.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The ControllerConfig has no address of the API server.
    #[error(
        "ControllerConfig {CONTROLLER_CONFIG} does not say how machines reach the API server: set \
        spec.infra.status.apiServerInternalURI"
    )]
    NoHost,
    /// Its address is loopback, which is each machine itself.
    #[error(
        "no user data is written: machines would ask themselves for their config at {host}. Set \
        spec.infra.status.apiServerInternalURI of ControllerConfig {CONTROLLER_CONFIG} to an address that machines \
        reach, or run `mco install --api-server-url`"
    )]
    Loopback {
        /// The host that the ControllerConfig names.
        host: String,
    },
    /// The system returns no random bytes.
    #[error("the system's random number generator failed")]
    Random,
}

pub(crate) async fn call<T>(
    what: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    client::call_within(CALL, || what, request).await
}

/// Whether somebody else wrote first. The next pass reads what they wrote.
fn is_conflict(error: &ReconcileError) -> bool {
    matches!(error, ReconcileError::Call(error) if error.is_conflict())
}

/// Creates an object, or replaces the version that it carries.
async fn write<K>(api: &Api<K>, object: &K) -> Result<(), CallError>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug,
{
    let (kind, name, params) = (K::kind(&()), object.name_any(), PostParams::default());
    if object.meta().resource_version.is_some() {
        call(format!("replace {kind} {name}"), api.replace(&name, &params, object)).await.map(drop)
    } else {
        call(format!("create {kind} {name}"), api.create(&params, object)).await.map(drop)
    }
}

/// Reads everything, writes what is missing or outdated, and returns what it wrote.
///
/// # Errors
/// The first read or write that failed. Earlier writes stay; they are complete in themselves.
pub async fn pass(client: &Client, options: Options) -> Result<Vec<String>, ReconcileError> {
    let now = Timestamp::now();
    let all = ListParams::default();
    let configs: Api<ControllerConfig> = Api::all(client.clone());
    let facts =
        call(format!("get ControllerConfig {CONTROLLER_CONFIG}"), configs.get(CONTROLLER_CONFIG)).await?.spec;
    let mut done = vec![];
    // An error here must not stop the rest of the pass.
    let controllers = keep_controllers(client, facts.control_plane_topology(), &mut done).await;
    let host = api::user_data::host(&facts).ok_or(ReconcileError::NoHost)?;
    let ca = keep_certificates(client, &api::user_data::host_names(&facts), now, &mut done).await?;

    if api::user_data::is_loopback(&host) {
        return Err(ReconcileError::Loopback { host });
    }

    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pools = call("list MachineConfigPools".to_owned(), pools.list(&all)).await?.items;
    keep_namespace(client, &mut done).await?;
    let provider: Api<Secret> = Api::namespaced(client.clone(), api::user_data::NAMESPACE);
    let secrets = call("list Secrets of machine providers".to_owned(), provider.list(&all)).await?.items;
    let own: Api<Secret> = Api::namespaced(client.clone(), boot_token::NAMESPACE);
    let mut finished = true;
    let tokens = if options.require_token {
        if boot_tokens::keep_namespace(client).await? {
            done.push(format!("Namespace {}", boot_token::NAMESPACE));
        }
        let brought = boot_tokens::move_tokens(client).await?;
        let told = |name| format!("Secret {}/{name}: moved here", boot_token::NAMESPACE);
        done.extend(brought.copied.iter().map(told));
        finished = brought.finished;
        let labelled = ListParams::default().labels(boot_token::LABEL);
        let listed = call("list boot tokens".to_owned(), own.list(&labelled)).await?.items;
        Some(listed.iter().filter_map(|s| Record::from_secret(s).ok()).collect::<Vec<_>>())
    } else {
        None
    };
    if finished && boot_tokens::take_back(client).await? {
        done.push(format!("the right to boot tokens in {}: revoked", boot_token::OLD_NAMESPACE));
    }
    let facts = Facts {
        host: &host,
        ca: ca.as_bytes(),
        pools: &pools,
        secrets: &secrets,
        tokens: tokens.as_deref(),
        now,
    };
    let mut random = Ok(());
    let plan = user_data::plan(&facts, || {
        let mut bytes = [0; ENTROPY];
        if rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut bytes).is_err() {
            random = Err(ReconcileError::Random);
        }
        bytes
    });
    random?;
    for left in &plan.left {
        tracing::warn!("left as it is: {left}");
        tell(client, left, now).await;
    }
    // A Secret that cannot be written must not stop the others.
    let mut failed = None;
    for Write { secret, token, why } in &plan.writes {
        if let Some(token) = token
            && let Err(error) = write(&own, &token.to_secret()).await
        {
            failed.get_or_insert(error);
            continue;
        }
        let written = write(&provider, secret).await;
        if let (Err(_), Some(token)) = (&written, token) {
            // The token is in no user data, so it must not stay valid.
            let name = token.secret_name();
            let gone =
                call(format!("delete Secret {name}"), own.delete(&name, &DeleteParams::default())).await;
            if let Err(error) = gone {
                tracing::warn!("a boot token that is not in use could not be deleted: {error}");
            }
        }
        match written {
            Ok(_) => done.push(format!("user data {}: {why}", secret.name_any())),
            Err(error) => {
                if let Some(left) = refused(secret, &error) {
                    tell(client, &left, now).await;
                }
                failed.get_or_insert(error);
            }
        }
    }
    controllers?;
    failed.map_or(Ok(done), |error| Err(error.into()))
}

/// The report on a Secret that the API server refuses to change, with its message. `None`: another try may succeed.
fn refused(secret: &Secret, error: &CallError) -> Option<NotUpdated> {
    matches!(error.code(), Some(400 | 403 | 422)).then(|| NotUpdated {
        kind: "Secret",
        name: secret.name_any(),
        uid: secret.metadata.uid.clone(),
        reason: OperatorEvent::UserDataNotWritten,
        why: format!("machines created with it get its previous contents: {}", chain(error)),
    })
}

/// Creates an event about an object that we cannot change, where people look. A failure does not fail the pass.
async fn tell(client: &Client, left: &NotUpdated, now: Timestamp) {
    let events: Api<Event> = Api::namespaced(client.clone(), api::user_data::NAMESPACE);
    let event = left.event(now);
    match call(format!("create an event about {}", left.name), events.create(&PostParams::default(), &event))
        .await
    {
        // The event already exists, for as long as the cluster keeps events.
        Err(error) if error.is_conflict() => {}
        Err(error) => tracing::debug!("{}", chain(&error)),
        Ok(_) => {}
    }
}

/// Keeps the CA, bundle and certificate up to date, and returns the bundle.
async fn keep_certificates(
    client: &Client,
    hosts: &[String],
    now: Timestamp,
    done: &mut Vec<String>,
) -> Result<String, ReconcileError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let get = |name: &'static str| call(format!("get Secret {NAMESPACE}/{name}"), secrets.get_opt(name));
    let (ca, serving) = (get(server_tls::CA).await?, get(server_tls::SERVING).await?);
    let name = server_tls::CA;
    let bundle = call(format!("get ConfigMap {NAMESPACE}/{name}"), maps.get_opt(name)).await?;
    let have = StoredObjects { ca: ca.as_ref(), bundle: bundle.as_ref(), serving: serving.as_ref(), hosts };
    let decision = certificates::decide(&have, now);
    for foreign in &decision.foreign {
        tracing::debug!("{foreign} was not created by this operator: it is used, but never renewed");
    }
    let issued = certificates::issue(&decision, &have, now)?;
    // The CA first, so that nothing is signed by a CA that was not saved. Then the bundle, so that machines trust the CA
    // before the server uses its certificate.
    if let Some(secret) = &issued.ca {
        write(&secrets, secret).await?;
        done.push(format!("CA {name}: {}", decision.ca.unwrap_or_default()));
    }
    if let Some(map) = &issued.bundle {
        write(&maps, map).await?;
        done.push(format!("bundle {name}"));
    }
    if let Some(secret) = &issued.serving {
        write(&secrets, secret).await?;
        done.push(format!("certificate {}: {}", server_tls::SERVING, decision.serving.unwrap_or_default()));
    }
    let bundle = issued.bundle.or(bundle).and_then(|b| b.data).and_then(|mut d| d.remove(server_tls::BUNDLE));
    Ok(bundle.unwrap_or_default())
}

/// Sets the number of controllers for the control plane. There is no Deployment if they run elsewhere.
async fn keep_controllers(
    client: &Client,
    topology: &str,
    done: &mut Vec<String>,
) -> Result<(), ReconcileError> {
    let (api, name) = (Api::<Deployment>::namespaced(client.clone(), NAMESPACE), CONTROLLER);
    let there = call(format!("get Deployment {NAMESPACE}/{name}"), api.get_opt(name)).await?;
    let wanted = pods::controllers(topology);
    let Some(patch) = there.and_then(|d| pods::scaled(&d, wanted)) else { return Ok(()) };
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    let request = api.patch(name, &params, &patch);
    call(format!("scale Deployment {NAMESPACE}/{name}"), request).await?;
    done.push(format!("Deployment {name}: {wanted} for the topology {topology}"));
    Ok(())
}

async fn keep_namespace(client: &Client, done: &mut Vec<String>) -> Result<(), ReconcileError> {
    let (all, name) = (Api::<Namespace>::all(client.clone()), api::user_data::NAMESPACE);
    if call(format!("get Namespace {name}"), all.get_opt(name)).await?.is_none() {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        write(&all, &namespace).await?;
        done.push(format!("Namespace {name}"));
    }
    Ok(())
}

/// Yields when something that a pass depends on changes. An error of a watch counts as a change: the pass reports it.
fn changes(client: &Client, options: Options) -> SelectAll<BoxStream<'static, ()>> {
    fn of<K>(api: Api<PartialObjectMeta<K>>, config: watcher::Config) -> BoxStream<'static, ()>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        watcher::watcher(api, config).default_backoff().map(|_| ()).boxed()
    }
    let all = watcher::Config::default();
    let named = |name: &str| all.clone().fields(&format!("metadata.name={name}"));
    let own =
        |name: &str| of(Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), NAMESPACE), named(name));
    let tokens = all.clone().labels(boot_token::LABEL);
    let mut streams = SelectAll::new();
    streams
        .push(of(Api::<PartialObjectMeta<ControllerConfig>>::all(client.clone()), named(CONTROLLER_CONFIG)));
    streams.push(of(Api::<PartialObjectMeta<MachineConfigPool>>::all(client.clone()), all.clone()));
    streams.push(own(server_tls::CA));
    streams.push(own(server_tls::SERVING));
    streams.push(of(
        Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), NAMESPACE),
        named(server_tls::CA),
    ));
    streams.push(of(
        Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), api::user_data::NAMESPACE),
        all.clone(),
    ));
    if options.require_token {
        // Without the option the operator has no right to watch them.
        let own = Api::<PartialObjectMeta<Secret>>::namespaced(client.clone(), boot_token::NAMESPACE);
        streams.push(of(own, tokens));
    }
    streams
}

/// Makes passes until `stop`. A failed pass is logged and repeated.
pub async fn run(client: Client, options: Options, stop: CancellationToken) {
    let mut changes = changes(&client, options);
    loop {
        let rest = match pass(&client, options).await {
            Ok(done) => {
                done.iter().for_each(|d| tracing::info!("written: {d}"));
                AGAIN
            }
            Err(error) if is_conflict(&error) => Duration::ZERO,
            Err(error) => {
                tracing::warn!("{}", chain(&error));
                RETRY
            }
        };
        // A failed pass waits in any case: changes must not cause a busy loop.
        if rest == RETRY {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            _ = changes.next() => {}
            () = tokio::time::sleep(rest) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SETTLE) => {}
        }
        while let Some(Some(())) = futures::FutureExt::now_or_never(changes.next()) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_api_server_does_not_let_be_written_is_told_on_the_secret() {
        let mut secret = Secret::default();
        secret.metadata.name = Some("worker-user-data".to_owned());
        let error = |code: u16| {
            let status = kube::core::Status::failure("field is immutable when `immutable` is set", "Invalid")
                .with_code(code);
            CallError::Api {
                what: "write Secret worker-user-data".to_owned(),
                source: Box::new(kube::Error::Api(Box::new(status))),
            }
        };
        for code in [400, 403, 422] {
            let left = refused(&secret, &error(code)).unwrap();
            assert_eq!(
                (left.name.as_str(), left.reason),
                ("worker-user-data", OperatorEvent::UserDataNotWritten)
            );
            assert!(left.why.contains("field is immutable"), "{}", left.why);
        }
        for code in [409, 429, 500, 503] {
            assert!(refused(&secret, &error(code)).is_none(), "{code} may pass by itself");
        }
    }
}
