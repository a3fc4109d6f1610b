//! `mco daemon`.

use crate::args::daemon::{DaemonFirstBoot, DaemonPlan, DaemonRecover, DaemonStart};
use crate::args::rollout::Refuse;
use crate::commands::shell;
use crate::input::manifests;
use crate::output::Kind;
use crate::{exit, output};
use daemon::FirstBoot;
use host::{DisruptionPolicy, HostPlan, Irreconcilable, Recovery, Severity};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Changes the process's root to the host's root folder, which is mounted into the pod, and executes the program again from
/// there; does nothing where that folder is `/`.
pub(crate) fn enter(root_mount: &Path) -> anyhow::Result<()> {
    daemon::chroot_into_host(root_mount, std::env::args_os())?;
    Ok(())
}

pub(crate) async fn start(a: DaemonStart) -> anyhow::Result<u8> {
    if let Some(from) = a.once_from {
        let once = daemon::apply_once(&a.root_mount, &from, a.skip_reboot).await?;
        let next = match (once.reboot, a.skip_reboot) {
            (false, _) => "",
            (true, false) => "; rebooting",
            (true, true) => "; reboot it so that all of it takes effect",
        };
        output::write(&format!("the host is in config {}{next}\n", once.config))?;
        return Ok(exit::OK);
    }
    let kubelet = a.kubelet_healthz_endpoint;
    let options = daemon::StartOptions {
        kubeconfig: a.cluster.kubeconfig,
        context: a.cluster.context,
        root_mount: a.root_mount,
        metrics: a.metrics.with(a.metrics_url),
        kubelet_healthz: a.kubelet_healthz_enabled.then_some((kubelet.address, kubelet.path)),
        ..daemon::StartOptions::new(a.node_name)
    };
    Box::pin(daemon::start(options, shell::shutdown_signal()?)).await?;
    Ok(exit::OK)
}

pub(crate) fn recover(a: &DaemonRecover) -> anyhow::Result<u8> {
    let recovery = daemon::recover(&a.root_mount)?;
    output::write(&match recovery {
        Recovery::Nothing => "nothing was interrupted\n".to_owned(),
        Recovery::Undone { config, desired } => {
            format!("undone: a change to config {desired} was interrupted; the host is in config {config}\n")
        }
        Recovery::Finished { config } => format!("finished: the host is in config {config}\n"),
        Recovery::AwaitsBoot { config } => {
            format!(
                "the host will be in config {config} when it has booted into the staged operating system\n"
            )
        }
        Recovery::RolledBack { config, desired, why } => {
            format!(
                "undone: the host is back in config {config}, because it did not boot into the operating \
                 system of {desired}: {why}\n"
            )
        }
    })?;
    Ok(exit::OK)
}

pub(crate) async fn first_boot(a: DaemonFirstBoot) -> anyhow::Result<u8> {
    let file = a.machineconfig_file;
    let Some(done) = daemon::first_boot(&a.root_mount, &file, shell::shutdown_signal()?).await? else {
        anyhow::bail!("stopped before the first boot was complete; start it again to continue");
    };
    output::write(&match done {
        FirstBoot::Nothing => "the first boot is over\n".to_owned(),
        FirstBoot::Complete { config } => {
            format!("the first boot is complete: the host is in config {config}\n")
        }
        FirstBoot::Rebooting { config } => format!("rebooting into config {config}\n"),
    })?;
    Ok(exit::OK)
}

/// What `mco daemon plan` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Planned {
    /// The worst that it does to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<Severity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<HostPlan>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    irreconcilable: Vec<Irreconcilable>,
}

impl Planned {
    fn text(&self) -> String {
        match &self.plan {
            Some(plan) if plan.is_empty() => format!("{plan}\nnothing to do\n"),
            Some(plan) => format!("{plan}\n"),
            None => {
                let lines = self.irreconcilable.iter().map(|i| format!("  {i}\n"));
                "it cannot be applied to this host:\n".to_owned() + &lines.collect::<String>()
            }
        }
    }

    fn is_refused(&self, refuse: Option<Refuse>) -> bool {
        self.severity.is_none_or(|severity| refuse.is_some_and(|r| severity >= r.severity()))
    }
}

pub(crate) fn plan(a: &DaemonPlan) -> anyhow::Result<u8> {
    let policy = match &a.policy {
        None => DisruptionPolicy::default(),
        Some(file) => {
            let (_, object) = one(file)?;
            DisruptionPolicy::of_cluster(Some(&object)).map_err(anyhow::Error::msg)?
        }
    };
    let (origin, config) = one(&a.file)?;
    let config = daemon::read_config(&origin, &config.to_string())?;
    let planned = match daemon::plan_on_host(&a.root_mount, &config, &policy)? {
        Ok(plan) => {
            Planned { severity: Some(plan.disruption.severity()), plan: Some(plan), irreconcilable: vec![] }
        }
        Err(irreconcilable) => Planned { severity: None, plan: None, irreconcilable },
    };
    output::print(a.output, Kind::HostPlan, &planned, || planned.text())?;
    Ok(if planned.is_refused(a.refuse) { exit::FINDINGS } else { exit::OK })
}

/// The one document of a file.
fn one(file: &PathBuf) -> anyhow::Result<(String, serde_json::Value)> {
    let mut all = manifests::read(std::slice::from_ref(file))?;
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => anyhow::bail!("{}: expected exactly one YAML document", file.display()),
    }
}
