//! Deletes one thing in its registry, with the Secret that it was pushed with, and the pool's settings for registries. Nothing is
//! decided here.

use super::{Cleaner, Verdict};
use crate::passes::os_images::access;
use crate::shared::Shared;
use api::k8s::Secret;
use api::names::NAMESPACE;
use build::pushed::{DeletionFailure, Pushed, PushedContent, Retry, layer_tags, other_tags, signature_tag};
use client::{CallError, call};
use kube::Api;
use registry::{Cache, Digest, Reference, Registry, RegistryError};
use std::collections::BTreeSet;

/// Tags of layers after which it is asked again whether they still go.
const ASKED_EVERY: usize = 20;

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Removed {
    /// It is gone. What was not there any more counts as deleted.
    All,
    /// Something names it by now.
    Stopped,
    /// Pods may still push to this tag, or it is not known what names the image.
    Later,
    /// This tag is not there.
    Nothing,
    /// This tag names an image.
    Is(Box<Pushed>),
}

/// Deletes it. Right before anything is deleted it is asked whether it still goes: registries may be slow, and somebody may take an
/// image meanwhile.
pub(super) async fn remove(cleaner: &Cleaner, pushed: &Pushed) -> Result<Removed, DeletionFailure> {
    let registry = Registry::new(settings(&cleaner.shared, pushed).await?);
    match &pushed.what {
        PushedContent::Tag { name } => {
            // Not after it: what is pushed in between would be forgotten.
            if let Some(stopped) = stopped(&verdict(cleaner, pushed).await?) {
                return Ok(stopped);
            }
            let found = Box::pin(registry.digest_at_source(&parsed(name)?)).await;
            let digest = found.map_err(|e| not_looked_up(&e))?;
            let image = digest.and_then(|digest| pushed.found(digest.as_str()));
            return Ok(image.map_or(Removed::Nothing, |image| Removed::Is(Box::new(image))));
        }
        PushedContent::Image { name, tag } => {
            let image = parsed(name)?;
            if let Some(other) = Box::pin(other_name(&registry, &image, tag)).await? {
                let why = format!(
                    "tag {other} points to the same image, and deleting the image would delete that tag"
                );
                return Err(DeletionFailure { why, retry: Retry::Never });
            }
            if let Some(stopped) = stopped(&verdict(cleaner, pushed).await?) {
                return Ok(stopped);
            }
            // First what belongs to it: an image that is gone leaves the list.
            if let Some(signature) = signature_tag(name) {
                let signature = parsed(&signature)?;
                if let Some(digest) = digest_of(&registry, &signature).await? {
                    Box::pin(registry.delete(&signature.at(digest))).await.map_err(failed)?;
                }
            }
            Box::pin(registry.delete(&image)).await.map_err(failed)?;
        }
        PushedContent::Layers { repository } => {
            let all = Box::pin(registry.tags(&parsed(repository)?)).await.map_err(failed)?;
            let (layers, images) = layer_tags(all);
            // The last layer of a build and its image are one manifest: what an image's tag names stays, whoever has pushed it.
            let mut tagged = BTreeSet::new();
            for tag in images {
                let image = parsed(&format!("{repository}:{tag}"))?;
                let found = Box::pin(registry.digests_at_source(&image)).await.map_err(failed)?;
                tagged.extend(found.iter().map(ToString::to_string));
            }
            for some in layers.chunks(ASKED_EVERY) {
                let spare = match verdict(cleaner, pushed).await? {
                    Verdict::Goes { spare } => spare,
                    other => return Ok(stopped(&other).unwrap_or(Removed::Stopped)),
                };
                for tag in some {
                    let layer = parsed(&format!("{repository}:{tag}"))?;
                    let digest = digest_of(&registry, &layer).await?;
                    let is_spared = |d: &Digest| spare.contains(d.as_str()) || tagged.contains(d.as_str());
                    if let Some(digest) = digest.filter(|digest| !is_spared(digest)) {
                        Box::pin(registry.delete(&layer.at(digest))).await.map_err(failed)?;
                    }
                }
            }
        }
    }
    Ok(Removed::All)
}

