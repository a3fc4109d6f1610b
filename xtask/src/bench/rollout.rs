//! `bench rollout`: one change through a pool of simulated nodes that react at once, all of them allowed to move.
//!
//! Measured from the apply to the last node updated and taking pods again: seconds; requests per node by verb, as the API
//! server counts them; CPU and peak memory of the controller. The nodes' agents run in this process, on the same cores.

use super::{Bench, Figure, Outcome, high_water_mark};
use anyhow::{Context, bail};
use api::k8s::Node;
use api::names::{annotation, state};
use api::v1::{MachineConfig, MachineConfigPool};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use lab::{Lab, Reporter};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// The pool that the nodes are in.
const POOL: &str = "worker";
/// A rollout that takes longer has stopped.
const LIMIT: Duration = Duration::from_secs(900);
/// How often the end is looked for: a list of all nodes costs the API server some milliseconds.
const LOOK: Duration = Duration::from_millis(250);
/// The kernel's clock tick for `/proc/PID/stat`, fixed at 100 a second on Linux' user interface.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn run(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(root, a))
}

async fn measure(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let lab = Lab::builder()
        .nodes(a.nodes)
        .simulated()
        .controller(true)
        .controller_manager(false)
        .scheduler(false)
        .mco_binary(root.join("target/release/mco"))
        .templates(root.join("templates"))
        .progress(Reporter::stderr())
        .start()
        .await?;
    let outcome = rounds(&lab, a).await;
    lab.stop().await;
    outcome
}

async fn rounds(lab: &Lab, a: &Bench) -> anyhow::Result<Outcome> {
    let client = lab.client();
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let all = json!({"spec": {"maxUnavailable": "100%"}});
    pools.patch(POOL, &PatchParams::default(), &Patch::Merge(&all)).await?;
    println!("waiting until {} nodes have joined", a.nodes);
    settled(&client, "", a.nodes).await?;
    let pid = lab.controller_pid().context("the lab runs no controller")?;
    let mut figures: BTreeMap<&str, (&'static str, Vec<f64>)> = BTreeMap::new();
    for run in 0..a.runs {
        let before = rendered(&pools).await?;
        let (cpu, requests) = (cpu_seconds(pid)?, requests(&client).await?);
        let start = Instant::now();
        apply(&client, run).await?;
        settled(&client, &before, a.nodes).await?;
        let seconds = start.elapsed().as_secs_f64();
        let mut put = |what, unit, value| figures.entry(what).or_insert((unit, vec![])).1.push(value);
        put("apply to all updated and uncordoned", "s", seconds);
        put("controller CPU", "s", cpu_seconds(pid)? - cpu);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        put("controller peak memory", "MiB", high_water_mark(&status));
        #[expect(clippy::cast_precision_loss, reason = "a number of nodes")]
        let nodes = a.nodes as f64;
        let after = self::requests(&client).await?;
        let sum = |verbs: &[&str]| -> f64 {
            verbs.iter().map(|v| after.get(*v).unwrap_or(&0.0) - requests.get(*v).unwrap_or(&0.0)).sum()
        };
        put("requests a node: PATCH", "", sum(&["PATCH"]) / nodes);
        put("requests a node: PUT", "", sum(&["PUT"]) / nodes);
        put("requests a node: POST", "", sum(&["POST"]) / nodes);
        put("requests a node: GET", "", sum(&["GET"]) / nodes);
        put("requests a node: LIST", "", sum(&["LIST"]) / nodes);
        println!("run {}: {seconds:.1} s", run + 1);
    }
    let versions = vec![
        ("Kubernetes".to_owned(), lab::KUBERNETES_VERSION.to_owned()),
        ("nodes".to_owned(), a.nodes.to_string()),
    ];
    let figures =
        figures.into_iter().map(|(what, (unit, samples))| Figure::new(what, unit, samples)).collect();
    Ok(Outcome { versions, figures })
}

async fn apply(client: &kube::Client, run: u32) -> anyhow::Result<()> {
    let name = "50-bench-rollout";
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {api::names::label::ROLE: POOL}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/bench", "mode": 420, "contents": {"source": format!("data:,run%20{run}")}},
        ]}}},
    });
    let configs: Api<MachineConfig> = Api::all(client.clone());
    configs.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&object)).await?;
    Ok(())
}

async fn rendered(pools: &Api<MachineConfigPool>) -> anyhow::Result<String> {
    Ok(pools.get(POOL).await?.spec.configuration.name)
}

/// Waits until every node is done with a config that is not `before`, and takes pods.
async fn settled(client: &kube::Client, before: &str, nodes: usize) -> anyhow::Result<()> {
    let (pools, api): (Api<MachineConfigPool>, Api<Node>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let start = Instant::now();
    loop {
        let target = rendered(&pools).await?;
        if !target.is_empty() && target != before {
            // `resourceVersion=0` is answered from the API server's cache: the measurement must not load etcd.
            let list = api.list(&ListParams::default().match_any()).await?;
            let done = list.items.iter().filter(|n| is_done(n, &target)).count();
            if done == nodes {
                return Ok(());
            }
            if start.elapsed() > LIMIT {
                bail!("{done} of {nodes} nodes done after {} s", LIMIT.as_secs());
            }
        }
        if start.elapsed() > LIMIT {
            bail!("nothing rendered after {} s", LIMIT.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn is_done(node: &Node, target: &str) -> bool {
    let says = |key: &str, value: &str| node.annotations().get(key).is_some_and(|v| v == value);
    says(annotation::CURRENT_CONFIG, target)
        && says(annotation::DESIRED_CONFIG, target)
        && says(annotation::STATE, state::DONE)
        && node.spec.as_ref().and_then(|s| s.unschedulable) != Some(true)
}

/// User and system time of a process so far.
fn cpu_seconds(pid: i32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the controller has ended")?;
    let (_, fields) = stat.rsplit_once(") ").context("/proc/PID/stat has another form")?;
    let ticks: Vec<f64> = fields.split(' ').skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}

/// How many requests the API server has answered, by verb; watches and Leases are left out.
async fn requests(client: &kube::Client) -> anyhow::Result<BTreeMap<String, f64>> {
    let request = http::Request::get("/metrics").body(vec![])?;
    let text = client.request_text(request).await?;
    let mut sums = BTreeMap::new();
    for line in text.lines().filter_map(|l| l.strip_prefix("apiserver_request_total{")) {
        let Some((labels, value)) = line.rsplit_once("} ") else { continue };
        let label = |name: &str| {
            labels
                .split(',')
                .find_map(|l| l.strip_prefix(name))
                .map(|v| v.trim_matches(['=', '"']).to_owned())
        };
        let (Some(verb), resource) = (label("verb"), label("resource").unwrap_or_default()) else { continue };
        if verb != "WATCH" && resource != "leases" {
            *sums.entry(verb).or_insert(0.0) += value.parse::<f64>().unwrap_or(0.0);
        }
    }
    Ok(sums)
}
