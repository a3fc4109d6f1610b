//! Reads manifests for the linter, and finds documents that are no manifest, do not fit their kind, occur twice, or
//! have unknown fields.
//!
//! What it is not: what MachineConfigs say (see `suspicious`), or what they result in together (see `pool`).

use super::finding::{Lint, Severity};
use crate::error::Rule;
use crate::settings::container_runtime::ContainerRuntimeConfig;
use crate::settings::kubelet_config::KubeletConfig;
use crate::settings::registries::mirrors::MirrorSets;
use crate::similar_names::nearest;
use api::k8s::ResourceExt as _;
use api::names::{CLUSTER, GROUP};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, PinnedImageSet, not_pinnable};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Kinds of our API group that rendering does not read, and that are not mistakes.
const OTHER_KINDS: [&str; 4] = ["MachineConfigNode", "MachineOSConfig", "MachineOSBuild", "OSImageStream"];

/// How many images a PinnedImageSet may have.
const MOST_PINNED: usize = 500;

/// Fields of a MachineConfig's spec.
const SPEC_FIELDS: [&str; 7] = [
    "baseOSExtensionsContainerImage",
    "config",
    "extensions",
    "fips",
    "kernelArguments",
    "kernelType",
    "osImageURL",
];

#[derive(Default)]
pub(super) struct ReadManifests {
    pub(super) configs: Vec<(MachineConfig, Value)>,
    pub(super) pools: Vec<MachineConfigPool>,
    pub(super) pinned: Vec<PinnedImageSet>,
    pub(super) controller_config: Option<ControllerConfig>,
    pub(super) streams: Option<Value>,
}

