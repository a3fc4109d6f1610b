//! `mco install`: the objects that must stand in a cluster before a controller can work.
//!
//! Objects that a user may edit afterwards (ControllerConfig, pools) are only created where they are missing; the
//! namespace and the CRDs are applied, so that running it again upgrades them.

use crate::pods::Parts;
pub use crate::rights::PullSecret;
use api::crds::{Crd, CrdError};
use api::found::{CONTROL_PLANE_TOPOLOGY, Found, INFRASTRUCTURE_TOPOLOGY};
use api::k8s::{ByteString, LabelSelector};
use api::names::{self, annotation, label};
use api::v1::{ControllerConfig, ControllerConfigSpec, MachineConfigPool, MachineConfigPoolSpec};
use ipnet::IpNet;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Who owns the fields that are applied.
const FIELD_MANAGER: &str = "machine-config-operator";
/// An API server that needs longer for one small object is as good as away.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The API server publishes a new kind within a second; a loaded one within a few.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is asked.
const ESTABLISH_POLL: Duration = Duration::from_millis(50);

/// What is installed.
#[derive(Debug, Clone)]
pub struct Options {
    /// The built-in pools to create.
    pub pools: Vec<String>,
    /// The address of the cluster's DNS service.
    pub cluster_dns_ip: String,
    /// The CA that clients of the API server trust (PEM).
    pub kube_api_ca: Vec<u8>,
    /// The API server's URL as nodes reach it.
    pub api_server_url: String,
    /// The topology of the control plane as its nodes tell it, `HighlyAvailable` or `SingleReplica`; `None`: not known.
    pub control_plane_topology: Option<&'static str>,
    /// The same for the nodes that run the workload.
    pub infrastructure_topology: Option<&'static str>,
    /// The image of the agents' pods. `None`: agents run as services of their hosts.
    pub daemon_image: Option<String>,
    /// The image of the pods of controller, config server and operator. `None`: they run elsewhere.
    pub image: Option<String>,
    /// With `image`: the config server gives configs only to machines with a boot token. False: to everybody, over plain
    /// HTTP too, as the reference does.
    pub require_token: bool,
    /// With `image`: load balancers that say by PROXY protocol for whom they speak.
    pub balancers: Vec<IpNet>,
    /// Where the pull secret stands that the ControllerConfig names.
    pub pull_secret: Option<PullSecret>,
    /// Also the CRDs of OpenShift's own config and operator kinds, for a plain cluster that wants to use them.
    pub openshift_config_crds: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pools: vec![names::MASTER.to_owned(), names::WORKER.to_owned()],
            cluster_dns_ip: "10.96.0.10".to_owned(),
            kube_api_ca: vec![],
            api_server_url: String::new(),
            control_plane_topology: None,
            infrastructure_topology: None,
            daemon_image: None,
            image: None,
            require_token: true,
            balancers: vec![],
            pull_secret: None,
            openshift_config_crds: false,
        }
    }
}

/// How an object is put into the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Ours: brought to this form each time.
    Apply,
    /// The user's after the first time: created where it is missing.
    CreateIfMissing,
}

/// One object of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// How.
    pub how: How,
    /// What.
    pub object: Value,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |p: &str| self.object.pointer(p).and_then(Value::as_str).unwrap_or("?").to_owned();
        let how = match self.how {
            How::Apply => "apply",
            How::CreateIfMissing => "create if missing:",
        };
        write!(f, "{how} {} {}", text("/kind"), text("/metadata/name"))
    }
}

