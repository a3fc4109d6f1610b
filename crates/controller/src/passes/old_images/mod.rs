//! The old-images pass: deletes in registries what builds have pushed and nothing names any more. Carries out
//! `build::pushed::clean_up`.
//!
//! The caches show what could go. Right before anything goes, nodes, builds and MachineOSConfigs are read from the API server itself:
//! what is deleted in a registry does not come back. What large objects name is read from their caches, if those are as new.
//!
//! A registry may be slow or away, so this is a pass of its own: no build waits for it.
//!
//! What it is not: a decision, or the requests to registries (see `registry`).

pub(super) mod list;
mod remove;

use crate::cache::settings::STREAMS;
use crate::cache::store::KNOWN_AGAIN;
use crate::cache::trimmed::Config;
use crate::cache::watch::WatchedKind;
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects as Caches};
use crate::io::clock::now;
use crate::io::events::{Source, reference};
use crate::kind;
use crate::passes::descriptor::Descriptor;
use crate::queue::{Outcome, Pass, Spacing, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::term::catch_up::is_current;
use crate::watches::inputs;
use api::events::ControllerEvent;
use api::k8s::{Node, Pod, ResourceExt as _};
use api::names::{CLUSTER, NAMESPACE, PUSHED_IMAGES, annotation, own};
use api::v1::{MachineOSBuild, MachineOSConfig, PinnedImageSet};
use build::names;
use build::pushed::{
    CleanUp, CleanUpInputs, DeletionFailure, DeletionOutcome, Pushed, PushedContent, Retry, after_deletion,
    clean_up,
};
use client::{Backoff, CallError, Pages, call};
use kube::api::{Api, ListParams};
use remove::Removed;
use rollout::view::NodeView;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::OldImages,
    work: Work { name: "old-images", parallel: 1, spacing: Spacing::millis(1000, 10_000) },
    reads: &[
        &inputs::OS_CONFIGS,
        &inputs::OS_BUILDS,
        &inputs::NODES,
        &inputs::CONFIGS,
        &inputs::POOLS,
        &inputs::CONTROLLER_CONFIGS,
        &inputs::STREAMS,
        &inputs::PINNED_IMAGE_SETS,
        &inputs::PODS,
        &inputs::PULL_SECRET,
    ],
    // The list of what builds have pushed. Push secrets have a Role of their own, which the operator keeps.
    rights: &[
        Right::named("get", kind::CONFIG_MAPS, &[PUSHED_IMAGES]).in_own_namespace(),
        Right::named("patch", kind::CONFIG_MAPS, &[PUSHED_IMAGES]).in_own_namespace(),
        // `create` cannot be limited by name.
        Right::new("create", kind::CONFIG_MAPS).in_own_namespace(),
    ],
    marked_by,
    effects: Effects::NONE,
    start: |shared, _| {
        let cleaner = Arc::new(Cleaner { shared: shared.clone(), waits: Mutex::default() });
        Box::new(move |_| {
            let cleaner = cleaner.clone();
            Box::pin(async move { cleaner.pass().await })
        })
    },
};

/// How long until a deletion is tried again that may pass by itself.
const PAUSE: Backoff = Backoff { first: Duration::from_secs(60), last: Duration::from_secs(3600) };

fn marked_by(changed: &Changed<'_>, _: Caches<'_>, marks: &mut DirtyKeys) {
    let concerns = match changed {
        Changed::ImageBuild(_) | Changed::TermBegins => true,
        Changed::Node(change) => {
            let images = |node: &Option<Arc<NodeView>>| {
                let of = |n: &Arc<NodeView>| {
                    [n.current_image.clone(), n.desired_image.clone(), n.previous_image.as_deref().cloned()]
                };
                node.as_ref().map(of).unwrap_or_default()
            };
            let (old, new) = (images(&change.old), images(&change.new));
            old != new && old.iter().any(Option::is_some)
        }
        Changed::Config(change) => {
            change.new.is_none() && change.old.as_ref().is_some_and(|old| !old.os_image_url().is_empty())
        }
        _ => false,
    };
    if concerns {
        marks.mark(Pass::OldImages, CLUSTER);
    }
}

