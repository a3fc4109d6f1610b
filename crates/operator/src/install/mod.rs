//! `mco install`: the objects that must stand in a cluster before a controller can work.
//!
//! CRDs, namespaces, rights and pods are applied, so that running it again upgrades them. Pools are only created where they
//! are missing. Of the ControllerConfig what `settings` says is brought up to date, and nothing else.
//!
//! What [`plan`] is not: a look at the cluster. What was found there is an input.

pub mod settings;

use crate::manifests::pods::Parts;
pub use crate::manifests::pods::Scaled;
pub use crate::manifests::rights::PullSecret;
use api::crds::{Crd, CrdError};
use api::k8s::LabelSelector;
use api::names::{self, label};
use api::v1::{ControllerConfig, MachineConfigPool, MachineConfigPoolSpec};
use client::{CallError, call};
use ipnet::IpNet;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};
use settings::{Settings, SettingsError};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Who owns the fields that are applied.
const FIELD_MANAGER: &str = "machine-config-operator";
/// The API server publishes a new kind within a second; a loaded one within a few.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// How often it is asked.
const ESTABLISH_POLL: Duration = Duration::from_millis(50);

/// What is installed.
#[derive(Debug, Clone)]
pub struct Options {
    /// The built-in pools to create.
    pub pools: Vec<String>,
    /// What the administrator says of the cluster.
    pub said: Settings,
    /// What was found out about it.
    pub found: Settings,
    /// The ControllerConfig that is there, as the API server gives it.
    pub controller_config: Option<Value>,
    /// The pools that are there.
    pub pools_there: Vec<String>,
    /// The topology of the control plane as it counts now; empty: not known.
    pub control_plane_topology: String,
    /// The image of the agents' pods. `None`: agents run as services of their hosts.
    pub daemon_image: Option<String>,
    /// The image of the pods of controller, config server and operator. `None`: they run elsewhere.
    pub image: Option<String>,
    /// With `image`: the config server gives configs only to machines with a boot token. False: to everybody, over plain
    /// HTTP too, as the reference does.
    pub require_token: bool,
    /// With `image`: load balancers that say by PROXY protocol for whom they speak.
    pub balancers: Vec<IpNet>,
    /// With `image`: the number of controllers that somebody set; none: the topology's.
    pub controllers: Option<Scaled>,
    /// Where the pull secret stands that the ControllerConfig names.
    pub pull_secret: Option<PullSecret>,
    /// The boot tokens' Secrets that stand in the namespace of the version before.
    pub old_tokens: Vec<String>,
    /// Also the CRDs of OpenShift's own config and operator kinds, for a plain cluster that wants to use them.
    pub openshift_config_crds: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pools: vec![names::MASTER.to_owned(), names::WORKER.to_owned()],
            said: Settings::default(),
            found: Settings::default(),
            controller_config: None,
            pools_there: vec![],
            control_plane_topology: String::new(),
            daemon_image: None,
            image: None,
            require_token: true,
            balancers: vec![],
            controllers: None,
            pull_secret: None,
            old_tokens: vec![],
            openshift_config_crds: false,
        }
    }
}

/// How an object is put into the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// Ours: brought to this form each time.
    Apply,
    /// The user's after the first time: created where it is missing.
    CreateIfMissing,
    /// The user's, of which some fields change: by this merge patch, bound to the version that was read.
    Update(Value),
}

/// One object of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// How.
    pub how: How,
    /// What, as it stands afterwards.
    pub object: Value,
}

