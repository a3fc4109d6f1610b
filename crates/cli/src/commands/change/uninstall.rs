//! `mco uninstall`.

use crate::args::change::uninstall::Uninstall;
use crate::input::confirm::confirm;
use crate::{connect, exit, output};
use operator::uninstall::{NodeToRestore, Plan, carry_out, find, nodes_to_restore, plan, restore_hosts};
use serde_json::json;
use std::collections::BTreeMap;

pub(crate) async fn run(a: Uninstall) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let mut plan = plan(&find(&client).await?);
    let hosts = if a.restore_hosts { nodes_to_restore(&client).await? } else { vec![] };
    if a.dry_run {
        let mut object = serde_json::to_value(&plan)?;
        if a.restore_hosts {
            object["hosts"] = json!(hosts);
        }
        output::print_object(a.output, &object, || lines(&hosts, &plan))?;
        return Ok(exit::OK);
    }
    if plan.actions.is_empty() {
        output::write("nothing is installed\n")?;
        return Ok(exit::OK);
    }
    plan.check_begin(a.restore_hosts, a.force, a.delete_secrets)?;
    if !a.yes {
        output::write(&lines(&hosts, &plan))?;
        let also = plan.also_deletes();
        match confirm(&format!("This deletes {also}. Continue?"))? {
            None => {
                eprintln!("mco: nothing was removed: this deletes {also}. Add --yes");
                return Ok(exit::USAGE);
            }
            Some(false) => return Ok(exit::FINDINGS),
            Some(true) => {}
        }
        // Somebody may have thought about it for long.
        plan = operator::uninstall::plan(&find(&client).await?);
        plan.check_begin(a.restore_hosts, a.force, a.delete_secrets)?;
    }
    let mut kept = BTreeMap::new();
    if a.restore_hosts {
        let limit = a.restore_timeout.unsigned_abs();
        let tell = |step| drop(output::write(&format!("{step}\n")));
        kept = restore_hosts(&client, limit, a.force, tell).await?;
        plan = operator::uninstall::plan(&find(&client).await?);
        // That takes long, and somebody may have put a Secret there meanwhile.
        plan.check_begin(a.restore_hosts, a.force, a.delete_secrets)?;
    }
    // The removal continues after its output was closed.
    let remains =
        carry_out(&client, &plan, a.force, |step| drop(output::write(&format!("{step}\n")))).await?;
    for stays in &plan.stays {
        output::write(&format!("stays: {stays}\n"))?;
    }
    for (node, why) in &remains.silent {
        output::write(&format!(
            "Node {node}: {why}. A change on trial there is undone when its time is up, and units for trials \
             stay: see docs/operations.md, Uninstall\n"
        ))?;
    }
    for (node, why) in &remains.marked {
        output::write(&format!("Node {node} keeps our annotations and taints: {why}\n"))?;
    }
    for (node, why) in &kept {
        output::write(&format!("Node {node} keeps its files: {why}\n"))?;
    }
    output::write(match (a.restore_hosts, kept.is_empty()) {
        (false, _) => "uninstalled; hosts keep their files\n",
        (true, true) => "uninstalled; hosts have their own files again\n",
        (true, false) => "uninstalled; the other hosts have their own files again\n",
    })?;
    Ok(exit::OK)
}

fn lines(hosts: &[NodeToRestore], plan: &Plan) -> String {
    let hosts = hosts.iter().map(|h| format!("{h}\n"));
    let actions = plan.actions.iter().map(|a| format!("{a}\n"));
    let lost = plan.lost.iter().map(|l| format!("goes with the namespace: {l}, which somebody else made\n"));
    let stays = plan.stays.iter().map(|s| format!("stays: {s}\n"));
    hosts
        .chain(actions)
        .chain(lost)
        .chain(stays)
        .chain(plan.busy.iter().map(|b| format!("busy: {b}\n")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator::uninstall::Lost;

    #[test]
    fn what_goes_with_a_namespace_is_listed() {
        let lost = Lost {
            kind: "Secret".to_owned(),
            namespace: "openshift-machine-config-operator".to_owned(),
            name: "os-signing".to_owned(),
        };
        let plan = Plan { lost: vec![lost], stays: vec!["x".to_owned()], ..Plan::default() };
        assert_eq!(
            lines(&[], &plan),
            "goes with the namespace: Secret os-signing, which somebody else made\nstays: x\n"
        );
    }
}
