//! Kubernetes Events, each on the object that it concerns. Only transitions are reported, so nothing here limits or
//! counts.
//!
//! Events about cluster-scoped objects are stored in our own namespace. If that namespace is missing, or an event is
//! refused, one warning is logged and the work goes on: an event is never worth a failed pass.

use api::events::{ControllerEvent, Severity};
use api::k8s::{Event, ObjectMeta, ObjectReference, Time};
use api::names::{NAMESPACE, annotation};
use client::call;
use k8s_openapi::api::core::v1::EventSource;
use kube::api::{Api, PostParams};
use kube::{Client, Resource, ResourceExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::mpsc;

/// How many events may wait while the API server is slow or away. Further ones are dropped, with a warning.
const WAITING: usize = 1024;

/// The source component of an event, as in the reference. Dashboards select by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Render,
    Node,
    Template,
    Kubelet,
    Runtime,
    Builder,
}

impl Source {
    fn component(self) -> &'static str {
        match self {
            Self::Render => "machineconfigcontroller-rendercontroller",
            // The drain controller also uses this name.
            Self::Node => "machineconfigcontroller-nodecontroller",
            Self::Template => "machineconfigcontroller-templatecontroller",
            Self::Kubelet => "machineconfigcontroller-kubeletconfigcontroller",
            Self::Runtime => "machineconfigcontroller-containerruntimeconfigcontroller",
            Self::Builder => "machineosbuilder",
        }
    }
}

/// Hands events to the task that writes them. A full queue never delays a pass.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    queue: mpsc::Sender<Event>,
}

/// A reference to a cluster-scoped object, as events and owner references need it.
pub(crate) fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: Some(object.name_any()),
        uid: object.uid(),
        ..ObjectReference::default()
    }
}

/// A reference to a node. `kubectl describe node` looks events up with the node's name in place of its uid.
pub(crate) fn node_reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

impl Recorder {
    /// A recorder, and the task that writes its events.
    pub(crate) fn new(client: Client) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, waiting) = mpsc::channel(WAITING);
        (Self { queue }, write(client, waiting))
    }

    /// Records one event.
    pub(crate) fn publish(
        &self,
        source: Source,
        about: ObjectReference,
        reason: ControllerEvent,
        message: String,
    ) {
        let name = about.name.as_deref().unwrap_or_default();
        match reason.severity() {
            Severity::Normal => tracing::info!(%reason, object = name, "{message}"),
            Severity::Warning => tracing::warn!(%reason, object = name, "{message}"),
        }
        let event = event(source, about, reason, message);
        if self.queue.try_send(event).is_err() {
            tracing::warn!(%reason, "an event was dropped: {WAITING} others already wait for the API server");
        }
    }
}

/// The largest message that the API accepts, in bytes.
const MAX_MESSAGE: usize = 1024;

fn event(source: Source, about: ObjectReference, reason: ControllerEvent, message: String) -> Event {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let now = jiff::Timestamp::now();
    // Named as client-go names them: the clock makes the name unique across restarts, the number within one run.
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    // The API requires that the two namespaces agree, also for cluster-scoped objects.
    let about = ObjectReference { namespace: Some(NAMESPACE.to_owned()), ..about };
    let stem = about.name.clone().unwrap_or_default();
    let component = source.component().to_owned();
    let mut message = message;
    if message.len() > MAX_MESSAGE {
        let cut = (0..=MAX_MESSAGE - 3).rev().find(|i| message.is_char_boundary(*i)).unwrap_or_default();
        message.truncate(cut);
        message.push_str("...");
    }
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{stem}.{:x}{serial:x}", now.as_microsecond())),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: about,
        reason: Some(reason.text().to_owned()),
        message: Some(message),
        type_: Some(reason.severity().text().to_owned()),
        source: Some(EventSource { component: Some(component.clone()), host: None }),
        reporting_component: Some(component),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

async fn write(client: Client, mut waiting: mpsc::Receiver<Event>) {
    let api: Api<Event> = Api::namespaced(client, NAMESPACE);
    let told = AtomicBool::new(false);
    while let Some(event) = waiting.recv().await {
        let what = || format!("event {}", event.reason.as_deref().unwrap_or_default());
        match call(what, api.create(&PostParams::default(), &event)).await {
            Ok(_) => told.store(false, Ordering::Relaxed),
            Err(_) if told.swap(true, Ordering::Relaxed) => {}
            Err(e) if e.is_not_found() => {
                tracing::warn!(
                    "events are not recorded: namespace {NAMESPACE} does not exist; `mco install` creates it"
                );
            }
            Err(e) => tracing::warn!("an event could not be written: {}", e.chain()),
        }
    }
}

/// The release version that the ControllerConfig names. Events about rendering carry it.
pub(crate) fn release_version(config: &api::v1::ControllerConfig) -> &str {
    config.annotations().get(annotation::RELEASE_IMAGE_VERSION).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character_and_stays_within_the_limit() {
        let e = event(Source::Node, node_reference("n"), ControllerEvent::DrainFailed, "ä".repeat(2000));
        let message = e.message.unwrap();
        assert!(message.len() <= MAX_MESSAGE && message.ends_with("ä..."), "{}", message.len());
        assert_eq!(e.type_.as_deref(), Some("Warning"));
        assert_eq!(e.metadata.namespace.as_deref(), Some(NAMESPACE));
    }

    #[test]
    fn two_events_never_share_a_name() {
        let mk = || {
            let reason = ControllerEvent::PutBack;
            event(Source::Render, node_reference("n"), reason, String::new()).metadata.name
        };
        assert_ne!(mk(), mk());
    }
}
