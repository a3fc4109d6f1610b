//! `mco uninstall`.

use crate::args::boot::Uninstall;
use crate::{connect, exit, output};
use anyhow::bail;
use operator::uninstall::{Plan, carry_out, look, plan};

pub(crate) async fn run(a: Uninstall) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let plan = plan(&look(&client).await?);
    if a.dry_run {
        output::print_object(a.output, &serde_json::to_value(&plan)?, || lines(&plan))?;
        return Ok(exit::OK);
    }
    if plan.actions.is_empty() {
        output::write("nothing is installed\n")?;
        return Ok(exit::OK);
    }
    if !plan.busy.is_empty() && !a.force {
        bail!(
            "nothing was removed: {}. An update that nobody ends leaves a node cordoned, or between two configs; wait until mco \
            status says that it is done, or pass --force",
            plan.busy.join("; ")
        );
    }
    if !a.yes {
        output::write(&lines(&plan))?;
        eprintln!("mco: nothing was removed: this takes away all MachineConfigs and pools, too. Add --yes");
        return Ok(exit::USAGE);
    }
    // The removal goes on when nobody reads its progress any more.
    carry_out(&client, &plan, |action| drop(output::write(&format!("{action}\n")))).await?;
    for stays in &plan.stays {
        output::write(&format!("stays: {stays}\n"))?;
    }
    output::write("uninstalled; hosts keep their files\n")?;
    Ok(exit::OK)
}

fn lines(plan: &Plan) -> String {
    let actions = plan.actions.iter().map(|a| format!("{a}\n"));
    let stays = plan.stays.iter().map(|s| format!("stays: {s}\n"));
    actions.chain(stays).chain(plan.busy.iter().map(|b| format!("busy: {b}\n"))).collect()
}
