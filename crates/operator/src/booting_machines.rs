//! What booting machines need: the config server's CA and certificate, the user data of machines, and their boot tokens.
//!
//! Flow: everything is read → [`certificates::decide`], [`user_data::plan`] → writes, each bound to the version that was
//! read. Somebody else who wrote first makes a conflict, and the caller tries again.
//!
//! What it is not: when this happens (see `sync`), and the manifests of the parts.

use crate::boot_tokens;
use crate::certificates::{self, Names, StoredObjects};
use crate::monitoring;
use crate::reconcile_error::ReconcileError;
use crate::request::call;
use crate::user_data::{self, Facts, NotUpdated, Write};
use api::events::OperatorEvent;
use api::first_boot::boot_token::{self, ENTROPY, Record};
use api::first_boot::server_tls;
use api::names::NAMESPACE;
use api::v1::{ControllerConfigSpec, MachineConfigPool};
use client::{CallError, chain};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

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

/// Keeps the CA, bundle and certificate, and adds what it wrote to `done`. Returns a sentence for each CA that ends soon and that only
/// somebody else can renew.
///
/// # Errors
/// The first read or write that failed. Earlier writes stay; they are complete in themselves.
pub(crate) async fn certificates(
    client: &Client,
    facts: &ControllerConfigSpec,
    done: &mut Vec<String>,
) -> Result<Vec<String>, ReconcileError> {
    api::first_boot::user_data::host(facts).ok_or(ReconcileError::NoHost)?;
    let hosts = api::first_boot::user_data::host_names(facts);
    let ending = keep_certificates(client, certificates::SERVER, &hosts, Timestamp::now(), done).await?;
    Ok(ending.into_iter().collect())
}

/// Keeps the CA of the metrics' certificates and one certificate for each of these parts, and adds what it wrote to `done`. Returns
/// the same as [`certificates`].
///
/// # Errors
/// The first read or write that failed. Earlier writes stay; they are complete in themselves.
pub(crate) async fn metrics_certificates(
    client: &Client,
    parts: &[&str],
    done: &mut Vec<String>,
) -> Result<Vec<String>, ReconcileError> {
    let mut ending = vec![];
    for part in parts {
        let serving = monitoring::certificate(part);
        let names = Names { ca: monitoring::CA, serving: &serving, subject: "machine-config.metrics" };
        let hosts = [monitoring::server_name(part)];
        ending.extend(keep_certificates(client, names, &hosts, Timestamp::now(), done).await?);
    }
    // They have one CA.
    ending.dedup();
    Ok(ending)
}

