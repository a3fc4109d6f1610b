//! What the node pass reads beside pools, nodes and configs, where it is there at all: image builds, OpenShift's
//! Scheduler, the operator's pod. Objects become the few values that `rollout` asks for.
//!
//! None of these kinds need be installed; a cluster without them is watched for them now and then.

use api::k8s::{Pod, ResourceExt};
use kube::api::DynamicObject;
use rollout::{BuildState, Layering, OsBuildView, OsConfigView};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// On a MachineOSConfig: the build in force.
const CURRENT_BUILD: &str = "machineconfiguration.openshift.io/current-machine-os-build";

/// A MachineOSConfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OsConfig {
    pool: String,
    current_build: Option<String>,
    view: OsConfigView,
}

/// A MachineOSBuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OsBuild {
    os_config: String,
    view: OsBuildView,
}

fn text<'a>(object: &'a DynamicObject, pointer: &str) -> &'a str {
    object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl OsConfig {
    pub(crate) fn new(object: &DynamicObject) -> Self {
        Self {
            pool: text(object, "/spec/machineConfigPool/name").to_owned(),
            current_build: object.annotations().get(CURRENT_BUILD).cloned(),
            view: OsConfigView {
                name: object.name_any().into(),
                image: text(object, "/status/currentImagePullSpec").into(),
            },
        }
    }
}

impl OsBuild {
    pub(crate) fn new(object: &DynamicObject) -> Self {
        let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
        let is_true: BTreeSet<&str> = conditions
            .into_iter()
            .flatten()
            .filter(|c| c["status"] == "True")
            .filter_map(|c| c["type"].as_str())
            .collect();
        // A build has one of them; where it has several, the one that ends it counts.
        let state = [
            ("Failed", BuildState::Failed),
            ("Interrupted", BuildState::Interrupted),
            ("Succeeded", BuildState::Succeeded),
            ("Building", BuildState::Building),
            ("Prepared", BuildState::Prepared),
        ]
        .into_iter()
        .find(|(type_, _)| is_true.contains(type_))
        .map_or(BuildState::Initial, |(_, state)| state);
        Self {
            os_config: text(object, "/spec/machineOSConfig/name").to_owned(),
            view: OsBuildView {
                name: object.name_any().into(),
                machine_config: text(object, "/spec/machineConfig/name").into(),
                state,
                image: text(object, "/status/digestedImagePushSpec").into(),
            },
        }
    }
}

/// The image build objects of a pool: its MachineOSConfig, and the build in force or else any for the pool's config.
pub(crate) fn layering(
    pool: &str,
    config: &str,
    configs: &[Arc<OsConfig>],
    builds: &[Arc<OsBuild>],
) -> Layering {
    let Some(os_config) = configs.iter().find(|c| c.pool == pool) else { return Layering::default() };
    let fits = |b: &&Arc<OsBuild>| &*b.view.machine_config == config;
    let in_force = os_config.current_build.as_deref();
    let build = builds
        .iter()
        .filter(fits)
        .find(|b| Some(&*b.view.name) == in_force)
        .or_else(|| builds.iter().filter(fits).find(|b| b.os_config == *os_config.view.name));
    Layering { config: Some(os_config.view.clone()), build: build.map(|b| b.view.clone()) }
}

/// The node of a pod of the operator that is not on its way out.
pub(crate) fn operator_node(pod: &Pod) -> Option<Arc<str>> {
    let gone = pod.metadata.deletion_timestamp.is_some();
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty() && !gone).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::{ApiResource, GroupVersionKind};
    use serde_json::json;

    fn object(name: &str, data: Value) -> DynamicObject {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("g", "v1", "K"));
        DynamicObject::new(name, &kind).data(data)
    }

    fn build(name: &str, os_config: &str, machine_config: &str, condition: &str) -> Arc<OsBuild> {
        Arc::new(OsBuild::new(&object(
            name,
            json!({
                "spec": {"machineOSConfig": {"name": os_config}, "machineConfig": {"name": machine_config}},
                "status": {"conditions": [{"type": "Prepared", "status": "False"}, {"type": condition, "status": "True"}]},
            }),
        )))
    }

    #[test]
    fn a_pool_gets_the_build_in_force_for_its_config_or_any_of_its_own() {
        let mut os = object(
            "os",
            json!({"spec": {"machineConfigPool": {"name": "infra"}}, "status": {"currentImagePullSpec": "i"}}),
        );
        let builds = [
            build("b1", "os", "r1", "Succeeded"),
            build("b2", "os", "r2", "Building"),
            build("b3", "os", "r2", "Failed"),
        ];
        let name = |l: Layering| l.build.map(|b| (b.name.to_string(), b.state));
        let configs = [Arc::new(OsConfig::new(&os))];
        assert_eq!(
            name(layering("infra", "r1", &configs, &builds)),
            Some(("b1".to_owned(), BuildState::Succeeded))
        );
        assert_eq!(
            name(layering("infra", "r2", &configs, &builds)),
            Some(("b2".to_owned(), BuildState::Building))
        );
        assert_eq!(name(layering("infra", "r3", &configs, &builds)), None);
        assert_eq!(layering("worker", "r1", &configs, &builds), Layering::default());
        os.annotations_mut().insert(CURRENT_BUILD.to_owned(), "b3".to_owned());
        let configs = [Arc::new(OsConfig::new(&os))];
        assert_eq!(
            name(layering("infra", "r2", &configs, &builds)),
            Some(("b3".to_owned(), BuildState::Failed))
        );
        assert_eq!(
            name(layering("infra", "r1", &configs, &builds)),
            Some(("b1".to_owned(), BuildState::Succeeded))
        );
    }
}
