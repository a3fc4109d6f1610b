//! The RolloutPolicy `workers` of a test: waiting until it is in force, and until it counts a config as proved.
//!
//! Not here: what policies decide (`crates/rollout`).

use serde_json::{Value, json};

use super::Cluster;

/// Waits until the policy is in force.
pub async fn in_force(cluster: &Cluster) {
    cluster
        .wait("the policy to be in force", async || {
            let policy = cluster.get("RolloutPolicy", "workers").await;
            (policy["status"]["conditions"][0]["reason"] == "InForce").then_some(())
        })
        .await;
}

/// The first pool's entry in the policy's status.
pub async fn progress(cluster: &Cluster) -> Value {
    cluster.get("RolloutPolicy", "workers").await["status"]["pools"][0].clone()
}

/// Waits until this config counts as proved under the policy, and nothing is being rolled out.
pub async fn proved(cluster: &Cluster, config: &str) {
    cluster
        .wait("the config to count as proved", async || {
            let progress = progress(cluster).await;
            (progress["proved"] == json!(config) && progress["config"].is_null()).then_some(())
        })
        .await;
}
