//! The streams pass: fills the status of OSImageStream `cluster` from the labels of images. They are those that its annotation
//! [`own::STREAM_IMAGES`] lists; without it, on a cluster with a ClusterVersion, those of the release: the ControllerConfig's base
//! images, which the operator takes from the release's ConfigMap, and what the release image lists, which counts more. A status
//! that somebody else writes is left alone.
//!
//! Tags are resolved once for each list of images, so all pools that follow a stream get the same image.
//!
//! What it is not: the reading of images (see `registry`), or which stream a pool follows (see `render`).

use crate::cache::settings::{CLUSTER_VERSION, FEATURE_GATE, STREAMS};
use crate::dirty::{Changed, DirtyKeys, Known};
use crate::flight::refusals::{AGAIN, Topic};
use crate::passes::descriptor::{Descriptor, Right, kind, stateless};
use crate::passes::os_images::access;
use crate::passes::queue::{Outcome, Pass, Work};
use crate::shared::Shared;
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
        kind::STREAMS,
        kind::FEATURE_GATES,
        kind::CLUSTER_VERSIONS,
        kind::POOLS,
        kind::CONFIGS,
        kind::CONTROLLER_CONFIGS,
    ],
    writes: &[Right::new("patch", kind::STREAMS), Right::new("patch", kind::STREAM_STATUS)],
    marked_by,
    start: |shared, _| stateless(shared, pass),
};

/// How long until a registry that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(30);