/// Keeps user data and boot tokens, and adds what it wrote to `done`. `require_token`: the config server asks for boot
/// tokens, so user data must have them.
///
/// # Errors
/// As [`certificates`].
pub(crate) async fn user_data(
    client: &Client,
    facts: &ControllerConfigSpec,
    pools: &[MachineConfigPool],
    require_token: bool,
    done: &mut Vec<String>,
) -> Result<(), ReconcileError> {
    let now = Timestamp::now();
    let all = ListParams::default();
    let host = api::first_boot::user_data::host(facts).ok_or(ReconcileError::NoHost)?;
    if api::first_boot::user_data::is_loopback(&host) {
        return Err(ReconcileError::Loopback { host });
    }
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let name = server_tls::CA;
    let bundle = call(format!("get ConfigMap {NAMESPACE}/{name}"), maps.get_opt(name)).await?;
    let ca = trusted(bundle)?;
    keep_namespace(client, done).await?;
    let provider: Api<Secret> = Api::namespaced(client.clone(), api::first_boot::user_data::NAMESPACE);
    let secrets = call("list Secrets of machine providers".to_owned(), provider.list(&all)).await?.items;
    let own: Api<Secret> = Api::namespaced(client.clone(), boot_token::NAMESPACE);
    let mut finished = true;
    let tokens = if require_token {
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
    let facts =
        Facts { host: &host, ca: ca.as_bytes(), pools, secrets: &secrets, tokens: tokens.as_deref(), now };
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
        create_event(client, left, now).await;
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
                    create_event(client, &left, now).await;
                }
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// The CAs that machines are to trust. User data without one would make machines that trust no config server.
fn trusted(bundle: Option<ConfigMap>) -> Result<String, ReconcileError> {
    let ca = bundle.and_then(|map| map.data?.remove(server_tls::BUNDLE));
    ca.filter(|ca| !ca.trim().is_empty()).ok_or(ReconcileError::NoCa)
}

/// The report on a Secret that the API server refuses to change, with its message. `None`: another try may succeed.
fn refused(secret: &Secret, error: &CallError) -> Option<NotUpdated> {
    error.is_refused().then(|| NotUpdated {
        kind: "Secret",
        name: secret.name_any(),
        uid: secret.metadata.uid.clone(),
        reason: OperatorEvent::UserDataNotWritten,
        why: format!("machines created with it get its previous contents: {}", chain(error)),
    })
}

/// Creates an event about an object that we cannot change, where people look. A failure does not fail the pass.
async fn create_event(client: &Client, left: &NotUpdated, now: Timestamp) {
    let events: Api<Event> = Api::namespaced(client.clone(), api::first_boot::user_data::NAMESPACE);
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

/// Keeps the CA, bundle and certificate up to date. Returns that the CA ends soon, if only somebody else can renew it.
async fn keep_certificates(
    client: &Client,
    names: Names<'_>,
    hosts: &[String],
    now: Timestamp,
    done: &mut Vec<String>,
) -> Result<Option<String>, ReconcileError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let get = async |name: &str| call(format!("get Secret {NAMESPACE}/{name}"), secrets.get_opt(name)).await;
    let (ca, serving) = (get(names.ca).await?, get(names.serving).await?);
    let name = names.ca;
    let bundle = call(format!("get ConfigMap {NAMESPACE}/{name}"), maps.get_opt(name)).await?;
    let have =
        StoredObjects { names, ca: ca.as_ref(), bundle: bundle.as_ref(), serving: serving.as_ref(), hosts };
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
        done.push(format!("certificate {}: {}", names.serving, decision.serving.unwrap_or_default()));
    }
    Ok(decision.ending)
}

async fn keep_namespace(client: &Client, done: &mut Vec<String>) -> Result<(), ReconcileError> {
    let (all, name) = (Api::<Namespace>::all(client.clone()), api::first_boot::user_data::NAMESPACE);
    if call(format!("get Namespace {name}"), all.get_opt(name)).await?.is_none() {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        write(&all, &namespace).await?;
        done.push(format!("Namespace {name}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_data_is_made_without_a_ca() {
        let bundle = |pem: &str| ConfigMap {
            data: Some([(server_tls::BUNDLE.to_owned(), pem.to_owned())].into()),
            ..ConfigMap::default()
        };
        assert_eq!(trusted(Some(bundle("a CA"))).unwrap(), "a CA");
        for without in [None, Some(ConfigMap::default()), Some(bundle("")), Some(bundle("\n"))] {
            let error = trusted(without.clone()).unwrap_err();
            assert!(matches!(error, ReconcileError::NoCa), "{without:?}: {error}");
        }
    }

    #[test]
    fn what_the_api_server_does_not_let_be_written_is_told_on_the_secret() {
        let mut secret = Secret::default();
        secret.metadata.name = Some("worker-user-data".to_owned());
        let answer = |code: u16, said: &str| {
            let status = kube::core::Status::failure(said, "Invalid").with_code(code);
            CallError::Api {
                what: "write Secret worker-user-data".to_owned(),
                source: Box::new(kube::Error::Api(Box::new(status))),
            }
        };
        let error = |code| answer(code, "field is immutable when `immutable` is set");
        for code in [400, 403, 413, 422] {
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
        let denied = answer(409, "admission webhook \"w\" denied the request: not today");
        assert!(refused(&secret, &denied).is_some(), "a webhook chooses the code itself");
        let starts = "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: x";
        assert!(
            refused(&secret, &answer(422, starts)).is_none(),
            "an API server that starts passes by itself"
        );
    }
}
