//! The installation in the forms of others: a Helm chart and a kustomize base, both made by `cargo xtask gen` of the very
//! plan that `mco install --image` applies.
//!
//! What differs from cluster to cluster is put into the plan as [`Values`]; in the chart these are Helm's expressions. A test
//! renders both with real values and compares with the plan of the same values.
//!
//! What it is not: a second list of objects.

mod helm;
mod kustomize;

use operator::install::settings::Settings;
use operator::install::{How, Options, Step, plan};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Folders that hold only generated files.
pub(crate) const OWNED: [&str; 2] = [helm::FOLDER, kustomize::FOLDER];

/// What an installation is told by its administrator.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    /// The image of all pods, the agents' too.
    pub(crate) image: String,
    /// The API server as machines reach it.
    pub(crate) api_server_url: String,
    /// The CA that clients of the API server trust (PEM).
    pub(crate) api_server_ca: String,
    /// The address of the cluster's DNS service.
    pub(crate) cluster_dns_ip: String,
}

impl Values {
    /// Stand for real values in generated files, and are found again in them. The URL must be one.
    fn placeholders() -> Self {
        Self {
            image: "registry.example.com/mco:placeholder".to_owned(),
            api_server_url: "https://api.placeholder.example.com:6443".to_owned(),
            api_server_ca: "-----BEGIN CERTIFICATE-----\nplaceholder\n-----END CERTIFICATE-----\n".to_owned(),
            cluster_dns_ip: "10.96.0.10".to_owned(),
        }
    }

    /// What `mco install` plans for them on a cluster in which nothing is installed.
    pub(crate) fn plan(&self) -> anyhow::Result<Vec<Step>> {
        Ok(plan(&Options {
            said: Settings {
                cluster_dns_ip: Some(self.cluster_dns_ip.clone()),
                api_server_url: Some(self.api_server_url.clone()),
                api_server_ca: Some(self.api_server_ca.clone().into_bytes()),
                ..Settings::default()
            },
            daemon_image: Some(self.image.clone()),
            image: Some(self.image.clone()),
            ..Options::default()
        })?)
    }
}

/// The generated files.
pub(crate) fn files() -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let mut files = helm::files()?;
    files.extend(kustomize::files()?);
    Ok(files)
}

/// Several objects as one text of YAML.
fn yaml<'a>(objects: impl IntoIterator<Item = &'a Value>) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        text += "---\n";
        text += &api::yaml::to_string(object)?;
    }
    Ok(text)
}

/// `CustomResourceDefinition` objects, and the others.
fn parts(steps: &[Step]) -> (Vec<&Step>, Vec<&Step>) {
    steps.iter().partition(|step| step.is_definition())
}

/// Whether users own the object once it exists: it outlives the installation.
fn is_users(step: &Step) -> bool {
    step.how == How::CreateIfMissing || step.object["kind"] == "Namespace"
}

/// Replaces every text in a value.
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
