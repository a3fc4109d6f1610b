//! The CustomResourceDefinitions as they are installed: the published schemas (kept as data in `schemas/`, so that
//! validation, defaults and list keys are exactly those of the API), with our own descriptions laid over them.
//!
//! `cargo xtask gen` writes them to `deploy/crds/`; a test there fails when the two differ.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>.

mod descriptions;
mod rules;

use crate::definition::{self, Defined, Definition};
use crate::{v1, v1alpha1};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

/// One CustomResourceDefinition.
#[derive(Debug, Clone)]
pub struct Crd {
    /// The plural name, also used for its file.
    pub plural: String,
    /// The API group.
    pub group: String,
    /// Whether it is ours to install; `false` for a kind of OpenShift that is only read if it exists.
    pub ours: bool,
    /// The object.
    pub object: Value,
}

impl Crd {
    /// The object's name: `PLURAL.GROUP`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// The kind that it defines.
    pub fn kind(&self) -> &str {
        self.object["spec"]["names"]["kind"].as_str().unwrap_or_default()
    }

    /// Whether kubectl takes this word for the kind: its plural, its singular, a short name, or the plural with the group.
    pub fn is_called(&self, word: &str) -> bool {
        let names = &self.object["spec"]["names"];
        let short = names["shortNames"].as_array().into_iter().flatten();
        let mut all = [&names["plural"], &names["singular"]].into_iter().chain(short);
        all.any(|name| name == word) || self.name() == word
    }

    /// The versions that it serves, each with its schema.
    pub fn versions(&self) -> impl Iterator<Item = (&str, &Value)> {
        let served = self.object["spec"]["versions"].as_array().into_iter().flatten();
        let served = served.filter(|version| version["served"] != false);
        served.filter_map(|version| Some((version["name"].as_str()?, &version["schema"]["openAPIV3Schema"])))
    }
}

/// A published schema that cannot be read. That is a bug in this crate's own data.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// Not JSON.
    #[error("schemas/{file}: {source}")]
    Json {
        /// The file.
        file: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// A field that every schema has is missing.
    #[error("schemas/{file}: no {field}")]
    Missing {
        /// The file.
        file: &'static str,
        /// The field.
        field: &'static str,
    },
}

macro_rules! schemas {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../../schemas/", $file)))),*]
    };
}

const SCHEMAS: &[(&str, &str)] = schemas![
    "machineconfigs.json",
    "machineconfigpools.json",
    "controllerconfigs.json",
    "machineconfignodes.json",
    "kubeletconfigs.json",
    "containerruntimeconfigs.json",
    "pinnedimagesets.json",
    "machineosconfigs.json",
    "machineosbuilds.json",
    "osimagestreams.json",
    "internalreleaseimages.json",
    "machineconfigurations.json",
    "apiservers.config.json",
    "clusterimagepolicies.config.json",
    "clusteroperators.config.json",
    "clusterversions.config.json",
    "dnses.config.json",
    "featuregates.config.json",
    "imagecontentsourcepolicies.operator.json",
    "imagedigestmirrorsets.config.json",
    "imagepolicies.config.json",
    "images.config.json",
    "imagetagmirrorsets.config.json",
    "infrastructures.config.json",
    "networks.config.json",
    "nodes.config.json",
    "proxies.config.json",
];

/// All definitions, ours first.
///
/// # Errors
/// A broken schema in this crate's data.
pub fn all() -> Result<Vec<Crd>, CrdError> {
    let mut all = SCHEMAS.iter().map(|&(file, text)| one(file, text)).collect::<Result<Vec<_>, _>>()?;
    let ours = all.iter().take_while(|crd| crd.ours).count();
    let kinds = [defined::<v1alpha1::MachineConfigOperator>(), defined::<v1alpha1::RolloutPolicy>()];
    all.splice(ours..ours, kinds);
    Ok(all)
}

fn defined<K: Defined>() -> Crd {
    let Definition { plural, group, .. } = K::DEFINITION;
    let object = definition::crd::<K>();
    Crd { plural: plural.to_owned(), group: group.to_owned(), ours: true, object }
}

