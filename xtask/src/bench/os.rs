//! `bench os`: what an OS update costs the agent itself, without the work of the host's programs.
//!
//! The node is a machine that boots, in a cluster of its own. Its `ostree` is the lab's fake: it pulls and stages nothing,
//! and the next boot reports what was staged. So only the agent is measured: the CPU time of its own threads and its peak
//! memory, from the change of the config to the reboot, and from the boot to the end of the update. The cost of a start that
//! finds nothing to do is subtracted.
//!
//! Not here: a real image and its boot (`cargo xtask demo --os`), nor how long a drained node waits for an image (`prefetch`).

use super::one_node::{self, agent_pid};
use super::os_config::{IMAGES, LIMIT, LOOK, WAIT, apply};
use super::{Bench, Outcome, Samples, mebibytes};
use anyhow::bail;
use api::k8s::Node;
use api::names::own;
use api::v1::{MachineConfig, MachineConfigPool};
use kube::api::Api;
use lab::{DAEMON_UNIT, Lab, NodeHandle};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the agent must be idle before it is measured, so that its work after a start is over.
const CALM: Duration = Duration::from_secs(10);
/// The kernel's clock tick in `/proc/PID/stat`, in milliseconds.
const TICK: f64 = 10.0;
pub(super) fn run(root: &Path, a: &Bench) -> anyhow::Result<Outcome> {
    let mut samples = Samples::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(root, a, &mut samples))?;
    let versions = vec![("Kubernetes".to_owned(), lab::KUBERNETES_VERSION.to_owned())];
    Ok(Outcome { versions, figures: samples.0 })
}

async fn measure(root: &Path, a: &Bench, samples: &mut Samples) -> anyhow::Result<()> {
    let program = a.program.clone().unwrap_or_else(|| root.join("target/release/mco"));
    let templates = root.join("target/bench/no-templates");
    std::fs::create_dir_all(&templates)?;
    let builder = one_node::builder(program, templates).fake_ostree(IMAGES[0]);
    one_node::measure(builder, async |lab| {
        // The registry in the images' names does not exist, so the controller must not inspect them.
        let unseen = serde_json::json!({"metadata": {"annotations": {own::OS_IMAGES: own::AS_THEY_ARE}}});
        let pools: Api<MachineConfigPool> = Api::all(lab.client());
        pools.patch("worker", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(unseen)).await?;
        match a.prefetch {
            true => super::prefetch::waits(lab, a, samples).await,
            false => updates(lab, a, samples).await,
        }
    })
    .await
}

async fn updates(lab: &Lab, a: &Bench, samples: &mut Samples) -> anyhow::Result<()> {
    let configs: Api<MachineConfig> = Api::all(lab.client());
    let nodes: Api<Node> = Api::all(lab.client());
    let node = lab.node(0);
    apply(&configs, "").await?;
    let mut current = WAIT.config(&nodes, "").await?;
    for run in 0..a.runs {
        // A start of the agent that finds nothing to do.
        node.run(["systemctl", "restart", DAEMON_UNIT]).await?;
        tokio::time::sleep(CALM).await;
        let first = Agent::of(&node).await?;
        let start = first.look()?;
        let image = IMAGES[usize::from(run % 2 == 0)];
        let before = node.boot_id().await?;
        let asked = Instant::now();
        apply(&configs, image).await?;
        let mut last = start;
        while let Ok(now) = first.look() {
            last = now;
            if asked.elapsed() > LIMIT {
                bail!("the agent does not reboot; see journalctl -u {DAEMON_UNIT} on the node");
            }
            tokio::time::sleep(LOOK).await;
        }
        current = WAIT.config(&nodes, &current).await?;
        if node.boot_id().await? == before
            || !node.run(["ostree", "admin", "status"]).await?.contains("rollback")
        {
            bail!("the node did not boot what was staged");
        }
        let after = Agent::of(&node).await?.look()?;
        samples.put("up to the reboot: CPU of the agent itself", "ms", last.cpu - start.cpu);
        samples.put("up to the reboot: more memory at its highest", "MiB", last.highest - start.rests);
        samples.put("after the boot: CPU of the agent itself, less a start's", "ms", after.cpu - start.cpu);
        samples.put("after the boot: highest memory, less a start's", "MiB", after.highest - start.highest);
        samples.put("a start that finds nothing to do: CPU", "ms", start.cpu);
    }
    Ok(())
}

/// The agent's process, seen from this computer: its folder in `/proc`.
struct Agent {
    folder: std::path::PathBuf,
}

/// CPU in milliseconds, memory in MiB.
#[derive(Clone, Copy)]
struct Figures {
    cpu: f64,
    rests: f64,
    highest: f64,
}

impl Agent {
    async fn of(node: &NodeHandle) -> anyhow::Result<Self> {
        let pid = agent_pid(node).await?;
        Ok(Self { folder: node.root_of_boot()?.join("proc").join(pid) })
    }

    /// The resources that it has used so far; an error once it has ended.
    fn look(&self) -> anyhow::Result<Figures> {
        let ticks = one_node::ticks(&std::fs::read_to_string(self.folder.join("stat"))?)?;
        let status = std::fs::read_to_string(self.folder.join("status"))?;
        if !status.contains("VmHWM:") {
            bail!("it has ended, and nobody has taken note of that yet");
        }
        Ok(Figures {
            cpu: ticks * TICK,
            rests: mebibytes(&status, "VmRSS:"),
            highest: mebibytes(&status, "VmHWM:"),
        })
    }
}
