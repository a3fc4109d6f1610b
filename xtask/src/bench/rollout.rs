//! `bench rollout`: one change through a pool of simulated nodes that react at once.
//!
//! Measured from the apply until the last node is updated and schedulable: seconds; CPU of each party; peak memory of
//! the controller; requests per node. With few slots (`--max-unavailable 1`): how soon a freed slot is used. With
//! `--idle`: what the controller costs while nothing arrives but heartbeats. With `--pause`: how soon a pause stops
//! further nodes. With `--policy`: after each run the same under a RolloutPolicy, compared with those without, and how soon a
//! gate that fails stops further nodes and takes all back, without reboots. With `--audit`: who sent which requests. The audit slows the API
//! server down, so the seconds of such a run say nothing about the product.
//!
//! Real: the API server, etcd, the controller's program, the agents' code, each node's drain, reboot (half a second of
//! absence) and status reports. Simplified: the agents run in this process and share connections and one watch of all
//! Nodes, and their reboots change nothing but a boot id.

use super::pause::Pause;
use super::policy::Gates;
use super::requests::{self, Audit};
use super::slots::Slots;
use super::{Bench, Outcome, Samples, mebibytes};
use anyhow::{Context, bail};
use api::names::state;
use api::v1::{MachineConfig, MachineConfigPool};
use kube::api::{Api, Patch, PatchParams};
use lab::{EMPTY_CONFIG, Lab, NodeNews, Reporter};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;

/// The pool that the nodes are in.
const POOL: &str = "worker";
/// A rollout without progress for this long has stopped.
const PATIENCE: Duration = Duration::from_secs(180);
/// The kernel's clock tick in `/proc/PID/stat`: fixed at 100 a second in Linux's user-space interface.
const TICKS_PER_SECOND: f64 = 100.0;
/// The pause between two lines of progress.
const TELL: Duration = Duration::from_secs(20);
/// The prefix of the figures of runs under a RolloutPolicy.
const WITH_POLICY: &str = "with policy: ";
/// The figure of a rollout's duration.
const SECONDS: &str = "apply to all updated and uncordoned";
/// The figure of the controller's memory.
const PEAK: &str = "controller peak memory";
/// How long a paused pool is observed.
const PAUSED: Duration = Duration::from_secs(5);
/// How long to wait after a rollout, until the last status is written.
const CALM: Duration = Duration::from_secs(5);

pub(super) fn run(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(root, a))
}

async fn measure(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let audit = a.audit.then(|| Audit::begin(root)).transpose()?;
    let lab = Lab::builder()
        .nodes(a.nodes)
        .simulated()
        .controller(true)
        .controller_manager(false)
        .scheduler(false)
        .api_server_args(
            audit.iter().flat_map(Audit::flags).chain(a.profile.map(|_| "--profiling=true".to_owned())),
        )
        .mco_binary(a.program.clone().unwrap_or_else(|| root.join("target/release/mco")))
        .templates(root.join("templates"))
        .progress(Reporter::stderr())
        .start()
        .await?;
    let outcome = rounds(&lab, a, audit).await;
    lab.stop().await;
    outcome
}