/// Why the installation ended early.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A fault in our own data.
    #[error("the CRDs in this build are broken")]
    Crds(#[from] CrdError),
    /// An object could not be written as JSON.
    #[error("{what} cannot be written as JSON")]
    Json {
        /// The object.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
    /// The API server said no, or nothing.
    #[error("{step}")]
    Api {
        /// The step that failed.
        step: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("{step}: no answer within {} s; is the API server reachable?", REQUEST_TIMEOUT.as_secs())]
    Timeout {
        /// The step that failed.
        step: String,
    },
    /// A plan with an object of a kind that the installer does not know: a fault in this build.
    #[error("{step}: the installer does not know this kind")]
    UnknownKind {
        /// The step.
        step: String,
    },
    /// The config server tells machines how they reach the API server.
    #[error("the config server's pods must know how machines reach the API server: pass --api-server-url")]
    NoUrl,
    /// The API server took a CRD and does not serve it.
    #[error("{name} is not served {} s after it was applied: {why}", ESTABLISH_TIMEOUT.as_secs())]
    NotEstablished {
        /// The CRD.
        name: String,
        /// What its conditions say.
        why: String,
    },
}

/// The objects, in the order in which they must come.
///
/// # Errors
/// Pods without an API server's URL; else only a fault in this build's own data.
pub fn plan(options: &Options) -> Result<Vec<Step>, InstallError> {
    let apply = |object| Step { how: How::Apply, object };
    let mut steps = vec![apply(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": names::NAMESPACE,
            // Agents that run as pods change their hosts.
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    }))];
    steps.extend(crate::agent::rights().into_iter().map(apply));
    steps.extend(options.daemon_image.as_deref().map(crate::agent::daemon_set).map(apply));
    if let Some(image) = &options.image {
        if options.api_server_url.is_empty() {
            return Err(InstallError::NoUrl);
        }
        let parts = Parts {
            image,
            api_server_url: &options.api_server_url,
            require_token: options.require_token,
            balancers: &options.balancers,
            controllers: crate::pods::controllers(options.control_plane_topology.unwrap_or_default()),
        };
        let rights = crate::rights::all(options.require_token, options.pull_secret.as_ref());
        steps.extend(rights.into_iter().map(apply));
        steps.extend(crate::pods::all(&parts).into_iter().map(apply));
    }
    let wanted = |crd: &Crd| crd.ours || options.openshift_config_crds;
    steps.extend(api::crds::all()?.into_iter().filter(wanted).map(|crd| apply(crd.object)));
    steps.push(create("ControllerConfig", &controller_config(options))?);
    for name in &options.pools {
        steps.push(create("MachineConfigPool", &pool(name))?);
    }
    Ok(steps)
}

fn create<T: serde::Serialize>(what: &str, object: &T) -> Result<Step, InstallError> {
    let object = serde_json::to_value(object)
        .map_err(|source| InstallError::Json { what: what.to_owned(), source })?;
    Ok(Step { how: How::CreateIfMissing, object })
}

/// A built-in pool: MachineConfigs with its role label, nodes with its role label.
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

/// The ControllerConfig of a cluster that has no `config.openshift.io` objects to take it from.
pub fn controller_config(options: &Options) -> ControllerConfig {
    let mut spec = ControllerConfigSpec {
        cluster_dns_ip: options.cluster_dns_ip.clone(),
        kube_api_server_serving_ca_data: ByteString(options.kube_api_ca.clone()),
        root_ca_data: ByteString(options.kube_api_ca.clone()),
        ip_families: "IPv4".to_owned(),
        infra: Some(json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "Infrastructure",
            "metadata": {"name": names::CLUSTER},
            "spec": {"cloudConfig": {"name": ""}, "platformSpec": {"type": "None"}},
            "status": {
                "apiServerURL": options.api_server_url,
                "apiServerInternalURI": options.api_server_url,
                "infrastructureName": "",
                "etcdDiscoveryDomain": "",
                "platform": "None",
                "platformStatus": {"type": "None"},
            },
        })),
        ..Default::default()
    };
    let mut record = Found::default();
    for (field, value) in [
        (CONTROL_PLANE_TOPOLOGY, options.control_plane_topology),
        (INFRASTRUCTURE_TOPOLOGY, options.infrastructure_topology),
    ] {
        if let (Some(value), Some(infra)) = (value, &mut spec.infra) {
            infra["status"][field] = json!(value);
            record.set(field, value);
        }
    }
    let mut config = ControllerConfig::new(names::CONTROLLER_CONFIG, spec);
    config.annotations_mut().extend(record.text().map(|t| (annotation::FOUND_OUT.to_owned(), t)));
    config
        .annotations_mut()
        .insert(annotation::GENERATED_BY_VERSION.to_owned(), names::VERSION_RAW.to_owned());
    config
}

/// What an installation that is there says about the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct There {
    /// Whether its config server asks for boot tokens; none: it has none as pods.
    pub require_token: Option<bool>,
    /// The pull secret that its ControllerConfig names.
    pub pull_secret: Option<PullSecret>,
}

