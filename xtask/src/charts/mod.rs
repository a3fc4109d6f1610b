//! The installation as a Helm chart and as a kustomize base. `cargo xtask gen` makes both from the same plan that `mco
//! install --image` applies.
//!
//! What differs from cluster to cluster is put into the plan as [`Values`]; in the chart these are Helm's expressions.
//! A test renders both with real values and compares the result with the plan for the same values.
//!
//! What it is not: a second list of objects.

mod helm;
mod kustomize;

use operator::install::controller_config_values::ControllerConfigValues;
use operator::install::{OPENSHIFT_NAMESPACES, Options, Step, WriteMode, plan, pull_secret_in};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Folders that hold only generated files.
pub(crate) const OWNED: [&str; 2] = [helm::FOLDER, kustomize::FOLDER];

/// The values that an administrator gives to an installation. The API server's CA and the address of the cluster's DNS service
/// are not among them: the operator finds them, and follows their changes unless somebody has set them.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    /// The image of all pods, including the agents'.
    pub(crate) image: String,
    /// The URL at which machines reach the API server.
    pub(crate) api_server_url: String,
}

impl Values {
    /// Placeholders for real values: generated files contain them, and they are found again there. The one for the URL
    /// must be a valid URL.
    fn placeholders() -> Self {
        Self {
            image: "registry.example.com/mco:placeholder".to_owned(),
            api_server_url: "https://api.placeholder.example.com:6443".to_owned(),
        }
    }

    /// What `mco install` plans for these values on a cluster in which nothing is installed.
    pub(crate) fn plan(&self) -> anyhow::Result<Vec<Step>> {
        self.plan_with(&[])
    }

    /// The same plan for a cluster that has these of OpenShift's namespaces.
    fn plan_with(&self, namespaces: &[&'static str]) -> anyhow::Result<Vec<Step>> {
        Ok(plan(&Options {
            given: ControllerConfigValues {
                api_server_url: Some(self.api_server_url.clone()),
                ..ControllerConfigValues::default()
            },
            daemon_image: Some(self.image.clone()),
            image: Some(self.image.clone()),
            pull_secret: pull_secret_in(namespaces),
            openshift_namespaces: namespaces.to_vec(),
            ..Options::default()
        })?)
    }
}

/// OpenShift's namespaces, each with the objects that `mco install` adds where the namespace exists.
fn in_namespaces(values: &Values) -> anyhow::Result<Vec<(&'static str, Vec<Value>)>> {
    let everywhere = values.plan()?;
    let mut all = vec![];
    for namespace in OPENSHIFT_NAMESPACES {
        let added = values.plan_with(&[namespace])?.into_iter().filter(|step| !everywhere.contains(step));
        all.push((namespace, added.map(|step| step.object).collect()));
    }
    Ok(all)
}

pub(crate) fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let mut files = helm::files()?;
    files.extend(kustomize::files()?);
    Ok(files)
}

/// Several objects as one YAML stream.
fn yaml<'a>(objects: impl IntoIterator<Item = &'a Value>) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        text += "---\n";
        text += &api::formats::yaml::to_string(object)?;
    }
    Ok(text)
}

/// Splits the steps into `CustomResourceDefinition` objects and all others.
fn parts(steps: &[Step]) -> (Vec<&Step>, Vec<&Step>) {
    steps.iter().partition(|step| step.is_definition())
}

/// Whether the object belongs to users once it exists, and so stays when the installation is removed.
fn is_users(step: &Step) -> bool {
    step.how == WriteMode::CreateIfMissing || step.object["kind"] == "Namespace"
}

/// Applies `change` to every string in a value.
fn each_text(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_text(field, change)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
