//! The `97-`, `98-` and `99-` MachineConfigs, which are generated from the cluster's settings. Pure: takes the settings
//! and the present MachineConfigs, and returns the ones that should exist. Bootstrap and the controller call the same
//! [`plan`].
//!
//! What it is not: templates (see `template`), or writes. The executor of a [`Plan`] decides nothing.
//!
//! | MachineConfig | from | for |
//! | --- | --- | --- |
//! | `97-POOL-generated-kubelet` | templates, Node `cluster` | every pool |
//! | `98-POOL-generated-kubelet` | templates, Node and FeatureGate `cluster` | every pool |
//! | `99-POOL-generated-kubelet[-N]` | a KubeletConfig over the former | the pools that it selects |
//! | `99-POOL-generated-containerruntime[-N]` | a ContainerRuntimeConfig | the pools that it selects |
//! | `99-POOL-generated-registries` | Image `cluster`, mirror sets, signature policies | built-in pools |
//!
//! If something cannot be made, it is refused for its pools, with object, path and remedy; what was made for them
//! before stays.

mod error;
mod objects;
mod stale;
mod status;

pub use error::GeneratedError;
pub use objects::Kind;
pub use objects::names::{Origin, source_of};
pub use status::status;

use crate::settings::container_runtime::{self, ContainerRuntimeConfig};
use crate::settings::kubelet::{self, Original};
use crate::settings::kubelet_config::KubeletConfig;
use crate::settings::registries::mirrors::MirrorSets;
use crate::settings::registries::signatures::{Conflict, Signatures};
use crate::settings::registries::{self, RegistriesError, Sources};
use crate::template::{RenderedTemplate, Rendering};
use crate::version::{Mode, Versions};
use api::k8s::{OwnerReference, ResourceExt as _};
use api::names::{ARBITER, MASTER, WORKER, annotation, label};
use api::v1::{MachineConfig, MachineConfigPool};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The cluster's settings, as JSON; a missing object counts as not set.
#[derive(Debug, Clone, Default)]
pub struct Settings<'a> {
    /// KubeletConfigs.
    pub kubelet_configs: Vec<&'a Value>,
    /// ContainerRuntimeConfigs.
    pub runtime_configs: Vec<&'a Value>,
    /// OpenShift's FeatureGate `cluster`.
    pub feature_gate: Option<&'a Value>,
    /// OpenShift's Node `cluster` (`config.openshift.io`).
    pub node: Option<&'a Value>,
    /// OpenShift's Image `cluster`.
    pub image: Option<&'a Value>,
    /// OpenShift's ClusterVersion `version`, which names the release's image.
    pub cluster_version: Option<&'a Value>,
    /// ImageDigestMirrorSets, ImageTagMirrorSets, ImageContentSourcePolicies.
    pub mirrors: Vec<&'a Value>,
    /// ClusterImagePolicies, by name.
    pub cluster_policies: Vec<&'a Value>,
    /// ImagePolicies, by namespace and name.
    pub policies: Vec<&'a Value>,
}

/// What a plan is made from.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// The template directory, and what it is rendered with.
    pub templates: &'a Rendering<'a>,
    /// All pools.
    pub pools: Vec<&'a MachineConfigPool>,
    /// The cluster's settings.
    pub settings: Settings<'a>,
    /// The present MachineConfigs of the cluster, except rendered ones.
    pub existing: Vec<&'a MachineConfig>,
    /// The build that generates.
    pub versions: &'a Versions,
    /// Before there is a cluster, or in it.
    pub mode: Mode,
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// MachineConfigs that should exist, complete.
    pub wanted: Vec<MachineConfig>,
    /// MachineConfigs to delete.
    pub gone: Vec<Removal>,
    /// MachineConfigs that stay as they are, because what they would be made from now is refused.
    pub kept: BTreeSet<String>,
    /// What to report on, and write to, each KubeletConfig and ContainerRuntimeConfig.
    pub objects: Vec<ObjectPlan>,
    /// Why a pool cannot have the settings that select it. It must not be rendered meanwhile.
    pub refused: BTreeMap<String, Vec<GeneratedError>>,
    /// ImagePolicies whose scopes have no effect. Each of these must say so in its status, and no other.
    pub conflicts: Vec<Conflict>,
}

