//! `mco operator`.

use crate::args::parts::operator::OperatorStart;
use crate::commands::process;
use crate::{connect, exit, output};
use operator::sync::{self, Options};

pub(crate) async fn start(a: OperatorStart) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let options = Options {
        require_token: a.require_token,
        image: a.image,
        leader_elect: a.leader_elect,
        metrics: a.metrics.with(a.metrics_listen),
    };
    if a.once {
        for done in Box::pin(sync::run_once(client, options)).await? {
            output::write(&format!("written: {done}\n"))?;
        }
        return Ok(exit::OK);
    }
    Box::pin(sync::run(client, options, process::shutdown_signal()?)).await?;
    Ok(exit::OK)
}
