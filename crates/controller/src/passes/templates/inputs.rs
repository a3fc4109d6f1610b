//! The inputs of templates: their folder, the pull secret, the cluster's TLS versions.
//!
//! What it is not: when they are read again (see `watches::template_inputs`), or what they are rendered to.

use crate::cache::stores::DEFAULT_NAMESPACE;
use crate::io::files;
use crate::kind;
use crate::shared::Shared;
use api::k8s::{ObjectReference, Secret};
use api::names::CLUSTER;
use api::v1::ControllerConfig;
use client::{CallError, call, call_optional, chain};
use kube::api::{Api, DynamicObject};
use render::{TemplateData, TemplateSet, TlsProfile};
use serde_json::Value;
use std::path::Path;

/// Why MachineConfigs cannot be made.
pub(crate) enum Failure {
    /// The templates cannot be rendered.
    Plan(String),
    /// A result cannot be written.
    Call(CallError),
}

/// The inputs of templates besides files and the ControllerConfig.
pub(crate) struct Facts {
    pull_secret: Option<String>,
    api_server: Option<Value>,
}

impl Facts {
    /// The TLS versions and ciphers that kubelets may use.
    pub(crate) fn tls(&self) -> TlsProfile {
        TlsProfile::from_api_server(self.api_server.as_ref())
    }

    /// What templates are rendered with.
    pub(crate) fn data<'a>(&'a self, config: &'a ControllerConfig, tls: &'a TlsProfile) -> TemplateData<'a> {
        TemplateData { controller_config: config, pull_secret: self.pull_secret.as_deref(), tls }
    }
}

/// Reads the template folder.
pub(crate) fn read(folder: &Path) -> Result<TemplateSet, String> {
    Ok(TemplateSet::from_map(files::tree(folder).map_err(|e| chain(&e))?))
}

/// Reads the inputs of templates.
pub(crate) async fn facts(shared: &Shared, config: &ControllerConfig) -> Result<Facts, Failure> {
    let pull_secret = match &config.spec.pull_secret {
        Some(at) => Some(pull_secret(shared, at).await?),
        None => None,
    };
    // OpenShift's APIServer object, where that kind is installed.
    let api: Api<DynamicObject> = Api::all_with(shared.client.clone(), &kind::API_SERVERS.resource());
    // If the kind is not installed, the API server answers with a bare 404, which `get_opt` treats as an error.
    let object =
        call_optional(|| "apiserver cluster".to_owned(), api.get(CLUSTER)).await.map_err(Failure::Call)?;
    Ok(Facts { pull_secret, api_server: object.map(|o| o.data) })
}

/// The pull secret as one line of JSON. Its content is never reported.
async fn pull_secret(shared: &Shared, at: &ObjectReference) -> Result<String, Failure> {
    const KEY: &str = ".dockerconfigjson";
    let namespace = at.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let name = at.name.as_deref().unwrap_or_default();
    let what = || format!("secret {namespace}/{name}");
    let wrong = |why: &str| {
        Failure::Plan(format!(
            "ControllerConfig spec.pullSecret names secret {namespace}/{name}, which {why}"
        ))
    };
    let api = Api::<Secret>::namespaced(shared.client.clone(), namespace);
    let secret = call(what, api.get_opt(name)).await.map_err(Failure::Call)?;
    let secret = secret.ok_or_else(|| wrong("does not exist; create it, or correct the reference"))?;
    if secret.type_.as_deref() != Some("kubernetes.io/dockerconfigjson") {
        return Err(wrong("is not of type kubernetes.io/dockerconfigjson"));
    }
    let data = secret.data.unwrap_or_default();
    let text = data.get(KEY).ok_or_else(|| wrong("has no key .dockerconfigjson"))?;
    let value: Value =
        serde_json::from_slice(&text.0).map_err(|_| wrong("does not hold JSON in .dockerconfigjson"))?;
    Ok(value.to_string())
}
