//! `mco install`.
//!
//! Flow: the arguments, the kubeconfig and the cluster → [`operator::install::plan`] → the cluster, standard output or
//! files.

use super::installed;
use crate::args::{Balancer, Install};
use crate::{connect, exit, output};
use anyhow::{Context, bail};
use api::k8s::Node;
use api::names::CONTROLLER_CONFIG;
use api::v1::{ControllerConfig, MachineConfigPool};
use client::call;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use operator::boot_tokens;
use operator::install::settings::{DEFAULT_DNS_IP, Settings};
use operator::install::{Existing, Options, Step, apply, find_existing, foreign, managers, payload, plan};
use operator::sync::upgradeable;
use rollout::topology::{self, Topology};
use rollout::view::NodeView;
use serde_json::{Value, json};
use std::path::Path;

/// The files that kubectl takes, in order: it looks up each object's kind before it applies the first one.
const FILES: [&str; 2] = ["00-crds.yaml", "10-mco.yaml"];

pub(crate) async fn run(a: Install) -> anyhow::Result<u8> {
    let ca = a.api_server_ca.as_deref().map(read_ca).transpose()?;
    let mut options = Options {
        pools: match (a.pools.is_empty(), a.image.is_some()) {
            (false, _) => Some(a.pools),
            (true, true) => None,
            (true, false) => Options::default().pools,
        },
        said: Settings {
            cluster_dns_ip: a.cluster_dns_ip.map(|ip| ip.to_string()),
            api_server_url: a.api_server_url.map(|url| url.trim_end_matches('/').to_owned()),
            api_server_ca: ca,
            ..Settings::default()
        },
        daemon_image: a.daemon_image,
        agents_of_hosts: a.agents_of_hosts,
        image: a.image,
        openshift_config_crds: a.openshift_config_crds,
        ..Options::default()
    };
    // With an image the operator detects the right value, and a guess would only be in its way.
    options.found.cluster_dns_ip = options.image.is_none().then(|| DEFAULT_DNS_IP.to_owned());
    // Without a kubeconfig the objects are for a cluster that does not exist yet.
    let config = match a.dry_run {
        true => connect::config_if_any(&a.cluster).await?,
        false => Some(connect::config(&a.cluster).await?),
    };
    let client = match config {
        None => {
            follow(&mut options, (a.open, a.require_token), a.balancers, Existing::default());
            None
        }
        Some(config) => {
            options.found.api_server_url =
                Some(config.cluster_url.to_string().trim_end_matches('/').to_owned());
            options.found.api_server_ca = Some(pem(config.root_cert.as_deref().unwrap_or_default()));
            let client = connect::client(config)?;
            if let Some(foreign) = foreign::find(&client, a.take_over).await? {
                bail!("{foreign}");
            }
            Box::pin(look(&client, &mut options)).await?;
            follow(&mut options, (a.open, a.require_token), a.balancers, find_existing(&client).await?);
            if let Some(image) = options.image.as_deref().filter(|_| !a.allow_not_upgradeable)
                && let Some(why) = upgradeable::judge(options.settings.as_ref(), image)
            {
                bail!("{why}");
            }
            if let Some(image) = &options.image
                && let Some(other) = payload::find(&client, options.settings.as_ref(), image).await?
            {
                bail!("{other}");
            }
            Some(client)
        }
    };
    let steps = plan(&options)?;
    if let Some(client) = client.as_ref().filter(|_| !a.take_over && options.settings.is_none())
        && let Some(foreign) = managers::find(client, &steps).await?
    {
        bail!("{foreign}");
    }
    let Some(client) = client.filter(|_| !a.dry_run) else {
        match a.output_dir {
            Some(folder) => write_files(&folder, &steps)?,
            None => {
                let objects: Vec<_> = steps.iter().map(|s| &s.object).collect();
                let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
                output::print_object(a.output, &list, || steps.iter().map(|s| format!("{s}\n")).collect())?;
            }
        }
        return Ok(exit::OK);
    };
    let with_tokens = options.image.is_some() && options.require_token;
    if options.image.is_some() && !with_tokens && !a.open {
        eprintln!(
            "mco: the config server still serves configs to anyone who can reach it; pass --require-token to \
             require boot tokens"
        );
    }
    if with_tokens {
        // Before the new servers look for tokens there, and again for uses that old servers recorded meanwhile.
        boot_tokens::keep_namespace(&client).await?;
        boot_tokens::move_tokens(&client).await?;
    }
    // The installation continues after its output was closed (`mco install | head -1`).
    apply(&client, &steps, |step| drop(output::write(&format!("{step}\n")))).await?;
    if with_tokens {
        boot_tokens::move_tokens(&client).await?;
    }
    output::write(&format!("installed: {} objects\n", steps.len()))?;
    if options.image.is_none() || a.no_wait {
        return Ok(exit::OK);
    }
    installed::wait(&client, a.timeout.unsigned_abs()).await
}