fn one(file: &'static str, text: &str) -> Result<Crd, CrdError> {
    let ours = file.matches('.').count() == 1;
    let mut spec: Map<String, Value> =
        serde_json::from_str(text).map_err(|source| CrdError::Json { file, source })?;
    let missing = |field| CrdError::Missing { file, field };
    let group = spec.get("group").and_then(Value::as_str).ok_or(missing("group"))?.to_owned();
    let names = spec.get("names").ok_or(missing("names"))?;
    let plural = names.get("plural").and_then(Value::as_str).ok_or(missing("names.plural"))?.to_owned();
    let kind = names.get("kind").and_then(Value::as_str).ok_or(missing("names.kind"))?.to_owned();
    // A schema file may give "no columns" as null or as an empty list. The API server refuses the first and drops the
    // second, so that a second `kubectl apply` of the same file would be a change.
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut).ok_or(missing("versions"))?;
    for version in versions.iter_mut().filter_map(Value::as_object_mut) {
        let is_none =
            |key: &str, v: &Value| v.is_null() || (key == "additionalPrinterColumns" && *v == json!([]));
        version.retain(|key, v| !is_none(key, v));
        if let Some(schema) = version.get_mut("schema").and_then(|s| s.get_mut("openAPIV3Schema")) {
            describe(&kind, schema);
            if ours {
                crate::crds::descriptions::add(&kind, schema);
            }
            if kind == "ControllerConfig" {
                may_be_absent(schema);
            }
            if let Some(at) = crate::crds::rules::add(&kind, schema).first() {
                return Err(CrdError::Missing { file, field: at });
            }
        }
    }
    let mut metadata = json!({ "name": format!("{plural}.{group}") });
    if ours {
        metadata["labels"] = json!({ "openshift.io/operator-managed": "" });
    }
    // The API server requires an approval annotation only for definitions in protected groups (`*.k8s.io`), not for
    // `*.openshift.io`.
    let object = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    });
    Ok(Crd { plural, group, ours, object })
}

/// A field of the ControllerConfig that may be null, or that holds certificates which may not be known yet, may also be
/// absent: `kubectl apply` leaves nulls out, and the API server does not accept an empty string as bytes.
fn may_be_absent(schema: &mut Value) {
    let Some(spec) = schema.pointer_mut("/properties/spec") else { return };
    let fields = spec.get("properties").cloned().unwrap_or_default();
    let optional = |field: &Value| field["nullable"] == true || field["format"] == "byte";
    if let Some(required) = spec.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !name.as_str().and_then(|n| fields.get(n)).is_some_and(optional));
    }
}

/// Adds the descriptions of our Rust types to a published schema.
fn describe(kind: &str, schema: &mut Value) {
    let (summary, spec, status) = match kind {
        "MachineConfig" => (
            "MachineConfig is a piece of host configuration: files, units, users, kernel arguments, OS image.",
            Some(schema_of::<v1::MachineConfigSpec>()),
            None,
        ),
        "MachineConfigPool" => (
            "MachineConfigPool is a group of nodes that share one rendered MachineConfig.",
            Some(schema_of::<v1::MachineConfigPoolSpec>()),
            Some(schema_of::<v1::MachineConfigPoolStatus>()),
        ),
        "ControllerConfig" => (
            "ControllerConfig holds the cluster facts that templates and rendering need.",
            Some(schema_of::<v1::ControllerConfigSpec>()),
            Some(schema_of::<v1::ControllerConfigStatus>()),
        ),
        "MachineConfigNode" => (
            "MachineConfigNode shows how far one node's update is.",
            Some(schema_of::<v1::MachineConfigNodeSpec>()),
            Some(schema_of::<v1::MachineConfigNodeStatus>()),
        ),
        "MachineOSConfig" => (
            "MachineOSConfig says which OS image a pool's nodes run, and how it is built.",
            Some(schema_of::<v1::MachineOSConfigSpec>()),
            Some(schema_of::<v1::MachineOSConfigStatus>()),
        ),
        "MachineOSBuild" => (
            "MachineOSBuild is one build of a pool's OS image, for one rendered MachineConfig.",
            Some(schema_of::<v1::MachineOSBuildSpec>()),
            Some(schema_of::<v1::MachineOSBuildStatus>()),
        ),
        _ => return,
    };
    schema["description"] = summary.into();
    for (key, ours) in [("spec", spec), ("status", status)] {
        if let (Some(ours), Some(theirs)) = (ours, schema.pointer_mut(&format!("/properties/{key}"))) {
            overlay(&ours, &ours, theirs);
        }
    }
}

fn schema_of<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}