/// A MachineConfig to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// The changes of a KubeletConfig or ContainerRuntimeConfig.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectPlan {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// It is being deleted: its finalizers are removed once what it made is gone.
    pub deleting: bool,
    /// The annotation [`annotation::MC_NAME_SUFFIX`], if it must be written.
    pub suffix: Option<String>,
    /// All of its finalizers, if they must change: those of others, and the names of what it makes.
    pub finalizers: Option<Vec<String>>,
    /// Whether it was accepted; `None` while it is being deleted.
    pub verdict: Option<Result<(), GeneratedError>>,
}

impl Plan {
    /// The first error, for callers that accept all or nothing.
    pub fn first_error(&self) -> Option<&GeneratedError> {
        let refused = self.refused.values().flatten();
        let verdicts = self.objects.iter().filter_map(|o| o.verdict.as_ref()?.as_ref().err());
        let no_pool = |e: &&GeneratedError| !matches!(e, GeneratedError::NoPool { .. });
        refused.chain(verdicts).find(no_pool)
    }

    fn refuse(&mut self, pool: &str, error: GeneratedError) {
        let all = self.refused.entry(pool.to_owned()).or_default();
        if !all.contains(&error) {
            all.push(error);
        }
    }
}

/// Plans what to generate.
///
/// Guarantees: a MachineConfig that was made from something that is now refused is neither changed nor deleted.
/// MachineConfigs of users are never deleted.
pub fn plan(inputs: &Inputs<'_>) -> Plan {
    let mut plan = Plan::default();
    let settings = &inputs.settings;
    let gates = feature_gates(inputs);
    let registries = Registries::read(inputs, &gates);
    if let Ok((_, _, signatures)) = &registries.read {
        plan.conflicts.clone_from(&signatures.conflicts);
    }
    let mut facts = Vec::new();
    for pool in &inputs.pools {
        facts.push(of_pool(inputs, pool, &gates, &registries, &mut plan));
    }
    let (cluster, versions) = (inputs.mode == Mode::Cluster, inputs.versions);
    // Without a list of gates, the administrator's setting counts.
    let stores = gates.as_ref().is_ok_and(|g| g.get(STORES_GATE).copied().unwrap_or(g.is_empty()));
    objects::plan(
        inputs,
        &facts,
        Kind::KubeletConfig,
        &settings.kubelet_configs,
        |object| Ok(KubeletConfig::read(object)?),
        |kc, of| {
            let Some((original, base)) = &of.kubelet else {
                let (name, pool) = (kc.name().to_owned(), of.pool.name_any());
                return Err(GeneratedError::NoKubelet { name, pool });
            };
            Ok(kc.machine_config(of.pool, base.clone(), original.form, versions)?)
        },
        &mut plan,
    );
    objects::plan(
        inputs,
        &facts,
        Kind::ContainerRuntimeConfig,
        &settings.runtime_configs,
        |object| Ok(ContainerRuntimeConfig::read(object)?),
        |crc, of| Ok(crc.machine_config(of.pool, of.storage.as_deref(), stores, versions)?),
        &mut plan,
    );
    if cluster {
        stale::stale(inputs, &mut plan);
    }
    plan
}

/// What the templates provide for one pool.
struct Facts<'a> {
    pool: &'a MachineConfigPool,
    /// They cannot be rendered, or cannot be used as a base.
    broken: Option<GeneratedError>,
    /// The kubelet's config, from the templates and with the cluster's settings; `None` if it is managed by others.
    kubelet: Option<(Original, Map<String, Value>)>,
    /// The text of `storage.conf`.
    storage: Option<String>,
}

