//! `mco operator`.

use crate::args::boot::OperatorStart;
use crate::commands::shell;
use crate::{connect, exit, output};
use operator::reconcile::{self, Options};

pub(crate) async fn start(a: OperatorStart) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let options = Options { require_token: a.require_token };
    if a.once {
        for done in reconcile::pass(&client, options).await? {
            output::write(&format!("written: {done}\n"))?;
        }
        return Ok(exit::OK);
    }
    reconcile::run(client, options, shell::shutdown_signal()?).await;
    Ok(exit::OK)
}