/// Follows `$ref` and the `anyOf` of an optional field to the schema that has the properties.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut s = schema;
    for _ in 0..8 {
        if let Some(target) = s.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#')) {
            s = root.pointer(target).unwrap_or(&Value::Null);
        } else if let Some(first) = s.pointer("/anyOf/0") {
            s = first;
        } else {
            break;
        }
    }
    s
}

fn overlay(root: &Value, ours: &Value, theirs: &mut Value) {
    // If we keep somebody else's object as it is, there are no fields to describe.
    if theirs.get("x-kubernetes-preserve-unknown-fields").is_some() || !theirs.is_object() {
        return;
    }
    let target = resolve(root, ours);
    if let (Some(items), Some(their_items)) = (target.get("items"), theirs.get_mut("items"))
        && !is_kubernetes(items)
    {
        overlay(root, items, their_items);
    }
    let Some(properties) = target.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        let Some(theirs) = theirs.pointer_mut(&format!("/properties/{name}")) else { continue };
        if let Some(text) = property.get("description") {
            theirs["description"] = text.clone();
        }
        if !is_kubernetes(property) {
            overlay(root, property, theirs);
        }
    }
}

/// Whether a field has one of Kubernetes' own types, such as ObjectReference. Our descriptions of its fields are in
/// [`crate::crds::descriptions`].
fn is_kubernetes(schema: &Value) -> bool {
    let reference = |s: &Value| s["$ref"].as_str().is_some_and(|r| r.contains("/io.k8s."));
    reference(schema) || reference(&schema["anyOf"][0])
}

/// Paths of our types that a published schema does not have. The result must be empty, or a field was misspelt.
fn unknown(root: &Value, ours: &Value, theirs: &Value, path: &str, out: &mut Vec<String>) {
    if theirs.get("x-kubernetes-preserve-unknown-fields").is_some() {
        return;
    }
    let target = resolve(root, ours);
    if let (Some(items), Some(their_items)) = (target.get("items"), theirs.get("items")) {
        unknown(root, items, their_items, &format!("{path}[]"), out);
    }
    for (name, property) in target.get("properties").and_then(Value::as_object).into_iter().flatten() {
        match theirs.pointer(&format!("/properties/{name}")) {
            Some(t) => unknown(root, property, t, &format!("{path}.{name}"), out),
            None => out.push(format!("{path}.{name}")),
        }
    }
}

/// Fields of our Rust types that the published schemas do not have, by JSON path. Used by this crate's tests and by
/// `cargo xtask gen --check`.
///
/// # Errors
/// As [`all`].
pub fn fields_unknown_to_the_schemas() -> Result<Vec<String>, CrdError> {
    let types: [(&str, &str, Value); 11] = [
        ("MachineConfig", "spec", schema_of::<v1::MachineConfigSpec>()),
        ("MachineConfigPool", "spec", schema_of::<v1::MachineConfigPoolSpec>()),
        ("MachineConfigPool", "status", schema_of::<v1::MachineConfigPoolStatus>()),
        ("ControllerConfig", "spec", schema_of::<v1::ControllerConfigSpec>()),
        ("ControllerConfig", "status", schema_of::<v1::ControllerConfigStatus>()),
        ("MachineConfigNode", "spec", schema_of::<v1::MachineConfigNodeSpec>()),
        ("MachineConfigNode", "status", schema_of::<v1::MachineConfigNodeStatus>()),
        ("MachineOSConfig", "spec", schema_of::<v1::MachineOSConfigSpec>()),
        ("MachineOSConfig", "status", schema_of::<v1::MachineOSConfigStatus>()),
        ("MachineOSBuild", "spec", schema_of::<v1::MachineOSBuildSpec>()),
        ("MachineOSBuild", "status", schema_of::<v1::MachineOSBuildStatus>()),
    ];
    let crds = all()?;
    let mut out = vec![];
    for (kind, part, ours) in types {
        let crd = crds.iter().find(|c| c.object.pointer("/spec/names/kind") == Some(&json!(kind)) && c.ours);
        let theirs = crd.and_then(|c| {
            c.object.pointer(&format!("/spec/versions/0/schema/openAPIV3Schema/properties/{part}"))
        });
        match theirs {
            Some(theirs) => unknown(&ours, &ours, theirs, &format!("{kind}.{part}"), &mut out),
            None => out.push(format!("{kind}.{part}")),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