pub(super) fn read(manifests: &[(String, Value)], all: &mut Vec<Lint>) -> ReadManifests {
    let mut read = ReadManifests::default();
    let mut seen: BTreeMap<(String, String), &str> = BTreeMap::new();
    let mut mirrors = Vec::new();
    for (origin, value) in manifests {
        let text = |p: &str| value.pointer(p).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (group, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let group = group.split('/').next().unwrap_or_default();
        let object = format!("{kind} {name}");
        let mut say = |severity, rule, path: &str, message: String, remedy: &str| {
            let (path, remedy) = (path.to_owned(), remedy.to_owned());
            all.push(Lint { severity, object: object.clone(), path, rule, message, remedy });
        };
        if kind.is_empty() || group.is_empty() {
            let message = format!("a document of {origin} has no apiVersion and kind");
            say(Severity::Error, Rule::Manifest, "", message, "write both, or remove the document");
            continue;
        }
        if name.is_empty() {
            say(
                Severity::Error,
                Rule::Manifest,
                "metadata.name",
                format!("has no name (in {origin})"),
                "give it one",
            );
        } else if group == GROUP && !api::object_name::is_valid(&name) {
            say(
                Severity::Error,
                Rule::Manifest,
                "metadata.name",
                format!("the API server refuses this name (in {origin})"),
                "use lower-case letters, digits, `-` and `.`, with a letter or digit at both ends of each part",
            );
        }
        let before = seen.insert((kind.clone(), name.clone()), origin);
        if let Some(first) = before.filter(|_| !name.is_empty()) {
            let message = format!("is in {first} and in {origin}");
            say(
                Severity::Error,
                Rule::Duplicate,
                "metadata.name",
                message,
                "keep one of them, or rename one",
            );
        }
        let shape = "correct the field; the CRD has the types";
        match (group, kind.as_str()) {
            (GROUP, "MachineConfig") => match api::shape::read::<MachineConfig>(value) {
                Ok(mc) => read.configs.push((mc, value.clone())),
                Err(e) => say(Severity::Error, Rule::Manifest, "spec", e.to_string(), shape),
            },
            (GROUP, "MachineConfigPool") => match api::shape::read(value) {
                Ok(pool) => read.pools.push(pool),
                Err(e) => say(Severity::Error, Rule::Manifest, "spec", e.to_string(), shape),
            },
            (GROUP, "ControllerConfig") => match api::shape::read(value) {
                Ok(config) => read.controller_config = Some(config),
                Err(e) => say(Severity::Error, Rule::Manifest, "spec", e.to_string(), shape),
            },
            (GROUP, "OSImageStream") if name == CLUSTER => read.streams = Some(value.clone()),
            (GROUP, "KubeletConfig") => match KubeletConfig::read(value) {
                Err(e) => {
                    say(Severity::Error, Rule::KubeletConfig, "spec", e.to_string(), "correct the field");
                }
                Ok(config) => {
                    for field in config.unknown() {
                        let message = format!("{field} is not a known field of a KubeletConfiguration");
                        let path = format!("spec.kubeletConfig.{field}");
                        say(
                            Severity::Warning,
                            Rule::UnknownField,
                            &path,
                            message,
                            "correct its name, or remove it",
                        );
                    }
                }
            },
            (GROUP, "ContainerRuntimeConfig") => {
                if let Err(e) = ContainerRuntimeConfig::read(value) {
                    say(
                        Severity::Error,
                        Rule::ContainerRuntimeConfig,
                        "spec",
                        e.to_string(),
                        "correct the field",
                    );
                }
            }
            (GROUP, "PinnedImageSet") => match api::shape::read(value) {
                Ok(set) => {
                    pinned_images(&set, &mut say);
                    read.pinned.push(set);
                }
                Err(e) => say(Severity::Error, Rule::Manifest, "spec", e.to_string(), shape),
            },
            ("config.openshift.io", "ImageDigestMirrorSet" | "ImageTagMirrorSet")
            | ("operator.openshift.io", "ImageContentSourcePolicy") => {
                mirrors.push(value.clone());
                if let Err(e) = MirrorSets::read(std::slice::from_ref(value)) {
                    say(Severity::Error, Rule::Mirrors, "spec", e.to_string(), "correct the field");
                }
            }
            (GROUP, other) if !OTHER_KINDS.contains(&other) => {
                let message = format!("{other} is not a kind of {GROUP}");
                say(
                    Severity::Error,
                    Rule::Manifest,
                    "kind",
                    message,
                    "use MachineConfig, MachineConfigPool or another kind of this group",
                );
            }
            _ => {}
        }
    }
    if mirrors.len() > 1
        && let Err(e) = MirrorSets::read(&mirrors)
    {
        let (severity, object, path) = (Severity::Error, "mirror sets together".to_owned(), String::new());
        let (message, remedy) = (e.to_string(), "correct one of them".to_owned());
        all.push(Lint { severity, object, path, rule: Rule::Mirrors, message, remedy });
    }
    read
}

/// What the API server would refuse in a PinnedImageSet.
fn pinned_images(set: &PinnedImageSet, say: &mut impl FnMut(Severity, Rule, &str, String, &str)) {
    let images = &set.spec.pinned_images;
    let mut seen = BTreeSet::new();
    for (i, image) in images.iter().enumerate() {
        let path = format!("spec.pinnedImages[{i}].name");
        let mut bad =
            |rule, message: String, remedy: &str| say(Severity::Error, rule, &path, message, remedy);
        if let Some(why) = not_pinnable(&image.name) {
            let remedy = "write it as registry.example.com/team/app@sha256: and 64 hexadecimal digits";
            bad(Rule::PinnedImage, format!("{:?} {why}", image.name), remedy);
        } else if !seen.insert(&image.name) {
            bad(Rule::Duplicate, format!("{:?} is there twice", image.name), "remove one of them");
        }
    }
    if images.is_empty() || images.len() > MOST_PINNED {
        let message = format!("has {} images; a set has 1 to {MOST_PINNED}", images.len());
        say(
            Severity::Error,
            Rule::PinnedImage,
            "spec.pinnedImages",
            message,
            "make several sets of it, or remove it",
        );
    }
}

pub(super) fn unknown_fields(all: &mut Vec<Lint>, mc: &MachineConfig, raw: &Value) {
    let fields = raw.get("spec").and_then(Value::as_object).into_iter().flat_map(|o| o.keys());
    for field in fields.filter(|f| !SPEC_FIELDS.contains(&f.as_str())) {
        let near = nearest(field, SPEC_FIELDS.iter().copied(), 1, 0.6);
        let remedy =
            near.first().map_or_else(|| "remove it".to_owned(), |n| format!("write {n}, or remove it"));
        let message = format!("{field} is not a field of a MachineConfig and has no effect");
        let object = format!("MachineConfig {}", mc.name_any());
        let (severity, path) = (Severity::Warning, format!("spec.{field}"));
        all.push(Lint { severity, object, path, rule: Rule::UnknownField, message, remedy });
    }
}
