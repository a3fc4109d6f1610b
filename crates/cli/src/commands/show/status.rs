//! `mco status`.

use crate::args::show::status::Status;
use crate::output::tables;
use crate::output::{Format, Kind};
use crate::{connect, exit, output};
use insight::{ClusterWatch, Filter, Phase, RenderWith, Snapshot};
use render::TemplateSet;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use tokio::time::Instant;

/// The wait before an API server that did not answer is asked again.
const AGAIN: client::Backoff =
    client::Backoff { first: Duration::from_millis(500), last: Duration::from_secs(10) };

pub(crate) async fn run(a: Status) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let timeout = a.timeout.and_then(|t| Duration::try_from(t).ok());
    let end = timeout.and_then(|t| Instant::now().checked_add(t));
    let Some(mut cluster) = start(&a, &client, end).await? else {
        eprintln!("mco: not updated in time: the API server has not answered");
        return Ok(exit::TIMEOUT);
    };
    let filter = filter(&a);
    let mut last: Option<Snapshot> = None;
    let mut misses = 0;
    let (mut told, mut told_forbidden) = (None, BTreeSet::new());
    loop {
        let now = cluster.snapshot(&a.pools);
        for wanted in &a.pools {
            if !now.pools.iter().any(|p| p.name == *wanted) {
                anyhow::bail!("there is no pool {wanted:?}; `mco status` lists the pools");
            }
        }
        // One that is deleted later is not a mistake of the caller.
        if last.is_none()
            && let Some(wanted) = a.nodes.iter().find(|n| !now.has_node(n))
        {
            anyhow::bail!(
                "there is no node {wanted:?} in the pools that are shown; `mco status --all` lists all \
                 nodes, and at the end those that are in no pool"
            );
        }
        let (mut outcome, shown) = (outcome(&a, &now), now.clone().filtered(&filter));
        let (mut unrendered, mut look_again, mut forbidden) = (None, None, vec![]);
        if a.until_updated && now.is_updated() {
            let seen: Vec<_> = now.pools.iter().map(|p| (p.name.clone(), p.config.clone())).collect();
            let asked = insight::for_rendering(&client);
            let answer = match end {
                None => asked.await,
                Some(end) => {
                    tokio::time::timeout_at(end, asked).await.unwrap_or(Err(insight::ListError::Unanswered))
                }
            };
            match answer {
                Ok(listed) => {
                    let templates = TemplateSet::default();
                    let controller_config = operator::install::controller_config_values::unknown();
                    let with = RenderWith { templates: &templates, controller_config: &controller_config };
                    unrendered = insight::unrendered(listed.objects, &seen, with);
                    misses = 0;
                    let new = listed.forbidden.into_iter().filter(|kind| told_forbidden.insert(kind.clone()));
                    forbidden.extend(new);
                }
                Err(error) => {
                    unrendered = Some(format!(
                        "cannot tell whether all MachineConfigs are rendered: {}",
                        client::chain(&error)
                    ));
                    look_again = Some(Instant::now() + AGAIN.delay(misses));
                    misses += 1;
                }
            }
        }
        outcome = outcome.filter(|_| unrendered.is_none());
        if !last.as_ref().is_some_and(|last| last.is_like(&shown)) {
            show(&a, &shown, last.is_none())?;
        }
        output::not_allowed(&forbidden);
        if let Some((code, why)) = outcome {
            if let Some(why) = why {
                eprintln!("mco: the update cannot complete: {why}");
            }
            return Ok(code);
        }
        last = Some(shown);
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        if let Some(why) = unrendered.as_ref().filter(|why| told.as_ref() != Some(*why) && !is_over()) {
            eprintln!("mco: waiting: {why}");
        }
        told.clone_from(&unrendered);
        let until = [end, look_again].into_iter().flatten().min();
        match until {
            None => cluster.changed().await,
            Some(until) => drop(tokio::time::timeout_at(until, cluster.changed()).await),
        }
        if is_over() {
            eprintln!("mco: not updated in time: {}", unrendered.unwrap_or_else(|| now.waits_for()));
            return Ok(exit::TIMEOUT);
        }
    }
}

/// Begins to follow the cluster; `None`: the time limit ended first.
///
/// With `--until-updated`, an API server that does not answer is waited for from the first request on: the only
/// control-plane node may be rebooting into the very config that is waited for.
async fn start(
    a: &Status,
    client: &kube::Client,
    end: Option<Instant>,
) -> Result<Option<ClusterWatch>, insight::FollowError> {
    let mut misses = 0;
    loop {
        let start = ClusterWatch::start(client);
        let started = match end {
            None => start.await,
            Some(end) => match tokio::time::timeout_at(end, start).await {
                Ok(started) => started,
                Err(_) => return Ok(None),
            },
        };
        let error = match started {
            Ok(cluster) => return Ok(Some(cluster)),
            Err(error) if a.until_updated && error.is_transient() => error,
            Err(error) => return Err(error),
        };
        if misses == 0 {
            eprintln!("mco: waiting: {}", client::chain(&error));
        }
        let again = Instant::now() + AGAIN.delay(misses);
        misses += 1;
        if end.is_some_and(|end| end <= again) {
            return Ok(None);
        }
        tokio::time::sleep_until(again).await;
    }
}

/// The result if it ends now; `None`: it continues.
fn outcome(a: &Status, now: &Snapshot) -> Option<(u8, Option<String>)> {
    let code = if a.exit_code && !now.findings.is_empty() { exit::FINDINGS } else { exit::OK };
    if !a.watch || a.until_updated && now.is_updated() {
        return Some((code, None));
    }
    let stuck = now.stuck().filter(|_| a.until_updated)?;
    Some((exit::FINDINGS, Some(stuck)))
}

/// For people, nodes that are done are left out unless asked for: there may be a thousand.
fn filter(a: &Status) -> Filter {
    let undone = [Phase::Unavailable, Phase::Goes, Phase::Moving, Phase::Failing, Phase::Waits].to_vec();
    let by_default = a.output == Format::Text && !a.all && a.phases.is_empty() && a.nodes.is_empty();
    Filter { phases: if by_default { undone } else { a.phases.clone() }, nodes: a.nodes.clone() }
}

fn show(a: &Status, now: &Snapshot, first: bool) -> anyhow::Result<()> {
    match a.output {
        // Home, then clear to the end: less flicker than clearing first.
        Format::Text if a.watch && std::io::stdout().is_terminal() => output::write("\x1b[H\x1b[J")?,
        // Each snapshot is a document of its own.
        Format::Yaml if !first => output::write("---\n")?,
        _ => {}
    }
    output::print(a.output, Kind::Status, now, || tables::status(now))?;
    Ok(std::io::stdout().flush()?)
}
