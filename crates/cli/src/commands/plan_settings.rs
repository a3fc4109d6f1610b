//! What MachineConfigs a change of settings makes, by the controller's templates; and a change that takes objects away.
//!
//! Facts that only the controller has (a pull secret) stand in what it makes, too. So what is made is made twice, from the
//! settings as they are and as they would be, and only what differs between the two takes the place of what is there.
//!
//! What it is not: what a setting means; that is `render::generated`'s.

use super::render::{Documents, add_controller_config, key, pool_of, typed};
use crate::input::manifests;
use anyhow::{Context, bail};
use api::names::{CONTROLLER_CONFIG, GROUP, VERSION_HASH, VERSION_RAW, annotation, label};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use kube::ResourceExt;
use render::generated::{self, Settings};
use render::template::{self, Rendering};
use render::{Mode, TemplateData, TemplateSet, TlsProfile, Versions};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Where the image of the controller has its templates.
const DEFAULT_TEMPLATES: &str = "/usr/share/mco/templates";

/// Kinds that MachineConfigs are made of, by API group. FeatureGates also say whether streams of OS images count.
const SETTINGS: [(&str, &str); 12] = [
    (GROUP, "KubeletConfig"),
    (GROUP, "ContainerRuntimeConfig"),
    ("config.openshift.io", "Node"),
    ("config.openshift.io", "Image"),
    ("config.openshift.io", "APIServer"),
    ("config.openshift.io", "ClusterVersion"),
    ("config.openshift.io", "FeatureGate"),
    ("config.openshift.io", "ImageDigestMirrorSet"),
    ("config.openshift.io", "ImageTagMirrorSet"),
    ("config.openshift.io", "ClusterImagePolicy"),
    ("config.openshift.io", "ImagePolicy"),
    ("operator.openshift.io", "ImageContentSourcePolicy"),
];

fn group(value: &Value) -> &str {
    value["apiVersion"].as_str().and_then(|v| v.split_once('/')).map_or("", |(group, _)| group)
}

fn is(value: &Value, of: &str, kind: &str) -> bool {
    value["kind"] == kind && group(value) == of
}

fn is_setting(value: &Value) -> bool {
    SETTINGS.iter().any(|(group, kind)| is(value, group, kind))
}

/// Without what MachineConfigs are made of: these are there already.
pub(super) fn without_settings(mut objects: Documents) -> Documents {
    let gate = objects.iter().map(|(_, v)| v).find(|v| is(v, "config.openshift.io", "FeatureGate"));
    let off = render::streams::switched_off(gate);
    objects.retain(|(_, v)| !(is_setting(v) || off && is(v, GROUP, "OSImageStream")));
    for (_, value) in objects.iter_mut().filter(|(_, v)| is(v, GROUP, "ControllerConfig")) {
        // Layers are of templates, and there are none here.
        if let Some(notes) = value.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            notes.remove(annotation::TEMPLATE_LAYERS);
        }
    }
    objects
}

/// The templates that a change needs; `None`: none.
pub(super) fn templates(named: Option<&Path>, given: &Documents) -> anyhow::Result<Option<TemplateSet>> {
    let needs = |v: &Value| is_setting(v) || is(v, GROUP, "ControllerConfig");
    let folder = match (named, given.iter().find(|(_, v)| needs(v))) {
        (Some(folder), _) => folder,
        (None, None) => return Ok(None),
        (None, Some(_)) if Path::new(DEFAULT_TEMPLATES).is_dir() => Path::new(DEFAULT_TEMPLATES),
        (None, Some((origin, value))) => bail!(
            "{origin}: a {} becomes MachineConfigs by templates: name the folder that the controller has with --templates \
             DIR (its image has it at {DEFAULT_TEMPLATES}, the source tree at templates/)",
            value["kind"].as_str().unwrap_or_default()
        ),
    };
    Ok(Some(TemplateSet::from_map(manifests::tree(folder)?)))
}

/// The objects without those that are given, as `kubectl delete -f` takes them away.
pub(super) fn without(objects: &Documents, given: &Documents, notes: &mut Vec<String>) -> Documents {
    let mut left = objects.clone();
    for (origin, value) in given {
        let count = left.len();
        left.retain(|(_, v)| key(v) != key(value));
        let name = || format!("{} {}", key(value).0, key(value).2);
        if left.len() == count {
            notes.push(format!("{origin}: {} is not there: deleting it changes nothing", name()));
        }
        let ours = objects.iter().find(|(_, v)| key(v) == key(value)).is_some_and(|(_, v)| is_made(v));
        if ours {
            notes.push(format!("{}: the controller makes it, and makes it anew when it is deleted", name()));
        }
    }
    left
}

