//! The old-images pass: deletes in registries what builds have pushed and nothing names any more. Carries out
//! `build::pushed::clean_up`.
//!
//! The caches show what could go. Before anything goes, nodes, builds and MachineOSConfigs are read from the API server itself:
//! what is deleted in a registry does not come back.
//!
//! A registry may be slow or away, so this is a pass of its own: no build waits for it.
//!
//! What it is not: a decision, or the requests to registries (see `registry`).

pub(super) mod list;
mod remove;

use crate::cache::settings::STREAMS;
use crate::dirty::{Changed, DirtyKeys, Known as Caches};
use crate::io::events::{Source, reference};
use crate::passes::descriptor::{Descriptor, Right, kind};
use crate::passes::queue::{Outcome, Pass, Spacing, Work};
use crate::shared::Shared;
use crate::term::leader::now;
use api::events::ControllerEvent;
use api::k8s::Node;
use api::names::{CLUSTER, annotation, own};
use api::v1::{MachineOSBuild, MachineOSConfig, PinnedImageSet};
use build::pushed::{After, CleanUp, Deletion, Failure, Known, Pushed, after, clean_up};
use client::{Backoff, CallError, call};
use kube::api::{Api, ListParams};
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
        kind::OS_CONFIGS,
        kind::OS_BUILDS,
        kind::NODES,
        kind::CONFIGS,
        kind::POOLS,
        kind::CONTROLLER_CONFIGS,
        kind::STREAMS,
        kind::PINNED_IMAGE_SETS,
    ],
    // The list is a ConfigMap of our own namespace, by its name.
    writes: NO_OTHER_RIGHTS,
    marked_by,
    start: |shared, _| {
        let cleaner = Arc::new(Cleaner { shared: shared.clone(), waits: Mutex::default() });
        Box::new(move |_| {
            let cleaner = cleaner.clone();
            Box::pin(async move { cleaner.pass().await })
        })
    },
};
const NO_OTHER_RIGHTS: &[Right] = &[];

