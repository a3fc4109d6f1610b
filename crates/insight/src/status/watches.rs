//! The watches that keep a snapshot up to date: which kinds are watched, and which parts of each object are requested.
//!
//! What it is not: which kinds the cluster has and this person may read (see `served`), and what is kept of the objects (see
//! `follow`).

use crate::status::served::{Optional, Served, lists_streams};
use api::k8s::{Node, Pod};
use api::names::{label, part};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool};
use api::v1alpha1::RolloutPolicy;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject};
use kube::core::{NotUsed, Object, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use rollout::Streams;
use rollout::view::EtcdMember;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::pin::Pin;

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
    /// An event, or why the watch failed.
    pub(super) event: Result<WatchEvent, watcher::Error>,
}

/// The messages of a kind's watch; its index is set later.
fn message_of<K>(
    kind: &'static str,
    seen: impl Fn(Event<K>) -> WatchEvent,
) -> impl Fn(Result<Event<K>, watcher::Error>) -> WatchMessage {
    move |event| WatchMessage {
        watch: 0,
        kind,
        answered: !matches!(event, Err(_) | Ok(Event::Init)),
        event: event.map(&seen),
    }
}

/// Starts the watches of all kinds that the cluster has and this person may read.
///
/// Whether OS image streams are used must be known before MachineConfigs are watched, since it decides whether their images
/// are read. What is not known of streams stays so for as long as these watches last. That is sound, since nothing is concluded
/// from unknown streams (see [`streams`]).
pub(super) fn watches(client: &Client, served: Served) -> Watches {
    let how = watcher::Config::default;
    let pools = watcher(Api::<MachineConfigPool>::all(client.clone()), how()).default_backoff();
    let nodes = watcher(Api::<Node>::all(client.clone()), how()).default_backoff();
    let settings = watcher(Api::<ControllerConfig>::all(client.clone()), how()).default_backoff();
    let mut all = vec![
        settings.map(message_of("ControllerConfigs", WatchEvent::Settings)).boxed(),
        pools.map(message_of("MachineConfigPools", WatchEvent::Pool)).boxed(),
        nodes.map(message_of("Nodes", WatchEvent::Node)).boxed(),
    ];
    let Optional { progress, os_configs, os_builds, scheduler, os_streams, feature_gates, operators, etcd } =
        Optional::of(client);
    all.push(match served.images {
        true => {
            let resource = ApiResource::erase::<MachineConfig>(&());
            let configs = Api::<ConfigImage>::all_with(client.clone(), &resource);
            let seen = message_of("MachineConfigs", WatchEvent::ConfigImage);
            watcher(configs, how()).default_backoff().map(seen).boxed()
        }
        false => {
            let configs = Api::<PartialObjectMeta<MachineConfig>>::all(client.clone());
            let seen = message_of("MachineConfigs", WatchEvent::Config);
            watcher(configs, how()).default_backoff().map(seen).boxed()
        }
    });
    if served.operators.is_there() {
        let ours = how().labels(&format!("{}={}", label::PART, part::OPERATOR));
        let seen = message_of("operator pods", WatchEvent::Operator);
        all.push(watcher(operators, ours).default_backoff().map(seen).boxed());
    }
    for (place, api) in etcd.into_iter().enumerate() {
        let (_, label) = EtcdMember::PLACES.get(place).copied().unwrap_or_default();
        if served.etcd.get(place).is_some_and(|there| there.is_there()) {
            let members = watcher(api, how().labels(label)).default_backoff();
            all.push(
                members.map(message_of("etcd pods", move |event| WatchEvent::Etcd(place, event))).boxed(),
            );
        }
    }
    if served.policies.is_there() {
        let seen = message_of("RolloutPolicies", WatchEvent::Policy);
        let resource = ApiResource::erase::<RolloutPolicy>(&());
        let policies = Api::<DynamicObject>::all_with(client.clone(), &resource);
        all.push(watcher(policies, how()).default_backoff().map(seen).boxed());
    }
    if served.progress.is_there() {
        let seen = message_of("MachineConfigNodes", WatchEvent::Progress);
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
            all.push(watcher(api, how()).default_backoff().map(message_of(kind, seen)).boxed());
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
            (Ok(Event::Init), false),
            (Err(failed), false),
            (Ok(Event::InitDone), true),
            (Ok(Event::Apply(Node::default())), true),
        ] {
            assert_eq!(message(event).answered, answered);
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
