//! The streams pass: fills the status of OSImageStream `cluster` from the labels of images. They are those that its annotation
//! [`own::STREAM_IMAGES`] lists; without it, on a cluster with a ClusterVersion, those of the release: the ControllerConfig's base
//! images, which the operator takes from the release's ConfigMap, and what the release image lists, which counts more. A status
//! that somebody else writes is left alone.
//!
//! A fill is two writes: the status, then the annotation [`own::STREAMS_FROM`], which says that the fill is whole. A controller may
//! end between the two. The API server keeps who wrote the status (`managedFields`), so the next one knows it for its own and fills
//! it again. A fill that lacks an image gets no annotation either.
//!
//! Tags are resolved once for each list of images, so all pools that follow a stream get the same image. A change of
//! `spec.defaultStream` needs no image: the default of a status that is ours follows it.
//!
//! What it is not: the reading of images (see `registry`), or which stream a pool follows (see `render`).

use crate::cache::settings::{CLUSTER_VERSION, FEATURE_GATE, STREAMS};
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::refusals::{AGAIN, Topic};
use crate::kind;
use crate::passes::descriptor::{Descriptor, stateless};
use crate::passes::os_images::access;
use crate::queue::{Outcome, Pass, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use api::names::{CLUSTER, WORKER, own};
use api::v1::ControllerConfig;
use client::{CallError, call, jitter};
use kube::api::{Patch, PatchParams};
use registry::{Cache, Reference, Registry, Stream};
use rollout::TroubleOf;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::Streams,
    work: Work { name: "streams", ..Work::SINGLE_KEY },
    reads: &[
        &inputs::STREAMS,
        &inputs::FEATURE_GATES,
        &inputs::CLUSTER_VERSIONS,
        &inputs::POOLS,
        &inputs::CONFIGS,
        &inputs::CONTROLLER_CONFIGS,
        &inputs::PULL_SECRET,
    ],
    rights: &[Right::new("patch", kind::STREAMS), Right::new("patch", kind::STREAMS).on("status")],
    marked_by,
    effects: Effects::NONE,
    start: |shared, _| stateless(shared, pass),
};

/// How long until a registry that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// The same for images of a release that are missing in a status which lists the others: each look reads a release image.
const SELDOM: Duration = Duration::from_mins(5);
/// Under which name the API server keeps our writes of the status.
const MANAGER: &str = "machine-config-controller-streams";

fn marked_by(changed: &Changed<'_>, _: KnownObjects<'_>, marks: &mut DirtyKeys) {
    let concerns = match changed {
        Changed::Setting(kind) => [STREAMS, FEATURE_GATE, CLUSTER_VERSION].contains(kind),
        Changed::ControllerConfig(change) => {
            let bases = |c: &Option<Arc<ControllerConfig>>| c.as_ref().map(|c| bases(c)).unwrap_or_default();
            bases(&change.old) != bases(&change.new)
        }
        Changed::TermBegins => true,
        _ => false,
    };
    if concerns {
        marks.mark(Pass::Streams, CLUSTER);
    }
}

/// The base images of the ControllerConfig.
fn bases(cluster: &ControllerConfig) -> [String; 2] {
    let spec = &cluster.spec;
    let extensions = spec.base_os_extensions_container_image.clone();
    [spec.base_os_container_image.clone(), extensions.unwrap_or_default()]
}

/// The images of the release, the one that counts most last; none on a cluster without a ClusterVersion.
fn of_release(cluster: Option<&ControllerConfig>, version: Option<&Value>) -> Vec<String> {
    let payload = version.and_then(|v| v.pointer("/status/desired/image")?.as_str());
    let Some(payload) = payload.filter(|image| !image.is_empty()) else { return vec![] };
    let all = cluster.map(bases).into_iter().flatten().chain([payload.to_owned()]);
    all.filter(|image| !image.is_empty()).collect()
}

/// Which images to look into.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WantedStreams {
    /// As the annotation lists them. Each of them counts.
    Listed(String),
    /// Those of the release. One that cannot be looked into keeps no other from being listed.
    Release(String),
}

impl WantedStreams {
    fn images(&self) -> &str {
        let (Self::Listed(images) | Self::Release(images)) = self;
        images
    }
}

