//! `mco install`.
//!
//! Flow: the arguments and the kubeconfig → [`operator::install::prepare`] → the cluster, standard output or files.
//!
//! What it is not: what is installed, and when an installation must not begin (see `operator::install`).

use super::installed;
use crate::args::change::install::Install;
use crate::args::shared::Balancer;
use crate::{connect, exit, output};
use anyhow::{Context, bail};
use ipnet::IpNet;
use operator::install::controller_config_values::ControllerConfigValues;
use operator::install::{Request, Step, Target, carry_out, moved_api_server, prepare};
use serde_json::{Value, json};
use std::path::Path;

/// The files that kubectl takes, in order: it looks up each object's kind before it applies the first one.
const FILES: [&str; 2] = ["00-crds.yaml", "10-mco.yaml"];

pub(crate) async fn run(a: Install) -> anyhow::Result<u8> {
    let request = Request {
        pools: a.pools,
        given: ControllerConfigValues {
            cluster_dns_ip: a.cluster_dns_ip.map(|ip| ip.to_string()),
            api_server_url: a.api_server_url.map(|url| url.trim_end_matches('/').to_owned()),
            api_server_ca: a.api_server_ca.as_deref().map(read_ca).transpose()?,
            ..ControllerConfigValues::default()
        },
        image: a.image,
        daemon_image: a.daemon_image,
        agents_of_hosts: a.agents_of_hosts,
        openshift_config_crds: a.openshift_config_crds,
        require_token: a.require_token,
        open: a.open,
        balancers: balancers(&a.balancers),
        take_over: a.take_over,
        allow_not_upgradeable: a.allow_not_upgradeable,
    };
    // Without a kubeconfig the objects are for a cluster that does not exist yet.
    let config = match a.dry_run {
        true => connect::config_if_any(&a.cluster).await?,
        false => Some(connect::config(&a.cluster).await?),
    };
    let cluster = match config {
        None => None,
        Some(config) => {
            let url = config.cluster_url.to_string();
            let ca = pem(config.root_cert.as_deref().unwrap_or_default());
            Some((connect::client(config)?, url, ca))
        }
    };
    let target = cluster.as_ref().map(|(client, url, ca)| Target { client, url, ca });
    let (options, steps) = Box::pin(prepare(&request, target)).await?;
    if let Some([before, after]) = moved_api_server(&options, &steps) {
        eprintln!(
            "mco: machines will reach the cluster at {after}, as this kubeconfig does, and no longer at {before}: pass \
             --api-server-url if that is not meant. The config server's certificate keeps the name, for machines that were \
             provisioned before"
        );
    }
    let Some((client, ..)) = cluster.filter(|_| !a.dry_run) else {
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
    if options.image.is_some() && !options.require_token && !a.open {
        eprintln!(
            "mco: the config server still serves configs to anyone who can reach it; pass --require-token to \
             require boot tokens"
        );
    }
    // The installation continues after its output was closed (`mco install | head -1`).
    carry_out(&client, &options, &steps, |step| drop(output::write(&format!("{step}\n")))).await?;
    output::write(&format!("installed: {} objects\n", steps.len()))?;
    if options.image.is_none() || a.no_wait {
        return Ok(exit::OK);
    }
    installed::wait(&client, a.timeout.unsigned_abs()).await
}

/// The load balancers that the arguments name. `None`: no argument says anything about them.
fn balancers(named: &[Balancer]) -> Option<Vec<IpNet>> {
    (!named.is_empty()).then(|| named.iter().filter_map(|b| b.0).collect())
}

fn read_ca(path: &Path) -> anyhow::Result<Vec<u8>> {
    let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    if api::formats::pem::certificates(&String::from_utf8_lossy(&pem)).next().is_none() {
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
            text += &api::formats::yaml::to_string::<Value>(&step.object)?;
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
        .map(|der| api::formats::pem::from_der(api::formats::pem::CERTIFICATE, der))
        .collect::<String>()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_none_names_no_load_balancer_and_no_argument_says_nothing() {
        let net: IpNet = "10.1.0.1/32".parse().unwrap();
        assert_eq!(balancers(&[]), None);
        assert_eq!(balancers(&[Balancer(None)]), Some(vec![]));
        assert_eq!(balancers(&[Balancer(Some(net))]), Some(vec![net]));
    }
}