fn marked_by(changed: &Changed<'_>, _: Known<'_>, marks: &mut DirtyKeys) {
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
enum Wanted {
    /// As the annotation lists them. Each of them counts.
    Listed(String),
    /// Those of the release. One that cannot be looked into keeps no other from being listed.
    Release(String),
}

impl Wanted {
    fn images(&self) -> &str {
        let (Self::Listed(images) | Self::Release(images)) = self;
        images
    }
}

/// The images to look into; `None`: the status is left alone, or is from them already.
fn wanted(object: &Value, release: &[String]) -> Option<Wanted> {
    let note = |key: &str| object.pointer("/metadata/annotations")?.get(key)?.as_str();
    let listed = note(own::STREAM_IMAGES).filter(|images| !images.trim().is_empty());
    let is_filled = object.pointer("/status/availableStreams/0").is_some();
    let from = note(own::STREAMS_FROM);
    let wanted = match listed {
        Some(images) => Wanted::Listed(images.to_owned()),
        None if release.is_empty() || is_filled && from.is_none() => return None,
        None => Wanted::Release(release.join(" ")),
    };
    (from != Some(wanted.images()) || !is_filled).then_some(wanted)
}

/// The status. The default: that of the spec, else the one in force, else the only one.
fn status(object: &Value, streams: &[Stream]) -> Result<Value, String> {
    let known: Vec<&str> = streams.iter().map(|s| s.name.as_str()).collect();
    if known.is_empty() {
        return Err("no two of the images are the OS and the extensions of one stream, by their labels containers.bootc, \
            io.openshift.os.extensions and io.openshift.os.streamclass"
            .to_owned());
    }
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let asked = text("/spec/defaultStream");
    let default = match asked {
        "" if known.contains(&text("/status/defaultStream")) => text("/status/defaultStream"),
        "" if known.len() == 1 => known.first().copied().unwrap_or_default(),
        asked => asked,
    };
    if !known.contains(&default) {
        return Err(format!(
            "spec.defaultStream is {default:?}; the images have the streams {}; name one of those",
            known.join(", ")
        ));
    }
    Ok(json!({"availableStreams": streams, "defaultStream": default}))
}

/// Why the status is not filled.
enum Failure {
    Call(CallError),
    Look(String),
}

async fn pass(shared: Arc<Shared>, _: String) -> Outcome {
    let done = carry_out(&shared).await;
    let words = match &done {
        Ok(()) => None,
        Err(Failure::Call(e)) => Some(e.chain()),
        Err(Failure::Look(why)) => Some(why.clone()),
    };
    if let Some(words) = &words {
        tracing::warn!("OSImageStream {CLUSTER} is not filled: {words}");
    }
    let text = words.map(|words| {
        format!(
            "OSImageStream {CLUSTER} is not filled from the images of its annotation {}, or without it of the release: {words}",
            own::STREAM_IMAGES
        )
    });
    shared.report_problem(Topic::Streams, TroubleOf::Cluster, text);
    match done {
        Ok(()) => Outcome::Done,
        Err(Failure::Call(e)) if e.is_refused() => Outcome::After(AGAIN),
        Err(Failure::Call(e)) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(Failure::Call(e)) => Outcome::Failed(e.chain()),
        Err(Failure::Look(_)) => Outcome::After(ASK_AGAIN.mul_f64(1.0 + jitter() / 2.0)),
    }
}

async fn carry_out(shared: &Shared) -> Result<(), Failure> {
    let settings = &shared.settings;
    if render::streams::switched_off(settings.one(FEATURE_GATE).as_deref()) {
        return Ok(());
    }
    let Some(object) = settings.one(STREAMS) else { return Ok(()) };
    let cluster = shared.stores.controller_config();
    let release = of_release(cluster.as_deref(), settings.one(CLUSTER_VERSION).as_deref());
    let Some(wanted) = wanted(&object, &release) else { return Ok(()) };
    let images = wanted.images();
    let read: Result<Vec<Reference>, _> = images.split_whitespace().map(Reference::parse).collect();
    let read = read.map_err(|e| Failure::Look(e.to_string()))?;
    // The mirrors of the pool that custom pools inherit their stream from.
    let worker = shared.stores.pools.get(WORKER).map(|p| p.spec.configuration.name.clone());
    let access = access::settings(shared, worker.as_deref().unwrap_or_default(), Cache::default()).await;
    let registry = Registry::new(access.map_err(Failure::Look)?);
    let streams = match wanted {
        Wanted::Listed(_) => Box::pin(registry.streams(&read)).await,
        Wanted::Release(_) => Box::pin(registry.streams_of_some(&read)).await,
    };
    let streams = streams.map_err(|e| Failure::Look(e.to_string()))?;
    let status = status(&object, &streams).map_err(Failure::Look)?;
    let api = STREAMS.api(&shared.client);
    let params = PatchParams::default();
    let version = object.pointer("/metadata/resourceVersion");
    let filled = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": status}));
    let what = || format!("status of osimagestream {CLUSTER}");
    call(what, api.patch_status(CLUSTER, &params, &filled)).await.map_err(Failure::Call)?;
    let note = Patch::Merge(json!({"metadata": {"annotations": {own::STREAMS_FROM: images}}}));
    let what = || format!("annotation {} of osimagestream {CLUSTER}", own::STREAMS_FROM);
    call(what, api.patch(CLUSTER, &params, &note)).await.map_err(Failure::Call)?;
    let names: Vec<&str> = streams.iter().map(|s| s.name.as_str()).collect();
    tracing::info!("OSImageStream {CLUSTER} lists the streams {}", names.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_somebody_else_is_left_alone() {
        let object = |images: Option<&str>, from: Option<&str>, streams: Value| json!({"metadata": {"annotations": {own::STREAM_IMAGES: images, own::STREAMS_FROM: from}}, "status": {"availableStreams": streams}});
        for (about, object, want) in [
            ("no annotation", object(None, None, json!([{}])), None),
            ("an empty one", object(Some(" "), None, json!([])), None),
            ("new", object(Some("a b"), None, json!([])), Some("a b")),
            ("filled", object(Some("a b"), Some("a b"), json!([{}])), None),
            ("another list", object(Some("a c"), Some("a b"), json!([{}])), Some("a c")),
            ("emptied", object(Some("a b"), Some("a b"), json!([])), Some("a b")),
        ] {
            let want = want.map(|images: &str| Wanted::Listed(images.to_owned()));
            assert_eq!(wanted(&object, &[]), want, "{about}");
        }
        assert_eq!(wanted(&json!({}), &[]), None);
    }

    #[test]
    fn a_release_fills_what_nobody_else_has() {
        let cluster: ControllerConfig = serde_json::from_value(json!({"metadata": {"name": "c"},
            "spec": {"baseOSContainerImage": "os", "baseOSExtensionsContainerImage": "ext"}}))
        .unwrap();
        let version = json!({"status": {"desired": {"image": "release"}}});
        assert_eq!(of_release(Some(&cluster), Some(&version)), ["os", "ext", "release"]);
        assert_eq!(of_release(None, Some(&version)), ["release"]);
        assert_eq!(of_release(Some(&cluster), None), Vec::<String>::new(), "a plain cluster has no release");
        let release = ["os".to_owned(), "release".to_owned()];
        let object = |listed: Option<&str>, from: Option<&str>, streams: Value| json!({"metadata": {"annotations": {own::STREAM_IMAGES: listed, own::STREAMS_FROM: from}}, "status": {"availableStreams": streams}});
        let ours = Some(Wanted::Release("os release".to_owned()));
        for (about, object, want) in [
            ("empty", object(None, None, json!([])), ours.clone()),
            ("filled from this release", object(None, Some("os release"), json!([{}])), None),
            ("filled from the last release", object(None, Some("os before"), json!([{}])), ours),
            ("filled by somebody else", object(None, None, json!([{}])), None),
            (
                "a list counts more",
                object(Some("a"), Some("os release"), json!([{}])),
                Some(Wanted::Listed("a".to_owned())),
            ),
        ] {
            assert_eq!(wanted(&object, &release), want, "{about}");
        }
    }

    #[test]
    fn the_default_is_one_of_the_streams() {
        let stream = |name: &str| Stream {
            name: name.to_owned(),
            os_image: "o".to_owned(),
            os_extensions_image: "e".to_owned(),
        };
        let both = [stream("rhel-10"), stream("rhel-9")];
        let object = |spec: &str, now: &str| json!({"spec": {"defaultStream": spec}, "status": {"defaultStream": now}});
        for (spec, now, streams, want) in [
            ("rhel-9", "", &both[..], Ok("rhel-9")),
            ("", "rhel-10", &both[..], Ok("rhel-10")),
            ("", "gone", &both[..1], Ok("rhel-10")),
            ("", "gone", &both[..], Err("\"\"; the images have the streams rhel-10, rhel-9")),
            ("rhel-8", "rhel-9", &both[..], Err("\"rhel-8\"")),
            ("rhel-9", "", &[][..], Err("no two of the images")),
        ] {
            match (status(&object(spec, now), streams), want) {
                (Ok(status), Ok(want)) => {
                    assert_eq!(status["defaultStream"], want);
                    assert_eq!(status["availableStreams"][0]["osExtensionsImage"], "e");
                }
                (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
                (got, want) => panic!("{spec} {now}: {got:?}, and not {want:?}"),
            }
        }
    }
}
