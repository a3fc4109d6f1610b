//! Waits until the operator has installed everything, and reports meanwhile what it waits for.
//!
//! What it is not: the installation itself, which continues whether somebody waits or not.

use crate::{exit, output};
use anyhow::bail;
use kube::Client;
use operator::sync::progress::{self, Failure, Progress};
use std::time::Duration;
use tokio::time::Instant;

/// How often the operator's status is read.
const POLL: Duration = Duration::from_secs(1);

/// Waits. Each new state is a line of its own.
///
/// # Errors
/// Something has failed for a minute, or the API server refuses the request.
pub(super) async fn wait(client: &Client, limit: Duration) -> anyhow::Result<u8> {
    let end = Instant::now() + limit;
    let mut told = String::new();
    let mut failed: Option<(Failure, Instant)> = None;
    loop {
        let progress = progress::read(client).await;
        let (words, over) = match progress {
            Ok(Progress::Done(words)) => {
                // A closed output does not end the command.
                output::write(&format!("{words}\n"))?;
                return Ok(exit::OK);
            }
            Ok(Progress::Waiting(words)) => {
                failed = None;
                (format!("waiting: {words}"), None)
            }
            Ok(Progress::Failed { what, why }) => {
                let before = failed.filter(|(before, _)| *before == what);
                let since = before.map_or_else(Instant::now, |(_, at)| at);
                failed = Some((what, since));
                (format!("failed: {why}"), (since.elapsed() > progress::MENDS_ITSELF).then_some(why))
            }
            Err(error) => (format!("cannot read the status: {}", client::chain(&error)), None),
        };
        if words != told {
            eprintln!("{words}");
            told.clone_from(&words);
        }
        if let Some(words) = over {
            bail!("the installation is not complete: {words}");
        }
        if Instant::now() >= end {
            eprintln!(
                "mco: not complete within {} s; the installation continues: kubectl get machineconfigoperator cluster -o wide",
                limit.as_secs()
            );
            return Ok(exit::TIMEOUT);
        }
        tokio::time::sleep(POLL).await;
    }
}
