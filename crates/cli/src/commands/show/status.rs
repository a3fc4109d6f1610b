//! `mco status`: prints what [`insight::FollowedStatus`] says, and ends with its exit code.
//!
//! What it is not: what is shown, and when all is updated (see `insight`).

use crate::args::show::status::Status;
use crate::output::tables;
use crate::output::{Format, Kind};
use crate::{connect, exit, output};
use insight::{Filter, FollowEnd, FollowOptions, FollowedStatus, Phase, Snapshot, StatusView};
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokio::time::Instant;

pub(crate) async fn run(a: Status) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let timeout = a.timeout.and_then(|t| Duration::try_from(t).ok());
    let options = FollowOptions {
        pools: a.pools.clone(),
        until_updated: a.until_updated,
        end: timeout.and_then(|t| Instant::now().checked_add(t)),
        controller_config: operator::install::controller_config_values::unknown(),
    };
    let Some(mut status) = FollowedStatus::start(&client, options, waiting).await? else {
        eprintln!("mco: not updated in time: the API server has not answered");
        return Ok(exit::TIMEOUT);
    };
    let (filter, mut last, mut told) = (filter(&a), None, BTreeSet::new());
    loop {
        let StatusView { snapshot, end, waiting: waits, forbidden } = status.view().await;
        check_names(&a, &snapshot, last.is_none())?;
        let code = if a.exit_code && !snapshot.findings.is_empty() { exit::FINDINGS } else { exit::OK };
        let shown = snapshot.filtered(&filter);
        if last.as_ref().is_none_or(|last| !is_shown(a.output, last, &shown)) {
            // What was told is no longer on a screen that is cleared.
            if show(&a, &shown, last.is_none())? {
                told.clear();
            }
        }
        if a.output == Format::Text {
            not_known(&shown, &mut told);
        }
        output::not_allowed(&forbidden);
        match end {
            Some(FollowEnd::Stuck(why)) => {
                eprintln!("mco: the update cannot complete: {why}");
                return Ok(exit::FINDINGS);
            }
            Some(FollowEnd::Updated) => return Ok(code),
            None if !a.watch => return Ok(code),
            None => {}
        }
        last = Some(shown);
        waits.iter().for_each(|why| waiting(why));
        if let Some(why) = status.changed().await {
            eprintln!("mco: not updated in time: {why}");
            return Ok(exit::TIMEOUT);
        }
    }
}

/// Whether what was shown last says the same. In a table there is neither what is not known nor what may be out of date.
fn is_shown(format: Format, last: &Snapshot, now: &Snapshot) -> bool {
    match format {
        Format::Text => last.has_like_table(now),
        _ => last.is_like(now),
    }
}

fn waiting(why: &str) {
    eprintln!("mco: waiting: {why}");
}

/// Says what is not known, and why what is shown may be out of date: each sentence once, until it is over. JSON and YAML have it.
fn not_known(shown: &Snapshot, told: &mut BTreeSet<String>) {
    let trouble = shown.trouble.iter().map(|why| format!("what is shown may be out of date: {why}"));
    let now: BTreeSet<String> =
        shown.unread.iter().map(|unread| unread.words.clone()).chain(trouble).collect();
    now.difference(told).for_each(|words| eprintln!("mco: {words}"));
    *told = now;
}

/// Whether the pools and nodes that were asked for exist. A node that is deleted later is not a mistake of the caller.
fn check_names(a: &Status, now: &Snapshot, first: bool) -> anyhow::Result<()> {
    if let Some(wanted) = a.pools.iter().find(|wanted| !now.pools.iter().any(|p| p.name == **wanted)) {
        anyhow::bail!("there is no pool {wanted:?}; `mco status` lists the pools");
    }
    if let Some(wanted) = a.nodes.iter().find(|n| first && !now.has_node(n)) {
        anyhow::bail!(
            "there is no node {wanted:?} in the pools that are shown; `mco status --all` lists all \
             nodes, and at the end those that are in no pool"
        );
    }
    Ok(())
}

/// For people, nodes that are done are left out unless asked for: there may be a thousand.
fn filter(a: &Status) -> Filter {
    let undone = [Phase::Unavailable, Phase::Goes, Phase::Moving, Phase::Failing, Phase::Waits].to_vec();
    let by_default = a.output == Format::Text && !a.all && a.phases.is_empty() && a.nodes.is_empty();
    Filter { phases: if by_default { undone } else { a.phases.clone() }, nodes: a.nodes.clone() }
}

/// Returns whether the screen was cleared for it.
fn show(a: &Status, now: &Snapshot, first: bool) -> anyhow::Result<bool> {
    let clears = a.output == Format::Text && a.watch && std::io::stdout().is_terminal();
    match a.output {
        // Home, then clear to the end: less flicker than clearing first.
        Format::Text if clears => output::write("\x1b[H\x1b[J")?,
        // Each snapshot is a document of its own.
        Format::Yaml if !first => output::write("---\n")?,
        _ => {}
    }
    output::print(a.output, Kind::Status, now, || tables::status(now))?;
    std::io::stdout().flush()?;
    Ok(clears)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_not_printed_again_when_only_what_is_not_known_has_changed() {
        let calm = Snapshot::default();
        let troubled = Snapshot { trouble: Some("Node: no answer".to_owned()), ..calm.clone() };
        let other = Snapshot { unmanaged: vec!["node-a".to_owned()], ..calm.clone() };
        // Columns: the format; what comes after the first; whether the same is shown.
        for (format, now, want) in [
            (Format::Text, &troubled, true),
            (Format::Text, &other, false),
            (Format::Json, &troubled, false),
            (Format::Json, &calm, true),
            (Format::Yaml, &troubled, false),
        ] {
            assert_eq!(is_shown(format, &calm, now), want, "{now:?}");
        }
    }
}
