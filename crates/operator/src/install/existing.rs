//! What an earlier installation left in the cluster, as far as the next one must know it.
//!
//! What it is not: the ControllerConfig and the pools themselves (see `prepare`).

use super::{InstallError, PullSecret};
use crate::accounts::{AGENT, PULL_SECRET, SERVER};
use crate::facts::openshift::NAMESPACES;
use crate::objects::resource;
use api::formats::network::network;
use api::names;
use api::v1alpha1::{Access, MachineConfigOperator};
use client::{CallError, call, call_optional};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

/// Where OpenShift's pull secret stands.
const OPENSHIFT_CONFIG: &str = "openshift-config";

/// The settings of an earlier installation that the next one keeps.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Existing {
    /// Whether its config server asks for boot tokens. `None`: it runs no config server as pods.
    pub(super) require_token: Option<bool>,
    /// The load balancers that its config server trusts.
    pub(super) balancers: Vec<IpNet>,
    /// The settings. `None`: nothing was installed by settings.
    pub(super) settings: Option<MachineConfigOperator>,
    /// Whether its agents run as pods, of this image.
    pub(super) agents: Option<String>,
    /// The pull secret that its ControllerConfig names.
    pub(super) pull_secret: Option<PullSecret>,
    /// The boot tokens' Secrets in the namespace where earlier versions kept them.
    pub(super) old_tokens: Vec<String>,
    /// OpenShift's namespaces in which the operator reads ConfigMaps, as far as they exist.
    pub(super) openshift_namespaces: Vec<&'static str>,
}

/// Reads the settings.
pub(crate) async fn read_settings(client: &Client) -> Result<Option<MachineConfigOperator>, CallError> {
    let api: Api<MachineConfigOperator> = Api::all(client.clone());
    call_optional(|| format!("get {}", crate::settings::name()), api.get(names::CLUSTER)).await
}

/// Reads what an earlier installation left in the cluster.
///
/// # Errors
/// The API server's error. A cluster without our kinds is no error.
pub(super) async fn find_existing(client: &Client) -> Result<Existing, InstallError> {
    let api = |kind: &str, version: &str| {
        let resource = resource(&json!({"kind": kind, "apiVersion": version}))?;
        Some(match kind {
            "DaemonSet" => Api::<DynamicObject>::namespaced_with(client.clone(), names::NAMESPACE, &resource),
            _ => Api::all_with(client.clone(), &resource),
        })
    };
    let mut there = Existing::default();
    if let Some(api) = api("DaemonSet", "apps/v1") {
        let set = call_optional(|| "get DaemonSet machine-config-server".to_owned(), api.get(SERVER)).await?;
        there.require_token = set.as_ref().map(|s| requires_token(&s.data));
        there.balancers = set.as_ref().map(|s| balancers(&s.data)).unwrap_or_default();
    }
    if let Some(api) = api("DaemonSet", "apps/v1") {
        let set = call_optional(|| "get DaemonSet machine-config-daemon".to_owned(), api.get(AGENT)).await?;
        let image = set.as_ref().and_then(|s| s.data.pointer("/spec/template/spec/containers/0/image"));
        there.agents = image.and_then(Value::as_str).map(str::to_owned);
    }
    there.settings = read_settings(client).await?;
    if let Some(settings) = &there.settings {
        // The settings come before what they have made.
        let server = &settings.spec.config_server;
        there.require_token = Some(server.access == Access::BootTokens);
        there.balancers = server.proxy_protocol_from.iter().filter_map(|n| network(n)).collect();
        there.agents = None;
    }
    if let Some(api) = api("ControllerConfig", &format!("{}/v1", names::GROUP)) {
        let config =
            call_optional(|| "get ControllerConfig".to_owned(), api.get(names::CONTROLLER_CONFIG)).await?;
        there.pull_secret = config.as_ref().and_then(|c| pull_secret(&c.data));
    }
    if let Some(api) = api("Namespace", "v1") {
        for name in NAMESPACES {
            if call_optional(|| format!("get Namespace {name}"), api.get(name)).await?.is_some() {
                there.openshift_namespaces.push(name);
            }
        }
    }
    if there.pull_secret.is_none() {
        there.pull_secret = pull_secret_in(&there.openshift_namespaces);
    }
    if let (Some((name, _)), Some(api)) = (&there.pull_secret, api("Namespace", "v1"))
        && call_optional(|| "get the pull secret's Namespace".to_owned(), api.get(name)).await?.is_none()
    {
        // A namespace that does not exist cannot have a Role.
        there.pull_secret = None;
    }
    let secrets = Api::<Secret>::namespaced(client.clone(), api::first_boot::boot_token::OLD_NAMESPACE);
    let labelled = crate::boot_tokens::labelled();
    let what = || format!("list boot tokens in {}", api::first_boot::boot_token::OLD_NAMESPACE);
    // An administrator who may not read them cannot grant rights to them either.
    match call(what, secrets.list_metadata(&labelled)).await {
        Ok(old) => there.old_tokens = old.iter().map(ResourceExt::name_any).collect(),
        Err(error) if error.is_forbidden() || error.is_not_found() => {}
        Err(error) => return Err(InstallError::Call(error)),
    }
    Ok(there)
}

/// The pull secret that the operator is going to name, where these of OpenShift's namespaces are there.
pub fn pull_secret_in(namespaces: &[&str]) -> Option<PullSecret> {
    namespaces.contains(&OPENSHIFT_CONFIG).then(|| (OPENSHIFT_CONFIG.to_owned(), PULL_SECRET.to_owned()))
}

/// The arguments of the config server in its DaemonSet.
fn args(set: &Value) -> impl Iterator<Item = &str> {
    let args = set.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array);
    args.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether the config server asks for boot tokens.
pub(super) fn requires_token(set: &Value) -> bool {
    args(set).any(|a| a == "--require-token")
}

/// The load balancers that the config server trusts.
pub(super) fn balancers(set: &Value) -> Vec<IpNet> {
    args(set).filter_map(|a| a.strip_prefix("--proxy-protocol-from=")?.parse().ok()).collect()
}

/// The pull secret that a ControllerConfig names.
pub(crate) fn pull_secret(config: &Value) -> Option<PullSecret> {
    let text = |key: &str| config.pointer(&format!("/spec/pullSecret/{key}"))?.as_str().map(str::to_owned);
    Some((text("namespace").unwrap_or_else(|| "openshift-config".to_owned()), text("name")?))
}
