//! A lab for benchmarks of the agent: one node that boots, and a controller, without the controller manager and the scheduler.
//! Also here: what every such benchmark reads of the agent's process.
//!
//! Not here: what is measured (see `host` and `os`).

use anyhow::Context;
use lab::{DAEMON_UNIT, Lab, LabBuilder, NodeHandle, Reporter};
use std::path::PathBuf;

/// The node's name.
pub(super) const NODE: &str = "worker-0";

/// The lab, which a benchmark may still change before it starts it. `program` is measured; `templates` may be an empty folder.
pub(super) fn builder(program: PathBuf, templates: PathBuf) -> LabBuilder {
    Lab::builder()
        .nodes(1)
        .real()
        .controller(true)
        .controller_manager(false)
        .scheduler(false)
        .mco_binary(program)
        .templates(templates)
        .progress(Reporter::stderr())
}

/// Starts the lab, measures, and stops the lab whatever came of it.
pub(super) async fn measure(
    builder: LabBuilder,
    measure: impl AsyncFnOnce(&Lab) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let lab = builder.start().await?;
    let done = measure(&lab).await;
    lab.stop().await;
    done
}

/// The process of the agent that runs now.
pub(super) async fn agent_pid(node: &NodeHandle) -> anyhow::Result<String> {
    let pid = node.run(["systemctl", "show", "--value", "--property=MainPID", DAEMON_UNIT]).await?;
    Ok(pid.trim().to_owned())
}

/// The CPU time in a `/proc/PID/stat`, in clock ticks: user and system, of all threads, also of those that have ended.
pub(super) fn ticks(stat: &str) -> anyhow::Result<f64> {
    let (_, fields) = stat.rsplit_once(") ").context("/proc/PID/stat has another form")?;
    Ok(fields.split(' ').skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum())
}
