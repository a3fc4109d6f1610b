//! The OS-images pass: looks into the image of a pool's next rendered config before a node goes there, and leaves on that config
//! what it found out: the digest that a tag names now, the architectures, and why no node can run it. Nodes wait for that, and
//! take the image by that digest (see `rollout`'s `os_image` and `desired::by_digest`).
//!
//! What it is not: the decision to hold a pool, or the requests to registries (see `registry`).

pub(super) mod access;

use crate::cache::trimmed::{Config, Rendered};
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::refusals::{AGAIN, Failure as _, Topic};
use crate::kind;
use crate::passes::descriptor::Descriptor;
use crate::queue::{Outcome, Pass, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use access::settings;
use api::images::os_image::{BOOTABLE_LABELS, OsImage, is_by_digest, is_in_registry};
use api::names::own;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use client::{CallError, call, jitter};
use kube::api::{Patch, PatchParams};
use registry::{Cache, ImageFacts, Reference, Registry, RegistryError};
use rollout::TroubleOf;
use rollout::view::NodeView;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::OsImages,
    // A registry that does not answer holds up one pool.
    work: Work { name: "os-images", parallel: 4, ..Work::SINGLE_KEY },
    reads: &[
        &inputs::POOLS,
        &inputs::CONFIGS,
        &inputs::CONTROLLER_CONFIGS,
        &inputs::NODES,
        &inputs::PULL_SECRET,
    ],
    rights: &[Right::new("patch", kind::CONFIGS)],
    marked_by,
    effects: Effects::NONE,
    start: |shared, _| {
        let inspector = Arc::new(Inspector { shared: shared.clone(), cache: Cache::default() });
        Box::new(move |key| {
            let inspector = inspector.clone();
            Box::pin(async move { inspector.pass(key).await })
        })
    },
};

/// How long until a registry that did not answer is asked again. People who mend it change nothing that is watched.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// The same for an image by its digest, which nodes do not wait for.
const SELDOM: Duration = Duration::from_mins(15);

fn marked_by(changed: &Changed<'_>, known: KnownObjects<'_>, marks: &mut DirtyKeys) {
    let mut all = || marks.mark_all(Pass::OsImages, known.stores.pools.names());
    match changed {
        Changed::Pool(change) => {
            let read =
                |p: &MachineConfigPool| (p.spec.configuration.name.clone(), rollout::skips_inspection(p));
            let is_new = change.new.as_deref().map(read) != change.old.as_deref().map(read);
            if change.new.is_some() && is_new {
                marks.mark(Pass::OsImages, &change.name);
            }
        }
        // The config may arrive after the pool that names it, or somebody has removed the recorded result. Our own writes
        // mark nothing.
        Changed::Config(change) => {
            let noted =
                |r: &Rendered| r.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(own::OS_IMAGE));
            if let Some(Config::Rendered(new)) = change.new.as_deref() {
                let was_noted = match change.old.as_deref() {
                    Some(Config::Rendered(old)) => noted(old),
                    _ => true,
                };
                if was_noted && !noted(new) || change.old.is_none() {
                    marks.mark(Pass::OsImages, &new.pool);
                }
            }
        }
        // Where the pull secret is, authorities, the proxy.
        Changed::ControllerConfig(change) => {
            let spec = |c: &Option<Arc<ControllerConfig>>| c.as_ref().map(|c| c.spec.clone());
            if spec(&change.old) != spec(&change.new) {
                all();
            }
        }
        // The pull secret may be another one.
        Changed::TemplateInput | Changed::TermBegins => all(),
        _ => {}
    }
}

/// The pass, and the images that it has inspected.
struct Inspector {
    shared: Arc<Shared>,
    cache: Cache,
}

/// What is to be done about a pool's next image.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Nothing: it is known, or nodes have it already as it is.
    Nothing,
    /// It is the image that nodes of the pool have already: they stay with that one, wherever the tag points to now.
    Same(OsImage),
    /// Nodes of the pool follow its tag, as they did before anybody looked. It is looked into when they have left.
    Follow,
    /// Inspect it.
    Inspect,
}

/// What is to be done. `in_use`: what is known of the same image on configs that nodes of the pool are in, if there are such.
fn next(pool_unseen: bool, url: &str, found: Option<&OsImage>, in_use: Option<Option<OsImage>>) -> Next {
    // A tag may name a better image by now, a digest cannot.
    let is_known = found.is_some_and(|f| f.unknown.is_empty() && (f.refused.is_empty() || is_by_digest(url)));
    match in_use {
        _ if pool_unseen || is_known || !is_in_registry(url) => Next::Nothing,
        Some(Some(same)) => Next::Same(same),
        Some(None) => Next::Follow,
        None => Next::Inspect,
    }
}

