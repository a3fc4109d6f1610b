//! `mco undo`: pins a pool to a config that it had, or takes the pin away. See `rollout::pinned` for what a pin is.
//!
//! What it is not: a change of MachineConfigs (those are named, with who wrote them last, to be corrected where they come
//! from), or the answer, which is [`insight::UndoPlan`].

use crate::args::change::Undo;
use crate::output::Kind;
use crate::{connect, exit, output};
use anyhow::{Context, bail};
use api::k8s::Time;
use api::v1::{MachineConfig, MachineConfigPool};
use insight::{ChangeView, PoolChange, UndoPlan};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use rollout::view::own;
use serde_json::json;
use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

/// One request.
const CALL: Duration = Duration::from_secs(30);
/// While nodes move, a pool's status changes often, and with it the resourceVersion that a patch is bound to.
const TRIES: usize = 10;

pub(crate) async fn run(a: Undo) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let insight::Listed { objects, forbidden } = insight::for_planning(&client, true).await?;
    output::not_allowed(&forbidden);
    let situation = insight::situation(&objects)?;
    let Some(pool) = situation.pools.get(&a.pool).cloned() else {
        let there: Vec<&str> = situation.pools.keys().map(String::as_str).collect();
        bail!("there is no pool {:?}; the pools are: {}", a.pool, there.join(", "));
    };
    let configs = insight::configs(&objects)?;
    let all: Vec<MachineConfig> = configs.values().cloned().collect();
    let from = pool.spec.configuration.name.clone();
    let to = if a.release {
        if rollout::pinned(&pool).is_none() {
            output::write(&format!("pool {} is not pinned: it follows its MachineConfigs\n", a.pool))?;
            return Ok(exit::OK);
        }
        let said = insight::rendered_now(&objects, &a.pool, &operator::install::settings::unknown());
        let (said, warnings) = said.context("its MachineConfigs cannot be rendered; correct them first")?;
        output::warn(&warnings);
        said.context("its MachineConfigs gave no rendered config")?
    } else {
        insight::rollback_target(&pool, &insight::rendered_of(&pool, &all), a.to.as_deref())?.clone()
    };
    let now = Time(jiff::Timestamp::now());
    let policy = insight::disruption_policy(&objects)?;
    let then = situation.with_target(&a.pool, &to.name_any());
    let view = ChangeView { configs: &configs, policy: &policy, now: &now, secrets: a.show.secrets() };
    let change =
        (from != to.name_any()).then(|| PoolChange::of(view, &then, &a.pool, &from, &to)).transpose()?;
    let mut undoing = match a.release {
        true => UndoPlan::released(&pool, change),
        false => UndoPlan::pinned(&pool, &to, &all, change),
    };
    if undoing.is_impossible() {
        output::print(a.output, Kind::Undo, &undoing, || output::changes::undo(&undoing))?;
        eprintln!("mco: nothing was done: no running host can apply this config");
        return Ok(exit::FINDINGS);
    }
    if !a.dry_run {
        if !a.yes {
            eprint!("{}", output::changes::undo(&undoing));
            match ask(&undoing)? {
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
        write(&client, &pool, undoing.pin.as_deref()).await?;
        undoing.done = true;
    }
    output::print(a.output, Kind::Undo, &undoing, || output::changes::undo(&undoing))?;
    Ok(exit::OK)
}

/// Asks for a confirmation; `None`: standard input is no terminal.
fn ask(undoing: &UndoPlan) -> anyhow::Result<Option<bool>> {
    if !std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let what = match &undoing.pin {
        Some(config) => format!("Pin pool {} to {config}?", undoing.pool),
        None => format!("Let pool {} follow its MachineConfigs again?", undoing.pool),
    };
    eprint!("{what} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim(), "y" | "Y" | "yes")))
}

/// Writes the pin, if the pool still has the config and the pin that the plan was made over.
async fn write(client: &kube::Client, seen: &MachineConfigPool, pin: Option<&str>) -> anyhow::Result<()> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let name = seen.name_any();
    let what = || format!("cannot annotate machineconfigpool {name}");
    for _ in 0..TRIES {
        let pool =
            tokio::time::timeout(CALL, pools.get(&name)).await.with_context(what)?.with_context(what)?;
        let same = pool.spec.configuration.name == seen.spec.configuration.name
            && rollout::pinned(&pool) == rollout::pinned(seen)
            && pool.metadata.uid == seen.metadata.uid;
        if !same {
            bail!("pool {name} changed in the meantime; run the command again");
        }
        let version = &pool.metadata.resource_version;
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": {own::PINNED: pin}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let answer =
            tokio::time::timeout(CALL, pools.patch(&name, &params, &patch)).await.with_context(what)?;
        match answer {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => return other.map(drop).with_context(what),
        }
    }
    bail!("pool {name} keeps changing: nothing was written; try again")
}
