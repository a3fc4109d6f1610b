//! `mco undo`: shows what an undo means, asks for confirmation, and does it. See `rollout::pinned_config` for what a pin is.
//!
//! What it is not: the reads and writes, which are in [`actions::undo()`].

use crate::args::change::undo::Undo;
use crate::input::confirm::confirm;
use crate::output::Kind;
use crate::{connect, exit, output};
use actions::messages;
use insight::UndoPlan;

pub(crate) async fn run(a: Undo) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let what = actions::Undo {
        pool: &a.pool,
        to: a.to.as_deref(),
        release: a.release,
        secrets: a.show.secrets(),
        controller_config: &operator::install::controller_config_values::unknown(),
    };
    let Some(mut undoing) = actions::undo(&client, what).await? else {
        output::write(&format!("pool {} is not pinned: it follows its MachineConfigs\n", a.pool))?;
        return Ok(exit::OK);
    };
    output::not_allowed(&undoing.forbidden);
    output::warn(&undoing.warnings);
    if undoing.plan.is_impossible() {
        output::print(a.output, Kind::Undo, &undoing.plan, || {
            messages::undo(&undoing.plan, messages::as_it_is)
        })?;
        eprintln!("mco: nothing was done: no running host can apply this config");
        return Ok(exit::FINDINGS);
    }
    if !a.dry_run {
        if !a.yes {
            eprint!("{}", messages::undo(&undoing.plan, messages::as_it_is));
            match ask(&undoing.plan)? {
                None => {
                    eprintln!(
                        "mco: cannot ask for confirmation without a terminal: add --yes, or --dry-run \
                        to see what would be done"
                    );
                    return Ok(exit::USAGE);
                }
                Some(false) => return Ok(exit::FINDINGS),
                Some(true) => {}
            }
        }
        undoing.write(&client).await?;
    }
    output::print(a.output, Kind::Undo, &undoing.plan, || messages::undo(&undoing.plan, messages::as_it_is))?;
    Ok(exit::OK)
}

/// Asks for a confirmation; `None`: standard input is no terminal.
fn ask(undoing: &UndoPlan) -> anyhow::Result<Option<bool>> {
    let what = match &undoing.pin {
        Some(config) => format!("Pin pool {} to {config}?", undoing.pool),
        None => format!("Let pool {} follow its MachineConfigs again?", undoing.pool),
    };
    Ok(confirm(&what)?)
}
