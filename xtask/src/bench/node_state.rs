//! Waits for what an agent reports on its Node.

use anyhow::{Context, bail};
use api::k8s::Node;
use api::names::{annotation, state};
use kube::ResourceExt;
use kube::api::Api;
use std::time::{Duration, Instant};

/// A wait for one Node.
#[derive(Clone, Copy)]
pub(crate) struct Wait<'a> {
    pub(crate) node: &'a str,
    pub(crate) limit: Duration,
    /// The pause between two checks.
    pub(crate) pause: Duration,
}

impl Wait<'_> {
    /// Waits until the node has applied a config other than `before`; returns its name.
    pub(crate) async fn config(self, nodes: &Api<Node>, before: &str) -> anyhow::Result<String> {
        let start = Instant::now();
        loop {
            let node = nodes.get(self.node).await.context("the Node")?;
            if let Some(current) = settled_in(&node).filter(|current| current != before) {
                return Ok(current);
            }
            if text(&node, annotation::STATE) == state::DEGRADED {
                bail!("the node is Degraded: {}", text(&node, annotation::REASON));
            }
            self.pause(start, || format!("done: {:?}", node.annotations())).await?;
        }
    }

    /// Waits until the agent reports this state.
    pub(crate) async fn state(self, nodes: &Api<Node>, wanted: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        while text(&nodes.get(self.node).await.context("the Node")?, annotation::STATE) != wanted {
            self.pause(start, || wanted.to_owned()).await?;
        }
        Ok(())
    }

    async fn pause(self, start: Instant, wanted: impl FnOnce() -> String) -> anyhow::Result<()> {
        if start.elapsed() > self.limit {
            bail!("after {} s the node is not {}", self.limit.as_secs(), wanted());
        }
        tokio::time::sleep(self.pause).await;
        Ok(())
    }
}

/// The rendered config that a node has applied, if it wants no other.
fn settled_in(node: &Node) -> Option<String> {
    let current = text(node, annotation::CURRENT_CONFIG);
    let settled =
        current == text(node, annotation::DESIRED_CONFIG) && text(node, annotation::STATE) == state::DONE;
    (settled && current.starts_with("rendered-")).then_some(current)
}

fn text(node: &Node, key: &str) -> String {
    node.annotations().get(key).cloned().unwrap_or_default()
}
