//! `mco controller`.

use crate::args::parts::controller::{ControllerBootstrap, ControllerStart};
use crate::commands::process;
use crate::{connect, exit};

pub(crate) async fn start(a: ControllerStart) -> anyhow::Result<u8> {
    let client = connect::connect_with(&a.cluster, controller::tune).await?;
    let options = controller::Options {
        metrics_addresses: a.metrics.with(a.metrics_listen),
        leader_elect: a.leader_elect,
        ..controller::Options::new(a.templates)
    };
    controller::run_with(client, options, process::shutdown_signal()?).await?;
    Ok(exit::OK)
}

pub(crate) fn bootstrap(a: ControllerBootstrap) -> anyhow::Result<u8> {
    controller::bootstrap::run(&controller::bootstrap::BootstrapArgs {
        manifest_dir: a.manifest_dir,
        dest_dir: a.dest_dir,
        pull_secret: a.pull_secret,
        templates: a.templates,
    })?;
    Ok(exit::OK)
}
