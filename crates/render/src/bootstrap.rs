//! Renders a set of manifests before there is a cluster: templates, generated MachineConfigs, and one rendered
//! MachineConfig a pool. Pure: manifests in, objects out; who calls it reads and writes the files.

use crate::error::Finding;
use crate::generated::{self, GeneratedError, Settings};
use crate::provenance::Provenance;
use crate::template::{self, TemplateError, TemplateSet};
use crate::template_data::Data;
use crate::tls::TlsProfile;
use crate::{Inputs, Mode, RenderError, Versions, plan as render, select, streams};
use api::k8s::ResourceExt as _;
use api::names::{CLUSTER, WORKER};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, PoolConfiguration};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// Manifests that cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// A manifest that is not what its kind says.
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
    /// Something that must be among the manifests is not.
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

/// Everything that there is to write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BootstrapOutput {
    /// Pools, with the rendered config in spec and status.
    pub pools: Vec<MachineConfigPool>,
    /// Every MachineConfig: the users', generated ones, rendered ones.
    pub machine_configs: Vec<MachineConfig>,
    /// Cluster facts.
    pub controller_config: ControllerConfig,
    /// The API server's settings, where there are any.
    pub api_server: Option<Value>,
    /// Where everything comes from, by pool.
    pub provenance: BTreeMap<String, Provenance>,
    /// What has no effect or will not work.
    pub warnings: Vec<Finding>,
}

impl BootstrapOutput {
    /// Relative paths and YAML texts, one after the other: together they are as large as everything else.
    pub fn into_files(self) -> impl Iterator<Item = Result<(String, String), BootstrapError>> {
        fn yaml(path: String, object: &impl serde::Serialize) -> Result<(String, String), BootstrapError> {
            match serde_json::to_value(object) {
                Ok(value) => Ok((path, crate::yaml::emit(&value))),
                Err(e) => Err(BootstrapError::Write { path, message: e.to_string() }),
            }
        }
        let pools = self.pools.into_iter().map(|p| yaml(format!("machine-pools/{}.yaml", p.name_any()), &p));
        let configs = self
            .machine_configs
            .into_iter()
            .map(|mc| yaml(format!("machine-configs/{}.yaml", mc.name_any()), &mc));
        let facts = std::iter::once_with(move || {
            yaml("controller-config/machine-config-controller.yaml".to_owned(), &self.controller_config)
        });
        let api_server =
            self.api_server.into_iter().map(|o| yaml("api-server/api-server.yaml".to_owned(), &o));
        pools.chain(configs).chain(facts).chain(api_server)
    }
}