/// How long until a deletion is tried again that may pass by itself.
const PAUSE: Backoff = Backoff { first: Duration::from_secs(60), last: Duration::from_secs(3600) };
/// Objects in one page of a list.
const PAGE: u32 = 500;

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
        // Without a whole view of what names images nothing goes.
        let stores = &shared.stores;
        let known = [stores.os_configs.is_synced(), stores.os_builds.is_synced(), stores.nodes.is_synced()];
        if known.contains(&false)
            || stores.os_configs.trouble().is_some()
            || stores.os_builds.trouble().is_some()
        {
            return Ok(None);
        }
        let mut list = list::read(shared).await?;
        let (configs, builds) = (stores.os_configs.all(), stores.os_builds.all());
        // An object that cannot be read may name anything.
        let configs: Option<Vec<_>> = configs.iter().map(|c| c.object.as_ref().ok()).collect();
        let builds: Option<Vec<_>> = builds.iter().map(|b| b.object.as_ref().ok()).collect();
        let (Some(configs), Some(builds)) = (configs, builds) else { return Ok(None) };
        let named = in_caches(shared);
        let CleanUp { remember, forget, delete } =
            clean_up(Known { list: &list, configs: &configs, builds: &builds, named: &named });
        let new = remember.iter().map(|p| (p.key(), Some(p.text())));
        let entries: Vec<_> = new.chain(forget.into_iter().map(|key| (key, None))).collect();
        list::put(shared, &entries).await?;
        self.retain(&list);
        if delete.iter().any(|d| self.is_due(&d.pushed)) {
            list.extend(remember.into_iter().map(|p| (p.key(), p)));
            for deletion in self.deletions_now(&list, named).await? {
                if self.is_due(&deletion.pushed) {
                    self.delete(&deletion).await?;
                }
            }
        }
        Ok(self.next())
    }

    /// What goes by the objects as they are at the API server.
    async fn deletions_now(
        &self,
        list: &BTreeMap<String, Pushed>,
        mut named: BTreeSet<String>,
    ) -> Result<Vec<Deletion>, CallError> {
        let shared = &self.shared;
        let all = ListParams::default();
        let configs =
            call(|| "list machineosconfigs".to_owned(), shared.api::<MachineOSConfig>().list(&all)).await?;
        let builds =
            call(|| "list machineosbuilds".to_owned(), shared.api::<MachineOSBuild>().list(&all)).await?;
        let pins =
            call(|| "list pinnedimagesets".to_owned(), shared.api::<PinnedImageSet>().list(&all)).await;
        match pins {
            Ok(sets) => named.extend(
                sets.items.into_iter().flat_map(|set| set.spec.pinned_images).map(|image| image.name),
            ),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
        let nodes: Api<Node> = shared.api();
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let found = call(|| "list nodes".to_owned(), nodes.list_metadata(&page)).await?;
            let keys = [annotation::CURRENT_IMAGE, annotation::DESIRED_IMAGE, own::PREVIOUS_IMAGE];
            for node in &found.items {
                let notes = node.metadata.annotations.iter();
                named.extend(notes.flat_map(|a| keys.iter().filter_map(|key| a.get(*key).cloned())));
            }
            match found.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => page = page.continue_token(&next),
                None => break,
            }
        }
        let (configs, builds): (Vec<_>, Vec<_>) =
            (configs.items.iter().collect(), builds.items.iter().collect());
        Ok(clean_up(Known { list, configs: &configs, builds: &builds, named: &named }).delete)
    }

    /// Deletes one thing, and writes down what came of it.
    async fn delete(&self, deletion: &Deletion) -> Result<(), CallError> {
        let (shared, pushed) = (&self.shared, &deletion.pushed);
        let done = remove::remove(shared, deletion).await;
        if let Err(Failure { why, temporary }) = &done {
            tracing::warn!(temporary, "{} cannot be deleted: {why}", pushed.what);
        }
        let is_temporary = matches!(&done, Err(Failure { temporary: true, .. }));
        let key = pushed.key();
        let outcome = after(pushed, done, &now());
        self.wait(&key, is_temporary);
        let (entries, event) = match outcome {
            After::Gone => {
                let text = format!("{} is deleted: nothing names it any more", pushed.what);
                (vec![(key, None)], Some((ControllerEvent::OldImageDeleted, text)))
            }
            After::Stays { entry, tell } => {
                let entries = entry.map(|entry| (key, Some(entry.text()))).into_iter().collect();
                (entries, tell.map(|text| (ControllerEvent::OldImageKept, text)))
            }
        };
        list::put(shared, &entries).await?;
        match (event, shared.stores.pools.get(&pushed.pool)) {
            (Some((reason, text)), Some(pool)) => {
                shared.events.publish(Source::Builder, reference(&*pool), reason, text);
            }
            (Some((reason, text)), None) => tracing::info!(%reason, pool = pushed.pool, "{text}"),
            (None, _) => {}
        }
        Ok(())
    }

    fn waits(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (u32, Instant)>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self, pushed: &Pushed) -> bool {
        self.waits().get(&pushed.key()).is_none_or(|(_, at)| *at <= Instant::now())
    }

    /// Has a deletion wait, if it failed and may pass.
    fn wait(&self, key: &str, failed: bool) {
        let mut all = self.waits();
        let tries = all.remove(key).map_or(0, |(tries, _)| tries);
        if failed {
            all.insert(key.to_owned(), (tries.saturating_add(1), Instant::now() + PAUSE.delay(tries)));
        }
    }

    /// Forgets what is on the list no more.
    fn retain(&self, list: &BTreeMap<String, Pushed>) {
        self.waits().retain(|key, _| list.contains_key(key));
    }

    /// When the first of them is tried again.
    fn next(&self) -> Option<Duration> {
        let first = self.waits().values().map(|(_, at)| *at).min()?;
        Some(first.saturating_duration_since(Instant::now()).max(Duration::from_secs(1)))
    }
}

/// Names of images in the caches, besides those of builds and MachineOSConfigs.
fn in_caches(shared: &Shared) -> BTreeSet<String> {
    let stores = &shared.stores;
    let mut named = BTreeSet::new();
    for node in stores.nodes.all() {
        let all = [node.current_image.as_ref(), node.desired_image.as_ref(), node.previous_image.as_deref()];
        named.extend(all.into_iter().flatten().map(|image| image.to_string()));
    }
    named.extend(stores.configs.all().iter().map(|config| config.os_image_url().to_owned()));
    let cluster = stores.controller_config();
    named.extend(cluster.iter().map(|c| c.spec.base_os_container_image.clone()));
    let streams = shared.settings.one(STREAMS);
    let listed = streams.as_deref().and_then(|s| s.pointer("/status/availableStreams")?.as_array());
    let images = listed.into_iter().flatten().filter_map(|s| s.get("osImage")?.as_str());
    named.extend(images.map(str::to_owned));
    named
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
