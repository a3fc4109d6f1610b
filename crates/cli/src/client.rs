//! A Kubernetes client from the usual places.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;

/// From the file given, else as `kubectl` finds it, else from the pod that this runs in.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    Ok(kube::Client::try_from(config(kubeconfig).await?)?)
}

/// The configuration alone.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("the kubeconfig {} cannot be used", path.display()))
        }
        // Its error says every place that was looked at, twice over: the remedy is enough.
        None => kube::Config::infer().await.map_err(|_| {
            anyhow::anyhow!("no cluster found: pass --kubeconfig, set KUBECONFIG, or run inside a pod")
        }),
    }
}