impl Step {
    /// Whether it is the definition of a kind: those come first, and the rest when they are served.
    pub fn is_definition(&self) -> bool {
        self.object.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |p: &str| self.object.pointer(p).and_then(Value::as_str).unwrap_or("?").to_owned();
        let how = match self.how {
            How::Apply => "apply",
            How::CreateIfMissing => "create if missing:",
            How::Update(_) => "update",
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
    #[error(transparent)]
    Call(#[from] CallError),
    /// A plan with an object of a kind that the installer does not know: a fault in this build.
    #[error("{step}: the installer does not know this kind")]
    UnknownKind {
        /// The step.
        step: String,
    },
    /// The config server tells machines how they reach the API server.
    #[error(
        "the config server's pods must know how machines reach the API server, and neither the ControllerConfig nor the \
        kubeconfig names an address that other machines can use: pass --api-server-url"
    )]
    NoUrl,
    /// The administrator says what cannot be.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The ControllerConfig changed between being read and being written.
    #[error("ControllerConfig {} changed meanwhile; run it again", names::CONTROLLER_CONFIG)]
    Changed,
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
/// Pods without an API server's URL, a URL that no machine can use, a ControllerConfig that cannot be read; else only a
/// fault in this build's own data.
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
    // Before the parts: a controller that starts anew writes it, too.
    steps.extend(step);
    for name in options.pools.iter().filter(|name| !options.pools_there.contains(name)) {
        steps.push(Step { how: How::CreateIfMissing, object: pool_object(name)? });
    }
    steps.extend(crate::manifests::agents::rights().into_iter().map(apply));
    steps.extend(options.daemon_image.as_deref().map(crate::manifests::agents::daemon_set).map(apply));
    if let Some(image) = &options.image {
        let parts = Parts {
            image,
            api_server_url: settings::api_server_url(&config.spec).ok_or(InstallError::NoUrl)?,
            require_token: options.require_token,
            balancers: &options.balancers,
            controllers: crate::manifests::pods::controllers(&options.control_plane_topology),
            scaled: options.controllers.as_ref(),
        };
        let rights = crate::manifests::rights::all(
            options.require_token,
            options.pull_secret.as_ref(),
            &options.old_tokens,
        );
        steps.extend(rights.into_iter().map(apply));
        steps.extend(crate::manifests::pods::all(&parts).into_iter().map(apply));
    }
    Ok(steps)
}

/// The ControllerConfig as it is to stand, and the step to it; none: it stands so.
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

/// Takes away what says nothing and would not be taken: null, which kubectl leaves out, and bytes that are not known.
fn without_empty(config: &mut Value) {
    let Some(spec) = config.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.retain(|key, value| !(value.is_null() || key.ends_with("CAData") && value == ""));
}

/// An object as somebody would write it: without what the API server adds.
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

/// A built-in pool as it is written: nothing in it that others write later, or the next `kubectl apply` of the same file
/// would take it back.
fn pool_object(name: &str) -> Result<Value, InstallError> {
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

/// What an installation that is there says about the next one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct There {
    /// Whether its config server asks for boot tokens; none: it has none as pods.
    pub require_token: Option<bool>,
    /// The load balancers that its config server believes.
    pub balancers: Vec<IpNet>,
    /// The number of controllers that somebody set.
    pub controllers: Option<Scaled>,
    /// The pull secret that its ControllerConfig names.
    pub pull_secret: Option<PullSecret>,
    /// The boot tokens' Secrets in the namespace where the version before kept them.
    pub old_tokens: Vec<String>,
}

/// Looks at what is there.
///
/// # Errors
/// The API server's answer. A cluster without our kinds has nothing.
pub async fn there(client: &Client) -> Result<There, InstallError> {
    async fn get<T>(
        step: &str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<Option<T>, CallError> {
        match call(|| step.to_owned(), request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
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
        let set =
            get("get DaemonSet machine-config-server", api.get(crate::manifests::rights::SERVER)).await?;
        there.require_token = set.as_ref().map(|s| asks(&s.data));
        there.balancers = set.as_ref().map(|s| balancers(&s.data)).unwrap_or_default();
    }
    let deployments = Api::<Deployment>::namespaced(client.clone(), names::NAMESPACE);
    let name = crate::manifests::rights::CONTROLLER;
    let controllers = get("get Deployment machine-config-controller", deployments.get(name)).await?;
    there.controllers = controllers.as_ref().and_then(Scaled::of);
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
    let secrets = Api::<Secret>::namespaced(client.clone(), api::boot_token::OLD_NAMESPACE);
    let labelled = crate::boot_tokens::labelled();
    let what = || format!("list boot tokens in {}", api::boot_token::OLD_NAMESPACE);
    // Who may not read them cannot give a right to them either.
    match call(what, secrets.list_metadata(&labelled)).await {
        Ok(old) => there.old_tokens = old.iter().map(ResourceExt::name_any).collect(),
        Err(error) if error.is_forbidden() || error.is_not_found() => {}
        Err(error) => return Err(InstallError::Call(error)),
    }
    Ok(there)
}

/// What a config server's DaemonSet starts it with.
fn args(set: &Value) -> impl Iterator<Item = &str> {
    let args = set.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    args.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether it asks for boot tokens.
fn asks(set: &Value) -> bool {
    args(set).any(|a| a == "--require-token")
}

/// The load balancers that it believes.
fn balancers(set: &Value) -> Vec<IpNet> {
    args(set).filter_map(|a| a.strip_prefix("--proxy-protocol-from=")?.parse().ok()).collect()
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
    let (definitions, rest): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|s| s.is_definition());
    // All at once: each is a request of its own, and the API server takes them in parallel.
    futures::future::try_join_all(definitions.iter().map(|step| one(client, step))).await?;
    definitions.iter().for_each(|step| progress(step));
    futures::future::try_join_all(definitions.iter().map(|step| established(client, step))).await?;
    for step in rest {
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
        match &step.how {
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
            How::Update(patch) => {
                let params =
                    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                api.patch(name, &params, &Patch::Merge(patch)).await.map(drop)
            }
        }
    };
    match call(|| step.to_string(), request).await {
        Err(error) if error.is_conflict() && matches!(step.how, How::Update(_)) => Err(InstallError::Changed),
        done => Ok(done?),
    }
}

async fn established(client: &Client, step: &Step) -> Result<(), InstallError> {
    let name = step.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let resource =
        resource(&step.object).ok_or_else(|| InstallError::UnknownKind { step: step.to_string() })?;
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let end = tokio::time::Instant::now() + ESTABLISH_TIMEOUT;
    loop {
        let answer = call(|| format!("get {name}"), api.get(name)).await?;
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

    fn lines(options: &Options) -> Vec<String> {
        plan(options).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn kinds_come_before_their_objects_and_the_users_objects_are_only_created() {
        let lines = lines(&Options::default());
        let namespace = format!("apply Namespace {}", names::NAMESPACE);
        let at = lines.iter().position(|l| *l == namespace).unwrap();
        assert!(lines[..at].iter().all(|l| l.starts_with("apply CustomResourceDefinition ")), "{lines:?}");
        assert!(!lines[at..].iter().any(|l| l.contains("CustomResourceDefinition")), "{lines:?}");
        assert!(lines.contains(&format!("apply CustomResourceDefinition machineconfigs.{}", names::GROUP)));
        assert_eq!(
            lines[at + 1..at + 4],
            [
                "create if missing: ControllerConfig machine-config-controller",
                "create if missing: MachineConfigPool master",
                "create if missing: MachineConfigPool worker",
            ]
        );
        assert!(!lines.iter().any(|l| l.contains("config.openshift.io")), "only ours by default");
    }

    fn url(url: &str) -> Settings {
        Settings { api_server_url: Some(url.to_owned()), ..Settings::default() }
    }

    #[test]
    fn the_parts_are_pods_where_an_image_is_given_and_every_object_can_be_applied() {
        let none = plan(&Options::default()).unwrap();
        assert!(!none.iter().any(|s| s.object["kind"] == "Deployment"));
        let with = Options { image: Some("mco:1".to_owned()), ..Options::default() };
        assert!(matches!(plan(&with), Err(InstallError::NoUrl)));
        let own = Options { found: url("https://127.0.0.1:6443"), ..with.clone() };
        assert!(
            matches!(plan(&own), Err(InstallError::NoUrl)),
            "a kubeconfig's loopback address is no machine's"
        );
        let own = Options { said: url("https://127.0.0.1:6443"), ..with.clone() };
        assert!(matches!(plan(&own), Err(InstallError::Settings(SettingsError::Loopback { .. }))));
        let with = Options { said: url("https://api:6443"), ..with };
        let steps = plan(&with).unwrap();
        for step in &steps {
            assert!(resource(&step.object).is_some(), "{step}");
        }
        let lines = lines(&with);
        for part in ["Deployment machine-config-controller", "DaemonSet machine-config-server"] {
            assert!(lines.contains(&format!("apply {part}")), "{part}");
        }
        let server = steps.iter().find(|s| s.object["kind"] == "DaemonSet").unwrap();
        assert!(server.object.to_string().contains("--apiserver-url=https://api:6443"));
    }

    #[test]
    fn of_what_is_there_only_what_is_said_changes() {
        let first = plan(&Options { found: url("https://a:6443"), ..Options::default() }).unwrap();
        let mut there = first.iter().find(|s| s.object["kind"] == "ControllerConfig").unwrap().object.clone();
        there["metadata"]["resourceVersion"] = json!("7");
        there["metadata"]["uid"] = json!("u");
        there["spec"]["newer"] = json!("field");
        there["spec"]["images"] = json!({"mine": "i"});
        let pools_there = vec!["master".to_owned(), "worker".to_owned()];
        let again = Options { controller_config: Some(there), pools_there, ..Options::default() };
        let kinds =
            |o: &Options| lines(o).into_iter().filter(|l| !l.starts_with("apply")).collect::<Vec<_>>();
        assert_eq!(kinds(&again), Vec::<String>::new(), "nothing of the user's changes");
        let written = &again.controller_config.as_ref().unwrap()["spec"];
        assert!(
            written.as_object().unwrap().values().all(|v| !v.is_null()),
            "kubectl leaves out what is null"
        );
        assert!(written.get("rootCAData").is_none(), "nobody knows it");
        let image = Some("mco:1".to_owned());
        let said = Options { said: url("https://b:6443"), image, ..again };
        assert_eq!(kinds(&said), ["update ControllerConfig machine-config-controller"]);
        let steps = plan(&said).unwrap();
        let step = steps.iter().find(|s| s.object["kind"] == "ControllerConfig").unwrap();
        let How::Update(patch) = &step.how else { panic!("{step:?}") };
        let urls = json!({"apiServerInternalURI": "https://b:6443", "apiServerURL": "https://b:6443"});
        assert_eq!(patch["spec"], json!({"infra": {"status": urls}}));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let object = &step.object;
        assert_eq!(
            (&object["spec"]["newer"], &object["spec"]["images"]["mine"]),
            (&json!("field"), &json!("i"))
        );
        assert!(
            object["metadata"].get("resourceVersion").is_none() && object["metadata"].get("uid").is_none()
        );
        // The server's pods get the address that counts, also when it was said before.
        let server = steps.iter().find(|s| s.object["kind"] == "DaemonSet").unwrap();
        assert!(server.object.to_string().contains("--apiserver-url=https://b:6443"));
    }

    #[test]
    fn built_in_pools_select_by_role() {
        let worker = serde_json::to_value(pool("worker")).unwrap();
        assert_eq!(worker["spec"]["machineConfigSelector"]["matchLabels"][label::ROLE], "worker");
        assert_eq!(worker["spec"]["nodeSelector"]["matchLabels"]["node-role.kubernetes.io/worker"], "");
        assert!(worker["metadata"]["labels"].get(label::REQUIRED_FOR_UPGRADE).is_none());
        assert_eq!(pool("master").labels()[label::REQUIRED_FOR_UPGRADE], "");
        let written = pool_object("worker").unwrap();
        let fields: Vec<&String> = written["spec"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["machineConfigSelector", "nodeSelector"], "the rest is for others to write");
    }

    #[test]
    fn a_new_installation_asks_for_tokens_and_one_that_is_there_is_read() {
        assert!(Options::default().require_token);
        let with = |require_token| Options {
            image: Some("mco:1".to_owned()),
            said: url("https://api:6443"),
            require_token,
            ..Options::default()
        };
        for require in [true, false] {
            let steps = plan(&with(require)).unwrap();
            let server = steps.iter().find(|s| s.object["kind"] == "DaemonSet").unwrap();
            assert_eq!(asks(&server.object), require);
            assert_eq!(balancers(&server.object), []);
        }
        let nets: Vec<IpNet> = ["10.0.0.4/31", "fd00::/64"].map(|n| n.parse().unwrap()).into();
        let steps = plan(&Options { balancers: nets.clone(), ..with(true) }).unwrap();
        let server = steps.iter().find(|s| s.object["kind"] == "DaemonSet").unwrap();
        assert_eq!(balancers(&server.object), nets);
        assert!(!asks(&json!({})) && balancers(&json!({})).is_empty());
        let named = |secret: Value| pull_secret(&json!({"spec": {"pullSecret": secret}}));
        let at = |namespace: &str| Some((namespace.to_owned(), "p".to_owned()));
        assert_eq!(named(json!({"name": "p", "namespace": "n"})), at("n"));
        assert_eq!(named(json!({"name": "p"})), at("openshift-config"));
        assert_eq!(named(Value::Null), None);
    }
}
