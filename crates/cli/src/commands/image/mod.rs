//! Commands about OS images.

pub(crate) mod build;
pub(crate) mod inspect;

use crate::args::image::Registry;
use anyhow::{Context, bail};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

impl Registry {
    /// Options that are the same for buildah and podman.
    fn arguments(&self) -> Vec<String> {
        let mut all = vec![];
        if let Some(file) = &self.authfile {
            all.push(format!("--authfile={}", file.display()));
        }
        if self.insecure {
            all.push("--tls-verify=false".to_owned());
        }
        all
    }
}

/// Runs a program whose output people read.
async fn show(program: &str, arguments: &[String], limit: Duration) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(limit, command.status()).await;
    let ended = ended.with_context(|| format!("{program} did not end within {} s", limit.as_secs()))?;
    match found(program, ended)? {
        status if status.success() => Ok(()),
        status => bail!("{program} {}: {status}", arguments.first().map(String::as_str).unwrap_or_default()),
    }
}

fn found<T>(program: &str, ended: std::io::Result<T>) -> anyhow::Result<T> {
    ended.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            anyhow::anyhow!("{program} is not on the PATH; install the package {program}")
        }
        _ => anyhow::anyhow!("cannot run {program}: {e}"),
    })
}
