//! `mco retry`, by [`actions::retry()`].

use crate::args::change::retry::Retry;
use crate::output::Kind;
use crate::{connect, exit, output};
use actions::{Mode, messages};

pub(crate) async fn run(a: Retry) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let all = actions::retry(&client, &a.nodes, Mode::Write).await?;
    output::print_list(a.output, Kind::RetryList, &all, || {
        all.iter().map(|a| messages::retried(a, Mode::Write, messages::as_it_is)).collect()
    })?;
    Ok(exit::OK)
}
