//! The objects of an installation, in the order in which they are written. Pure.
//!
//! What it is not: a look at the cluster. What was found there is part of [`Options`].

use super::{InstallError, Options, Step, WriteMode};
use crate::controller_config_values::{self, ControllerConfigValues};
use crate::manifests::{self, admission, agents, replicas};
use crate::objects::marked;
use crate::settings::object::AgentPods;
use crate::{definitions, settings};
use api::detected::{API_SERVER_CA, API_SERVER_URL, CLUSTER_DNS_IP, Detected, digest};
use api::formats::shape;
use api::k8s::{ByteString, LabelSelector};
use api::names::annotation::FOUND_OUT;
use api::names::{self, label};
use api::v1::{ControllerConfig, MachineConfigPool, MachineConfigPoolSpec};
use api::v1alpha1::{
    Access, Agents, ImageFrom, MachineConfigOperator, MachineConfigOperatorSpec, ManagementState, Reboots,
    RunAs,
};
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The objects, in the order in which they must be written.
///
/// With an image these are the operator, what it needs, and its settings; the rest is the operator's. Without one the parts
/// run elsewhere, and the objects are those that they need.
///
/// # Errors
/// A URL that machines cannot use, a ControllerConfig that cannot be read. Otherwise only a bug in this build's own data.
pub fn plan(options: &Options) -> Result<Vec<Step>, InstallError> {
    controller_config_values::check(&options.given)?;
    let apply = |object| Step { how: WriteMode::Apply, object };
    let mut steps: Vec<Step> =
        definitions::all(options.openshift_config_crds)?.into_iter().map(marked).map(apply).collect();
    steps.push(apply(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": names::NAMESPACE,
            // Agents that run as pods change their hosts.
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    })));
    if let Some(image) = &options.image {
        let replicas = replicas::controllers(options.control_plane_topology);
        steps.extend(
            manifests::operator(
                image,
                replicas,
                options.pull_secret.as_ref(),
                &options.old_tokens,
                &options.openshift_namespaces,
            )
            .into_iter()
            .map(apply),
        );
        // What is said now counts, also over what somebody has written into the ControllerConfig. The settings alone would
        // not: the operator leaves such fields.
        if let Some(there) =
            options.controller_config.as_ref().filter(|_| options.given != ControllerConfigValues::default())
        {
            steps.extend(
                controller_config(Some(there), &options.given, &ControllerConfigValues::default())?.1,
            );
        }
        steps.push(settings_step(options, image)?);
        return Ok(steps);
    }
    let there = options.controller_config.as_ref();
    // Before the parts, because a controller writes it, too, when it starts.
    steps.extend(controller_config(there, &options.given, &options.detected)?.1);
    for name in options.pools.iter().flatten().filter(|name| !options.existing_pools.contains(name)) {
        steps.push(Step { how: WriteMode::CreateIfMissing, object: pool_object(name)? });
    }
    steps.extend(agents::rights().into_iter().chain(admission::agent_guard()).map(apply));
    let pods = options.daemon_image.clone().map(|image| AgentPods { image, kubeconfig: None });
    steps.extend(pods.as_ref().map(|pods| agents::daemon_set(pods, None)).map(apply));
    Ok(steps)
}

/// The settings: what is said now, over what stands there, over what was found out.
fn settings_step(options: &Options, image: &str) -> Result<Step, InstallError> {
    let mut object = match &options.settings {
        Some(there) => there.clone(),
        None => MachineConfigOperator::new(
            names::CLUSTER,
            MachineConfigOperatorSpec {
                pools: built_in(),
                reboots: Reboots::WhenNeeded,
                ..Default::default()
            },
        ),
    };
    let spec = &mut object.spec;
    image.clone_into(&mut spec.image);
    if let Some(pools) = &options.pools {
        spec.pools.clone_from(pools);
    }
    match (&options.daemon_image, options.agents_of_hosts) {
        (Some(image), _) => {
            spec.agents.run_as = RunAs::Pods;
            spec.agents.image = (*image != spec.image).then(|| image.clone());
        }
        (None, true) => spec.agents = Agents { run_as: RunAs::HostServices, ..Agents::default() },
        (None, false) => {}
    }
    spec.config_server.access = if options.require_token { Access::BootTokens } else { Access::Everybody };
    spec.config_server.proxy_protocol_from = options.balancers.iter().map(ToString::to_string).collect();
    let mut record = Detected::of(&object.metadata);
    // A machine could not use the kubeconfig's address where it is a loopback address.
    let usable = options
        .detected
        .api_server_url
        .clone()
        .filter(|url| controller_config_values::reachable_url(Some(url)).is_some());
    let dns = (options.given.cluster_dns_ip.clone(), options.detected.cluster_dns_ip.clone());
    choose(
        &mut record,
        API_SERVER_URL,
        &mut spec.api_server.url,
        options.given.api_server_url.clone(),
        usable,
        String::clone,
    );
    choose(&mut record, CLUSTER_DNS_IP, &mut spec.cluster_dns_ip, dns.0, dns.1, String::clone);
    let data = |ca: &Option<Vec<u8>>| ca.clone().filter(|ca| !ca.is_empty()).map(ByteString);
    let (given, detected) = (data(&options.given.api_server_ca), data(&options.detected.api_server_ca));
    choose(&mut record, API_SERVER_CA, &mut spec.api_server.ca_data, given, detected, |ca| digest(&ca.0));
    let wrong = |source| InstallError::Json { what: settings::name(), source };
    let mut value = serde_json::to_value(&object).map_err(wrong)?;
    let mut spec = value["spec"].take();
    // Not named where they are the default: they are the administrator's, and what is not applied is not taken from him, by
    // this, by a chart or by GitOps.
    if let Some(fields) = spec.as_object_mut() {
        for (field, default) in [
            ("imageFrom", json!(ImageFrom::default())),
            ("managementState", json!(ManagementState::default())),
        ] {
            if fields.get(field) == Some(&default) {
                fields.remove(field);
            }
        }
    }
    let mut metadata = json!({"name": names::CLUSTER});
    if let Some(text) = record.text() {
        metadata["annotations"] = json!({ FOUND_OUT: text });
    }
    let object = json!({
        "apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": metadata, "spec": spec,
    });
    // What is written contains what was read. An edit made since would be lost.
    let read = options.settings.as_ref().map(|there| &there.metadata);
    let how = match read.filter(|read| read.resource_version.is_some()) {
        Some(read) => WriteMode::ApplyOver(serde_json::to_value(read).map_err(wrong)?),
        None => WriteMode::Apply,
    };
    Ok(Step { how, object })
}

