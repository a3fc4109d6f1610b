//! The objects of an installation, in the order in which they are written. Pure.
//!
//! What it is not: a look at the cluster. What was found there is part of [`Options`].

use super::settings;
use super::{How, InstallError, Options, Step};
use crate::manifests::pods::Parts;
use crate::manifests::{agents, pods, rights};
use api::crds::Crd;
use api::k8s::LabelSelector;
use api::names::{self, label};
use api::v1::{ControllerConfig, MachineConfigPool, MachineConfigPoolSpec};
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The objects, in the order in which they must be written.
///
/// # Errors
/// Pods without a URL of the API server, a URL that machines cannot use, a ControllerConfig that cannot be read.
/// Otherwise only a bug in this build's own data.
pub fn plan(options: &Options) -> Result<Vec<Step>, InstallError> {
    settings::check(&options.said)?;
    let (config, step) = controller_config(options)?;
    let apply = |object| Step { how: How::Apply, object };
    let wanted = |crd: &Crd| crd.ours || options.openshift_config_crds;
    let mut steps: Vec<Step> =
        api::crds::all()?.into_iter().filter(wanted).map(|crd| apply(crd.object)).collect();
    steps.push(apply(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": names::NAMESPACE,
            // Agents that run as pods change their hosts.
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    })));
    // Before the parts, because a controller writes it, too, when it starts.
    steps.extend(step);
    for name in options.pools.iter().filter(|name| !options.pools_there.contains(name)) {
        steps.push(Step { how: How::CreateIfMissing, object: pool_object(name)? });
    }
    steps.extend(agents::rights().into_iter().map(apply));
    steps.extend(options.daemon_image.as_deref().map(agents::daemon_set).map(apply));
    if let Some(image) = &options.image {
        let parts = Parts {
            image,
            api_server_url: settings::api_server_url(&config.spec).ok_or(InstallError::NoUrl)?,
            require_token: options.require_token,
            balancers: &options.balancers,
            controllers: pods::controllers(&options.control_plane_topology),
            scaled: options.controllers.as_ref(),
        };
        let rights = rights::all(options.require_token, options.pull_secret.as_ref(), &options.old_tokens);
        steps.extend(rights.into_iter().map(apply));
        steps.extend(pods::all(&parts).into_iter().map(apply));
    }
    Ok(steps)
}

/// The ControllerConfig after the installation, and the step that writes it. `None`: there is nothing to write.
fn controller_config(options: &Options) -> Result<(ControllerConfig, Option<Step>), InstallError> {
    let wrong = |source| InstallError::Json { what: "ControllerConfig".to_owned(), source };
    let there = options.controller_config.as_ref();
    let (mut object, config) = match there {
        Some(there) => (bare(there), serde_json::from_value(there.clone()).map_err(wrong)?),
        None => {
            let config = settings::empty();
            (serde_json::to_value(&config).map_err(wrong)?, config)
        }
    };
    let mut patch = settings::patch(&config, there.is_none(), &options.said, &options.found);
    let changes = patch != json!({});
    json_patch::merge(&mut object, &patch);
    let config = serde_json::from_value(object.clone()).map_err(wrong)?;
    let how = match there {
        None => {
            without_empty(&mut object);
            How::CreateIfMissing
        }
        Some(_) if !changes => return Ok((config, None)),
        Some(there) => {
            patch["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
            How::Update(patch)
        }
    };
    Ok((config, Some(Step { how, object })))
}

/// Removes empty fields that the API server would refuse: null, and unknown CA data.
fn without_empty(config: &mut Value) {
    let Some(spec) = config.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.retain(|key, value| !(value.is_null() || key.ends_with("CAData") && value == ""));
}

/// The object as a user would write it, without the fields that the API server adds.
fn bare(object: &Value) -> Value {
    let mut metadata = Map::new();
    for key in ["name", "labels", "annotations"] {
        metadata.extend(object["metadata"].get(key).map(|v| (key.to_owned(), v.clone())));
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    json!({
        "apiVersion": format!("{}/v1", names::GROUP),
        "kind": "ControllerConfig",
        "metadata": metadata,
        "spec": object["spec"],
    })
}

/// A built-in pool as it is written. It has no field that others write later, because the next `kubectl apply` of the same
/// file would reset it.
pub(super) fn pool_object(name: &str) -> Result<Value, InstallError> {
    let wrong = |source| InstallError::Json { what: "MachineConfigPool".to_owned(), source };
    let mut object = serde_json::to_value(pool(name)).map_err(wrong)?;
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.retain(|key, _| ["machineConfigSelector", "nodeSelector"].contains(&key.as_str()));
    }
    Ok(object)
}

/// A built-in pool. It selects MachineConfigs and nodes by its role label.
pub fn pool(name: &str) -> MachineConfigPool {
    let one = |key: &str, value: &str| {
        let match_labels = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        Some(LabelSelector { match_labels, match_expressions: None })
    };
    let mut pool = MachineConfigPool::new(
        name,
        MachineConfigPoolSpec {
            machine_config_selector: one(label::ROLE, name),
            node_selector: one(&format!("{}{name}", label::NODE_ROLE_PREFIX), ""),
            ..Default::default()
        },
    );
    let labels = pool.labels_mut();
    labels.insert(label::BUILT_IN.to_owned(), String::new());
    labels.insert(format!("{}{name}", label::POOL_PREFIX), String::new());
    if name != names::WORKER {
        labels.insert(label::REQUIRED_FOR_UPGRADE.to_owned(), String::new());
    }
    pool
}