/// What is read from the cluster itself.
async fn look(client: &Client, options: &mut Options) -> anyhow::Result<()> {
    let resource = ApiResource::erase::<ControllerConfig>(&());
    let configs: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let nodes: Api<Node> = Api::all(client.clone());
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    let all = ListParams::default();
    let (config, pools, nodes, dns) = tokio::try_join!(
        ask("ControllerConfig", configs.get(CONTROLLER_CONFIG)),
        ask("MachineConfigPools", pools.list(&all)),
        ask("Nodes", nodes.list(&all)),
        ask("Service kube-system/kube-dns", services.get("kube-dns")),
    )?;
    options.controller_config = config.map(|c| json!(c));
    options.pools_there = pools.iter().flatten().map(ResourceExt::name_any).collect();
    let address = dns.and_then(|s| s.spec?.cluster_ip).filter(|ip| !["", "None"].contains(&ip.as_str()));
    options.found.cluster_dns_ip = address.or_else(|| options.found.cluster_dns_ip.take());
    let views: Vec<NodeView> = nodes.iter().flatten().map(NodeView::from_node).collect();
    let found = Topology::of(&views);
    options.found.control_plane_topology = found.control_plane.map(str::to_owned);
    options.found.infrastructure_topology = found.infrastructure.map(str::to_owned);
    let config: Option<ControllerConfig> = match &options.controller_config {
        Some(config) => Some(api::shape::read(config).context("ControllerConfig cannot be read")?),
        None => None,
    };
    topology::control_plane(config.as_ref(), found).clone_into(&mut options.control_plane_topology);
    Ok(())
}

/// Whether the config server requires tokens: yes, unless the arguments say otherwise. An installation that exists keeps
/// its setting where the arguments do not name one.
fn follow(
    options: &mut Options,
    (open, require_token): (bool, bool),
    balancers: Vec<Balancer>,
    found: Existing,
) {
    options.balancers = match balancers.is_empty() {
        true => found.balancers,
        false => balancers.into_iter().filter_map(|b| b.0).collect(),
    };
    if options.daemon_image.is_none() && !options.agents_of_hosts {
        // What starts the agents stays as it is. In versions before the settings object, the only sign of it is whether
        // there is a DaemonSet.
        let before_settings = found.settings.is_none() && found.require_token.is_some();
        options.agents_of_hosts = before_settings && found.agents.is_none();
        options.daemon_image = found.agents;
    }
    options.settings = found.settings;
    options.require_token = require_token || (!open && found.require_token.unwrap_or(true));
    options.pull_secret = found.pull_secret;
    options.old_tokens = found.old_tokens;
    options.openshift_namespaces = found.openshift_namespaces;
}

