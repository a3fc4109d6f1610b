//! Which objects a term watches: everything that a pass looks at.
//!
//! What it is not: what a watch says, and what follows from one that does not work (see `watches`).

use super::cluster::{KINDS, Kind, kept_label};
use super::options::Options;
use super::pass::PassResult;
use super::plan::Prometheus;
use super::watches::Watches;
use crate::facts::openshift;
use crate::objects::resource;
use api::first_boot::boot_token;
use api::first_boot::server_tls;
use api::names::{CLUSTER, CONTROLLER_CONFIG, NAMESPACE, PUSHED_IMAGES};
use api::v1::{ControllerConfig, MachineConfigPool, MachineOSConfig};
use api::v1alpha1::MachineConfigOperator;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;

/// ConfigMaps in which a cluster says what it is, the one that agents read, and the list of pushed images.
const CLUSTER_MAPS: [(&str, &str); 8] = [
    ("kube-public", "cluster-info"),
    ("kube-system", "kubeadm-config"),
    ("kube-system", "kubelet-config"),
    (NAMESPACE, "kube-root-ca.crt"),
    (NAMESPACE, "machine-config-operator-images"),
    (NAMESPACE, "machine-config-osimageurl"),
    (NAMESPACE, super::rotation::NAME),
    (NAMESPACE, PUSHED_IMAGES),
];

/// What is watched besides what booting machines need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Followed {
    /// The parts are kept, as a settings object says.
    by_settings: bool,
    /// Which of the Prometheus operator's kinds are served.
    prometheus: Prometheus,
    /// Whether MutatingAdmissionPolicies are served.
    mutates: bool,
    /// OpenShift's kinds that are served.
    kinds: Vec<(&'static str, &'static str, &'static str)>,
    /// OpenShift's namespaces that there are.
    namespaces: Vec<&'static str>,
}

impl Followed {
    pub(super) fn of(passed: &PassResult) -> Self {
        Self {
            by_settings: passed.seen.settings.is_some(),
            prometheus: Prometheus::of(&passed.seen.definitions),
            mutates: passed.seen.mutates,
            kinds: openshift::served(&passed.seen.definitions),
            namespaces: passed.openshift.clone().unwrap_or_default(),
        }
    }
}

