//! `mco install`.

use crate::args::Install;
use crate::{client, exit, output};
use anyhow::Context;
use api::k8s::Node;
use kube::api::{Api, ListParams};
use operator::install::{Options, There, apply, plan, there};
use operator::tokens;
use rollout::topology::Topology;
use rollout::view::NodeView;
use std::time::Duration;

/// One request to the API server.
const CALL: Duration = Duration::from_secs(30);

pub(super) async fn run(a: Install) -> anyhow::Result<u8> {
    let mut options = Options {
        pools: a.pools,
        cluster_dns_ip: a.cluster_dns_ip,
        daemon_image: a.daemon_image,
        image: a.image,
        balancers: a.balancers.clone(),
        api_server_url: a.api_server_url.clone().unwrap_or_default(),
        openshift_config_crds: a.openshift_config_crds,
        ..Options::default()
    };
    if a.dry_run {
        // Of a cluster that cannot be asked nothing is there.
        let found = match client::connect(&a.cluster).await {
            Ok(client) => there(&client).await.unwrap_or_default(),
            Err(_) => There::default(),
        };
        follow(&mut options, a.open, a.require_token, found);
        if options.image.is_some() && a.api_server_url.is_none() {
            options.api_server_url = url(&client::config(&a.cluster).await?);
        }
        let steps = plan(&options)?;
        let objects: Vec<_> = steps.iter().map(|s| &s.object).collect();
        // As kubectl takes it.
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        output::print_object(a.output, &list, || steps.iter().map(|s| format!("{s}\n")).collect())?;
        return Ok(exit::OK);
    }
    let config = client::config(&a.cluster).await?;
    if a.api_server_url.is_none() {
        options.api_server_url = url(&config);
    }
    options.kube_api_ca = pem(config.root_cert.as_deref().unwrap_or_default());
    let client = client::client(config)?;
    let topology = topology(&client).await?;
    options.control_plane_topology = topology.control_plane;
    options.infrastructure_topology = topology.infrastructure;
    follow(&mut options, a.open, a.require_token, there(&client).await?);
    let steps = plan(&options)?;
    let with_tokens = options.image.is_some() && options.require_token;
    if options.image.is_some() && !with_tokens && !a.open {
        eprintln!(
            "mco: the config server gives configs to all that reach it, as before; --require-token asks for boot tokens"
        );
    }
    if with_tokens {
        // Before the new servers look for them there, and once more for uses that old servers wrote down meanwhile.
        tokens::keep_namespace(&client).await?;
        tokens::bring_over(&client).await?;
    }
    // Whoever reads the progress may go; the installation goes on.
    apply(&client, &steps, |step| drop(output::write(&format!("{step}\n")))).await?;
    if with_tokens {
        tokens::bring_over(&client).await?;
    }
    output::write(&format!("installed: {} objects\n", steps.len()))?;
    Ok(exit::OK)
}

/// As the nodes say.
async fn topology(client: &kube::Client) -> anyhow::Result<Topology> {
    let (nodes, all) = (Api::<Node>::all(client.clone()), ListParams::default());
    let listed =
        tokio::time::timeout(CALL, nodes.list(&all)).await.context("the API server does not answer")??;
    let views: Vec<NodeView> = listed.items.iter().map(NodeView::from_node).collect();
    Ok(Topology::of(&views))
}

/// Tokens unless somebody wants it open; an installation that is there stays as it is.
fn follow(options: &mut Options, open: bool, require_token: bool, found: There) {
    options.require_token = require_token || (!open && found.require_token.unwrap_or(true));
    options.pull_secret = found.pull_secret;
}

fn url(config: &kube::Config) -> String {
    config.cluster_url.to_string().trim_end_matches('/').to_owned()
}

/// The client holds certificates in DER; ControllerConfig wants PEM.
fn pem(certificates: &[Vec<u8>]) -> Vec<u8> {
    use base64::Engine;
    let mut out = String::new();
    for der in certificates {
        out.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        for line in text.as_bytes().chunks(64) {
            out.push_str(&String::from_utf8_lossy(line));
            out.push('\n');
        }
        out.push_str("-----END CERTIFICATE-----\n");
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_asked_for_unless_it_is_open_already_or_shall_be() {
        // --open, --require-token, what is there, what becomes of it.
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
            follow(&mut options, open, require, There { require_token: there, pull_secret: None });
            assert_eq!(options.require_token, want, "{open} {require} {there:?}");
        }
    }
}