/// What became of something that does not go now. `None`: it goes.
fn stopped(verdict: &Verdict) -> Option<Removed> {
    match verdict {
        Verdict::Goes { .. } => None,
        Verdict::Later => Some(Removed::Later),
        Verdict::Stays => Some(Removed::Stopped),
    }
}

/// Whether it goes, by now.
async fn verdict(cleaner: &Cleaner, pushed: &Pushed) -> Result<Verdict, DeletionFailure> {
    // The API server is away, and so is this for a while.
    let failed = |e: CallError| DeletionFailure { why: e.chain(), retry: Retry::UntilFixed };
    cleaner.ask(pushed).await.map_err(failed)
}

/// Another tag of the image's repository that names the same image: a deletion takes all of its tags.
async fn other_name(
    registry: &Registry,
    image: &Reference,
    own: &str,
) -> Result<Option<String>, DeletionFailure> {
    let repository = image.name();
    let all = Box::pin(registry.tags(image)).await.map_err(|e| not_seen(&e))?;
    let own_tag = own.strip_prefix(&format!("{repository}:")).unwrap_or_default();
    // No tags: they have gone, or this registry does not list them.
    if all.is_empty() && !own_tag.is_empty() && digest_of(registry, &parsed(own)?).await?.is_some() {
        let why = format!(
            "the registry does not list the tags of {repository}, so it is not known whether another tag points to it"
        );
        return Err(DeletionFailure { why, retry: Retry::ForAWeek });
    }
    for tag in other_tags(all, own_tag) {
        let other = parsed(&format!("{repository}:{tag}"))?;
        let found = Box::pin(registry.digests_at_source(&other)).await.map_err(|e| not_seen(&e))?;
        if found.iter().any(|digest| Some(digest) == image.digest()) {
            return Ok(Some(other.to_string()));
        }
    }
    Ok(None)
}

async fn digest_of(registry: &Registry, image: &Reference) -> Result<Option<Digest>, DeletionFailure> {
    Box::pin(registry.digest_at_source(image)).await.map_err(failed)
}

fn parsed(name: &str) -> Result<Reference, DeletionFailure> {
    Reference::parse(name).map_err(|e| DeletionFailure { why: e.to_string(), retry: Retry::Never })
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: RegistryError) -> DeletionFailure {
    let retry = if error.is_temporary() { Retry::ForAWeek } else { Retry::Never };
    DeletionFailure { retry, why: error.to_string() }
}

/// It is not known yet whether anything has to be deleted: a registry may also refuse to look up an image that does not
/// exist. So the look-up is tried again.
fn not_looked_up(error: &RegistryError) -> DeletionFailure {
    let retry = if error.is_temporary() { Retry::ForAWeek } else { Retry::UntilFixed };
    DeletionFailure { retry, why: error.to_string() }
}

/// What else names an image is not known, so it stays for now.
fn not_seen(error: &RegistryError) -> DeletionFailure {
    DeletionFailure {
        why: format!("it is not known whether another tag points to it: {error}"),
        retry: Retry::ForAWeek,
    }
}

/// How the registry is talked to: credentials of the push secret, mirrors and such of the pool's config.
async fn settings(shared: &Shared, pushed: &Pushed) -> Result<registry::Settings, DeletionFailure> {
    // People can mend all of this.
    let failed = |why: String| DeletionFailure { why, retry: Retry::UntilFixed };
    let name = &pushed.secret;
    let api: Api<Secret> = Api::namespaced(shared.client.clone(), NAMESPACE);
    let found = call(|| format!("get secret {NAMESPACE}/{name}"), api.get_opt(name)).await.map_err(|e| {
        let remedy = "; the operator grants the controller the right to read a Secret as long as a MachineOSConfig names it \
            in renderedImagePushSecret, except for Secrets of the installation itself; for a Secret that none names any \
            more, create a Role of your own";
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
