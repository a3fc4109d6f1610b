//! `mco approve`, by [`actions::approve()`].

use crate::args::change::approve::Approve;
use crate::output::Kind;
use crate::{connect, exit, output};
use actions::{Mode, messages};

pub(crate) async fn run(a: Approve) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let done = actions::approve(&client, &a.pool, a.config.as_deref(), None, Mode::Write).await?;
    output::print(a.output, Kind::Approval, &done, || messages::approved(&done, Mode::Write))?;
    Ok(exit::OK)
}
