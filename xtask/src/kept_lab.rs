//! Clusters that keep running after the command that started them: `lab up`, and demos with `--keep`.
//!
//! What it is not: what is shown on them, or which cluster is asked for (see `demo`, `lab_command`).

use anyhow::Context as _;
use lab::{Attached, Environment, Reporter, Request};
use std::future::Future;

/// A future that ends at Ctrl-C or SIGTERM.
pub(crate) fn interrupt() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}

/// Starts a cluster that keeps running.
pub(crate) async fn start(request: &Request, environment: &Environment) -> anyhow::Result<Attached> {
    let xtask = std::env::current_exe()?;
    let supervisor = [xtask.to_string_lossy().into_owned(), "lab".to_owned(), "supervise".to_owned()];
    let up = lab::up(request, &supervisor, environment, &Reporter::stderr()).await;
    up.context(
        "the cluster did not come up, and nothing of it keeps running; correct the cause and run this again",
    )
}

/// Starts a cluster, runs something with it, and leaves the cluster running.
pub(crate) async fn keep<F: Future<Output = anyhow::Result<()>>>(
    request: &Request,
    work: impl FnOnce(kube::Client, Attached) -> F,
) -> anyhow::Result<()> {
    let lab = start(request, &Environment::read()).await?;
    let mut interrupted = std::pin::pin!(interrupt()?);
    let outcome = tokio::select! {
        outcome = async { work(lab.client().await?, lab.clone()).await } => outcome,
        () = &mut interrupted => Err(anyhow::anyhow!("interrupted; the cluster keeps running")),
    };
    println!();
    how_to_use(&lab);
    outcome
}

/// Says how the cluster is used, and taken down.
pub(crate) fn how_to_use(lab: &Attached) {
    println!("export KUBECONFIG={}", lab.kubeconfig().display());
    // A cluster made by kubeadm has its logs in its machines.
    let logs = ["logs", "nodes"].map(|name| lab.folder().join(name)).into_iter().find(|path| path.exists());
    println!("kubectl get nodes                 # logs: {}", logs.unwrap_or_default().display());
    println!("take it down with: cargo xtask lab down");
}
