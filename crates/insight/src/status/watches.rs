//! The watches that keep a snapshot up to date: which kinds are watched, which of them the cluster has and this person may
//! read, and which parts of each object are requested.
//!
//! What it is not: what is kept of the objects (see `follow`).

use api::k8s::{Node, Pod};
use api::names;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool};
use api::v1alpha1::RolloutPolicy;
use client::{CallError, call};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, NotUsed, Object, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use rollout::Streams;
use rollout::view::EtcdMember;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::pin::Pin;
use std::time::Duration;

/// An event of one of the watches.
#[allow(clippy::large_enum_variant, reason = "it lives for a moment, and one at a time")]
pub(super) enum WatchEvent {
    Pool(Event<MachineConfigPool>),
    Node(Event<Node>),
    Config(Event<PartialObjectMeta<MachineConfig>>),
    ConfigImage(Event<ConfigImage>),
    Settings(Event<ControllerConfig>),
    Progress(Event<MachineConfigNode>),
    OsConfig(Event<DynamicObject>),
    OsBuild(Event<DynamicObject>),
    Scheduler(Event<DynamicObject>),
    Streams(Event<DynamicObject>),
    FeatureGate(Event<DynamicObject>),
    Operator(Event<Pod>),
    /// A pod in one of [`EtcdMember::PLACES`].
    Etcd(usize, Event<Pod>),
    /// Decoded one by one: an object that another version has written must not hide the others.
    Policy(Event<DynamicObject>),
}

/// A MachineConfig of which nothing but the image is decoded.
pub(super) type ConfigImage = Object<Option<ImageSpec>, NotUsed>;

/// What is read of a MachineConfig's `spec`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ImageSpec {
    #[serde(rename = "osImageURL", default)]
    pub(super) os_image_url: String,
}

/// What is known of OS image streams, from the FeatureGate and the OSImageStream `cluster`. The controller takes kinds that
/// are not served, or that it may not read, for empty; a person may lack a right that the controller has, so nothing is
/// concluded from that here.
pub(super) fn streams<'a>(served: &Served, gate: Option<&Value>, object: Option<&'a Value>) -> Streams<'a> {
    if served.streams == Presence::Unknown || served.feature_gates == Presence::Unknown {
        return Streams::Unknown;
    }
    match object.filter(|_| !render::streams::switched_off(gate)) {
        // Streams came into use after the start: the images are not read.
        Some(object) if !served.images && lists_streams(object) => Streams::Unknown,
        used => Streams::Known(used),
    }
}

/// How long the first view waits for OS image streams: once to learn whether they are used, and again for their lists. Pools
/// and nodes are worth seeing without them.
pub(super) const STREAMS_LIMIT: Duration = Duration::from_secs(1);

pub(super) type Watches = Pin<Box<dyn Stream<Item = Said> + Send>>;

/// A message from one of the watches.
pub(super) struct Said {
    /// The watch's index.
    pub(super) watch: usize,
    /// The kind of its objects, in the plural.
    pub(super) kind: &'static str,
    /// The API server has answered it. The first event of a new list comes before any answer.
    pub(super) answered: bool,
    /// An event, or why the watch failed.
    pub(super) event: Result<WatchEvent, watcher::Error>,
}

/// The messages of a kind's watch; its index is set later.
fn said<K>(
    kind: &'static str,
    seen: impl Fn(Event<K>) -> WatchEvent,
) -> impl Fn(Result<Event<K>, watcher::Error>) -> Said {
    move |event| Said {
        watch: 0,
        kind,
        answered: !matches!(event, Err(_) | Ok(Event::Init)),
        event: event.map(&seen),
    }
}

/// Whether an optional kind can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    Absent,
    /// It may not be read, or the API server did not answer in time.
    Unknown,
}

impl Presence {
    pub(super) fn is_there(self) -> bool {
        self == Self::There
    }
}

