//! `mco status`.

use crate::args::Status;
use crate::output::{Format, Kind};
use crate::status::{Followed, Snapshot};
use crate::{client, exit, output};
use std::io::{IsTerminal, Write};

pub(super) async fn run(a: Status) -> anyhow::Result<u8> {
    let client = client::connect(&a.cluster).await?;
    let mut cluster = Followed::start(&client).await?;
    let mut last: Option<Snapshot> = None;
    loop {
        let now = cluster.snapshot(&a.pools);
        for wanted in &a.pools {
            if !now.pools.iter().any(|p| p.name == *wanted) {
                anyhow::bail!("there is no pool {wanted:?}; `mco status` shows those that there are");
            }
        }
        if !last.as_ref().is_some_and(|last| last.is_like(&now)) {
            show(&a, &now, last.is_none())?;
        }
        if !a.watch || (a.until_updated && now.is_updated()) {
            return Ok(if a.exit_code && now.is_degraded() { exit::FINDINGS } else { exit::OK });
        }
        last = Some(now);
        cluster.changed().await;
    }
}

fn show(a: &Status, now: &Snapshot, first: bool) -> anyhow::Result<()> {
    match a.output {
        // Home, then clear to the end: less flicker than clearing first.
        Format::Text if a.watch && std::io::stdout().is_terminal() => output::write("\x1b[H\x1b[J")?,
        // Each is a document of its own.
        Format::Yaml if !first => output::write("---\n")?,
        _ => {}
    }
    output::print(a.output, Kind::Status, now, || now.text())?;
    Ok(std::io::stdout().flush()?)
}
