//! `mco explain`: prints which MachineConfig set what in a pool's rendered config, from an [`insight::Explanation`].

use crate::args::show::explain::Explain;
use crate::output::Kind;
use crate::output::tables;
use crate::{connect, exit, output};

pub(crate) async fn run(a: Explain) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let explanation = insight::explain(&client, &a.pool).await?;
    let explanation = explanation.only(a.what.as_deref(), a.contested)?.masked(a.show.secrets());
    output::print(a.output, Kind::Explanation, &explanation, || tables::explanation(&explanation))?;
    Ok(exit::OK)
}