/// Which of the optional kinds can be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    pub(super) progress: Presence,
    pub(super) os_configs: Presence,
    pub(super) os_builds: Presence,
    pub(super) scheduler: Presence,
    pub(super) streams: Presence,
    pub(super) feature_gates: Presence,
    pub(super) policies: Presence,
    /// The pods of the operator.
    pub(super) operators: Presence,
    /// For each of [`EtcdMember::PLACES`], whether its pods may be read.
    pub(super) etcd: [Presence; EtcdMember::PLACES.len()],
    /// Whether the images of MachineConfigs are read, because streams are used.
    images: bool,
}

impl Served {
    /// What is unknown if a kind cannot be read.
    pub(super) fn unread(&self) -> Vec<Unread> {
        let etcd = self.etcd.contains(&Presence::Unknown).then_some(Presence::Unknown);
        let streams =
            [self.streams, self.feature_gates].into_iter().find(|there| *there == Presence::Unknown);
        let all = [
            (
                Some(self.progress),
                "MachineConfigNode",
                "MachineConfigNodes cannot be read: steps and times of updates are not known",
            ),
            (
                Some(self.policies),
                "RolloutPolicy",
                "RolloutPolicies cannot be read: what they hold back looks free to move",
            ),
            (
                Some(self.os_configs),
                "MachineOSConfig",
                "MachineOSConfigs cannot be read: pools with an image of their own look like others",
            ),
            (
                Some(self.os_builds),
                "MachineOSBuild",
                "MachineOSBuilds cannot be read: what waits for an image looks free to move",
            ),
            (
                Some(self.scheduler),
                "Scheduler",
                "Schedulers cannot be read: whether control-plane nodes take pods is not known",
            ),
            (
                Some(self.operators),
                "Pod",
                "pods of the operator cannot be read: which control-plane node goes last is not known",
            ),
            (
                streams,
                "OSImageStream",
                "OSImageStreams and FeatureGates cannot be read: a pool's stream is the one that its status names",
            ),
            (
                etcd,
                "Pod",
                "pods of etcd cannot be read: whether a control-plane node waits for its member is not known",
            ),
        ];
        let unknown = all.into_iter().filter(|(there, ..)| *there == Some(Presence::Unknown));
        unknown.map(|(_, kind, words)| Unread { kind, words: words.to_owned() }).collect()
    }
}

/// What is not known because its objects cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// Their kind.
    pub kind: &'static str,
    /// What that means, as a sentence.
    pub words: String,
}

