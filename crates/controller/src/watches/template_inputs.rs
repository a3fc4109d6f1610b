//! The inputs of templates other than the ControllerConfig: the template folder, watched by inotify(7), and the pull
//! secret, a watch of that one object. A change marks the passes; they read the files and the secret themselves.
//!
//! What it is not: the reading of templates or secrets. Nothing of a secret is kept; the watch only notices that it
//! changed.

use crate::cache::store::{Change, Store};
use crate::cache::stores::SecretLocation;
use crate::cache::watch::{Presence, WatchedApi, follow};
use crate::change::Changed;
use crate::shared::Shared;
use api::k8s::Secret;
use kube::Api;
use kube::runtime::watcher;
use notify::{RecursiveMode, Watcher as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long to wait before trying again to watch a folder that is missing, or for which the system has no inotify
/// watches left.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// What happened to the folder.
enum Event {
    Changed,
    /// Its watch no longer sees it.
    Lost,
}

/// Watches the template folder until `stop`.
pub(crate) async fn follow_folder(shared: Arc<Shared>, stop: CancellationToken) {
    let mut told = false;
    loop {
        let (tell, mut events) = mpsc::unbounded_channel();
        match watch_folder(&shared.templates, tell) {
            Ok(_watcher) => {
                told = false;
                shared.templates_watched.store(true, Ordering::Release);
                // Covers what changed since the folder was last read.
                shared.changed(&Changed::TemplateInput);
                loop {
                    let event = tokio::select! {
                        () = stop.cancelled() => return,
                        event = events.recv() => event,
                    };
                    match event {
                        Some(Event::Changed) => shared.changed(&Changed::TemplateInput),
                        Some(Event::Lost) | None => break,
                    }
                }
                shared.templates_watched.store(false, Ordering::Release);
                shared.changed(&Changed::TemplateInput);
            }
            Err(e) if !told => {
                told = true;
                tracing::warn!(
                    "{}: cannot be watched, so it is read every minute instead: {e}",
                    shared.templates.display()
                );
            }
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(TRY_AGAIN) => {}
        }
    }
}

fn watch_folder(
    folder: &Path,
    tell: mpsc::UnboundedSender<Event>,
) -> notify::Result<notify::RecommendedWatcher> {
    let root = folder.to_owned();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // The receiver ends with its task. Nobody is interested after that.
        let _ = match event {
            // Caused by our own reading.
            Ok(event) if event.kind.is_access() => return,
            Ok(event) if event.kind.is_remove() && event.paths.contains(&root) => tell.send(Event::Lost),
            Ok(_) => tell.send(Event::Changed),
            Err(_) => tell.send(Event::Lost),
        };
    })?;
    watcher.watch(folder, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Watches the pull secret that the ControllerConfig names, until `stop`.
pub(crate) async fn follow_pull_secret(shared: Arc<Shared>, stop: CancellationToken) {
    let mut place = shared.pull_secret.subscribe();
    loop {
        let at = place.borrow_and_update().clone();
        tokio::select! {
            () = stop.cancelled() => return,
            changed = place.changed() => if changed.is_err() { return },
            () = follow_secret(&shared, at, stop.clone()) => {}
        }
    }
}

async fn follow_secret(shared: &Arc<Shared>, at: SecretLocation, stop: CancellationToken) {
    let Some((namespace, name)) = at else { return std::future::pending().await };
    let api = WatchedApi::new(&shared.client, |client| Api::<Secret>::namespaced(client, &namespace));
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let store = Store::<u64>::default();
    let me = shared.clone();
    let on_change = Box::new(move |change: &Change<u64>| {
        if change.old != change.new {
            me.changed(&Changed::TemplateInput);
        }
    });
    let trim = |secret: Secret| {
        let mut hasher = DefaultHasher::new();
        secret.type_.hash(&mut hasher);
        for (key, value) in secret.data.iter().flatten() {
            (key, &value.0).hash(&mut hasher);
        }
        Ok(hasher.finish())
    };
    let kind = format!("Secret {namespace}/{name}");
    follow(api, only, kind, Presence::Required, &store, trim, on_change, stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_server::{answer, shared};
    use crate::queue::Pass;
    use serde_json::json;

    #[tokio::test]
    async fn a_changed_template_starts_the_passes_and_reading_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("worker/00-worker/_base/files");
        std::fs::create_dir_all(&deep).unwrap();
        let mut shared = shared(|_| answer(404, &json!({"kind": "Status", "code": 404})));
        shared.templates = dir.path().to_owned();
        let shared = Arc::new(shared);
        let stop = CancellationToken::new();
        let task = tokio::spawn(follow_folder(shared.clone(), stop.clone()));
        let marked = async || {
            for _ in 0..1500 {
                if !shared.queues.of(Pass::Templates).take().is_empty() {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            false
        };
        assert!(marked().await, "when the watch starts");
        assert!(shared.templates_watched.load(Ordering::Acquire));
        std::fs::write(deep.join("x.yaml"), "path: /x\n").unwrap();
        assert!(marked().await, "a new file");
        // Drains the events that belong to the same change.
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if shared.queues.of(Pass::Templates).take().is_empty() {
                break;
            }
        }
        std::fs::read_to_string(deep.join("x.yaml")).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(shared.queues.of(Pass::Templates).take().is_empty(), "reading a file is no change");
        std::fs::rename(deep.join("x.yaml"), deep.join("y.yaml")).unwrap();
        assert!(marked().await, "a renamed file");
        stop.cancel();
        task.await.unwrap();
    }
}