/// Manifests by kind.
#[derive(Default)]
struct Manifests {
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

/// Kinds that are known but not rendered yet; leaving them out silently would surprise.
const NOT_YET: [&str; 1] = ["MachineOSConfig"];

impl Manifests {
    fn read(all: Vec<(String, Value)>) -> Result<Self, BootstrapError> {
        let mut m = Self::default();
        for (origin, value) in all {
            let text =
                |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (group, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
            let group = group.split('/').next().unwrap_or_default();
            match (group, kind.as_str()) {
                (api::names::GROUP, "MachineConfigPool") => {
                    m.pools.insert(name.clone(), typed(&origin, &kind, &name, value)?);
                }
                (api::names::GROUP, "MachineConfig") => {
                    m.machine_configs.push(typed(&origin, &kind, &name, value)?);
                }
                (api::names::GROUP, "ControllerConfig") => {
                    m.controller_config = Some(typed(&origin, &kind, &name, value)?);
                }
                ("config.openshift.io", "FeatureGate") if name == CLUSTER => m.feature_gate = Some(value),
                ("config.openshift.io", "APIServer") if name == CLUSTER => m.api_server = Some(value),
                ("config.openshift.io", "Node") if name == CLUSTER => m.node = Some(value),
                ("config.openshift.io", "Image") if name == CLUSTER => m.image = Some(value),
                ("config.openshift.io", "ImageDigestMirrorSet" | "ImageTagMirrorSet")
                | ("operator.openshift.io", "ImageContentSourcePolicy") => m.mirrors.push(value),
                ("config.openshift.io", "ClusterImagePolicy") => m.cluster_policies.push(value),
                ("config.openshift.io", "ImagePolicy") => m.policies.push(value),
                (api::names::GROUP, "KubeletConfig") => m.kubelet_configs.push(value),
                (api::names::GROUP, "ContainerRuntimeConfig") => m.runtime_configs.push(value),
                (api::names::GROUP, "OSImageStream") if name == CLUSTER => m.streams = Some(value),
                (group, kind) if group.ends_with("openshift.io") && NOT_YET.contains(&kind) => {
                    m.warnings.push(Finding {
                        object: format!("{kind} {name}"),
                        path: String::new(),
                        message: "this kind is not rendered yet and has no effect".to_owned(),
                    });
                }
                _ => {}
            }
        }
        Ok(m)
    }
}

fn typed<T: DeserializeOwned>(
    origin: &str,
    kind: &str,
    name: &str,
    value: Value,
) -> Result<T, BootstrapError> {
    serde_json::from_value(value).map_err(|e| BootstrapError::Manifest {
        origin: origin.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        message: e.to_string(),
    })
}

/// Renders manifests: each with the name of the file that it comes from.
///
/// # Errors
/// A manifest that does not fit its kind, no ControllerConfig, a template that does not render, a pool that cannot
/// be rendered.
pub fn plan(
    manifests: Vec<(String, Value)>,
    templates: &TemplateSet,
    pull_secret: Option<&Value>,
    versions: &Versions,
) -> Result<BootstrapOutput, BootstrapError> {
    let m = Manifests::read(manifests)?;
    let mut controller_config = m.controller_config.ok_or(BootstrapError::Missing(
        "there is no ControllerConfig among the manifests; add machine-config-controller",
    ))?;
    let mut warnings = m.warnings;
    let streams = m.streams.filter(|_| !streams::switched_off(m.feature_gate.as_ref())).filter(|object| {
        // Installers write the wish only; which images it stands for is found out by looking into images.
        let listed = object.pointer("/status/availableStreams").is_some();
        if !listed {
            warnings.push(Finding {
                object: format!("OSImageStream {CLUSTER}"),
                path: "status.availableStreams".to_owned(),
                message:
                    "is not there, and nothing here looks into images; those of ControllerConfig are used"
                        .to_owned(),
            });
        }
        listed
    });
    let no_pool = MachineConfigPool::default();
    if let Some(default) = streams::stream(&no_pool, None, streams.as_ref(), versions, Mode::Bootstrap)? {
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
    let mut all = m.machine_configs;
    all.extend(template::generate(templates, &data, versions)?);
    let mut pools: Vec<MachineConfigPool> = m.pools.into_values().collect();
    let generated = generated::plan(&generated::Inputs {
        templates,
        data,
        pools: pools.iter().collect(),
        settings,
        existing: Vec::new(),
        versions,
        mode: Mode::Bootstrap,
    });
    if let Some(error) = generated.first_error() {
        return Err(error.clone().into());
    }
    all.extend(generated.wanted);
    let mut out = BootstrapOutput { warnings, api_server: m.api_server, ..BootstrapOutput::default() };
    let mut rendered = Vec::new();
    let worker = pools.iter().find(|p| p.name_any() == WORKER).cloned();
    for pool in &mut pools {
        let configs = select(pool, &all)?;
        let mut inputs = Inputs::new(pool, &configs, &controller_config, versions);
        inputs.mode = Mode::Bootstrap;
        let stream = match streams {
            Some(_) => streams::stream(pool, worker.as_ref(), streams.as_ref(), versions, Mode::Bootstrap)?,
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
    all.extend(rendered);
    out.warnings.sort_by(|a, b| (&a.object, &a.path).cmp(&(&b.object, &b.path)));
    out.warnings.dedup();
    Ok(BootstrapOutput { pools, machine_configs: all, controller_config, ..out })
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
