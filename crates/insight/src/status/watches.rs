//! The watches that keep a snapshot up to date: which kinds are watched, and which parts of each object are requested.
//!
//! What it is not: which kinds the cluster has and this person may read (see `served`), and what is kept of the objects (see
//! `follow`).

use crate::objects::config_image::ConfigImage;
use crate::status::served::{OptionalApis, ServedKinds, lists_streams};
use api::k8s::{Node, Pod};
use api::names::{label, part};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use client::{Backoff, is_answered, watch_with_starts};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use rollout::Streams;
use rollout::view::EtcdMember;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

/// Waits between tries of a watch that fails. Somebody looks at the screen: the end of an outage is seen after the last one at the
/// latest.
const WATCH: Backoff = Backoff { first: Duration::from_millis(500), last: Duration::from_secs(10) };

/// An event of one of the watches.
#[allow(clippy::large_enum_variant, reason = "it lives for a moment, and one at a time")]
pub(super) enum WatchEvent {
    /// The API server has accepted a watch, and its kind can be read.
    Accepted,
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
    /// Of a set nothing but its generation is read.
    PinnedImageSet(Event<PartialObjectMeta<PinnedImageSet>>),
    /// Decoded one by one: an object that another version has written must not hide the others.
    Policy(Event<DynamicObject>),
}

/// What is known of OS image streams, from the FeatureGate and the OSImageStream `cluster`. The controller takes kinds that
/// are not served, or that it may not read, for empty; a person may lack a right that the controller has, so nothing is
/// concluded from that here.
pub(super) fn streams<'a>(
    served: &ServedKinds,
    gate: Option<&Value>,
    object: Option<&'a Value>,
) -> Streams<'a> {
    if served.streams.is_unknown() || served.feature_gates.is_unknown() {
        return Streams::Unknown;
    }
    match object.filter(|_| !render::streams::switched_off(gate)) {
        // Streams came into use after the start: the images are not read.
        Some(object) if !served.images && lists_streams(object) => Streams::Unknown,
        used => Streams::Known(used),
    }
}

pub(super) type Watches = Pin<Box<dyn Stream<Item = WatchMessage> + Send>>;

/// A message from one of the watches.
pub(super) struct WatchMessage {
    /// The watch's index.
    pub(super) watch: usize,
    /// The kind of its objects, in the plural.
    pub(super) kind: &'static str,
    /// The API server has answered it. The first event of a new list comes before any answer.
    pub(super) answered: bool,
    /// It belongs to a list, which goes on.
    pub(super) lists: bool,
    /// An event, or why the watch failed.
    pub(super) event: Result<WatchEvent, watcher::Error>,
}

/// A message of a kind's watch; its index is set later. `None`: the API server has accepted the watch.
fn message_of<K>(
    kind: &'static str,
    seen: impl Fn(Event<K>) -> WatchEvent,
) -> impl Fn(Result<Option<Event<K>>, watcher::Error>) -> WatchMessage {
    move |event| WatchMessage {
        watch: 0,
        kind,
        answered: is_answered(&event),
        lists: matches!(event, Ok(Some(Event::InitApply(_) | Event::InitDone))),
        event: event.map(|event| event.map_or(WatchEvent::Accepted, &seen)),
    }
}

/// The messages of the watch of one kind.
fn watch<K>(
    client: &Client,
    kind: &'static str,
    api: impl FnOnce(Client) -> Api<K>,
    which: watcher::Config,
    seen: impl Fn(Event<K>) -> WatchEvent + Send + 'static,
) -> BoxStream<'static, WatchMessage>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch_with_starts(client, api, which, WATCH).map(message_of(kind, seen)).boxed()
}