/// Whether something goes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// It goes.
    Goes {
        /// But for these digests.
        spare: BTreeSet<String>,
    },
    /// Pods may still push to it, or it is not known what names it.
    Later,
    /// Something names it by now.
    Stays,
}

/// The pass, and when what failed is tried again.
struct Cleaner {
    shared: Arc<Shared>,
    waits: Mutex<BTreeMap<String, (u32, Instant)>>,
}

impl Cleaner {
    async fn pass(&self) -> Outcome {
        match self.carry_out().await {
            Ok(None) => Outcome::Done,
            Ok(Some(again)) => Outcome::After(again),
            Err(e) if e.is_conflict() => Outcome::Stale,
            Err(e) => Outcome::Failed(e.chain()),
        }
    }

    async fn carry_out(&self) -> Result<Option<Duration>, CallError> {
        let shared = &self.shared;
        let stores = &shared.stores;
        let Some(named) = in_caches(shared) else { return Ok(Some(KNOWN_AGAIN)) };
        let list = list::read(shared).await?;
        let (configs, builds) = (stores.os_configs.all(), stores.os_builds.all());
        // An object that cannot be read may name anything.
        let configs: Option<Vec<_>> = configs.iter().map(|c| c.object.as_ref().ok()).collect();
        let builds: Option<Vec<_>> = builds.iter().map(|b| b.object.as_ref().ok()).collect();
        let (Some(configs), Some(builds)) = (configs, builds) else { return Ok(None) };
        // Pods are asked for when something is to go.
        let pushing = BTreeSet::new();
        let CleanUp { remember, forget, delete, .. } = clean_up(CleanUpInputs {
            list: &list,
            configs: &configs,
            builds: &builds,
            named: &named,
            pushing: &pushing,
        });
        let new = remember.iter().map(|p| (p.key(), Some(p.text())));
        let entries: Vec<_> = new.chain(forget.into_iter().map(|key| (key, None))).collect();
        list::write_entries(shared, &entries).await?;
        self.retain(&delete);
        for pushed in delete.into_iter().filter(|p| self.is_due(p)) {
            // What is found under a tag goes at once, if nothing names it.
            let mut next = Some(pushed);
            while let Some(pushed) = next {
                next = self.delete(&pushed).await?;
            }
        }
        Ok(self.next())
    }