/// What is said now counts; what is found out replaces only what was found out before.
fn choose<T: Clone>(
    record: &mut Detected,
    field: &str,
    place: &mut Option<T>,
    given: Option<T>,
    detected: Option<T>,
    recorded: impl Fn(&T) -> String,
) {
    if given.is_some() {
        record.forget(field);
        *place = given;
    } else if let Some(detected) = detected
        && place.as_ref().is_none_or(|has| record.is_ours(field, &recorded(has)))
    {
        record.set(field, recorded(&detected));
        *place = Some(detected);
    }
}

/// Where the ControllerConfig has the API server's URL.
const IN_USE: &str = "/spec/infra/status/apiServerInternalURI";

/// The API server's URL that the settings have, and the one that these steps give them although nobody has asked for it: it was found
/// out both times. `None`: it stays, it is what the administrator says, or the ControllerConfig does not have it: where the cluster
/// names its own address, that of the settings is not used.
pub fn moved_api_server(options: &Options, steps: &[Step]) -> Option<[String; 2]> {
    let before = options.settings.as_ref()?.spec.api_server.url.clone()?;
    let settings = steps.iter().find(|step| step.object["kind"] == "MachineConfigOperator")?;
    let after = settings.object.pointer("/spec/apiServer/url")?.as_str()?;
    let in_use = options.controller_config.as_ref()?.pointer(IN_USE)?.as_str()?;
    if in_use != before {
        return None;
    }
    (options.given.api_server_url.is_none() && after != before).then(|| [before, after.to_owned()])
}

fn built_in() -> Vec<String> {
    vec![names::MASTER.to_owned(), names::WORKER.to_owned()]
}

/// The ControllerConfig, read from what the API server returned.
///
/// # Errors
/// [`InstallError::Unreadable`]: a field that does not fit the kind.
pub(crate) fn read_controller_config(object: &Value) -> Result<ControllerConfig, InstallError> {
    shape::read(object).map_err(|source| InstallError::Unreadable {
        what: config_name(),
        target: format!("controllerconfig {}", names::CONTROLLER_CONFIG),
        source,
    })
}

fn config_name() -> String {
    format!("ControllerConfig {}", names::CONTROLLER_CONFIG)
}

/// The ControllerConfig after it was written, and the step that writes it. `None`: there is nothing to write.
pub(crate) fn controller_config(
    there: Option<&Value>,
    given: &ControllerConfigValues,
    detected: &ControllerConfigValues,
) -> Result<(ControllerConfig, Option<Step>), InstallError> {
    let wrong = |source| InstallError::Json { what: config_name(), source };
    let (mut object, config) = match there {
        Some(there) => (bare(there), read_controller_config(there)?),
        None => {
            let config = controller_config_values::empty();
            (serde_json::to_value(&config).map_err(wrong)?, config)
        }
    };
    let mut patch = controller_config_values::patch(&config, there.is_none(), given, detected);
    let changes = patch != json!({});
    json_patch::merge(&mut object, &patch);
    let config = read_controller_config(&object)?;
    let how = match there {
        None => {
            without_empty(&mut object);
            WriteMode::CreateIfMissing
        }
        Some(_) if !changes => return Ok((config, None)),
        Some(there) => {
            patch["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
            WriteMode::Update(patch)
        }
    };
    Ok((config, Some(Step { how, object })))
}

/// Removes empty fields that the API server would refuse: null, and unknown CA data.
pub(crate) fn without_empty(config: &mut Value) {
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
pub(crate) fn pool_object(name: &str) -> Result<Value, InstallError> {
    let wrong = |source| InstallError::Json { what: format!("MachineConfigPool {name}"), source };
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