/// Starts the watches of all kinds that the cluster has and this person may read.
///
/// Whether OS image streams are used must be known before MachineConfigs are watched, since it decides whether their images
/// are read. What is not known of streams stays so for as long as these watches last. That is sound, since nothing is concluded
/// from unknown streams (see [`streams`]).
pub(super) fn watches(client: &Client, served: ServedKinds) -> Watches {
    let any = watcher::Config::default;
    let mut all = vec![
        watch(client, "ControllerConfigs", Api::<ControllerConfig>::all, any(), WatchEvent::Settings),
        watch(client, "MachineConfigPools", Api::<MachineConfigPool>::all, any(), WatchEvent::Pool),
        watch(client, "Nodes", Api::<Node>::all, any(), WatchEvent::Node),
    ];
    let resource = ApiResource::erase::<MachineConfig>(&());
    let images = |client| Api::<ConfigImage>::all_with(client, &resource);
    let metadata = Api::<PartialObjectMeta<MachineConfig>>::all;
    all.push(match served.images {
        true => watch(client, "MachineConfigs", images, any(), WatchEvent::ConfigImage),
        false => watch(client, "MachineConfigs", metadata, any(), WatchEvent::Config),
    });
    if served.operators.is_there() {
        let ours = any().labels(&format!("{}={}", label::PART, part::OPERATOR));
        let pods = |client| OptionalApis::of(&client).operators;
        all.push(watch(client, "operator pods", pods, ours, WatchEvent::Operator));
    }
    for (place, (namespace, label)) in EtcdMember::PLACES.into_iter().enumerate() {
        if served.etcd.get(place).is_some_and(|there| there.is_there()) {
            let pods = |client| Api::namespaced(client, namespace);
            let seen = move |event| WatchEvent::Etcd(place, event);
            all.push(watch(client, "etcd pods", pods, any().labels(label), seen));
        }
    }
    if served.policies.is_there() {
        let resource = ApiResource::erase::<RolloutPolicy>(&());
        let policies = |client| Api::<DynamicObject>::all_with(client, &resource);
        all.push(watch(client, "RolloutPolicies", policies, any(), WatchEvent::Policy));
    }
    if served.pinned_sets.is_there() {
        let sets = Api::<PartialObjectMeta<PinnedImageSet>>::all;
        all.push(watch(client, "PinnedImageSets", sets, any(), WatchEvent::PinnedImageSet));
    }
    if served.progress.is_there() {
        let nodes = |client| OptionalApis::of(&client).progress;
        all.push(watch(client, "MachineConfigNodes", nodes, any(), WatchEvent::Progress));
    }
    type Seen = fn(Event<DynamicObject>) -> WatchEvent;
    type Pick = fn(OptionalApis) -> Api<DynamicObject>;
    for (there, pick, kind, seen) in [
        (
            served.os_configs,
            (|kinds| kinds.os_configs) as Pick,
            "MachineOSConfigs",
            WatchEvent::OsConfig as Seen,
        ),
        (served.os_builds, |kinds| kinds.os_builds, "MachineOSBuilds", WatchEvent::OsBuild),
        (served.scheduler, |kinds| kinds.scheduler, "Schedulers", WatchEvent::Scheduler),
        (served.streams, |kinds| kinds.os_streams, "OSImageStreams", WatchEvent::Streams),
        (served.feature_gates, |kinds| kinds.feature_gates, "FeatureGates", WatchEvent::FeatureGate),
    ] {
        if there.is_there() {
            let api = |client| pick(OptionalApis::of(&client));
            all.push(watch(client, kind, api, any(), seen));
        }
    }
    let placed = |(watch, one): (usize, BoxStream<'static, WatchMessage>)| {
        one.map(move |message| WatchMessage { watch, ..message })
    };
    let all = all.into_iter().enumerate().map(placed);
    Box::pin(futures::stream::select_all(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::served::Presence;
    use serde_json::json;

    #[test]
    fn a_list_that_is_only_asked_for_is_no_answer() {
        let message = message_of("Nodes", WatchEvent::Node);
        let failed = watcher::Error::NoResourceVersion;
        for (event, answered) in [
            (Ok(Some(Event::Init)), false),
            (Err(failed), false),
            (Ok(None), true),
            (Ok(Some(Event::InitDone)), true),
            (Ok(Some(Event::Apply(Node::default()))), true),
        ] {
            assert_eq!(message(event).answered, answered);
        }
    }

    #[test]
    fn streams_match_the_controllers_unless_the_user_may_not_list_them() {
        let served = |streams, feature_gates, images| ServedKinds {
            progress: Presence::Absent,
            os_configs: Presence::Absent,
            os_builds: Presence::Absent,
            scheduler: Presence::Absent,
            streams,
            feature_gates,
            policies: Presence::Absent,
            pinned_sets: Presence::Absent,
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
