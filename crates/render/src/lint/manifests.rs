//! Reads manifests for the linter, and finds documents that are no manifest, do not fit their kind, or occur twice.
//!
//! What it is not: the comparison with a schema (see `schema`), what MachineConfigs say (see `suspicious`), or what they result in
//! together (see `pool`).

use super::finding::{Lint, Severity};
use super::schema::{Extent, lint_by_schema};
use crate::error::Rule;
use crate::settings::container_runtime::ContainerRuntimeConfig;
use crate::settings::kubelet_config::KubeletConfig;
use crate::settings::registries::mirrors::MirrorSets;
use crate::similar_names::nearest;
use api::crds::Crd;
use api::definition::Defined as _;
use api::names::{CLUSTER, GROUP};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, PinnedImageSet, not_pinnable};
use api::v1alpha1::RolloutPolicy;
use serde_json::Value;
use std::collections::BTreeMap;

/// The API groups that we define as a whole.
const OUR_GROUPS: [&str; 2] = [GROUP, RolloutPolicy::DEFINITION.group];

#[derive(Default)]
pub(super) struct ReadManifests {
    pub(super) configs: Vec<MachineConfig>,
    pub(super) pools: Vec<MachineConfigPool>,
    pub(super) pinned: Vec<PinnedImageSet>,
    pub(super) controller_config: Option<ControllerConfig>,
    pub(super) streams: Option<Value>,
}