impl Inspector {
    async fn pass(&self, name: String) -> Outcome {
        let shared = &self.shared;
        let Some(pool) = shared.stores.pools.get(&name) else { return Outcome::Done };
        let config_name = &pool.spec.configuration.name;
        let Some(config) = shared.stores.configs.get(config_name) else { return Outcome::Done };
        let Config::Rendered(rendered) = &*config else { return Outcome::Done };
        let url = config.os_image_url();
        let found = OsImage::read(rendered.metadata.annotations.as_ref(), url);
        let (unseen, in_use) = (rollout::skips_inspection(&pool), self.in_use(rendered, url));
        let tell = |why| shared.report_problem(Topic::OsImage, TroubleOf::Pool(name.as_str().into()), why);
        let (next, again) = match next(unseen, url, found.as_ref(), in_use) {
            // Nothing is written, so a write that was refused before is no problem any more.
            Next::Nothing => {
                tell(None);
                return Outcome::Done;
            }
            // When the last of them leaves no pass is asked for, and the next node waits for a look.
            Next::Follow => {
                tell(None);
                return Outcome::After(ASK_AGAIN.mul_f64(1.0 + jitter() / 2.0));
            }
            Next::Same(same) => (same, false),
            Next::Inspect => {
                let looked = self.inspect(config_name, url).await;
                let again = !looked.unknown.is_empty() || (!looked.refused.is_empty() && !is_by_digest(url));
                (looked, again)
            }
        };
        let written =
            if found.as_ref() == Some(&next) { Ok(()) } else { self.write(config_name, &next).await };
        let why = written.as_ref().err().filter(|e| e.is_refused()).map(|e| {
            format!(
                "the result of inspecting osImageURL {url} cannot be written, and nodes wait for it: {}",
                e.chain()
            )
        });
        tell(why);
        match written {
            Ok(()) if again => {
                // Nobody waits for an image by its digest.
                let wait = if is_by_digest(url) { SELDOM } else { ASK_AGAIN };
                Outcome::After(wait.mul_f64(1.0 + jitter() / 2.0))
            }
            Ok(()) => Outcome::Done,
            Err(e) if e.is_stale() => Outcome::Stale,
            Err(e) if e.is_refused() => {
                tracing::warn!(
                    pool = name,
                    "the result of inspecting the OS image cannot be written: {}",
                    e.chain()
                );
                Outcome::After(AGAIN)
            }
            Err(e) => Outcome::Failed(e.chain()),
        }
    }

    /// What is known of this image on configs of the pool that nodes are in.
    fn in_use(&self, next: &Rendered, url: &str) -> Option<Option<OsImage>> {
        let stores = &self.shared.stores;
        let nodes = stores.nodes.all();
        let current = |n: &Arc<NodeView>| n.current_config.clone();
        let mut configs: Vec<Arc<str>> = nodes.iter().filter_map(current).collect();
        configs.sort_unstable();
        configs.dedup();
        let same = configs.iter().filter_map(|name| match &*stores.configs.get(name)? {
            Config::Rendered(r) if r.pool == next.pool && *r.base.os_image == *url => {
                Some(OsImage::read(r.metadata.annotations.as_ref(), url))
            }
            _ => None,
        });
        let all: Vec<Option<OsImage>> = same.collect();
        let known = all.iter().flatten().find(|found| found.by_digest().is_some()).cloned();
        (!all.is_empty()).then_some(known)
    }

    /// Looks into the image.
    async fn inspect(&self, config: &str, url: &str) -> OsImage {
        let of = || OsImage { of: url.to_owned(), ..OsImage::default() };
        let image = match Reference::parse(url) {
            Ok(image) => image,
            Err(e) => return OsImage { refused: e.to_string(), ..of() },
        };
        let settings = match settings(&self.shared, config, self.cache.clone()).await {
            Ok(settings) => settings,
            Err(why) => return OsImage { unknown: why, ..of() },
        };
        let facts = Box::pin(Registry::new(settings).inspect(&image, None)).await;
        let looked = judged(of(), facts);
        match (&*looked.refused, &*looked.unknown) {
            ("", "") => tracing::info!(config, image = looked.image, "the OS image is known by its digest"),
            ("", why) => tracing::warn!(config, "osImageURL {url} cannot be inspected: {why}"),
            (why, _) => tracing::warn!(config, "osImageURL {url} is refused: {why}"),
        }
        looked
    }

    async fn write(&self, config: &str, found: &OsImage) -> Result<(), CallError> {
        let patch = json!({"metadata": {"annotations": {own::OS_IMAGE: found.text()}}});
        let what = || format!("annotation {} of machineconfig {config}", own::OS_IMAGE);
        let api = self.shared.api::<MachineConfig>();
        let answer = call(what, api.patch(config, &PatchParams::default(), &Patch::Merge(patch))).await?;
        self.shared.config_answer(answer);
        Ok(())
    }
}

/// The verdict on an image, from its own labels and configuration.
fn judged(of: OsImage, facts: Result<Arc<ImageFacts>, RegistryError>) -> OsImage {
    match facts {
        Ok(facts) => {
            let refused = match &facts.bootable_by {
                Some(_) => String::new(),
                None if facts.is_extensions() => "it is an image of extensions, not an OS image".to_owned(),
                None => {
                    format!("none of its labels {} says that a node can boot it", BOOTABLE_LABELS.join(", "))
                }
            };
            let architectures = facts.architectures.clone();
            OsImage { image: facts.image.clone(), architectures, size: facts.size, refused, ..of }
        }
        Err(e @ RegistryError::Architecture { .. }) => OsImage { refused: e.to_string(), ..of },
        Err(e) => OsImage { unknown: e.to_string(), ..of },
    }
}

#[cfg(test)]
mod tests;
