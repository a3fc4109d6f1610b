//! What there is to read for passes. What no descriptor names is not watched, and the compiler reports it as unused.
//!
//! What it is not: how a watch works (see the parent module and `cache::watch`), or what passes do with what it brings.

use super::input::Input;
use super::{without_images, without_managed_fields};
use crate::cache::settings;
use crate::cache::trimmed::Config;
use crate::cache::watch::ReadRequirement::{Always, NonBlocking, WhereServed};
use crate::change::Changed;
use crate::kind;
use api::names::{PULL_SECRET as PULL_SECRET_NAME, label, part};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use rollout::view::EtcdMember;

pub(crate) static POOLS: Input = Input::watched(kind::POOLS, Always, |watches, kind, need| {
    let store = &watches.shared.stores.pools;
    watches.all_of_own_kind::<MachineConfigPool, _>(kind, need, store, without_managed_fields, |c| {
        Changed::Pool(c)
    });
});

pub(crate) static CONFIGS: Input = Input::watched(kind::CONFIGS, Always, |watches, kind, need| {
    let store = &watches.shared.stores.configs;
    watches.all_of_own_kind::<MachineConfig, _>(kind, need, store, Config::new, |c| Changed::Config(c));
});

pub(crate) static CONTROLLER_CONFIGS: Input =
    Input::watched(kind::CONTROLLER_CONFIGS, Always, |watches, kind, need| {
        let store = &watches.shared.stores.controller_configs;
        watches.all_of_own_kind::<ControllerConfig, _>(kind, need, store, without_managed_fields, |c| {
            Changed::ControllerConfig(c)
        });
    });

pub(crate) static ROLLOUT_POLICIES: Input =
    Input::watched(kind::ROLLOUT_POLICIES, WhereServed, |watches, kind, need| {
        let store = &watches.shared.stores.rollout_policies;
        watches.all_of_own_kind::<RolloutPolicy, _>(kind, need, store, without_managed_fields, |c| {
            Changed::RolloutPolicy(c)
        });
    });

pub(crate) static PINNED_IMAGE_SETS: Input =
    Input::watched(kind::PINNED_IMAGE_SETS, WhereServed, |watches, kind, need| {
        let store = &watches.shared.stores.pinned_image_sets;
        watches.all_of_own_kind::<PinnedImageSet, _>(kind, need, store, without_images, |c| {
            Changed::PinnedImageSet(c)
        });
    });

pub(crate) static NODES: Input =
    Input::watched(kind::NODES, Always, |watches, kind, need| watches.nodes(kind, need));

pub(crate) static MACHINE_CONFIG_NODES: Input =
    Input::watched(kind::MACHINE_CONFIG_NODES, NonBlocking, |watches, kind, need| {
        watches.machine_config_nodes(kind, need);
    });

pub(crate) static OS_CONFIGS: Input =
    Input::watched(kind::OS_CONFIGS, WhereServed, |watches, kind, need| watches.os_configs(kind, need));

pub(crate) static OS_BUILDS: Input =
    Input::watched(kind::OS_BUILDS, WhereServed, |watches, kind, need| watches.os_builds(kind, need));

/// The Jobs that build images.
pub(crate) static BUILD_JOBS: Input =
    Input::watched(kind::JOBS, WhereServed, |watches, kind, need| watches.build_jobs(kind, need))
        .in_own_namespace();

/// Whether nodes of the control plane take any pods, as OpenShift's Scheduler says it.
pub(crate) static SCHEDULER: Input =
    Input::watched(kind::SCHEDULERS, NonBlocking, |watches, kind, need| watches.scheduler(kind, need));

/// Whether OpenShift's MachineConfiguration turns off the check of how old boot images are.
pub(crate) static BOOT_IMAGE_SKEW: Input =
    Input::watched(kind::MACHINE_CONFIGURATIONS, NonBlocking, |watches, kind, need| {
        watches.boot_image_skew(kind, need);
    });

/// The operator's pods.
pub(crate) static OPERATOR_PODS: Input = Input::watched(kind::PODS, NonBlocking, |watches, kind, need| {
    watches.operator_pods(kind, need, &format!("{}={}", label::PART, part::OPERATOR));
});

/// The members of etcd that run as static pods.
pub(crate) static ETCD_PODS: Input = Input::watched(kind::PODS, WhereServed, |watches, kind, need| {
    for ((namespace, labels), store) in EtcdMember::PLACES.into_iter().zip(&watches.shared.stores.etcd) {
        watches.etcd_pods(kind, need, namespace, labels, store);
    }
});

/// Other pods: those of a node that is drained, and those of image builds.
pub(crate) static PODS: Input = Input::requested(kind::PODS);
/// The budgets that a drain respects.
pub(crate) static BUDGETS: Input = Input::requested(kind::BUDGETS);
/// The pull secret. Where it is, the ControllerConfig says; the right to one of another name or namespace is given by the operator.
pub(crate) static PULL_SECRET: Input = Input::requested(kind::SECRETS)
    .in_own_namespace()
    .with_names(&[PULL_SECRET_NAME])
    .followed(|watches| watches.pull_secret());
/// The folder of the templates.
pub(crate) static TEMPLATE_FOLDER: Input = Input::outside(|watches| watches.template_folder());

pub(crate) static KUBELET_CONFIGS: Input = Input::setting(settings::KUBELET_CONFIG);
pub(crate) static RUNTIME_CONFIGS: Input = Input::setting(settings::RUNTIME_CONFIG);
pub(crate) static STREAMS: Input = Input::setting(settings::STREAMS);
pub(crate) static MACHINE_CONFIGURATIONS: Input = Input::setting(settings::MACHINE_CONFIGURATION);
pub(crate) static FEATURE_GATES: Input = Input::setting(settings::FEATURE_GATE);
pub(crate) static NODE_SETTINGS: Input = Input::setting(settings::NODE);
pub(crate) static IMAGES: Input = Input::setting(settings::IMAGE);
pub(crate) static API_SERVERS: Input = Input::setting(settings::API_SERVER);
pub(crate) static CLUSTER_VERSIONS: Input = Input::setting(settings::CLUSTER_VERSION);
pub(crate) static DIGEST_MIRRORS: Input = Input::setting(settings::DIGEST_MIRRORS);
pub(crate) static TAG_MIRRORS: Input = Input::setting(settings::TAG_MIRRORS);
pub(crate) static SOURCE_POLICIES: Input = Input::setting(settings::SOURCE_POLICY);
pub(crate) static CLUSTER_IMAGE_POLICIES: Input = Input::setting(settings::CLUSTER_POLICY);
pub(crate) static IMAGE_POLICIES: Input = Input::setting(settings::POLICY);