pub(super) fn read(manifests: &[(String, Value)], all: &mut Vec<Lint>) -> ReadManifests {
    let mut read = ReadManifests::default();
    let mut seen: BTreeMap<(String, String), &str> = BTreeMap::new();
    let mut mirrors = Vec::new();
    let kinds = api::crds::all().unwrap_or_else(|error| {
        let (severity, object, path) = (Severity::Error, "this program".to_owned(), String::new());
        let (message, remedy) = (error.to_string(), "report this as a bug".to_owned());
        all.push(Lint { severity, object, path, rule: Rule::Manifest, message, remedy });
        vec![]
    });
    for (origin, value) in manifests {
        let text = |p: &str| value.pointer(p).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (group, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        let (group, version) = group.split_once('/').unwrap_or((group.as_str(), ""));
        let object = format!("{kind} {name}");
        let is_mirror = matches!(
            (group, kind.as_str()),
            ("config.openshift.io", "ImageDigestMirrorSet" | "ImageTagMirrorSet")
                | ("operator.openshift.io", "ImageContentSourcePolicy")
        );
        let by_schema = fits_kind(&kinds, (group, version, kind.as_str()), is_mirror, &object, value);
        // What the schema refuses is said once, with all places. Settings are read of `spec` alone, so what is wrong elsewhere hides
        // nothing that their rules say.
        let errors = || by_schema.iter().filter(|finding| finding.severity == Severity::Error);
        let (is_misfit, is_misfit_in_spec) =
            (errors().count() > 0, errors().any(|f| may_be_in_spec(&f.path)));
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
        } else if group == GROUP && !api::formats::object_name::is_valid(&name) {
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
        let mut unreadable = |rule, error: String| {
            let is_said = if rule == Rule::Manifest { is_misfit } else { is_misfit_in_spec };
            if !is_said {
                say(Severity::Error, rule, "spec", error, "correct the field; the CRD has the types");
            }
        };
        match (group, kind.as_str()) {
            (GROUP, "MachineConfig") => match api::formats::shape::read::<MachineConfig>(value) {
                Ok(mc) => read.configs.push(mc),
                Err(e) => unreadable(Rule::Manifest, e.to_string()),
            },
            (GROUP, "MachineConfigPool") => match api::formats::shape::read(value) {
                Ok(pool) => read.pools.push(pool),
                Err(e) => unreadable(Rule::Manifest, e.to_string()),
            },
            (GROUP, "ControllerConfig") => match api::formats::shape::read(value) {
                Ok(config) => read.controller_config = Some(config),
                Err(e) => unreadable(Rule::Manifest, e.to_string()),
            },
            (GROUP, "OSImageStream") if name == CLUSTER => read.streams = Some(value.clone()),
            (GROUP, "KubeletConfig") => match KubeletConfig::read(value) {
                Err(e) => unreadable(Rule::KubeletConfig, e.to_string()),
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
                    unreadable(Rule::ContainerRuntimeConfig, e.to_string());
                }
            }
            (GROUP, "PinnedImageSet") => match api::formats::shape::read(value) {
                Ok(set) => {
                    pinned_images(&set, &mut say);
                    read.pinned.push(set);
                }
                Err(e) => unreadable(Rule::Manifest, e.to_string()),
            },
            _ if is_mirror => {
                mirrors.push(value.clone());
                if let Err(e) = MirrorSets::read(std::slice::from_ref(value)) {
                    unreadable(Rule::Mirrors, e.to_string());
                }
            }
            // The comparison with the schema was all that there is to say of these.
            _ => {}
        }
        all.extend(by_schema);
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

/// Whether what is at this path may be a part of `spec`, or say how to read it.
fn may_be_in_spec(path: &str) -> bool {
    let field = path.split(['.', '[']).next();
    !matches!(field, Some("metadata" | "status"))
}

/// Whether an object fits its kind: of our own groups there has to be such a kind, and objects of kinds that we define or render are
/// compared with the schema.
fn fits_kind(
    kinds: &[Crd],
    (group, version, kind): (&str, &str, &str),
    is_rendered: bool,
    object: &str,
    value: &Value,
) -> Vec<Lint> {
    let refused = |path: &str, message: String, remedy: String| {
        let (severity, rule) = (Severity::Error, Rule::Manifest);
        vec![Lint { severity, object: object.to_owned(), path: path.to_owned(), rule, message, remedy }]
    };
    let of_group: Vec<&Crd> = kinds.iter().filter(|crd| crd.group == group).collect();
    let Some(crd) = of_group.iter().find(|crd| crd.kind() == kind) else {
        if !OUR_GROUPS.contains(&group) || kinds.is_empty() {
            return vec![];
        }
        let names = of_group.iter().map(|crd| crd.kind());
        let remedy = match nearest(kind, names.clone(), 1, 0.6).first() {
            Some(near) => format!("write {near}"),
            None => format!("use one of its kinds: {}", names.collect::<Vec<_>>().join(", ")),
        };
        return refused("kind", format!("{kind} is not a kind of {group}"), remedy);
    };
    if !crd.ours && !is_rendered {
        return vec![];
    }
    let Some((_, schema)) = crd.versions().find(|(name, _)| *name == version) else {
        let served: Vec<String> = crd.versions().map(|(name, _)| format!("{group}/{name}")).collect();
        let message = format!("{kind} is not served in this version");
        return refused("apiVersion", message, format!("write {}", served.join(" or ")));
    };
    // The operator writes the ControllerConfig. Some of its fields are enough as facts for templates.
    let is_facts = crd.group == GROUP && kind == "ControllerConfig";
    let extent = if is_facts { Extent::Part } else { Extent::Whole };
    lint_by_schema(object, schema, value, extent)
}

/// What the API server would refuse in a PinnedImageSet by a rule that a schema does not express.
fn pinned_images(set: &PinnedImageSet, say: &mut impl FnMut(Severity, Rule, &str, String, &str)) {
    for (i, image) in set.spec.pinned_images.iter().enumerate() {
        if let Some(why) = not_pinnable(&image.name) {
            let remedy = "write it as registry.example.com/team/app@sha256: and 64 hexadecimal digits";
            let path = format!("spec.pinnedImages[{i}].name");
            say(Severity::Error, Rule::PinnedImage, &path, format!("{:?} {why}", image.name), remedy);
        }
    }
}
