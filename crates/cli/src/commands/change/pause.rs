//! `mco pause` and `mco resume`, by [`actions::pause()`].

use crate::args::change::pause::Pause;
use crate::output::Kind;
use crate::{connect, exit, output};
use actions::{Mode, messages};

pub(crate) async fn run(a: Pause, paused: bool) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let all = actions::pause(&client, &a.pools, paused, None, Mode::Write).await?;
    output::print_list(a.output, Kind::PauseList, &all, || messages::paused(&all, Mode::Write))?;
    Ok(exit::OK)
}