async fn rounds(lab: &Lab, a: &Bench, audit: Option<Audit>) -> anyhow::Result<Outcome> {
    let client = lab.client();
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let bound = match a.max_unavailable.parse::<u32>() {
        Ok(number) => json!(number),
        Err(_) => json!(a.max_unavailable),
    };
    let all = json!({"spec": {"maxUnavailable": "100%"}});
    pools.patch(POOL, &PatchParams::default(), &Patch::Merge(&all)).await?;
    println!("waiting until {} nodes have joined", a.nodes);
    let mut nodes = Nodes::new(lab.follow_nodes().context("the lab has no simulated nodes")?, a.nodes);
    nodes.settled(lab, &pools, EMPTY_CONFIG, &mut Slots::default()).await?;
    tokio::time::sleep(CALM).await;
    let bounded = json!({"spec": {"maxUnavailable": bound}});
    pools.patch(POOL, &PatchParams::default(), &Patch::Merge(&bounded)).await?;
    let controller = lab.controller_pid().context("the lab runs no controller")?;
    let mut parties =
        vec![("controller", controller), ("nodes (this process)", rustix::process::getpid().as_raw_pid())];
    parties.extend(["etcd", "API server"].into_iter().zip(lab.control_plane().pids()));
    let mut samples = Samples::default();
    if let Some(seconds) = a.idle {
        println!("idle for {seconds} s");
        let before = cpu_seconds(controller)?;
        let start = Instant::now();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let share = (cpu_seconds(controller)? - before) / start.elapsed().as_secs_f64();
        samples.put("idle: controller CPU", "% of a core", share * 100.0);
        samples.put("idle: controller memory", "MiB", memory(controller, "VmRSS:")?);
    }
    let measured = Measured { lab, a, pools: &pools, parties: &parties, audit: audit.as_ref() };
    // Runs with and without a policy take turns, because each of them leaves the API server with more to keep.
    for run in 0..a.runs {
        measured.run(&mut nodes, &mut samples, "", run).await?;
        if a.policy {
            let gates = Gates::begin(&client, POOL).await?;
            tokio::time::sleep(CALM).await;
            measured.run(&mut nodes, &mut samples, WITH_POLICY, a.runs + run).await?;
            gates.end(&client).await?;
            tokio::time::sleep(CALM).await;
        }
    }
    if a.pause {
        let before = pools.get(POOL).await?.spec.configuration.name;
        apply(&client, 2 * a.runs).await?;
        let (sent, after, late) = nodes.paused(&pools).await?;
        println!("paused with {sent} of {} nodes on their way, {after} of them after the pause", a.nodes);
        samples.put("pause: last node sent after", "ms", late);
        nodes.settled(lab, &pools, &before, &mut Slots::default()).await?;
    }
    if a.policy {
        let gates = Gates::begin(&client, POOL).await?;
        let both = |samples: &Samples, what: &str| {
            (samples.median(what), samples.median(&format!("{WITH_POLICY}{what}")))
        };
        let (plain, with) = both(&samples, SECONDS);
        samples.put("with policy: seconds, of those without", "%", 100.0 * with / plain);
        let (plain, with) = both(&samples, PEAK);
        samples.put("with policy: controller peak memory, more than without", "MiB", with - plain);
        // A change that needs no reboot, nor does its rollback: its file is read at each use.
        let note = json!({"metadata": {"annotations": {api::names::annotation::REBOOTS: "WhenNeeded"}}});
        pools.patch(POOL, &PatchParams::default(), &Patch::Merge(&note)).await?;
        tokio::time::sleep(CALM).await;
        let before = pools.get(POOL).await?.spec.configuration.name;
        put(&client, "50-bench-harm", "/etc/motd", "harm").await?;
        let (sent, late, back) = gates.fail(&mut nodes.news, &before, a.nodes).await?;
        println!("a gate failed, and {sent} of {} nodes had been sent and went back", a.nodes);
        samples.put("failing gate: last node sent after", "ms", late);
        samples.put("failing gate: all nodes back after", "s", back);
    }
    let versions = vec![
        ("Kubernetes".to_owned(), lab::KUBERNETES_VERSION.to_owned()),
        ("nodes".to_owned(), a.nodes.to_string()),
        ("maxUnavailable".to_owned(), a.max_unavailable.clone()),
    ];
    Ok(Outcome { versions, figures: samples.0 })
}

/// What the runs of a benchmark have in common.
struct Measured<'a> {
    lab: &'a Lab,
    a: &'a Bench,
    pools: &'a Api<MachineConfigPool>,
    /// Names and process ids; the controller is the first.
    parties: &'a [(&'static str, i32)],
    audit: Option<&'a Audit>,
}

impl Measured<'_> {
    /// Measures one rollout. `about` is the prefix of the figures' names. Each change needs a different number.
    async fn run(
        &self,
        nodes: &mut Nodes,
        samples: &mut Samples,
        about: &str,
        change: u32,
    ) -> anyhow::Result<()> {
        let Self { lab, a, pools, parties, audit } = *self;
        let client = lab.client();
        let controller = parties.first().context("the lab runs no controller")?.1;
        reset_peak(controller)?;
        let before = pools.get(POOL).await?.spec.configuration.name;
        let cpu: Vec<f64> = parties.iter().map(|(_, pid)| cpu_seconds(*pid)).collect::<Result<_, _>>()?;
        let requests = requests::by_verb(&client).await?;
        let marker = audit.map(Audit::mark).transpose()?;
        let mut slots = Slots::default();
        let start = Instant::now();
        apply(&client, change).await?;
        let profile = a.profile.map(|seconds| {
            let client = client.clone();
            tokio::spawn(async move { requests::profile(&client, seconds).await })
        });
        nodes.settled(lab, pools, &before, &mut slots).await?;
        let seconds = start.elapsed().as_secs_f64();
        println!("{about}change {change}: {seconds:.1} s");
        if let Some(profile) = profile {
            println!("profile of the API server: {}", profile.await??);
        }
        samples.put(format!("{about}{SECONDS}"), "s", seconds);
        for ((name, pid), before) in parties.iter().zip(cpu) {
            samples.put(format!("{about}CPU: {name}"), "s", cpu_seconds(*pid)? - before);
        }
        samples.put(format!("{about}{PEAK}"), "MiB", memory(controller, "VmHWM:")?);
        samples.put(
            format!("{about}controller memory without program text"),
            "MiB",
            memory(controller, "RssAnon:")?,
        );
        if let Some((_, api_server)) = parties.iter().find(|(name, _)| *name == "API server") {
            samples.put(format!("{about}API server peak memory"), "MiB", memory(*api_server, "VmHWM:")?);
        }
        if a.max_unavailable != "100%" {
            for (what, value) in slots.latencies() {
                samples.put(format!("{about}{what}"), "ms", value);
            }
        }
        tokio::time::sleep(CALM).await;
        let count = a.nodes as f64;
        for (verb, all) in requests::by_verb(&client).await? {
            let sent = all - requests.get(&verb).unwrap_or(&0.0);
            samples.put(format!("{about}requests a node: {verb}"), "", sent / count);
        }
        if let (Some(audit), Some(marker)) = (audit, marker) {
            for (what, sent) in audit.since(marker)? {
                samples.put(format!("{about}a node: {what}"), "", sent / count);
            }
        }
        Ok(())
    }
}

