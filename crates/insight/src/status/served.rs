//! Which of the kinds that a cluster need not have are there and can be read, and what is not known without them.
//!
//! What it is not: the watches of these kinds (see `watches`).

use api::definition::Defined as _;
use api::k8s::Pod;
use api::names;
use api::v1::{MachineConfigNode, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use client::{CallError, call};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use rollout::view::EtcdMember;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// How long the first view waits for OS image streams: once to learn whether they are used, and again for their lists. Pools
/// and nodes are worth seeing without them.
pub(super) const STREAMS_LIMIT: Duration = Duration::from_secs(1);

/// Whether an optional kind can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    Absent,
    /// It may not be read.
    Unknown,
    /// The API server did not answer in time.
    Late,
}

impl Presence {
    pub(super) fn is_there(self) -> bool {
        self == Self::There
    }

    pub(super) fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown | Self::Late)
    }
}

/// Which of the optional kinds can be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServedKinds {
    pub(super) progress: Presence,
    pub(super) os_configs: Presence,
    pub(super) os_builds: Presence,
    pub(super) scheduler: Presence,
    pub(super) streams: Presence,
    pub(super) feature_gates: Presence,
    pub(super) policies: Presence,
    pub(super) pinned_sets: Presence,
    /// The pods of the operator.
    pub(super) operators: Presence,
    /// For each of [`EtcdMember::PLACES`], whether its pods may be read.
    pub(super) etcd: [Presence; EtcdMember::PLACES.len()],
    /// Whether the images of MachineConfigs are read, because streams are used.
    pub(super) images: bool,
}

impl ServedKinds {
    /// What is unknown if a kind cannot be read.
    pub(super) fn unread(&self) -> Vec<UnreadKind> {
        let etcd = self.etcd.contains(&Presence::Unknown).then_some(Presence::Unknown);
        let streams = [self.streams, self.feature_gates].into_iter().find(|there| there.is_unknown());
        let about_streams = match streams {
            Some(Presence::Late) => {
                "the API server has not listed OSImageStreams and FeatureGates in time: a pool's stream is the one that \
                 its status names"
            }
            _ => {
                "OSImageStreams and FeatureGates cannot be read: a pool's stream is the one that its status names"
            }
        };
        let all = [
            (
                Some(self.progress),
                "MachineConfigNode",
                "MachineConfigNodes cannot be read: steps and times of updates are not known",
            ),
            (
                Some(self.policies),
                RolloutPolicy::DEFINITION.kind,
                "RolloutPolicies cannot be read: nodes that they hold back are shown as free to move",
            ),
            (
                Some(self.pinned_sets),
                "PinnedImageSet",
                "PinnedImageSets cannot be read: nodes may be shown with the images of a set that was changed just now",
            ),
            (
                Some(self.os_configs),
                "MachineOSConfig",
                "MachineOSConfigs cannot be read: pools with an image of their own are shown like others",
            ),
            (
                Some(self.os_builds),
                "MachineOSBuild",
                "MachineOSBuilds cannot be read: nodes that wait for an image are shown as free to move",
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
            (streams, "OSImageStream", about_streams),
            (
                etcd,
                "Pod",
                "pods of etcd cannot be read: whether a control-plane node waits for its member is not known",
            ),
        ];
        let unknown = all.into_iter().filter(|(there, ..)| there.is_some_and(Presence::is_unknown));
        unknown.map(|(_, kind, words)| UnreadKind { kind, words: words.to_owned() }).collect()
    }

    fn all(&self) -> impl Iterator<Item = Presence> {
        let Self {
            progress,
            os_configs,
            os_builds,
            scheduler,
            streams,
            feature_gates,
            policies,
            pinned_sets,
            operators,
            etcd,
            images: _,
        } = *self;
        let kinds = [
            progress,
            os_configs,
            os_builds,
            scheduler,
            streams,
            feature_gates,
            policies,
            pinned_sets,
            operators,
        ];
        kinds.into_iter().chain(etcd)
    }

    /// Whether watches that start now would have more than those that started with `before`: a kind that can be read by now, or
    /// that is known not to be there.
    pub(super) fn has_more_than(&self, before: &Self) -> bool {
        let more = |(before, now): (Presence, Presence)| {
            (now.is_there() && !before.is_there()) || (now == Presence::Absent && before.is_unknown())
        };
        (self.images && !before.images) || before.all().zip(self.all()).any(more)
    }
}

/// What is not known because its objects cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadKind {
    /// Their kind.
    pub kind: &'static str,
    /// What that means, as a sentence.
    pub words: String,
}

/// The requests for kinds that a cluster need not have.
pub(super) struct OptionalApis {
    pub(super) progress: Api<MachineConfigNode>,
    pub(super) os_configs: Api<DynamicObject>,
    pub(super) os_builds: Api<DynamicObject>,
    pub(super) scheduler: Api<DynamicObject>,
    pub(super) os_streams: Api<DynamicObject>,
    pub(super) feature_gates: Api<DynamicObject>,
    pub(super) operators: Api<Pod>,
    /// For each of [`EtcdMember::PLACES`].
    pub(super) etcd: [Api<Pod>; EtcdMember::PLACES.len()],
}

