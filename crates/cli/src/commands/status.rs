//! `mco status`.

use crate::args::Status;
use crate::output::Format;
use crate::status::{Snapshot, snapshot};
use crate::{client, exit, output};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// How often `--watch` looks: as fast as an eye follows, and a light load for one client.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

pub(super) async fn run(a: Status) -> anyhow::Result<u8> {
    let client = client::connect(a.cluster.kubeconfig.as_deref()).await?;
    let mut last: Option<Snapshot> = None;
    loop {
        let now = snapshot(&client, &a.pools).await?;
        for wanted in &a.pools {
            if !now.pools.iter().any(|p| p.name == *wanted) {
                anyhow::bail!("there is no pool {wanted:?}; `mco status` shows those that there are");
            }
        }
        if last.as_ref() != Some(&now) {
            show(&a, &now)?;
        }
        if !a.watch || (a.until_updated && now.is_updated()) {
            return Ok(if a.exit_code && now.is_degraded() { exit::FINDINGS } else { exit::OK });
        }
        last = Some(now);
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

fn show(a: &Status, now: &Snapshot) -> anyhow::Result<()> {
    let in_place = a.watch && a.output == Format::Text && std::io::stdout().is_terminal();
    if in_place {
        // Home, then clear to the end: less flicker than clearing first.
        print!("\x1b[H\x1b[J");
        std::io::stdout().flush()?;
    }
    output::print(a.output, now, || now.text())
}