/// Looks at what is there.
///
/// # Errors
/// The API server's answer. A cluster without our kinds has nothing.
pub async fn there(client: &Client) -> Result<There, InstallError> {
    async fn get<T>(
        step: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<Option<T>, InstallError> {
        match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
            Err(_) => Err(InstallError::Timeout { step: step.to_owned() }),
            Ok(Err(kube::Error::Api(e))) if e.code == 404 => Ok(None),
            Ok(Err(source)) => Err(InstallError::Api { step: step.to_owned(), source: Box::new(source) }),
            Ok(Ok(object)) => Ok(Some(object)),
        }
    }
    let api = |kind: &str, version: &str| {
        let resource = resource(&json!({"kind": kind, "apiVersion": version}))?;
        Some(match kind {
            "DaemonSet" => Api::<DynamicObject>::namespaced_with(client.clone(), names::NAMESPACE, &resource),
            _ => Api::all_with(client.clone(), &resource),
        })
    };
    let mut there = There::default();
    if let Some(api) = api("DaemonSet", "apps/v1") {
        let set = get("get DaemonSet machine-config-server", api.get(crate::rights::SERVER)).await?;
        there.require_token = set.as_ref().map(|s| asks(&s.data));
    }
    if let Some(api) = api("ControllerConfig", &format!("{}/v1", names::GROUP)) {
        let config = get("get ControllerConfig", api.get(names::CONTROLLER_CONFIG)).await?;
        there.pull_secret = config.as_ref().and_then(|c| pull_secret(&c.data));
    }
    if let (Some((name, _)), Some(api)) = (&there.pull_secret, api("Namespace", "v1"))
        && get("get the pull secret's Namespace", api.get(name)).await?.is_none()
    {
        // No right can be given in a namespace that is not there.
        there.pull_secret = None;
    }
    Ok(there)
}

/// Whether a config server's DaemonSet asks for boot tokens.
fn asks(set: &Value) -> bool {
    let args = set.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    args.is_some_and(|args| args.iter().any(|a| a == "--require-token"))
}

fn pull_secret(config: &Value) -> Option<PullSecret> {
    let text = |key: &str| config.pointer(&format!("/spec/pullSecret/{key}"))?.as_str().map(str::to_owned);
    Some((text("namespace").unwrap_or_else(|| "openshift-config".to_owned()), text("name")?))
}

/// Puts the plan's objects into the cluster, telling `progress` each step as it is done, and waits until the new
/// kinds are served.
///
/// # Errors
/// The first step that the API server refused, with its answer.
pub async fn apply(
    client: &Client,
    steps: &[Step],
    mut progress: impl FnMut(&Step),
) -> Result<(), InstallError> {
    let (definitions, rest): (Vec<&Step>, Vec<&Step>) = steps
        .iter()
        .partition(|s| s.object.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition"));
    let (first, last): (Vec<&Step>, Vec<&Step>) = rest.into_iter().partition(|s| s.how == How::Apply);
    for step in first {
        one(client, step).await?;
        progress(step);
    }
    // All at once: each is a request of its own, and the API server takes them in parallel.
    futures::future::try_join_all(definitions.iter().map(|step| one(client, step))).await?;
    definitions.iter().for_each(|step| progress(step));
    futures::future::try_join_all(definitions.iter().map(|step| established(client, step))).await?;
    for step in last {
        one(client, step).await?;
        progress(step);
    }
    Ok(())
}

fn resource(object: &Value) -> Option<ApiResource> {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let plural = match kind {
        "MachineConfigPool" => "machineconfigpools",
        "ControllerConfig" => "controllerconfigs",
        "CustomResourceDefinition" => "customresourcedefinitions",
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "DaemonSet" => "daemonsets",
        "Deployment" => "deployments",
        "NetworkPolicy" => "networkpolicies",
        "PodDisruptionBudget" => "poddisruptionbudgets",
        "Service" => "services",
        "Secret" => "secrets",
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
        _ => return None,
    };
    Some(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural))
}

async fn one(client: &Client, step: &Step) -> Result<(), InstallError> {
    let name = step.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let resource =
        resource(&step.object).ok_or_else(|| InstallError::UnknownKind { step: step.to_string() })?;
    let api: Api<DynamicObject> = match step.object.pointer("/metadata/namespace").and_then(Value::as_str) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let request = async {
        match step.how {
            How::Apply => {
                let params = PatchParams::apply(FIELD_MANAGER).force();
                api.patch(name, &params, &Patch::Apply(&step.object)).await.map(drop)
            }
            How::CreateIfMissing => {
                let object = serde_json::from_value(step.object.clone()).map_err(kube::Error::SerdeError)?;
                match api.create(&PostParams::default(), &object).await {
                    Err(kube::Error::Api(e)) if e.code == 409 => Ok(()),
                    other => other.map(drop),
                }
            }
        }
    };
    let step_text = || step.to_string();
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Err(_) => Err(InstallError::Timeout { step: step_text() }),
        Ok(Err(source)) => Err(InstallError::Api { step: step_text(), source: Box::new(source) }),
        Ok(Ok(())) => Ok(()),
    }
}