impl OptionalApis {
    pub(super) fn of(client: &Client) -> Self {
        let dynamic = |group: &str, kind: &str| -> Api<DynamicObject> {
            Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
        };
        Self {
            progress: Api::all(client.clone()),
            os_configs: dynamic(names::GROUP, "MachineOSConfig"),
            os_builds: dynamic(names::GROUP, "MachineOSBuild"),
            scheduler: dynamic("config.openshift.io", "Scheduler"),
            os_streams: dynamic(names::GROUP, "OSImageStream"),
            feature_gates: dynamic("config.openshift.io", "FeatureGate"),
            operators: Api::namespaced(client.clone(), names::NAMESPACE),
            etcd: EtcdMember::PLACES.map(|(namespace, _)| Api::namespaced(client.clone(), namespace)),
        }
    }
}

/// Asks which of the optional kinds can be read.
///
/// # Errors
/// The API server does not say which kinds are installed.
pub(super) async fn served(client: &Client) -> Result<ServedKinds, CallError> {
    let OptionalApis {
        progress,
        os_configs,
        os_builds,
        scheduler,
        os_streams,
        feature_gates,
        operators,
        etcd,
    } = OptionalApis::of(client);
    let about_streams = async {
        let asked = async {
            let streams = presence(os_streams.clone()).await?;
            let gates = presence(feature_gates).await?;
            Ok((streams, gates, streams.is_there() && names_streams(&os_streams).await?))
        };
        let late = Ok((Presence::Late, Presence::Late, false));
        tokio::time::timeout(STREAMS_LIMIT, asked).await.unwrap_or(late)
    };
    let there = tokio::try_join!(
        presence(progress),
        presence(os_configs),
        presence(os_builds),
        presence(scheduler),
        about_streams,
        presence(Api::<RolloutPolicy>::all(client.clone())),
        presence(Api::<PinnedImageSet>::all(client.clone())),
        presence(operators),
        futures::future::try_join_all(etcd.map(presence)),
    )?;
    Ok(ServedKinds {
        progress: there.0,
        os_configs: there.1,
        os_builds: there.2,
        scheduler: there.3,
        streams: there.4.0,
        feature_gates: there.4.1,
        images: there.4.2,
        policies: there.5,
        pinned_sets: there.6,
        operators: there.7,
        etcd: std::array::from_fn(|place| there.8.get(place).copied().unwrap_or(Presence::Unknown)),
    })
}

/// Whether there is an OSImageStream `cluster` that lists streams.
async fn names_streams(api: &Api<DynamicObject>) -> Result<bool, CallError> {
    let object = call(|| "osimagestream cluster".to_owned(), api.get_opt(names::CLUSTER)).await?;
    Ok(object.is_some_and(|object| lists_streams(&object.data)))
}

/// Whether an optional kind is installed and may be read.
async fn presence<K: Clone + serde::de::DeserializeOwned + std::fmt::Debug>(
    api: Api<K>,
) -> Result<Presence, CallError> {
    let one = ListParams::default().limit(1);
    match call(|| "find out which kinds the cluster serves".to_owned(), api.list_metadata(&one)).await {
        Ok(_) => Ok(Presence::There),
        Err(error) if error.is_forbidden() => Ok(Presence::Unknown),
        Err(error) if error.is_absent_or_forbidden() => Ok(Presence::Absent),
        Err(error) => Err(error),
    }
}

/// Whether an OSImageStream has streams to choose from.
pub(super) fn lists_streams(object: &Value) -> bool {
    let all = object.pointer("/status/availableStreams").and_then(Value::as_array);
    all.is_some_and(|all| !all.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_started_anew_only_where_that_tells_more() {
        let (there, absent, unknown, late) =
            (Presence::There, Presence::Absent, Presence::Unknown, Presence::Late);
        let served = |scheduler, streams, etcd, images| ServedKinds {
            progress: there,
            os_configs: absent,
            os_builds: absent,
            scheduler,
            streams,
            feature_gates: absent,
            policies: there,
            pinned_sets: there,
            operators: there,
            etcd: [etcd; EtcdMember::PLACES.len()],
            images,
        };
        let all = || served(there, there, there, true);
        for (before, now, more) in [
            (all(), all(), false),
            (served(absent, absent, unknown, false), served(absent, absent, unknown, false), false),
            (served(absent, absent, unknown, false), served(there, absent, unknown, false), true),
            (served(absent, absent, unknown, false), served(absent, absent, there, false), true),
            (served(absent, late, there, false), served(absent, absent, there, false), true),
            (served(absent, late, there, false), served(absent, unknown, there, false), false),
            (served(there, there, there, false), served(there, there, there, true), true),
            // What is lost is told by the watch that fails.
            (all(), served(unknown, late, absent, false), false),
        ] {
            assert_eq!(now.has_more_than(&before), more, "{before:?} {now:?}");
        }
    }
}
