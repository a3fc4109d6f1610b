//! Deletes one thing in its registry, with the Secret that it was pushed with, and the pool's settings for registries. Nothing is
//! decided here.

use crate::passes::os_images::access;
use crate::shared::Shared;
use api::k8s::Secret;
use api::names::NAMESPACE;
use build::pushed::{Deletion, Failure, Pushed, What, layer_tags, signature_tag};
use client::call;
use kube::Api;
use registry::{Cache, Reference, Registry, RegistryError};

/// Deletes it. What is not there any more counts as deleted.
pub(super) async fn remove(shared: &Shared, deletion: &Deletion) -> Result<(), Failure> {
    let Deletion { pushed, spare } = deletion;
    let registry = Registry::new(settings(shared, pushed).await?);
    match &pushed.what {
        What::Image { name, .. } => {
            let image = parsed(name)?;
            // First what belongs to it: an image that is gone leaves the list.
            if let Some(signature) = signature_tag(name) {
                let signature = parsed(&signature)?;
                if let Some(digest) = Box::pin(registry.digest_at_source(&signature)).await.map_err(failed)? {
                    Box::pin(registry.delete(&signature.at(digest))).await.map_err(failed)?;
                }
            }
            Box::pin(registry.delete(&image)).await.map_err(failed)?;
        }
        What::Layers { repository } => {
            let all = Box::pin(registry.tags(&parsed(repository)?)).await.map_err(failed)?;
            let (layers, images) = layer_tags(all);
            // The last layer of a build and its image are one manifest: what an image's tag names stays, whoever has pushed it.
            let mut spare = spare.clone();
            for tag in images {
                let image = parsed(&format!("{repository}:{tag}"))?;
                let digest = Box::pin(registry.digest_at_source(&image)).await.map_err(failed)?;
                spare.extend(digest.map(|digest| digest.to_string()));
            }
            for tag in layers {
                let layer = parsed(&format!("{repository}:{tag}"))?;
                let digest = Box::pin(registry.digest_at_source(&layer)).await.map_err(failed)?;
                if let Some(digest) = digest.filter(|digest| !spare.contains(digest.as_str())) {
                    Box::pin(registry.delete(&layer.at(digest))).await.map_err(failed)?;
                }
            }
        }
    }
    Ok(())
}

fn parsed(name: &str) -> Result<Reference, Failure> {
    Reference::parse(name).map_err(|e| Failure { why: e.to_string(), temporary: false })
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: RegistryError) -> Failure {
    Failure { temporary: error.is_temporary(), why: error.to_string() }
}

/// How the registry is talked to: credentials of the push secret, mirrors and such of the pool's config.
async fn settings(shared: &Shared, pushed: &Pushed) -> Result<registry::Settings, Failure> {
    // People can mend all of this.
    let failed = |why: String| Failure { why, temporary: true };
    let name = &pushed.secret;
    let api: Api<Secret> = Api::namespaced(shared.client.clone(), NAMESPACE);
    let found = call(|| format!("get secret {NAMESPACE}/{name}"), api.get_opt(name)).await.map_err(|e| {
        let remedy = "; give the controller the right to get this Secret (see the page Image mode)";
        failed(format!("{}{}", e.chain(), if e.is_forbidden() { remedy } else { "" }))
    })?;
    let Some(first) = found.and_then(credentials) else {
        let why = format!(
            "secret {NAMESPACE}/{name} is not there, or has neither .dockerconfigjson nor .dockercfg"
        );
        return Err(failed(why));
    };
    let config = shared.stores.pools.get(&pushed.pool).map(|p| p.spec.configuration.name.clone());
    let config = config.unwrap_or_default();
    access::settings_with(shared, &config, Cache::default(), &[first]).await.map_err(failed)
}

/// The credentials of a Secret, as an auth.json.
fn credentials(secret: Secret) -> Option<Vec<u8>> {
    let mut data = secret.data?;
    if let Some(whole) = data.remove(".dockerconfigjson") {
        return Some(whole.0);
    }
    // The older form lacks the outer level.
    let inner = data.remove(".dockercfg")?.0;
    Some([b"{\"auths\":", inner.as_slice(), b"}"].concat())
}
