//! Which MachineConfigs the controller's templates make of changed settings. Pure.
//!
//! MachineConfigs that the controller generates also contain facts that only the controller has (a pull secret). So everything
//! is generated twice, from the settings before and after the change, and only what differs replaces the cluster's own.
//!
//! What it is not: the meaning of a setting (see `render::generated`).

use crate::change::rendering::{RenderWith, UnrenderableError, rendered};
use crate::objects::settings_kinds::{CONFIG, FEATURE_GATE, SETTINGS};
use crate::objects::{Objects, is, object, pool_of, without_feature_gate};
use api::names::{CONTROLLER_CONFIG, GROUP, annotation, label};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use kube::ResourceExt;
use render::generated::{self, Settings};
use render::template::{self, Rendering};
use render::{Mode, TemplateData, TemplateSet, TlsProfile, Versions};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn is_setting(value: &Value) -> bool {
    let mut kinds = SETTINGS.iter().map(|(group, _, kind)| (*group, *kind)).chain([FEATURE_GATE]);
    kinds.any(|(group, kind)| is(value, group, kind))
}

/// Whether an object becomes MachineConfigs only by the controller's templates.
pub fn needs_templates(value: &Value) -> bool {
    is_setting(value) || is(value, GROUP, "ControllerConfig")
}

/// The objects without those that MachineConfigs are generated from: the MachineConfigs exist already.
pub(crate) fn without_settings(objects: Objects) -> Objects {
    let mut objects = without_feature_gate(objects);
    objects.retain(|(_, v)| !is_setting(v));
    for (_, value) in objects.iter_mut().filter(|(_, v)| is(v, GROUP, "ControllerConfig")) {
        // Layers belong to templates, and there are none here.
        if let Some(notes) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            notes.remove(annotation::TEMPLATE_LAYERS);
        }
    }
    objects
}

/// The rendered config of a pool from its present MachineConfigs; `None`: there is none. Also returns what has no effect or will not work.
///
/// # Errors
/// As [`rendered`].
pub fn rendered_now(
    objects: &Objects,
    pool: &str,
    controller_config: &ControllerConfig,
) -> Result<(Option<MachineConfig>, Vec<String>), UnrenderableError> {
    let sources = objects.iter().filter(|(_, v)| pool_of(v).is_none()).cloned().collect();
    let with = RenderWith { templates: &TemplateSet::default(), controller_config };
    let (mut all, warnings) = rendered(without_settings(sources), with, &[pool.to_owned()])?;
    Ok((all.remove(pool), warnings))
}

/// Updates the MachineConfigs in `sources` that are generated from settings and templates.
///
/// # Errors
/// The settings are refused, before or after the change, or an object cannot be read.
pub(crate) fn regenerate(
    sources: &mut Objects,
    before: &Objects,
    after: &Objects,
    with: RenderWith<'_>,
    notes: &mut Vec<String>,
) -> Result<(), UnrenderableError> {
    let was = made(before, with).map_err(|e| UnrenderableError::Before(Box::new(e)))?;
    let will = made(after, with)?;
    let same = |a: &MachineConfig, b: &MachineConfig| a.spec == b.spec && role(a) == role(b);
    let names: BTreeSet<&String> = was.keys().chain(will.keys()).collect();
    for name in names {
        let (old, new) = (was.get(name), will.get(name));
        if old.zip(new).is_some_and(|(old, new)| same(old, new)) {
            continue;
        }
        let is_it = |v: &Value| is(v, GROUP, "MachineConfig") && v["metadata"]["name"] == **name;
        let there = sources.iter().find(|(_, v)| is_it(v)).map(|(_, v)| v.clone());
        let there: Option<MachineConfig> = there.as_ref().map(|v| read("MachineConfig", v)).transpose()?;
        if !matches!((&there, old), (None, None)) && !there.as_ref().zip(old).is_some_and(|(a, b)| same(a, b))
        {
            notes.push(format!(
                "MachineConfig {name} of the cluster is not what these templates generate; pass the \
                 templates that the controller uses"
            ));
        }
        sources.retain(|(_, v)| !is_it(v));
        sources.extend(new.map(|new| ("generated from settings".to_owned(), object(new, "MachineConfig"))));
    }
    Ok(())
}

fn role(config: &MachineConfig) -> Option<&String> {
    config.labels().get(label::ROLE)
}

/// The MachineConfigs that the controller generates from settings and templates, by name.
fn made(
    objects: &Objects,
    with: RenderWith<'_>,
) -> Result<BTreeMap<String, MachineConfig>, UnrenderableError> {
    let mut objects = objects.clone();
    with.complete(&mut objects);
    let all = |group: &str, kind: &str| -> Vec<&Value> {
        objects.iter().map(|(_, v)| v).filter(|v| is(v, group, kind)).collect()
    };
    let one = |kind: &str, name: &str| -> Option<&Value> {
        all(CONFIG, kind).into_iter().find(|v| v["metadata"]["name"] == name)
    };
    let mut pools: Vec<MachineConfigPool> = vec![];
    for value in all(GROUP, "MachineConfigPool") {
        pools.push(read("MachineConfigPool", value)?);
    }
    let mut existing: Vec<MachineConfig> = vec![];
    for value in all(GROUP, "MachineConfig").into_iter().filter(|v| pool_of(v).is_none()) {
        existing.push(read("MachineConfig", value)?);
    }
    let config =
        all(GROUP, "ControllerConfig").into_iter().find(|v| v["metadata"]["name"] == CONTROLLER_CONFIG);
    let config: ControllerConfig =
        read("ControllerConfig", config.ok_or(UnrenderableError::NoControllerConfig)?)?;
    let cluster = api::names::CLUSTER;
    let tls = TlsProfile::from_api_server(one("APIServer", cluster));
    let versions = Versions::of_this_build();
    let data = TemplateData { controller_config: &config, pull_secret: None, tls: &tls };
    let rendering = Rendering::new(with.templates, data);
    let mut made = template::generate(&rendering, &versions)?;
    let mirrors = [
        all(CONFIG, "ImageDigestMirrorSet"),
        all(CONFIG, "ImageTagMirrorSet"),
        all("operator.openshift.io", "ImageContentSourcePolicy"),
    ];
    let plan = generated::plan(&generated::Inputs {
        templates: &rendering,
        pools: pools.iter().collect(),
        settings: Settings {
            kubelet_configs: all(GROUP, "KubeletConfig"),
            runtime_configs: all(GROUP, "ContainerRuntimeConfig"),
            feature_gate: one("FeatureGate", cluster),
            node: one("Node", cluster),
            image: one("Image", cluster),
            cluster_version: one("ClusterVersion", "version"),
            mirrors: mirrors.into_iter().flatten().collect(),
            cluster_policies: all(CONFIG, "ClusterImagePolicy"),
            policies: all(CONFIG, "ImagePolicy"),
        },
        existing: existing.iter().collect(),
        versions: &versions,
        mode: Mode::Cluster,
    });
    if let Some(error) = plan.first_error() {
        return Err(UnrenderableError::Generated(error.clone()));
    }
    made.extend(plan.wanted);
    Ok(made.into_iter().map(|config| (config.name_any(), config)).collect())
}

fn read<T: DeserializeOwned>(kind: &'static str, value: &Value) -> Result<T, UnrenderableError> {
    let name = || value["metadata"]["name"].to_string();
    api::formats::shape::read(value).map_err(|source| UnrenderableError::Object {
        kind,
        name: name(),
        source,
    })
}