/// Watches what a pass depends on. Kinds and namespaces that are not there are not watched: each attempt would fail.
pub(super) fn watches(client: &Client, options: &Options, followed: &Followed) -> Watches {
    let (by_settings, prometheus) = (followed.by_settings, followed.prometheus);
    let all = watcher::Config::default();
    let named = |name: &str| all.clone().fields(&format!("metadata.name={name}"));
    let mut watches = Watches::default();
    watches.follow(client, Api::<PartialObjectMeta<ControllerConfig>>::all, named(CONTROLLER_CONFIG));
    watches.follow(client, Api::<PartialObjectMeta<MachineConfigPool>>::all, all.clone());
    let secrets = |client| Api::<PartialObjectMeta<Secret>>::namespaced(client, NAMESPACE);
    watches.follow(client, secrets, named(server_tls::CA));
    watches.follow(client, secrets, named(server_tls::SERVING));
    let map = |watches: &mut Watches, namespace: &str, which: watcher::Config| {
        let maps = |client| Api::<PartialObjectMeta<ConfigMap>>::namespaced(client, namespace);
        watches.follow(client, maps, which);
    };
    map(&mut watches, NAMESPACE, named(server_tls::CA));
    let provider =
        |client| Api::<PartialObjectMeta<Secret>>::namespaced(client, api::first_boot::user_data::NAMESPACE);
    watches.follow(client, provider, all.clone());
    if by_settings || options.require_token {
        // Without tokens the operator may have no right to watch them.
        let own = |client| Api::<PartialObjectMeta<Secret>>::namespaced(client, boot_token::NAMESPACE);
        watches.follow(client, own, all.clone().labels(boot_token::LABEL));
    }
    if by_settings || options.image.is_some() {
        watches.follow(client, Api::<PartialObjectMeta<MachineConfigOperator>>::all, named(CLUSTER));
    }
    if !by_settings {
        return watches;
    }
    let joining = all.clone().fields(&format!("spec.signerName={}", crate::accounts::SIGNER));
    watches.follow(client, Api::<PartialObjectMeta<CertificateSigningRequest>>::all, joining);
    // What the cluster says about itself.
    for (namespace, name) in CLUSTER_MAPS.iter().chain(&openshift::SYSTEM_MAPS) {
        map(&mut watches, namespace, named(name));
    }
    for namespace in &followed.namespaces {
        map(&mut watches, namespace, all.clone());
    }
    for (kind, plural, name) in &followed.kinds {
        let api = |client| openshift::api::<PartialObjectMeta<DynamicObject>>(&client, kind, plural);
        watches.follow(client, api, named(name));
    }
    // The Secrets that they push with; of these, the controller may read no others.
    watches.follow(client, Api::<PartialObjectMeta<MachineOSConfig>>::all, all.clone());
    // Kinds of OpenShift and of the Prometheus operator may come and go, and ours may be changed.
    watches.follow(client, Api::<PartialObjectMeta<CustomResourceDefinition>>::all, all.clone());
    if let Some(resource) = resource(&super::machine_configuration::new()) {
        let api = |client| Api::<PartialObjectMeta<DynamicObject>>::all_with(client, &resource);
        watches.follow(client, api, named(CLUSTER));
    }
    let kept = all.labels(&kept_label());
    let served = |kind: &&Kind| match kind.kind {
        _ if !kind.may_be_missing() => true,
        "ServiceMonitor" => prometheus.monitors,
        "PrometheusRule" => prometheus.rules,
        _ => followed.mutates,
    };
    for kind in KINDS.iter().filter(served) {
        let Some(resource) = kind.resource() else { continue };
        for place in kind.places() {
            let api = |client| place.api::<PartialObjectMeta<DynamicObject>>(client, &resource);
            watches.follow(client, api, kept.clone());
        }
    }
    watches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::OPERATOR;
    use crate::manifests::rights;
    use serde_json::Value;

    /// Whether a rule allows to list and watch these objects, all of them or the one of this name.
    fn allows(rule: &Value, group: &str, plural: &str, name: Option<&str>) -> bool {
        let has = |field: &str, want: &str| {
            rule[field].as_array().is_some_and(|all| all.iter().any(|one| one == want || one == "*"))
        };
        let named = rule["resourceNames"].is_null() || name.is_some_and(|name| has("resourceNames", name));
        has("apiGroups", group)
            && has("resources", plural)
            && has("verbs", "list")
            && has("verbs", "watch")
            && named
    }

    /// A watch without a right never works: the operator would be degraded.
    #[tokio::test]
    async fn the_operator_may_watch_everything_that_it_watches() {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = Client::new(never, "default");
        let definitions = ["infrastructures", "networks", "dnses", "proxies", "images", "clusterversions"]
            .map(|plural| serde_json::json!({"metadata": {"name": format!("{plural}.config.openshift.io")}}));
        let followed = Followed {
            by_settings: true,
            prometheus: Prometheus { monitors: true, rules: true },
            mutates: true,
            kinds: openshift::served(&definitions),
            namespaces: openshift::NAMESPACES.to_vec(),
        };
        assert_eq!(followed.kinds.len(), definitions.len());
        let options = Options { require_token: true, ..Options::default() };
        let watches = watches(&client, &options, &followed);
        let given = rights::installer(None, &[], &openshift::NAMESPACES);
        for watched in watches.names() {
            let (url, selector) = watched.split_once('?').unwrap_or((watched, ""));
            let name = selector.strip_prefix("metadata.name=");
            let parts: Vec<&str> = url.split('/').skip(1).collect();
            let (group, rest) = match parts.as_slice() {
                ["api", _, rest @ ..] => ("", rest),
                ["apis", group, _, rest @ ..] => (*group, rest),
                other => panic!("{other:?}"),
            };
            let (namespace, plural) = match rest {
                ["namespaces", namespace, plural] => (Some(*namespace), *plural),
                [plural] => (None, *plural),
                other => panic!("{other:?}"),
            };
            let may = given.iter().filter(|role| role["metadata"]["name"] == OPERATOR).any(|role| {
                let applies = match role["kind"].as_str() {
                    Some("ClusterRole") => true,
                    Some("Role") => role["metadata"]["namespace"].as_str() == namespace,
                    _ => false,
                };
                let rules = role["rules"].as_array().into_iter().flatten();
                applies && rules.into_iter().any(|rule| allows(rule, group, plural, name))
            });
            assert!(may, "{watched}");
        }
    }
}
