//! `mco pause` and `mco resume`: one field of a pool, and what that means for its nodes.

use crate::args::rollout::Pause;
use crate::output::Kind;
use crate::{connect, exit, output};
use anyhow::{Context, bail};
use api::v1::MachineConfigPool;
use insight::{ClusterWatch, Phase, PoolRow};
use kube::api::{Api, Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

/// One request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How many nodes are named before it is said how many more there are.
const NAMED: usize = 5;

/// A pool as it is afterwards.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Done {
    pool: String,
    paused: bool,
    /// It was not so before.
    changed: bool,
    /// Nodes that have begun an update: they finish it.
    under_way: Vec<String>,
    /// Nodes that are not in the pool's config: they stay, or they go when their turn comes.
    waiting: Vec<String>,
}

pub(crate) async fn run(a: Pause, paused: bool) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let mut cluster = ClusterWatch::start(&client).await?;
    let before = cluster.snapshot(&a.pools);
    if let Some(missing) = a.pools.iter().find(|p| !before.pools.iter().any(|row| row.name == **p)) {
        bail!("there is no pool {missing:?}; `mco status` lists the pools");
    }
    let pools: Api<MachineConfigPool> = Api::all(client);
    let mut all = vec![];
    for name in &a.pools {
        let changed = cluster.is_paused(name) != Some(paused);
        if changed {
            let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
            let params = PatchParams::default();
            let request = tokio::time::timeout(REQUEST_TIMEOUT, pools.patch(name, &params, &patch));
            let what = || format!("cannot change machineconfigpool {name}");
            cluster.put_pool(request.await.with_context(what)?.with_context(what)?);
        }
        let after = cluster.snapshot(std::slice::from_ref(name));
        all.extend(after.pools.first().map(|row| done(row, paused, changed)));
    }
    output::print_list(a.output, Kind::PauseList, &all, || text(&all))?;
    Ok(exit::OK)
}

fn done(row: &PoolRow, paused: bool, changed: bool) -> Done {
    let nodes = |phases: &[Phase]| {
        let found = row.nodes.iter().filter(|n| phases.contains(&n.phase));
        found.map(|n| n.name.clone()).collect::<Vec<_>>()
    };
    Done {
        pool: row.name.clone(),
        paused,
        changed,
        under_way: nodes(&[Phase::Moving, Phase::Failing]),
        waiting: nodes(&[Phase::Goes, Phase::Waits]),
    }
}

fn text(all: &[Done]) -> String {
    let mut out = String::new();
    for d in all {
        let word = if d.paused { "paused" } else { "resumed" };
        let already = if d.changed { "" } else { " already" };
        let _ = writeln!(out, "pool {} is{already} {word}", d.pool);
        if !d.under_way.is_empty() {
            let _ = writeln!(out, "  already under way, and will finish: {}", named(&d.under_way));
        }
        if !d.waiting.is_empty() {
            let what = if d.paused { "wait for `mco resume`" } else { "will be updated in turn" };
            let _ = writeln!(out, "  {what}: {}", named(&d.waiting));
        }
    }
    out
}

fn named(nodes: &[String]) -> String {
    let mut text = nodes.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if nodes.len() > NAMED {
        let _ = write!(text, " and {} more", nodes.len() - NAMED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_becomes_of_nodes_under_way_and_of_those_that_wait() {
        let names = |n: usize| (0..n).map(|i| format!("n{i}")).collect::<Vec<_>>();
        let done = |paused, changed, moving, waiting| Done {
            pool: "worker".to_owned(),
            paused,
            changed,
            under_way: names(moving),
            waiting: names(waiting),
        };
        let rows = [
            (
                done(true, true, 1, 6),
                "pool worker is paused\n  already under way, and will finish: n0\n  wait for `mco resume`: \
                 n0, n1, n2, n3, n4 and 1 more\n",
            ),
            (done(true, false, 0, 0), "pool worker is already paused\n"),
            (done(false, true, 0, 2), "pool worker is resumed\n  will be updated in turn: n0, n1\n"),
            (done(false, false, 0, 0), "pool worker is already resumed\n"),
        ];
        for (done, want) in rows {
            assert_eq!(text(&[done]), want);
        }
    }
}