/// Starts the watches of all kinds that the cluster has and this person may read.
///
/// Whether OS image streams are used must be known before MachineConfigs are watched, since it decides whether their images
/// are read. Without an answer within [`STREAMS_LIMIT`], streams are [`Presence::Unknown`] for as long as these watches last.
/// That is sound, since nothing is concluded from unknown streams (see [`streams`]); a new command asks again.
///
/// # Errors
/// The API server does not say which kinds are installed.
pub(super) async fn watches(client: &Client) -> Result<(Watches, Served), CallError> {
    let how = watcher::Config::default;
    let pools = watcher(Api::<MachineConfigPool>::all(client.clone()), how()).default_backoff();
    let nodes = watcher(Api::<Node>::all(client.clone()), how()).default_backoff();
    let operators = Api::<Pod>::namespaced(client.clone(), names::NAMESPACE);
    let settings = watcher(Api::<ControllerConfig>::all(client.clone()), how()).default_backoff();
    let mut all = vec![
        settings.map(said("ControllerConfigs", WatchEvent::Settings)).boxed(),
        pools.map(said("MachineConfigPools", WatchEvent::Pool)).boxed(),
        nodes.map(said("Nodes", WatchEvent::Node)).boxed(),
    ];
    let dynamic = |group: &str, kind: &str| -> Api<DynamicObject> {
        Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
    };
    let progress = Api::<MachineConfigNode>::all(client.clone());
    let policies = Api::<RolloutPolicy>::all(client.clone());
    let os_configs = dynamic(names::GROUP, "MachineOSConfig");
    let os_builds = dynamic(names::GROUP, "MachineOSBuild");
    let scheduler = dynamic("config.openshift.io", "Scheduler");
    let os_streams = dynamic(names::GROUP, "OSImageStream");
    let feature_gates = dynamic("config.openshift.io", "FeatureGate");
    let about_streams = async {
        let asked = async {
            let streams = presence(os_streams.clone()).await?;
            let gates = presence(feature_gates.clone()).await?;
            Ok((streams, gates, streams.is_there() && names_streams(&os_streams).await?))
        };
        let unknown = Ok((Presence::Unknown, Presence::Unknown, false));
        tokio::time::timeout(STREAMS_LIMIT, asked).await.unwrap_or(unknown)
    };
    let etcd = EtcdMember::PLACES
        .map(|(namespace, label)| (Api::<Pod>::namespaced(client.clone(), namespace), how().labels(label)));
    let there = tokio::try_join!(
        presence(progress.clone()),
        presence(os_configs.clone()),
        presence(os_builds.clone()),
        presence(scheduler.clone()),
        about_streams,
        presence(policies.clone()),
        presence(operators.clone()),
        futures::future::try_join_all(etcd.iter().map(|(api, _)| presence(api.clone()))),
    )?;
    let served = Served {
        progress: there.0,
        os_configs: there.1,
        os_builds: there.2,
        scheduler: there.3,
        streams: there.4.0,
        feature_gates: there.4.1,
        images: there.4.2,
        policies: there.5,
        operators: there.6,
        etcd: std::array::from_fn(|place| there.7.get(place).copied().unwrap_or(Presence::Unknown)),
    };
    all.push(match served.images {
        true => {
            let resource = ApiResource::erase::<MachineConfig>(&());
            let configs = Api::<ConfigImage>::all_with(client.clone(), &resource);
            let seen = said("MachineConfigs", WatchEvent::ConfigImage);
            watcher(configs, how()).default_backoff().map(seen).boxed()
        }
        false => {
            let configs = Api::<PartialObjectMeta<MachineConfig>>::all(client.clone());
            let seen = said("MachineConfigs", WatchEvent::Config);
            watcher(configs, how()).default_backoff().map(seen).boxed()
        }
    });
    if served.operators.is_there() {
        let ours = how().labels("k8s-app=machine-config-operator");
        let seen = said("operator pods", WatchEvent::Operator);
        all.push(watcher(operators, ours).default_backoff().map(seen).boxed());
    }
    for (place, (api, which)) in etcd.into_iter().enumerate() {
        if served.etcd.get(place).is_some_and(|there| there.is_there()) {
            let members = watcher(api, which).default_backoff();
            all.push(members.map(said("etcd pods", move |event| WatchEvent::Etcd(place, event))).boxed());
        }
    }
    if served.policies.is_there() {
        let seen = said("RolloutPolicies", WatchEvent::Policy);
        let resource = ApiResource::erase::<RolloutPolicy>(&());
        let policies = Api::<DynamicObject>::all_with(client.clone(), &resource);
        all.push(watcher(policies, how()).default_backoff().map(seen).boxed());
    }
    if served.progress.is_there() {
        let seen = said("MachineConfigNodes", WatchEvent::Progress);
        all.push(watcher(progress, how()).default_backoff().map(seen).boxed());
    }
    type Seen = fn(Event<DynamicObject>) -> WatchEvent;
    for (there, api, kind, seen) in [
        (served.os_configs, os_configs, "MachineOSConfigs", WatchEvent::OsConfig as Seen),
        (served.os_builds, os_builds, "MachineOSBuilds", WatchEvent::OsBuild),
        (served.scheduler, scheduler, "Schedulers", WatchEvent::Scheduler),
        (served.streams, os_streams, "OSImageStreams", WatchEvent::Streams),
        (served.feature_gates, feature_gates, "FeatureGates", WatchEvent::FeatureGate),
    ] {
        if there.is_there() {
            all.push(watcher(api, how()).default_backoff().map(said(kind, seen)).boxed());
        }
    }
    let placed =
        |(watch, one): (usize, BoxStream<'static, Said>)| one.map(move |said| Said { watch, ..said });
    let all = all.into_iter().enumerate().map(placed);
    Ok((Box::pin(futures::stream::select_all(all)), served))
}

/// Whether there is an OSImageStream `cluster` that lists streams.
async fn names_streams(api: &Api<DynamicObject>) -> Result<bool, CallError> {
    let object = call(|| "osimagestream cluster".to_owned(), api.get_opt(names::CLUSTER)).await?;
    Ok(object.is_some_and(|object| lists_streams(&object.data)))
}

fn lists_streams(object: &Value) -> bool {
    let all = object.pointer("/status/availableStreams").and_then(Value::as_array);
    all.is_some_and(|all| !all.is_empty())
}

/// Whether an optional kind is installed and may be read.
async fn presence<K: Clone + serde::de::DeserializeOwned + std::fmt::Debug>(
    api: Api<K>,
) -> Result<Presence, CallError> {
    let one = ListParams::default().limit(1);
    match call(|| "look which kinds the cluster serves".to_owned(), api.list_metadata(&one)).await {
        Ok(_) => Ok(Presence::There),
        Err(error) if error.is_forbidden() => Ok(Presence::Unknown),
        Err(error) if error.is_absent_or_forbidden() => Ok(Presence::Absent),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_that_is_only_asked_for_is_no_answer() {
        let said = said("Nodes", WatchEvent::Node);
        let failed = watcher::Error::NoResourceVersion;
        for (event, answered) in [
            (Ok(Event::Init), false),
            (Err(failed), false),
            (Ok(Event::InitDone), true),
            (Ok(Event::Apply(Node::default())), true),
        ] {
            assert_eq!(said(event).answered, answered);
        }
    }

    #[test]
    fn streams_match_the_controllers_unless_the_user_may_not_list_them() {
        let served = |streams, feature_gates, images| Served {
            progress: Presence::Absent,
            os_configs: Presence::Absent,
            os_builds: Presence::Absent,
            scheduler: Presence::Absent,
            streams,
            feature_gates,
            policies: Presence::Absent,
            operators: Presence::Absent,
            etcd: [Presence::Absent; EtcdMember::PLACES.len()],
            images,
        };
        let object = json!({"status": {"availableStreams": [{"name": "a", "osImage": "i"}]}});
        let empty = json!({"status": {}});
        let gate = |list: &str| {
            let gates = json!({list: [{"name": "OSStreams"}]});
            json!({"status": {"featureGates": [gates]}})
        };
        let (on, off) = (gate("enabled"), gate("disabled"));
        let (there, absent, unknown) = (Presence::There, Presence::Absent, Presence::Unknown);
        let rows = [
            (served(there, absent, true), None, Some(&object), Some(Some(&object))),
            (served(there, there, true), Some(&on), Some(&object), Some(Some(&object))),
            (served(there, there, true), Some(&off), Some(&object), Some(None)),
            (served(absent, absent, false), None, None, Some(None)),
            (served(there, absent, false), None, None, Some(None)),
            (served(there, absent, false), None, Some(&object), None),
            (served(there, absent, false), None, Some(&empty), Some(Some(&empty))),
            (served(unknown, absent, false), None, None, None),
            (served(there, unknown, true), None, Some(&object), None),
        ];
        for (n, (served, gate, object, want)) in rows.into_iter().enumerate() {
            let known = match streams(&served, gate, object) {
                Streams::Known(known) => Some(known),
                Streams::Unknown => None,
            };
            assert_eq!(known, want, "row {n}");
        }
    }

    #[test]
    fn a_machine_config_that_cannot_be_decoded_does_not_stop_the_others() {
        let read = |value: Value| -> ConfigImage { serde_json::from_value(value).unwrap() };
        for (spec, want) in [
            (json!({"spec": {"osImageURL": "i", "config": {"ignition": {}}}}), "i"),
            (json!({"spec": {}}), ""),
            (json!({}), ""),
        ] {
            let mut value = json!({"apiVersion": "machineconfiguration.openshift.io/v1",
                "kind": "MachineConfig", "metadata": {"name": "a"}});
            value.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let config = read(value);
            assert_eq!(config.spec.map(|s| s.os_image_url).unwrap_or_default(), want);
        }
    }
}