async fn established(client: &Client, step: &Step) -> Result<(), InstallError> {
    let name = step.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let resource =
        resource(&step.object).ok_or_else(|| InstallError::UnknownKind { step: step.to_string() })?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let end = tokio::time::Instant::now() + ESTABLISH_TIMEOUT;
    loop {
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, api.get(name))
            .await
            .map_err(|_| InstallError::Timeout { step: format!("get {name}") })?
            .map_err(|source| InstallError::Api { step: format!("get {name}"), source: Box::new(source) })?;
        let conditions = answer.data.pointer("/status/conditions").and_then(Value::as_array);
        let is_true = |c: &Value| c["type"] == "Established" && c["status"] == "True";
        if conditions.is_some_and(|list| list.iter().any(is_true)) {
            return Ok(());
        }
        if tokio::time::Instant::now() > end {
            let why = conditions.map(|list| json!(list).to_string()).unwrap_or_default();
            return Err(InstallError::NotEstablished { name: name.to_owned(), why });
        }
        tokio::time::sleep(ESTABLISH_POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_come_before_their_objects_and_the_users_objects_are_only_created() {
        let steps = plan(&Options::default()).unwrap();
        let lines: Vec<String> = steps.iter().map(ToString::to_string).collect();
        assert_eq!(lines[0], format!("apply Namespace {}", names::NAMESPACE));
        assert!(lines.contains(&format!("apply CustomResourceDefinition machineconfigs.{}", names::GROUP)));
        assert_eq!(
            lines[lines.len() - 3..],
            [
                "create if missing: ControllerConfig machine-config-controller",
                "create if missing: MachineConfigPool master",
                "create if missing: MachineConfigPool worker",
            ]
        );
        assert!(!lines.iter().any(|l| l.contains("config.openshift.io")), "only ours by default");
    }

    #[test]
    fn the_parts_are_pods_where_an_image_is_given_and_every_object_can_be_applied() {
        let none = plan(&Options::default()).unwrap();
        assert!(!none.iter().any(|s| s.object["kind"] == "Deployment"));
        let with = Options { image: Some("mco:1".to_owned()), ..Options::default() };
        assert!(matches!(plan(&with), Err(InstallError::NoUrl)));
        let api_server_url = "https://api:6443".to_owned();
        let steps = plan(&Options { api_server_url, ..with }).unwrap();
        for step in &steps {
            assert!(resource(&step.object).is_some(), "{step}");
        }
        let lines: Vec<String> = steps.iter().map(ToString::to_string).collect();
        for part in ["Deployment machine-config-controller", "DaemonSet machine-config-server"] {
            assert!(lines.contains(&format!("apply {part}")), "{part}");
        }
    }

    #[test]
    fn built_in_pools_select_by_role() {
        let worker = serde_json::to_value(pool("worker")).unwrap();
        assert_eq!(worker["spec"]["machineConfigSelector"]["matchLabels"][label::ROLE], "worker");
        assert_eq!(worker["spec"]["nodeSelector"]["matchLabels"]["node-role.kubernetes.io/worker"], "");
        assert!(worker["metadata"]["labels"].get(label::REQUIRED_FOR_UPGRADE).is_none());
        assert_eq!(pool("master").labels()[label::REQUIRED_FOR_UPGRADE], "");
    }

    #[test]
    fn a_new_installation_asks_for_tokens_and_one_that_is_there_is_read() {
        assert!(Options::default().require_token);
        let with = |require_token| Options {
            image: Some("mco:1".to_owned()),
            api_server_url: "https://api:6443".to_owned(),
            require_token,
            ..Options::default()
        };
        for require in [true, false] {
            let steps = plan(&with(require)).unwrap();
            let server = steps.iter().find(|s| s.object["kind"] == "DaemonSet").unwrap();
            assert_eq!(asks(&server.object), require);
        }
        assert!(!asks(&json!({})));
        let named = |secret: Value| pull_secret(&json!({"spec": {"pullSecret": secret}}));
        let at = |namespace: &str| Some((namespace.to_owned(), "p".to_owned()));
        assert_eq!(named(json!({"name": "p", "namespace": "n"})), at("n"));
        assert_eq!(named(json!({"name": "p"})), at("openshift-config"));
        assert_eq!(named(Value::Null), None);
    }
}
