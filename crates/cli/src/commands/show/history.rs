//! `mco history`: prints the rendered configs of a pool, since when, and who changed what, from an [`insight::PoolHistory`].

use crate::args::show::history::History;
use crate::output::Kind;
use crate::{connect, exit, output};

pub(crate) async fn run(a: History) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let past = insight::history(&client, &a.pool).await?;
    output::print(a.output, Kind::History, &past, || actions::messages::history(&past))?;
    Ok(exit::OK)
}