/// The MachineConfigs that a pool has whichever objects select it, and the base of the others.
fn of_pool<'a>(
    inputs: &Inputs<'_>,
    pool: &'a MachineConfigPool,
    gates: &Result<BTreeMap<String, bool>, GeneratedError>,
    registries: &Registries,
    plan: &mut Plan,
) -> Facts<'a> {
    let name = pool.name_any();
    let mut facts = Facts { pool, broken: None, kubelet: None, storage: None };
    let kubelets = ["97", "98"].map(|n| format!("{n}-{name}-generated-kubelet"));
    let registries_name = format!("99-{name}-generated-registries");
    let of_role = match inputs.templates.role(&name) {
        Ok(of_role) => of_role,
        Err(e) => {
            plan.kept.extend(kubelets);
            plan.kept.insert(registries_name);
            plan.refuse(&name, e.clone().into());
            return Facts { broken: Some(e.into()), ..facts };
        }
    };
    facts.storage = kubelet::template_file(of_role, container_runtime::STORAGE_CONF);
    // If the templates leave the kubelet's config to others, so do we.
    if let Some(original) = kubelet::original(of_role) {
        match kubelet_configs(inputs, pool, &original, gates) {
            Ok((configs, base)) => {
                plan.wanted.extend(configs);
                facts.kubelet = Some((original, base));
            }
            Err(e) => {
                plan.kept.extend(kubelets);
                plan.refuse(&name, e.clone());
                facts.broken = Some(e);
            }
        }
    }
    if pool.labels().contains_key(label::BUILT_IN) && registries.wanted {
        match registries.machine_config(inputs, &name, of_role) {
            Ok(config) => plan.wanted.push(config),
            Err(e) => {
                plan.kept.insert(registries_name);
                plan.refuse(&name, e);
            }
        }
    }
    facts
}

fn kubelet_configs(
    inputs: &Inputs<'_>,
    pool: &MachineConfigPool,
    original: &Original,
    gates: &Result<BTreeMap<String, bool>, GeneratedError>,
) -> Result<([MachineConfig; 2], Map<String, Value>), GeneratedError> {
    let (name, node) = (pool.name_any(), inputs.settings.node);
    let gates = gates.as_ref().map_err(Clone::clone)?;
    // Kernel arguments belong to the OS image. If the cluster manages no OS image, a host could not set them.
    let spec = &inputs.templates.data().controller_config.spec;
    let manages_os = !spec.base_os_container_image.is_empty()
        || spec.os_image_url.as_ref().is_some_and(|u| !u.is_empty())
        || node.is_some();
    let built_in = [MASTER, WORKER, ARBITER].contains(&name.as_str());
    let cgroups = manages_os && (built_in || inputs.mode == Mode::Bootstrap);
    Ok(kubelet::configs(&name, original, gates, node, cgroups, inputs.versions)?)
}

/// OpenShift's feature gate for additional image stores.
const STORES_GATE: &str = "AdditionalStorageConfig";

/// OpenShift's feature gate for signature policies.
const SIGNATURES_GATE: &str = "SigstoreImageVerification";

/// Registries and mirrors, parsed once for all pools.
struct Registries {
    /// Whether there are any such settings.
    wanted: bool,
    read: Result<(Sources, MirrorSets, Signatures), GeneratedError>,
    owner: Option<OwnerReference>,
}

impl Registries {
    fn read(inputs: &Inputs<'_>, gates: &Result<BTreeMap<String, bool>, GeneratedError>) -> Self {
        let Settings { image, mirrors, cluster_policies, policies, .. } = &inputs.settings;
        // A cluster that does not know the gate has no reason to leave a policy out.
        let signed = gates.as_ref().is_ok_and(|g| g.get(SIGNATURES_GATE).copied().unwrap_or(true));
        let read = || -> Result<_, RegistriesError> {
            let signatures = if signed {
                Signatures::read(cluster_policies.iter().copied(), policies.iter().copied())?
            } else {
                Signatures::default()
            };
            Ok((Sources::read(*image)?, MirrorSets::read(mirrors.iter().copied())?, signatures))
        };
        let cluster = inputs.mode == Mode::Cluster;
        let text = |key: &str| image.and_then(|i| i.pointer(key)).and_then(Value::as_str).map(str::to_owned);
        let owner = text("/metadata/uid").filter(|_| cluster).map(|uid| OwnerReference {
            api_version: "config.openshift.io/v1".to_owned(),
            kind: "Image".to_owned(),
            name: text("/metadata/name").unwrap_or_default(),
            uid,
            ..OwnerReference::default()
        });
        let any_policy = signed && (!cluster_policies.is_empty() || !policies.is_empty());
        let wanted = !cluster || image.is_some() || !mirrors.is_empty() || any_policy;
        Self { wanted, read: read().map_err(Into::into), owner }
    }

