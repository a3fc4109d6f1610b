//! `mco retry`: an annotation on the Node that ends the wait of its agent before the next try.

use crate::args::change::Retry;
use crate::output::Kind;
use crate::{connect, exit, output};
use anyhow::{Context, bail};
use api::k8s::Node;
use api::names::annotation;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use rollout::view::own;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// One request.
const CALL: Duration = Duration::from_secs(30);

/// A node whose agent was asked to try again.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    node: String,
    /// What its agent said before.
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

pub(crate) async fn run(a: Retry) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let nodes: Api<Node> = Api::all(client);
    // All names are checked before the first Node is written: a wrong name changes nothing.
    let mut all = vec![];
    for name in &a.nodes {
        let node = tokio::time::timeout(CALL, nodes.get_opt(name)).await.context("no answer")??;
        let Some(node) = node else { bail!("there is no node {name:?}; `mco status --all` lists the nodes") };
        let note = |key: &str| node.annotations().get(key).cloned().unwrap_or_default();
        let asked =
            Asked { node: name.clone(), state: note(annotation::STATE), reason: note(annotation::REASON) };
        if asked.state.is_empty() {
            bail!(
                "no agent has reported on node {name}, so nothing can be retried; is `mco daemon start` running there?"
            );
        }
        all.push(asked);
    }
    for Asked { node: name, .. } in &all {
        let now = jiff::Timestamp::now().to_string();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {own::RETRY: now}}}));
        let params = PatchParams::default();
        let request = tokio::time::timeout(CALL, nodes.patch(name, &params, &patch));
        let what = || format!("cannot annotate node {name}");
        request.await.with_context(what)?.with_context(what)?;
    }
    output::print_list(a.output, Kind::RetryList, &all, || all.iter().map(text).collect())?;
    Ok(exit::OK)
}

fn text(asked: &Asked) -> String {
    let Asked { node, state, reason } = asked;
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match state.as_str() {
        "Degraded" | "Unreconcilable" => format!("node {node}: retries now; it was {state}{why}\n"),
        _ => format!("node {node}: is {state}; anything that it waits to retry is retried now\n"),
    }
}
