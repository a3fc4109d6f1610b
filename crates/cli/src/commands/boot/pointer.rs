//! `mco pointer`: the few lines that a machine is provisioned with.

use crate::args::boot::pointer::Pointer as Arguments;
use crate::{connect, exit, output};
use anyhow::{Context, bail};
use api::names::{CONTROLLER_CONFIG, NAMESPACE};
use api::server_tls::{BUNDLE, CA};
use api::user_data;
use api::v1::{ControllerConfig, MachineConfigPool};
use client::call;
use ignition::Version;
use ignition::pointer::Pointer;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;

pub(crate) async fn run(a: Arguments) -> anyhow::Result<u8> {
    let version = Version::ALL
        .into_iter()
        .find(|v| {
            v.as_str() == a.ignition_version || v.as_str().strip_suffix(".0") == Some(&a.ignition_version)
        })
        .with_context(|| {
            let known: Vec<&str> = Version::ALL.iter().map(|v| v.as_str()).collect();
            format!("--ignition-version {:?}: write one of {}", a.ignition_version, known.join(", "))
        })?;
    let client = connect::connect(&a.cluster).await?;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let what = || format!("get MachineConfigPool {}", a.pool);
    if call(what, pools.get_opt(&a.pool)).await?.is_none() {
        bail!("there is no MachineConfigPool {:?}: `mco status` lists the pools", a.pool);
    }
    let host = match a.host {
        Some(host) => host,
        None => {
            let configs: Api<ControllerConfig> = Api::all(client.clone());
            let config = call(
                || format!("get ControllerConfig {CONTROLLER_CONFIG}"),
                configs.get_opt(CONTROLLER_CONFIG),
            )
            .await?;
            config.and_then(|c| user_data::host(&c.spec)).with_context(|| {
                format!("ControllerConfig {CONTROLLER_CONFIG} does not say how machines reach the server: pass --host")
            })?
        }
    };
    if user_data::is_loopback(&host) {
        bail!(
            "{host} is a loopback address: each machine would ask itself for its config. Pass --host with an \
             address that machines can reach, or set one with `mco install --api-server-url`"
        );
    }
    let ca = match a.ca {
        Some(path) => std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?,
        None => {
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
            let bundle = call(|| format!("get ConfigMap {NAMESPACE}/{CA}"), maps.get_opt(CA))
                .await?
                .and_then(|m| m.data?.remove(BUNDLE));
            let missing = "ConfigMap machine-config-server-ca has no ca-bundle.crt: run `mco operator start`, or pass --ca";
            bundle.context(missing)?.into_bytes()
        }
    };
    let token = match a.token {
        Some(token) => Some(token),
        None => {
            let secrets: Api<Secret> = Api::namespaced(client, user_data::NAMESPACE);
            let name = user_data::secret_name(&a.pool);
            let what = || format!("get Secret {}/{name}", user_data::NAMESPACE);
            let secret = call(what, secrets.get_opt(&name)).await?;
            secret.as_ref().and_then(operator::user_data::token_of).map(|t| t.reveal())
        }
    };
    let pointer = Pointer { host: &host, port: a.port, pool: &a.pool, ca: &ca, token: token.as_deref() };
    output::write(&(serde_json::to_string_pretty(&pointer.config(version)?)? + "\n"))?;
    Ok(exit::OK)
}