    fn machine_config(
        &self,
        inputs: &Inputs<'_>,
        pool: &str,
        of_role: &[RenderedTemplate],
    ) -> Result<MachineConfig, GeneratedError> {
        let (sources, mirrors, signatures) = self.read.as_ref().map_err(Clone::clone)?;
        let template = |path: &str| kubelet::template_file(of_role, path);
        let (conf, policy) = (template(registries::REGISTRIES_CONF), template(registries::POLICY_JSON));
        let templates = registries::Templates { registries: conf.as_deref(), policy: policy.as_deref() };
        let desired =
            inputs.settings.cluster_version.and_then(|v| v.pointer("/status/desired/image")?.as_str());
        let release = desired.unwrap_or(&inputs.templates.data().controller_config.spec.release_image);
        let files = registries::files(sources, mirrors, signatures, release, templates)?;
        let files: Vec<Value> =
            files.iter().map(|(path, text)| kubelet::file(path, text.as_bytes())).collect();
        // Without a version at bootstrap, so that the controller in the cluster makes it again.
        let versions = (inputs.mode == Mode::Cluster).then_some(inputs.versions);
        let name = format!("99-{pool}-generated-registries");
        let mut config = kubelet::generated(&name, pool, &files, versions);
        config.metadata.owner_references = self.owner.clone().map(|o| vec![o]);
        Ok(config)
    }
}

/// The release in the list of feature gates that stands for a build without version information.
const UNKNOWN_RELEASE: &str = "0.0.1-snapshot";

/// Every known gate and whether it is enabled, for the ControllerConfig's release.
fn feature_gates(inputs: &Inputs<'_>) -> Result<BTreeMap<String, bool>, GeneratedError> {
    let Some(feature_gate) = inputs.settings.feature_gate else { return Ok(BTreeMap::new()) };
    let status = feature_gate.pointer("/status/featureGates").and_then(Value::as_array);
    let entries: Vec<&Value> = status.into_iter().flatten().collect();
    let release =
        inputs.templates.data().controller_config.annotations().get(annotation::RELEASE_IMAGE_VERSION);
    let release = release.map_or(UNKNOWN_RELEASE, String::as_str);
    let entry = match entries.as_slice() {
        [one] => Some(*one),
        many => many.iter().copied().find(|e| e.get("version").and_then(Value::as_str) == Some(release)),
    };
    // On plain Kubernetes no operator writes the status. There, what the user asks for counts.
    let custom = || feature_gate.pointer("/spec/customNoUpgrade");
    let plain = entries.is_empty() && inputs.mode == Mode::Cluster;
    let on = |list: Option<&Value>, on: bool| {
        let list = list.and_then(Value::as_array).into_iter().flatten();
        list.filter_map(move |g| Some((g.get("name").unwrap_or(g).as_str()?.to_owned(), on)))
            .collect::<Vec<_>>()
    };
    match (entry, plain) {
        (Some(entry), _) => {
            let (off, on_) = (on(entry.get("disabled"), false), on(entry.get("enabled"), true));
            Ok(off.into_iter().chain(on_).collect())
        }
        (None, true) => {
            let custom = custom();
            let list = |key: &str| custom.and_then(|c| c.get(key));
            Ok(on(list("disabled"), false).into_iter().chain(on(list("enabled"), true)).collect())
        }
        (None, false) => {
            Err(GeneratedError::FeatureGates(format!("there is no entry for version {release:?}")))
        }
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "json! values read better where they stand")]
mod tests;
