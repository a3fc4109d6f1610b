//! `mco daemon`.

use crate::args::{DaemonRecover, DaemonStart};
use crate::{exit, output};
use host::Recovery;

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