/// `None`: the object or its kind does not exist.
async fn ask<T>(what: &str, request: impl Future<Output = kube::Result<T>>) -> anyhow::Result<Option<T>> {
    match call(|| format!("read {what}"), request).await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_ca(path: &Path) -> anyhow::Result<Vec<u8>> {
    let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if api::pem::certificates(&String::from_utf8_lossy(&pem)).next().is_none() {
        bail!("--api-server-ca {}: contains no PEM certificate", path.display());
    }
    Ok(pem)
}

/// What kubectl applies: one file after the other, each in one go.
fn write_files(folder: &Path, steps: &[Step]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let (definitions, rest): (Vec<&Step>, Vec<&Step>) = steps.iter().partition(|s| s.is_definition());
    let [crds, objects] = FILES.map(|name| folder.join(name));
    for (path, steps) in [(&crds, definitions), (&objects, rest)] {
        let mut text = String::new();
        for step in steps {
            text += "---\n";
            text += &api::yaml::to_string::<Value>(&step.object)?;
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let (crds, objects) = (crds.display(), objects.display());
    output::write(&format!(
        "kubectl apply -f {crds}\nkubectl wait --for condition=Established -f {crds}\nkubectl apply -f {objects}\n"
    ))
}

/// The client holds certificates in DER; ControllerConfig wants PEM.
fn pem(certificates: &[Vec<u8>]) -> Vec<u8> {
    certificates
        .iter()
        .map(|der| api::pem::from_der(api::pem::CERTIFICATE, der))
        .collect::<String>()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_asked_for_unless_it_is_open_already_or_shall_be() {
        // Columns: --open, --require-token, what the cluster has, whether tokens are required afterwards.
        let rows = [
            (false, false, None, true),
            (true, false, None, false),
            (false, true, None, true),
            (false, false, Some(false), false),
            (false, false, Some(true), true),
            (false, true, Some(false), true),
            (true, false, Some(true), false),
        ];
        for (open, require, there, want) in rows {
            let mut options = Options::default();
            let found = Existing { require_token: there, ..Existing::default() };
            follow(&mut options, (open, require), vec![], found);
            assert_eq!(options.require_token, want, "{open} {require} {there:?}");
        }
    }

    #[test]
    fn agents_stay_as_they_run_unless_somebody_says_otherwise() {
        let image = |name: &str| Some(name.to_owned());
        let settings = Some(api::v1alpha1::MachineConfigOperator::default());
        let an_older_one = Existing { require_token: Some(true), ..Existing::default() };
        let its_pods = Existing { agents: image("old"), ..an_older_one.clone() };
        let with_settings = Existing { settings, ..an_older_one.clone() };
        // Columns: --daemon-image, --agents-of-hosts, what is there, and what the plan is told.
        let rows = [
            (None, false, Existing::default(), (None, false)),
            (None, true, Existing::default(), (None, true)),
            (image("new"), false, Existing::default(), (image("new"), false)),
            (None, false, an_older_one, (None, true)),
            (None, false, its_pods.clone(), (image("old"), false)),
            (None, true, its_pods, (None, true)),
            // The settings say it.
            (None, false, with_settings, (None, false)),
        ];
        for (daemon_image, agents_of_hosts, found, want) in rows {
            let mut options = Options { daemon_image, agents_of_hosts, ..Options::default() };
            follow(&mut options, (false, false), vec![], found.clone());
            assert_eq!((options.daemon_image, options.agents_of_hosts), want, "{found:?}");
        }
    }

    #[test]
    fn load_balancers_stay_until_others_or_none_are_named() {
        let [a, b] = ["10.0.0.4/31", "10.1.0.1/32"].map(|n| n.parse::<ipnet::IpNet>().unwrap());
        let rows = [(vec![], vec![a]), (vec![Balancer(Some(b))], vec![b]), (vec![Balancer(None)], vec![])];
        for (said, want) in rows {
            let mut options = Options::default();
            let found = Existing { balancers: vec![a], ..Existing::default() };
            follow(&mut options, (false, false), said.clone(), found);
            assert_eq!(options.balancers, want, "{said:?}");
        }
    }
}