fn is_made(value: &Value) -> bool {
    is(value, GROUP, "MachineConfig")
        && value["metadata"]["annotations"][annotation::GENERATED_BY_CONTROLLER].is_string()
}

/// Brings what is made of settings and templates up to date in `sources`.
pub(super) fn regenerate(
    sources: &mut Documents,
    before: &Documents,
    after: &Documents,
    templates: &TemplateSet,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let was = made(before, templates).context("what the cluster's settings make with these templates")?;
    let will = made(after, templates)?;
    let same = |a: &MachineConfig, b: &MachineConfig| a.spec == b.spec && role(a) == role(b);
    let names: std::collections::BTreeSet<&String> = was.keys().chain(will.keys()).collect();
    for name in names {
        let (old, new) = (was.get(name), will.get(name));
        if old.zip(new).is_some_and(|(old, new)| same(old, new)) {
            continue;
        }
        let is_it = |v: &Value| is(v, GROUP, "MachineConfig") && v["metadata"]["name"] == **name;
        let there = sources.iter().find(|(_, v)| is_it(v)).map(|(_, v)| v.clone());
        let there: Option<MachineConfig> = there.as_ref().map(api::shape::read).transpose()?;
        if !matches!((&there, old), (None, None)) && !there.as_ref().zip(old).is_some_and(|(a, b)| same(a, b))
        {
            notes.push(format!(
                "MachineConfig {name} of the cluster is not what these templates make: are they the controller's?"
            ));
        }
        sources.retain(|(_, v)| !is_it(v));
        sources.extend(new.map(|new| ("made of settings".to_owned(), typed(new, "MachineConfig"))));
    }
    Ok(())
}

fn role(config: &MachineConfig) -> Option<&String> {
    config.labels().get(label::ROLE)
}

/// The MachineConfigs that the controller makes of settings and templates, by name.
fn made(objects: &Documents, templates: &TemplateSet) -> anyhow::Result<BTreeMap<String, MachineConfig>> {
    let mut objects = objects.clone();
    add_controller_config(&mut objects);
    let all = |group: &str, kind: &str| -> Vec<&Value> {
        objects.iter().map(|(_, v)| v).filter(|v| is(v, group, kind)).collect()
    };
    let one = |kind: &str, name: &str| -> Option<&Value> {
        all("config.openshift.io", kind).into_iter().find(|v| v["metadata"]["name"] == name)
    };
    let read = |kind: &str, value: &Value| format!("{kind} {}", value["metadata"]["name"]);
    let mut pools: Vec<MachineConfigPool> = vec![];
    for value in all(GROUP, "MachineConfigPool") {
        pools.push(api::shape::read(value).with_context(|| read("MachineConfigPool", value))?);
    }
    let mut existing: Vec<MachineConfig> = vec![];
    for value in all(GROUP, "MachineConfig").into_iter().filter(|v| pool_of(v).is_none()) {
        existing.push(api::shape::read(value).with_context(|| read("MachineConfig", value))?);
    }
    let config =
        all(GROUP, "ControllerConfig").into_iter().find(|v| v["metadata"]["name"] == CONTROLLER_CONFIG);
    let config = config.with_context(|| format!("there is no ControllerConfig {CONTROLLER_CONFIG}"))?;
    let config: ControllerConfig =
        api::shape::read(config).with_context(|| read("ControllerConfig", config))?;
    let cluster = api::names::CLUSTER;
    let tls = TlsProfile::from_api_server(one("APIServer", cluster));
    let versions = Versions { raw: VERSION_RAW.to_owned(), hash: VERSION_HASH.to_owned() };
    let data = TemplateData { controller_config: &config, pull_secret: None, tls: &tls };
    let rendering = Rendering::new(templates, data);
    let mut made = template::generate(&rendering, &versions)?;
    let openshift = "config.openshift.io";
    let mirrors = [
        all(openshift, "ImageDigestMirrorSet"),
        all(openshift, "ImageTagMirrorSet"),
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
            cluster_policies: all(openshift, "ClusterImagePolicy"),
            policies: all(openshift, "ImagePolicy"),
        },
        existing: existing.iter().collect(),
        versions: &versions,
        mode: Mode::Cluster,
    });
    if let Some(error) = plan.first_error() {
        bail!("{error}");
    }
    made.extend(plan.wanted);
    Ok(made.into_iter().map(|config| (config.name_any(), config)).collect())
}
