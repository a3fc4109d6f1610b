//! The idle agent: memory, CPU and requests of `mco daemon start` on a machine that boots, first after the boot, then
//! after an update of many files that needed no reboot. Also measured: how soon the agent reports a file that somebody
//! has changed.
//!
//! Requests are those of the node's user in the API server's audit log, including watches. The Lease and the status
//! that a kubelet sends are not counted. The kubelet is a fake.

use super::Samples;
use crate::bench::node_state::Wait;
use crate::bench::one_node::{self, NODE, agent_pid};
use crate::bench::{Bench, mebibytes};
use anyhow::Context;
use api::k8s::Node;
use api::names::{label, state};
use api::v1::MachineConfig;
use kube::api::{Api, PostParams};
use lab::{Lab, NodeHandle};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The node's user.
const USER: &str = "system:node:worker-0";
/// The time limit for everything.
const LIMIT: Duration = Duration::from_secs(300);
/// The pause between two checks.
const POLL: Duration = Duration::from_millis(500);
/// The pause between two checks where milliseconds count.
const LOOK: Duration = Duration::from_millis(5);
/// How often a file is changed by hand.
const DRIFTS: u32 = 10;
/// How long to wait after the last step, until the agent sends no more requests and has returned its memory.
const CALM: Duration = Duration::from_secs(20);
/// How long the idle agent is measured without `--idle`, in seconds.
const REST: u64 = 60;
/// The number of files in the update, below a path that needs no reboot: as many as fit into one object.
const FILES: usize = 200;
const BYTES: usize = 4096;
const FOLDER: &str = "/etc/nmstate/openshift";
/// The kernel's clock tick in `/proc/PID/stat`: fixed at 100 a second in Linux's user-space interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// Logs all requests of the node's user; of a watch also when it begins.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: Metadata, users: [\"system:node:worker-0\"]}
- {level: None}
";

pub(super) async fn run(root: &Path, a: &Bench, samples: &mut Samples) -> anyhow::Result<()> {
    let folder = root.join("target/bench/host-audit");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("policy.yaml"), POLICY)?;
    let log = folder.join("audit.log");
    let _ = std::fs::remove_file(&log);
    let flag = |flag: &str, file: &Path| format!("--{flag}={}", file.display());
    let builder =
        one_node::builder(root.join("target/release/mco"), root.join("templates")).api_server_args([
            flag("audit-policy-file", &folder.join("policy.yaml")),
            flag("audit-log-path", &log),
        ]);
    one_node::measure(builder, async |lab| measure(lab, a, &log, samples).await).await
}

async fn measure(lab: &Lab, a: &Bench, log: &Path, samples: &mut Samples) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(lab.client());
    let wait = Wait { node: NODE, limit: LIMIT, pause: POLL };
    let first = wait.config(&nodes, "").await?;
    measure_idle(lab, a, log, "after its start", samples).await?;
    let configs: Api<MachineConfig> = Api::all(lab.client());
    configs.create(&PostParams::default(), &config()?).await?;
    wait.config(&nodes, &first).await?;
    measure_idle(lab, a, log, "after an update of 200 files", samples).await?;
    drifts(lab, &nodes, samples).await
}

/// Changes a file as a person would, waits until the agent reports the drift, and restores the file.
async fn drifts(lab: &Lab, nodes: &Api<Node>, samples: &mut Samples) -> anyhow::Result<()> {
    let path = lab.node(0).root_of_boot()?.join(FOLDER.trim_start_matches('/')).join("0.yaml");
    let whole = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for _ in 0..DRIFTS {
        for (text, says, what) in [
            (&b"by hand"[..], state::DEGRADED, "a file changed by hand until the Node says so"),
            (&whole, state::DONE, "the same put right until the Node says so"),
        ] {
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            let start = Instant::now();
            Wait { node: NODE, limit: LIMIT, pause: LOOK }.state(nodes, says).await?;
            samples.put(what, "ms", start.elapsed().as_secs_f64() * 1000.0);
        }
    }
    Ok(())
}

/// `count` files of 4 KiB each, below a path that needs no reboot.
pub(crate) fn many_files(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(|i| {
        let text: String = format!("{i}.").chars().cycle().take(BYTES).collect();
        json!({"path": format!("{FOLDER}/{i}.yaml"), "contents": {"source": format!("data:,{text}")}})
    })
}

fn config() -> anyhow::Result<MachineConfig> {
    let files: Vec<Value> = many_files(FILES).collect();
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "50-bench-host", "labels": {label::ROLE: "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}},
    });
    Ok(serde_json::from_value(object)?)
}

/// Measures the idle agent.
async fn measure_idle(
    lab: &Lab,
    a: &Bench,
    log: &Path,
    when: &str,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    tokio::time::sleep(CALM).await;
    let node = lab.node(0);
    let pid = agent_pid(&node).await?;
    let (cpu, sent) = (ticks(&node, &pid).await?, length(log)?);
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(a.idle.unwrap_or(REST))).await;
    let share = (ticks(&node, &pid).await? - cpu) / TICKS_PER_SECOND / start.elapsed().as_secs_f64();
    let status = node.run(["cat", &format!("/proc/{pid}/status")]).await?;
    for (what, line) in [
        ("memory (RSS)", "VmRSS:"),
        ("of which its own (anonymous)", "RssAnon:"),
        ("of which pages of the program", "RssFile:"),
        ("highest memory so far", "VmHWM:"),
    ] {
        samples.put(format!("rest {when}: {what}"), "MiB", mebibytes(&status, line));
    }
    samples.put(format!("rest {when}: CPU"), "% of a core", share * 100.0);
    let requests = requests(log, sent)?;
    samples.put(format!("rest {when}: requests"), "", requests.values().sum());
    for (what, count) in requests {
        samples.put(format!("rest {when}: {what}"), "", count);
    }
    Ok(())
}

async fn ticks(node: &NodeHandle, pid: &str) -> anyhow::Result<f64> {
    one_node::ticks(&node.run(["cat", &format!("/proc/{pid}/stat")]).await?)
}

fn length(log: &Path) -> anyhow::Result<u64> {
    Ok(std::fs::metadata(log).context("the API server writes no audit log")?.len())
}

/// The requests of the node's user that were logged after position `from`, by verb and resource.
fn requests(log: &Path, from: u64) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut file = std::fs::File::open(PathBuf::from(log))?;
    file.seek(SeekFrom::Start(from))?;
    let mut sums = BTreeMap::new();
    for line in BufReader::new(file).lines() {
        let Ok(line) = serde_json::from_str::<Value>(&line?) else { continue };
        let resource = line["objectRef"]["resource"].as_str().unwrap_or("-").to_owned();
        // A watch is logged when it begins and when it ends. Only the beginning is counted.
        let ended = line["verb"] == "watch" && line["stage"] == "ResponseComplete";
        if line["user"]["username"] != USER || ended || resource == "leases" {
            continue;
        }
        let what = format!("{} {resource}", line["verb"].as_str().unwrap_or("-"));
        *sums.entry(what).or_insert(0.0) += 1.0;
    }
    Ok(sums)
}