/// Whether nothing but the name of its writer can say whose the status is: it is filled, and no annotation says from what.
fn is_unclaimed(object: &Value, release: &[String]) -> bool {
    let is_filled = object.pointer("/status/availableStreams/0").is_some();
    let (listed, from) = (note(object, own::STREAM_IMAGES), note(object, own::STREAMS_FROM));
    is_filled && from.is_none() && listed.is_none_or(|l| l.trim().is_empty()) && !release.is_empty()
}

/// Whether we, and nobody else, wrote the streams of this status, as the API server keeps it.
fn is_written_by_us(object: &Value) -> bool {
    let kept = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let writes = |entry: &&Value| entry.pointer("/fieldsV1/f:status/f:availableStreams").is_some();
    let mut writers = kept.into_iter().flatten().filter(writes).peekable();
    writers.peek().is_some() && writers.all(|entry| entry["manager"] == MANAGER)
}

fn note<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// The images to look into; `None`: the status is left alone, or is from them already. `by_us`: of a status without an annotation,
/// whether it is a fill of ours that was cut off.
fn wanted(object: &Value, release: &[String], by_us: bool) -> Option<WantedStreams> {
    let listed = note(object, own::STREAM_IMAGES).filter(|images| !images.trim().is_empty());
    let is_filled = object.pointer("/status/availableStreams/0").is_some();
    let from = note(object, own::STREAMS_FROM);
    let wanted = match listed {
        Some(images) => WantedStreams::Listed(images.to_owned()),
        None if release.is_empty() || is_filled && from.is_none() && !by_us => return None,
        None => WantedStreams::Release(release.join(" ")),
    };
    (from != Some(wanted.images()) || !is_filled).then_some(wanted)
}

/// The status. The default: that of the spec, else the one in force, else the only one. `lacking`: an image could not be looked into,
/// so a stream that was listed before and is not among these stays.
fn status(object: &Value, streams: &[Stream], lacking: bool) -> Result<Value, String> {
    let before = object.pointer("/status/availableStreams").and_then(Value::as_array);
    let stays = |old: &&Value| lacking && streams.iter().all(|s| old["name"] != s.name.as_str());
    let mut all: Vec<Value> = before.into_iter().flatten().filter(stays).cloned().collect();
    all.extend(streams.iter().map(|stream| json!(stream)));
    all.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let known: Vec<&str> = all.iter().filter_map(|s| s["name"].as_str()).collect();
    if known.is_empty() {
        return Err(
            "the images contain no pair of OS image and extensions image of one stream, by their labels \
            containers.bootc, io.openshift.os.extensions and io.openshift.os.streamclass"
                .to_owned(),
        );
    }
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let asked = text("/spec/defaultStream");
    let default = match asked {
        "" if known.contains(&text("/status/defaultStream")) => text("/status/defaultStream"),
        "" if known.len() == 1 => known.first().copied().unwrap_or_default(),
        asked => asked,
    };
    if !known.contains(&default) {
        return Err(no_such_stream(default, &known));
    }
    Ok(json!({"availableStreams": all, "defaultStream": default}))
}

fn no_such_stream(default: &str, known: &[&str]) -> String {
    let known = known.join(", ");
    format!("spec.defaultStream is {default:?}; the images have the streams {known}; name one of those")
}

/// The default that a status of ours is to have, because `spec.defaultStream` names another stream since it was filled; `None`: it
/// has that one, none is asked for, or the status is somebody else's.
fn changed_default(object: &Value) -> Result<Option<&str>, String> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let asked = text("/spec/defaultStream");
    let listed = object.pointer("/status/availableStreams").and_then(Value::as_array);
    let known: Vec<&str> = listed.into_iter().flatten().filter_map(|s| s["name"].as_str()).collect();
    let is_ours = note(object, own::STREAMS_FROM).is_some() && !known.is_empty();
    if !is_ours || asked.is_empty() || asked == text("/status/defaultStream") {
        return Ok(None);
    }
    match known.contains(&asked) {
        true => Ok(Some(asked)),
        false => Err(no_such_stream(asked, &known)),
    }
}

/// Why the status is not filled.
enum Failure {
    Call(CallError),
    Unread(String),
    /// It is filled from the other images of the release.
    Lacks(String),
}

