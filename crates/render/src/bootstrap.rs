//! Renders a set of manifests before there is a cluster: MachineConfigs from templates and from settings, and one
//! rendered MachineConfig for each pool. Pure: manifests in, objects out; the caller reads and writes the files.

use crate::config::inputs::Inputs;
use crate::config::plan::{plan as render, select};
use crate::config::provenance::Provenance;
use crate::config::streams;
use crate::error::RenderError;
use crate::error::{Finding, Rule};
use crate::settings::generated::{self, GeneratedError, Settings};
use crate::template::data::Data;
use crate::template::{self, Rendering, TemplateError, TemplateSet};
use crate::tls::TlsProfile;
use crate::version::{Mode, Versions};
use api::k8s::ResourceExt as _;
use api::names::{CLUSTER, WORKER};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, PoolConfiguration};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// Manifests that cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// A manifest that does not fit its kind.
    #[error("{origin}: {kind} {name}: {message}")]
    Manifest {
        /// The file.
        origin: String,
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// A manifest that must exist but does not.
    #[error("{0}")]
    Missing(&'static str),
    /// The pull secret.
    #[error("pull secret: {0}")]
    PullSecret(String),
    /// A template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// What is generated from the cluster's settings.
    #[error(transparent)]
    Generated(#[from] GeneratedError),
    /// A stream of OS images.
    #[error("{0}")]
    Stream(Finding),
    /// A pool.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// An object that cannot be written as YAML.
    #[error("{path}: {message}")]
    Write {
        /// The relative path.
        path: String,
        /// What is wrong.
        message: String,
    },
}

impl From<Finding> for BootstrapError {
    fn from(finding: Finding) -> Self {
        Self::Stream(finding)
    }
}

/// Everything that is made from [`Manifests`]. Manifests that are written unchanged are not included (see
/// [`Manifests::files`]).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BootstrapOutput {
    /// Pools, with the rendered config in spec and status.
    pub pools: Vec<MachineConfigPool>,
    /// Every generated MachineConfig: from templates, from settings, and rendered.
    pub machine_configs: Vec<MachineConfig>,
    /// Cluster facts.
    pub controller_config: ControllerConfig,
    /// The origin of everything, by pool.
    pub provenance: BTreeMap<String, Provenance>,
    /// Things that have no effect or will not work.
    pub warnings: Vec<Finding>,
}

/// A file of the output: its path from the output's folder, and its text.
pub type PlanOrErrors = Result<(String, String), BootstrapError>;

fn written(path: String, object: &impl serde::Serialize) -> PlanOrErrors {
    written_with(path, object, None)
}

/// As [`written`], with a `spec.config` that is not copied for it.
fn written_with(path: String, object: &impl serde::Serialize, config: Option<Value>) -> PlanOrErrors {
    match serde_json::to_value(object) {
        Ok(mut value) => {
            if let (Some(spec), Some(config)) = (value.get_mut("spec").and_then(Value::as_object_mut), config)
            {
                spec.insert("config".to_owned(), config);
            }
            Ok((path, crate::go_yaml::emit(&value)))
        }
        Err(e) => Err(BootstrapError::Write { path, message: e.to_string() }),
    }
}

fn machine_config_path(mc: &MachineConfig) -> String {
    format!("machine-configs/{}.yaml", mc.name_any())
}

impl BootstrapOutput {
    /// Relative paths and YAML texts, one after the other, because together they are as large as everything else. They
    /// override files of [`Manifests::files`] with the same path.
    pub fn into_files(self) -> impl Iterator<Item = PlanOrErrors> {
        let pools =
            self.pools.into_iter().map(|p| written(format!("machine-pools/{}.yaml", p.name_any()), &p));
        let configs = self.machine_configs.into_iter().map(|mut mc| {
            let config = mc.spec.config.take();
            written_with(machine_config_path(&mc), &mc, config)
        });
        let facts = std::iter::once_with(move || {
            written("controller-config/machine-config-controller.yaml".to_owned(), &self.controller_config)
        });
        pools.chain(configs).chain(facts)
    }
}

/// Manifests by kind: the input of a bootstrap. For a kind with only one object, the last manifest of several counts.
#[derive(Debug, Default)]
pub struct Manifests {
    pools: BTreeMap<String, MachineConfigPool>,
    machine_configs: Vec<MachineConfig>,
    controller_config: Option<ControllerConfig>,
    feature_gate: Option<Value>,
    api_server: Option<Value>,
    node: Option<Value>,
    image: Option<Value>,
    mirrors: Vec<Value>,
    cluster_policies: Vec<Value>,
    policies: Vec<Value>,
    kubelet_configs: Vec<Value>,
    runtime_configs: Vec<Value>,
    streams: Option<Value>,
    warnings: Vec<Finding>,
}

/// Kinds that are known but not rendered yet. Leaving them out silently would surprise.
const NOT_YET: [&str; 1] = ["MachineOSConfig"];

impl Manifests {
    /// Reads objects, each with the name of the file that it comes from.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn read(all: impl IntoIterator<Item = (String, Value)>) -> Result<Self, BootstrapError> {
        let mut m = Self::default();
        all.into_iter().try_for_each(|(origin, value)| m.add(&origin, value))?;
        Ok(m)
    }

    /// Adds one object, read from the file `origin`. Kinds that do not matter here are ignored.
    ///
    /// # Errors
    /// An object that does not fit its kind.
    pub fn add(&mut self, origin: &str, mut value: Value) -> Result<(), BootstrapError> {
        let text =
            |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (group, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let group = group.split('/').next().unwrap_or_default();
        match (group, kind.as_str()) {
            (api::names::GROUP, "MachineConfigPool") => {
                self.pools.insert(name.clone(), typed(origin, &kind, &name, &value)?);
            }
            (api::names::GROUP, "MachineConfig") => {
                // Most of the object is the config, which is taken over as a JSON value.
                let spec = value.get_mut("spec").and_then(Value::as_object_mut);
                let config = spec.and_then(|spec| spec.remove("config")).filter(|config| !config.is_null());
                let mut mc: MachineConfig = typed(origin, &kind, &name, &value)?;
                mc.spec.config = config;
                self.machine_configs.push(mc);
            }
            (api::names::GROUP, "ControllerConfig") => {
                self.controller_config = Some(typed(origin, &kind, &name, &value)?);
            }
            ("config.openshift.io", "FeatureGate") if name == CLUSTER => self.feature_gate = Some(value),
            ("config.openshift.io", "APIServer") if name == CLUSTER => self.api_server = Some(value),
            ("config.openshift.io", "Node") if name == CLUSTER => self.node = Some(value),
            ("config.openshift.io", "Image") if name == CLUSTER => self.image = Some(value),
            ("config.openshift.io", "ImageDigestMirrorSet" | "ImageTagMirrorSet")
            | ("operator.openshift.io", "ImageContentSourcePolicy") => self.mirrors.push(value),
            ("config.openshift.io", "ClusterImagePolicy") => self.cluster_policies.push(value),
            ("config.openshift.io", "ImagePolicy") => self.policies.push(value),
            (api::names::GROUP, "KubeletConfig") => self.kubelet_configs.push(value),
            (api::names::GROUP, "ContainerRuntimeConfig") => self.runtime_configs.push(value),
            (api::names::GROUP, "OSImageStream") if name == CLUSTER => self.streams = Some(value),
            (group, kind) if group.ends_with("openshift.io") && NOT_YET.contains(&kind) => {
                let message = "this kind is not rendered yet and has no effect";
                self.warnings.push(Finding::new(Rule::NotRendered, format!("{kind} {name}"), "", message));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds manifests that were read later.
    pub fn append(&mut self, later: Self) {
        let Self {
            pools,
            machine_configs,
            controller_config,
            feature_gate,
            api_server,
            node,
            image,
            mirrors,
            cluster_policies,
            policies,
            kubelet_configs,
            runtime_configs,
            streams,
            warnings,
        } = later;
        self.pools.extend(pools);
        self.machine_configs.extend(machine_configs);
        self.controller_config = controller_config.or(self.controller_config.take());
        for (mine, later) in [
            (&mut self.feature_gate, feature_gate),
            (&mut self.api_server, api_server),
            (&mut self.node, node),
            (&mut self.image, image),
            (&mut self.streams, streams),
        ] {
            *mine = later.or(mine.take());
        }
        self.mirrors.extend(mirrors);
        self.cluster_policies.extend(cluster_policies);
        self.policies.extend(policies);
        self.kubelet_configs.extend(kubelet_configs);
        self.runtime_configs.extend(runtime_configs);
        self.warnings.extend(warnings);
    }

    /// The manifests that are written unchanged: users' MachineConfigs and the API server's settings. Nothing that is
    /// generated changes them, so they can be written meanwhile.
    pub fn files(&self) -> impl Iterator<Item = PlanOrErrors> {
        let configs = self.machine_configs.iter().map(|mc| written(machine_config_path(mc), mc));
        let api_server = self.api_server.iter().map(|o| written("api-server/api-server.yaml".to_owned(), o));
        configs.chain(api_server)
    }
}

fn typed<T: DeserializeOwned>(
    origin: &str,
    kind: &str,
    name: &str,
    value: &Value,
) -> Result<T, BootstrapError> {
    let wrong = |message: String| BootstrapError::Manifest {
        origin: origin.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        message,
    };
    // The name is also a file name.
    if name.contains('/') {
        return Err(wrong(
            "metadata.name: an object's name cannot contain a slash; choose another".to_owned(),
        ));
    }
    api::formats::shape::read(value).map_err(|e| wrong(e.to_string()))
}

/// Renders manifests.
///
/// # Errors
/// No ControllerConfig, a template that does not render, a pool that cannot be rendered.
pub fn plan(
    m: &Manifests,
    templates: &TemplateSet,
    pull_secret: Option<&Value>,
    versions: &Versions,
) -> Result<BootstrapOutput, BootstrapError> {
    plan_only(m, templates, pull_secret, versions, &[])
}

/// Renders these pools of the manifests; no names: all. The others are looked at only for what a pool inherits from them,
/// the OS image stream of `worker`; what else is wrong with them is not found.
///
/// # Errors
/// As [`plan`].
pub fn plan_only(
    m: &Manifests,
    templates: &TemplateSet,
    pull_secret: Option<&Value>,
    versions: &Versions,
    only: &[String],
) -> Result<BootstrapOutput, BootstrapError> {
    let mut controller_config = m.controller_config.clone().ok_or(BootstrapError::Missing(
        "there is no ControllerConfig among the manifests; add machine-config-controller",
    ))?;
    let mut out = BootstrapOutput { warnings: m.warnings.clone(), ..BootstrapOutput::default() };
    let streams = m.streams.as_ref().filter(|_| !streams::switched_off(m.feature_gate.as_ref()));
    let streams = streams.filter(|object| {
        // Installers write only the spec. Finding the images of a stream would require looking into images.
        let listed = object.pointer("/status/availableStreams").is_some();
        if !listed {
            let message = "is missing, and the bootstrap cannot look into images to find it";
            let object = format!("OSImageStream {CLUSTER}");
            let finding = Finding::new(Rule::OsImageStream, object, "status.availableStreams", message);
            out.warnings.push(finding.with_remedy("the images of ControllerConfig are used"));
        }
        listed
    });
    let no_pool = MachineConfigPool::default();
    if let Some(default) = streams::stream(&no_pool, None, streams, versions, Mode::Bootstrap)? {
        controller_config.spec.base_os_container_image = default.images.os;
        controller_config.spec.base_os_extensions_container_image = Some(default.images.extensions);
    }
    let pull_secret = pull_secret.map(docker_config).transpose()?;
    let tls = TlsProfile::from_api_server(m.api_server.as_ref());
    let data = Data { controller_config: &controller_config, pull_secret: pull_secret.as_deref(), tls: &tls };
    let settings = Settings {
        kubelet_configs: m.kubelet_configs.iter().collect(),
        runtime_configs: m.runtime_configs.iter().collect(),
        feature_gate: m.feature_gate.as_ref(),
        node: m.node.as_ref(),
        image: m.image.as_ref(),
        cluster_version: None,
        mirrors: m.mirrors.iter().collect(),
        cluster_policies: m.cluster_policies.iter().collect(),
        policies: m.policies.iter().collect(),
    };
    let templates = Rendering::new(templates, data);
    let mut made = template::generate(&templates, versions)?;
    let wanted = |name: &String| only.is_empty() || only.contains(name);
    let pools = m.pools.iter().filter(|(name, _)| wanted(name));
    let mut pools: Vec<MachineConfigPool> = pools.map(|(_, pool)| pool.clone()).collect();
    let generated = generated::plan(&generated::Inputs {
        templates: &templates,
        pools: pools.iter().collect(),
        settings,
        existing: Vec::new(),
        versions,
        mode: Mode::Bootstrap,
    });
    if let Some(error) = generated.first_error() {
        return Err(error.clone().into());
    }
    made.extend(generated.wanted);
    let mut rendered = Vec::new();
    let worker = m.pools.get(WORKER);
    for pool in &mut pools {
        let configs = select(pool, m.machine_configs.iter().chain(&made))?;
        let mut inputs = Inputs::new(pool, &configs, &controller_config, versions);
        inputs.mode = Mode::Bootstrap;
        let stream = match streams {
            Some(_) => streams::stream(pool, worker, streams, versions, Mode::Bootstrap)?,
            None => None,
        };
        inputs.stream = stream.as_ref();
        let plan = render(&inputs)?;
        let configuration = PoolConfiguration {
            name: plan.name().to_owned(),
            source: Some(plan.source),
            ..PoolConfiguration::default()
        };
        pool.spec.configuration = configuration.clone();
        pool.status.get_or_insert_default().configuration = configuration;
        out.provenance.insert(pool.name_any(), plan.provenance);
        out.warnings.extend(plan.warnings.into_iter().filter(|w| !w.object.is_empty()));
        rendered.push(plan.rendered);
    }
    made.extend(rendered);
    out.warnings.sort_by(|a, b| (&a.object, &a.path).cmp(&(&b.object, &b.path)));
    out.warnings.dedup();
    Ok(BootstrapOutput { pools, machine_configs: made, controller_config, ..out })
}

/// The `.dockerconfigjson` of a pull secret, compacted.
fn docker_config(secret: &Value) -> Result<String, BootstrapError> {
    const TYPE: &str = "kubernetes.io/dockerconfigjson";
    let bad = |message: &str| BootstrapError::PullSecret(message.to_owned());
    if secret.get("type").and_then(Value::as_str) != Some(TYPE) {
        return Err(bad("must be a Secret of type kubernetes.io/dockerconfigjson"));
    }
    let bytes =
        match (secret.pointer("/data/.dockerconfigjson"), secret.pointer("/stringData/.dockerconfigjson")) {
            (Some(Value::String(encoded)), _) => {
                use base64::Engine as _;
                let engine = base64::engine::general_purpose::STANDARD;
                engine.decode(encoded.trim()).map_err(|_| bad("data[.dockerconfigjson] is not base64"))?
            }
            (_, Some(Value::String(text))) => text.clone().into_bytes(),
            _ => return Err(bad("has no data[.dockerconfigjson]")),
        };
    let json: Value =
        serde_json::from_slice(&bytes).map_err(|_| bad("data[.dockerconfigjson] is not JSON"))?;
    Ok(json.to_string())
}
