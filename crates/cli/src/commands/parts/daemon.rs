//! `mco daemon`.

use crate::args::parts::daemon::{DaemonFirstBoot, DaemonPlan, DaemonRecover, DaemonStart, DaemonTry};
use crate::args::shared::Refuse;
use crate::commands::process;
use crate::input::manifests;
use crate::output::Kind;
use crate::{exit, output};
use daemon::{FirstBoot, PlannedOnHost, TryOnHost, TryState};
use host::{DisruptionPolicy, HostPlan, Irreconcilable, OsChoice, Recovery, Severity};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Changes the process's root to the host's root folder, which is mounted into the pod, and executes the program again from
/// there; does nothing where that folder is `/`. `files`: those of the pod that its arguments name, which stay readable.
pub(crate) fn enter(root_mount: &Path, files: &[&Path]) -> anyhow::Result<()> {
    daemon::chroot_into_host(root_mount, std::env::args_os(), files)?;
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
    Box::pin(daemon::start(options, process::shutdown_signal()?)).await?;
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
        Recovery::OnTrial { config } => {
            format!("on trial: the host is in config {config}, which is undone unless it is confirmed\n")
        }
        Recovery::AwaitsReturn { config, desired, why } => {
            format!(
                "the host will be back in config {config} when it has rebooted, because it did not come up as \
                 {desired} asks: {why}\n"
            )
        }
        Recovery::RolledBack { config, desired, why } => {
            format!(
                "undone: the host is back in config {config}, because {desired} did not come up as it should: \
                 {why}\n"
            )
        }
    })?;
    Ok(exit::OK)
}

/// How often a trial is checked: a confirmation in another session is seen within this time.
const LOOK: Duration = Duration::from_millis(500);

pub(crate) fn try_on_host(a: &DaemonTry) -> anyhow::Result<u8> {
    let (origin, config) = one(&a.file)?;
    let config = daemon::read_config(&origin, &config.to_string())?;
    let within = a.confirm_within.unsigned_abs();
    let mut tried = TryOnHost::begin(&a.root_mount, &origin, &config, within)?;
    let (name, seconds) = (tried.config.clone(), within.as_secs());
    for why in &tried.because {
        output::write(&format!("it can cut this host off: {why}\n"))?;
    }
    if tried.reboots {
        output::write(&format!(
            "rebooting into config {name}; log in again and run `mco daemon confirm` within {seconds} s of the boot, \
             else it is undone\n"
        ))?;
        return Ok(exit::OK);
    }
    output::write(&format!(
        "the host is in config {name} for {seconds} s: press Enter to keep it (or run `mco daemon confirm` in another \
         session), u and Enter to undo it now\n"
    ))?;
    let answers = answers();
    loop {
        let state = match answers.recv_timeout(LOOK) {
            Ok(line) if line.trim().is_empty() => tried.confirm()?,
            Ok(line) if line.trim() == "u" => tried.give_up("a person undid it")?,
            Ok(line) => {
                output::write(&format!(
                    "{:?} is neither; press Enter to keep it, u and Enter to undo it\n",
                    line.trim()
                ))?;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => tried.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(LOOK);
                tried.check()?
            }
        };
        match state {
            TryState::Open(_) => {}
            TryState::Kept => {
                output::write(&format!("kept: the host is in config {name}\n"))?;
                return Ok(exit::OK);
            }
            TryState::Undone(reboots) => {
                let next = if reboots { "; the machine reboots for that" } else { "" };
                output::write(&format!("undone: the host is as it was before{next}\n"))?;
                return Ok(exit::FINDINGS);
            }
        }
    }
}

/// The lines of standard input. Its end is not an answer.
fn answers() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

pub(crate) fn confirm(a: &DaemonRecover) -> anyhow::Result<u8> {
    let Some(config) = daemon::confirm_on_host(&a.root_mount)? else {
        output::write("no change is on trial on this host, or the reboot into it is still to come\n")?;
        return Ok(exit::FINDINGS);
    };
    output::write(&format!("kept: the host is in config {config}\n"))?;
    Ok(exit::OK)
}

pub(crate) fn watch_trial(a: &DaemonRecover) -> anyhow::Result<u8> {
    daemon::watch_trial(&a.root_mount)?;
    Ok(exit::OK)
}

pub(crate) async fn first_boot(a: DaemonFirstBoot) -> anyhow::Result<u8> {
    let file = a.machineconfig_file;
    let Some(done) = daemon::first_boot(&a.root_mount, &file, process::shutdown_signal()?).await? else {
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
    /// The most severe disruption.
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<Severity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<HostPlan>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    irreconcilable: Vec<Irreconcilable>,
    /// The back ends for the operating system that were asked whether they fit this host, with their answers.
    os_back_ends: OsChoice,
}

impl Planned {
    fn text(&self) -> String {
        let planned = match &self.plan {
            Some(plan) if plan.is_empty() => format!("{plan}\nnothing to do\n"),
            Some(plan) => format!("{plan}\n"),
            None => {
                let lines = self.irreconcilable.iter().map(|i| format!("  {i}\n"));
                "it cannot be applied to this host:\n".to_owned() + &lines.collect::<String>()
            }
        };
        format!("{planned}back ends for the operating system of this host: {}\n", self.os_back_ends)
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
    let PlannedOnHost { os: os_back_ends, plan } = daemon::plan_on_host(&a.root_mount, &config, &policy)?;
    let planned = match plan {
        Ok(plan) => Planned {
            severity: Some(plan.disruption.severity()),
            plan: Some(plan),
            irreconcilable: vec![],
            os_back_ends,
        },
        Err(irreconcilable) => Planned { severity: None, plan: None, irreconcilable, os_back_ends },
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