async fn pass(shared: Arc<Shared>, _: String) -> Outcome {
    let done = carry_out(&shared).await;
    let words = match &done {
        Ok(()) => None,
        Err(Failure::Call(e)) => Some(e.chain()),
        Err(Failure::Unread(why) | Failure::Lacks(why)) => Some(why.clone()),
    };
    let is = match &done {
        Err(Failure::Lacks(_)) => "may be incomplete, because an image cannot be inspected",
        _ => "is not filled",
    };
    if let Some(words) = &words {
        tracing::warn!("OSImageStream {CLUSTER} {is}: {words}");
    }
    let text = words.map(|words| {
        format!(
            "OSImageStream {CLUSTER} {is}: {words}. Its images are those of its annotation {}, or of the release without it",
            own::STREAM_IMAGES
        )
    });
    shared.report_problem(Topic::Streams, TroubleOf::Cluster, text);
    match done {
        Ok(()) => Outcome::Done,
        Err(Failure::Call(e)) if e.is_refused() => Outcome::After(AGAIN),
        Err(Failure::Call(e)) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(Failure::Call(e)) => Outcome::Failed(e.chain()),
        Err(Failure::Unread(_)) => Outcome::After(ASK_AGAIN.mul_f64(1.0 + jitter() / 2.0)),
        Err(Failure::Lacks(_)) => Outcome::After(SELDOM.mul_f64(1.0 + jitter() / 2.0)),
    }
}

async fn carry_out(shared: &Shared) -> Result<(), Failure> {
    let settings = &shared.settings;
    if render::streams::switched_off(settings.one(FEATURE_GATE).as_deref()) {
        return Ok(());
    }
    let Some(mut object) = settings.one(STREAMS) else { return Ok(()) };
    let cluster = shared.stores.controller_config();
    let release = of_release(cluster.as_deref(), settings.one(CLUSTER_VERSION).as_deref());
    let api = STREAMS.api(&shared.client);
    let mut by_us = false;
    if is_unclaimed(&object, &release) {
        // The cache does not keep who wrote what.
        let what = || format!("get osimagestream {CLUSTER}");
        let Some(now) = call(what, api.get_opt(CLUSTER)).await.map_err(Failure::Call)? else { return Ok(()) };
        let now = json!(now);
        by_us = is_written_by_us(&now);
        object = Arc::new(now);
    }
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let version = object.pointer("/metadata/resourceVersion");
    let Some(wanted) = wanted(&object, &release, by_us) else {
        let Some(default) = changed_default(&object).map_err(Failure::Unread)? else { return Ok(()) };
        let changed = json!({"metadata": {"resourceVersion": version}, "status": {"defaultStream": default}});
        let changed = Patch::Merge(changed);
        let what = || format!("default stream of osimagestream {CLUSTER}");
        call(what, api.patch_status(CLUSTER, &params, &changed)).await.map_err(Failure::Call)?;
        tracing::info!("OSImageStream {CLUSTER} has the default stream {default}");
        return Ok(());
    };
    let images = wanted.images();
    let read: Result<Vec<Reference>, _> = images.split_whitespace().map(Reference::parse).collect();
    let read = read.map_err(|e| Failure::Unread(e.to_string()))?;
    // The mirrors of the pool that custom pools inherit their stream from.
    let worker = shared.stores.pools.get(WORKER).map(|p| p.spec.configuration.name.clone());
    let access = access::settings(shared, worker.as_deref().unwrap_or_default(), Cache::default()).await;
    let registry = Registry::new(access.map_err(Failure::Unread)?);
    let streams = match wanted {
        WantedStreams::Listed(_) => Box::pin(registry.streams(&read)).await.map(|streams| (streams, None)),
        WantedStreams::Release(_) => Box::pin(registry.streams_of_some(&read)).await,
    };
    let (streams, lacking) = streams.map_err(|e| Failure::Unread(e.to_string()))?;
    let status = status(&object, &streams, lacking.is_some()).map_err(Failure::Unread)?;
    let filled = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
    let what = || format!("status of osimagestream {CLUSTER}");
    call(what, api.patch_status(CLUSTER, &params, &filled)).await.map_err(Failure::Call)?;
    if let Some(error) = lacking {
        return Err(Failure::Lacks(error.to_string()));
    }
    let note = Patch::Merge(json!({"metadata": {"annotations": {own::STREAMS_FROM: images}}}));
    let what = || format!("annotation {} of osimagestream {CLUSTER}", own::STREAMS_FROM);
    call(what, api.patch(CLUSTER, &params, &note)).await.map_err(Failure::Call)?;
    let names: Vec<&str> = streams.iter().map(|s| s.name.as_str()).collect();
    tracing::info!("OSImageStream {CLUSTER} lists the streams {}", names.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests;