    /// Whether this goes, by the objects as they are at the API server.
    async fn ask(&self, pushed: &Pushed) -> Result<Verdict, CallError> {
        let shared = &self.shared;
        let all = ListParams::default();
        let list = list::read(shared).await?;
        let pushing = match pushed.what {
            PushedContent::Tag { .. } => self.pushing().await?,
            PushedContent::Image { .. } | PushedContent::Layers { .. } => BTreeSet::new(),
        };
        let configs =
            call(|| "list machineosconfigs".to_owned(), shared.api::<MachineOSConfig>().list(&all)).await?;
        let builds =
            call(|| "list machineosbuilds".to_owned(), shared.api::<MachineOSBuild>().list(&all)).await?;
        let mut named: BTreeSet<String> = BTreeSet::new();
        let nodes: Api<Node> = shared.api();
        let keys = [annotation::CURRENT_IMAGE, annotation::DESIRED_IMAGE, own::PREVIOUS_IMAGE];
        let mut pages = Pages::of(ListParams::default());
        while let Some(params) = pages.next() {
            let page = call(|| "list nodes".to_owned(), nodes.list_metadata(&params)).await;
            for node in pages.take(page)? {
                let notes = node.metadata.annotations.iter();
                named.extend(notes.flat_map(|a| keys.iter().filter_map(|key| a.get(*key).cloned())));
            }
        }
        // Last, because people make them, and the list of nodes may take minutes. What a build made goes from its MachineOSConfig to the
        // nodes, so nodes are read after those.
        let pins =
            call(|| "list pinnedimagesets".to_owned(), shared.api::<PinnedImageSet>().list(&all)).await;
        match pins {
            Ok(sets) => {
                let images = sets.items.into_iter().flat_map(|set| set.spec.pinned_images);
                named.extend(images.map(|image| image.name));
            }
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
        for watched in watched_caches(shared) {
            // A cache that nothing watches may be of any age.
            let Some(watched) = watched else { return Ok(Verdict::Later) };
            if !is_current(&watched).await? {
                return Ok(Verdict::Later);
            }
        }
        let Some(cached) = in_caches(shared) else { return Ok(Verdict::Later) };
        named.extend(cached);
        let (configs, builds): (Vec<_>, Vec<_>) =
            (configs.items.iter().collect(), builds.items.iter().collect());
        let plan = clean_up(CleanUpInputs {
            list: &list,
            configs: &configs,
            builds: &builds,
            named: &named,
            pushing: &pushing,
        });
        let key = pushed.key();
        Ok(match plan.delete.iter().any(|p| p.key() == key) {
            true => Verdict::Goes { spare: plan.spare },
            false if plan.later.contains(&key) => Verdict::Later,
            false => Verdict::Stays,
        })
    }

    /// The names of builds that have a pod which has not ended.
    async fn pushing(&self) -> Result<BTreeSet<String>, CallError> {
        let pods: Api<Pod> = Api::namespaced(self.shared.client.clone(), NAMESPACE);
        let of_builds = ListParams::default().labels(names::OS_BUILD);
        let found = call(|| "list pods of builds".to_owned(), pods.list(&of_builds)).await?;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
        let running =
            found.items.iter().filter(|pod| !["Succeeded", "Failed"].contains(&phase(pod).as_str()));
        Ok(running.filter_map(|pod| pod.labels().get(names::OS_BUILD).cloned()).collect())
    }

    /// Deletes one thing, and writes down what came of it. Returns what was found instead, which is on the list now.
    async fn delete(&self, pushed: &Pushed) -> Result<Option<Pushed>, CallError> {
        let shared = &self.shared;
        let key = pushed.key();
        let done = match remove::remove(self, pushed).await {
            Ok(Removed::All) => Ok(()),
            // It stays on the list, and goes when nothing names it again.
            Ok(Removed::Stopped) => {
                self.wait(&key, false);
                return Ok(None);
            }
            Ok(Removed::Later) => {
                self.wait(&key, true);
                return Ok(None);
            }
            Ok(Removed::Nothing) => {
                self.wait(&key, false);
                list::write_entries(shared, &[(key, None)]).await?;
                return Ok(None);
            }
            Ok(Removed::Is(image)) => {
                self.wait(&key, false);
                let known = list::read(shared).await?.contains_key(&image.key());
                let new = (!known).then(|| (image.key(), Some(image.text())));
                list::write_entries(shared, &[(key, None)].into_iter().chain(new).collect::<Vec<_>>())
                    .await?;
                return Ok((!known).then_some(*image));
            }
            Err(failure) => Err(failure),
        };
        if let Err(DeletionFailure { why, retry }) = &done {
            tracing::warn!(?retry, "{} cannot be deleted: {why}", pushed.what);
        }
        let is_temporary = done.as_ref().is_err_and(|f| f.retry != Retry::Never);
        let outcome = after_deletion(pushed, done, &now());
        self.wait(&key, is_temporary);
        let (entries, event) = match outcome {
            DeletionOutcome::Deleted => {
                let text = format!("{} is deleted: it is no longer used", pushed.what);
                (vec![(key, None)], Some((ControllerEvent::OldImageDeleted, text)))
            }
            DeletionOutcome::Remains { entry, tell } => {
                let entries = entry.map(|entry| (key, Some(entry.text()))).into_iter().collect();
                (entries, tell.map(|text| (ControllerEvent::OldImageKept, text)))
            }
        };
        list::write_entries(shared, &entries).await?;
        match (event, shared.stores.pools.get(&pushed.pool)) {
            (Some((reason, text)), Some(pool)) => {
                shared.events.publish(Source::Builder, reference(&*pool), reason, text);
            }
            (Some((reason, text)), None) => tracing::info!(%reason, pool = pushed.pool, "{text}"),
            (None, _) => {}
        }
        Ok(None)
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (u32, Instant)>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self, pushed: &Pushed) -> bool {
        self.waits().get(&pushed.key()).is_none_or(|(_, at)| *at <= Instant::now())
    }

    /// Delays the next attempt of a deletion that failed and may work later.
    fn wait(&self, key: &str, failed: bool) {
        let mut all = self.waits();
        let tries = all.remove(key).map_or(0, |(tries, _)| tries);
        if failed {
            all.insert(key.to_owned(), (tries.saturating_add(1), Instant::now() + PAUSE.delay(tries)));
        }
    }

    /// Forgets what does not go any more.
    fn retain(&self, deletions: &[Pushed]) {
        let keys: BTreeSet<String> = deletions.iter().map(Pushed::key).collect();
        self.waits().retain(|key, _| keys.contains(key));
    }

    /// When the first of them is tried again.
    fn next(&self) -> Option<Duration> {
        let first = self.waits().values().map(|(_, at)| *at).min()?;
        Some(first.saturating_duration_since(Instant::now()).max(Duration::from_secs(1)))
    }
}

/// The watches that fill the caches of [`in_caches`] which are not read from the API server: whole objects are large. `None` for a
/// cache that no watch fills.
fn watched_caches(shared: &Shared) -> [Option<Arc<WatchedKind>>; 3] {
    let stores = &shared.stores;
    let streams = shared.settings.store(STREAMS);
    [
        shared.watch_of(&*stores.configs),
        shared.watch_of(&*stores.controller_configs),
        streams.and_then(|streams| shared.watch_of(&**streams)),
    ]
}

/// Names of images in the caches, besides those of builds and MachineOSConfigs. `None`: what names images is not known as a whole,
/// and nothing goes.
fn in_caches(shared: &Shared) -> Option<BTreeSet<String>> {
    let stores = &shared.stores;
    let known = [
        stores.os_configs.is_known(),
        stores.os_builds.is_known(),
        stores.configs.is_known(),
        // Nodes are read from the API server itself, too.
        stores.nodes.is_synced(),
    ];
    if known.contains(&false) {
        return None;
    }
    let mut named = BTreeSet::new();
    for node in stores.nodes.all() {
        let all = [node.current_image.as_ref(), node.desired_image.as_ref(), node.previous_image.as_deref()];
        named.extend(all.into_iter().flatten().map(|image| image.to_string()));
    }
    for config in stores.configs.all() {
        named.insert(config.os_image_url().to_owned());
        let notes = match &*config {
            Config::Source(object) => object.metadata.annotations.as_ref(),
            Config::Rendered(rendered) => rendered.metadata.annotations.as_ref(),
        };
        // What nodes are sent to, and what new machines begin with. All digests of a text count, so it is not read.
        let keys = [own::OS_IMAGE, annotation::PRE_BUILT_IMAGE];
        named.extend(keys.iter().filter_map(|key| notes?.get(*key).cloned()));
    }
    let cluster = stores.controller_config();
    named.extend(cluster.iter().map(|c| c.spec.base_os_container_image.clone()));
    let streams = shared.settings.one(STREAMS);
    let listed = streams.as_deref().and_then(|s| s.pointer("/status/availableStreams")?.as_array());
    let images = listed.into_iter().flatten().filter_map(|s| s.get("osImage")?.as_str());
    named.extend(images.map(str::to_owned));
    Some(named)
}

#[cfg(test)]
mod tests;