async fn apply(client: &kube::Client, run: u32) -> anyhow::Result<()> {
    put(client, "50-bench-rollout", "/etc/bench", &format!("run%20{run}")).await
}

/// A MachineConfig with one file for the pool.
async fn put(client: &kube::Client, name: &str, path: &str, contents: &str) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {api::names::label::ROLE: POOL}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": path, "mode": 420, "contents": {"source": format!("data:,{contents}")}},
        ]}}},
    });
    let configs: Api<MachineConfig> = Api::all(client.clone());
    configs.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&object)).await?;
    Ok(())
}

/// All nodes, from the lab's own watch, so that observing them costs the API server nothing.
struct Nodes {
    news: UnboundedReceiver<NodeNews>,
    /// The config that each schedulable node has applied.
    done_with: HashMap<String, String>,
    count: usize,
}

impl Nodes {
    /// How many nodes have left that config and have applied another one.
    fn done(&self, before: &str) -> usize {
        self.done_with.values().filter(|config| *config != before).count()
    }

    fn new(news: UnboundedReceiver<NodeNews>, count: usize) -> Self {
        Self { news, done_with: HashMap::new(), count }
    }

    /// Waits until every node has applied one config that is not `before`, and is schedulable.
    async fn settled(
        &mut self,
        lab: &Lab,
        pools: &Api<MachineConfigPool>,
        before: &str,
        slots: &mut Slots,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut told = start;
        loop {
            if told.elapsed() >= TELL {
                told = Instant::now();
                println!("{} of {} after {} s", self.done(before), self.count, start.elapsed().as_secs());
            }
            let all = self.done_with.len() == self.count;
            let mut configs = self.done_with.values();
            if all
                && let Some(first) = configs.next()
                && first != before
                && configs.all(|c| c == first)
                && pools.get(POOL).await?.spec.configuration.name == *first
            {
                return Ok(());
            }
            let Ok(news) = tokio::time::timeout(PATIENCE, self.news.recv()).await else {
                lab.check()?;
                bail!(
                    "{} of {} nodes done, and no change for {} s",
                    self.done(before),
                    self.count,
                    PATIENCE.as_secs()
                );
            };
            let news = news.context("the lab's watch of Nodes has ended")?;
            slots.see(&news);
            self.take(news);
        }
    }

    fn take(&mut self, (name, facts): NodeNews) {
        let settled = facts.filter(|f| {
            f.state == state::DONE && f.current == f.desired && !f.unschedulable && !f.current.is_empty()
        });
        match settled {
            Some(facts) => self.done_with.insert(name, facts.current),
            None => self.done_with.remove(&name),
        };
    }

    /// Pauses the pool for a while when a third of its nodes have been started. Returns how many were started in all,
    /// how many of them after the pause, and how many milliseconds after it the last of them was.
    async fn paused(&mut self, pools: &Api<MachineConfigPool>) -> anyhow::Result<(usize, usize, f64)> {
        let mut pause = Pause::default();
        for (name, config) in &self.done_with {
            pause.knows(name, config);
        }
        while pause.sent() * 3 < self.count {
            let news = tokio::time::timeout(PATIENCE, self.news.recv()).await.context("no node is sent")?;
            let news = news.context("the lab's watch of Nodes has ended")?;
            pause.see(&news);
            self.take(news);
        }
        let say = async |paused: bool| {
            let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
            pools.patch(POOL, &PatchParams::default(), &patch).await
        };
        say(true).await?;
        pause.begin();
        let until = tokio::time::Instant::now() + PAUSED;
        while let Ok(news) = tokio::time::timeout_at(until, self.news.recv()).await {
            let news = news.context("the lab's watch of Nodes has ended")?;
            pause.see(&news);
            self.take(news);
        }
        say(false).await?;
        let (after, late) = pause.late();
        Ok((pause.sent(), after, late))
    }
}

/// User and system time that a process has used so far.
fn cpu_seconds(pid: i32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("a program has ended")?;
    let (_, fields) = stat.rsplit_once(") ").context("/proc/PID/stat has another form")?;
    let ticks: Vec<f64> = fields.split(' ').skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}

/// Has the kernel measure the peak memory of a process from now on (proc_pid_clear_refs(5)).
fn reset_peak(pid: i32) -> anyhow::Result<()> {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").context("the peak memory cannot be reset")
}

/// A line of `/proc/PID/status`, in MiB.
fn memory(pid: i32, line: &str) -> anyhow::Result<f64> {
    Ok(mebibytes(&std::fs::read_to_string(format!("/proc/{pid}/status"))?, line))
}
