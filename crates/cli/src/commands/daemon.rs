//! `mco daemon`.

use crate::args_daemon::{DaemonFirstBoot, DaemonRecover, DaemonStart};
use crate::{exit, output};
use daemon::FirstBoot;
use host::Recovery;
use std::path::Path;

/// Goes from a pod onto the host whose root folder is mounted there, and begins anew; nothing where it is `/`.
pub(super) fn enter(root_mount: &Path) -> anyhow::Result<()> {
    daemon::enter_host(root_mount, std::env::args_os())?;
    Ok(())
}

pub(super) async fn start(a: DaemonStart) -> anyhow::Result<u8> {
    let options = daemon::Options {
        kubeconfig: a.cluster.kubeconfig,
        root_mount: a.root_mount,
        metrics: a.metrics_url.0,
        ..daemon::Options::new(a.node_name)
    };
    daemon::start(options, super::shutdown_signal()?).await?;
    Ok(exit::OK)
}

pub(super) fn recover(a: &DaemonRecover) -> anyhow::Result<u8> {
    let recovery = daemon::recover(&a.root_mount)?;
    output::write(&match recovery {
        Recovery::Nothing => "nothing was interrupted\n".to_owned(),
        Recovery::Undone { config, desired } => {
            format!("undone: a change to {desired} was interrupted; the host is in {config}\n")
        }
        Recovery::Finished { config } => format!("finished: the host is in {config}\n"),
    })?;
    Ok(exit::OK)
}

pub(super) async fn first_boot(a: DaemonFirstBoot) -> anyhow::Result<u8> {
    let file = a.machineconfig_file;
    let Some(done) = daemon::first_boot(&a.root_mount, &file, super::shutdown_signal()?).await? else {
        anyhow::bail!("told to stop before the first boot was complete; it goes on when it is started again");
    };
    output::write(&match done {
        FirstBoot::Nothing => "the first boot is over\n".to_owned(),
        FirstBoot::Complete { config } => format!("the first boot is complete: the host is in {config}\n"),
        FirstBoot::Rebooting { config } => format!("rebooting into {config}\n"),
    })?;
    Ok(exit::OK)
}
