//! The pulls of a round: several images at once, each tried some times, and all of them ended when the room for images runs short.
//!
//! Not here: which images (see `plan`), or the call itself (see `runtime`).

use super::auth::{Keyring, PULL_SECRET};
use super::images::{Images, Progress, RoundError};
use super::runtime::{Kind, Runtime, RuntimeError};
use client::chain;
use futures::StreamExt;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often an image is tried before its set is reported. Later rounds try it again.
const ATTEMPTS: u32 = 4;
/// How often room is looked for while images are pulled. A fast disk takes some gigabytes meanwhile, less than what stays free.
const GUARD: Duration = Duration::from_secs(2);

impl Images {
    /// Pulls these images.
    pub(super) async fn pull(
        &self,
        runtime: &Runtime,
        wanted: &[String],
        at_once: usize,
        folder: Option<&str>,
        progress: &Progress,
    ) -> Result<Pulled, RoundError> {
        let read = |path: &str| self.root.text(path);
        let ring = Keyring::read(read(PULL_SECRET)?.as_deref()).map_err(RoundError::PullSecret)?;
        // Not a closure over references: the compiler cannot tell that its futures may go to another thread.
        let mut queue = Vec::with_capacity(wanted.len());
        for image in wanted {
            queue.push(self.named(runtime, &ring, image));
        }
        let mut pulls = futures::stream::iter(queue).buffer_unordered(at_once);
        let mut guard = tokio::time::interval(GUARD);
        let mut failed = BTreeMap::new();
        loop {
            tokio::select! {
                pulled = pulls.next() => match pulled {
                    None => break,
                    Some((image, Ok(()))) => {
                        progress.done.fetch_add(1, Ordering::Relaxed);
                        tracing::info!(%image, "pulled and pinned");
                    }
                    Some((_, Err(OneError::Runtime(error)))) if error.is_no_space() => {
                        return Ok(Pulled::NoSpace(error.to_string()));
                    }
                    // Without its connection no other image can be pulled either.
                    Some((_, Err(OneError::Runtime(error)))) if error.is_lost() => return Err(error.into()),
                    Some((image, Err(error))) => {
                        let why = chain(&error);
                        tracing::warn!(%image, %why, "an image of a PinnedImageSet cannot be pulled");
                        failed.insert(image, why);
                    }
                },
                // Pulls that are dropped end.
                _ = guard.tick() => if let Some(space) = self.space(folder).filter(|space| space.is_short()) {
                    return Ok(Pulled::NoSpace(space.to_string()));
                },
            }
        }
        Ok(if failed.is_empty() { Pulled::All } else { Pulled::Without(failed) })
    }

    /// One pull, with the image's name.
    fn named<'a>(
        &'a self,
        runtime: &'a Runtime,
        ring: &'a Keyring,
        image: &'a str,
    ) -> BoxFuture<'a, (String, Result<(), OneError>)> {
        Box::pin(async move { (image.to_owned(), self.pull_one(runtime, ring, image).await) })
    }

    async fn pull_one(&self, runtime: &Runtime, ring: &Keyring, image: &str) -> Result<(), OneError> {
        // The runtime gives these to the image's own registry only; with mirrors it logs in by its own file.
        let credentials = ring.of(image).map_err(OneError::Credentials)?;
        let mut attempt = 0;
        loop {
            match runtime.pull(image, credentials).await {
                Ok(()) => break,
                Err(error) => {
                    attempt += 1;
                    if attempt >= ATTEMPTS || error.is_no_space() || error.is_lost() {
                        return Err(OneError::Runtime(error));
                    }
                    tracing::debug!(%image, error = chain(&error), attempt, "a pull failed and is tried again");
                    tokio::time::sleep(self.between.delay(attempt - 1)).await;
                }
            }
        }
        match runtime.kind {
            Kind::Containerd => runtime.label(image, true).await.map_err(OneError::Runtime),
            Kind::CriO => Ok(()),
        }
    }
}

/// What came of the pulls.
pub(super) enum Pulled {
    All,
    Without(BTreeMap<String, String>),
    NoSpace(String),
}

/// Why one image is not there.
#[derive(Debug, thiserror::Error)]
enum OneError {
    #[error(transparent)]
    Runtime(RuntimeError),
    #[error("{0}")]
    Credentials(String),
}
