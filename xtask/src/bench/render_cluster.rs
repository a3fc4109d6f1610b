//! The part of `bench render` that needs an API server: how soon one change is rendered, and what the controller's
//! memory is with five hundred MachineConfigs.

use super::{Figure, high_water_mark, mebibytes};
use anyhow::{Context, bail};
use api::v1::{MachineConfig, MachineConfigPool};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, Patch, PatchParams, WatchEvent, WatchParams};
use lab::{Lab, Reporter};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The pool; it has no nodes, so that nothing but rendering is measured.
const POOL: &str = "worker";
/// How many single changes the percentiles are made from.
const CHANGES: u32 = 200;
/// The pause between two of them, so that the controller cannot merge them into one.
const CALM: Duration = Duration::from_millis(100);
/// The pause between two checks of objects that are polled, not watched.
const LOOK: Duration = Duration::from_millis(250);
/// A line of progress is printed after this many changes.
const TELL: u32 = 50;
/// The number of MachineConfigs for the memory figures, and the bytes of each: 1 MiB in all.
const MANY: usize = 500;
const BYTES: usize = 2_097;
/// How many requests are sent at the same time while they are created.
const AT_ONCE: usize = 16;
/// The time limit for any wait.
const LIMIT: Duration = Duration::from_secs(60);
/// After this long without a change the controller counts as idle.
const REST: Duration = Duration::from_secs(5);

pub(super) fn run(root: &Path) -> anyhow::Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let lab = Lab::builder()
            .nodes(0)
            .controller(true)
            .controller_manager(false)
            .scheduler(false)
            .mco_binary(root.join("target/release/mco"))
            .templates(root.join("templates"))
            .progress(Reporter::stderr())
            .start()
            .await?;
        let figures = measure(&lab).await;
        lab.stop().await;
        figures
    })
}

async fn measure(lab: &Lab) -> anyhow::Result<Vec<Figure>> {
    let client = lab.client();
    let (pools, configs): (Api<MachineConfigPool>, Api<MachineConfig>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let pid = lab.controller_pid().context("the lab runs no controller")?;
    names_another(&pools, "").await?;
    let mut figures =
        single(&pools, &configs, CHANGES, CALM, "one change until its pool names the rendered config")
            .await?;
    // Without a pause, as for a user who waits for each result before making the next change.
    figures.extend(
        single(&pools, &configs, CHANGES / 4, Duration::ZERO, "the same, one right after the other").await?,
    );
    println!("making {MANY} MachineConfigs …");
    let old = pools.get(POOL).await?.spec.configuration.name;
    let text = "x".repeat(BYTES);
    let all: Vec<anyhow::Result<()>> = futures::stream::iter(0..MANY)
        .map(|i| {
            let (configs, text) = (&configs, &text);
            async move { put(configs, &format!("50-bench-{i:03}"), text).await }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    all.into_iter().collect::<anyhow::Result<()>>()?;
    names_another(&pools, &old).await?;
    let start = Instant::now();
    loop {
        let made = pools.get(POOL).await?.spec.configuration.source.map_or(0, |s| s.len());
        if made > MANY {
            break;
        }
        if start.elapsed() > LIMIT {
            bail!("pool {POOL} is made of {made} MachineConfigs only");
        }
        tokio::time::sleep(LOOK).await;
    }
    println!("rendered after {:.1} s", start.elapsed().as_secs_f64());
    tokio::time::sleep(REST).await;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let figure = |what: &str, mib| {
        Figure::new(format!("controller with {MANY} MachineConfigs: {what}"), "MiB", vec![mib])
    };
    figures.push(figure("peak memory", high_water_mark(&status)));
    figures.push(figure("memory at rest", mebibytes(&status, "VmRSS:")));
    figures.push(figure("of which pages of the program", mebibytes(&status, "RssFile:")));
    Ok(figures)
}

/// Changes one MachineConfig again and again. Each time is counted from just before the request until a watch delivers
/// the pool that names the result.
async fn single(
    pools: &Api<MachineConfigPool>,
    configs: &Api<MachineConfig>,
    changes: u32,
    calm: Duration,
    what: &str,
) -> anyhow::Result<Vec<Figure>> {
    let mut millis = vec![];
    for i in 0..changes {
        tokio::time::sleep(calm).await;
        let before = pools.get(POOL).await?;
        let old = before.spec.configuration.name.clone();
        let only = WatchParams::default().fields(&format!("metadata.name={POOL}"));
        let version = before.metadata.resource_version.unwrap_or_default();
        let mut events = std::pin::pin!(pools.watch(&only, &version).await?);
        let start = Instant::now();
        // The content must never repeat one of an earlier change, even of an earlier series.
        put(configs, "50-bench-one", &format!("{}%20{i}", calm.as_millis())).await?;
        loop {
            match tokio::time::timeout(LIMIT, events.try_next()).await.context("nothing is rendered")?? {
                Some(WatchEvent::Modified(pool)) if pool.spec.configuration.name != old => break,
                Some(_) => {}
                None => bail!("the watch of pool {POOL} ended"),
            }
        }
        millis.push(start.elapsed().as_secs_f64() * 1000.0);
        if (i + 1) % TELL == 0 {
            println!("{} of {changes} changes; the slowest took {:.0} ms", i + 1, percentile(&millis, 100));
        }
    }
    let figure = |name: &str, percent| {
        Figure::new(format!("{what}: {name}"), "ms", vec![percentile(&millis, percent)])
    };
    let (p99, most) = (figure("99th percentile", 99), figure("the slowest", 100));
    Ok(vec![Figure::new(what, "ms", millis), p99, most])
}

/// The given percentile: the smallest sample that at least `percent` of a hundred samples do not exceed.
fn percentile(samples: &[f64], percent: usize) -> f64 {
    let mut all = samples.to_vec();
    all.sort_by(f64::total_cmp);
    let rank = (all.len() * percent).div_ceil(100).saturating_sub(1);
    all.get(rank).copied().unwrap_or(f64::NAN)
}

async fn names_another(pools: &Api<MachineConfigPool>, old: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    loop {
        let name = pools.get(POOL).await?.spec.configuration.name;
        if !name.is_empty() && name != old {
            return Ok(());
        }
        if start.elapsed() > LIMIT {
            bail!("nothing is rendered for pool {POOL} after {} s", LIMIT.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn put(configs: &Api<MachineConfig>, name: &str, text: &str) -> anyhow::Result<()> {
    let file: Value =
        json!({"path": format!("/etc/{name}"), "mode": 420, "contents": {"source": format!("data:,{text}")}});
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {api::names::label::ROLE: POOL}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}}},
    });
    configs.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&object)).await?;
    Ok(())
}
