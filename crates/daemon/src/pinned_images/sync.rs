//! One round: brings the runtime to what the sets want. It executes the plan, and what it cannot do it says.
//!
//! A round may be dropped at any point: the runtime then ends its pulls and keeps what it has fetched of them, and the next round
//! looks at what is there.
//!
//! Not here: when a round is made (see `manager`), what is asked of the host before a plan (`inspect`, `sizes`), the pulls (`pull`), or
//! how CRI-O is told (`crio`).

use super::grpc::GrpcError;
use super::images::{Images, Progress, RoundError};
use super::plan::{PinnedSet, Plan, PullHold, drop_in, images, plan};
use super::pull::Pulled;
use super::report::{Failures, Outcome};
use super::runtime::{Kind, Runtime, RuntimeError, stored_name};
use api::k8s::Node;
use client::chain;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often it is looked whether the runtime tells the kubelet of new pins, and the wait between two looks.
const LOOKS: u32 = 4;
const HEARD: Duration = Duration::from_millis(500);

impl Images {
    /// One round.
    pub(super) fn round<'a>(
        &'a self,
        sets: &'a [PinnedSet],
        node: &'a Node,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Outcome> {
        let missing = images(sets);
        progress.all.store(missing.len(), Ordering::Relaxed);
        progress.done.store(0, Ordering::Relaxed);
        Box::pin(async move {
            match self.try_round(sets, node, progress).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    let is_lost = matches!(error, RoundError::Runtime(RuntimeError::Call(_)));
                    let failures = Failures::All { missing, why: chain(&error) };
                    if is_lost { Outcome::Lost(failures) } else { Outcome::Failed(failures) }
                }
            }
        })
    }

    async fn try_round(
        &self,
        sets: &[PinnedSet],
        node: &Node,
        progress: &Progress,
    ) -> Result<Outcome, RoundError> {
        let runtime = Runtime::connect(&self.sockets(node)?).await?;
        if runtime.kind == Kind::CriO {
            self.tell_crio(drop_in(sets)).await?;
        }
        let folder = runtime.images_folder().await?;
        let mut facts = self.facts(&runtime, sets, node, folder.as_deref()).await?;
        facts.needed = self.needed(&runtime, sets, node, &facts).await?;
        let plan = plan(sets, &facts, stored_name);
        let Plan { unpin, pin, pull, held, at_once } = &plan;
        if !plan.is_empty() {
            tracing::info!(
                unpin = unpin.len(),
                pin = pin.len(),
                pull = pull.len(),
                held = held.as_ref().map(tracing::field::display),
                "images of PinnedImageSets"
            );
        }
        let mut failed = BTreeMap::new();
        if runtime.kind == Kind::Containerd {
            for image in unpin {
                runtime.label(image, false).await?;
            }
            for image in pin {
                match runtime.label(image, true).await {
                    Ok(()) => {}
                    // It keeps no other image from being there.
                    Err(error @ RuntimeError::Call(GrpcError::Refused { .. })) => {
                        failed.insert(image.clone(), chain(&error));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        progress.done.store(facts.present.len(), Ordering::Relaxed);
        match held {
            Some(PullHold::NotReady) => {
                let (done, all) = (facts.present.len(), facts.present.len() + pull.len());
                return Ok(Outcome::Working { done, all, waits: Some(PullHold::NotReady.to_string()) });
            }
            Some(held) => {
                return Ok(Outcome::Failed(Failures::All { missing: pull.clone(), why: held.to_string() }));
            }
            None => {}
        }
        if !pull.is_empty() {
            match self.pull(&runtime, pull, *at_once, folder.as_deref(), progress).await? {
                Pulled::All => {}
                Pulled::Without(more) => failed.extend(more),
                Pulled::NoSpace(why) => {
                    // What came in before the end is there.
                    let mut missing = vec![];
                    for image in pull {
                        if runtime.held(image).await?.is_none() {
                            missing.push(image.clone());
                        }
                    }
                    return Ok(Outcome::Failed(Failures::All { missing, why }));
                }
            }
        }
        if !failed.is_empty() {
            return Ok(Outcome::Failed(Failures::Images(failed)));
        }
        self.checked(&runtime, sets).await
    }

    /// What is there after a round without a failure.
    async fn checked(&self, runtime: &Runtime, sets: &[PinnedSet]) -> Result<Outcome, RoundError> {
        let mut untold = images(sets);
        for look in 0..LOOKS {
            let (mut gone, mut left) = (BTreeMap::new(), vec![]);
            for image in untold {
                match runtime.held(&image).await? {
                    None => drop(gone.insert(image, "image removed during sync".to_owned())),
                    Some(held) if held.pinned => {}
                    Some(_) => left.push(image),
                }
            }
            if !gone.is_empty() {
                return Ok(Outcome::Failed(Failures::Images(gone)));
            }
            untold = left;
            if untold.is_empty() {
                break;
            }
            // An agent that ended between the list and the reload told it nothing.
            if look == 0 && runtime.kind == Kind::CriO {
                self.reload_crio().await.map_err(RoundError::Reload)?;
            }
            // containerd's CRI part hears of a label by an event of its other part.
            if look + 1 < LOOKS {
                tokio::time::sleep(HEARD).await;
            }
        }
        let remark = (!untold.is_empty()).then(|| {
            format!(
                "{} does not report pinned images to the kubelet, so image garbage collection may remove them, and they are \
                 pulled again; upgrade to containerd 1.6.25, 1.7.10 or newer",
                runtime.version
            )
        });
        Ok(Outcome::Done { remark })
    }
}
