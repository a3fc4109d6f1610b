//! How registries are talked to about the images of nodes: with the nodes' own mirrors, the cluster's pull secrets, authorities and
//! proxy.
//!
//! What it is not: a copy of these in memory. They are read for each look, which there are few of.

use crate::cache::stores::{DEFAULT_NAMESPACE, SecretLocation, pull_secret_location};
use crate::shared::Shared;
use api::k8s::Secret;
use api::v1::{ControllerConfigSpec, MachineConfig};
use client::call;
use kube::Api;
use registry::{Cache, Limits, Proxies, Routes, Settings, Trust};
use std::time::Duration;

/// The file with the nodes' mirrors.
const REGISTRIES_CONF: &str = api::paths::REGISTRIES_CONF;
/// The key of a pull secret.
const PULL_SECRET: &str = ".dockerconfigjson";
/// How long a look at one image may take. Nodes wait for it.
const WHOLE: Duration = Duration::from_secs(45);
/// How long one of an image's places may take to connect, and to answer. The next look is the next attempt.
const CONNECT: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(10);

/// The settings for a look at images, with the mirrors of this rendered config (empty: without); else why there are none.
pub(in crate::passes) async fn settings(
    shared: &Shared,
    config: &str,
    cache: Cache,
) -> Result<Settings, String> {
    settings_with(shared, config, cache, &[]).await
}

/// The same with these credentials before all others. Each is an auth.json.
pub(in crate::passes) async fn settings_with(
    shared: &Shared,
    config: &str,
    cache: Cache,
    first: &[Vec<u8>],
) -> Result<Settings, String> {
    let Some(cluster) = shared.stores.controller_config() else {
        return Err("there is no ControllerConfig with the pull secret".to_owned());
    };
    let mirrors = match config {
        "" => None,
        config => {
            let api = shared.api::<MachineConfig>();
            let rendered =
                call(|| format!("machineconfig {config}"), api.get(config)).await.map_err(|e| e.chain())?;
            build::objects::file(&rendered, REGISTRIES_CONF)
        }
    };
    let secret = pull_secret(shared, pull_secret_location(cluster.spec.pull_secret.as_ref())).await?;
    from(&cluster.spec, first, secret.as_deref(), mirrors.as_deref(), cache)
}

async fn pull_secret(shared: &Shared, at: SecretLocation) -> Result<Option<Vec<u8>>, String> {
    let Some((namespace, name)) = at.filter(|(_, name)| !name.is_empty()) else { return Ok(None) };
    let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { &namespace };
    let api = Api::<Secret>::namespaced(shared.client.clone(), namespace);
    let secret =
        call(|| format!("secret {namespace}/{name}"), api.get_opt(&name)).await.map_err(|e| e.chain())?;
    Ok(secret.and_then(|s| s.data?.remove(PULL_SECRET)).map(|bytes| bytes.0))
}

/// The settings, from what was read.
fn from(
    cluster: &ControllerConfigSpec,
    first: &[Vec<u8>],
    secret: Option<&[u8]>,
    mirrors: Option<&str>,
    cache: Cache,
) -> Result<Settings, String> {
    let limits = Limits { whole: WHOLE, connect: CONNECT, request: ANSWER, attempts: 1, ..Limits::default() };
    let mut settings = Settings { cache, limits, ..Settings::default() };
    for json in first {
        settings.credentials.add(json).map_err(|e| format!("the push secret {e}"))?;
    }
    let internal =
        cluster.internal_registry_pull_secret.as_ref().map(|s| s.0.as_slice()).filter(|s| !s.is_empty());
    for (what, json) in
        [("the pull secret", secret), ("the pull secret of the cluster's own registry", internal)]
    {
        if let Some(json) = json {
            settings.credentials.add(json).map_err(|e| format!("{what} {e}"))?;
        }
    }
    let mut routes = Routes::default();
    if let Some(text) = mirrors {
        routes.add(text).map_err(|e| format!("{REGISTRIES_CONF} {e}"))?;
    }
    settings.routes = routes;
    settings.trust = trust(cluster);
    settings.proxies = match &cluster.proxy {
        Some(proxy) => Proxies::new(&proxy.http_proxy, &proxy.https_proxy, &proxy.no_proxy),
        None => Proxies::of_environment(),
    };
    Ok(settings)
}

fn trust(cluster: &ControllerConfigSpec) -> Trust {
    let mut trust = Trust::default();
    if let Some(bundle) = &cluster.additional_trust_bundle {
        trust.add(None, &bundle.0);
    }
    let bundles = [&cluster.image_registry_bundle_data, &cluster.image_registry_bundle_user_data];
    for bundle in bundles.into_iter().flatten().flatten() {
        // A file's name cannot have a colon everywhere: HOST..PORT.
        trust.add(Some(&bundle.file.replace("..", ":")), &bundle.data.0);
    }
    trust
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_come_from_the_cluster_and_what_cannot_be_read_is_told_without_secrets() {
        let cluster: ControllerConfigSpec =
            serde_json::from_value(json!({"proxy": {"httpsProxy": "http://p:1"}})).unwrap();
        let good = |secret: Option<&[u8]>, mirrors: Option<&str>| {
            from(&cluster, &[], secret, mirrors, Cache::default())
        };
        assert!(
            good(Some(b"{\"auths\": {}}"), Some("[[registry]]\nlocation = \"q.io\"\nblocked = true")).is_ok()
        );
        assert!(good(None, None).is_ok());
        let secret = good(Some(b"hunter2"), None).unwrap_err();
        assert!(
            secret.starts_with("the pull secret does not have the format") && !secret.contains("hunter2"),
            "{secret}"
        );
        let push = from(&cluster, &[b"hunter2".to_vec()], None, None, Cache::default()).unwrap_err();
        assert!(
            push.starts_with("the push secret does not have the format") && !push.contains("hunter2"),
            "{push}"
        );
        let mirrors = good(None, Some("registry = 1")).unwrap_err();
        assert!(mirrors.starts_with("/etc/containers/registries.conf does not have the format"), "{mirrors}");
    }
}
