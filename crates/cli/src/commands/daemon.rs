//! `mco daemon`.

use crate::args::{DaemonRecover, DaemonStart};
use crate::exit;
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
    match recovery {
        Recovery::Nothing => println!("nothing was interrupted"),
        Recovery::Undone { config, desired } => {
            println!("undone: a change to {desired} was interrupted; the host is in {config}");
        }
        Recovery::Finished { config } => println!("finished: the host is in {config}"),
    }
    Ok(exit::OK)
}
